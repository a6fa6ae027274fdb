"""The kernel cache: compiled modules on disk, found by what they were made from.

    <root>/modules/<sha256 of the file>.o      a module of many kernels
    <root>/index/<kernel key>.json             {"module": sha256, "code": how it is called}

A key is a hash of subgraph, schedule, target and code generator, so an entry never changes its meaning. Files appear by
atomic rename; a module is verified by its SHA-256 when it is loaded, and a damaged one is dropped with one warning and
built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from neoflow.errors import ConfigError
from neoflow.kernel import Code
from neoflow.runtime.parameters import write_atomically


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
        for folder in (root, root / "modules", root / "index"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _refuse_shared(folder)

    def find(self, key: str) -> Entry | None:
        """The entry of a kernel key, its module verified; None when it is missing or damaged."""
        path = self.root / "index" / f"{key}.json"
        try:
            data = json.loads(path.read_text())
            entry = Entry(str(data["module"]), Code.from_json(data["code"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self._drop(path, f"cache entry {path.name} is damaged")
            return None
        if not self._verify(entry.module):
            path.unlink(missing_ok=True)
            return None
        return entry

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
        now = time.time()
        os.utime(path, (now, now))
        self._verified[module] = data
        return True

    def _drop(self, path: Path, what: str) -> None:
        warnings.warn(f"{what}; it is dropped and built again", CacheWarning, stacklevel=4)
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
        return module

    def _evict(self) -> None:
        with FileLock(self.root / "lock"):
            files = []
            for path in (self.root / "modules").glob("*.o"):
                try:
                    files.append((path.stat().st_mtime, path.stat().st_size, path))
                except FileNotFoundError:
                    continue
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
