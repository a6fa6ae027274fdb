"""What a kernel is tried on: arrays for the inputs of a subgraph, drawn by a row of `DRAWS` from a seed.

Integers that decide where something is read are drawn inside the range that `evaluate` accepts, its ends included;
all others over their whole type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.interp.analysis import analysed
from neoflow.expr.ir import Const, Scatter
from neoflow.expr.tensor import Compute, Placeholder, Tensor, topological

Feeds = dict[Tensor, np.ndarray]


@dataclass(frozen=True)
class Draw:
    """How the floats of a draw are made.

    scale: of plain values, standard normal; `positive`: their magnitudes, over orders of magnitude; `whole`: integers
    from -scale to scale. special: what is put among them, in few places when it `spreads` to all it is added to.
    """

    name: str
    scale: float = 1.0
    positive: bool = False
    whole: bool = False
    special: tuple[str, ...] = ()
    spreads: bool = False


DRAWS = (
    Draw("normal"),
    Draw("positive", positive=True),
    Draw("whole", scale=3.0, whole=True),
    Draw("small", special=("0", "-0", "least", "-least", "denormal", "tiny", "-tiny", "eps", "1", "1", "-1", "-1")),
    Draw("nan", special=("nan",), spreads=True),
    Draw("infinite", special=("inf", "-inf", "huge", "-huge", "largest", "-largest"), spreads=True),
)
LARGE_DRAWS = (
    Draw("normal"),
    Draw("whole", scale=3.0, whole=True),
    Draw("special", special=("nan", "inf", "0", "-0", "-inf", "huge", "denormal", "-huge"), spreads=True),
)
"""for kernels that NumPy needs long for: infinities and NaN cost it most"""
LARGE = 1 << 22
"""evaluations of a body, or reads in it, from which a kernel is large"""
AT_ONCE = 1 << 14
"""values that are drawn at once: fresh memory takes longer than the numbers"""
WITHOUT_FLOATS = 3
"""draws of a kernel whose inputs are integers and conditions alone"""


def _special(text: str, dtype: str) -> float:
    info = ml_dtypes.finfo(dt.NUMPY[dtype])
    named = {"least": info.smallest_subnormal, "tiny": info.tiny, "eps": info.eps, "largest": info.max}
    named["denormal"] = np.float64(info.tiny) / 4
    named["huge"] = np.sqrt(np.float64(info.max)) * 16
    name = text.lstrip("-")
    value = float(named[name]) if name in named else float(name)
    return -value if text.startswith("-") else value


def draw_floats(draw: Draw, shape: tuple[int, ...], dtype: str, length: int, rng: np.random.Generator) -> np.ndarray:
    """Values of a float input of which `length` go into one element of the result."""
    flat = np.empty(math.prod(shape), dt.NUMPY[dtype])
    for start in range(0, flat.size, AT_ONCE):
        part = flat[start : start + AT_ONCE]
        part[...] = _plain(draw, part.size, rng)
    if draw.special:
        special = np.array([_special(s, dtype) for s in draw.special])
        if draw.spreads:
            count = max(1, int(flat.size * min(0.3, 0.5 / length)))
        else:
            count = max(min(flat.size, special.size), int(0.3 * flat.size))
        places = rng.choice(flat.size, count, replace=False) if flat.size < 4096 else rng.integers(0, flat.size, count)
        turned = (np.arange(count) - rng.integers(special.size)) % count
        flat[places] = special.astype(flat.dtype)[turned % special.size]
    return flat.reshape(shape)


def _plain(draw: Draw, count: int, rng: np.random.Generator) -> np.ndarray:
    """The next values of a draw, before anything special is put among them."""
    if draw.whole:
        return rng.integers(-int(draw.scale), int(draw.scale) + 1, count)
    values = rng.standard_normal(count)
    if draw.scale != 1.0:
        values *= draw.scale
    return np.exp(values) if draw.positive else values


@dataclass(frozen=True)
class Range:
    """The values an input may have so that no index leaves its tensor, ends included."""

    low: int
    high: int

    def draw(self, t: Tensor, rng: np.random.Generator) -> np.ndarray:
        """Both ends, and values between them."""
        shape, dtype = t.shape, t.dtype
        values = rng.integers(self.low, self.high, shape, np.int64, endpoint=True)
        ends = np.where(rng.random(shape) < 0.5, self.low, self.high)
        mixed = np.where(rng.random(shape) < 0.25, ends, values)
        return _with_ends(mixed, self.low, self.high, rng).astype(dt.NUMPY[dtype])


def draw_integers(shape: tuple[int, ...], dtype: str, reach: int, rng: np.random.Generator) -> np.ndarray:
    """The whole type with its ends, and among them numbers up to `reach`, which an extent or a constant may be."""
    info = np.iinfo(dtype)
    high = min(int(info.max), 1 << 40)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max, -1, 0, 1], np.int64)
    wide = rng.integers(max(int(info.min), -high), high, shape, np.int64, endpoint=True)
    near = rng.integers(-2, min(reach, int(info.max)), shape, np.int64, endpoint=True)
    kind = rng.integers(0, 4, shape)
    values = np.select([kind == 0, kind == 1], [rng.choice(ends, shape), wide], near)
    return _with_ends(values, int(info.min), int(info.max), rng).astype(dt.NUMPY[dtype])


def _with_ends(values: np.ndarray, low: int, high: int, rng: np.random.Generator) -> np.ndarray:
    """`values` with both ends among them, where there is room."""
    flat = np.array(values).reshape(-1)
    if flat.size > 1:
        flat[rng.choice(flat.size, 2, replace=False)] = low, high
    elif rng.random() < 0.75:
        flat[:] = (low, high)[rng.integers(2)]
    return flat.reshape(values.shape)


@dataclass(frozen=True)
class Outside:
    """Arrays that are refused for one integer, at `place` of `tensor`, which may have a value of `range`."""

    feeds: Feeds
    tensor: Placeholder
    place: int
    range: Range


class Inputs:
    """The inputs of a program of `outputs`: what may be fed, and draws of it."""

    def __init__(self, inputs: Sequence[Placeholder], outputs: Sequence[Tensor], rng: np.random.Generator):
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        computes = [t for t in topological(self.outputs) if isinstance(t, Compute)]
        self.numbers = sorted(_numbers(computes), key=lambda n: (abs(n), n))
        """constants, extents and what lies beside them: where ranges may begin"""
        self.reach = max((n for n in self.numbers if n < 1 << 31), default=1)
        self.length = max((_length(t) for t in computes), default=1)
        """how many values may go into one element"""
        is_large = sum(t.size * max(_length(t), len(t.definition.reads)) for t in computes) > LARGE
        self.draws: tuple[Draw, ...] = LARGE_DRAWS if is_large else DRAWS
        if not any(dt.is_float(t.dtype) for t in self.inputs):
            self.draws = DRAWS[:WITHOUT_FLOATS]
        self.follows_data = any(
            analysed(t.definition).faulty or isinstance(t.definition.body, Scatter) for t in computes
        )
        """whether an index is data"""
        self.ranges = self._ranges(rng) if self.follows_data else {}
        """of the inputs that are not free"""

    def accepts(self, feeds: Feeds) -> bool:
        """Whether no index leaves its tensor."""
        try:
            evaluate(list(self.outputs), feeds, dtype="float64")
        except RuntimeFault:
            return False
        return True

    def draw(self, draw: Draw, rng: np.random.Generator) -> Feeds:
        """Arrays that `evaluate` accepts."""
        for _ in range(3):
            feeds: Feeds = {t: self._array(t, draw, self.ranges.get(t), rng) for t in self.inputs}
            if not self.follows_data or self.accepts(feeds):
                return feeds
        start = self._start(rng)
        return {t: self._array(t, draw, start.get(t), rng) for t in self.inputs}

    def faults(self, rng: np.random.Generator) -> Iterator[Outside]:
        """Arrays with one integer that leads outside, for each end of each range and far away."""
        for t, found in self.ranges.items():
            if dt.is_float(t.dtype):
                continue
            info = np.iinfo(t.dtype)
            for value in (found.low - 1, found.high + 1, int(info.max), int(info.min)):
                if not info.min <= value <= info.max:
                    continue
                for _ in range(3):  # the place may be one that nothing reads
                    feeds = self.draw(DRAWS[0], rng)
                    place = int(rng.integers(t.size))
                    feeds[t].reshape(-1)[place] = value
                    if not self.accepts(feeds):
                        yield Outside(feeds, t, place, found)
                        break

    def is_needed(self, outside: Outside) -> bool:
        """Whether the integer decides what comes out: an output itself looks it up, each of whose elements is written,
        or its value makes a difference. A kernel computes no element of a tensor between, if nobody reads it, and
        `evaluate` does. Of one that has no other value to try, whether an output reads it."""
        if self._refuses(outside.feeds) in self.outputs:
            return True
        if outside.range.low == outside.range.high:
            return any(outside.tensor in t.inputs for t in self.outputs if isinstance(t, Compute))
        found = []
        for value in (outside.range.low, outside.range.high):
            feeds = {t: a.copy() for t, a in outside.feeds.items()}
            feeds[outside.tensor].reshape(-1)[outside.place] = value
            try:
                found.append(evaluate(list(self.outputs), feeds))
            except RuntimeFault:
                return True
        low, high = (b"".join(a.tobytes() for a in arrays) for arrays in found)
        return low != high

    def _refuses(self, feeds: Feeds) -> Tensor | None:
        """The first tensor that has an index outside."""
        for t in topological(self.outputs):
            try:
                evaluate([t], feeds, dtype="float64")
            except RuntimeFault:
                return t
        return None

    def _array(self, t: Placeholder, draw: Draw, found: Range | None, rng: np.random.Generator) -> np.ndarray:
        if found is not None:
            return found.draw(t, rng)
        if dt.is_float(t.dtype):
            return draw_floats(draw, t.shape, t.dtype, self.length, rng)
        if t.dtype == "bool":
            return rng.random(t.shape) < 0.5
        return draw_integers(t.shape, t.dtype, self.reach, rng)

    # ------------------------------------------------------------------------------------------------- ranges

    def _ranges(self, rng: np.random.Generator) -> dict[Placeholder, Range]:
        """For each input that may not have every value, a range as wide as the others' allow; by trial.

        From one value at which all is well, each input in turn is let free or widened as far as `evaluate` accepts.
        """
        if all(self._tries({}, rng)):
            return {}
        ranges = self._start(rng)
        order = sorted(ranges, key=lambda t: (dt.is_int(t.dtype), rng.random()))
        for t in order:
            rest = {s: r for s, r in ranges.items() if s is not t}
            if all(self._tries(rest, rng)):
                ranges = rest
                continue
            start = ranges[t].low
            high = self._reach(ranges, t, start, 1, rng)
            low = self._reach({**ranges, t: Range(start, high)}, t, start, -1, rng)
            ranges[t] = Range(low, high)
        return ranges

    def _tries(self, ranges: dict[Placeholder, Range], rng: np.random.Generator) -> Iterator[bool]:
        """Whether arrays of these ranges are accepted: the lowest everywhere, the highest, and two mixtures."""
        for end in (0, 1, None, None):
            feeds: Feeds = {}
            for t in self.inputs:
                is_filled = end is not None and (t in ranges or dt.is_int(t.dtype))
                ends = _ends(t, ranges.get(t))
                filled = np.full(t.shape, ends[end or 0], dt.NUMPY[t.dtype]) if is_filled else None
                feeds[t] = self._array(t, DRAWS[0], ranges.get(t), rng) if filled is None else filled
            yield self.accepts(feeds)

    def _start(self, rng: np.random.Generator) -> dict[Placeholder, Range]:
        """One value for each input, such that no index leaves its tensor."""
        bound = [t for t in self.inputs if t.dtype != "bool"]
        candidates = [dict.fromkeys(bound, n) for n in self.numbers]
        candidates += [{t: int(n) for t, n in zip(bound, row, strict=True)} for row in self._mixed(len(bound), rng)]
        for values in candidates:
            ranges = {t: Range(_nearest(t, n), _nearest(t, n)) for t, n in values.items()}
            if all(self._tries(ranges, rng)):
                return ranges
        raise RuntimeFault("no integers were found for which every index stays in its tensor")

    def _mixed(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.choice(self.numbers, (1000, count))

    def _reach(
        self, ranges: dict[Placeholder, Range], t: Placeholder, start: int, sign: int, rng: np.random.Generator
    ) -> int:
        """The end of the range of `t` on one side: doubling, then bisection."""

        def holds(distance: int) -> bool:
            end = start + sign * distance
            if _nearest(t, end) != end:
                return False
            low, high = sorted((end, ranges[t].high if sign < 0 else start))
            return all(self._tries({**ranges, t: Range(low, high)}, rng))

        good, bad = 0, 1
        while holds(bad):
            good, bad = bad, 2 * bad
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if holds(middle) else (good, middle)
        return start + sign * good


def _ends(t: Placeholder, found: Range | None) -> tuple[int, int]:
    """The lowest and the highest integer an input may hold."""
    if found is not None:
        return found.low, found.high
    if not dt.is_int(t.dtype):
        return -(1 << 20), 1 << 20
    return int(np.iinfo(t.dtype).min), int(np.iinfo(t.dtype).max)


def _nearest(t: Placeholder, n: int) -> int:
    """`n`, or the nearest integer that the type of `t` has."""
    low, high = _ends(t, None)
    return min(max(n, low), high)


def _numbers(computes: Sequence[Compute]) -> set[int]:
    """Integers a range may begin at: small ones, the constants and extents of the program, those beside them."""
    found = set(range(-2, 3))
    for t in computes:
        for e in t.definition.nodes:
            if isinstance(e, Const) and dt.is_int(e.dtype):
                found.update((int(e.value), -int(e.value)))
        for s in (t, *t.inputs):
            found.update(s.shape)
    return {n + d for n in found for d in (-1, 0, 1)}


def _length(t: Compute) -> int:
    """Values that go into one element of a tensor, at least."""
    return math.prod(a.extent for a in t.definition.reduction_axes)
