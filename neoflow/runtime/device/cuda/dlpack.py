"""DLPack: a GPU's memory from and to other libraries, without copies.

Source: dlpack.h of DLPack 1.0, the capsule "dltensor", and the array API standard's `__dlpack__`.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault

CUDA = 2
"""The type of device of `dlpack.h`."""
_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"int": 0, "float": 2, "bfloat": 4, "bool": 6}
KINDS = {
    name: (_CODES[name.rstrip("0123456789")], 8 * dt.itemsize(name), 1) for name in dt.NUMPY
}  # by dtype: code, bits, lanes
_DTYPES = {kind: name for name, kind in KINDS.items()}


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    """`DLManagedTensor`: a tensor, and who is told when it is no longer needed."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _python))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))


class Foreign:
    """Memory of another library, given back with its last holder. strides: in elements."""

    def __init__(self, capsule: Any):
        """Raises `ValueError` for what is no capsule of a tensor, or was taken already."""
        address = _pointer(capsule, _NAME)
        managed = Managed.from_address(address)
        tensor = managed.tensor
        kind = (tensor.code, tensor.bits, tensor.lanes)
        self.dtype = _DTYPES.get(kind, f"type {kind}")
        self.shape = tuple(tensor.shape[n] for n in range(tensor.ndim))
        dense = dense_strides(self.shape)
        self.strides = tuple(tensor.strides[n] for n in range(tensor.ndim)) if tensor.strides else dense
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.device = (tensor.device_type, tensor.device_id)
        self.is_dense = all(a == b for n, a, b in zip(self.shape, self.strides, dense, strict=True) if n != 1)
        _rename(capsule, _USED)
        if managed.deleter:
            weakref.finalize(self, _Deleter(managed.deleter), address).atexit = False


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of row-major memory, in elements."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))


def imported(value: Any, stream: int) -> Foreign:
    """An object's memory; the stream waits for what its library has still to do to it. Raises `RuntimeFault`."""
    try:
        return Foreign(value.__dlpack__(stream=stream))
    except Exception as error:  # of foreign code: anything
        raise RuntimeFault(f"the {type(value).__name__} gives no memory by DLPack: {error}") from None


_given: dict[int, tuple[Any, ...]] = {}
"""What was given away and is still in use, by the address of its structure."""


def exported(address: int, shape: tuple[int, ...], dtype: str, ordinal: int, holder: Any) -> Any:
    """A capsule of memory that `holder` keeps; the library that takes it tells when it needs it no more."""
    rank = len(shape)
    extents, strides = (ctypes.c_int64 * rank)(*shape), (ctypes.c_int64 * rank)(*dense_strides(shape))
    tensor = Tensor(address, CUDA, ordinal, rank, *KINDS[dtype], extents, strides, 0)
    managed = Managed(tensor, None, ctypes.cast(_leave, ctypes.c_void_p))
    at = ctypes.addressof(managed)
    _given[at] = (managed, extents, strides, holder)
    return _new(at, _NAME, ctypes.cast(_drop, ctypes.c_void_p))


def _release(address: int) -> None:
    _given.pop(address, None)


def _dropped(capsule: int) -> None:
    """A capsule has gone; nobody may have taken what it held."""
    if _is_valid(capsule, _NAME):
        _release(_raw_pointer(capsule, _NAME))


_leave, _drop = _Deleter(_release), _Deleter(_dropped)
for _callback in (_leave, _drop):  # another library may call them when this module is gone
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))
