"""Every refusal of the Python notation: what it says, and that it names the user's line."""

import re
import sys

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import Apply, Axis, Const, Read, typed

x = nf.placeholder((4, 5), name="x")
d = nf.placeholder((4, 5), "float64", name="d")
v = nf.placeholder((5,), name="v")
n = nf.placeholder((5,), "int32", name="n")
flag = nf.placeholder((5,), "bool", name="flag")
k = nf.axis(5, "k")
i, j = nf.axis(4, "i"), nf.axis(5, "j")


def of(*shape):
    return lambda body: nf.compute(shape, body)


ERRORS = {
    # tensors and axes
    "zero extent": (lambda: nf.placeholder((4, 0)), "shape (4, 0) has extent 0; extents are integers greater than 0"),
    "negative extent": (lambda: nf.axis(-1), "shape (-1,) has extent -1; extents are integers greater than 0"),
    "float extent": (lambda: nf.compute((2.0,), lambda i: v[i]), "shape (2.0,) has extent 2.0"),
    "bool extent": (lambda: nf.placeholder((True,)), "shape (True,) has extent True"),
    "unknown dtype": (lambda: nf.placeholder((4,), "float128"), "dtype 'float128' is not one of float64, float32, "),
    "no dtype": (lambda: nf.cast(v, object), "is not one of float64, float32, "),
    "initial value": (
        lambda: nf.parameter((4,), name="w", init=np.zeros(3)),
        "parameter w has shape (4,), its initial value (3,)",
    ),
    "number of axes": (
        lambda: nf.compute((4, 5), lambda i: v[i]),
        "shape (4, 5) has 2 extents but the function takes 1 axes",
    ),
    # reads
    "rank": (
        lambda: nf.compute((4,), lambda i: x[i]),
        "x has rank 2 (shape (4, 5)) but is read with 1 indices",
    ),
    "float index": (
        lambda: nf.compute((5,), lambda i: v[v[i]]),
        "index 0 of v is `v[i]` of type float32; an index is an integer",
    ),
    "bool index": (
        lambda: nf.compute((5,), lambda i: v[i > 0]),
        "index 0 of v is `i > 0` of type bool; an index is an integer",
    ),
    "float number as index": (
        lambda: nf.compute((4,), lambda i: x[i, 0.5]),
        "the float 0.5 meets a value of type int64; cast it first: nf.cast(..., 'float32')",
    ),
    "tensor as scalar": (
        lambda: nf.compute((5,), lambda i: v[i] + x),
        "tensor x of shape (4, 5) stands where a scalar is needed; index it with 2 axes",
    ),
    "no expression": (
        lambda: nf.compute((5,), lambda i: None),
        "None of type NoneType is no expression, tensor or number",
    ),
    "array in an expression": (
        lambda: nf.compute((5,), lambda i: typed.scalar("add", v[i], np.ones(5))),
        "an array of shape (5,) stands where a scalar is needed; index it with 1 axes, nf.constant(array)[...]",
    ),
    # types
    "mixed widths": (
        lambda: nf.compute((4, 5), lambda i, j: x[i, j] * d[i, j]),
        "* mixes `x[i, j]` (float32) and `d[i, j]` (float64); cast one: nf.cast(..., 'float64')",
    ),
    "mixed widths of tensors": (lambda: x + d, "+ mixes `x[i, j]` (float32) and `d[i, j]` (float64)"),
    "float and integer": (
        lambda: nf.compute((5,), lambda i: v[i] + n[i]),
        "+ mixes `v[i]` (float32) and `n[i]` (int32); cast one: nf.cast(..., 'float32')",
    ),
    "float and bool": (lambda: nf.compute((5,), lambda i: v[i] * flag[i]), "* mixes `v[i]` (float32) and `flag[i]`"),
    "integer and float number": (
        lambda: nf.compute((5,), lambda i: n[i] + 0.5),
        "the float 0.5 meets a value of type int32; cast it first",
    ),
    "arithmetic of bool": (
        lambda: nf.compute((5,), lambda i: flag[i] + flag[i]),
        "+ takes numbers, but `flag[i]` is bool",
    ),
    "division of integers": (
        lambda: nf.compute((5,), lambda i: n[i] / 2),
        "/ takes floats, but `n[i]` is int32 (use // for integers)",
    ),
    "floor division of floats": (lambda: nf.compute((5,), lambda i: v[i] // 2), "// takes integers, but `v[i]` is fl"),
    "remainder of floats": (lambda: nf.compute((5,), lambda i: v[i] % 2), "% takes integers, but `v[i]` is float32"),
    "exp of integers": (lambda: nf.exp(n), "exp takes floats, but `n[i]` is int32"),
    "and of numbers": (
        lambda: nf.compute((5,), lambda i: v[i] & v[i]),
        "& takes conditions (bool), but `v[i]` is float32",
    ),
    "not of numbers": (lambda: nf.compute((5,), lambda i: ~v[i]), "~ takes conditions (bool), but `v[i]` is float32"),
    "exclusive or of numbers": (
        lambda: nf.compute((5,), lambda i: v[i] ^ 2),
        "^ takes integers or conditions, but `v[i]` and `2` are not; a power is written x ** y",
    ),
    "shift of floats": (
        lambda: nf.compute((5,), lambda i: v[i] << 2),
        "left_shift takes integers, but `v[i]` is float",
    ),
    "division by zero": (lambda: nf.compute((5,), lambda i: v[i // 0]), "`i // 0` has no value"),
    "remainder by zero": (lambda: nf.compute((5,), lambda i: v[i % 0]), "`i % 0` has no value"),
    "arguments": (lambda: nf.exp(v, v), "exp takes 1 argument(s), got 2"),
    "too few arguments": (lambda: nf.maximum(v), "maximum takes 2 argument(s), got 1"),
    "condition of select": (
        lambda: nf.compute((5,), lambda i: nf.select(v[i], 1.0, 2.0)),
        "select needs a condition, but `v[i]` is float32; compare it: x != 0",
    ),
    "branches of select": (
        lambda: nf.compute((5,), lambda i: nf.select(v[i] > 0, n[i], v[i])),
        "select mixes `n[i]` (int32) and `v[i]` (float32)",
    ),
    "truth": (
        lambda: nf.compute((5,), lambda i: v[i] if v[i] > 0 else 0.0),
        "the truth of `v[i] > 0.0` is not known while the program is written; use nf.select(cond, a, b), and & | ~ ",
    ),
    "chained comparison": (lambda: nf.compute((5,), lambda i: 0 < i < 3), "the truth of `i > 0` is not known"),
    "truth of a tensor": (lambda: bool(x), "tensor x has no value while the program is written; use nf.select"),
    "shapes": (lambda: x + nf.placeholder((3,), name="y"), "shapes do not broadcast: x[4, 5], y[3]"),
    # reductions
    "axis outside its reduction": (
        lambda: nf.compute((4,), lambda i: nf.sum(x[i, k], axis=[k]) + v[k], name="y"),
        "axis `k` is used in `y` outside the reduction that binds it; add it to that reduction's axis=[...] or make",
    ),
    "axis bound twice": (
        lambda: nf.compute((), lambda: nf.sum(nf.sum(v[k], axis=[k]) * v[k], axis=[k])),
        "axis `k` is bound twice in nested scopes; give the inner reduction an axis of its own (nf.axis)",
    ),
    "axis is no axis": (
        lambda: nf.compute((5,), lambda i: nf.sum(v[i], axis=["i"])),
        "sum reduces over axes made by nf.axis, not 'i'",
    ),
    "no axes": (lambda: nf.compute((5,), lambda i: nf.sum(v[i], axis=[])), "sum needs one or more distinct axes"),
    "same axis twice": (
        lambda: nf.compute((), lambda: nf.sum(v[k], axis=[k, k])),
        "sum needs one or more distinct axes: axis=[r, s]",
    ),
    "argmax over two": (
        lambda: nf.compute((), lambda: nf.argmax(x[i, j], axis=[i, j])),
        "argmax goes over exactly one axis, not 2",
    ),
    "argmax of a tensor over two": (lambda: nf.argmax(x), "argmax goes over exactly one dimension: axis=d"),
    "sum of conditions": (
        lambda: nf.compute((), lambda: nf.sum(v[k] > 0, axis=[k])),
        "sum takes numbers, but `v[k] > 0.0` is bool; cast it: nf.cast(..., 'int32')",
    ),
    "sum of a bool tensor": (lambda: nf.sum(flag), "sum takes numbers, but `flag` is bool; cast it: nf.cast(..., 'int"),
    "dimension": (lambda: nf.sum(x, axis=2), "x has rank 2 (shape (4, 5)); there is no dimension 2"),
    "mean of integers": (lambda: nf.mean(n), "the float 0.2 meets a value of type int32; cast it first"),
    # slices
    "slice rank": (lambda: v[0, 0], "v has rank 1 (shape (5,)) but is indexed with 2 indices"),
    "slice outside": (lambda: x[7], "index 7 leaves dimension of extent 4 of x (shape (4, 5))"),
    "slice below": (lambda: x[0, -6], "index -6 leaves dimension of extent 5 of x (shape (4, 5))"),
    "empty slice": (lambda: x[2:2], "slice slice(2, 2, None) of x (extent 4) is empty"),
    "slice by text": (lambda: x["a"], "x is indexed with 'a'; use axes, integers, slices, None or ..."),
    "slice by float": (lambda: x[0.5], "x is indexed with 0.5; use axes, integers, slices, None or ..."),
    # bounds
    "outside": (
        lambda: nf.compute((4, 6), lambda i, j: x[i, j]),
        "read `x[i, j]` leaves its tensor: index 1 is `j` = 5 at j=5, but the extent is 5; guard it with nf.select, or",
    ),
    "below": (
        lambda: nf.compute((4,), lambda i: x[i - 1, 0]),
        "read `x[i - 1, 0]` leaves its tensor: index 0 is `i - 1` = -1 at i=0, but the extent is 4",
    ),
    "constant": (
        lambda: nf.compute((4,), lambda i: x[i, 5]),
        "index 1 is `5` = 5 at every point, but the extent is 5",
    ),
    "under a condition": (
        lambda: nf.compute((9,), lambda i: nf.select(i < 6, v[i], 0.0)),
        "read `v[i]` leaves its tensor: index 0 is `i` = 5 at i=5, but the extent is 5",
    ),
    "reduced": (
        lambda: nf.compute((4,), lambda i: nf.sum(v[i + k], axis=[k])),
        "read `v[i + k]` leaves its tensor: index 0 is `i + k` = ",
    ),
    "beyond proof": (
        lambda: nf.compute((3000, 3000), lambda i, j: v[i * j // 1000000]),
        "read `v[i * j // 1000000]` cannot be proved to stay inside its tensor: index 0 is `i * j // 1000000`, which "
        "is not + - * // % of axes and constants, and the extent is 5; guard it with nf.select and write it with those",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_message(case):
    call, message = ERRORS[case]
    with pytest.raises(nf.ExpressionError) as caught:
        call()
    assert message in str(caught.value)
    assert re.match(r"\S*test_errors\.py:\d+: ", str(caught.value)), caught.value


def test_the_line_is_the_users():
    try:
        nf.compute(
            (4,),
            lambda i: x[i, 0] + d[i, 0],
        )
    except nf.ExpressionError as e:
        assert e.where == (__file__, this_line() - 3)


def this_line() -> int:
    return sys._getframe(1).f_lineno


def test_nodes_are_frozen():
    node = Axis(0, 3)
    with pytest.raises(AttributeError, match="Axis is frozen"):
        node.extent = 4
    with pytest.raises(AttributeError, match="Placeholder is frozen"):
        x.name = "y"


def test_nothing_is_pickled():
    import pickle

    with pytest.raises(TypeError, match="Apply cannot be pickled: save what it computes instead"):
        pickle.dumps(Apply("add", (Const(1, "int64"), Axis(0, 3))))
    with pytest.raises(TypeError, match="Read cannot be pickled"):
        pickle.dumps(Read(v, (Axis(0, 3),)))


def test_names_that_do_not_exist():
    with pytest.raises(AttributeError, match="module 'neoflow' has no attribute 'einsam'"):
        nf.einsam  # noqa: B018 - that it is asked for is the test
