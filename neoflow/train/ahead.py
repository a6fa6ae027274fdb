"""Calls of a function on one batch after the other; the next one is brought to the device meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.runtime.function import Function
from neoflow.train.coming import Coming
from neoflow.train.feed import Fed, on_host


@dataclass(frozen=True)
class Call:
    """A batch, and what a function is called with for it."""

    fed: Fed
    arrays: tuple[Any, ...]


def called(function: Function, calls: Iterator[Call], looks_ahead: bool) -> Iterator[tuple[Fed, list[np.ndarray]]]:
    """Each batch, and what the function gives for it.

    looks_ahead: the next call is asked for while one runs; what the data raise comes after that one all the same.
    """
    coming = Coming(calls, 1, lambda: None)

    def bring() -> None:
        for call in coming.look():
            with suppress(RuntimeFault):  # of what is wrong with it its own call tells
                function.bring(call.arrays)

    while found := coming.take().batches:
        for call in found:
            results = function.run_beside(bring, *call.arrays) if looks_ahead else function(*call.arrays)
            yield call.fed, on_host(results)
