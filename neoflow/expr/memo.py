"""What is found out about an expression, a definition or a subgraph is remembered on it, and dies with it.

So the interning of nodes stays weak: a process that goes through thousands of programs needs no more memory than for
the ones it holds. What leads from a result back to its subject is a circle, which Python's collector finds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_ITSELF = object()
"""Stands for a result that is its own subject, so that this most frequent circle is none."""


def memo_of(subject: Any) -> dict[Any, Any]:
    """What is remembered about a node or a frozen dataclass, by the function that found it."""
    try:
        return subject.memo
    except AttributeError:
        memo: dict[Any, Any] = {}
        object.__setattr__(subject, "memo", memo)
        return memo


def remembered(function: F) -> F:
    """`function(subject, *more)`, computed once for each subject and what else it is given."""

    @wraps(function)
    def recall(subject: Any, *more: Any) -> Any:
        memo, key = memo_of(subject), (recall, *more) if more else recall
        if key in memo:
            result = memo[key]
        else:
            result = function(subject, *more)
            memo[key] = _ITSELF if result is subject else result
        return subject if result is _ITSELF else result

    return cast(F, recall)


def from_below(needs: Callable[[Any], Iterable[Any]], is_final: bool = False, kept: int = 0) -> Callable[[F], F]:
    """`remembered` for a function of a node that calls itself on the nodes `needs(node)`: these are computed before.

    So no expression is too deep for it. is_final: the result of a result is that result. kept: so many subjects, those
    asked about last, are kept alive.
    """

    def decorate(function: F) -> F:
        recent: deque[Any] = deque(maxlen=kept)

        @wraps(function)
        def recall(subject: Any) -> Any:
            memo = memo_of(subject)
            if recall not in memo:
                compute(subject)
                recent.append(subject)
            result = memo[recall]
            return subject if result is _ITSELF else result

        def compute(subject: Any) -> None:
            stack = [subject]
            while stack:
                node = stack[-1]
                memo = memo_of(node)
                waiting = () if recall in memo else [n for n in needs(node) if recall not in memo_of(n)]
                if waiting:
                    stack += waiting
                    continue
                stack.pop()
                if recall not in memo:
                    found = function(node)
                    memo[recall] = _ITSELF if found is node else found
                    if is_final and found is not node:
                        memo_of(found)[recall] = _ITSELF

        return cast(F, recall)

    return decorate
