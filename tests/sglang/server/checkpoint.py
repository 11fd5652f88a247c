"""A Qwen2.5-VL checkpoint of a few megabytes with random weights, large enough that every pixel matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["PREPROCESSOR", "write_checkpoint"]

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}"
    "{% elif part.type in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PREPROCESSOR: dict[str, Any] = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 3136,
    # Some hundred tokens an image: attention on a CPU is slow.
    "max_pixels": 200704,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def _write_tokenizer(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {token: tokenizer.token_to_id(token) for token in _SPECIAL}
    _write_json(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "model_max_length": 32768,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "bos_token": None,
            "unk_token": None,
            "errors": "replace",
            "add_prefix_space": False,
            "additional_special_tokens": list(_SPECIAL[1:]),
            "added_tokens_decoder": {
                str(index): {"content": token, "special": True, **flags} for token, index in ids.items()
            },
            "chat_template": _TEMPLATE,
        },
    )
    return ids


def _configuration(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "initializer_range": 0.2,
        "use_sliding_window": False,
        "sliding_window": 32768,
        "max_window_layers": 2,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_token_id": ids["<|vision_pad|>"],
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": 2,
            "hidden_act": "silu",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 4,
            "in_chans": 3,
            "in_channels": 3,
            "out_hidden_size": 64,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "temporal_patch_size": 2,
            "tokens_per_second": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "initializer_range": 0.2,
        },
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1))


def _write_weights(folder: Path) -> None:
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    torch.manual_seed(20240229)
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig.from_pretrained(folder))
    model.save_pretrained(folder)


def write_checkpoint(folder: Path) -> Path:
    """Writes the checkpoint into an empty folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = _write_tokenizer(folder)
    _write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    _write_json(folder / "chat_template.json", {"chat_template": _TEMPLATE})
    configuration = _configuration(ids)
    _write_json(folder / "config.json", configuration)
    _write_weights(folder)
    # What transformers writes along with the weights is of its own version, not of those that publish models.
    _write_json(folder / "config.json", configuration)
    _write_json(folder / "generation_config.json", {"eos_token_id": ids["<|im_end|>"], "do_sample": False})
    return folder
