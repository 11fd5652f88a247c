"""SGLang's own processor classes with the images of a request preprocessed by a pool.

Such a class keeps to itself what it does with text, placeholders, offsets and positions. Before it loads a
request's images they go to the pool, and what it then carries to Hugging Face's image processor are
`PreparedImage`s, of which that takes the tensors. So nothing is downloaded, decoded or resized here.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

from ..errors import InvalidArgument
from ..sources.policy import SourcePolicy
from ..sources.source import classify, resolve
from .backend import Feature, open_backend
from .features import as_sglang_answers, model_dtype
from .layout import Layouts
from .prepared_image import PreparedImage
from .prepared_processor import Outputs, for_prepared_images
from .settings import Settings
from .sources import as_source

__all__ = ["OverPool"]

_features: contextvars.ContextVar[list[Feature] | None] = contextvars.ContextVar("features", default=None)


class OverPool:
    """Put before a processor class of SGLang, as its first base; says which family of the core is meant."""

    family: ClassVar[str]
    outputs: ClassVar[Outputs]

    def __init__(self, hf_config: Any, server_args: Any, _processor: Any, *args: Any, **kwargs: Any) -> None:
        settings = Settings.from_environment()
        parameters = self.core_parameters(_processor.image_processor)
        self._backend = open_backend(
            self.family,
            parameters,
            settings,
            dtype=model_dtype(hf_config, server_args),
            layouts=self.layouts(parameters),
        )
        _processor.image_processor = for_prepared_images(_processor.image_processor, self.outputs)
        super().__init__(hf_config, server_args, _processor, *args, **kwargs)  # type: ignore[call-arg]

    @classmethod
    def core_parameters(cls, image_processor: Any) -> dict[str, Any]:
        """The core's parameters, of the checkpoint's image processor."""
        raise NotImplementedError

    @classmethod
    def layouts(cls, parameters: Mapping[str, Any]) -> Layouts:
        """What the image processor makes of the core's tensors."""
        return {}

    async def process_mm_data_async(self, *args: Any, **kwargs: Any) -> Any:
        """See SGLang. Items get the hash of their content and of what it was preprocessed with."""
        token = _features.set([])
        try:
            output = await super().process_mm_data_async(*args, **kwargs)  # type: ignore[misc]
            features = _features.get() or []
        finally:
            _features.reset(token)
        images = [item for item in (output.mm_items if output is not None else []) if item.is_image()]
        if len(images) == len(features):
            for item, feature in zip(images, features, strict=True):
                if item.pad_value is None:
                    item.set_hash(self._hash(feature))
        return output

    async def load_mm_data(
        self, prompt: Any, multimodal_tokens: Any, image_data: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """See SGLang. Images go to the pool as they came."""
        if image_data and not any(map(self._stays_here, image_data)):
            image_data = await self._prepare(prompt, multimodal_tokens, list(image_data))
        return await super().load_mm_data(prompt, multimodal_tokens, image_data, *args, **kwargs)  # type: ignore[misc]

    @classmethod
    def _load_single_item(cls, data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, PreparedImage):
            return data
        return super()._load_single_item(data, *args, **kwargs)  # type: ignore[misc]

    def _stays_here(self, item: Any) -> bool:
        # What one image asks for by itself is no pool's configuration.
        asked = ("preprocess_kwargs", "max_dynamic_patch", "max_long_side_pixel")
        preprocessed: bool = self._is_preprocessed_input(item)  # type: ignore[attr-defined]
        return preprocessed or any(getattr(item, name, None) is not None for name in asked)

    async def _prepare(self, prompt: Any, tokens: Any, image_data: list[Any]) -> list[Any]:
        wanted = self._placeholders(prompt, tokens)
        if wanted > len(image_data):
            # SGLang would never answer: its StopIteration cannot leave a future.
            raise InvalidArgument(
                f"the prompt has {wanted} image placeholders for {len(image_data)} images; write one for "
                "each, not repeated for each of its tokens"
            )
        sources = [as_source(item) for item in image_data]
        features = await as_sglang_answers(self._backend.preprocess(sources))
        kept = _features.get()
        if kept is not None:
            kept[:] = features[:wanted]
        return [
            PreparedImage(feature, _reader(source)) for feature, source in zip(features, sources, strict=True)
        ]

    def _placeholders(self, prompt: Any, tokens: Any) -> int:
        if isinstance(prompt, str):
            return len(tokens.image_token_regex.findall(prompt))
        return sum(int(token) == tokens.image_token_id for token in prompt)

    def _hash(self, feature: Feature) -> int:
        from sglang.srt.multimodal.cache import resolve_multimodal_item_hash

        identity = f"sglang-mm-ray:{self._backend.config.fingerprint()}:{feature.digest.hex()}"
        key = "sha256:" + sha256(identity.encode()).hexdigest()
        value: int = resolve_multimodal_item_hash(existing_hash=0, namespace=key)
        return value


def _reader(source: object) -> Any:
    def read() -> bytes:
        resolved = resolve(classify(source), SourcePolicy())
        if not isinstance(resolved.data, (bytes, bytearray, memoryview)):
            raise InvalidArgument("pixels have no file to read")
        return bytes(resolved.data)

    return read
