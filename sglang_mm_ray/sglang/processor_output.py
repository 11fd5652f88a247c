"""`processor_output` dicts: preprocessed images for `Engine.generate`, without any change to a server.

SGLang takes one dict for all images of a request, and images bundled in it would share one pad sentinel if
the dict carried a hash. So the dict carries the padded token ids, the offsets and the M-RoPE positions, and a
hash only where there is one image; SGLang hashes the features of several itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from .._core import qwen_vl
from ..errors import InvalidArgument
from ..results.gathering import gather
from .layout import Layout
from .tensors import as_tensor

if TYPE_CHECKING:
    from ..results.image import ProcessedImage

__all__ = ["pad_values", "qwen_vl_processor_output"]

_PAD_TAG = b"sglang-mm-wide-pad-v1"
_PAD_SHIFT = 1_000_000
_PAD_MASK = (1 << 62) - 1


def pad_values(content_hash: int) -> tuple[int, int, int, int]:
    """The four sentinels that SGLang's radix cache sees in place of an image's placeholder tokens.

    They are taken from SHA-256 over a tag and the image's 64-bit hash, as `MultimodalDataItem.set_hash` does.
    """
    digest = sha256(_PAD_TAG + content_hash.to_bytes(8, "big")).digest()
    first, second, third, fourth = (
        _PAD_SHIFT + (int.from_bytes(digest[at : at + 8], "big") & _PAD_MASK) for at in range(0, 32, 8)
    )
    return first, second, third, fourth


def qwen_vl_processor_output(
    images: Sequence[ProcessedImage],
    input_ids: Sequence[int],
    *,
    image_token_id: int,
    merge_size: int = 2,
    temporal_copies: int = 2,
) -> tuple[list[int], dict[str, Any]]:
    """A request's token ids and the one entry of its `image_data`, for Qwen-VL models.

    Args:
        images: of a `qwen_vl` pool, in the order of their placeholders.
        input_ids: the prompt, with one `image_token_id` for each image.
        image_token_id: the model's placeholder token.
        merge_size: the model's `spatial_merge_size`.
        temporal_copies: the model's `temporal_patch_size`.

    Returns:
        The ids with every placeholder repeated, for `Engine.generate(input_ids=...)`, and the dict, for
        `image_data=[...]`: `pixel_values` (`[sum of patches, channels * copies * patch * patch]`),
        `image_grid_thw` (`[n, 3]`), `offsets`, `padded_input_ids`, `mrope_positions` (`[3, length]`) and
        `mrope_position_delta`.

    Raises:
        InvalidArgument: no image, or placeholders that do not match the images.
        ResultLost: a result cannot be read any more.
    """
    import torch

    if not images:
        raise InvalidArgument("there is no image; call Engine.generate without image_data")
    counts = [image.num_tokens for image in images]
    ids, offsets = qwen_vl.expand_placeholders(list(input_ids), image_token_id, counts)
    padded = list(ids)
    for image, (first, last) in zip(images, offsets, strict=True):
        sentinels = pad_values(image.content_hash)
        padded[first : last + 1] = [sentinels[at % 4] for at in range(last + 1 - first)]
    spans = [(*span, *image.grid_thw) for span, image in zip(offsets, images, strict=True)]
    positions, delta = qwen_vl.mrope_image_only_py(len(ids), spans, merge_size)
    name, dtype, _ = images[0].finished()[0]
    stored = images[0].array(name) if len(images) == 1 and images[0].dtype == dtype else gather(images)
    layout = Layout(axis=2, copies=temporal_copies, is_flat=True)
    output: dict[str, Any] = {
        "format": "processor_output",
        "modality": "IMAGE",
        "pixel_values": as_tensor(layout.apply(stored), dtype),
        "image_grid_thw": torch.tensor([image.grid_thw for image in images], dtype=torch.long),
        "offsets": [tuple(span) for span in offsets],
        "input_ids": list(ids),
        "padded_input_ids": padded,
        "mrope_positions": torch.from_numpy(positions.reshape(3, -1)),
        "mrope_position_delta": torch.tensor([[delta]], dtype=torch.long),
    }
    if len(images) == 1:
        output["hash"] = images[0].content_hash
    return list(ids), output
