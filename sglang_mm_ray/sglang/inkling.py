"""SGLang's Inkling processor with its image work done by a pool.

Loaded by SGLang when `SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE=sglang_mm_ray.sglang` is set. Token expansion,
offsets and audio stay SGLang's own code; only where the features come from changes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sglang.srt.multimodal.processors.inkling import InklingMultimodalProcessor

from .backend import Feature, open_backend
from .features import as_sglang_answers, feature_tensor, reader_count
from .layout import Layout
from .settings import Settings
from .sources import as_source

__all__ = ["InklingPoolProcessor"]

_FRAMES = {"patches": Layout(axis=1, copies=2, is_new=True)}


class _PerImage:
    """Stands where SGLang expects one tensor of all images, and gives each image's own tensor for its slice.

    SGLang slices the features of all images, image by image; joining them first would copy every byte.
    """

    def __init__(self, tensors: list[Any]) -> None:
        self._by_start: dict[int, Any] = {}
        start = 0
        for tensor in tensors:
            self._by_start[start] = tensor
            start += int(tensor.shape[0])

    def __getitem__(self, rows: slice) -> Any:
        tensor = self._by_start[rows.start]
        if rows.stop - rows.start != tensor.shape[0]:
            raise IndexError(f"rows {rows.start} to {rows.stop} are not those of one image")
        return tensor


class _ReadyImages:
    """An image processor for SGLang's `assemble` whose images are preprocessed already."""

    def preprocess(self, images: list[Feature], return_tensors: str = "pt", **kwargs: Any) -> dict[str, Any]:
        tensors = [feature_tensor(image, "patches") for image in images]
        return {
            "vision_patches_bthwc": _PerImage(tensors),
            "num_patches": [int(tensor.shape[0]) for tensor in tensors],
            "num_tokens": [image.num_tokens for image in images],
            "content_hashes": [image.content_hash for image in images],
        }


class InklingPoolProcessor(InklingMultimodalProcessor):  # type: ignore[misc]
    """`InklingMultimodalProcessor` over a pool; same ids, offsets and features.

    An image's hash is the first 8 bytes of its content's SHA-256, where SGLang 0.5.23 has those of BLAKE3: a
    prefix cache that servers with and without a pool share holds an image twice.
    """

    models = InklingMultimodalProcessor.models

    def __init__(self, hf_config: Any, server_args: Any, _processor: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(hf_config, server_args, _processor, *args, **kwargs)
        settings = Settings.from_environment()
        vision = getattr(hf_config, "vision_config", None)
        parameters = {"patch_size": int(getattr(vision, "patch_size", None) or 40)}
        readers = reader_count(server_args, settings)
        self._backend = open_backend("inkling", parameters, settings, layouts=_FRAMES, readers=readers)
        self.inkling_processor.image_processor = _ReadyImages()

    async def process_mm_data_async(
        self,
        image_data: Any = None,
        audio_data: Any = None,
        input_text: Any = "",
        request_obj: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """See SGLang. Images go to the pool as they came; cancelling the call cancels their work.

        Raises:
            ValueError: a bad image (the package's `InputError`), or counts that do not match.
            fastapi.HTTPException: 503 where the pool is overloaded, 504 past the deadline.
        """
        features: list[Feature] = []
        if image_data:
            sources = [as_source(item) for item in image_data]
            features = await as_sglang_answers(self._backend.preprocess(sources))
        rest = super().process_mm_data_async(features, audio_data, input_text, request_obj, *args, **kwargs)
        if not audio_data:
            return await rest
        # SGLang downloads and decodes audio in this call; on the loop it would hold up every request.
        return await asyncio.get_running_loop().run_in_executor(self.io_executor, asyncio.run, rest)
