"""SGLang's Qwen-VL processor with its image work done by a pool.

Requests with images only go to the pool; those with video or audio, and those whose images are preprocessed
already, stay with SGLang's own code. Placeholder expansion, offsets and M-RoPE positions are SGLang's in both
cases.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from typing import Any

from sglang.srt.multimodal.cache import resolve_multimodal_item_hash
from sglang.srt.multimodal.processors.qwen_vl import QwenVLImagePreprocessArtifact, QwenVLImageProcessor

from ..errors import InvalidArgument
from .backend import Feature, open_backend
from .features import as_sglang_answers, feature_tensor, model_dtype, reader_count
from .layout import Layout
from .settings import Settings
from .sources import as_source

__all__ = ["QwenVLPoolProcessor", "checkpoint_parameters"]

logger = logging.getLogger("sglang_mm_ray.sglang")


def checkpoint_parameters(image_processor: Any) -> dict[str, Any]:
    """The parameters of a transformers image processor, as `preprocessor_config.json` has them.

    Which of its two backends is meant shows only in the class.
    """
    fields = json.loads(image_processor.to_json_string())
    backend = "pil" if type(image_processor).__name__.endswith("Pil") else "torchvision"
    return {**{name: value for name, value in fields.items() if value is not None}, "backend": backend}


class QwenVLPoolProcessor(QwenVLImageProcessor):  # type: ignore[misc]
    """`QwenVLImageProcessor` over a pool. Features have the pool's dtype; the model casts them."""

    models = QwenVLImageProcessor.models

    def __init__(self, hf_config: Any, server_args: Any, _processor: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(hf_config, server_args, _processor, *args, **kwargs)
        settings = Settings.from_environment()
        parameters = checkpoint_parameters(_processor.image_processor)
        # The copies of a frame lie inside each row, so making them moves every byte: not in this process.
        copies = int(parameters.get("temporal_patch_size", 2))
        self._backend = open_backend(
            "qwen_vl",
            {**parameters, **self.image_config},
            settings,
            dtype=model_dtype(hf_config, server_args),
            layouts={"pixel_values": Layout(axis=2, copies=copies, is_flat=True)},
            readers=reader_count(server_args, settings),
        )

    async def process_mm_data_async(
        self, image_data: Any, input_text: Any, request_obj: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """See SGLang. Images go to the pool as they came; cancelling the call cancels their work.

        Raises:
            ValueError: a bad image (the package's `InputError`), or placeholders that do not match.
            fastapi.HTTPException: 503 where the pool is overloaded, 504 past the deadline.
        """
        others = request_obj.video_data or request_obj.audio_data
        if not image_data or others or any(self._is_preprocessed_input(item) for item in image_data):
            return await super().process_mm_data_async(image_data, input_text, request_obj, *args, **kwargs)
        wanted = self._placeholders(input_text)
        if wanted > len(image_data):
            raise InvalidArgument(
                f"the prompt has {wanted} image placeholders for {len(image_data)} images; write one for "
                "each, not repeated for each of its tokens"
            )
        if wanted < len(image_data):
            # SGLang goes on without those that have no place.
            logger.warning(
                "%d images for %d placeholders: the last ones are left out", len(image_data), wanted
            )
        if wanted == 0:
            return await super().process_mm_data_async([], input_text, request_obj, *args, **kwargs)
        sources = [as_source(item) for item in image_data[:wanted]]
        features = await as_sglang_answers(self._backend.preprocess(sources))
        _check_content_hashes(features, getattr(request_obj, "mm_content_hashes", None))
        return self.compose_image_artifacts(input_text, [self._artifact(feature) for feature in features])

    def _placeholders(self, prompt: Any) -> int:
        if isinstance(prompt, str):
            return len(self.mm_tokens.image_token_regex.findall(prompt))
        return sum(int(token) == self.mm_tokens.image_token_id for token in prompt)

    def _artifact(self, feature: Feature) -> Any:
        import torch

        digest = feature.digest.hex()
        fingerprint = self._backend.config.fingerprint()
        key = "sha256:" + sha256(f"sglang-mm-ray:{fingerprint}:{digest}".encode()).hexdigest()
        return QwenVLImagePreprocessArtifact(
            content_digest=f"sha256:{digest}",
            artifact_key=key,
            feature_hash=resolve_multimodal_item_hash(existing_hash=0, namespace=key),
            feature=feature_tensor(feature, "pixel_values"),
            model_specific_data={"image_grid_thw": torch.tensor([feature.grid], dtype=torch.long)},
        )


def _check_content_hashes(features: list[Feature], claimed: Any) -> None:
    if not claimed:
        return
    if len(claimed) != len(features):
        raise InvalidArgument(
            f"{len(claimed)} mm_content_hashes for {len(features)} images; pass one for each"
        )
    for index, (feature, claim) in enumerate(zip(features, claimed, strict=True)):
        if claim is not None and claim != f"sha256:{feature.digest.hex()}":
            raise InvalidArgument(f"mm_content_hashes[{index}] is not the SHA-256 of image {index}")
