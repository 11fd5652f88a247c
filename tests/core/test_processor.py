"""`_core.processor`: the families by name, their plans, outputs and errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from images import encode, scene
from PIL import Image

from sglang_mm_ray import _core

STAGES = {"hash_s", "decode_s", "resize_s", "patchify_s"}


def jpeg(width_px: int = 90, height_px: int = 50, seed: int = 0) -> bytes:
    return encode(Image.fromarray(scene(width_px, height_px, seed)), "JPEG", quality=90)


def inkling(**parameters: Any) -> _core.Processor:
    return _core.processor("inkling", json.dumps(parameters))


def test_names_and_defaults() -> None:
    assert "inkling" in _core.processor_names()
    processor = _core.processor("inkling")
    assert processor.name == "inkling"
    parameters = json.loads(processor.parameters_json)
    assert {key: parameters[key] for key in reference.INKLING_DEFAULTS} == reference.INKLING_DEFAULTS
    np.testing.assert_array_equal(np.float32(parameters["mean"]), reference.INKLING_MEAN)
    np.testing.assert_array_equal(np.float32(parameters["std"]), reference.INKLING_STD)
    assert _core.processor("inkling", processor.parameters_json).parameters_json == processor.parameters_json


@pytest.mark.parametrize("transport", ["bf16", "float32", "uint8"])
def test_outputs_equal_the_reference_on_every_photo(photo: Path, transport: str) -> None:
    data = photo.read_bytes()
    [image] = _core.processor("inkling").preprocess_batch([data], transport)
    assert isinstance(image, _core.Processed), image
    pixels = reference.inkling_pixels(data, 2.0, 2048)
    patches = reference.inkling_patches_f32(pixels, 40)
    want = {"bf16": reference.bf16_bits(patches), "float32": patches, "uint8": pixels}[transport]
    name = "pixels" if transport == "uint8" else "patches"
    assert list(image.tensors) == [name]
    assert image.dtypes == {name: {"bf16": "bfloat16"}.get(transport, transport)}
    assert image.tensors[name].shape == want.shape and image.tensors[name].dtype == want.dtype
    np.testing.assert_array_equal(image.tensors[name].view(np.uint8), want.view(np.uint8))
    assert (image.height, image.width) == pixels.shape[:2]
    assert image.grid == (1, -(-image.height // 40), image.width // 40 + 1)
    assert image.num_tokens == len(patches)
    assert image.digest == hashlib.sha256(data).digest()
    assert image.content_hash == reference.data_hash(data)


@pytest.mark.parametrize("transport", ["bf16", "float32"])
def test_finish_makes_of_uint8_what_the_worker_would_have_made(transport: str) -> None:
    data = jpeg(123, 77)
    processor = inkling(patch_size=14)
    [late], [now] = processor.preprocess_batch([data], "uint8"), processor.preprocess_batch([data], transport)
    want = now.tensors["patches"]
    out = np.full(want.nbytes, 0xAA, np.uint8)
    processor.finish(late.tensors["pixels"], transport, out)
    np.testing.assert_array_equal(out, want.reshape(-1).view(np.uint8))


def test_plan_tells_the_result_before_any_pixel() -> None:
    for width, height in [(1, 1), (40, 40), (512, 512), (1920, 1080), (37, 4000)]:
        plan = _core.processor("inkling").plan(width, height)
        out_w, out_h = reference.scaled_dims(width, height, 2.0, 2048)
        rows, columns = -(-out_h // 40), out_w // 40 + 1
        assert (plan["width"], plan["height"]) == (out_w, out_h)
        assert plan["grid"] == (1, rows, columns) and plan["num_tokens"] == rows * columns
        assert plan["tensors"] == {"patches": ("bfloat16", [rows * columns, 40, 40, 3])}
        assert plan["size_bytes"] == rows * columns * 9600


def test_one_bad_image_leaves_the_others_alone_and_in_order() -> None:
    datas = [jpeg(seed=seed) for seed in range(12)]
    datas[3], datas[7] = b"no image", datas[7][:200]
    results = _core.processor("inkling").preprocess_batch(datas)
    for at, (result, data) in enumerate(zip(results, datas, strict=True)):
        if at in (3, 7):
            assert isinstance(result, _core.DecodeError)
        else:
            assert isinstance(result, _core.Processed) and result.digest == hashlib.sha256(data).digest()


def test_digests_that_the_caller_has_are_taken() -> None:
    data = jpeg()
    digest = bytes(range(32))
    processor = _core.processor("inkling")
    [image] = processor.preprocess_batch([data], digests=[digest])
    assert image.digest == digest and image.content_hash == int.from_bytes(digest[:8], "big")
    results = processor.preprocess_batch([data, data], digests=[digest])
    assert all(isinstance(result, _core.InvalidArgument) for result in results)
    with pytest.raises(ValueError):
        processor.preprocess_batch([data], digests=[b"short"])


def test_pixels_of_any_strides_are_preprocessed_too() -> None:
    pixels = scene(61, 43)
    want = _core.processor("inkling").preprocess_rgb(pixels)
    assert want.decoder == "rgb" and want.digest == hashlib.sha256(pixels.tobytes()).digest()
    got = _core.processor("inkling").preprocess_rgb(np.asfortranarray(pixels), digest=bytes(32))
    assert got.digest == bytes(32)
    np.testing.assert_array_equal(got.tensors["patches"], want.tensors["patches"])
    resized = reference.pil_resize(pixels, 122, 86)
    bits = reference.bf16_bits(reference.inkling_patches_f32(resized, 40))
    np.testing.assert_array_equal(want.tensors["patches"], bits)


def test_times_are_split_by_stage() -> None:
    [image] = _core.processor("inkling").preprocess_batch([jpeg(400, 300)])
    assert set(image.times) == STAGES
    assert all(seconds > 0.0 for seconds in image.times.values())
    [image] = inkling(rescale_frac=None, rescale_cap=None).preprocess_batch([jpeg()])
    assert image.times["resize_s"] == 0.0


@pytest.mark.parametrize(
    "limits, what",
    [
        ({"max_input_bytes": 100}, "encoded size in bytes"),
        ({"max_pixels": 4000}, "image size in pixels"),
        # The source has 4,500 pixels; twice as long it has 18,000.
        ({"max_pixels": 10_000}, "image size in pixels"),
        ({"max_patches": 5}, "number of patches"),
    ],
)
def test_limits_are_named_and_spare_the_neighbour(limits: dict[str, int], what: str) -> None:
    small = jpeg(8, 8)
    processor = _core.processor("inkling")
    limit = _core.Limits(**limits)
    [refused] = processor.preprocess_batch([jpeg()], limits=limit)
    assert isinstance(refused, _core.LimitExceeded)
    assert refused.what == what and refused.value > refused.limit == next(iter(limits.values()))
    if "max_input_bytes" not in limits:
        _, passed = processor.preprocess_batch([jpeg(), small], limits=limit)
        assert isinstance(passed, _core.Processed)


@pytest.mark.parametrize(
    "parameters",
    [
        {"patch_size": 0},
        {"patch_size": 5000},
        {"patch_size": -1},
        {"rescale_frac": 0.0},
        {"rescale_frac": "2"},
        {"rescale_frac": 1.0, "rescale_cap": 100},
        {"rescale_frac": None},
        {"rescale_cap": 0},
        {"std": [0.0, 1.0, 1.0]},
        {"mean": [0.0, 1.0]},
        {"unknown": 1},
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(_core.InvalidArgument):
        inkling(**parameters)


def test_misuse_is_refused() -> None:
    processor = _core.processor("inkling")
    with pytest.raises(_core.InvalidArgument, match="inkling"):
        _core.processor("nobody")
    with pytest.raises(_core.InvalidArgument, match="transport"):
        processor.plan(4, 4, "float16")
    pixels = scene(20, 20)
    out = np.zeros(processor.plan(10, 10)["size_bytes"], np.uint8)
    with pytest.raises(_core.InvalidArgument):
        processor.finish(pixels, "uint8", out)
    with pytest.raises(_core.InvalidArgument):
        processor.finish(pixels, "bf16", out[:-2])
    with pytest.raises(_core.InvalidArgument, match="contiguous"):
        processor.finish(pixels, "bf16", np.zeros(out.size * 2, np.uint8)[::2])
    for wrong in (out.reshape(2, -1), out.view(np.uint16), out.tolist()):
        with pytest.raises(TypeError, match="flat uint8 view"):
            processor.finish(pixels, "bf16", wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="flat uint8 view"):
            processor.finish_batch([pixels], "bf16", wrong)  # type: ignore[arg-type]
    memory = bytearray(pixels.nbytes + out.size)
    over = np.frombuffer(memory, np.uint8, out.size, pixels.nbytes - 1)
    under = np.frombuffer(memory, np.uint8, pixels.nbytes).reshape(pixels.shape)
    with pytest.raises(_core.InvalidArgument, match="over the pixels"):
        processor.finish(under, "bf16", over)
    with pytest.raises(_core.InvalidArgument, match="over the pixels"):
        processor.finish_batch([under], "bf16", over)
    out.flags.writeable = False
    with pytest.raises(_core.InvalidArgument, match="writable"):
        processor.finish(pixels, "bf16", out)


@pytest.mark.parametrize("transport", ["bf16", "float32"])
@pytest.mark.parametrize("backwards", [False, True])
def test_finish_batch_fills_one_array_as_finish_does(transport: str, backwards: bool) -> None:
    processor = inkling(patch_size=14)
    pixels = [
        scene(width, height, width) for width, height in [(61, 43), (1, 1), (14, 28), (500, 300), (27, 9)]
    ]
    pixels[0] = np.asfortranarray(pixels[0])
    want = []
    for image in pixels:
        patches = reference.inkling_patches_f32(image, 14)
        values = reference.bf16_bits(patches) if transport == "bf16" else patches
        [(dtype, shape)] = processor.finished(image.shape[1], image.shape[0], transport).values()
        assert (dtype, tuple(shape)) == ({"bf16": "bfloat16"}.get(transport, transport), patches.shape)
        want.append(values.reshape(-1).view(np.uint8))
    out = np.full(sum(map(len, want)), 0xAA, np.uint8)
    if not backwards:
        processor.finish_batch(pixels, transport, out)
        np.testing.assert_array_equal(out, np.concatenate(want))
        return
    out = np.full(sum(map(len, want)) + 8, 0xAA, np.uint8)
    ends = out.size - 4 - np.cumsum([len(image) for image in want])
    processor.finish_batch(pixels, transport, out, [int(end) for end in ends])
    edges = np.full(4, 0xAA, np.uint8)
    np.testing.assert_array_equal(out, np.concatenate([edges, *want[::-1], edges]))


def test_finish_batch_refuses_what_does_not_fit_and_writes_nothing() -> None:
    processor = inkling(patch_size=14)
    pixels = [scene(14, 14), scene(14, 14, 1)]
    size = 2 * 14 * 14 * 3 * 2
    for out_bytes, offsets in [
        (2 * size - 2, None),
        (2 * size + 2, None),
        (2 * size, [0, size - 2]),
        (2 * size, [0, size + 2]),
        (2 * size, [0, 2**64 - 2]),
        (2 * size, [0]),
    ]:
        out = np.full(out_bytes, 0xAA, np.uint8)
        with pytest.raises(_core.InvalidArgument):
            processor.finish_batch(pixels, "bf16", out, offsets)
        assert np.all(out == 0xAA)
    with pytest.raises(_core.InvalidArgument):
        processor.finish_batch(pixels, "uint8", np.zeros(2 * size, np.uint8))
    with pytest.raises(TypeError):
        processor.finish_batch([np.zeros((2, 2), np.uint8)], "bf16", np.zeros(size, np.uint8))
    processor.finish_batch([], "bf16", np.zeros(0, np.uint8))


@pytest.mark.parametrize("transport", ["bf16", "float32"])
def test_late_normalising_goes_by_the_size_of_the_source(transport: str) -> None:
    for family in ("inkling", "qwen_vl"):
        processor = _core.processor(family)
        pixels = scene(123, 77)
        late = processor.preprocess_rgb(pixels, "uint8")
        [want] = processor.preprocess_rgb(pixels, transport).tensors.values()
        assert late.source_size == (123, 77)
        out = np.full(want.nbytes, 0xAA, np.uint8)
        processor.finish(late.tensors["pixels"], transport, out, source=late.source_size)
        np.testing.assert_array_equal(out, want.reshape(-1).view(np.uint8))
        out.fill(0xAA)
        processor.finish_batch([late.tensors["pixels"]], transport, out, sources=[late.source_size])
        np.testing.assert_array_equal(out, want.reshape(-1).view(np.uint8))
        with pytest.raises(_core.InvalidArgument, match="resized to"):
            processor.finish(late.tensors["pixels"][1:], transport, out, source=late.source_size)
        with pytest.raises(_core.InvalidArgument, match="2 sources for 1"):
            processor.finish_batch([late.tensors["pixels"]], transport, out, sources=[(1, 1), (1, 1)])


def test_facts_of_a_request_that_a_family_does_not_know_are_refused() -> None:
    processor = _core.processor("inkling")
    assert processor.request_key({"num_images": 3, "token_budget": 100}) == ""
    assert processor.plan(40, 40, request={"num_images": 3}) == processor.plan(40, 40)
    for call in (
        lambda: processor.request_key({"detail": "high"}),
        lambda: processor.plan(40, 40, request={"detail": "high"}),
        lambda: processor.preprocess_rgb(scene(4, 4), request={"detail": "high"}),
    ):
        with pytest.raises(_core.InvalidArgument, match="detail"):
            call()
    [refused] = processor.preprocess_batch([jpeg()], request={"detail": "high"})
    assert isinstance(refused, _core.InvalidArgument)


@pytest.mark.parametrize("family", _core.processor_names())
def test_every_family_gives_the_same_at_once_late_and_without_vectors(family: str) -> None:
    processor = _core.processor(family)
    compared = 0
    for width, height in [(90, 61), (640, 480), (333, 1200)]:
        pixels = scene(width, height)
        try:
            plan = processor.plan(width, height)
        except _core.InvalidArgument:
            continue
        late = processor.preprocess_rgb(pixels, "uint8")
        now = processor.preprocess_rgb(pixels)
        assert {name: (now.dtypes[name], list(array.shape)) for name, array in now.tensors.items()} == plan[
            "tensors"
        ]
        made = [name for name in now.tensors if name not in late.tensors]
        want = np.concatenate([now.tensors[name].reshape(-1).view(np.uint8) for name in made])
        out = np.full(want.nbytes, 0xAA, np.uint8)
        processor.finish(late.tensors["pixels"], "bf16", out, source=late.source_size)
        np.testing.assert_array_equal(out, want)
        for name in late.tensors.keys() - {"pixels"}:
            np.testing.assert_array_equal(late.tensors[name], now.tensors[name])
        _core.set_simd_level("scalar")
        try:
            scalar = processor.preprocess_rgb(pixels)
        finally:
            _core.set_simd_level(None)
        for name, array in now.tensors.items():
            np.testing.assert_array_equal(array.view(np.uint8), scalar.tensors[name].view(np.uint8))
        compared += 1
    assert compared > 0
