"""Calls on a GPU, which is the emulator, stopped wherever Python looks for signals: what they leave."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import finalize

import numpy as np

import neoflow as nf
from neoflow.runtime.parameters import set_value

HERE = str(Path(nf.__file__).parent)
KINDS = ("call", "profile", "beside")
LOOKS = ("CALL", "RESUME", "JUMP_BACKWARD")
"""How the names of the bytecodes begin after which Python looks for signals."""


class Stopped(BaseException):
    """What comes from outside here."""


START, RAISED = -1, -2
"""Of a frame, in the place of a bytecode: it has just begun, an exception has come by."""


@cache
def handlers(code: CodeType) -> tuple[tuple[int, int, int], ...]:
    """Which bytecodes, from the first on and before the second, a handler at the third is for."""
    entries = getattr(dis.Bytecode(code), "exception_entries", ())
    return tuple((e.start, e.end, e.target) for e in entries)


def looks(code: CodeType, last: int, now: int) -> bool:
    """Whether a signal may come between two bytecodes: what it raises is handled as if the first had raised it."""
    caught = [[e for e in handlers(code) if e[0] <= at < e[1]] for at in (last, now)]
    return dis.opname[code.co_code[last]].startswith(LOOKS) and caught[0] == caught[1]


def in_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame runs for what the collector has found: Python drops what is raised there, and says so."""
    while frame is not None and frame.f_code is not finalize.__call__.__code__:
        frame = frame.f_back
    return frame is not None


def stopped(action: Callable[[], object], at: int | None) -> int:
    """Run `action`, which `Stopped` ends at the place of this number where Python looks for signals; how many there
    were."""
    count, last, is_done = 0, dict[FrameType, int](), False

    def inside(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count, is_done
        if event == "opcode":
            at_last = last.get(frame, START)
            is_look = at_last == START or (at_last != RAISED and looks(frame.f_code, at_last, frame.f_lasti))
            last[frame] = frame.f_lasti
            count += is_look
            if is_look and at is not None and count > at and not (is_done or in_finalizer(frame)):
                is_done = True
                raise Stopped
        elif event == "exception":
            last[frame] = RAISED
        return inside

    def entered(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return inside

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        action()
    except Stopped:
        pass
    finally:
        sys.settrace(before)
    return count


class Step:
    """A step that adds its input to two parameters, one of them read by what comes after it."""

    def __init__(self) -> None:
        x = nf.placeholder((8,), name="x")
        self.parameters = [nf.parameter((8,), name=n, init=np.zeros(8, np.float32)) for n in ("a", "b")]
        a, b = self.parameters
        self.function = nf.compile([nf.sum(a) + nf.sum(x)], [x], {a: a + x, b: b + a + x}, target="cuda")
        self.x = np.ones(8, np.float32)

    def call(self, kind: str) -> None:
        """One of `KINDS`."""
        if kind == "profile":
            self.function.profile(self.x, runs=1)
        elif kind == "beside":
            self.function.run_beside(lambda: self.function.bring([self.x]), self.x)
        else:
            self.function(self.x)

    def is_at(self, runs: int) -> bool:
        """Whether both parameters are those of so many steps."""
        a, b = (nf.get_value(p) for p in self.parameters)
        return bool((a == runs).all() and (b == runs * (runs + 1) / 2).all())


def stop(kind: str) -> dict[str, int]:
    """Of all calls that can be stopped, how many left halves of a step, a step untold, or a function that does not
    work."""
    step = Step()
    step.call(kind)
    many = stopped(partial(step.call, kind), None)
    found = {"stops": many, "halves": 0, "untold": 0, "broken": 0}
    for at in range(many):
        for p in step.parameters:
            set_value(p, np.zeros(8, np.float32))
        before = step.function.runs
        stopped(partial(step.call, kind), at)
        made = step.function.runs - before
        found["untold"] += made not in (0, 1)
        found["halves"] += not step.is_at(made)
        step.call("call")
        found["broken"] += not step.is_at(made + 1)
    return found
