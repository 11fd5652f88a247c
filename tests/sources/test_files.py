"""Reading files beneath the allowed roots, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sglang_mm_ray.errors import FetchError, InvalidArgument, LimitExceeded, SourceRefused
from sglang_mm_ray.sources import files
from sglang_mm_ray.sources.files import path_of_file_url, read_beneath


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.png").write_bytes(b"secret")
    (tmp_path / "root" / "a.png").write_bytes(b"first")
    (tmp_path / "root" / "sub" / "b c%.png").write_bytes(b"second")
    return tmp_path / "root"


def read(path: object, *roots: object, limit: int = 100) -> bytes:
    return read_beneath(str(path), tuple(str(root) for root in roots), limit)


def test_files_below_a_root_are_read(root: Path) -> None:
    assert read(root / "a.png", root) == b"first"
    assert read(root / "sub" / "b c%.png", "/nowhere", root) == b"second"
    assert read(f"{root}//./sub/b c%.png", f"{root}/") == b"second"
    assert read(root / "a.png", root / "a.png") == b"first"


def test_without_roots_the_disk_is_not_touched(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*args: object, **kwargs: object) -> int:
        raise AssertionError("the disk was touched")

    for name in ("open", "stat", "lstat", "readlink"):
        monkeypatch.setattr(files.os, name, touched)
    for path in ("/etc/hostname", "relative.png", str(root / "a.png")):
        with pytest.raises(SourceRefused, match="allowed_roots"):
            read(path)
    with pytest.raises(SourceRefused):
        read("/etc/hostname", root)


@pytest.mark.parametrize("path", ["{}/../outside/secret.png", "{}/sub/../a.png", "{}/..", "{}x/a.png", "{}"])
def test_paths_that_leave_the_root_are_refused(root: Path, path: str) -> None:
    with pytest.raises(SourceRefused):
        read(path.format(root), root)


def test_links_are_not_followed_below_the_root(root: Path) -> None:
    (root / "link.png").symlink_to(root.parent / "outside" / "secret.png")
    (root / "inner.png").symlink_to("a.png")
    (root / "folder").symlink_to(root.parent / "outside")
    for path in ("link.png", "inner.png", "folder/secret.png"):
        with pytest.raises(SourceRefused):
            read(root / path, root)


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    assert read(alias / "a.png", alias) == b"first"


def test_fifo_device_and_folder_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "fifo.png")
    for path, roots in ((root / "fifo.png", root), (root / "sub", root), ("/dev/zero", "/dev")):
        with pytest.raises(SourceRefused):
            read(path, roots)


def test_a_missing_file_is_a_fetch_error_that_does_not_quote_the_path(root: Path) -> None:
    with pytest.raises(FetchError) as caught:
        read(root / "missing.png", root)
    assert "missing.png" not in str(caught.value) and not caught.value.retriable


def test_the_size_limit_holds_before_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(root / "a.png", root, limit=5) == b"first"
    monkeypatch.setattr(files.os, "read", None)
    with pytest.raises(LimitExceeded) as caught:
        read(root / "a.png", root, limit=4)
    assert (caught.value.value, caught.value.limit) == (5, 4)


def test_a_file_that_grows_is_cut_off_at_the_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat

    def before_growth(file: int) -> os.stat_result:
        fields = list(real(file))
        fields[6] = 1
        return os.stat_result(fields)

    monkeypatch.setattr(files.os, "fstat", before_growth)
    assert read(root / "a.png", root, limit=5) == b"first"
    with pytest.raises(LimitExceeded):
        read(root / "a.png", root, limit=4)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///srv/a.png", "/srv/a.png"),
        ("file://localhost/srv/a.png", "/srv/a.png"),
        ("FILE:/srv/a.png", "/srv/a.png"),
        ("file:///srv/a%20b%2525.png", "/srv/a b%25.png"),
        ("file:///srv/%2e%2e/a.png", "/srv/../a.png"),
    ],
)
def test_file_urls_are_percent_decoded_once(url: str, path: str) -> None:
    assert path_of_file_url(url) == path


@pytest.mark.parametrize(
    "url",
    [
        "file://example.org/a.png",
        "file:a.png",
        "file:",
        "file:///a%00.png",
        "file://localhost/etc/passwd#x.jpg",
        "file:///etc/passwd?x.jpg",
    ],
)
def test_other_file_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        path_of_file_url(url)
