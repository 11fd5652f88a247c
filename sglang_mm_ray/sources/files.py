"""Files of the worker's disk, read only beneath the roots that the policy names."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from ..errors import FetchError, InvalidArgument, SourceRefused, limit_exceeded

# O_PATH needs only search permission on a folder, as the kernel's own path walk does.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking, so that a FIFO does not hang the open that precedes the check of its type.
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def path_of_file_url(url: str) -> str:
    """The path of a `file:` URL, percent-decoded once.

    Raises:
        InvalidArgument: a host other than `localhost`, a query or a fragment, or a NUL.
    """
    rest = url[len("file:") :]
    if "?" in rest or "#" in rest:
        raise InvalidArgument("a file: URL has no query and no fragment; write ? as %3F and # as %23")
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise InvalidArgument("a file: URL names no host but localhost")
        rest = slash + path
    if not rest.startswith("/"):
        raise InvalidArgument("a file: URL needs an absolute path")
    path = os.fsdecode(unquote_to_bytes(os.fsencode(rest)))
    if "\0" in path:
        raise InvalidArgument("a path holds no NUL character")
    return path


def read_beneath(path: str, roots: Sequence[str], max_bytes: int) -> bytes:
    """Reads a regular file that lies beneath one of `roots`, without following a link below the root.

    The disk is not touched unless the path is textually beneath a root. Folders are then opened one by
    one, each without following links, so that what was checked is what is read even if someone renames
    folders meanwhile; the file's type and size are taken from the open descriptor.

    Raises:
        SourceRefused: no root holds the path, or a link, a FIFO, a device or a folder is in its place.
        FetchError: the file does not exist or cannot be read.
        LimitExceeded: it is larger than `max_bytes`.
    """
    if not roots:
        raise SourceRefused(
            "files are not read; name their folder in SourcePolicy.allowed_roots, or pass the bytes"
        )
    if "\0" in path or not os.path.isabs(path):
        raise SourceRefused("only absolute paths are read")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise SourceRefused("a path with '..' is not read; write it out")
    for root in roots:
        root_parts = [part for part in root.split("/") if part not in ("", ".")]
        if parts[: len(root_parts)] == root_parts:
            try:
                return _read(root, parts[len(root_parts) :], max_bytes)
            except OSError as error:
                raise _explain(error) from None
    raise SourceRefused("the path is outside the folders of SourcePolicy.allowed_roots")


def _read(root: str, below: list[str], max_bytes: int) -> bytes:
    if not below:
        # The administrator named the file itself; its own folder is then the trusted part.
        root, name = os.path.split(os.path.realpath(root))
        below = [name]
    folder = os.open(root, _FOLDER)
    try:
        for name in below[:-1]:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        file = os.open(below[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        return _read_open(file, max_bytes)
    finally:
        os.close(file)


def _read_open(file: int, max_bytes: int) -> bytes:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise SourceRefused("not a regular file")
    size = status.st_size
    if size > max_bytes:
        raise limit_exceeded("file size in bytes", size, max_bytes)
    # One read suffices for a file that does not change, and does not copy.
    data = os.read(file, size)
    while len(data) <= max_bytes:
        more = os.read(file, min(1 << 20, max_bytes + 1 - len(data)))
        if not more:
            return data
        data += more
    raise limit_exceeded("file size in bytes", len(data), max_bytes)


def _explain(error: OSError) -> FetchError | SourceRefused:
    # The text of an OSError quotes the path, which may be a payload that only looked like one.
    if error.errno == errno.ELOOP:
        return SourceRefused("a symbolic link below the allowed root is not followed")
    if error.errno in (errno.ENOTDIR, errno.ENXIO):
        return SourceRefused("a part of the path is a link or no folder")
    return FetchError(f"the file cannot be read: {os.strerror(error.errno or errno.EIO)}")
