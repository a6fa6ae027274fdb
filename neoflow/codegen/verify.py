"""A kernel against the meaning of its subgraph. The one judge of kernels: what compiles, tunes or loads them asks here.

`verify` runs a kernel on the draws of `draws.py` and compares every element with `evaluate` in float64, within the
bound of `rounding.py`; integers, conditions and whatever is exact must be equal. Around every array lies a fence of
bytes that must not change; inputs must not change; outputs are filled with NaN (or a pattern) before the run. An
integer that leads outside its tensor must make the kernel raise `RuntimeFault`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from neoflow.codegen.draws import Feeds, Inputs, Outside
from neoflow.codegen.formulas import FORMATS
from neoflow.codegen.keys import program_digest
from neoflow.codegen.rounding import error_bounds
from neoflow.errors import CodegenError, RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Apply, Binder, Read, postorder
from neoflow.expr.tensor import Compute, Placeholder, Tensor, topological
from neoflow.partition import Subgraph

Run = Callable[[Sequence[np.ndarray]], None]
"""Executes a kernel on flat arrays aligned to 64 bytes: inputs, then outputs, in the order of the subgraph. Raises
`RuntimeFault` when an index leaves its tensor."""

FENCE = 256
"""bytes before and after every array"""
COMPUTED = ("float32", "float64")
"""types that are computed in as they are; narrower ones are computed in float32"""
EXTREMES, EXACT = ("maximum", "minimum", "relu"), ("add", "sub", "neg", "abs")
"""functions whose zeros are of either sign, and those of which none is too small to be held"""
KEPT = 1 << 30
"""bytes of examples that a judge keeps"""
AT_ONCE = 1 << 14
"""elements that are compared at once"""
PATTERNS = (0xFF, 0xA5)
"""of the fences and of what outputs hold before the run; 0xFF is NaN in every float type"""


@dataclass(frozen=True)
class Certificate:
    """That a kernel was found to compute its subgraph: who looked, how, and what was seen.

    verifier: the version of this judge. subgraph: its digest. compared: elements; doubtful: those that rounding
    decides. worst: the largest error, in units of its bound. faults: runs with an index outside, each refused.
    """

    verifier: str
    subgraph: str
    seed: int
    draws: tuple[str, ...]
    compared: int
    doubtful: int
    worst: float
    faults: int
    date: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))


@cache
def verifier_version() -> str:
    """Changes when the judge does, or the meaning it judges by: of their files as programs."""
    here, meaning = Path(__file__).parent, Path(__file__).parents[1] / "expr"
    files = [here / f"{name}.py" for name in ("verify", "draws", "doubts", "formulas", "rounding", "wholes")]
    return program_digest([*files, *(meaning / "interp").rglob("*.py"), *meaning.glob("functions.py")])[:16]


def verify(subgraph: Subgraph, run: Run, name: str = "the kernel", seed: int = 0) -> Certificate:
    """Compare a kernel with NumPy. Raises `CodegenError` with the draw and the worst element when they disagree."""
    return Judge(subgraph, seed).judge(run, name)


@dataclass(frozen=True)
class _Example:
    """What a kernel is run on and what has to come out: exact values, and how far off they may be; None: not at all."""

    draw: str
    pattern: int
    arrays: list[np.ndarray]
    exact: list[np.ndarray]
    bounds: list[np.ndarray | None]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self.arrays, *self.exact, *self.bounds) if a is not None)


class Judge:
    """The judge of every kernel of one subgraph: what they are run on and what NumPy makes of it are worked out once.

    Examples are drawn when they are first needed, so that a kernel that is wrong at once is cheap, and kept up to
    `memory` bytes; what is beyond that is drawn again, the same.
    """

    def __init__(self, subgraph: Subgraph, seed: int = 0, memory: int = KEPT):
        self.subgraph, self.seed = subgraph, seed
        self._room = memory
        self._examples: dict[int, _Example] = {}
        self._outside: list[Outside] | None = None

    @property
    def nbytes(self) -> int:
        """Of what it keeps."""
        return sum(e.nbytes for e in self._examples.values())

    def judge(self, run: Run, name: str = "the kernel", is_enough: Callable[[], bool] | None = None) -> Certificate:
        """Compare a kernel with NumPy. Raises `CodegenError` with the draw and the worst element when they disagree.

        is_enough: asked after the last draw, the one of the most special values, which then comes first: whether a
        kernel that is right there is not worth the others.
        """
        try:
            draws = self._inputs.draws
        except RuntimeFault as fault:
            raise CodegenError(f"{name} cannot be checked: {fault}:\n{self.subgraph}") from fault
        trial = _Trial(self.subgraph, run, name, self.seed)
        outputs = self._tensors[1]
        order = list(range(len(draws)))
        for number in order if is_enough is None else (order[-1], *order[:-1]):
            example = self._example(number)
            found = trial.outcome(example.draw, example.arrays, outputs, example.pattern)
            for n, (t, a, b, bound) in enumerate(zip(outputs, found, example.exact, example.bounds, strict=True)):
                trial.compare(example.draw, t, a, b, bound, partial(self._wider, example, n))
            trial.draws.append(example.draw)
            if number == order[-1] and is_enough is not None and is_enough():
                return trial.certificate()
        if self._outside is None:
            self._outside = self._led_outside()
        for outside in self._outside:
            arrays = [outside.feeds[t] for t in self._tensors[0]]
            trial.refused(arrays, outputs, partial(self._inputs.is_needed, outside))
        return trial.certificate()

    def _led_outside(self) -> list[Outside]:
        """Inputs with an integer that leads outside."""
        return list(self._inputs.faults(self._random(len(self._inputs.draws))))

    def _wider(self, example: _Example, number: int) -> np.ndarray | None:
        """The bound of an output where infinities meet what may vanish."""
        bound = self._classes[number]
        feeds: Feeds = dict(zip(self._tensors[0], example.arrays, strict=True))
        return None if bound is None else evaluate([bound], feeds, dtype="float64")[0]

    @cached_property
    def _classes(self) -> list[Tensor | None]:
        return error_bounds(self._tensors[1], with_classes=True)

    def prepare(self) -> None:
        """Work out all that does not depend on a kernel, as far as it is kept."""
        try:
            draws = self._inputs.draws
        except RuntimeFault:  # every kernel will be told
            return
        for number in range(len(draws)):
            self._example(number)
        self._outside = self._led_outside()

    def arrays(self) -> list[np.ndarray]:
        """Inputs without infinities and NaN, on which kernels may be timed: those of the first draw."""
        return self._example(0).arrays

    @cached_property
    def _tensors(self) -> tuple[tuple[Placeholder, ...], tuple[Tensor, ...]]:
        return self.subgraph.tensors()

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs(*self._tensors, np.random.default_rng(self.seed))

    @cached_property
    def _bounds(self) -> dict[bool, list[Tensor | None]]:
        return {whole: error_bounds(self._tensors[1], whole) for whole in (False, True)}

    def _random(self, number: int) -> np.random.Generator:
        """The numbers of a draw, the same whenever it is drawn."""
        return np.random.default_rng((self.seed, number))

    def _example(self, number: int) -> _Example:
        found = self._examples.get(number)
        if found is None:
            found = self._drawn(number)
            if found.nbytes <= self._room:
                self._room -= found.nbytes
                self._examples[number] = found
        return found

    def _drawn(self, number: int) -> _Example:
        placeholders, outputs = self._tensors
        draw = self._inputs.draws[number]
        feeds = self._inputs.draw(draw, self._random(number))
        errors = self._bounds[draw.whole]
        values = evaluate([*outputs, *(e for e in errors if e is not None)], feeds, dtype="float64")
        exact, rest = values[: len(outputs)], iter(values[len(outputs) :])
        bounds = [None if e is None else next(rest) for e in errors]
        return _Example(draw.name, PATTERNS[number % 2], [feeds[t] for t in placeholders], exact, bounds)


class _Trial:
    """The runs of one kernel and what they showed."""

    def __init__(self, subgraph: Subgraph, run: Run, name: str, seed: int):
        self.subgraph, self.run, self.name, self.seed = subgraph, run, name, seed
        self.draws: list[str] = []
        self.compared = self.doubtful = self.faults = 0
        self.worst = 0.0

    def wrong(self, draw: str, what: str) -> CodegenError:
        return CodegenError(f"{self.name} {what}, on draw {draw!r} of seed {self.seed}:\n{self.subgraph}")

    def certificate(self) -> Certificate:
        return Certificate(
            verifier_version(),
            self.subgraph.digest,
            self.seed,
            tuple(self.draws),
            self.compared,
            self.doubtful,
            self.worst,
            self.faults,
        )

    def outcome(
        self, draw: str, arrays: Sequence[np.ndarray], outputs: Sequence[Tensor], pattern: int
    ) -> list[np.ndarray]:
        """What a run writes; `CodegenError` when it raises, or writes where it must not."""
        places = self._places(arrays, outputs, pattern)
        try:
            self.run([p.array for p in places])
        except RuntimeFault as fault:
            raise self.wrong(draw, f"refuses indices that are inside ({fault})") from fault
        self._check_fences(draw, places, arrays)
        return [p.array.reshape(t.shape) for p, t in zip(places[len(arrays) :], outputs, strict=True)]

    def refused(self, arrays: Sequence[np.ndarray], outputs: Sequence[Tensor], is_needed: Callable[[], bool]) -> None:
        """A run with an index outside: the kernel has to say so, if it needs it, and to write nowhere else."""
        places = self._places(arrays, outputs, PATTERNS[0])
        try:
            self.run([p.array for p in places])
        except RuntimeFault:
            self.faults += 1
        else:
            if is_needed():
                raise self.wrong("outside", "does not refuse an index that leaves its tensor")
        self._check_fences("outside", places, arrays)

    def _places(self, arrays: Sequence[np.ndarray], outputs: Sequence[Tensor], pattern: int) -> list[_Fenced]:
        places = [_Fenced(a.size, a.dtype, pattern) for a in arrays]
        for place, a in zip(places, arrays, strict=True):
            place.array[...] = a.reshape(-1)
        for t in outputs:
            place = _Fenced(t.size, dt.NUMPY[t.dtype], pattern)
            place.array.view(np.uint8)[...] = PATTERNS[0] if dt.is_float(t.dtype) else pattern
            places.append(place)
        return places

    def _check_fences(self, draw: str, places: Sequence[_Fenced], arrays: Sequence[np.ndarray]) -> None:
        for n, place in enumerate(places):
            what = f"input {n}" if n < len(arrays) else f"output {n - len(arrays)}"
            at = place.broken()
            if at is not None:
                raise self.wrong(draw, f"writes {at} the array of {what}")
        for n, (place, a) in enumerate(zip(places, arrays, strict=False)):
            bits = np.dtype(f"u{a.itemsize}")
            changed = place.array.view(bits) != np.ascontiguousarray(a).reshape(-1).view(bits)
            if changed.any():
                raise self.wrong(draw, f"changes input {n} at element {int(np.argmax(changed))}")

    def compare(
        self,
        draw: str,
        t: Tensor,
        found: np.ndarray,
        exact: np.ndarray,
        bound: np.ndarray | None,
        wider: Callable[[], np.ndarray | None],
    ) -> None:
        """Every element within its bound; the worst one is named otherwise. wider: the bound where classes are in
        doubt too, which takes longer."""
        seen = _compared(t, found, exact, bound)
        if bound is not None and seen.count:
            seen = _compared(t, found, exact, wider())
        self.compared += exact.size
        self.doubtful += seen.doubtful
        self.worst = max(self.worst, seen.worst)
        if seen.count:
            at = np.unravel_index(seen.place, exact.shape)
            element = f"{t.name}{list(map(int, at))}"
            shown = found.view(np.uint8)[at] if t.dtype == "bool" else found[at]
            near = f" ± {seen.within:.3g}" if seen.within else ""
            others = f" ({seen.count} of {exact.size} elements differ)" if seen.count > 1 else ""
            raise self.wrong(draw, f"computes {element} = {shown}, NumPy {exact[at]}{near}{others}")


@dataclass
class _Seen:
    """What a comparison showed: doubtful elements, the worst error in units of its bound with its place and bound,
    and how many elements are beyond theirs."""

    doubtful: int = 0
    worst: float = 0.0
    place: int = 0
    within: float = 0.0
    count: int = 0


def _compared(t: Tensor, found: np.ndarray, exact: np.ndarray, bound: np.ndarray | None) -> _Seen:
    """A few elements at a time, which stay in a core's cache."""
    seen, signed = _Seen(), _signed_zeros(t)
    flat = found.reshape(-1), exact.reshape(-1), None if bound is None else bound.reshape(-1)
    for start in range(0, exact.size, AT_ONCE):
        a, b, limit = (None if x is None else x[start : start + AT_ONCE] for x in flat)
        assert a is not None and b is not None
        excess, certain, within = _beyond(t, a, b, limit, signed)
        seen.doubtful += excess.size - int(np.count_nonzero(certain))
        worst = int(np.argmax(excess))
        if excess[worst] > seen.worst:
            seen.worst, seen.place, seen.within = float(excess[worst]), start + worst, float(within[worst])
        if seen.worst > 1:
            seen.count += int(np.count_nonzero(excess > 1))
    return seen


def _beyond(
    t: Tensor, found: np.ndarray, exact: np.ndarray, bound: np.ndarray | None, signed: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors in units of their bound, where there is no doubt, and that bound."""
    certain = np.ones(exact.shape, np.bool_) if bound is None else bound < np.inf  # NaN is a doubt too
    within = np.zeros(exact.shape) if bound is None else np.where(certain, bound, 0.0)
    if dt.is_float(t.dtype):
        excess = _excess(found, exact, within, signed)
    else:
        kind = np.uint8 if t.dtype == "bool" else found.dtype
        excess = np.where(found.view(kind) == exact.astype(kind), 0.0, np.inf)
    return np.where(certain, excess, 0.0), certain, within


def _excess(found: np.ndarray, exact: np.ndarray, bound: np.ndarray, signed: float | None) -> np.ndarray:
    """Errors in units of their bound; more than 1 is wrong. NaN and infinities must be where the reference has them.

    signed: the bound up to which a zero has to have the right sign.
    """
    with np.errstate(all="ignore"):
        value = found.astype(np.float64)
        difference = np.abs(value - exact)
        if (difference <= bound).all() and (signed is None or value.all()):
            return difference / np.where(bound > 0, bound, 1.0)
        same = (value == exact) | (np.isnan(value) & np.isnan(exact))
        ratio = np.where(bound > 0, difference / np.where(bound > 0, bound, 1.0), np.inf)
    ratio = np.where(np.isfinite(exact) & np.isfinite(value), ratio, np.inf)
    if signed is not None:
        certain = (exact == 0) & (value == 0) & (bound <= signed)
        same &= ~(certain & (np.signbit(value) != np.signbit(exact)))
        ratio = np.where(certain, np.inf, ratio)
    return np.where(same, 0.0, ratio)


def _signed_zeros(t: Tensor) -> float | None:
    """The bound up to which the sign of a zero is said; None: never, of an extreme, and where an addition may have been
    taken out."""
    nodes = [e for s in topological([t]) if isinstance(s, Compute) for e in s.definition.nodes]
    sums = [e for e in nodes if isinstance(e, Apply) and e.fn in ("add", "sub") and dt.is_float(e.dtype)]
    is_free = any(isinstance(e, Binder) or (isinstance(e, Apply) and e.fn in EXTREMES) for e in nodes)
    if (
        not dt.is_float(t.dtype)
        or is_free
        or not all(any(isinstance(n, Read) for n in postorder(a)) for e in sums for a in e.children)
    ):
        return None
    # what is computed wider is off by less than the type can hold, and rounded to a zero of either sign; so is a sum of
    # what was too small for the type, each a zero of its own sign
    vanishes = any(isinstance(e, Apply) and dt.is_float(e.dtype) and e.fn not in EXACT for e in nodes)
    return 1000 * FORMATS[t.dtype].tiny if t.dtype in COMPUTED and not (sums and vanishes) else 0.0


class _Fenced:
    """A flat array aligned to 64 bytes between two fences."""

    def __init__(self, size: int, dtype: np.dtype, pattern: int):
        self.pattern, self.nbytes = pattern, size * dtype.itemsize
        self.memory = np.empty(self.nbytes + 2 * FENCE + 64, np.uint8)
        self.start = FENCE + -(self.memory.ctypes.data + FENCE) % 64
        self.memory[: self.start] = self.memory[self.start + self.nbytes :] = pattern
        self.array = self.memory[self.start : self.start + self.nbytes].view(dtype)

    def broken(self) -> str | None:
        """Which fence was written to."""
        before, after = self.memory[: self.start], self.memory[self.start + self.nbytes :]
        if (before != self.pattern).any():
            return "before"
        return "after" if (after != self.pattern).any() else None
