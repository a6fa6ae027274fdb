"""One worker as its parent sees it: started, asked, ended with its group; its deadline and memory watched from here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from neoflow.tune.messages import Message, Torn, receive, send

POLL = 0.02
"""Seconds between two looks at a worker's memory and its deadline."""
GROUP = 0.1
"""Seconds between two looks at the memory of its group: who belongs to it is asked of every process there is."""
LOOK = 0.25
"""What a wait of `POLL` counts at most: while this process was stopped or the machine slept, no worker was late."""
END_SECONDS = 1.0
"""To wait for a killed process."""
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

    memory: resident bytes that it may have with its group, so with what it starts. What it prints goes to a file of no
    name, of which the end is shown when it crashes. It must be started by a thread that stays: the system takes the
    thread's end for the parent's.
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
        spent, last, looked = 0.0, time.monotonic(), 0.0

        def count() -> None:
            nonlocal spent, last
            now = time.monotonic()
            spent, last = spent + (0.0 if self._is_paused else min(now - last, LOOK)), now

        def look() -> None:
            nonlocal looked
            count()
            if spent > seconds:
                raise _Ended("deadline", f"no answer in {seconds:g} s")
            used, told = _resident(self.pid), ""
            if used <= self._memory and last - looked > GROUP:
                used, told, looked = _together(self.pid, self._memory), " of its group", last
            if used > self._memory:
                raise _Ended("memory", f"{used / 2**20:.0f} MiB of {self._memory / 2**20:.0f} MiB of memory{told}")

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


def _resident(pid: int) -> int:
    """Memory of a process in bytes; 0 where it cannot be told, or it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _together(group: int, enough: int) -> int:
    """Memory of a group's processes in bytes. Where more than `enough` is resident what several of them share is
    counted once, as after a fork, which takes longer to ask."""
    members = [pid for pid in psutil.pids() if _group_of(pid) == group]
    used = sum(map(_resident, members))
    return used if used <= enough else sum(map(_share, members))


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it is gone
        return None


def _share(pid: int) -> int:
    """What a process has alone, and its part of what it shares; 0 where it cannot be told, or it is gone."""
    try:
        found = psutil.Process(pid).memory_full_info()
    except psutil.Error:
        return 0
    return int(getattr(found, "pss", found.uss))
