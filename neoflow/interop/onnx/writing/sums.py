"""Sums of products: Gemm and MatMul where the operands lie so, Einsum for all others, two factors at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neoflow import dtype as dt
from neoflow.expr.deep import Walk
from neoflow.expr.interp.contraction import as_product, pairing
from neoflow.expr.ir import Axis, Reduce, same
from neoflow.interop.onnx.writing.nodes import Value, among, held, joined, without
from neoflow.interop.onnx.writing.scope import Scope


def write(scope: Scope, e: Reduce, is_guarded: bool) -> Walk[Value] | None:
    """The value of a sum of products; None for other reductions."""
    if e.op != "sum":
        return None
    axes, body = e.axes, e.body
    while isinstance(body, Reduce) and body.op == "sum":
        axes, body = axes + body.axes, body.body
    product = as_product(body, (), scope.analysis)
    if len(product.factors) < 2:
        return None

    def written() -> Walk[Value]:
        values: list[Value] = []
        for factor, inside in product.factors:
            values.append((yield scope.value(factor, is_guarded or bool(inside))))
        for mask in product.masks:  # each condition joins the factor that grows least by it
            cond: Value = yield scope.value(mask.cond, is_guarded or bool(mask.guards))
            more = [math.prod(a.extent for a in without(cond.axes, v.axes)) for v in values]
            at = min((grown, n not in mask.factors, n) for n, grown in enumerate(more))[2]
            zero = Value(_number(scope, 0, body.dtype), (), body.dtype)
            pair = (values[at], zero) if mask.holds else (zero, values[at])
            values[at] = scope.chosen(cond, *pair)
        return _product(scope, values, [a for a in axes if a.extent > 1], product.sign)

    return written()


def _number(scope: Scope, value: int, dtype: str) -> str:
    return scope.nodes.table(np.array(value).astype(dt.NUMPY[held(dtype)]))


def _product(scope: Scope, values: list[Value], axes: Sequence[Axis], sign: int) -> Value:
    extents = {a.ident: a.extent for a in (*joined(values), *axes)}
    sets = [frozenset(a.ident for a in v.axes) for v in values]
    dims = frozenset(a.ident for a in axes)
    steps, _ = pairing(sets, dims, lambda s: math.prod(extents[d] for d in s))
    dtype = values[0].dtype
    times = sign * math.prod(a.extent for a in without(axes, joined(values)))
    for i, j in steps:
        right = values.pop(j)
        left = values.pop(i)
        gone = without(axes, joined(values))
        values.append(contracted(scope, left, right, gone))
    if times == 1:
        return values[0]
    return scope.applied("mul", [values[0], Value(_number(scope, times, dtype), (), dtype)], dtype)


def contracted(scope: Scope, a: Value, b: Value, axes: Sequence[Axis]) -> Value:
    """The sum over `axes` of the product of two values."""
    a = scope.reduced("sum", a, without(among(axes, a.axes), b.axes))
    b = scope.reduced("sum", b, without(among(axes, b.axes), a.axes))
    shared = among(axes, a.axes)
    if not shared:
        return scope.applied("mul", [a, b], a.dtype)
    out = tuple(without(joined([a, b]), shared))
    scope.fits(out)
    found = _matrices(scope, a, b, shared, out) or _matrices(scope, b, a, shared, out)
    if found is None:
        letters = {x: _LETTERS[n] for n, x in enumerate(joined([a, b]))}
        terms = ["".join(letters[x] for x in axes) for axes in (a.axes, b.axes, out)]
        found = scope.nodes.add("Einsum", [a.name, b.name], equation=f"{terms[0]},{terms[1]}->{terms[2]}")
    return Value(found, out, a.dtype)


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _matrices(scope: Scope, a: Value, b: Value, shared: Sequence[Axis], out: Sequence[Axis]) -> str | None:
    """As a product of matrices whose rows are of a and columns of b, in the order of `out`; None when it is none."""
    nodes = scope.nodes
    batch = without(among(a.axes, b.axes), shared)
    rows, columns = (without(v.axes, [*batch, *shared]) for v in (a, b))
    if len(shared) != 1 or len(columns) != 1 or not same(tuple(out), (*batch, *rows, *columns)):
        return None
    if not batch and len(rows) == 1 and dt.is_float(a.dtype):
        flags = {"transA": int(a.axes[0] is shared[0]), "transB": int(b.axes[1] is shared[0])}
        return nodes.add("Gemm", [a.name, b.name], **{k: v for k, v in flags.items() if v})
    if batch and len(rows) != 1:
        return None
    left = nodes.arranged(a, [*batch, *rows, *shared])
    return nodes.add("MatMul", [left, nodes.arranged(b, [*batch, *shared, *columns])])
