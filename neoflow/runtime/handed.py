"""Calls of another library between the kernels of a plan.

Such a call is a function like a kernel's, which the thread that called the program comes to in its place: it
takes the interpreter's lock, and the library works on the buffers of the plan. Its status word is 1 before it has run,
so that whatever ends it early ends the step. On a GPU the library puts its work into the stream of the step, on memory
there; the word is the host's, and what comes after the call is not launched where it fails.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from neoflow.code import Handed
from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Device
from neoflow.runtime.executor import Loaded

LIBRARIES = {"torch": ("neoflow.runtime.torch_cells", "neoflow.runtime.torch_cuda")}
"""By the first part of the name of an implementation: the modules that have it, on a CPU and on a GPU. These have
`refusal(place)`, why nothing can be called for a place, and `on(place)`, a `Made` for one call there."""
_C_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)
_ARRAYS = 8
"""How many sets of addresses have their tensors kept: arrays come from few addresses, in turn."""


class Made(Protocol):
    """What a library is asked for a call."""

    def tensor(self, address: int, shape: tuple[int, ...], dtype: str) -> Any:
        """A tensor of the library in that memory."""
        ...

    def run(self, call: Handed, inputs: Sequence[Any], outputs: Sequence[Any], kept: dict[int, Any]) -> None:
        """Compute outputs from inputs. kept: by ticket what a call keeps for its gradients."""
        ...


def refusal(name: str, place: Device) -> str | None:
    """Why a library can compute nothing there, in a sentence; None where it can."""
    try:
        found: str | None = _module(name, place).refusal(place)
    except ImportError as error:
        return f"{name} cannot be imported: {error}"
    return found


def library(implementation: str, place: Device) -> Made:
    """What computes it there, for one call. Raises `RuntimeFault` where its library is not here, or cannot."""
    name = implementation.partition(".")[0]
    if (why := refusal(name, place)) is not None:
        raise RuntimeFault(
            f"the program was compiled with {implementation}, and {why}; put that right, or "
            "compile again without NEOFLOW_WITH='torch cells'"
        )
    made: Made = _module(name, place).on(place)
    return made


def _module(name: str, place: Device) -> Any:
    here, there = LIBRARIES[name]
    return import_module(here if place.is_host else there)


class Session:
    """The calls of one function, and what they keep for their gradients. failed: what went wrong in the last run;
    late: an exception from outside that came meanwhile, to be raised after the step."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}
        self.failed: BaseException | None = None
        self.late: BaseException | None = None
        self.functions: list[Any] = []

    def work(self, made: Made, call: Handed) -> Callable[[Sequence[int]], None]:
        """What computes a call at the addresses of its inputs and outputs."""
        shapes, count = (*call.inputs, *call.outputs), len(call.inputs)
        known: dict[tuple[int, ...], list[Any]] = {}

        def run(addresses: Sequence[int]) -> None:
            key = tuple(addresses)
            tensors = known.get(key)
            if tensors is None:
                if len(known) >= _ARRAYS:
                    del known[next(iter(known))]
                tensors = [made.tensor(a, *s) for a, s in zip(key, shapes, strict=True)]
                known[key] = tensors
            made.run(call, tensors[:count], tensors[count:], self.kept)

        return run

    def function(self, made: Made, call: Handed) -> int:
        """The address of a function that does it."""
        run, count = self.work(made, call), len(call.inputs) + len(call.outputs)

        def called(pointers: int, thread: int, begin: int, end: int) -> None:
            words: Any = (ctypes.c_int64 * (count + 1)).from_address(pointers)
            try:
                run(words[:count])
            except BaseException as first:  # of the library, or from outside: then it goes through the second time
                try:
                    run(words[:count])
                    self.late = first
                except BaseException as error:
                    self.failed = error
                    return
            ctypes.c_int32.from_address(words[count]).value = 0

        self.functions.append(_C_CALL(called))
        return ctypes.cast(self.functions[-1], ctypes.c_void_p).value or 0

    def judge(self, name: str, changed: str) -> RuntimeFault:
        """Why a call of this name ended the step."""
        error, self.failed, self.late = self.failed, None, None
        said = "it was interrupted" if error is None else f"{type(error).__name__}: {error}"
        return RuntimeFault(f"{name} failed: {said}; {changed}")

    def settle(self) -> None:
        """Raise what came from outside while a call was made."""
        if self.late is not None:
            late, self.late = self.late, None
            raise late

    def address(self, symbol: str) -> int:
        """Of a library that has no names."""
        raise RuntimeFault(f"there is no function named {symbol!r}")


def load_handed(calls: Sequence[Handed], place: Device) -> list[Loaded]:
    """Foreign calls as kernels of a place, of one session. Raises `RuntimeFault`."""
    session, found = Session(), list[Loaded]()
    for call in calls:
        address = session.function(library(call.implementation, place), call)
        found.append(Loaded(call.code, (address,), session, session))
    return found
