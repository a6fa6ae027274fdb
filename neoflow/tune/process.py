"""One worker as its parent sees it: started, asked, ended with its group; its deadline and memory watched from here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neoflow.tune.messages import Message, Torn, receive, send

POLL = 0.02
"""Seconds between two looks at a worker's memory and its deadline."""
LOOK = 0.25
"""What a wait of `POLL` counts at most: while this process was stopped or the machine slept, no worker was late."""
END_SECONDS = 1.0
"""To wait for a killed process."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SHOWN = 300


@dataclass(frozen=True)
class Request:
    """What a worker is asked: a message with raw bytes, and how many seconds it has to answer.

    before: a request that the worker must have answered once, with its own seconds, before it gets this one.
    """

    message: Mapping[str, object]
    data: bytes = b""
    seconds: float = 60.0
    before: Request | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a request: "ok" with what the worker said, or "deadline", "memory", "crash" and a reason.

    seconds: that it had for it, without what came before.
    """

    outcome: str
    message: Message = field(default_factory=dict)
    data: bytes = b""
    reason: str = ""
    seconds: float = 0.0


class _Ended(Exception):
    """The worker was ended: outcome and reason."""


class Worker:
    """A process of `command`, in a session of its own, that answers one request at a time.

    memory: resident bytes it may have. What it prints goes to a file of no name, of which the end is shown when it
    crashes. It must be started by a thread that stays: the system takes the thread's end for the parent's.
    """

    def __init__(self, command: Sequence[str], memory: int, environment: Mapping[str, str]):
        self._memory = memory
        self._told: dict[int, Request] = {}
        """the requests before others that it has answered, by identity"""
        self._ending = threading.Lock()
        self._channel, channel = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._printed = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115 - lives as long as the worker
        os.set_inheritable(lifeline, True)
        try:
            self._process = subprocess.Popen(
                [*command, f"{channel.fileno()}:{lifeline}:{os.getpid()}"],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(channel.fileno(), lifeline),
                start_new_session=True,
                env={**os.environ, **environment},
            )
        except OSError:
            self._close()
            raise
        finally:
            channel.close()
            os.close(lifeline)
        self._channel.settimeout(POLL)
        self._is_ready = self._is_paused = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ready(self, seconds: float) -> Answer:
        """Wait until it has warmed up."""
        if self._is_ready:
            return Answer("ok")
        answer = self._watched(None, seconds)
        self._is_ready = answer.outcome == "ok"
        return answer

    def ask(self, request: Request) -> Answer:
        """The answer to a request. After any but an "ok" one the worker may be gone, see `is_alive`.

        A worker that says "forgotten" is asked again, after what comes before.
        """
        before = request.before
        for _ in range(2):
            if before is not None and id(before) not in self._told:
                answer = self._watched(before, before.seconds)
                if answer.outcome != "ok":
                    return answer
                self._told[id(before)] = before
            answer = self._watched(request, request.seconds)
            if before is None or "forgotten" not in answer.message:
                break
            del self._told[id(before)]
        return answer

    def end(self) -> None:
        """Kill it with its group, whatever state it is in, and forget it."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # inside of the system, which ends it when it comes back
            self._process.wait(END_SECONDS)
        self._close()

    def _close(self) -> None:
        """Whoever asks and whoever ends all may do so at once."""
        self._channel.close()
        self._printed.close()
        with self._ending:
            lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def kill(self) -> None:
        """Kill it with its group; whoever waits for its answer finds it gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def pause(self) -> None:
        """Have the system stop it with its group: that time does not count."""
        self._is_paused = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)
        self._is_paused = False

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _watched(self, request: Request | None, seconds: float) -> Answer:
        """Send a request, where there is one, and wait for what comes; end the worker at its deadline."""
        spent, last = 0.0, time.monotonic()

        def count() -> None:
            nonlocal spent, last
            now = time.monotonic()
            spent, last = spent + (0.0 if self._is_paused else min(now - last, LOOK)), now

        def look() -> None:
            count()
            if spent > seconds:
                raise _Ended("deadline", f"no answer in {seconds:g} s")
            used = self._resident()
            if used > self._memory:
                raise _Ended("memory", f"{used / 2**20:.0f} MiB of {self._memory / 2**20:.0f} MiB of memory")

        try:
            if request is not None:
                with contextlib.suppress(ValueError):  # closed by whoever ends all, as the channel is
                    self._printed.truncate(0)
                send(self._channel, request.message, request.data, look)
            message, data = receive(self._channel, look)
            count()
        except _Ended as ended:
            self.end()
            return Answer(ended.args[0], reason=ended.args[1], seconds=spent)
        except Torn as torn:
            return self._crashed(str(torn))
        if "failed" in message:
            return Answer(str(message["failed"]), reason=str(message.get("reason", "")), seconds=spent)
        return Answer("ok", message, data, seconds=spent)

    def _crashed(self, torn: str) -> Answer:
        try:
            status = self._process.wait(0.5)
            how = f"ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        except (subprocess.TimeoutExpired, ValueError):
            how = torn
        printed = self._last_words()
        self.end()
        is_memory = any(word in printed for word in ("bad_alloc", "MemoryError", "out of memory"))
        return Answer("memory" if is_memory else "crash", reason=f"{how}: {printed}" if printed else how)

    def _last_words(self) -> str:
        """The end of what it has printed, in a line; nothing where another thread has ended it."""
        try:
            size = self._printed.seek(0, os.SEEK_END)
            self._printed.seek(max(0, size - _SHOWN))
            return " ".join(self._printed.read().decode("utf-8", "replace").replace("\0", "").split())
        except ValueError:
            return ""

    def _resident(self) -> int:
        """Its memory in bytes; 0 where it cannot be told, or it is gone."""
        if sys.platform != "linux":
            return 0
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0
