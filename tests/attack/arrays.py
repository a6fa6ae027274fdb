"""Arrays that are changed in place between two calls, and what says that it is an array."""

from __future__ import annotations

import ctypes
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import neoflow as nf
from neoflow.errors import NeoflowError
from neoflow.runtime.device.cpu import empty

SHAPE = (16, 16)


def _retyped(a: np.ndarray, rng: np.random.Generator) -> None:
    a.dtype = rng.choice([np.int32, np.uint32, np.float32, ">f4", "<i4"])


def _transposed(a: np.ndarray, rng: np.random.Generator) -> None:
    a.strides = a.strides[::-1]


def _repeated(a: np.ndarray, rng: np.random.Generator) -> None:
    a.strides = (0, a.itemsize)


def _resized(a: np.ndarray, rng: np.random.Generator) -> None:
    a.resize((64, 64), refcheck=False)
    a.resize(SHAPE, refcheck=False)


def _reshaped(a: np.ndarray, rng: np.random.Generator) -> None:
    a.shape = (8, 32)


def _written(a: np.ndarray, rng: np.random.Generator) -> None:
    a[...] = rng.integers(0, 9, SHAPE)


def _set(a: np.ndarray, rng: np.random.Generator) -> None:
    other = np.asfortranarray(rng.random(SHAPE).astype(np.float32))
    a.__setstate__(other.__reduce__()[2])


def _frozen(a: np.ndarray, rng: np.random.Generator) -> None:
    a.flags.writeable = False


def _swapped(a: np.ndarray, rng: np.random.Generator) -> None:
    a.byteswap(inplace=True)
    a.dtype = a.dtype.newbyteorder()


MUTATIONS = (_retyped, _transposed, _repeated, _resized, _reshaped, _written, _set, _frozen, _swapped)


def mutate(trials: int, seed: int) -> Counter[str]:
    """Of so many mutations of an array that a function has taken: right results, refusals, wrong ones, raw errors."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    x = nf.placeholder(SHAPE, name="x")
    f = nf.compile([x * 2.0], [x])
    for _ in range(trials):
        a = empty(SHAPE, "float32") if rng.random() < 0.5 else _owned()
        a[...] = rng.integers(0, 9, SHAPE)
        f(a)
        for change in rng.choice(len(MUTATIONS), rng.integers(1, 3)):
            with warnings.catch_warnings():  # NumPy would rather have none of them
                warnings.simplefilter("ignore", DeprecationWarning)
                try:
                    MUTATIONS[change](a, rng)
                except (ValueError, TypeError, AttributeError):
                    found["not possible"] += 1
        found[outcome(lambda a=a: f(a)[0], lambda a=a: _doubled(a))] += 1
    return found


def _owned() -> np.ndarray:
    """An array that can be resized, aligned to 64 bytes if there is one."""
    tried = [np.empty(SHAPE, np.float32) for _ in range(16)]
    return next((a for a in tried if a.ctypes.data % 64 == 0), tried[0])


def _doubled(a: np.ndarray) -> np.ndarray | None:
    """What the result has to be; None: a refusal."""
    return np.array(a) * np.float32(2) if a.shape == SHAPE and a.dtype == np.dtype(np.float32) else None


def outcome(call: Callable[[], np.ndarray], wanted: Callable[[], np.ndarray | None]) -> str:
    """What came of a call, in a word."""
    try:
        with np.errstate(all="ignore"):
            found = call()
    except NeoflowError as error:
        return "refused" if wanted() is None else f"refused without need: {error}"
    except Exception as error:
        return f"raw {type(error).__name__}"
    expected = wanted()
    return "right" if expected is not None and np.array_equal(found, expected, equal_nan=True) else "wrong"


# --- DLPack, made by hand -------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """`DLManagedTensor` of dlpack.h."""

    _fields_ = (
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
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
"""A function of its own: other libraries say otherwise what the one of `ctypes.pythonapi` takes."""


_KEPT: list[Foreign] = []
"""What capsules point to is read once more when the last array of it goes."""


class Foreign:
    """An array of floats that describes itself by DLPack, truly or not."""

    def __init__(self, array: np.ndarray, **changes: Any):
        self.array, self.changes = array, changes
        shape = changes.get("shape", array.shape)
        strides = changes.get("strides", tuple(s // array.itemsize for s in array.strides))
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self._strides = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        self._tensor = _Tensor(
            changes.get("data", array.ctypes.data),
            changes.get("device_type", 1),
            changes.get("device_id", 0),
            changes.get("ndim", len(shape)),
            changes.get("code", 2),
            changes.get("bits", 32),
            changes.get("lanes", 1),
            ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64)),
            None if self._strides is None else ctypes.cast(self._strides, ctypes.POINTER(ctypes.c_int64)),
            changes.get("byte_offset", 0),
            None,
            None,
        )

        _KEPT.append(self)

    def __dlpack_device__(self) -> Any:
        said = self.changes.get("said_device", (self._tensor.device_type, self._tensor.device_id))
        if isinstance(said, BaseException):
            raise said
        return said

    def __dlpack__(self, **_: Any) -> Any:
        given = self.changes.get("gives")
        if isinstance(given, BaseException):
            raise given
        if given is not None:
            return given
        return _capsule(ctypes.addressof(self._tensor), self.changes.get("name", b"dltensor"), None)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


CHANGES: dict[str, tuple[Any, ...]] = {
    "device_type": (2, 3, 4, 7, 8, 10, 14, 99, -1, 2**31 - 1),
    "said_device": ((2, 0), (99, 1), None, (), "cpu", (1,), (1, 2, 3), RuntimeError("no"), ("x", 0)),
    "code": (0, 1, 3, 4, 5, 6, 7, 200),
    "bits": (0, 1, 4, 8, 16, 64, 128, 7),
    "lanes": (0, 2, 4, 65535),
    "shape": ((4, 64), (), (2**62, 2**62), (2**40, 2**40), (-1, 16), (0, 16), (16,) * 33, (1,) * 70),
    "strides": (None, (1, 16), (-16, 1), (0, 0), (0, 1)),
    "ndim": (-1, 0, 1),
    "data": (0,),
    "gives": (None, 3, "capsule", RuntimeError("no"), Unprintable(), MemoryError(), BufferError("grad"), object()),
    "name": (b"used_dltensor", b"other"),
}
"""What a hostile object may say of itself, where nothing but the memory it points to has to be believed."""


def hostile(trials: int, seed: int) -> Counter[str]:
    """Of so many objects with one to three wrong statements about themselves: right results, refusals, wrong, raw."""
    rng, found = np.random.default_rng(seed), Counter[str]()
    x = nf.placeholder(SHAPE, name="x")
    f = nf.compile([x * 2.0], [x])
    memory = empty((64, 64), "float32")
    memory[...] = rng.integers(0, 9, (64, 64))
    names = list(CHANGES)
    for _ in range(trials):
        changes = {}
        for name in rng.choice(names, rng.integers(1, 4), replace=False):
            options = CHANGES[name]
            changes[str(name)] = options[rng.integers(len(options))]
        array = memory[20:36, 20:36]  # strides that point backwards stay inside
        given = Foreign(array, **changes)
        found[outcome(lambda given=given: f(given)[0], lambda array=array, c=changes: _described(array, c))] += 1
    return found


def _described(array: np.ndarray, changes: dict[str, Any]) -> np.ndarray | None:
    """What a function must give for an array that was so described; None: a refusal."""
    reached = changes.get("device_type", 1) in (1, 3, 11, 13) and changes.get("said_device", (1, 0)) == (1, 0)
    plain = all(changes.get(n, v) == v for n, v in (("code", 2), ("bits", 32), ("lanes", 1), ("shape", SHAPE)))
    if not reached or not plain or changes.get("gives") is not None or {"ndim", "data", "name"} & set(changes):
        return None
    strides = changes.get("strides", tuple(s // 4 for s in array.strides))
    strides = (16, 1) if strides is None else strides
    return np.lib.stride_tricks.as_strided(array, SHAPE, tuple(4 * s for s in strides)) * np.float32(2)
