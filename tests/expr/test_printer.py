"""What is printed: expressions as a person would write them."""

import pytest

import neoflow as nf
from neoflow.expr import Apply, Axis, Const, print_compute, print_expr, print_program, print_tensor

x = nf.placeholder((2, 3, 8, 8), name="x")
w = nf.parameter((5, 3, 3, 3), name="w")
a = nf.placeholder((4, 6), name="a")
v = nf.placeholder((6,), name="v")
d = nf.placeholder((6,), "float64", name="d")
ids = nf.placeholder((4,), "int32", name="ids")
flag = nf.placeholder((6,), "bool", name="flag")
s = nf.placeholder((), name="s")
k = nf.axis(6, "k")

GOLDEN = {
    "y[n, o, p, q] = sum[c, r, t](x[n, c, 2*p + r, 2*q + t] * w[o, c, r, t])": lambda: nf.expr(
        "y[n,o,p,q] = sum(x[n,c,2*p+r,2*q+t] * w[o,c,r,t])", x=x, w=w
    ),
    "y[i] = log(sum[k](exp(a[i, k])))": lambda: nf.expr("y[i] = log(sum(exp(a[i,k])))", a=a),
    "t[i<5, j<6] = select((i >= 1) & (j < 5), a[i - 1, j + 1], 0.0)": lambda: nf.compute(
        (5, 6), lambda i, j: nf.select((i >= 1) & (j < 5), a[i - 1, j + 1], 0), name="t"
    ),
    "t[i] = a[ids[i], 0]": lambda: nf.compute((4,), lambda i: a[ids[i], 0], name="t"),
    "t[i<3] = v[i]": lambda: nf.compute((3,), lambda i: v[i], name="t"),
    "slice[i] = v[2*i + 1]": lambda: v[1::2],
    "slice[i] = v[5 - i]": lambda: v[::-1],
    "sum[i] = sum[j](a[i, j])": lambda: nf.sum(a, axis=1),
    "add[i, j] = a[i, j] + v[j]": lambda: a + v,
    "mul = s * 2.0": lambda: s * 2,
    "t[i] = (v[i] + 1.0) * 2.0": lambda: nf.compute((6,), lambda i: (v[i] + 1) * 2, name="t"),
    "t[i] = v[i] - (1.0 - v[i])": lambda: nf.compute((6,), lambda i: v[i] - (1 - v[i]), name="t"),
    "t[i] = -(v[i] * v[i]) / 3.0": lambda: nf.compute((6,), lambda i: -(v[i] * v[i]) / 3, name="t"),
    "t[i] = 0.1 * d[i] + 1e-06": lambda: nf.compute((6,), lambda i: 0.1 * d[i] + 1e-6, name="t"),
    "t[i] = ~flag[i] | (v[i] > 0.0) & (v[i] < 1.0)": lambda: nf.compute(
        (6,), lambda i: ~flag[i] | (v[i] > 0) & (v[i] < 1), name="t"
    ),
    "t[i] = (flag[i] | flag[5 - i]) & flag[i]": lambda: nf.compute(
        (6,), lambda i: (flag[i] | flag[5 - i]) & flag[i], name="t"
    ),
    "t[i] = cast(i, float32) * v[i]": lambda: nf.compute((6,), lambda i: nf.cast(i, "float32") * v[i], name="t"),
    "t[i] = pow(v[i], 2.0)": lambda: nf.compute((6,), lambda i: v[i] ** 2, name="t"),
    "argmax[i] = argmax[j](a[i, j])": lambda: nf.argmax(a, axis=1),
    "t[i<5] = cast(0, int64)": lambda: nf.compute((5,), lambda i: nf.cast(0, "int64"), name="t"),
    "t[i<5] = cast(2.0, float64)": lambda: nf.compute((5,), lambda i: nf.cast(2.0, "float64"), name="t"),
    "t[i] = maximum(-inf, v[i])": lambda: nf.compute((6,), lambda i: nf.maximum(float("-inf"), v[i]), name="t"),
    "t[i<6] = v[-i % 6]": lambda: nf.compute((6,), lambda i: v[-i % 6], name="t"),
}


@pytest.mark.parametrize("text", GOLDEN)
def test_golden(text):
    tensor = GOLDEN[text]()
    assert print_compute(tensor) == text
    again = nf.expr(text, **{t.name: t for t in tensor.inputs})
    assert again.definition is tensor.definition


def test_tensors_say_their_type():
    assert print_tensor(v) == str(v) == "v = placeholder((6,), 'float32')"
    assert str(w) == "w = parameter((5, 3, 3, 3), 'float32')"
    assert str(a + v) == "add[i, j] = a[i, j] + v[j]    # float32[4, 6]"
    assert repr(v) == "<Placeholder v: float32[6]>"


def test_definitions():
    y = nf.expr("y[p] = sum(v[p + r] * u[r])", v=v, u=nf.placeholder((2,)))
    assert str(y.definition) == "[i<5] = sum[r]($0[i + r] * $1[r])"


def test_names_that_do_not_serve_are_replaced():
    y = nf.compute((6,), lambda v_: v[v_], name="y")
    assert print_compute(y) == "y[v_] = v[v_]"
    clash = nf.compute((6,), lambda i: nf.placeholder((6,), name="i")[i], name="y")
    assert print_compute(clash) == "y[j] = i[j]"
    keyword = nf.axis(6, "lambda")
    total = nf.compute((), lambda: nf.sum(v[keyword], axis=[keyword]), name="y")
    assert print_compute(total) == "y = sum[r](v[r])"
    twice = nf.axis(6, "i")
    both = nf.compute((4,), lambda i: nf.sum(a[i, twice], axis=[twice]), name="y")
    assert print_compute(both) == "y[i] = sum[r](a[i, r])"


def test_programs_tell_equal_names_apart():
    once = v + 1
    text = print_program([v, once, once + 1])
    assert text.splitlines() == [
        "v = placeholder((6,), 'float32')",
        "add[i] = v[i] + 1.0    # float32[6]",
        "add_1[i] = add[i] + 1.0    # float32[6]",
    ]


def test_open_expressions():
    i, j = nf.axis(3, "i"), nf.axis(3, "j")
    assert str(2 * i + j % 2) == "2*i + j % 2"
    assert str((i + j) * 2) == "(i + j) * 2"
    assert str(i - (j - 1)) == "i - (j - 1)"
    assert str((i < j) & (j < 3) | (i >= 1)) == "(i < j) & (j < 3) | (i >= 1)"
    assert str(i // 2 * 2) == "i // 2 * 2"
    assert str(i // (j * 2)) == "i // (j * 2)"
    assert print_expr(Axis(3, 4)) == "axis3"


def test_constants_that_would_fold_say_their_type():
    """`2.0 * 3.0` reads back as 6.0: a product of constants says that it is one."""
    two, three = Const(2.0, "float32"), Const(3.0, "float32")
    y = nf.expr.build((4,), Apply("mul", (two, three)), (), "y")
    assert print_compute(y) == "y[i<4] = cast(2.0, float32) * 3.0"
    assert nf.expr(print_compute(y)).definition is y.definition
    y = nf.expr.build((4,), Apply("exp", (Const(2.0, "float64"),)), (), "y")
    assert print_compute(y) == "y[i<4] = exp(cast(2.0, float64))"
    assert nf.expr(print_compute(y)).definition is y.definition
