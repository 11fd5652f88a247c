"""The reference of Qwen-VL: transformers' own image processors, run independently of the core.

The module imports without transformers; what runs them raises `ImportError` then. The cases that
`generate_golden_qwen.py` stores and the tests repeat are defined here, so that both mean the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Config = dict[str, Any]

# `preprocessor_config.json` as checkpoints have it: the old names, the new ones, and a file that transformers
# wrote back with every field it knows.
QWEN2_5_VL: Config = {
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
}
QWEN3_VL: Config = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
}
WRITTEN_BACK: Config = {
    "crop_size": None,
    "data_format": "channels_first",
    "default_to_square": True,
    "device": None,
    "disable_grouping": None,
    "do_center_crop": None,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_pad": None,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "image_std": [0.5, 0.5, 0.5],
    "input_data_format": None,
    "max_pixels": None,
    "merge_size": 2,
    "min_pixels": None,
    "pad_size": None,
    "patch_size": 16,
    "processor_class": "Qwen3VLProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "return_tensors": None,
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "temporal_patch_size": 2,
}
MODELS = {"qwen2_5_vl": QWEN2_5_VL, "qwen3_vl": QWEN3_VL, "written_back": WRITTEN_BACK}
BACKENDS = ("torchvision", "pil")

# Every switch, filter and patch shape, one or two at a time.
MODES: dict[str, Config] = {
    "defaults": {},
    "no_rescale": {"do_rescale": False},
    "no_normalize": {"do_normalize": False},
    "bare": {"do_rescale": False, "do_normalize": False},
    "no_resize": {"do_resize": False},
    "bilinear": {"resample": 2},
    "lanczos": {"resample": 1},
    "one_copy": {"temporal_patch_size": 1},
    "three_copies": {"temporal_patch_size": 3},
    "unmerged": {"merge_size": 1, "patch_size": 28},
    "merge_4": {"merge_size": 4, "patch_size": 7},
    "other_factor": {"rescale_factor": 1 / 127.5},
    "one_mean": {"image_mean": 0.5, "image_std": 0.25},
    "top_wins": {"min_pixels": 20000, "size": {"shortest_edge": 3136, "longest_edge": 1003520}},
}
PIL_MODES: dict[str, Config] = {"box": {"resample": 4}, "hamming": {"resample": 5}}
# `(width, height)` in pixels; whole tokens for `no_resize`.
MODE_SIZE, WHOLE_SIZE = (117, 83), (112, 84)

# Pixel budgets of the random sizes: as shipped, shrinking and growing; and the longest side tried with each.
RANDOM_BUDGETS: list[tuple[Config, int]] = [
    (QWEN2_5_VL, 320),
    (QWEN2_5_VL | {"max_pixels": 15680}, 900),
    (QWEN2_5_VL | {"min_pixels": 50176}, 320),
    (QWEN3_VL, 280),
    (QWEN3_VL | {"size": {"longest_edge": 65536, "shortest_edge": 4096}}, 900),
]


def random_sizes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """`(width, height, index of the budget)`; sides are even over orders of magnitude, at most 200 to 1."""
    draw = random.Random(seed)
    sizes: list[tuple[int, int, int]] = []
    while len(sizes) < count:
        budget = len(sizes) % len(RANDOM_BUDGETS)
        most = RANDOM_BUDGETS[budget][1]
        width, height = (round(most ** draw.random()) for _ in range(2))
        if max(width, height) <= 200 * min(width, height):
            sizes.append((width, height, budget))
    return sizes


SMART_RESIZES = [
    (height, width, factor, fewest, most)
    for height, width in [
        (1, 1),
        (1, 200),
        (200, 1),
        (1, 201),
        (201, 1),
        (3, 1),
        (10, 500),
        (12, 100),
        (14, 2000),
        (26, 28),
        (27, 332),
        (30, 328),
        (42, 70),
        (639, 31),
        (98, 98),
        (512, 512),
        (1080, 1920),
        (2160, 3840),
        (9000, 9000),
        (20000, 101),
    ]
    for factor, fewest, most in [
        (28, 3136, 12845056),
        (28, 3136, 1003520),
        (28, 3136, 15680),
        (32, 65536, 16777216),
        (28, 12845056, 12845056),
        (4, 1, 100),
    ]
]

# Prompts as lists of text lengths and grids of images, in order.
PROMPTS: list[list[int | tuple[int, int, int]]] = [
    [1, (1, 4, 6), 1],
    [(1, 4, 6), 1, (1, 8, 2)],
    [5, (1, 2, 2), 3, (1, 30, 4), 1, (1, 4, 30), 7],
    [(1, 2, 2)],
    [2, (2, 4, 4), 2],
    [9],
]


def available() -> bool:
    """Whether transformers, torch and torchvision are installed."""
    return all(
        importlib.util.find_spec(name) is not None for name in ("transformers", "torch", "torchvision")
    )


def versions() -> dict[str, str]:
    """What the values come from, the instruction set of ATen included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import PIL
        import torch
        import torchvision
        import transformers
    found = {module.__name__: module.__version__ for module in (PIL, np, torch, torchvision, transformers)}
    return found | {"aten_cpu_capability": torch.backends.cpu.get_cpu_capability()}


def image_processor(config: Config, backend: str) -> Any:
    """transformers' processor of a backend for a checkpoint's config."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import Qwen2VLImageProcessor, Qwen2VLImageProcessorPil

        kind = {"torchvision": Qwen2VLImageProcessor, "pil": Qwen2VLImageProcessorPil}[backend]
        return kind.from_dict(dict(config))


def pixel_values(
    config: Config, backend: str, rgb: NDArray[np.uint8]
) -> tuple[NDArray[np.float32], list[int]]:
    """`[patches, 3 * temporal * patch * patch]` float32, and `[t, rows, columns]`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = image_processor(config, backend)(Image.fromarray(rgb), return_tensors="pt")
    return out["pixel_values"].float().numpy(), out["image_grid_thw"][0].tolist()


def bf16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the values rounded to bfloat16, by torch."""
    import torch

    return torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()


def resized_pixels(config: Config, backend: str, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """`[h, w, 3]` uint8: what the backend's own `resize` makes of the picture, before it normalises."""
    import torch

    processor = image_processor(config, backend)
    planes = np.ascontiguousarray(rgb.transpose(2, 0, 1))
    sizing = {"size": processor.size, "resample": processor.resample}
    factor = processor.patch_size * processor.merge_size
    if backend == "pil":
        resized = processor.resize(planes, factor=factor, **sizing)
    else:
        resized = processor.resize(torch.from_numpy(planes)[None], factor=factor, **sizing)[0].numpy()
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def smart_resize(case: tuple[int, int, int, int, int]) -> list[int] | None:
    """`[height, width]`, or None where transformers raises ValueError."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as published

    height, width, factor, fewest, most = case
    try:
        return list(published(height, width, factor, min_pixels=fewest, max_pixels=most))
    except ValueError:
        return None


def rope_index(
    model: str, prompt: list[int | tuple[int, int, int]], merge: int
) -> tuple[list[list[int]], int]:
    """`get_rope_index` of a model: `[3][len]` positions and the delta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers import Qwen2_5_VLModel, Qwen2VLModel, Qwen3VLModel

    kind: Any = {"qwen2_vl": Qwen2VLModel, "qwen2_5_vl": Qwen2_5_VLModel, "qwen3_vl": Qwen3VLModel}[model]
    vision = SimpleNamespace(spatial_merge_size=merge, tokens_per_second=2)
    owner = SimpleNamespace(config=SimpleNamespace(vision_config=vision))
    owner.get_vision_position_ids = partial(kind.get_vision_position_ids, owner)
    kinds: list[int] = []
    grids = [part for part in prompt if not isinstance(part, int)]
    for part in prompt:
        kinds += [0] * part if isinstance(part, int) else [1] * (part[0] * part[1] * part[2] // merge**2)
    types = torch.tensor([kinds])
    grid = torch.tensor(grids) if grids else None
    positions, delta = kind.get_rope_index(owner, torch.zeros_like(types), types, image_grid_thw=grid)
    return positions[:, 0].tolist(), int(delta[0, 0])


def spans(
    prompt: list[int | tuple[int, int, int]], merge: int
) -> tuple[int, list[tuple[int, int, int, int, int]]]:
    """Length of a prompt in tokens, and `(first token, last token, t, rows, columns)` of its images."""
    at, items = 0, []
    for part in prompt:
        if isinstance(part, int):
            at += part
            continue
        tokens = part[0] * part[1] * part[2] // merge**2
        items.append((at, at + tokens - 1, *part))
        at += tokens
    return at, items


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of all values, little-endian; 16 of its 64 digits."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def one_thread() -> None:
    """Holds torch to one thread."""
    import torch

    torch.set_num_threads(1)
