"""An image processor in the convention of Hugging Face, over a pool.

`preprocess(images)` takes what `PreprocessPool.preprocess` takes and returns a batch feature with the names
that SGLang's Inkling processor reads.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ..errors import InvalidArgument
from .backend import Backend, Feature, open_backend
from .layout import Layout

__all__ = ["BatchFeature", "InklingPoolImageProcessor"]

_TEMPORAL_COPIES = 2
_FRAMES = Layout(axis=1, copies=_TEMPORAL_COPIES, is_new=True)


class BatchFeature(UserDict[str, Any]):
    """A dict whose entries are attributes too; stands in for transformers' class of that name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":
            raise AttributeError(name)
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


class InklingPoolImageProcessor:
    """Inkling's image processor: encoded images to `vision_patches_bthwc`, by a pool.

    Args:
        backend: where the work is done; by default that of the environment (see `Settings`).
        parameters: of the Inkling family; by default the model's.
    """

    model_input_names: ClassVar[list[str]] = ["vision_patches_bthwc"]

    def __init__(self, backend: Backend | None = None, parameters: Mapping[str, Any] | None = None) -> None:
        self._backend = backend
        self._parameters = dict(parameters or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> InklingPoolImageProcessor:
        # SGLang clones processors for its threads; the connection is shared, and safe to share.
        return type(self)(self._backend, self._parameters)

    def __getstate__(self) -> dict[str, Any]:
        # A connection belongs to its process; the copy connects anew.
        return {"_backend": None, "_parameters": self._parameters}

    @property
    def backend(self) -> Backend:
        """Where the work is done, connected at first use."""
        if self._backend is None:
            self._backend = open_backend("inkling", self._parameters)
        return self._backend

    def __call__(self, images: Any, **kwargs: Any) -> Any:
        """The same as `preprocess`."""
        return self.preprocess(images, **kwargs)

    def preprocess(self, images: Any, return_tensors: str | None = "pt", **kwargs: Any) -> Any:
        """Preprocesses one image or a list of them; blocks.

        Returns:
            A batch feature: `vision_patches_bthwc` (`[sum of patches, 2, ps, ps, 3]`, bfloat16, the temporal
            copies expanded and not stored; with `return_tensors="np"` the same bits as uint16),
            `num_patches`, `num_tokens` and `content_hashes` (u64), one entry an image.

        Raises:
            PreprocessError: an image failed, or the pool is unreachable.
        """
        if return_tensors not in (None, "pt", "np"):
            raise InvalidArgument(f"return_tensors {return_tensors!r} is unknown; choose 'pt' or 'np'")
        if not isinstance(images, (list, tuple)):
            images = [images]
        features = self.backend.preprocess_blocking(images) if images else []
        return batch_feature(features, return_tensors or "pt")


def batch_feature(features: Sequence[Feature], return_tensors: str = "pt") -> Any:
    """What `InklingPoolImageProcessor.preprocess` returns, of features that are already there."""
    patches = [feature.tensors["patches"] for feature in features]
    counts = [int(array.shape[0]) for array in patches]
    if not patches:
        joined = np.empty((0, 0, 0, 3), np.uint16)
    elif len(patches) == 1:
        joined = patches[0]
    else:
        joined = np.concatenate(patches)
    data = {
        "vision_patches_bthwc": _with_temporal(joined, return_tensors),
        "num_patches": counts,
        "num_tokens": [feature.num_tokens for feature in features],
        "content_hashes": [feature.content_hash for feature in features],
    }
    try:
        from transformers import BatchFeature as HuggingFaceBatchFeature
    except ImportError:
        return BatchFeature(data)
    return HuggingFaceBatchFeature(data=data, tensor_type=None)


def _with_temporal(patches: np.ndarray[Any, Any], return_tensors: str) -> Any:
    frames = _FRAMES.apply(patches)
    if return_tensors == "pt":
        from .tensors import as_tensor

        return as_tensor(frames, "bfloat16")
    return frames
