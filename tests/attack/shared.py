"""Functions, `get_value`, `set_value` and checkpoints of the same parameters on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

import neoflow as nf
from neoflow.runtime.parameters import pack_parameters, set_value

SIZE = 200_000


class Pair:
    """Two parameters that are always equal, a step that adds 1 to both, and functions that read them."""

    def __init__(self) -> None:
        self.p, self.q = (nf.parameter((SIZE,), name=n, init=np.zeros(SIZE, np.float32)) for n in "pq")
        self.step = nf.compile([], updates={self.p: self.p + 1.0, self.q: self.q + 1.0})
        self.both = nf.compile([self.p * 1.0, self.q * 1.0])
        self.ends = nf.compile([nf.min(self.p), nf.max(self.p), nf.min(self.q), nf.max(self.q)])


def is_whole(values: list[np.ndarray]) -> bool:
    return all((v == values[0].flat[0]).all() for v in values)


def packed(pair: Pair) -> list[np.ndarray]:
    from safetensors.numpy import load

    return list(load(pack_parameters([pair.p, pair.q])).values())


READERS: dict[str, Callable[[Pair], list[np.ndarray]]] = {
    "function": lambda pair: pair.both(),
    "reduction": lambda pair: pair.ends(),
    "get_value": lambda pair: [nf.get_value(pair.p)],
    "save_parameters": packed,
    "new function": lambda pair: nf.compile([pair.p * 1.0, pair.q * 1.0])(),
}


def read_beside_a_writer(way: str, trials: int) -> int:
    """How many of so many reads saw something that was never the value of both parameters."""
    pair, halt, halves = Pair(), threading.Event(), 0

    def write() -> None:
        while not halt.is_set():
            pair.step()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(trials):
            halves += not is_whole(READERS[way](pair))
    finally:
        halt.set()
        writer.join()
    return halves


def write_beside_a_writer(trials: int) -> int:
    """How many steps are lost or doubled by two functions that add to the same parameters, and one that sets them."""
    pair = Pair()
    other = nf.compile([], updates={pair.q: pair.q + 1.0, pair.p: pair.p + 1.0})

    def work(f: Callable[[], object]) -> None:
        for _ in range(trials):
            f()

    threads = [threading.Thread(target=work, args=(f,)) for f in (pair.step, other)]
    for t in threads:
        t.start()
    torn = 0
    for _ in range(trials):
        value = nf.get_value(pair.p)
        torn += not is_whole([value])
    for t in threads:
        t.join()
    values = [nf.get_value(pair.p), nf.get_value(pair.q)]
    set_value(pair.p, values[0])
    return torn + (not is_whole(values)) + abs(int(values[0][0]) - 2 * trials)
