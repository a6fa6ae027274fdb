"""Steps that are interrupted at random moments, and what they leave."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable

import numpy as np

import neoflow as nf

COUNT = 6


class Stopped(BaseException):
    """What a signal's handler raises here."""


class Counters:
    """A step that adds 1 to parameters of several sizes, in place and by copies, between kernels that take a while."""

    def __init__(self, size: int = 60_000):
        self.x = nf.placeholder((96, 128), name="x")
        self.parameters = [
            nf.parameter((size // (n + 1),), name=f"p{n}", init=np.zeros(size // (n + 1), np.float32))
            for n in range(COUNT)
        ]
        product = nf.expr("y[i,j] = sum(x[i,k] * x[j,k])", x=self.x)
        updates = {p: p + 1.0 for p in self.parameters}
        late = self.parameters[-1]  # read by what comes after it: written by a copy at the end
        outputs = [nf.sum(product), late]
        self.step = nf.compile(outputs, [self.x], updates)
        self.batch = np.ones((96, 128), np.float32)
        self.returned = self.wrong = 0

    def loop(self) -> None:
        """Steps until something raises."""
        while True:
            total, before = self.step(self.batch)
            self.wrong += not (float(total) == 96 * 96 * 128 and (before == before[0]).all())
            self.returned += 1

    def works(self) -> bool:
        """Whether it still does what it did."""
        before = nf.get_value(self.parameters[0])[0]
        total, late = self.step(np.full((96, 128), 2, np.float32))
        right = float(total) == 4 * 96 * 96 * 128 and late[0] == before
        return bool(right) and all((nf.get_value(p) == before + 1).all() for p in self.parameters)


def by_signal(program: Counters, delay: float) -> None:
    """Loop until a timer's signal raises `Stopped`."""

    def handle(number: int, frame: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        program.loop()
    except Stopped:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def by_ctrl_c(program: Counters, delay: float) -> None:
    """Loop until Ctrl-C, pressed twice."""

    def press() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1e-4)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    try:
        try:
            thread.start()
            program.loop()
        except KeyboardInterrupt:
            thread.join()
            time.sleep(1e-3)  # for the second, if it is still to come
    except KeyboardInterrupt:
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


def by_thread(program: Counters, delay: float) -> None:
    """Loop on a thread until another one sets an exception there."""

    def work() -> None:
        with contextlib.suppress(Stopped):
            program.loop()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(delay)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
    thread.join()


WAYS: dict[str, Callable[[Counters, float], None]] = {"signal": by_signal, "ctrl-c": by_ctrl_c, "thread": by_thread}


def interrupt(way: str, trials: int, seed: int) -> dict[str, int]:
    """Of so many interrupts, how many left parameters of different steps, a step untold, or a broken function."""
    rng, program = np.random.default_rng(seed), Counters()
    program.works()
    found = {"halves": 0, "untold": 0, "broken": 0, "wrong": 0}
    for _ in range(trials):
        for p in program.parameters:
            nf.runtime.parameters.set_value(p, np.zeros(p.shape, np.float32))
        start, program.returned = getattr(program.step, "runs", 0), 0
        WAYS[way](program, float(rng.uniform(1e-4, 4e-3)))
        values = [nf.get_value(p) for p in program.parameters]
        found["halves"] += not all((v == values[0][0]).all() for v in values)
        found["untold"] += float(values[0][0]) != (getattr(program.step, "runs", program.returned) - start)
        found["broken"] += not program.works()
    found["wrong"] = program.wrong
    return found
