"""The kernel cache: compiled modules on disk, found by what they were made from.

    <root>/modules/<sha256 of the file>.o          a module of many kernels
    <root>/requests/<request key>.json             {"kernel": key}
    <root>/index/<kernel key>.json                 {"module": sha256, "code": how it is called}
    <root>/certificates/<kernel key>-<subgraph>.json   {"module": sha256, ...: what the judge says of it}

Keys are hashes of all that follows (`codegen.keys`), so an entry never changes its meaning. Files appear by atomic
rename; a module is verified by its SHA-256 when it is loaded, and a damaged one is dropped with one warning and built
again. A certificate holds for one content of a module and for one subgraph.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from neoflow.errors import ConfigError
from neoflow.kernel import Code
from neoflow.runtime.files import write_atomically

REQUEST_SECONDS = 30 * 24 * 3600.0
"""How long it is remembered which kernel a request led to; finding it again costs a lowering."""
FOLDERS = ("modules", "requests", "index", "certificates")


T = TypeVar("T")


class CacheWarning(UserWarning):
    """A damaged cache entry was dropped."""


@dataclass(frozen=True)
class Entry:
    """Where a kernel is: the module's content, and how the kernel in it is called."""

    module: str
    code: Code


class KernelCache:
    """A directory of compiled kernels, at most `limit_bytes` of modules (the least recently used go first)."""

    def __init__(self, root: Path, limit_bytes: int = 2 << 30):
        self.root = root
        self.limit_bytes = limit_bytes
        self._verified: dict[str, bytes] = {}
        self._is_pruned = False
        for folder in (root, *(root / name for name in FOLDERS)):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _refuse_shared(folder)

    def find(self, key: str) -> Entry | None:
        """The entry of a kernel key, its module verified; None when it is missing or damaged."""
        path = self.root / "index" / f"{key}.json"
        entry = self._read(path, lambda data: Entry(str(data["module"]), Code.from_json(data["code"])))
        if entry is not None and not self._verify(entry.module):
            path.unlink(missing_ok=True)
            return None
        return entry

    def kernel_of(self, request: str) -> str | None:
        """The kernel key that a request led to; None when that is not known."""
        return self._read(self._request_path(request), lambda data: str(data["kernel"]))

    def remember(self, request: str, key: str) -> None:
        """That a request leads to a kernel key."""
        write_atomically(self._request_path(request), json.dumps({"kernel": key}).encode(), durable=False)

    def certificate(self, key: str, subgraph: str, module: str) -> dict[str, Any] | None:
        """What the judge said of a kernel as code of a subgraph (its digest), in this very module; None: nothing."""
        data = self._read(self._certificate_path(key, subgraph), dict)
        return data if data is not None and data.get("module") == module else None

    def certify(self, key: str, subgraph: str, module: str, certificate: Mapping[str, Any]) -> None:
        """Keep what the judge said."""
        text = json.dumps({"module": module, **certificate}, indent=1)
        write_atomically(self._certificate_path(key, subgraph), text.encode(), durable=False)

    def drop(self, key: str) -> None:
        """Forget a kernel that was found wrong, and whatever was said of it."""
        (self.root / "index" / f"{key}.json").unlink(missing_ok=True)
        for path in (self.root / "certificates").glob(f"{key}-*.json"):
            path.unlink(missing_ok=True)

    def _request_path(self, request: str) -> Path:
        return self.root / "requests" / f"{request}.json"

    def _certificate_path(self, key: str, subgraph: str) -> Path:
        return self.root / "certificates" / f"{key}-{subgraph[:16]}.json"

    def _read(self, path: Path, parse: Callable[[Any], T]) -> T | None:
        """What a file of JSON says; None when there is none, or it is damaged: then it is dropped."""
        try:
            return parse(json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self._drop(path, f"cache entry {path.name} is damaged")
            return None

    def _verify(self, module: str) -> bool:
        if module in self._verified:
            return True
        path = self.module_path(module)
        try:
            data = path.read_bytes()
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != module:
            self._drop(path, f"cached module {path.name} is damaged")
            return False
        os.utime(path)
        self._verified[module] = data
        return True

    def _drop(self, path: Path, what: str) -> None:
        warnings.warn(f"{what}; it is dropped and built again", CacheWarning, stacklevel=5)
        path.unlink(missing_ok=True)

    def module_path(self, module: str) -> Path:
        return self.root / "modules" / f"{module}.o"

    def data(self, module: str) -> bytes:
        """The verified content of a module."""
        return self._verified[module]

    def publish(self, data: bytes, codes: Mapping[str, Code]) -> str:
        """Store a module and the code of each kernel key in it; returns the module's name."""
        module = hashlib.sha256(data).hexdigest()
        write_atomically(self.module_path(module), data)
        for key, code in codes.items():
            text = json.dumps({"module": module, "code": code.to_json()})
            write_atomically(self.root / "index" / f"{key}.json", text.encode())
        self._verified[module] = data
        self._evict()
        if not self._is_pruned:
            self._prune()
        return module

    def _prune(self) -> None:
        """Drop requests of long ago; once is enough for a process."""
        self._is_pruned = True
        for path in (self.root / "requests").iterdir():
            try:
                if path.stat().st_mtime < time.time() - REQUEST_SECONDS:
                    path.unlink()
            except FileNotFoundError:
                continue

    def size(self) -> tuple[int, int]:
        """How many modules there are, and their bytes."""
        files = self._modules()
        return len(files), sum(size for _, size, _ in files)

    def count(self, folder: str) -> int:
        """How many files are in one of the `FOLDERS`."""
        return sum(1 for path in (self.root / folder).iterdir() if not path.name.startswith("."))

    def clear(self) -> None:
        """Remove everything that is kept."""
        with FileLock(self.root / "lock"):
            for folder in reversed(FOLDERS):  # what leads to a module goes before it
                for path in (self.root / folder).iterdir():
                    path.unlink(missing_ok=True)
            self._verified.clear()

    def _modules(self) -> list[tuple[float, int, Path]]:
        """When each module was used last, its bytes, its path."""
        files = []
        for path in (self.root / "modules").glob("*.o"):
            try:
                files.append((path.stat().st_mtime, path.stat().st_size, path))
            except FileNotFoundError:
                continue
        return files

    def _evict(self) -> None:
        with FileLock(self.root / "lock"):
            files = self._modules()
            total = sum(size for _, size, _ in files)
            for _, size, path in sorted(files)[:-1]:
                if total <= self.limit_bytes:
                    break
                path.unlink(missing_ok=True)
                total -= size


def _refuse_shared(folder: Path) -> None:
    """Code is loaded from here, so nobody else may write here."""
    status = folder.stat()
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid != os.getuid():
        raise ConfigError(
            f"the kernel cache {folder} can be written by others (mode {stat.S_IMODE(status.st_mode):o}, owner "
            f"{status.st_uid}); run `chmod 700 {folder}` or set NEOFLOW_CACHE_DIR to a folder of your own"
        )
