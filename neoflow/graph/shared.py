"""Sums that several others are made of, summed once: what does not depend on the axes leaves each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr.ir import Reduce
from neoflow.expr.normal import is_normal
from neoflow.expr.tensor import Compute
from neoflow.graph.edit import Editor
from neoflow.graph.facts import contracts, is_contraction
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.graph.terms import DEPTH, Linear, linear
from neoflow.verdict import Verdict

DTYPES = ("float32", "float64")
"""Sums that are no narrower in memory than in registers."""
MOST_READERS = 64
"""Readers among which other sums of a product are looked for."""


@dataclass(frozen=True)
class ShareSums(Rewrite):
    """What several sums sum, up to factors that do not depend on the axes, is summed once; what was centred is 0.

    d[r, c] = g[r, c] * w[c]                        s[c] = sum[r](g[r, c])
    a[c] = sum[r](d[r, c])                    ->    a[c] = s[c] * w[c]
    b[c] = sum[r](g[r, c] * v[c])                   b[c] = s[c] * v[c]
    """

    name: str = "share sums"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        found = _linear(editor, t)
        if found is None or found.is_of(editor, t):
            return
        other = None if found.is_centred else _other(editor, t, found)
        if found.is_centred or other is not None:
            yield Match((t,) if other is None else (t, other))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        if len(match.tensors) == 1:
            return Verdict(True, "a term of it was centred over the same axes and adds up to nothing")
        return Verdict(True, f"{match.tensors[1].name} sums the same product")

    def apply(self, editor: Editor, match: Match) -> Edit:
        t = match.tensors[0]
        found = _linear(editor, t)
        assert found is not None
        return {t: found.rest(t)}


def _linear(editor: Editor, t: Compute) -> Linear | None:
    """A sum that is no contraction as one product, which is none either."""
    return editor.while_it_stays((_linear, t.uid), lambda: _found(editor, t))


def _found(editor: Editor, t: Compute) -> Linear | None:
    body = t.definition.body
    is_sum = isinstance(body, Reduce) and body.op == "sum" and body.dtype in DTYPES and is_normal(t.definition)
    if not is_sum or is_contraction(t.definition):
        return None
    found = linear(editor, t)
    return None if found is None or contracts(found.summed, found.points) else found


def _other(editor: Editor, t: Compute, found: Linear) -> Compute | None:
    """Another sum of the same product."""
    seen, todo = {t.uid}, [(i, 0) for i in found.sources]
    while todo and len(seen) <= MOST_READERS:
        source, depth = todo.pop(0)
        for r in editor.each_reader(source):
            if r.uid in seen or len(seen) > MOST_READERS:
                continue
            seen.add(r.uid)
            if not r.definition.has_reduction:
                todo += [(r, depth + 1)] if depth < DEPTH else []
            elif (own := _linear(editor, r)) is not None and own.is_like(found):
                return r
    return None
