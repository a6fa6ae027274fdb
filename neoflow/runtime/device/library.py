"""Shared libraries of kernels, loaded from memory and unloaded when nobody needs them."""

from __future__ import annotations

import _ctypes
import ctypes
import fcntl
import itertools
import os
import resource
import weakref

from neoflow.errors import RuntimeFault

_MEMFD_EXEC = 0x10
_MOST = 1 << 20
"""Numbers of open files are looked for below it, where a process may have more."""
_numbers = itertools.count()


class Library:
    """A loaded shared library; its code is unmapped once the last reference is gone."""

    def __init__(self, data: bytes):
        """data: the bytes of the file. Raises `RuntimeFault` when the system does not load them."""
        file = _memory_file()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            self._library = ctypes.CDLL(_unique_path(file), os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise RuntimeFault(f"compiled kernels cannot be loaded: {error}") from None
        finally:
            os.close(file)  # the mapping keeps the contents
        weakref.finalize(self, _ctypes.dlclose, self._library._handle).atexit = False  # a thread may still be in there

    def address(self, symbol: str) -> int:
        """Where a function is."""
        try:
            return _ctypes.dlsym(self._library._handle, symbol)
        except OSError:
            raise RuntimeFault(f"the library has no function named {symbol!r}") from None


def make_room() -> None:
    """Have the table of open files reach as far as those of libraries: in a process of several threads, as NumPy makes
    it, the system takes 6 to 15 ms to make it larger, as it waits for all cores; nobody else does."""
    os.close(_memory_file())


def _memory_file() -> int:
    """A file in memory that may be mapped as code: no folder, which may forbid that.

    Its number is a high one, which nothing else takes later: whoever looks for the code of a loaded library by its
    path, as backtraces and debuggers do, finds no file, and not whatever was opened next, which may be shorter than
    the library, or a pipe.
    """
    try:
        low = os.memfd_create("neoflow", os.MFD_CLOEXEC | _MEMFD_EXEC)
    except OSError:  # before Linux 6.3 every such file may
        low = os.memfd_create("neoflow", os.MFD_CLOEXEC)
    try:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, min(most if most > 0 else _MOST, _MOST) // 2)
    finally:
        os.close(low)


def _unique_path(file: int) -> str:
    """A path of an open file that was never used before.

    The dynamic loader takes equal paths for equal libraries, and numbers of files are used again.
    """
    number = next(_numbers)
    detour = "".join("/." if number >> bit & 1 else "/" for bit in range(max(1, number.bit_length())))
    return f"/proc/self/fd{detour}/{file}"
