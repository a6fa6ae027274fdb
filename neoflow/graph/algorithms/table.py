"""`ALGORITHMS`: other ways to the value of a contraction, each a small graph of index expressions; and the rewrite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.algorithms import fourier, im2col, split, strassen, winograd, zeros
from neoflow.graph.algorithms.cyclic import cyclic
from neoflow.graph.algorithms.form import Correlation, correlation
from neoflow.graph.algorithms.strassen import halved
from neoflow.graph.algorithms.strided import strided
from neoflow.graph.algorithms.whole import whole
from neoflow.graph.canonical import MergeEqual
from neoflow.graph.edit import Editor
from neoflow.graph.engine import Pass, in_turn
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
    Algorithm("residues", strided, lambda form, _: split.pays(form), split.build, lambda *_: Fraction(1)),
    Algorithm("zeros", strided, lambda form, _: zeros.pays(form), zeros.build, lambda *_: Fraction(1)),
)
"""Those of a form with the fewest products first.

winograd N: F(N x N, r x s) of r x s taps, F(N, r) of r in a row and, of the gradient of such a filter, F(r x s, N x N).
fourier: of a cyclic convolution. strassen: of large matrices in halves. residues, zeros: of the adjoint of a strided
read, by classes of its results or with zeros between the points of the cotangent."""

BY_NAME: Mapping[str, Algorithm[Any]] = {a.name: a for a in ALGORITHMS}


@dataclass(frozen=True)
class UseAlgorithm(Rewrite):
    """A contraction becomes the small graph of an algorithm.

    y[p] = sum[c, r](x[c, p + r] * w[c, r])
        ->  V = B^T x;  U = G w;  M[a, t] = sum[c](V[a, t, c] * U[a, c]);  y = A^T M

    definitions: those that it is used for; None: all that it fits. What a compute puts together of others (`whole`) is
    one definition with these.
    """

    name: str
    definitions: frozenset[str] | None = None
    """by digest"""

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        definition = whole(t, editor.inputs).definition
        if not isinstance(BY_NAME[self.name].form(definition), str) and self._is_meant(definition):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return BY_NAME[self.name].legal(whole(match.tensors[0], editor.inputs).definition)

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        found = whole(t, editor.inputs)
        return {t: BY_NAME[self.name].replacement(found.compute, found.inputs)}

    def _is_meant(self, definition: Definition) -> bool:
        return self.definitions is None or definition.digest in self.definitions


def alternatives(graph: Graph) -> dict[str, tuple[Algorithm[Any], ...]]:
    """The algorithms that fit, for the digest of each definition (of a `whole`) that any fits."""
    definitions = {d.digest: d for d in (whole(t).definition for t in graph.nodes)}
    found = {digest: tuple(a for a in ALGORITHMS if a.legal(d).ok) for digest, d in definitions.items()}
    return {digest: fitting for digest, fitting in found.items() if fitting}


def use(graph: Graph, chosen: Mapping[str, str]) -> tuple[Graph, Derivation]:
    """The graph with the definitions of these digests computed by the algorithms of these names.

    To be used behind `PASSES`: what is made is in the form in which kernels are cut. What is put together of parts
    comes before these: of a part that is computed otherwise there is no whole any more.
    """
    names = [name for name in dict.fromkeys(chosen.values()) if name != DIRECT]
    wholes = [name for name in names if BY_NAME[name].form is strided]
    rows = (wholes, [name for name in names if name not in wholes])
    return in_turn(graph, [_using(chosen, row) for row in rows if row])


def _using(chosen: Mapping[str, str], names: Sequence[str]) -> Pass:
    """What computes definitions by the algorithms of some names."""
    rewrites = (UseAlgorithm(name, frozenset(d for d, n in chosen.items() if n == name)) for name in names)
    return Pass("algorithms", tuple(rewrites), after=(MergeEqual(),))
