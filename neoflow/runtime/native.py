"""Loading and calling compiled kernels with `tvm_ffi` and TVM's small runtime library: no compiler, no `import tvm`."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.imports import without_torch

with without_torch():
    import tvm_ffi

_STORED_AS: dict[np.dtype, np.dtype] = {
    np.dtype(np.bool_): np.dtype(np.int8),
    np.dtype(ml_dtypes.bfloat16): np.dtype(np.uint16),
}
"""Element types a kernel sees under another name."""


@cache
def _runtime() -> ctypes.CDLL:
    """TVM's runtime library, its symbols visible to kernels."""
    spec = importlib.util.find_spec("tvm")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise RuntimeFault("TVM's runtime library is missing: install apache-tvm")
    path = os.path.join(os.path.dirname(spec.origin), "lib", "libtvm_runtime.so")
    try:
        return ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RuntimeFault(f"TVM's runtime library cannot be loaded: {error}") from None


_pool = threading.local()
"""`count`: the size last given to the pool of this thread."""


class Module:
    """Loaded kernels, by name."""

    def __init__(self, module: tvm_ffi.Module):
        self._module = module

    def get(self, name: str) -> Callable:
        """The kernel `name`: a callable of `as_argument` values, inputs then outputs."""
        try:
            return self._module[name]
        except AttributeError:
            raise RuntimeFault(f"the module has no kernel named {name!r}") from None


def load(data: bytes | str | Path) -> Module:
    """The kernels of a library built by `codegen.build`: its bytes, or the path of a file of them."""
    _runtime()
    if isinstance(data, bytes):
        handle, path = tempfile.mkstemp(suffix=".so", prefix="neoflow-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            return Module(tvm_ffi.load_module(path))
        finally:
            os.unlink(path)  # the mapping keeps the contents
    return Module(tvm_ffi.load_module(os.path.abspath(data)))


def configure_threads(count: int) -> None:
    """The pool of the calling thread uses `count` threads; call before its first kernel.

    TVM makes one pool for each thread that calls kernels, sized when first used: by default half of the cores.
    """
    if count < 1:
        raise RuntimeFault(f"kernels need at least one thread, not {count}")
    _runtime()
    os.environ.setdefault("TVM_BIND_THREADS", "0")  # a pinned pool fights with other processes for the same cores
    share_all_cores = -3
    cores = [str(c) for c in sorted(os.sched_getaffinity(0))]
    chosen = [cores[n % len(cores)] for n in range(count)]
    tvm_ffi.get_global_func("runtime.config_threadpool")(share_all_cores, count, chosen)
    _pool.count = count


def use_threads(count: int) -> None:
    """`configure_threads` for the calling thread, unless that is what it has."""
    if getattr(_pool, "count", None) != count:
        configure_threads(count)


def as_argument(array: np.ndarray) -> object:
    """The flat view of an aligned, contiguous array that kernels take: no copy, the array stays the owner."""
    if not array.flags.c_contiguous:
        raise RuntimeFault(f"a kernel takes dense row-major arrays, not strides {array.strides} of shape {array.shape}")
    flat = array.reshape(-1)
    stored = _STORED_AS.get(array.dtype)
    return tvm_ffi.from_dlpack(flat if stored is None else flat.view(stored))


def empty(shape: tuple[int, ...], dtype: str | np.dtype, alignment: int = 64) -> np.ndarray:
    """An uninitialised array whose first element is aligned to `alignment` bytes."""
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    count = math.prod(shape) * kind.itemsize
    raw = np.empty(count + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + count].view(kind).reshape(shape)
