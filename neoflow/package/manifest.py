"""The manifest of a package: its version, what it is for, its files with their sizes and hashes.

    {"format": 1, "neoflow": "0.1.0", "name": "digits", "target": {"kind": "cpu", "mcpu": "znver4", "threads": 2,
     "features": ["avx2", ...]}, "files": {"program.json": {"bytes": 4711, "sha256": "..."}, ...}, "seal": "..."}

seal: the hash of all else. Whoever reads a package reads the format first: of a newer one nothing more is known.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple  # annotations are no text: each would be compiled, as a package is loaded

from neoflow.errors import PackageError
from neoflow.plain import plain

FORMAT = 1
"""What this version writes, and the newest that it reads."""
MANIFEST = "manifest.json"
PARAMETERS = "parameters.safetensors"
_MOST_BYTES = 1 << 24
"""Of a manifest."""
_MOST_LETTERS = 100
"""Of the name of a function; a file's may have twice as many."""
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading a file may raise that is not what it should be."""


class Written(NamedTuple):
    """A file of a package."""

    bytes: int
    sha256: str


class Made(NamedTuple):
    """What a package is for. mcpu: the processor, or a GPU's architecture; features: what a CPU must have."""

    kind: str
    mcpu: str
    threads: int
    features: tuple[str, ...]


class Manifest(NamedTuple):
    """See above. files: by name."""

    neoflow: str
    name: str
    target: Made
    files: Mapping[str, Written]
    format: int = FORMAT

    def to_json(self) -> bytes:
        """The file, sealed."""
        said = plain(self)
        return json.dumps({**said, "seal": _seal(said)}, indent=1).encode()


def is_name(text: object) -> bool:
    """Whether this may name a package or a function: a word of C."""
    return isinstance(text, str) and text.isascii() and text.isidentifier() and len(text) < _MOST_LETTERS


def _seal(said: Mapping[str, Any]) -> str:
    return digest(json.dumps(said, sort_keys=True).encode())


def digest(data: bytes | memoryview) -> str:
    """SHA-256."""
    return hashlib.sha256(data).hexdigest()


def read_manifest(folder: str) -> Manifest:
    """The manifest in a folder. Raises `PackageError` for none, a newer format, or one that was changed."""
    where = f"{folder}/{MANIFEST}"
    try:
        said = json.loads(read_file(folder, MANIFEST, _MOST_BYTES))
        version = said["format"]
        if type(version) is not int or version < 1:
            raise ValueError(f"its format is {version!r}")
    except MALFORMED as error:
        raise PackageError(f"{where} is no manifest of a package: {error}") from None
    if version > FORMAT:
        raise PackageError(
            f"{folder} has format {version}, and this neoflow reads up to {FORMAT}: load it with neoflow "
            f"{said.get('neoflow')!s:.20} or a newer one, or build it again"
        )
    try:
        seal = said.pop("seal")
        if seal != _seal(said):
            raise ValueError("it is damaged, its checksum is another")
        return _manifest(said)
    except MALFORMED as error:
        raise PackageError(f"{where} is no manifest of a package: {error}") from None


def _manifest(said: Mapping[str, Any]) -> Manifest:
    made = dict(said["target"])
    made["features"] = tuple(map(_text, made["features"]))
    files = {_plain(n): Written(_count(w["bytes"]), _text(w["sha256"])) for n, w in said["files"].items()}
    if not is_name(said["name"]):
        raise ValueError("its name is no word")
    target = Made(_text(made["kind"]), _text(made["mcpu"]), _count(made["threads"]), made["features"])
    return Manifest(_text(said["neoflow"]), said["name"], target, files)


def _plain(name: str) -> str:
    """The name of a file that lies in the package itself."""
    if not 0 < len(name) < 2 * _MOST_LETTERS or name[0] == "." or not name.isascii() or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file in it")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise TypeError(f"{value!r} is no size")
    return value


@contextmanager
def opened(folder: str, name: str) -> Iterator[tuple[int, int]]:
    """A file's descriptor and how many bytes it has. Raises `PackageError` for anything but a plain file that can be
    read, and where reading it within fails."""
    path = os.path.join(folder, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        what = "has no" if isinstance(error, FileNotFoundError) else "has an unreadable"
        raise PackageError(f"{folder} is no package, or not a whole one: it {what} {name}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PackageError(f"{path} is no plain file")
        yield descriptor, status.st_size
    except OSError as error:
        raise PackageError(f"{path} cannot be read: {error}") from error
    finally:
        os.close(descriptor)


def read_file(folder: str, name: str, most: int) -> bytes:
    """A file of at most so many bytes. Raises `PackageError` for a longer one, and as `opened` does."""
    with opened(folder, name) as (descriptor, nbytes):
        if nbytes > most:
            raise PackageError(f"{folder}/{name} has {nbytes} bytes, more than {most}")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read()


def written_as(folder: str, manifest: Manifest, name: str) -> Written:
    """What a file was. Raises `PackageError` for one that the manifest does not name."""
    written = manifest.files.get(name)
    if written is None:
        raise PackageError(f"{folder} is damaged: its manifest has no {name}")
    return written


def damaged(folder: str, name: str) -> PackageError:
    """What is said of a file that is another than was written."""
    return PackageError(f"{folder} is damaged: {name} is not as it was written; build or copy it again")


def read_checked(folder: str, manifest: Manifest, name: str) -> bytes:
    """A file of the package as it was written. Raises `PackageError` where it is not."""
    written = written_as(folder, manifest, name)
    data = read_file(folder, name, written.bytes)
    if len(data) != written.bytes or digest(data) != written.sha256:
        raise damaged(folder, name)
    return data
