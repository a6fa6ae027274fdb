"""Messages between a process and its workers: a JSON object and raw bytes, each led by its length."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]
_LENGTHS = struct.Struct(">QQ")
_PIECE = 1 << 20
LARGEST = 1 << 32
"""Bytes of a message at most: a length beyond it was written by a process that has gone wild."""
Wait = Callable[[], None]
"""Called whenever a socket with a timeout had nothing to say for so long; an exception of it ends the waiting."""


class Torn(Exception):
    """What came is no message, or the other side is gone."""


def _for_ever() -> None:
    pass


def send(channel: socket.socket, message: Mapping[str, Any], data: bytes = b"", wait: Wait = _for_ever) -> None:
    """Send a message. Raises `Torn` when nobody is there any more."""
    text = json.dumps(message).encode()
    for part in (_LENGTHS.pack(len(text), len(data)) + text, data):
        left = memoryview(part)
        while left:
            try:
                left = left[channel.send(left) :]
            except TimeoutError:
                wait()
            except OSError as error:
                raise Torn(str(error)) from None


def receive(channel: socket.socket, wait: Wait = _for_ever) -> tuple[Message, bytes]:
    """The next message. Raises `Torn`."""
    lengths = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size, wait))
    if max(lengths) > LARGEST:
        raise Torn("it answers with something that is no message")
    text, data = (_exactly(channel, n, wait) for n in lengths)
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise Torn("it answers with something that is no message")
    return message, bytes(data)


def _exactly(channel: socket.socket, count: int, wait: Wait) -> bytearray:
    found = bytearray()
    while len(found) < count:
        try:
            part = channel.recv(min(count - len(found), _PIECE))
        except TimeoutError:
            wait()
            continue
        except OSError as error:
            raise Torn(str(error)) from None
        if not part:
            raise Torn("it is gone")
        found += part
    return found
