"""What XLA gives a custom call, and takes from it: the structures of its C header, as far as they are needed here.

The header is `xla/ffi/api/c_api.h` in `jax.ffi.include_dir()`; a field never moves within `VERSION`'s major number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

VERSION = (0, 3)
"""Of the interface that these structures are of: XLA_FFI_API_MAJOR and XLA_FFI_API_MINOR."""
_EXECUTE = 3
_METADATA = 1
_FAILED_PRECONDITION = 9
Handler = Callable[[str, list[int], list[int]], str | None]
"""A call: its text, the addresses of what it takes and of what it gives; None, or what went wrong."""


class _Structure(ctypes.Structure):
    """Every structure begins with its size, and a list of extensions."""

    _fields_ = [("size", c_size_t), ("extension", c_void_p)]


class _Extension(_Structure):
    """The second word is its kind here, the third one the next extension, and then comes what it is about."""

    _fields_ = [("next", c_void_p), ("about", c_void_p)]


class _Version(_Structure):
    _fields_ = [("major", c_int), ("minor", c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _ErrorArgs(_Structure):
    _fields_ = [("message", c_char_p), ("code", c_int)]


_CREATE_ERROR = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArgs))


class _Api(_Structure):
    _fields_ = [("version", _Version), ("internal", c_void_p), ("create_error", _CREATE_ERROR)]


class _Buffer(_Structure):
    _fields_ = [("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", c_void_p)]


class _Buffers(_Structure):
    _fields_ = [("count", c_int64), ("types", c_void_p), ("items", POINTER(POINTER(_Buffer)))]


class _Text(ctypes.Structure):
    _fields_ = [("start", c_void_p), ("length", c_size_t)]


class _Attributes(_Structure):
    _fields_ = [("count", c_int64), ("types", c_void_p), ("names", c_void_p), ("items", POINTER(POINTER(_Text)))]


class Frame(_Structure):
    """XLA_FFI_CallFrame."""

    _fields_ = [
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


def _addresses(buffers: _Buffers) -> list[int]:
    items = buffers.items
    return [items[n].contents.data or 0 for n in range(buffers.count)]


def answered(frame: Frame, handler: Handler) -> int | None:
    """Do what XLA asks: None, or its error. The call has one attribute, a text."""
    if frame.extension:
        extension = _Extension.from_address(frame.extension)
        if (extension.extension or 0) & 0xFFFFFFFF == _METADATA:
            metadata = _Metadata.from_address(extension.about)
            metadata.version.major, metadata.version.minor = VERSION
            metadata.traits = 0
            return None
    if frame.stage != _EXECUTE:
        return None
    text = frame.attributes.items[0].contents
    said = ctypes.string_at(text.start, text.length).decode()
    wrong = handler(said, _addresses(frame.arguments), _addresses(frame.results))
    return None if wrong is None else _error(frame, wrong)


def _error(frame: Frame, message: str) -> int:
    args = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, message.encode(), _FAILED_PRECONDITION)
    found: int = frame.api.contents.create_error(ctypes.byref(args))
    return found


_FUNCTION = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))


def c_function(handler: Handler) -> Any:
    """A handler as a function that XLA calls, of any thread. It has to stay as long as XLA may call it."""

    def run(frame: Any) -> int | None:
        return answered(frame.contents, handler)

    return _FUNCTION(run)
