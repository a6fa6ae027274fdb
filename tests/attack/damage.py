"""What may befall the files of a cache, whatever their layout: exchanged, a bit changed, foreign things in place."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

NOBODY = 65534
IS_ROOT = os.geteuid() == 0


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "lock")


def exchanges(folder: Path) -> list[tuple[Path, Path]]:
    """Every pair of files of one kind, in both orders."""
    pairs = [(a, b) for a in files(folder) for b in files(folder) if a != b]
    return [(a, b) for a, b in pairs if (a.parent, a.suffix) == (b.parent, b.suffix)]


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def copied(folder: Path, to: Path) -> Path:
    """A fresh copy of a cache."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, copy_function=shutil.copy)
    to.chmod(0o700)
    return to


FAR = "../../project/main"
NAMES = ("module", "kernel", "code", "subgraph", "verifier")
"""of the fields of all records"""


def _said(value: str) -> bytes:
    """A record in which every field has this value, written as JSON."""
    return ("{" + ", ".join(f'"{name}": {value}' for name in NAMES) + "}").encode()


BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n" * 100,
    "null": b"null",
    "a list": b"[1, 2]",
    "no fields": b"{}",
    "text": b'"module"',
    "half": b'{"module": "12',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"module":' * 100_000,
    "a deep field": _said("[" * 20_000 + "]" * 20_000),
    "deep code": _said('"' + "[" * 100_000 + '"'),
    "NUL": b"\0" * 300,
    "not UTF-8": b'{"module": "\xff\xfe"}',
    "far away": _said(f'"{FAR}"'),
    "NUL in a name": _said('"a\\u0000b"'),
    "half a character": _said('"\\ud800"'),
    "an endless name": _said('"' + "a" * 5000 + '"'),
    "null fields": _said("null"),
    "lists": _said("[]"),
    "objects": _said('{"module": 1}'),
    "infinity": _said("1e999"),
    "NaN": _said("NaN"),
    "digits": _said("9" * 5000),
    "another hash": _said('"' + "0" * 64 + '"'),
    "no entries": _said('"{\\"entries\\": [], \\"workspaces\\": [], \\"faults\\": []}"'),
}
"""Contents of files by what is wrong with them."""


def _folder(path: Path) -> None:
    path.mkdir()


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "something").write_text("somebody's")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            s.bind("s")
            os.rename("s", path.name)
        finally:
            os.chdir(here)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def _far(path: Path) -> None:
    path.symlink_to(path.parent / FAR)


def _writable(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(0o666)

    return write


def _foreign(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)
        if IS_ROOT:
            os.chown(path, NOBODY, NOBODY)

    return write


def _again(data: bytes) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(data + data))


def void(_: object) -> None:
    """For what is called for its effect."""


OBJECTS: dict[str, Callable[[Path], None]] = {
    "a folder": _folder,
    "a folder with something in it": _full_folder,
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "1 TiB": _sparse,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link far away": _far,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}
"""What may stand in place of a file."""
KEPT: dict[str, Callable[[bytes], Callable[[Path], None]]] = {
    "anybody's to write": _writable,
    "another user's": _foreign,
    "twice": _again,
}
"""What may befall a file that has the right content."""


def befall(path: Path, what: str) -> None:
    """Put one of `BODIES`, `OBJECTS`, `KEPT` in place of a file."""
    data = path.read_bytes()
    path.unlink()
    if what in BODIES:
        path.write_bytes(BODIES[what])
    elif what in OBJECTS:
        OBJECTS[what](path)
    else:
        KEPT[what](data)(path)


@contextmanager
def given_away(*paths: Path) -> Iterator[None]:
    """These files and folders belong to another user; to who may not give them away, it looks as if they did."""
    if IS_ROOT:
        for path in paths:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        yield
        return
    given, real = {path.lstat().st_ino for path in paths}, os.fstat

    def fstat(file: int) -> os.stat_result:
        status = real(file)
        return os.stat_result([*status[:4], NOBODY, *status[5:10]]) if status.st_ino in given else status

    os.fstat = fstat
    try:
        yield
    finally:
        os.fstat = real


@contextmanager
def only_reading(folder: Path) -> Iterator[None]:
    """This process may read in a folder, and not write: root becomes another user, others have a right less."""
    if not IS_ROOT:
        folder.chmod(0o555)
        yield
        folder.chmod(0o755)
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


HOSTILE = (*BODIES, *OBJECTS, *KEPT)


def drawn(items: list, count: int, seed: int) -> list:
    """So many of the items, or all where there are fewer, in an order of chance."""
    return [items[n] for n in np.random.default_rng(seed).permutation(len(items))[:count]]
