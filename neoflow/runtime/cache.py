"""The kernel cache: compiled modules on disk, found by what they were made from.

    <sha256 of the file>.module           how its kernels are called, by their keys, and the shared library they are in
    <request key>.request                 {"kernel": key, ...: the texts of its subgraph, schedule and target}
    <kernel key>.kernel                   {"module": sha256}
    <usual key>.schedule                  {"schedule": the default one of a subgraph, as JSON}
    <kernel key>-<subgraph>.certificate   {"module": sha256, "subgraph": digest, ...: what the judge says of it}

Keys are hashes of all that follows (`codegen.keys`), so an entry never changes its meaning. A file is verified whenever
it is read (`records`): it says nothing under another name, nor with another bit. What does not fit is dropped, with one
warning a process, and built again.

Files appear by atomic rename, and no process waits for another: one that is killed leaves whole files, and temporary
ones that are swept later. What cannot be read or written is done without: kernels are compiled, and run from memory.
"""

from __future__ import annotations

import errno
import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from neoflow.code import Code
from neoflow.errors import ConfigError
from neoflow.runtime.folder import File, Folder
from neoflow.runtime.records import MALFORMED, Module, checked_hash, packed, sealed, unpacked, unsealed

KINDS = ("module", "kernel", "request", "schedule", "certificate")
"""Of files, by the end of their names."""
RECORD_SECONDS = 30 * 24 * 3600.0
"""How long a record stays that nobody uses."""
RECORDS = 20_000
"""How many records of a kind there are at most: those of some hundred models, and of some editions of the compiler."""
SHARE = 0.9
"""Of the limit, what is left when room is made, so that it need not be made again at once."""
ABOUT_BYTES = 1 << 14
"""What is said of a kernel beside its key is left out where it is longer."""
MODULE_BYTES, RECORD_BYTES = 1 << 30, 1 << 16
"""No file has more."""

_NAME = re.compile(r"[0-9a-f]{64}(\.(module|kernel|request|schedule)|-[0-9a-f]{16}\.certificate)")
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_ELSEWHERE = "every process compiles what is not there; set NEOFLOW_CACHE_DIR to a folder that you alone can write to"
_REMEDIES = {"read": "what does not fit is dropped and built again", "written": _ELSEWHERE, "used": _ELSEWHERE}

T = TypeVar("T")


class CacheWarning(UserWarning):
    """The kernel cache is damaged, or cannot be used; the program runs all the same."""


class KernelCache:
    """A folder of compiled kernels, at most `limit_bytes` of modules (the least recently used go first).

    What this process uses is in memory too, as long as somebody holds it. Raises `ConfigError` when others can write to
    the folder.
    """

    def __init__(self, root: Path, limit_bytes: int = 2 << 30):
        self.root = root
        self.limit_bytes = limit_bytes
        self._found: WeakValueDictionary[str, Module] = WeakValueDictionary()  # by kernel key
        self._loaded: WeakValueDictionary[str, Module] = WeakValueDictionary()  # by name
        self._said: set[str] = set()
        self._nbytes: int | None = None
        """of all modules when room was made last, and of those published since"""
        self._folder: Folder | None = None
        self.refresh()

    def refresh(self) -> None:
        """Open the folder, unless it is open and still there."""
        if self._folder is not None and self._folder.is_there():
            return
        self._folder = None
        try:
            self._folder = Folder(self.root)
        except OSError as error:
            self._complain("used", error.strerror or str(error))

    def find(self, key: str) -> Module | None:
        """The verified module that a kernel key is in; None when it is missing or damaged."""
        module = self._found.get(key)
        if module is not None:
            return module
        name = self._record(f"{key}.kernel", lambda said: checked_hash(said["module"]))
        if name is None:
            return None
        module = self._load(name)
        if module is None or key not in module.codes:
            self._drop(f"{key}.kernel")
            return None
        self._found[key] = module
        return module

    def kernel_of(self, request: str) -> str | None:
        """The kernel key that a request led to; None when that is not known."""
        return self._record(f"{request}.request", lambda said: checked_hash(said["kernel"]))

    def remember(self, request: str, key: str, about: Mapping[str, str] | None = None) -> None:
        """That a request leads to a kernel key. about: what the kernel is of, for who looks at the cache."""
        said = dict(about or {}) if sum(map(len, (about or {}).values())) <= ABOUT_BYTES else {}
        self._write_record(f"{request}.request", {**said, "kernel": key})

    def schedule_of(self, key: str, read: Callable[[str], T]) -> T | None:
        """The default schedule that was kept under a key, as `read` reads its text; None when none was."""
        return self._record(f"{key}.schedule", lambda said: read(said["schedule"]))

    def keep_schedule(self, key: str, text: str) -> None:
        """Keep the text of a default schedule."""
        self._write_record(f"{key}.schedule", {"schedule": text})

    def certificate(self, key: str, subgraph: str, module: Module) -> dict[str, Any] | None:
        """What the judge said of a kernel as code of a subgraph (its digest), in this very module; None: nothing."""
        said = self._record(_certificate(key, subgraph), dict)
        is_it = said is not None and (said.get("module"), said.get("subgraph")) == (module.name, subgraph)
        return said if is_it else None

    def certify(self, key: str, subgraph: str, module: Module, certificate: Mapping[str, Any]) -> None:
        """Keep what the judge said."""
        self._write_record(_certificate(key, subgraph), {**certificate, "module": module.name, "subgraph": subgraph})

    def publish(self, library: bytes, codes: Mapping[str, Code]) -> Module:
        """Keep a shared library, and the code of each kernel key in it."""
        module, data = packed(library, codes)
        self._loaded[module.name] = module
        for key in codes:
            self._found[key] = module
        if self._write(f"{module.name}.module", data):
            for key in codes:
                self._write_record(f"{key}.kernel", {"module": module.name})
            self._make_room(len(data))
        return module

    def drop(self, key: str) -> None:
        """Forget a kernel that was found wrong, and whatever was said of it."""
        self._found.pop(key, None)
        self._drop(f"{key}.kernel")
        for file in self.files()["certificate"]:
            if file.name.startswith(key):
                self._drop(file.name)

    def files(self) -> dict[str, list[File]]:
        """What is kept, by kind; the least recently used first."""
        return _by_kind(() if self._folder is None else self._folder.files())

    def said(self, kind: str) -> Iterator[tuple[File, dict[str, Any]]]:
        """The records of a kind that are whole, and what they say; others are dropped."""
        for file in self.files()[kind]:
            found = self._record(file.name, dict)
            if found is not None:
                yield file, found

    def verify(self) -> dict[str, str]:
        """Read every file again. Those that are damaged, by name, and why; they are dropped."""
        found: dict[str, str] = {}
        if self._folder is None:
            return found
        for kind, files in self.files().items():
            for file in files:
                name, most = file.name, MODULE_BYTES if kind == "module" else RECORD_BYTES
                try:
                    data = self._folder.read(name, most)
                    unpacked(name.partition(".")[0], data) if kind == "module" else unsealed(name, data)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    found[name] = f"cannot be read: {error.strerror}"
                except MALFORMED as error:
                    found[name] = str(error) if isinstance(error, ValueError) else "is foreign"
                    self._drop(name)
        return found

    def prune(self, seconds: float = math.inf, nbytes: float = math.inf) -> int:
        """Remove what nobody has used for so long; then modules, the least recently used first, until those that are
        left have `nbytes` at most. How many modules."""
        kept, last = self.files(), time.time() - seconds
        for kind in KINDS[1:]:
            for file in kept[kind]:
                if file.used < last:
                    self._drop(file.name)
        total, removed, certificates = sum(f.nbytes for f in kept["module"]), 0, _certificates(kept)
        for file in kept["module"]:
            if file.used < last or total > nbytes:
                self._evict_module(file, certificates)
                total, removed = total - file.nbytes, removed + 1
        return removed

    def clear(self) -> None:
        """Remove everything that is kept. Raises `ConfigError` when that cannot be done."""
        self._found.clear()
        self._loaded.clear()
        kept = self.files()
        for file in (f for kind in reversed(KINDS) for f in kept[kind]):  # what leads to a module goes before it
            try:
                self._remove(file.name)
            except OSError as error:
                raise ConfigError(f"the kernel cache {self.root} cannot be cleared: {error.strerror}") from None

    def _record(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        return self._read(name, RECORD_BYTES, lambda data: parse(unsealed(name, data)))

    def _load(self, name: str) -> Module | None:
        module = self._loaded.get(name)
        if module is None:
            module = self._read(f"{name}.module", MODULE_BYTES, lambda data: unpacked(name, data))
            if module is not None:
                self._loaded[name] = module
        return module

    def _read(self, name: str, most: int, parse: Callable[[bytes], T]) -> T | None:
        """What a file says; None when there is none, or it does not fit: then it is dropped."""
        if self._folder is None:
            return None
        try:
            return parse(self._folder.read(name, most))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _SCARCE:
                self._drop(name)
            self._complain("read", f"{name}: {error.strerror}")
        except MALFORMED as error:
            self._drop(name)
            self._complain("read", f"{name} {error}" if isinstance(error, ValueError) else f"{name} is foreign")
        return None

    def _write_record(self, name: str, said: Mapping[str, Any]) -> None:
        self._write(name, sealed(name, said))

    def _write(self, name: str, data: bytes) -> bool:
        """Whether a file could be put there."""
        if self._folder is None:
            return False
        try:
            self._folder.write(name, data)
        except OSError as error:
            self._complain("written", error.strerror or str(error))
            return False
        return True

    def _remove(self, name: str) -> None:
        if self._folder is not None:
            self._folder.remove(name)

    def _drop(self, name: str) -> None:
        """Remove a file, where that can be done."""
        with suppress(OSError):
            self._remove(name)

    def _complain(self, done: str, reason: str) -> None:
        """Warn that something cannot be done, once a process."""
        if done not in self._said:
            self._said.add(done)
            what = f"the kernel cache {self.root} cannot be {done}: {reason}; {_REMEDIES[done]}"
            warnings.warn(what, CacheWarning, stacklevel=2)

    def _make_room(self, nbytes: int) -> None:
        """After so many bytes were added, keep to the limits; what nobody uses goes once a process."""
        if self._nbytes is not None and self._nbytes + nbytes <= self.limit_bytes:
            self._nbytes += nbytes
        elif self._folder is not None:
            is_first, files = self._nbytes is None, self._folder.files()
            kept = _by_kind(files)
            if is_first:
                self._folder.sweep(files)
                for kind in KINDS[1:]:
                    self._forget(kept[kind])
            self._evict(kept)

    def _forget(self, records: list[File]) -> None:
        """Remove records that nobody has used for long, and the least recently used of too many."""
        for n, file in enumerate(records):
            if n < len(records) - RECORDS or file.used < time.time() - RECORD_SECONDS:
                self._drop(file.name)

    def _evict(self, kept: Mapping[str, list[File]]) -> None:
        """Remove modules, the least recently used first, and what leads to them; the last one stays in any case."""
        modules = kept["module"]
        self._nbytes = sum(file.nbytes for file in modules)
        if self._nbytes <= self.limit_bytes:
            return
        certificates = _certificates(kept)
        for file in modules[:-1]:
            if self._nbytes <= SHARE * self.limit_bytes:
                break
            self._evict_module(file, certificates)
            self._nbytes -= file.nbytes

    def _evict_module(self, file: File, certificates: Mapping[str, list[str]]) -> None:
        """Remove a module, and before it what leads to it."""
        module = self._load(file.name.partition(".")[0])
        for key in module.codes if module is not None else ():
            for name in (f"{key}.kernel", *certificates.get(key, ())):
                self._drop(name)
        self._drop(file.name)


def _certificates(kept: Mapping[str, list[File]]) -> dict[str, list[str]]:
    """The names of certificates by the key of their kernel."""
    found: dict[str, list[str]] = {}
    for file in kept["certificate"]:
        found.setdefault(file.name.partition("-")[0], []).append(file.name)
    return found


def _by_kind(files: Iterable[File]) -> dict[str, list[File]]:
    kept: dict[str, list[File]] = {kind: [] for kind in KINDS}
    for file in files:
        if _NAME.fullmatch(file.name):
            kept[file.name.rpartition(".")[2]].append(file)
    return kept


def _certificate(key: str, subgraph: str) -> str:
    return f"{key}-{subgraph[:16]}.certificate"
