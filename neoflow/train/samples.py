"""Which dimension of a tensor counts samples, and the same program in which each sample has a weight.

So a batch of n samples is run by a program for more of them: it is filled up, and the weights of what was filled in are
0. In

    loss[] = sum[b](error[b]) / 16        ->        loss[] = sum[b](error[b] * weights[b]) / 16

with the weights 16/n of n samples and 0 of the others the loss, and so its gradient, is the mean over the n. What is
true of the loss is true of every sum over samples: of the statistics of batch normalisation too. A sum that is no mean
comes out as if there were 16 such samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neoflow.errors import ConfigError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Binder, Cast, Const, Expr, Read, Reduce, Scatter, Slot, postorder, rewrite
from neoflow.expr.recurrence import Looped
from neoflow.expr.tensor import Compute, Placeholder, Tensor, topological


class MixedSamples(ConfigError):
    """Samples of a batch do not stay apart until they are summed, so that some of them cannot be left out."""


@dataclass(frozen=True)
class Counted:
    """Element i of dimension `dim` belongs to sample i // run."""

    dim: int
    run: int = 1


def sample_dimensions(roots: Sequence[Tensor], inputs: Mapping[Placeholder, int]) -> dict[Tensor, Counted]:
    """Where each tensor that the roots need counts samples; what does not (a parameter, their sum) is left out.

    inputs: the dimension that counts samples, of every input that has one. Raises `MixedSamples` with the tensor whose
    elements are made of several samples in another way than by a sum.
    """
    return _Weighting(inputs, None).run(roots)[0]


def weighted(roots: Sequence[Tensor], inputs: Mapping[Placeholder, int], weights: Placeholder) -> list[Tensor]:
    """The roots with every sum over samples weighted by `weights` [batch]. Raises `MixedSamples`."""
    return _Weighting(inputs, weights).run(roots)[1]


class _Weighting:
    def __init__(self, inputs: Mapping[Placeholder, int], weights: Placeholder | None):
        self.weights = weights
        self.sums = False
        """whether what sums over samples is to be refused: in the steps of a recurrence"""
        self.counted: dict[Tensor, Counted] = {t: Counted(d) for t, d in inputs.items()}
        self.size = max((t.shape[d] for t, d in inputs.items()), default=0)
        self.new: dict[Tensor, Tensor] = {}

    def run(self, roots: Sequence[Tensor]) -> tuple[dict[Tensor, Counted], list[Tensor]]:
        for t in topological(list(roots)):
            self.new[t] = self.visit(t) if isinstance(t, Compute) else self.led(t) if isinstance(t, Looped) else t
        return self.counted, [self.new[t] for t in roots]

    def visit(self, t: Compute) -> Tensor:
        inputs = tuple(self.new[n] for n in t.inputs)
        sample = self.sample(t)
        if sample is not None:
            axis = next(iter(sample.free))
            run = int(sample.args[1].value) if isinstance(sample, Apply) and isinstance(sample.args[1], Const) else 1
            if axis.extent != self.size * run:
                raise self.mixed(t, "leaves out some samples")
            if axis.ident < t.rank:
                self.counted[t] = Counted(axis.ident, run)
            else:
                if self.sums:
                    raise self.mixed(t, "sums over samples in a step of a recurrence")
                self.check_summed(t, axis)
                if self.weights is not None:
                    return self.with_weights(t, inputs, axis, sample)
        if any(new is not old for new, old in zip(inputs, t.inputs, strict=True)):
            return Compute(t.definition, inputs, t.name, t.axis_names, t.where)
        return t

    def led(self, t: Looped) -> Tensor:
        """What leads out of a recurrence, whose steps keep samples apart."""
        r = t.run.recurrence
        counted: dict[Tensor, Counted] = {}
        for p, source in zip(r.placeholders, t.inputs, strict=True):
            if source in self.counted:
                where = self.counted[source]
                shift = p.rank - source.rank
                if where.dim + shift < 0:
                    raise self.mixed(t, "goes through samples step by step")
                counted[p] = Counted(where.dim + shift, where.run)
        while True:
            inner = _Weighting({}, None)
            inner.counted, inner.size, inner.sums = dict(counted), self.size, self.weights is not None
            inner.run([*r.then, t.of])
            pairs = zip(r.carried, r.then, strict=True)
            found: dict[Tensor, Counted] = {c: inner.counted[t] for c, t in pairs if t in inner.counted}
            if any(counted.get(c, at) != at for c, at in found.items()):
                raise self.mixed(t, "carries samples on in another dimension")
            if found.keys() <= counted.keys():
                break
            counted |= found
        if t.of in inner.counted:
            where = inner.counted[t.of]
            self.counted[t] = Counted(where.dim + t.rank - t.of.rank, where.run)
        return t.over(tuple(self.new[i] for i in t.inputs))

    def carries(self, t: Compute, e: Expr) -> bool:
        """Whether `e` reads a tensor that counts samples."""
        return isinstance(e, Read) and t.inputs[e.slot] in self.counted

    def sample(self, t: Compute) -> Expr | None:
        """The number of the sample that a point of t's body reads, an axis or `axis // run`; None: it reads none."""
        found: dict[Expr, None] = {}
        for read in t.definition.reads:
            if self.carries(t, read):
                where = self.counted[t.inputs[read.slot]]
                index = read.indices[where.dim]
                number = index if where.run == 1 else Apply("floordiv", (index, Const(where.run, dt.INDEX)))
                found[affine.simplify(number)] = None
        if not found:
            return None
        first = next(iter(found))
        is_axis = isinstance(first, Axis)
        is_run = (
            isinstance(first, Apply)
            and first.fn == "floordiv"
            and isinstance(first.args[0], Axis)
            and isinstance(first.args[1], Const)
        )
        if len(found) > 1 or not (is_axis or is_run):
            raise self.mixed(t, "reads several samples for one element")
        return first

    def check_summed(self, t: Compute, axis: Axis) -> None:
        for e in t.definition.nodes:
            if isinstance(e, Reduce) and e.op != "sum" and any(a is axis for a in e.axes):
                raise self.mixed(t, f"takes the {e.op} over samples")

    def with_weights(self, t: Compute, inputs: tuple[Tensor, ...], axis: Axis, sample: Expr) -> Compute:
        assert self.weights is not None
        weight: Expr = Read(Slot(len(inputs), self.weights.shape, self.weights.dtype), (sample,))

        def rule(e: Expr) -> Expr | None:
            if not (isinstance(e, Binder) and any(a is axis for a in e.axes)):
                return None
            if not any(self.carries(t, n) for n in postorder(e.body)):
                return None
            factor = weight if e.dtype == weight.dtype else Cast(e.dtype, weight)
            body = Apply("mul", (e.body, factor))
            return e.rebuild((*e.targets, body)) if isinstance(e, Scatter) else e.rebuild((body,))

        made = build(t.shape, rewrite(t.definition.body, rule), (*inputs, self.weights), t.name)
        return Compute(made.definition, made.inputs, made.name, made.axis_names, t.where)

    def mixed(self, t: Tensor, how: str) -> MixedSamples:
        return MixedSamples(f"`{t.name}` {how}: an incomplete batch has no meaning for it", t.where)
