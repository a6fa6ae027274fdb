"""Files that appear whole or not at all, and what is left of those that never did."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SUFFIX = ".part"
_UNLOCKED_SECONDS = 3600.0
"""After so long nobody writes any more to a file of the earlier form, which had no lock."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write under a temporary name, flush to the disk, then rename: the file is there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as (descriptor, temporary):
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        os.replace(temporary, path)
    _flush_folder(path.parent)


@contextmanager
def _temporary(path: Path) -> Iterator[tuple[int, str]]:
    """An open file beside `path`, locked as long as its process lives; it is removed unless it was renamed."""
    while True:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_SUFFIX)
        try:
            with suppress(OSError):  # a file system without locks: nobody takes this file for a dead process's
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # `remove_leftovers` may have come before the lock
                yield descriptor, temporary
                return
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            os.close(descriptor)


def _flush_folder(folder: Path) -> None:
    """Make renames last."""
    with suppress(OSError):  # some file systems have no such thing
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_leftovers(folder: Path, names: str) -> int:
    """Remove temporary files of `write_atomically` whose writers are dead; how many.

    names: a regular expression of the names that were to be written.
    """
    pattern = re.compile(rf"\.(?:{names})\.[a-z0-9_]{{8}}(?:{re.escape(_SUFFIX)})?")
    removed = 0
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                removed += _remove_dead(entry.path)
    return removed


def _remove_dead(path: str) -> bool:
    with suppress(OSError):  # gone, another user's, or being written
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            age = time.time() - os.fstat(descriptor).st_mtime
            if path.endswith(_SUFFIX) or age > _UNLOCKED_SECONDS:
                os.unlink(path)
                return True
        finally:
            os.close(descriptor)
    return False


def refuse_unwritable(path: Path) -> None:
    """Raise `OSError` unless a file can be written at `path`; folders above it are made. What is there stays."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is there, and may not be written")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path) as (descriptor, _):
        os.write(descriptor, b"\0")
