"""The files that the paths on a command line stand for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator


def find_files(paths: Iterable[str]) -> Iterator[str]:
    """Every file named or below a folder named, each folder in the order of its names; no hidden ones below.

    A path that does not exist is given back as it is, so that it is reported as any unreadable file.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if not name.startswith("."):
                    yield os.path.join(folder, name)
