"""The native core."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

__version__: Final[str]

class PreprocessError(Exception):
    code: str
    retriable: bool

class InputError(PreprocessError, ValueError): ...

class DecodeError(InputError):
    format: str

class UnsupportedFormat(DecodeError): ...

class LimitExceeded(InputError):
    what: str
    value: int
    limit: int

class InvalidArgument(InputError): ...
class InternalError(PreprocessError, RuntimeError): ...

class Limits:
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

class Processed:
    tensors: dict[str, NDArray[Any]]
    dtypes: dict[str, str]
    height: int
    width: int
    grid: tuple[int, int, int]
    num_tokens: int
    digest: bytes
    content_hash: int
    decoder: str
    times: dict[str, float]

class Processor:
    @property
    def name(self) -> str: ...
    @property
    def parameters_json(self) -> str: ...
    def plan(self, width: int, height: int, transport: str = "bf16") -> dict[str, Any]: ...
    def preprocess_batch(
        self, datas: list[Any], transport: str = "bf16", limits: Limits | None = None
    ) -> list[Processed | PreprocessError]: ...
    def preprocess_rgb(
        self,
        arr: NDArray[np.uint8],
        transport: str = "bf16",
        limits: Limits | None = None,
        digest: bytes | None = None,
    ) -> Processed: ...
    def finish(self, pixels: NDArray[np.uint8], transport: str, out: NDArray[np.uint8]) -> None: ...

def processor(name: str, parameters_json: str = "{}") -> Processor: ...
def processor_names() -> list[str]: ...
def build_info() -> dict[str, Any]: ...
def set_thread_budget(threads: int) -> None: ...

class common:
    @staticmethod
    def resize_rgb(
        arr: NDArray[np.uint8], out_w: int, out_h: int, resample: str = "pil_lanczos"
    ) -> NDArray[np.uint8]: ...
    @staticmethod
    def scaled_dims(
        w: int, h: int, rescale_frac: float | None = None, rescale_cap: int | None = None
    ) -> tuple[int, int]: ...
    @staticmethod
    def image_decode_rgb(data: Any) -> tuple[int, int, NDArray[np.uint8]]: ...
    @staticmethod
    def decode_rgb(data: Any, limits: Limits | None = None) -> tuple[int, int, NDArray[np.uint8], str]: ...
    @staticmethod
    def data_hash(data: Any) -> int: ...
    @staticmethod
    def content_digest(data: Any) -> bytes: ...
    @staticmethod
    def base64_decode(encoded: str) -> bytes: ...
