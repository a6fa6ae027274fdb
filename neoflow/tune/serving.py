"""The worker's side of `workers.py`: a process that answers requests, and that ends when its parent does.

The system ends it, not its own threads, which a kernel that holds the interpreter's lock would stop: a worker asks for
SIGKILL at its parent's death (`PR_SET_PDEATHSIG`), and for SIGKILL to its whole group when the parent's end of a pipe,
the *lifeline*, closes (`F_SETSIG`), so that compilers it has started go too.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from neoflow.tune.messages import Message, Torn, receive, send

Handle = Callable[[Message, bytes], tuple[Message, bytes]]
"""From a request to its answer."""
PRINTED = 1 << 26
"""Bytes of any file it writes, that of what it prints among them."""
_PR_SET_PDEATHSIG = 1


def serve(handle: Handle, place: str, warm: Callable[[], None] | None = None) -> None:
    """Answer requests until the parent is gone.

    place: the last argument that the parent gave: the numbers of the channel and of the lifeline, and of its process.
    warm: what is done before the first request, while nobody waits. An exception of `handle` is an answer too.
    """
    channel, lifeline, parent = (int(n) for n in place.split(":"))
    _end_with(parent, lifeline)
    connection = socket.socket(fileno=channel)
    if warm is not None:
        warm()
    try:
        send(connection, {"ready": os.getpid()})
        while True:
            answer, data = _answered(handle, *receive(connection))
            send(connection, answer, data)
    except Torn:
        sys.exit(0)


def _answered(handle: Handle, message: Message, data: bytes) -> tuple[Message, bytes]:
    try:
        return handle(message, data)
    except MemoryError as error:
        return {"failed": "memory", "reason": f"MemoryError: {error}"}, b""
    except Exception as error:  # whatever it is, it belongs to this request alone
        with contextlib.suppress(OSError):  # it may be that it has printed too much
            traceback.print_exc()
        return {"failed": "crash", "reason": f"{type(error).__name__}: {error}"}, b""


def _end_with(parent: int, lifeline: int) -> None:
    """Have the system end this process, its group with it, when the parent is gone; at once where it is already."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (PRINTED, PRINTED))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # before anything of the user's
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if os.getppid() != parent or select.select([lifeline], [], [], 0)[0]:
        os.killpg(0, signal.SIGKILL)
