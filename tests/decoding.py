"""Holds the native decoders to the installed Pillow: same verdict and, where it loads, same pixels."""

from __future__ import annotations

import io
import json
import random
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import reference
from numpy.typing import NDArray
from PIL import Image

from sglang_mm_ray import _core

AS_PILLOWS_SIMD = pytest.mark.skipif(
    not _core.build_info()["jpeg_simd"],
    reason="built without nasm: libjpeg-turbo's portable code makes other pixels of damaged files",
)


def pillow_rgb(data: bytes) -> NDArray[np.uint8] | None:
    """`[h, w, 3]` uint8 of `Image.open(...).convert("RGB")`, or None where Pillow raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                return np.asarray(image.convert("RGB"))
        except Exception:  # Pillow's plugins raise many types
            return None


def core_rgb(data: bytes) -> NDArray[np.uint8] | None:
    """`[h, w, 3]` uint8 of the core, or None where it refuses the file or finds it too large."""
    try:
        height, width, flat = _core.common.image_decode_rgb(data)
    except (_core.DecodeError, _core.LimitExceeded):
        return None
    return flat.reshape(height, width, 3)


def difference(data: bytes) -> str | None:
    """How core and Pillow differ on a file, or None."""
    theirs, ours = pillow_rgb(data), core_rgb(data)
    if theirs is None or ours is None:
        if theirs is ours:
            return None
        return (
            "Pillow refuses it, the core loads it"
            if theirs is None
            else "Pillow loads it, the core refuses it"
        )
    if theirs.shape != ours.shape:
        return f"shape {theirs.shape} became {ours.shape}"
    wrong = np.argwhere(theirs != ours)
    return None if len(wrong) == 0 else f"{len(wrong)} values differ, first at {wrong[0].tolist()}"


def pixels(data: bytes) -> list[list[int]]:
    """RGB triples of the core, which agree with Pillow's."""
    assert difference(data) is None
    decoded = core_rgb(data)
    assert decoded is not None
    return decoded.reshape(-1, 3).tolist()


def refused(data: bytes) -> bool:
    """Whether the core refuses a file, as Pillow does."""
    assert difference(data) is None
    with pytest.raises(_core.DecodeError):
        _core.common.image_decode_rgb(data)
    return True


def assert_as_pillow(named: Iterable[tuple[str, bytes]]) -> Counter[str]:
    """Fails with a list of all files that differ; counts those that `load` and those that are `refused`."""
    verdicts: Counter[str] = Counter()
    differences = []
    for name, data in named:
        found = difference(data)
        if found is not None:
            differences.append(f"{name}: {found}")
        verdicts["refused" if pillow_rgb(data) is None else "load"] += 1
    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences[:20])
    return verdicts


def assert_bands_as_pillow(named: list[tuple[str, bytes]]) -> None:
    """The same through the path that finishes rows before the next ones are decoded."""
    inkling = _core.processor("inkling", json.dumps({"rescale_frac": None, "rescale_cap": None}))
    for (name, data), image in zip(named, inkling.preprocess_batch([data for _, data in named]), strict=True):
        pixels = pillow_rgb(data)
        assert isinstance(image, Exception) == (pixels is None), (name, image)
        if pixels is not None:
            bits = reference.bf16_bits(reference.inkling_patches_f32(pixels, 40))
            np.testing.assert_array_equal(image.tensors["patches"], bits, err_msg=name)


def encoded(image: Image.Image, format_name: str, **options: Any) -> bytes:
    """An image saved by Pillow."""
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()


def truncations(name: str, data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """Every prefix, or every `step`-th from the end."""
    for length in range(len(data) - 1, -1, -step):
        yield f"{name} cut to {length} of {len(data)}", data[:length]


def mutations(name: str, data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` copies with a few bytes replaced, removed, inserted or doubled; sometimes cut as well."""
    chance = random.Random(seed)
    for index in range(count):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = chance.randrange(len(broken))
            match chance.randrange(6):
                case 0 | 1:
                    broken[at] = chance.randrange(256)
                case 2:
                    broken[at] ^= 1 << chance.randrange(8)
                case 3:
                    del broken[at : at + chance.choice((1, 2, 16))]
                case 4:
                    broken[at:at] = bytes((0xFF, chance.randrange(256)))
                case _:
                    start = chance.randrange(len(broken))
                    broken[at:at] = broken[start : start + chance.randrange(1, 32)]
        if chance.random() < 0.1:
            del broken[chance.randrange(len(broken)) :]
        yield f"{name} mutation {index} of seed {seed}", bytes(broken)


def without_large(named: Iterable[tuple[str, bytes]], most_px: int = 1 << 20) -> Iterator[tuple[str, bytes]]:
    """Drops the files that claim to be large: damaged sizes make Pillow fill hundreds of megabytes."""
    for name, data in named:
        try:
            _, width, height = _core.common.probe(data)
        except _core.InputError:
            width = height = 0
        if width * height <= most_px:
            yield name, data
