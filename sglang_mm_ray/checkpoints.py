"""Which model family a checkpoint's folder is of, and with what parameters. Reads JSON and runs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import InvalidArgument

__all__ = ["family_of_folder"]

# By the class of the image processor, without the endings of its backends.
_CLASSES = {
    "CLIPImageProcessor": "clip",
    "Cohere2VisionImageProcessor": "cohere2_vision",
    "Ernie4_5_VLMoeImageProcessor": "ernie4_5_vl",
    "Gemma3ImageProcessor": "gemma3",
    "Gemma4ImageProcessor": "gemma4",
    "Gemma4UnifiedImageProcessor": "gemma4_unified",
    "Glm46VImageProcessor": "glm46v",
    "Glm4vImageProcessor": "glm4v",
    "Glm5NextImageProcessor": "glm5_next",
    "GlmImageImageProcessor": "glm_image",
    "GotOcr2ImageProcessor": "internvl",
    "Kimi_K25ImageProcessor": "kimi_k25",
    "Lfm2VlImageProcessor": "lfm2_vl",
    "Llama4ImageProcessor": "llama4",
    "LlavaNextImageProcessor": "llava_next",
    "LlavaOnevisionImageProcessor": "llava_onevision",
    "MiniMaxM31ImageProcessor": "minimax_m31",
    "MiniMaxM3VLImageProcessor": "minimax_m3",
    "MllamaImageProcessor": "mllama",
    "MuseGlimmerImageProcessor": "muse_glimmer",
    "PaddleOCRVLImageProcessor": "paddleocr_vl",
    "PixtralImageProcessor": "pixtral",
    "Qwen2VLImageProcessor": "qwen_vl",
    "Qwen2_5_VLImageProcessor": "qwen_vl",
    "Siglip2ImageProcessor": "siglip2",
    "SiglipImageProcessor": "siglip",
    "VLMImageProcessor": "janus",
}
# By the model, where the processor's class is another model's or has no name.
_MODELS = {
    "gemma3n": "gemma3n",
    "inkling": "inkling",
    "internvl_chat": "internvl",
    "kimi_k25": "kimi_k25",
    "kimi_vl": "kimi_vl",
}
# What `config.json` says of the image, for families whose processor does not.
_FROM_MODEL = {"internvl": ("min_dynamic_patch", "max_dynamic_patch", "use_thumbnail", "downsample_ratio")}


def family_of_folder(folder: str | Path) -> tuple[str, dict[str, Any]]:
    """The family's name and its parameters, for `PoolConfig` or `_core.processor`.

    Args:
        folder: a checkpoint, with `preprocessor_config.json` or `processor_config.json`; its `config.json` is
            read too if it is there.

    Raises:
        InvalidArgument: a file cannot be read, or no family here knows the checkpoint.
    """
    path = Path(folder)
    model = _read(path / "config.json") or {}
    image = _read(path / "preprocessor_config.json") or _read(path / "processor_config.json")
    model_type = str(model.get("model_type", ""))
    if image is None and _MODELS.get(model_type) != "inkling":
        raise InvalidArgument(
            f"{path} has no preprocessor_config.json and no processor_config.json; name a checkpoint's folder"
        )
    fields = dict(image or {})
    inner = fields.get("image_processor")
    named = inner if isinstance(inner, dict) else fields
    kind = str(named.get("image_processor_type") or named.get("feature_extractor_type") or "")
    family = _MODELS.get(model_type) or _CLASSES.get(kind.removesuffix("Fast").removesuffix("Pil"))
    if family is None:
        raise InvalidArgument(
            f"{path}: no family here knows image_processor_type {kind!r} of model_type {model_type!r}; "
            "`sglang-mm-ray models` lists the families, --model and --parameters name one"
        )
    if family == "inkling":
        return family, {}
    for name in _FROM_MODEL.get(family, ()):
        if name in model:
            fields.setdefault(name, model[name])
    if kind.endswith("Pil"):
        fields.setdefault("backend", "pil")
    return family, fields


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{path} must hold a JSON object")
    return value
