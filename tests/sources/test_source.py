"""What a caller may hand in: what it is taken for, its key, and that every entry yields one content."""

from __future__ import annotations

import base64
import dataclasses
import io
import os
import pickle
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from images import encode, picture, scene
from PIL import Image

from sglang_mm_ray.errors import DecodeError, InvalidArgument, LimitExceeded, PreprocessError, SourceRefused
from sglang_mm_ray.sources import files
from sglang_mm_ray.sources.policy import SourcePolicy
from sglang_mm_ray.sources.source import array_digest, classify, resolve

POLICY = SourcePolicy()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("data:image/png;base64,AAAA", "data_url"),
        (" DATA:,x", "data_url"),
        ("http://example.org/a.png", "url"),
        ("HTTPS://example.org", "url"),
        ("file:///srv/a.png", "path"),
        ("/srv/a.png", "path"),
        ("/etc/passwd", "path"),
        ("./a", "path"),
        ("../a", "path"),
        ("~/a", "path"),
        ("relative.png", "path"),
        ("photos/my cat.jpeg", "path"),
        ("iVBORw0KGgo=", "base64"),
        ("/9j/4AAQ", "base64"),
        ("/0//UQ==", "base64"),
        ("/" + "A" * 5000, "base64"),
        ("/AAA\nAAAA", "base64"),
        ("AAAA\nfoo.png", "base64"),
        ("photos/cat", "base64"),
    ],
)
def test_what_a_text_means(text: str, kind: str) -> None:
    assert classify(text).kind == kind


@pytest.mark.parametrize(
    "text", ["", "  ", "ftp://example.org/a", "gopher://x", "javascript://x", "s3://b/k"]
)
def test_texts_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        classify(text)


def test_classifying_a_long_text_touches_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*args: object, **kwargs: object) -> Any:
        raise AssertionError("the disk was touched")

    for name in ("open", "stat", "lstat", "readlink"):
        monkeypatch.setattr(os, name, touched)
    for text in ("data:image/png;base64," + "A" * 200_000, "A" * 200_000, "/" * 200_000, "relative.png"):
        classify(text)


def test_relative_paths_are_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert classify("a.png").payload == str(tmp_path / "a.png")
    assert classify(Path("a")).payload == str(tmp_path / "a")


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_bytes_likes_are_keyed_by_their_digest(make: Any) -> None:
    data = bytes(range(200))
    source = classify(make(data))
    assert (source.kind, source.exact, source.key) == ("bytes", True, sha256(data).digest())
    assert source.transfer_bytes == 200
    assert bytes(resolve(source, POLICY).data) == data  # type: ignore[arg-type]


def test_a_wider_or_empty_view_is_its_bytes() -> None:
    values = np.arange(6, dtype=np.uint32).reshape(2, 3)
    assert bytes(resolve(classify(memoryview(values)), POLICY).data) == values.tobytes()  # type: ignore[arg-type]
    assert bytes(resolve(classify(memoryview(b"")), POLICY).data) == b""  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="contiguous"):
        classify(memoryview(bytes(10))[::2])


def test_arrays_of_other_shape_or_dtype_are_other_contents() -> None:
    octets = bytes(range(250)) * 54
    wide = np.frombuffer(octets, np.uint8).reshape(30, 150, 3)
    tall = np.frombuffer(octets, np.uint8).reshape(150, 30, 3)
    keys = {classify(array).key for array in (wide, tall)} | {classify(octets).key}
    assert len(keys) == 3
    values = np.arange(24, dtype=np.float32)
    variants = [
        values.reshape(6, 4),
        values.reshape(4, 6),
        values,
        values.view(np.uint8),
        values.view(np.int32),
    ]
    assert len({array_digest(array) for array in variants}) == len(variants)


def test_a_strided_view_equals_its_copy() -> None:
    array = scene(20, 10)
    for view in (array[::2, ::3], array[:, ::-1], np.asfortranarray(array)):
        assert classify(view).key == classify(view.copy()).key
        assert np.array_equal(classify(view).payload, view)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 8, 9), np.uint8),
        np.zeros((8, 9), np.uint8),
        np.zeros((8, 9, 1), np.uint8),
        np.zeros((8, 9, 4), np.uint8),
        np.zeros((8, 9, 3), np.float32),
        np.zeros((8, 9, 3), np.int8),
        np.zeros((1, 8, 9, 3), np.uint8),
        np.zeros((0, 9, 3), np.uint8),
    ],
)
def test_arrays_are_hwc_uint8_and_never_guessed(array: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"\[height, width, 3\]"):
        classify(array)


@pytest.mark.parametrize("shape", [(1, 1, 3), (3, 1, 3), (1, 200, 3), (3, 3, 3)])
def test_small_arrays_keep_their_axes(shape: tuple[int, ...]) -> None:
    assert classify(np.zeros(shape, np.uint8)).payload.shape == shape


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "F"])
def test_pil_images_are_sent_as_their_rgb_pixels(mode: str) -> None:
    image = picture(mode)
    source = classify(image)
    expected = np.array(image.convert("RGB"))
    assert source.kind == "pixels" and np.array_equal(source.payload, expected)
    resolved = resolve(source, POLICY)
    assert resolved.pixels is not None and np.array_equal(resolved.pixels, expected)
    assert resolved.digest == classify(expected).key


def test_a_lazily_opened_image_is_decoded_at_once_and_fails_here() -> None:
    data = encode(picture("RGB"), "JPEG")
    assert isinstance(classify(Image.open(io.BytesIO(data))).payload, np.ndarray)
    with pytest.raises(DecodeError):
        classify(Image.open(io.BytesIO(data[:-40])))


@pytest.mark.parametrize("thing", [None, 3, 1.5, ["a.png"], {"url": "x"}, object()])
def test_other_things_are_refused_by_type(thing: object) -> None:
    with pytest.raises(InvalidArgument, match=type(thing).__name__):
        classify(thing)


@pytest.mark.parametrize("source", [b"one", bytearray(b"one"), scene(4, 4)])
def test_a_key_that_is_not_the_digest_of_what_arrived_is_refused(source: Any) -> None:
    honest = classify(source)
    assert resolve(honest, POLICY).digest == honest.key
    forged = dataclasses.replace(honest, key=classify(b"two").key)
    with pytest.raises(InvalidArgument, match="written to"):
        resolve(forged, POLICY)
    # Nor is there a way to hand in a key of one's own.
    with pytest.raises(InvalidArgument, match="Source"):
        classify(forged)


def test_only_what_nobody_can_write_to_is_frozen() -> None:
    data = encode(picture("RGB"), "PNG")
    assert classify(data).frozen and classify(picture("RGB")).frozen
    assert pickle.loads(pickle.dumps(classify(data))).frozen
    array = scene(4, 4)
    view = array[:]
    view.flags.writeable = False
    writable = (bytearray(data), memoryview(bytearray(data)).toreadonly(), np.frombuffer(data, np.uint8))
    assert not any(classify(each).frozen for each in (*writable, array, view))


def test_every_entry_of_one_file_yields_one_content(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for data in (encode(picture("RGB"), "JPEG", exif=exif), encode(picture("RGBA"), "PNG")):
        path = tmp_path / "file.bin"
        path.write_bytes(data)
        text = base64.b64encode(data).decode()
        entries: list[object] = [
            data,
            bytearray(data),
            text,
            "data:image/webp;base64," + text,
            path,
            path.as_uri(),
        ]
        policy = SourcePolicy(allowed_roots=(str(tmp_path),))
        resolved = [resolve(classify(entry), policy) for entry in entries]
        assert {item.digest for item in resolved} == {sha256(data).digest()}
        assert {bytes(item.data) for item in resolved} == {data}  # type: ignore[arg-type]


def test_files_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "open", None)
    for entry in ("file:///etc/hostname", "/etc/hostname", "relative.png", Path("x")):
        with pytest.raises(SourceRefused, match="allowed_roots"):
            resolve(classify(entry), POLICY)


def test_limits_hold_for_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(bytes(9))
    policy = SourcePolicy(max_input_bytes=8, max_pixels=15, allowed_roots=(str(tmp_path),))
    text = base64.b64encode(bytes(9)).decode()
    for entry in (bytes(9), text, "data:;base64," + text, tmp_path / "a.png", np.zeros((4, 4, 3), np.uint8)):
        with pytest.raises(LimitExceeded) as caught:
            resolve(classify(entry), policy)
        assert caught.value.limit in (8, 15)
    assert len(resolve(classify(bytes(8)), policy).data or b"") == 8


def test_errors_never_quote_a_payload() -> None:
    secret = "SECRETpayload" * 80_000
    for text in (secret + "!", "data:image/png;base64," + secret + "!", "/" + "SECRETpayload" * 100):
        with pytest.raises(PreprocessError) as caught:
            resolve(classify(text), POLICY)
        shown = f"{caught.value} {caught.value.source} {caught.value!r}"  # type: ignore[attr-defined]
        assert "SECRET" not in shown and len(shown) < 500
    url = classify("https://user:SECRET@example.org/a.png?sig=SECRET#SECRET")
    assert url.label == "https://example.org/a.png"


def test_sources_travel_with_their_buffers_out_of_band() -> None:
    for entry in (bytes(1000), np.zeros((10, 10, 3), np.uint8)):
        buffers: list[pickle.PickleBuffer] = []
        packed = pickle.dumps(classify(entry), protocol=5, buffer_callback=buffers.append)
        assert len(buffers) == 1 and len(packed) < 500
        copy = pickle.loads(packed, buffers=buffers)
        assert resolve(copy, POLICY).digest == classify(entry).key
    for entry in (b"abc", "AAAA", "https://example.org/"):
        source = classify(entry)
        assert pickle.loads(pickle.dumps(source)) == source


def test_classifying_imports_neither_ray_nor_a_network_stack() -> None:
    code = (
        "import sys; from sglang_mm_ray.sources.source import classify; classify(b'x'); classify('AAAA');"
        "assert not {'ray', 'torch', 'ssl', 'http'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_object_ref_is_one_of_the_other_kinds() -> None:
    ray = pytest.importorskip("ray")
    ref = ray.ObjectRef(bytes(range(28)))
    source = classify(ref)
    assert (source.kind, source.exact) == ("ref", False)
    assert resolve(source, POLICY, get=lambda _: b"data").digest == sha256(b"data").digest()
    with pytest.raises(SourceRefused):
        resolve(source, POLICY, get=lambda _: "/etc/hostname")
    with pytest.raises(InvalidArgument, match="ObjectRef of an ObjectRef"):
        resolve(source, POLICY, get=lambda _: ref)
