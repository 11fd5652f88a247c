"""`_core.processor("qwen_vl")` and `_core.qwen_vl`: parameters, transports, published functions, errors."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_qwen as qwen
from images import encode, scene
from PIL import Image

from sglang_mm_ray import _core

SPEC = qwen.QWEN2_5_VL | {"family": "qwen_vl", "image_token_id": 7, "resample": "aten_u8"}


def png(width_px: int, height_px: int, seed: int = 0) -> bytes:
    return encode(Image.fromarray(scene(width_px, height_px, seed)), "PNG")


def made(**fields: Any) -> _core.Processor:
    return _core.processor("qwen_vl", json.dumps(fields))


def test_canonical_parameters_read_back_as_themselves() -> None:
    for model in qwen.MODELS.values():
        text = _core.processor("qwen_vl", json.dumps(model)).parameters_json
        assert _core.processor("qwen_vl", text).parameters_json == text
    assert made(**qwen.QWEN3_VL).parameters_json == made(**qwen.WRITTEN_BACK).parameters_json


def test_the_class_decides_the_backend_and_an_explicit_choice_wins() -> None:
    def backend(**fields: Any) -> str:
        found: str = json.loads(made(**fields).parameters_json)["backend"]
        return found

    assert backend() == "torchvision"
    assert backend(image_processor_type="Qwen2VLImageProcessor") == "torchvision"
    assert backend(image_processor_type="Qwen2VLImageProcessorFast") == "torchvision"
    assert backend(image_processor_type="Qwen2VLImageProcessorPil") == "pil"
    assert backend(image_processor_type="Qwen2VLImageProcessorPil", backend="torchvision") == "torchvision"
    assert backend(resample="pil") == "pil"
    assert backend(resample="aten_u8", image_processor_type="Qwen2VLImageProcessorPil") == "torchvision"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"surprise": 1}, "surprise"),
        ({"auto_map": {"AutoImageProcessor": "code.Other"}}, "auto_map"),
        ({"do_convert_rgb": False}, "do_convert_rgb"),
        ({"image_processor_type": "CLIPImageProcessor"}, "CLIPImageProcessor"),
        ({"resample": 0}, "resample"),
        ({"size": {"height": 4, "width": 4}}, "shortest_edge"),
        ({"size": 224}, "shortest_edge"),
        ({"image_std": [0.5, 0.5, 0]}, "image_std"),
        ({"temporal_patch_size": 0}, "temporal_patch_size"),
    ],
)
def test_fields_that_would_change_the_result_are_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(_core.InvalidArgument, match=named):
        made(**fields)


def test_both_filters_of_one_config_differ() -> None:
    rgb = scene(90, 70)
    cubic, linear = (made(resample=number).preprocess_rgb(rgb, "uint8") for number in (3, 2))
    assert not np.array_equal(cubic.tensors["pixels"], linear.tensors["pixels"])


@pytest.mark.parametrize("backend", qwen.BACKENDS)
@pytest.mark.parametrize("transport", ["bf16", "float32"])
def test_copies_are_left_out_until_the_consumer_expands_them(transport: str, backend: str) -> None:
    rgb = scene(131, 77)
    config = qwen.QWEN3_VL | {"backend": backend, "temporal_patch_size": 3}
    compact = made(**config).preprocess_rgb(rgb, transport).tensors["pixel_values"]
    full = made(**config, expand_temporal=True).preprocess_rgb(rgb, transport).tensors["pixel_values"]
    assert compact.shape == (len(full), 3, 1, 16, 16) and compact.nbytes * 3 == full.nbytes
    assert np.array_equal(np.repeat(compact, 3, axis=2).reshape(len(full), -1), full)


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("transport", ["bf16", "float32"])
def test_late_normalising_gives_the_same_bits(photo: Path, transport: str, expand: bool) -> None:
    processor = made(**qwen.QWEN2_5_VL, expand_temporal=expand)
    data = photo.read_bytes()
    [early], [late] = (
        processor.preprocess_batch([data], transport),
        processor.preprocess_batch([data], "uint8"),
    )
    assert isinstance(early, _core.Processed) and isinstance(late, _core.Processed)
    expected = early.tensors["pixel_values"]
    out = np.zeros(expected.nbytes, np.uint8)
    processor.finish(late.tensors["pixels"], transport, out)
    assert np.array_equal(out, expected.view(np.uint8).ravel())
    assert (late.grid, late.num_tokens) == (early.grid, early.num_tokens)


def test_a_plan_is_what_is_made_and_names_it_before_decoding() -> None:
    processor = made(**qwen.QWEN2_5_VL)
    for transport in ("bf16", "float32", "uint8"):
        plan = processor.plan(611, 407, transport)
        image = processor.preprocess_rgb(scene(611, 407), transport)
        found = {name: (image.dtypes[name], list(array.shape)) for name, array in image.tensors.items()}
        assert found == {name: (kind, list(shape)) for name, (kind, shape) in plan["tensors"].items()}
        assert (image.height, image.width, image.grid) == (plan["height"], plan["width"], plan["grid"])
        assert image.num_tokens == plan["num_tokens"] == np.prod(plan["grid"]) // 4


@pytest.mark.parametrize(
    ("width", "height", "factor", "expected"),
    [
        (1, 1, 28, (56, 56)),
        (200, 1, 28, (812, 28)),
        (3, 1, 28, None),
        (1, 3, 28, None),
        (332, 27, 28, (336, 28)),
        (328, 30, 32, (864, 96)),
        (28, 26, 28, (84, 56)),
    ],
)
def test_tiny_and_thin_images_are_images(
    width: int, height: int, factor: int, expected: tuple[int, int] | None
) -> None:
    processor = made(**(qwen.QWEN2_5_VL if factor == 28 else qwen.QWEN3_VL))
    [image] = processor.preprocess_batch([png(width, height)], "bf16")
    assert isinstance(image, _core.Processed), image
    assert expected is None or (image.width, image.height) == expected
    assert image.width % factor == 0 and image.height % factor == 0


def test_a_bad_image_among_good_ones_fails_alone() -> None:
    good = png(64, 64)
    results = made().preprocess_batch([png(1, 1), good, png(1, 201), b"", good], "bf16")
    kinds = [type(result) for result in results]
    assert kinds[0] is kinds[1] is kinds[4] is _core.Processed
    assert isinstance(results[2], _core.InvalidArgument) and "1 x 201" in str(results[2])
    assert isinstance(results[3], _core.DecodeError)


def test_batching_never_changes_a_result() -> None:
    datas = [png(28, 84), png(84, 28), png(300, 200)]
    processor = made()
    for data, together in zip(datas, processor.preprocess_batch(datas, "bf16"), strict=True):
        [alone] = processor.preprocess_batch([data], "bf16")
        assert isinstance(alone, _core.Processed) and isinstance(together, _core.Processed)
        assert np.array_equal(alone.tensors["pixel_values"], together.tensors["pixel_values"])


def test_published_preprocess_has_all_copies_and_is_flat() -> None:
    data = png(80, 60)
    values, grid = _core.qwen_vl.preprocess(data, json.dumps(SPEC))
    expected = made(**SPEC, expand_temporal=True).preprocess_rgb(scene(80, 60), "float32")
    assert values.dtype == np.float32 and values.ndim == 1 and values.flags.writeable
    assert grid == expected.grid == (1, 4, 6)
    assert np.array_equal(values, expected.tensors["pixel_values"].ravel())


def test_published_request() -> None:
    first, second = png(80, 60), png(28, 112, seed=1)
    inline = "data:image/png;base64," + base64.b64encode(second).decode()
    spec = json.dumps(SPEC)
    ids, values, grids, hashes, offsets, positions, delta = _core.qwen_vl.process_mm(
        [7, 3, 7, 9], [first, inline], spec
    )
    assert ids == [7] * 6 + [3] + [7] * 4 + [9]
    assert grids == [(1, 4, 6), (1, 8, 2)]
    assert offsets == [(0, 5), (7, 10)]
    assert hashes == [_core.common.content_hash(first), _core.common.content_hash(second)]
    parts = [_core.qwen_vl.preprocess(data, spec)[0] for data in (first, second)]
    assert np.array_equal(values, np.concatenate(parts))
    items = [(start, end, *grid) for (start, end), grid in zip(offsets, grids, strict=True)]
    expected, expected_delta = _core.qwen_vl.mrope_image_only_py(len(ids), items, 2)
    assert np.array_equal(positions, expected) and delta == expected_delta


def test_a_request_without_images_counts_on() -> None:
    ids, values, grids, hashes, offsets, positions, delta = _core.qwen_vl.process_mm(
        [1, 2, 3], [], json.dumps(SPEC)
    )
    assert (ids, len(values), grids, hashes, offsets, delta) == ([1, 2, 3], 0, [], [], [], 0)
    assert positions.tolist() == [0, 1, 2] * 3


def test_requests_that_do_not_fit_are_refused() -> None:
    data, spec = png(80, 60), json.dumps(SPEC)
    for ids in ([1, 2], [7, 7], [7, 3, 7]):
        with pytest.raises(_core.InvalidArgument, match=f"{ids.count(7)} image placeholders"):
            _core.qwen_vl.process_mm(ids, [data], spec)
    without = json.dumps({name: value for name, value in SPEC.items() if name != "image_token_id"})
    with pytest.raises(_core.InvalidArgument, match="image_token_id"):
        _core.qwen_vl.process_mm([7], [data], without)
    for source in ("/etc/hostname", "file:///etc/hostname", "http://127.0.0.1/a.png"):
        with pytest.raises(_core.InvalidArgument, match="PreprocessPool"):
            _core.qwen_vl.process_mm([7], [source], spec)
    with pytest.raises(ValueError, match="cannot decode"):
        _core.qwen_vl.process_mm([7], [data[:100]], spec)


def test_spans_that_do_not_fit_are_refused() -> None:
    for items in (
        [(2, 9, 1, 4, 6)],
        [(2, 6, 1, 4, 6)],
        [(0, 5, 1, 4, 6), (5, 10, 1, 4, 6)],
        [(0, 1, 1, 3, 2)],
    ):
        with pytest.raises(_core.InvalidArgument, match=r"image|grid"):
            _core.qwen_vl.mrope_image_only_py(9, items, 2)


def test_placeholders() -> None:
    assert _core.qwen_vl.expand_placeholders([5, 7, 6, 7], 7, [2, 3]) == (
        [5, 7, 7, 6, 7, 7, 7],
        [(1, 2), (4, 6)],
    )
    with pytest.raises(_core.InvalidArgument, match="2 image placeholders"):
        _core.qwen_vl.expand_placeholders([7, 7], 7, [1])


def test_no_minimum_of_pixels_is_a_minimum_of_one_token() -> None:
    resize = _core.qwen_vl.smart_resize_py
    # transformers' rule leaves these alone, as it does with its own minimum; the last would be 0 x 0.
    assert resize(100, 300, 28, 0, 10**6) == resize(100, 300, 28, 3136, 10**6) == (112, 308)
    assert resize(1000, 500, 28, 0, 100 * 784) == resize(1000, 500, 28, 3136, 100 * 784)
    assert resize(10, 10, 28, 0, 10**6) == (28, 28)
    assert made(min_pixels=0).plan(10, 10)["grid"] == (1, 2, 2)


def test_a_budget_beyond_memory_is_refused_before_it_is_taken() -> None:
    with pytest.raises(_core.InvalidArgument, match="min_pixels"):
        made(min_pixels=10**18).preprocess_rgb(scene(8, 8), "bf16")
    with pytest.raises(_core.LimitExceeded):
        made(min_pixels=10**9, max_pixels=10**10).preprocess_rgb(scene(8, 8), "bf16")
