"""Who may use parameters at the same time: any number of functions that read them, or one that writes them.

Each function has a lock. One that only reads its parameters takes its own, and runs beside the others that read them;
one that writes takes its own and those of all functions that touch what it writes. Locks are taken in the order of
their numbers, so nobody waits in a circle. What one thread pays is a lock for each of these functions, however many
parameters there are. `with` alone takes and gives back: no exception, of whatever signal, comes between a lock and its
release.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Lock = threading.RLock  # a signal's handler may read a parameter while its thread is in a function
_AT_ONCE = 4
_numbers = itertools.count()


class Use:
    """What one function does with parameters, by their ids: those it touches, and those of them it writes."""

    def __init__(self, touched: frozenset[int], written: frozenset[int]):
        self.number = next(_numbers)
        self.touched, self.written = touched, written
        self.unlock()

    def unlock(self) -> None:
        """A lock that nobody holds; `locks` is found when it is first needed."""
        self.lock = Lock()
        self.locks: list[Lock] | None = None


class Sharing:
    """The uses of parameters in a process."""

    def __init__(self) -> None:
        self._uses: weakref.WeakSet[Use] = weakref.WeakSet()
        self._unlock()
        os.register_at_fork(after_in_child=self._unlock)

    def _unlock(self) -> None:
        """In a child of `fork` nobody is inside a function, whoever was in the parent."""
        self._registering = Lock()
        self._outside = Lock()
        for use in self._uses:
            use.unlock()

    def join(self, touched: frozenset[int], written: frozenset[int]) -> Use:
        """A new use of parameters; those that write them wait for it from now on."""
        use = Use(touched, written)
        with self._registering:
            writers = [u for u in self._uses if u.written & touched]
            self._uses.add(use)
            for u in writers:
                u.locks = None
        for lock in (*(u.lock for u in writers), self._outside):
            with lock:  # what runs at this moment does not know of the new use
                pass
        return use

    def run(self, use: Use, action: Callable[..., T], *given: Any) -> T:
        """`action(*given)` of a function, while nobody writes what it touches, or touches what it writes."""
        while True:
            locks = use.locks or self._find(use)
            if len(locks) == 1:
                with locks[0]:
                    if use.locks is locks:
                        return action(*given)
                continue
            found = _holding(locks, 0, partial(_unless_changed, use, locks, partial(action, *given)))
            if found is not None:
                return found[0]

    def _find(self, use: Use) -> list[Lock]:
        with self._registering:
            use.locks = _padded(u for u in self._uses if u is use or u.touched & use.written)
            return use.locks

    def alone(self, action: Callable[[], T]) -> T:
        """`action`, which waits for nobody, while no other thread is in one."""
        with self._registering:
            return action()

    def read(self, touched: frozenset[int], action: Callable[[], T]) -> T:
        """`action` outside of any function, while nobody writes these parameters."""
        return self._run_outside(lambda u: u.written & touched, action)

    def write(self, written: frozenset[int], action: Callable[[], T]) -> T:
        """`action` outside of any function, while nobody touches these parameters."""
        return self._run_outside(lambda u: u.touched & written, action)

    def _run_outside(self, concerns: Callable[[Use], object], action: Callable[[], T]) -> T:
        with self._outside:
            with self._registering:
                locks = _padded(u for u in self._uses if concerns(u))
            return _holding(locks, 0, action)


def _unless_changed(use: Use, locks: list[Lock], action: Callable[[], T]) -> tuple[T] | None:
    """`action`, unless other locks are needed by now: another use has joined in the meantime."""
    return (action(),) if use.locks is locks else None


def _padded(uses: Iterable[Use]) -> list[Lock]:
    """Their locks in order, the last repeated so that they are one or come in fours; it may be taken several times."""
    locks = [u.lock for u in sorted(uses, key=lambda u: u.number)]
    return locks if len(locks) < 2 else locks + locks[-1:] * (-len(locks) % _AT_ONCE)


def _holding(locks: list[Lock], at: int, action: Callable[[], T]) -> T:
    """`action` with the locks from `at` on."""
    if at == len(locks):
        return action()
    if len(locks) == 1:
        with locks[0]:
            return action()
    with locks[at], locks[at + 1], locks[at + 2], locks[at + 3]:
        return _holding(locks, at + _AT_ONCE, action)
