"""Definitions as text: every node, every constant, whatever the depth; nothing inferred on the way back."""

import pytest

import neoflow as nf
from neoflow.errors import TextError
from neoflow.expr import (
    Apply,
    Axis,
    Cast,
    Compute,
    Const,
    Definition,
    Parameter,
    Placeholder,
    Read,
    Reduce,
    Select,
    Slot,
)
from neoflow.graph import Graph, make_graph
from neoflow.partition import Node, Subgraph, Value

f32 = Slot(0, (8,), "float32")
i = Axis(0, 8)
x = Read(f32, (i,))


def kernel(body, *slots, shape=(8,)):
    """A subgraph of one node that reads an input for each slot."""
    inputs = tuple(Value(s.shape, s.dtype) for s in slots)
    definition = Definition(shape, body, slots)
    return Subgraph(inputs, (Node(definition, tuple(range(len(slots)))),), (len(slots),))


def line(subgraph):
    """The text of the only node."""
    return subgraph.to_text().split("outputs")[0].split("v1", 1)[1]


def placed(body):
    return f"neoflow subgraph 1\nin0: float32[8]\nv1[i<8] = {body}\noutputs v1\n"


CONSTANTS = {
    "0.5": Const(0.5, "float32"),
    "-0.0": Const(-0.0, "float32"),
    "0.1": Const(0.1, "float32"),
    "1e-45": Const(1e-45, "float32"),
    "1.7976931348623157e+308": Const(1.7976931348623157e308, "float32"),
    "inf": Const(float("inf"), "float32"),
    "-inf": Const(float("-inf"), "float32"),
    "nan": Const(float("nan"), "float32"),
    "float64(-0.0)": Const(-0.0, "float64"),
    "float64(0.30000000000000004)": Const(0.1 + 0.2, "float64"),
    "float16(nan)": Const(float("nan"), "float16"),
    "bfloat16(-inf)": Const(float("-inf"), "bfloat16"),
    "3": Const(3, "int64"),
    "-9223372036854775808": Const(-(2**63), "int64"),
    "9223372036854775807": Const(2**63 - 1, "int64"),
    "int8(-128)": Const(-128, "int8"),
    "int32(7)": Const(7, "int32"),
    "True": Const(True, "bool"),
    "False": Const(False, "bool"),
}


@pytest.mark.parametrize("text", CONSTANTS)
def test_constants(text):
    k = kernel(CONSTANTS[text])
    assert k.to_text().splitlines()[1] == f"v0[i<8] = {text}"
    assert Subgraph.from_text(k.to_text()) == k


def test_nan_is_one_constant_whatever_its_sign():
    assert Const(-float("nan"), "float32") is Const(float("nan"), "float32")


def apply(fn, *args):
    return Apply(fn, args)


one = Const(1.0, "float32")
EXPRESSIONS = {
    "in0[i] - (in0[i] - 1.0)": apply("sub", x, apply("sub", x, one)),
    "in0[i] - in0[i] - 1.0": apply("sub", apply("sub", x, x), one),
    "-in0[i] * in0[i]": apply("mul", apply("neg", x), x),
    "-(in0[i] * in0[i])": apply("neg", apply("mul", x, x)),
    "--in0[i]": apply("neg", apply("neg", x)),
    "-(1.0) * in0[i]": apply("mul", apply("neg", one), x),
    "-1.0 * in0[i]": apply("mul", Const(-1.0, "float32"), x),
    "--1.0 * in0[i]": apply("mul", apply("neg", Const(-1.0, "float32")), x),
    "-(inf) + in0[i]": apply("add", apply("neg", Const(float("inf"), "float32")), x),
    "pow(in0[i], maximum(in0[i], 2.0))": apply("pow", x, apply("maximum", x, Const(2.0, "float32"))),
    "select((in0[i] < 1.0) & ~(in0[i] == 1.0), in0[i], 1.0)": Select(
        apply("and", apply("lt", x, one), apply("not", apply("eq", x, one))), x, one
    ),
    "select((in0[i] < 1.0) == (i >= 3), in0[i], 1.0)": Select(
        apply("eq", apply("lt", x, one), apply("ge", i, Const(3, "int64"))), x, one
    ),
    "cast(cast(2.5, float64), float32)": Cast("float32", Cast("float64", Const(2.5, "float32"))),
    "cast(float64(2.5), float32)": Cast("float32", Const(2.5, "float64")),
    "in0[-1*i + 7]": Read(f32, (apply("add", apply("mul", Const(-1, "int64"), i), Const(7, "int64")),)),
    "in0[-i % 8]": Read(f32, (apply("mod", apply("neg", i), Const(8, "int64")),)),
    "in0[(i + i) // 2]": Read(f32, (apply("floordiv", apply("add", i, i), Const(2, "int64")),)),
    "sum[r<8](in0[r] * cast(argmax[s<8](in0[s] + in0[r]), float32))": Reduce(
        "sum",
        (Axis(1, 8),),
        apply(
            "mul",
            Read(f32, (Axis(1, 8),)),
            Cast(
                "float32",
                Reduce("argmax", (Axis(2, 8),), apply("add", Read(f32, (Axis(2, 8),)), Read(f32, (Axis(1, 8),)))),
            ),
        ),
    ),
    "max[r<2, s<4](in0[4*r + s])": Reduce(
        "max",
        (Axis(1, 2), Axis(2, 4)),
        Read(f32, (apply("add", apply("mul", Const(4, "int64"), Axis(1, 2)), Axis(2, 4)),)),
    ),
    "in0[argmin[r<8](in0[r])]": Read(f32, (Reduce("argmin", (Axis(1, 8),), Read(f32, (Axis(1, 8),))),)),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions(text):
    inputs = (nf.placeholder((8,), name="in0"),) if "in0" in text else ()
    definition = Definition((8,), EXPRESSIONS[text], (f32,) if inputs else ())
    graph = make_graph([Compute(definition, inputs, "y")], inputs)
    assert f"y[i<8] = {text} axes\n" in graph.to_text()
    assert Graph.from_text(graph.to_text()).outputs[0].definition is definition


def test_scatter_and_rank_0():
    ids, v, b = nf.placeholder((5,), "int32", name="ids"), nf.placeholder((5,), name="v"), nf.axis(5, "b")
    y = nf.scatter((3,), [b], (ids[b],), v[b], name="y")
    z = nf.compute((), lambda: nf.sum(y[k], axis=[k]) if (k := nf.axis(3, "k")) is not None else 0, name="z")
    graph = make_graph([z], [ids, v])
    lines = [text.split(" @")[0] for text in graph.to_text().splitlines()]
    assert lines[3:5] == ['y[i<3] = scatter[r<5](v[r], at=[cast(ids[r], int64)]) axes "", "b"', "z = sum[k<3](y[k])"]
    assert Graph.from_text(graph.to_text()).to_text() == graph.to_text()


def test_what_is_long_and_used_twice_stands_once():
    e = apply("exp", apply("sub", apply("mul", x, x), apply("tanh", apply("add", x, apply("sin", x)))))
    inner = apply("mul", e, apply("sqrt", e))
    k = kernel(apply("div", inner, apply("add", inner, one)), f32)
    assert line(k).splitlines() == [
        "[i<8] = e0 * sqrt(e0) / (e0 * sqrt(e0) + 1.0)",
        "    where e0 = exp(in0[i] * in0[i] - tanh(in0[i] + sin(in0[i])))",
    ]
    assert Subgraph.from_text(k.to_text()) == k


def test_slots_that_are_not_in_the_order_of_reading_say_what_they_read():
    a, b = Slot(0, (8,), "float32"), Slot(1, (8,), "float32")
    body = apply("sub", Read(a, (i,)), Read(b, (i,)))
    twice = Subgraph((Value((8,), "float32"),), (Node(Definition((8,), body, (a, b)), (0, 0)),), (1,))
    assert line(twice) == "[i<8] = $0[i] - $1[i] reads in0, in0\n"
    swapped = kernel(apply("sub", Read(b, (i,)), Read(a, (i,))), a, b)
    assert "= $1[i] - $0[i] reads in0, in1" in swapped.to_text()
    unread = kernel(x, a, b)
    for k in (twice, swapped, unread):
        assert Subgraph.from_text(k.to_text()) == k


def test_axes_that_are_not_in_the_order_of_reading_have_numbers():
    k = kernel(Reduce("sum", (Axis(7, 8),), Read(f32, (Axis(7, 8),))), f32)
    assert line(k) == "[i<8] = sum[#7<8](in0[#7])\n"
    assert Subgraph.from_text(k.to_text()) == k


def test_siblings_share_an_axis():
    r = nf.axis(8, "r")
    v = nf.placeholder((8,), name="v")
    y = nf.compute((8,), lambda i: nf.sum(v[r], axis=[r]) * v[i] + nf.max(v[r] * v[i], axis=[r]), name="y")
    graph = make_graph([y], [v])
    assert "y[i<8] = sum[r<8](v[r]) * v[i] + max[r<8](v[r] * v[i])" in graph.to_text()
    assert Graph.from_text(graph.to_text(), graph.leaves).outputs[0].definition is y.definition


CHAINS = {
    "left": lambda e: apply("add", e, one),
    "right": lambda e: apply("sub", one, e),
    "call": lambda e: apply("exp", e),
    "prefix": lambda e: apply("neg", e),
    "cast": lambda e: Cast("float32", Cast("float64", e)),
    "shared": lambda e: apply("mul", e, e),
}


@pytest.mark.parametrize("chain", [c if c == "left" else pytest.param(c, marks=pytest.mark.slow) for c in CHAINS])
def test_chains_of_20000_operations(chain):
    e = x
    for _ in range(20_000 if chain != "cast" else 10_000):
        e = CHAINS[chain](e)
    k = kernel(e, f32)
    text = k.to_text()
    assert len(text) < 40 * 20_000
    assert Subgraph.from_text(text) == k


REFUSED = {
    "in0[i": (16, "expected `]`, found the end of the line"),
    "in0[i] +": (19, "expected an expression, found the end of the line"),
    "in0[j]": (15, "unknown name `j`: no axis that is bound here, no tensor above and no function"),
    "in0[i, i]": (11, "`in0` has rank 1 but is read with 2 indices"),
    "in0": (11, "`in0` has rank 1 but is read with 0 indices"),
    "in0[0.5]": (11, "an index is int64, not float32"),
    "in0[i + 1]": (1, "read `in0[i + 1]` leaves its tensor: index 0 is `i + 1` = 8 at i=7, but the extent is 8"),
    "in0[i] + 1": (18, "+ takes numbers of one type, not float32 and int64"),
    "exp(i)": (11, "exp takes floats of one type, not int64"),
    "in0[i] % 2.0": (18, "% takes integers of one type, not float32 and float32"),
    "in0[i] & True": (18, "& takes conditions (bool) of one type, not float32 and bool"),
    "1 < i < 3": (17, "comparisons do not chain; write (a < b) & (b < c)"),
    "select(i, 1.0, 2.0)": (11, "select takes a bool and two of one type, not int64 and float32 and float32"),
    "cast(i, float8)": (19, "expected a dtype (float64, float32, float16, bfloat16, int64, int32, int16, int8, bool)"),
    "int8(128)": (11, "128 is no int8"),
    "int8(0.5)": (11, "0.5 is no int8"),
    "float64(1)": (11, "1 is no float64"),
    "1e999": (11, "a float is at most 1.7976931348623157e+308"),
    "99999999999999999999": (11, "an integer is at most 9223372036854775808"),
    "9223372036854775808": (11, "9223372036854775808 is no int64"),
    "bool(1)": (11, "1 is no bool"),
    "float64(i)": (19, "expected a number, found `i`"),
    "sum(in0[i])": (11, "sum goes over at least one axis: sum[r<4](...)"),
    "sum[r<0](in0[i])": (15, "an axis has one extent greater than 0 and is bound once at a time"),
    "sum[r<8](in0[r]) + max[r<4](in0[r])": (34, "an axis has one extent greater than 0 and is bound once at a time"),
    "sum[in0<8](in0[i])": (25, "expected `)`, found `[`"),
    "sum[exp<8](in0[i])": (15, "expected an axis whose name is no word of the language, found `exp`"),
    "sum[r<8](sum[r<8](in0[r]))": (1, "an axis is bound twice in nested scopes"),
    "sum[r<8](in0[r]) + in0[r]": (1, "axis number 1 is used outside what binds it"),
    "sum[r<8](in0[r] < 1.0)": (11, "sum takes numbers, arg reducers one axis; not bool over 1"),
    "argmax[r<8, s<8](in0[r])": (11, "argmax takes numbers, arg reducers one axis; not float32 over 2"),
    "sum[r<8](sum[#5<8](in0[#5]))": (1, "axes that are bound all have names or all have numbers"),
    "sum[#0<8](in0[#0])": (1, "numbers below 1 are those of the tensor's own axes"),
    "in0[#3]": (15, "axis #3 is not bound here"),
    "scatter(in0[i], at=[i]) + 1.0": (1, "a scatter is a whole tensor, with an index for each of its dimensions"),
    "scatter[r<8](in0[r], at=[])": (1, "a scatter is a whole tensor, with an index for each of its dimensions"),
    "e0 + 1.0": (11, "`e0` is not defined by a `where` below"),
    "in0[i]\nwhere e0 = in0[i]": (1, "`e0` is used nowhere"),
    "e0\nwhere e0 = e0": (12, "`e0` is not defined by a `where` below"),
    "e0\nwhere a = in0[i]": (7, "the names of expressions are e0, e1 ..., each of one"),
    "$0[i]": (1, "`$0` is no tensor above"),
    "$1[i] reads in0": (11, "a definition that says what it `reads` reads $0, $1 ..., others labels; not `$1`"),
    'in0[i] axes "i"': (1, "a node has no place and no names"),
    "in0[" + "(" * 100 + "i" + " + i)" * 100 + " % 8]": (1, "an index or a condition has more than 100 levels"),
    "select(in0[i] < 1.0, " * 3000 + "1.0" + ", 2.0)" * 3000: (1, "the reads stand under too many conditions"),
    "".join(f"sum[r{n}<2](" for n in range(300)) + "in0[i]" + ")" * 300: (None, "there are too many axes"),
    "in0[i] ^ 2.0": (18, "expected a name, a number, a string or a sign, found `^`"),
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body[:40])
def test_refused(body):
    column, message = REFUSED[body]
    with pytest.raises(TextError) as e:
        Subgraph.from_text(placed(body))
    assert message in str(e.value)
    assert column in (None, e.value.column)
    assert e.value.line == (4 if "where" in body and column in (7, 12) else 3)


def test_an_error_shows_its_place():
    with pytest.raises(TextError) as e:
        Subgraph.from_text(placed("in0[i] + 1"))
    assert str(e.value) == (
        "line 3, column 18: + takes numbers of one type, not float32 and int64\n"
        "    v1[i<8] = in0[i] + 1\n"
        "                     ^"
    )


def test_leaves():
    p = Placeholder((2,), "int8", "p", ("a.py", 3))
    w = Parameter((), "float64", "größe", None, init=None)
    y = Compute(Definition((2,), Const(1, "int8"), ()), (), "y", ())
    graph = make_graph([y], [p], {w: w})
    assert graph.to_text().splitlines() == [
        "neoflow graph 1",
        "y[i<2] = int8(1) axes",
        't "größe": parameter float64[]',
        'p: placeholder int8[2] @ "a.py":3',
        "inputs p",
        "outputs y",
        "update t = t",
    ]
    assert Graph.from_text(graph.to_text()).to_text() == graph.to_text()
