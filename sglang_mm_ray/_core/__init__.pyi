"""The native core: exact image preprocessing, without Ray.

Encoded images come as `bytes`, `bytearray`, `memoryview` or numpy arrays of bytes and are borrowed, not
copied: do not write to them during a call. Strided ones are copied, as are lists, tuples and arrays of
integers. Pixels come as numpy uint8 arrays of any strides. Every call that does work releases the GIL.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from . import common as common
from . import inkling as inkling
from . import qwen_vl as qwen_vl
from . import transforms as transforms

__all__ = [
    "DecodeError",
    "InputError",
    "InternalError",
    "InvalidArgument",
    "LimitExceeded",
    "Limits",
    "PreprocessError",
    "Processed",
    "Processor",
    "UnsupportedFormat",
    "__version__",
    "build_info",
    "common",
    "inkling",
    "processor",
    "processor_names",
    "qwen_vl",
    "set_simd_level",
    "set_thread_budget",
    "touch_ahead",
    "transforms",
]

__version__: Final[str]

_Data: TypeAlias = bytes | bytearray | memoryview | NDArray[Any] | list[int] | tuple[int, ...]

class PreprocessError(Exception):
    """Base of every error of this package."""

    code: str
    retriable: bool

class InputError(PreprocessError, ValueError):
    """The input is at fault; the same input will fail again."""

class DecodeError(InputError):
    """The file is broken, or is no image. `format` names what it claims to be."""

    format: str

class UnsupportedFormat(DecodeError):
    """No native decoder handles the format, which `format` names."""

class LimitExceeded(InputError):
    """The input is over a limit: `what`, its `value` and the `limit`."""

    what: str
    value: int
    limit: int

class InvalidArgument(InputError):
    """The caller passed what cannot work."""

class InternalError(PreprocessError, RuntimeError):
    """A fault of the core itself."""

@final
class Limits:
    """Limits that hold before memory is taken."""

    def __new__(
        cls,
        *,
        max_input_bytes: int | None = None,
        max_pixels: int | None = None,
        max_patches: int | None = None,
    ) -> Self: ...
    @property
    def max_input_bytes(self) -> int: ...
    @property
    def max_pixels(self) -> int: ...
    @property
    def max_patches(self) -> int: ...

@final
class Processed:
    """A preprocessed image."""

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """The outputs by name, those made of pixels first; bfloat16 comes as its bits in uint16."""

    @property
    def dtypes(self) -> dict[str, str]:
        """The element type of each output, such as `"bfloat16"`."""

    @property
    def height(self) -> int:
        """Pixels after resizing."""

    @property
    def width(self) -> int:
        """Pixels after resizing."""

    @property
    def grid(self) -> tuple[int, int, int]:
        """Patches: temporal, rows, columns."""

    @property
    def num_tokens(self) -> int:
        """Placeholder tokens in the prompt."""

    @property
    def source_size(self) -> tuple[int, int]:
        """Width and height of the source in pixels."""

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoded bytes."""

    @property
    def content_hash(self) -> int:
        """SGLang's `data_hash`: the first 8 bytes of the digest, big-endian."""

    @property
    def decoder(self) -> str:
        """Which decoder made the pixels, such as `"jpeg"`; `"rgb"` for pixels that came as such."""

    @property
    def times(self) -> dict[str, float]:
        """Seconds of each stage: `hash_s`, `decode_s`, `resize_s`, `patchify_s`."""

@final
class Processor:
    """A model family with its parameters fixed."""

    @property
    def name(self) -> str:
        """Name of the family."""

    @property
    def parameters_json(self) -> str:
        """All parameters as canonical JSON, defaults filled in: equal text means equal results."""

    @property
    def load(self) -> str:
        """How files are loaded: `"rgb"`, as Pillow's `convert("RGB")`; or `"upright"`, where EXIF and
        transparency count: workers of a pool hand such a file over as pixels, the core takes it as RGB."""

    def request_key(self, request: dict[str, Any]) -> str:
        """What of a request's facts changes this family's results, as canonical JSON; empty if nothing does.
        With `parameters_json` it is the identity of a result. Raises `InvalidArgument` for a fact that the
        family does not know; every family takes `num_images` and `token_budget`."""

    def plan(
        self, width: int, height: int, transport: str = "bf16", *, request: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """What an image of this size in pixels becomes: `width`, `height`, `grid`, `num_tokens`, `tensors`
        (name to `(dtype, shape)`) and `size_bytes`. `request` holds facts of the request it belongs to."""

    def preprocess_batch(
        self,
        datas: Sequence[_Data],
        transport: str = "bf16",
        limits: Limits | None = None,
        digests: Sequence[bytes] | None = None,
        *,
        request: dict[str, Any] | None = None,
    ) -> list[Processed | PreprocessError]:
        """Preprocesses encoded images side by side: a `Processed` or an exception object for each, in order.
        `digests` (SHA-256 of each) spares hashing what the caller has hashed."""

    def preprocess_rgb(
        self,
        arr: NDArray[np.uint8],
        transport: str = "bf16",
        limits: Limits | None = None,
        digest: bytes | None = None,
        *,
        request: dict[str, Any] | None = None,
    ) -> Processed:
        """Preprocesses an `[h, w, 3]` array; `digest` is the identity of its source, by default the SHA-256
        of the pixels."""

    def finished(self, width: int, height: int, transport: str = "bf16") -> dict[str, tuple[str, list[int]]]:
        """The tensors, name to `(dtype, shape)`, that `finish` makes of pixels already resized to this
        size, one after the other. Raises `InvalidArgument` for a family that needs the source's size."""

    def finish(
        self,
        pixels: NDArray[np.uint8],
        transport: str,
        out: NDArray[np.uint8],
        *,
        source: tuple[int, int] | None = None,
        request: dict[str, Any] | None = None,
    ) -> None:
        """Late normalising: writes the tensors of resized pixels (the `uint8` transport), one after the
        other, into `out`, a flat, contiguous, writable view of the output's bytes.

        `source` is the width and height of the source. Without it the pixels must be `[h, w, 3]` and the
        family one of those that need no more; with it they are what the `uint8` transport made, of one view
        or of several. Raises `InvalidArgument` if the sizes differ."""

    def finish_batch(
        self,
        pixels: Sequence[NDArray[np.uint8]],
        transport: str,
        out: NDArray[np.uint8],
        offsets_bytes: Sequence[int] | None = None,
        *,
        sources: Sequence[tuple[int, int]] | None = None,
        request: dict[str, Any] | None = None,
    ) -> None:
        """`finish` of many images side by side into one array, each at its offset, by default one after the
        other. Raises `InvalidArgument` if two overlap or one does not fit; `out` is untouched then."""

def processor(name: str, parameters_json: str = "{}") -> Processor:
    """A processor of the named family; `parameters_json` is a JSON object of its parameters."""

def processor_names() -> list[str]:
    """Names of the families."""

def build_info() -> dict[str, Any]:
    """How this build was made and what it runs with: `version`, `target`, `jpeg_simd`, `threads`, `simd`,
    `simd_detected`, `simd_available`, `cpu_features`, and `resize_vertical_first_when_tall`, which like
    the version belongs into the key of whatever is cached across machines."""

def set_thread_budget(threads: int) -> None:
    """Sets how many threads this process may use; before the first image. `SGL_MM_RS_THREADS` wins."""

def set_simd_level(name: str | None = None) -> None:
    """Forces a SIMD level in this process (`None`: `SGL_MM_RS_SIMD` or the CPU decide); for tests and
    comparisons."""

def touch_ahead(size_bytes: int) -> None:
    """Touches memory for the results to come, 256 MiB at most; it is theirs or idle, and counts as such.

    On a virtual machine the first touch of a page takes ten times as long as writing to it."""
