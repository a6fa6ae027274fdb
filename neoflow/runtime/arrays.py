"""What is taken for an array, what is converted, and what is refused.

| given | an input of a call | a parameter's value |
|---|---|---|
| NumPy array or scalar of the dtype | as it is; copied when strided, read-only or not aligned | copied |
| of another dtype or byte order | refused | converted, see below |
| anything with DLPack, `__array__` or a buffer | as the array it gives | as the array it gives |
| Python numbers, lists and tuples of them | converted, see below | converted, see below |
| with masked elements, of Python objects, text, dates, complex | refused | refused |

Converted: what becomes an integer or a bool keeps its value or is refused (1.0 is 1, 1.7 and NaN are no integers); what
becomes a float is rounded, and refused where a finite number would become infinite; NaN stays NaN. The memory that an
object says it has (DLPack, `__array_interface__`) is believed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import Location, RuntimeFault

HOSTS = (1, 3, 11, 13)
"""Types of devices, of `dlpack.h`, whose memory a CPU reads: its own, and what is pinned or managed for a GPU's."""
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 14: "oneapi", 15: "webgpu"}


def array_of(value: Any, what: str, where: Location | None = None) -> np.ndarray:
    """`value` as a NumPy array of the dtype it has. Raises `RuntimeFault`, in which `what` names its use."""
    if type(value) is np.ndarray:
        return value
    try:
        array = _foreign(value, what, where)
    except RuntimeFault:
        raise
    except Exception as error:  # of foreign code: anything
        raise RuntimeFault(f"{what}: the {_kind(value)} gives no array: {_first_line(error)}", where) from None
    if array.dtype.hasobject:
        raise RuntimeFault(f"{what}: the {_kind(value)} holds Python objects, not numbers of one type", where)
    return array


def is_bare(value: Any) -> bool:
    """Whether these are Python's numbers, which have no dtype of their own."""
    return isinstance(value, (bool, int, float, list, tuple)) and not isinstance(value, np.generic)


def _foreign(value: Any, what: str, where: Location | None) -> np.ndarray:
    if _is_masked(value):
        raise RuntimeFault(f"{what} has masked elements, which nothing stands for: fill them, array.filled(0)", where)
    if isinstance(value, (np.ndarray, np.generic)) or is_bare(value) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if int(kind) not in HOSTS:
            device = f"{_DEVICES.get(int(kind), f'type {int(kind)}')}:{int(number)}"
            raise RuntimeFault(f"{what}: the {_kind(value)} is on device {device}; bring it to the CPU first", where)
    array = np.from_dlpack(value)
    if array.flags.owndata:
        raise RuntimeFault(f"{what}: the {_kind(value)} has no memory", where)
    return array


def _is_masked(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_is_masked(v) for v in value if not isinstance(v, (bool, int, float)))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def converted(array: np.ndarray, dtype: str, what: str, where: Location | None = None) -> np.ndarray:
    """`array` in another dtype, as this module's table says. Raises `RuntimeFault` for values that have none there."""
    wanted = dt.NUMPY[dtype]
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biuf" and array.dtype != dt.NUMPY["bfloat16"]:
        raise RuntimeFault(f"{what} is {dtype}, the value {array.dtype}: there is no number for it", where)
    with np.errstate(all="ignore"):
        result = array.astype(wanted)
    lost = np.isfinite(array) & ~np.isfinite(result) if dt.is_float(dtype) else result != array
    if lost.any():
        at = [int(n) for n in np.argwhere(lost)[0]]
        raise RuntimeFault(f"{what} is {dtype}, which has no {array[tuple(at)]}, the value at {at}", where)
    return result


def _kind(value: Any) -> str:
    return type(value).__name__


def _first_line(error: Exception) -> str:
    try:
        text = str(error).strip().splitlines()
    except Exception:  # an error that cannot even be printed
        text = []
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
