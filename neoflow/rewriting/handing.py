"""Recurrences that another library computes, where that was measured to take less here.

found       a loop whose body is a cell that the library has, with nothing inside read of all steps
right       its results and gradients within the bounds of kernels, at the sizes of the program and a few steps
faster      all of the recurrence, with the gradients that are asked for, in turns with our own kernels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from neoflow.autodiff.backward import pulled
from neoflow.codegen.rounding import error_bounds
from neoflow.errors import NeoflowError
from neoflow.expr.foreign import Called, Given, calls_of, inlined
from neoflow.expr.interp import evaluate
from neoflow.expr.recurrence import Looped, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.scan import unrolled
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.graph import Graph
from neoflow.mapping.foreign import Kind, called, found_in, handed, meaning
from neoflow.mapping.gradients import apart
from neoflow.mapping.unify import Looked
from neoflow.verdict import Verdict

MARGIN = 0.9
"""Of what our own takes, the most that another library's may take to be called."""
STEPS = 3
"""Of a recurrence, so many are compared with NumPy."""

Values = Callable[[Sequence[Tensor], Mapping[Placeholder, np.ndarray]], list[np.ndarray]]
"""What a program with foreign calls gives for its inputs, compiled."""
Beside = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Placeholder]], tuple[float, float]]
"""Seconds of a call of two programs of the same inputs, in turns."""
Refusal = Callable[[], str | None]
"""Why another library can compute nothing where the program is to run; None where it can."""


@dataclass(frozen=True)
class Handing:
    """The graph after it, and what became of each recurrence."""

    graph: Graph
    verdicts: tuple[Verdict, ...]

    @property
    def summary(self) -> str:
        return f"{sum(v.ok for v in self.verdicts)} of {len(self.verdicts)} recurrences are computed by another library"

    def __str__(self) -> str:
        return "\n".join(v.reason for v in self.verdicts) or "there is no recurrence whose body another library has"


def may_hand(graph: Graph) -> str | None:
    """Why nothing of a graph is looked at; None where something is."""
    if not runs_of(graph.order):
        return "there is no loop"
    return None if is_here("torch") else "PyTorch is not installed"


def is_here(name: str) -> bool:
    """Whether a library can be imported, without doing so."""
    try:
        return find_spec(name) is not None
    except ValueError:  # what stands for a module has no specification
        return False


def handing(graph: Graph, values: Values, beside: Beside, refusal: Refusal) -> Handing:
    """The graph with the recurrences that another library computes faster as calls of it."""
    if (why := may_hand(graph) or refusal()) is not None:
        return Handing(graph, (Verdict(False, why),))
    parts, looked = apart(graph), Looked()
    verdicts: list[Verdict] = []
    edits: dict[Called, Mapping[Tensor, Tensor]] = {}
    kinds: dict[Called, Kind] = {}
    for run in runs_of(parts.graph.order):
        found = found_in(run, looked)
        if found is None:
            continue
        wanted = [t for t in parts.graph.order if isinstance(t, Looped) and t.run is run]
        edit = handed(run, wanted, *found)
        if isinstance(edit, Verdict):
            verdicts.append(edit)
            continue
        own = [c for c in calls_of(topological(list(edit.values()))) if c.foreign.implementation.startswith("torch.")]
        edits[own[-1]], kinds[own[-1]] = edit, found[0]
    if not edits:
        return Handing(graph, tuple(verdicts))

    def joined(chosen: Sequence[Called]) -> Graph:
        bound = {t: new for c in chosen for t, new in edits[c].items()}
        return parts.joined(replaced(parts.graph.roots, bound.get))

    new, chosen = joined(list(edits)), list[Called]()
    known: dict[object, Verdict] = {}
    for mine in edits:
        trial = _Trial(new, next(c for c in calls_of(new.order) if c.foreign is mine.foreign), kinds[mine])
        if trial.key not in known:
            known[trial.key] = trial.judged(values, beside)
        verdicts.append(known[trial.key])
        if verdicts[-1].ok:
            chosen.append(mine)
    return Handing(new if len(chosen) == len(edits) else joined(chosen) if chosen else graph, tuple(verdicts))


class _Trial:
    """A foreign call with its gradients as a program of its own."""

    def __init__(self, graph: Graph, own: Called, kind: Kind):
        self.kind, self.own, foreign = kind, own, own.foreign
        self.names = dict(foreign.attributes)["holes"].split()
        written = {p for p, _ in graph.updates}
        self.lasting = [_lasts(t, written) for t in own.inputs]
        self.used = [t.number for t in graph.order if isinstance(t, Given) and t.called is own]
        backs = [c.foreign for c in calls_of(graph.order) if c.foreign.forward is foreign]
        self.backs = [
            ([int(n) for n in told["given"].split()], [int(n) for n in told["wanted"].split()])
            for told in (dict(b.attributes) for b in backs)
        ]
        shapes = tuple((t.shape, t.dtype) for t in own.inputs)
        self.key = (
            foreign.implementation,
            foreign.attributes,
            shapes,
            tuple(self.lasting),
            str((self.used, self.backs)),
        )

    def program(self, steps: int, is_written_out: bool = False, lasts: bool = False) -> _Program:
        """It in so many steps. lasts: whether weights that stay are parameters, as they are in the program."""
        inputs: list[Placeholder] = []
        for n, (name, t) in enumerate(zip(self.names, self.own.inputs, strict=True)):
            shape = (steps, *t.shape[1:]) if name == "x" else t.shape
            if lasts and self.lasting[n]:
                inputs.append(Parameter(shape, t.dtype, name, None, init=_small))
            else:
                inputs.append(Placeholder(shape, t.dtype, name, None))
        given = dict(zip(self.names, inputs, strict=True))
        made = meaning(self.kind, given, unrolled) if is_written_out else called(self.kind, given)
        outputs = [made[n] for n in self.used]
        cotangents: list[Placeholder] = []
        for rows, wanted in self.backs:
            own = [Placeholder(made[n].shape, made[n].dtype, f"d{n}", None) for n in rows]
            found = pulled([(made[n], g) for n, g in zip(rows, own, strict=True)], [inputs[n] for n in wanted])
            outputs += [found[inputs[n]] for n in wanted]
            cotangents += own
        return _Program([*inputs, *cotangents], outputs)

    def judged(self, values: Values, beside: Beside) -> Verdict:
        """Whether it is called, and why."""
        name, steps = self.own.foreign.implementation, self.own.results[0].shape[0]
        what = f"{name} of {steps} steps" + (" and its gradient" if self.backs else "")
        try:
            if (wrong := self.compared(min(steps, STEPS), values)) is not None:
                return Verdict(False, f"{what}: {wrong}")
            theirs = self.program(steps, lasts=True)
            fed = [p for p in theirs.inputs if not isinstance(p, Parameter)]
            ours = inlined(theirs.outputs)
            own, other = beside(ours, theirs.outputs, fed)
        except NeoflowError as error:
            return Verdict(False, f"{what}: it could not be tried: {error.message}")
        told = f"{what}: {1e3 * other:.4g} ms, ours {1e3 * own:.4g} ms"
        if other <= MARGIN * own:
            return Verdict(True, f"{told}: called")
        return Verdict(False, f"{told}: not called, which takes less than {MARGIN:.0%} of ours")

    def compared(self, steps: int, values: Values) -> str | None:
        """What is wrong with what it gives in a few steps, by the bounds that kernels are judged by; None: nothing."""
        theirs, exact = self.program(steps), self.program(steps, is_written_out=True)
        rng = np.random.default_rng(0)
        arrays = [_drawn(p, rng) for p in theirs.inputs]
        found = values(theirs.outputs, dict(zip(theirs.inputs, arrays, strict=True)))
        feeds: dict[Tensor, np.ndarray] = dict(zip(exact.inputs, arrays, strict=True))
        bounds = error_bounds(exact.outputs)
        judged = [b for b in bounds if b is not None]
        wanted = evaluate([*exact.outputs, *judged], feeds, "float64")
        room = iter(wanted[len(bounds) :])
        for n, (value, right, bound) in enumerate(zip(found, wanted, bounds, strict=False)):
            far = np.abs(value - right) - (0.0 if bound is None else next(room))
            if not np.all(far <= 0):
                worst = float(np.nanmax(np.abs(value - right)))
                return f"result {n} is wrong by up to {worst:.3g}, more than kernels may be"
        return None


@dataclass(frozen=True)
class _Program:
    inputs: list[Placeholder]
    outputs: list[Tensor]


def _lasts(t: Tensor, written: set[Parameter]) -> bool:
    """Whether a tensor follows from parameters alone that no call changes."""
    leaves = [i for i in topological([t]) if isinstance(i, Placeholder)]
    return bool(leaves) and all(isinstance(p, Parameter) and p not in written for p in leaves)


def _small(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return 0.1 * rng.standard_normal(shape)


def _drawn(p: Placeholder, rng: np.random.Generator) -> np.ndarray:
    """Values of which sums are about 1."""
    scale = 1.0 / np.sqrt(p.shape[-1]) if p.name in "wu" else 1.0
    return (scale * rng.standard_normal(p.shape)).astype(p.dtype)
