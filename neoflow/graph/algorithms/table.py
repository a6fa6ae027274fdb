"""`ALGORITHMS`: other ways to the value of a contraction, each a small graph of index expressions; and the rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.algorithms import fourier, im2col, strassen, winograd
from neoflow.graph.algorithms.cyclic import cyclic
from neoflow.graph.algorithms.form import Correlation, correlation
from neoflow.graph.algorithms.strassen import halved
from neoflow.graph.canonical import MergeEqual
from neoflow.graph.edit import Editor
from neoflow.graph.engine import Pass, run
from neoflow.graph.graph import Graph
from neoflow.graph.rewrite import Derivation, Edit, Match, Rewrite
from neoflow.verdict import Verdict

F = TypeVar("F")
DIRECT = "direct"
"""As it is written."""


@dataclass(frozen=True)
class Algorithm(Generic[F]):
    """A way to compute contractions of a form.

    form: what a definition is as such a one; or why it is none. judged: whether it fits, and why. built: its small
    graph, for a compute and what that reads. growth: how many times larger than the direct sum's its roundings may be,
    see `docs/numbers.md`.
    """

    name: str
    form: Callable[[Definition], F | str]
    judged: Callable[[F, Definition], Verdict]
    built: Callable[[Compute, Sequence[Tensor], F], Tensor]
    growth: Callable[[F, Definition], Fraction]

    def legal(self, definition: Definition) -> Verdict:
        """Whether it computes what is defined, and why or why not."""
        form = self.form(definition)
        return Verdict(False, form) if isinstance(form, str) else self.judged(form, definition)

    def replacement(self, t: Compute, inputs: Sequence[Tensor]) -> Tensor:
        """The small graph for a compute it fits that reads `inputs`."""
        return self.built(t, inputs, self._form(t.definition))

    def rounding(self, definition: Definition) -> float:
        """`growth` of a definition it fits."""
        return float(self.growth(self._form(definition), definition))

    def _form(self, definition: Definition) -> F:
        form = self.form(definition)
        assert not isinstance(form, str)
        return form


def _winograd(tile: int) -> Algorithm[Correlation]:
    return Algorithm(
        f"winograd {tile}",
        correlation,
        lambda form, _: winograd.pays(form, tile),
        lambda t, inputs, form: winograd.build(t, inputs, form, tile),
        lambda form, _: winograd.growth(form, tile),
    )


ALGORITHMS: tuple[Algorithm[Any], ...] = (
    _winograd(4),
    _winograd(2),
    Algorithm(
        "im2col",
        correlation,
        lambda form, d: im2col.pays(form, dt.itemsize(d.body.dtype)),
        im2col.build,
        lambda *_: Fraction(1),
    ),
    Algorithm("fourier", cyclic, fourier.pays, fourier.build, fourier.growth),
    Algorithm("strassen", halved, strassen.pays, strassen.build, lambda *_: strassen.GROWTH),
)
"""Those of a form with the fewest products first.

winograd N: F(N x N, r x s) of r x s taps, F(N, r) of r in a row and, of the gradient of such a filter, F(r x s, N x N).
fourier: of a cyclic convolution. strassen: of large matrices in halves."""

BY_NAME: Mapping[str, Algorithm[Any]] = {a.name: a for a in ALGORITHMS}


@dataclass(frozen=True)
class UseAlgorithm(Rewrite):
    """A contraction becomes the small graph of an algorithm.

    y[p] = sum[c, r](x[c, p + r] * w[c, r])
        ->  V = B^T x;  U = G w;  M[a, t] = sum[c](V[a, t, c] * U[a, c]);  y = A^T M

    definitions: those that it is used for; None: all that it fits.
    """

    name: str
    definitions: frozenset[str] | None = None
    """by digest"""

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if not isinstance(BY_NAME[self.name].form(t.definition), str) and self._is_meant(t.definition):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return BY_NAME[self.name].legal(match.tensors[0].definition)

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        return {t: BY_NAME[self.name].replacement(t, editor.inputs(t))}

    def _is_meant(self, definition: Definition) -> bool:
        return self.definitions is None or definition.digest in self.definitions


def alternatives(graph: Graph) -> dict[str, tuple[Algorithm[Any], ...]]:
    """The algorithms that fit, for the digest of each definition that any fits."""
    found = {t.definition.digest: tuple(a for a in ALGORITHMS if a.legal(t.definition).ok) for t in graph.nodes}
    return {digest: fitting for digest, fitting in found.items() if fitting}


def use(graph: Graph, chosen: Mapping[str, str]) -> tuple[Graph, Derivation]:
    """The graph with the definitions of these digests computed by the algorithms of these names.

    To be used behind `PASSES`: what is made is in the form in which kernels are cut.
    """
    names = dict.fromkeys(chosen.values())
    rewrites = tuple(
        UseAlgorithm(name, frozenset(d for d, n in chosen.items() if n == name)) for name in names if name != DIRECT
    )
    return run(graph, Pass("algorithms", rewrites, after=(MergeEqual(),)))
