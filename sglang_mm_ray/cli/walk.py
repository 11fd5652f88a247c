"""The files that the paths on a command line stand for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator

# Lower case. A folder of photos also holds notes and sidecars; whoever means them names them.
IMAGE_EXTENSIONS = frozenset(
    f".{name}"
    for name in [
        "apng",
        "avif",
        "avifs",
        "blp",
        "bmp",
        "bw",
        "cur",
        "dcx",
        "dds",
        "dib",
        "fit",
        "fits",
        "flc",
        "fli",
        "ftc",
        "ftu",
        "gbr",
        "gif",
        "heic",
        "heif",
        "icb",
        "icns",
        "ico",
        "im",
        "j2c",
        "j2k",
        "jfif",
        "jp2",
        "jpc",
        "jpe",
        "jpeg",
        "jpf",
        "jpg",
        "jpx",
        "mpo",
        "msp",
        "pbm",
        "pcd",
        "pcx",
        "pfm",
        "pgm",
        "png",
        "pnm",
        "ppm",
        "psd",
        "pxr",
        "qoi",
        "ras",
        "rgb",
        "rgba",
        "sgi",
        "tga",
        "tif",
        "tiff",
        "vda",
        "vst",
        "webp",
        "xbm",
        "xpm",
    ]
)


def find_files(paths: Iterable[str]) -> Iterator[str]:
    """Every file named or below a folder named, each folder in the order of its names; no hidden ones below.

    A path that does not exist is given back as it is, so that it is reported as any unreadable file.
    """
    for path in paths:
        if os.path.isdir(path):
            yield from _below(path)
        else:
            yield path


def _below(path: str) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(folder, name)


@dataclasses.dataclass(frozen=True, slots=True)
class Inputs:
    """What `preprocess` will read."""

    names: list[str]
    """As the user spelled them, for the manifest."""
    sources: list[str]
    """As the workers read them: absolute paths without links, or URLs."""
    roots: tuple[str, ...]
    """Folders and files that hold all of these paths."""
    skipped: int
    """Files in folders that are not named as images."""


def find_images(paths: Iterable[str]) -> Inputs:
    """The images named, and those below the folders named, by extension; `http(s)` URLs pass as they are."""
    names: list[str] = []
    sources: list[str] = []
    roots: dict[str, None] = {}
    skipped = 0
    for path in paths:
        if path.lower().startswith(("http://", "https://")):
            names.append(path)
            sources.append(path)
            continue
        is_folder = os.path.isdir(path)
        # Workers follow no link below a root, so links that the user put there are followed here.
        roots[os.path.realpath(path)] = None
        for name in _below(path) if is_folder else (path,):
            if is_folder and os.path.splitext(name)[1].lower() not in IMAGE_EXTENSIONS:
                skipped += 1
                continue
            real = os.path.realpath(name)
            if os.path.islink(name):
                roots[os.path.dirname(real)] = None
            names.append(name)
            sources.append(real)
    return Inputs(names, sources, tuple(roots), skipped)
