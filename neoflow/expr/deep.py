"""Recursion of any depth: a walk is a generator that yields the walks it waits for and is sent what they return."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Walk = Generator[Any, Any, T]


def run(walk: Walk[T]) -> T:
    """What the walk returns; the walks it waits for lie on a list, not on Python's stack."""
    waiting: list[Walk[Any]] = [walk]
    result: Any = None
    while waiting:
        try:
            inner = waiting[-1].send(result)
        except StopIteration as done:
            waiting.pop()
            result = done.value
        else:
            waiting.append(inner)
            result = None
    return result
