"""One canonical form: reductions at the root, constants folded, copies gone, equal computes merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr.close import build
from neoflow.expr.ir import Const, Read
from neoflow.expr.memo import remembered
from neoflow.expr.normal import is_normal, normal_form
from neoflow.expr.tensor import Compute, Constant, Tensor
from neoflow.graph.algebra import Folded, fold
from neoflow.graph.edit import Editor
from neoflow.graph.facts import reads_at_own_point
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class HoistReductions(Rewrite):
    """A reduction inside a body becomes a compute of its own; what is scattered becomes one, too.

    y[i] = exp(x[i]) / sum[k](exp(x[k]))    ->    s[] = sum[k](exp(x[k]));  y[i] = exp(x[i]) / s[]
    """

    name: str = "hoist reductions"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if not is_normal(t.definition):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return Verdict(True, "it reduces or scatters inside its body")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        (normal,) = normal_form(t.definition).instantiate(editor.inputs(t), (t.name,), t.where)
        assert normal is not None
        return {t: normal}


@dataclass(frozen=True)
class FoldConstants(Rewrite):
    """Constant inputs are put into the body and followed by the laws of `algebra.LAWS`, which hold for every value.

    one[i] = 1.0;  y[i] = x[i] * one[i] / 8.0    ->    y[i] = x[i] * 0.125
    """

    name: str = "fold constants"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if self._folded(editor, t).body is not t.definition.body:
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return Verdict(True, "; ".join(self._folded(editor, match.tensors[0]).laws))

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        return {t: build(t.shape, self._folded(editor, t).body, editor.inputs(t), t.name)}

    def _folded(self, editor: Editor, t: Compute) -> Folded:
        return fold(t.definition, tuple(map(_constant, editor.inputs(t))))


def _constant(t: Tensor) -> Const | None:
    """The value of a tensor that has one value everywhere."""
    if isinstance(t, Constant):
        return _uniform(t)
    body = t.definition.body if isinstance(t, Compute) else None
    return body if isinstance(body, Const) else None


@remembered
def _uniform(t: Constant) -> Const | None:
    """The one value of a constant's elements, which is no more than a number in the program."""
    first = t.value.flat[0]
    return Const(first.item(), t.dtype) if (t.value == first).all() else None


@dataclass(frozen=True)
class ForwardCopies(Rewrite):
    """Who reads a copy reads what it copies.

    c[i, j] = x[i, j];  y[i] = sum[j](c[i, j])    ->    y[i] = sum[j](x[i, j])
    """

    name: str = "forward copies"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if isinstance(t.definition.body, Read) and reads_at_own_point(t.definition.body, t.shape):
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return Verdict(True, f"it is {editor.inputs(match.tensors[0])[0].name}, element by element")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        return {t: editor.inputs(t)[0]}


@dataclass(frozen=True)
class MergeEqual(Rewrite):
    """Two computes of the same definition that read the same are one.

    a[i] = exp(x[i]);  b[i] = exp(x[i]);  y[i] = a[i] + b[i]    ->    a[i] = exp(x[i]);  y[i] = a[i] + a[i]
    """

    name: str = "merge equal"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if (twin := editor.twin(t)) is not None:
            yield Match((t, twin))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        return Verdict(True, f"{match.tensors[1].name} computes the same")

    def apply(self, editor: Editor, match: Match) -> Edit:
        first, second = sorted(match.tensors, key=editor.number)
        return {second: first}
