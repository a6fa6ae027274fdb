"""Index notation: the same definitions as the Python notation, extents, printed text read back, errors with a caret."""

import re

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import Compute, print_compute, topological
from tests.strategies import random_program

f = nf.placeholder
image = f((2, 4, 9, 9), name="x")
kernel = f((6, 4, 3, 3), name="w")
a, b = f((5, 7), name="a"), f((7, 3), name="b")
v = f((7,), name="v")
s = f((), name="s")
ids = f((4, 2), "int32", name="ids")
capsules = f((2, 3, 8, 8, 2, 2), name="x")
votes = f((5, 3, 3, 3, 2, 2), name="w")


def axes(**extents):
    return [nf.axis(n, name) for name, n in extents.items()]


def conv():
    c, r, t = axes(c=4, r=3, t=3)
    return nf.compute(
        (2, 6, 4, 4), lambda n, o, p, q: nf.sum(image[n, c, 2 * p + r, 2 * q + t] * kernel[o, c, r, t], axis=[c, r, t])
    )


def padded():
    c, r, t = axes(c=4, r=3, t=3)

    def body(n, o, p, q):
        h, w = p + r - 1, q + t - 1
        inside = (h >= 0) & (h < 9) & (w >= 0) & (w < 9)
        return nf.sum(nf.select(inside, image[n, c, h, w], 0) * kernel[o, c, r, t], axis=[c, r, t])

    return nf.compute((2, 6, 9, 9), body)


def capsule():
    c, r, t, k = axes(c=3, r=3, t=3, k=2)
    return nf.compute(
        (2, 5, 3, 3, 2, 2),
        lambda n, o, p, q, i, j: nf.sum(
            capsules[n, c, 2 * p + r, 2 * q + t, i, k] * votes[o, c, r, t, k, j], axis=[c, r, t, k]
        ),
    )


def softmax():
    k, m = axes(k=7, m=7)
    top = nf.compute((5,), lambda i: nf.max(a[i, k], axis=[k]))
    return nf.compute((5, 7), lambda i, j: nf.exp(a[i, j] - top[i]) / nf.sum(nf.exp(a[i, m] - top[i]), axis=[m]))


def matmul():
    (k,) = axes(k=7)
    return nf.compute((5, 3), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))


def pooling(reducer):
    r, t = axes(r=2, t=2)
    return nf.compute((2, 4, 4, 4), lambda n, c, p, q: reducer(image[n, c, 2 * p + r, 2 * q + t], axis=[r, t]))


def mean_and_variance():
    k, m = axes(k=7, m=7)
    mean = nf.compute((5,), lambda i: nf.sum(a[i, k], axis=[k]) / 7)
    return nf.compute((5,), lambda i: nf.sum((a[i, m] - mean[i]) ** 2, axis=[m]) / 7)


OPERATORS = {
    "convolution": (
        "y[n,o,p,q] = sum(x[n,c,2*p+r,2*q+t] * w[o,c,r,t])",
        {"x": image, "w": kernel},
        conv,
    ),
    "convolution by stride": (
        "y[n,o,p,q] = sum(x[n,c,stride*p+r,stride*q+t] * w[o,c,r,t])",
        {"x": image, "w": kernel, "stride": 2},
        conv,
    ),
    "padded convolution": (
        "y[n,o,p<9,q<9] = sum((x[n,c,p+r-1,q+t-1] if 0 <= p+r-1 and p+r-1 < 9 and 0 <= q+t-1 < 9 else 0) * w[o,c,r,t])",
        {"x": image, "w": kernel},
        padded,
    ),
    "capsule convolution": (
        "y[n,o,p,q,i,j] = sum(x[n,c,2*p+r,2*q+t,i,k] * w[o,c,r,t,k,j])",
        {"x": capsules, "w": votes},
        capsule,
    ),
    "matmul": ("y[i,j] = sum(a[i,k] * b[k,j])", {"a": a, "b": b}, matmul),
    "matmul, explicit": ("y[i,j] = sum[k](a[i,k] * b[k,j])", {"a": a, "b": b}, matmul),
    "matmul, axis=": ("y[i,j] = sum(a[i,k] * b[k,j], axis=[k])", {"a": a, "b": b}, matmul),
    "max pooling": ("y[n,c,p<4,q<4] = max(x[n,c,2*p+r,2*q+t])", {"x": image}, None),
    "average pooling": (
        "y[n,c,p,q] = sum[r<2,t<2](x[n,c,2*p+r,2*q+t]) / 4",
        {"x": image},
        lambda: nf.compute((2, 4, 4, 4), lambda n, c, p, q: _window(n, c, p, q) / 4),
    ),
    "softmax": (
        "m[i] = max(a[i,k]); y[i,j] = exp(a[i,j] - m[i]) / sum(exp(a[i,k] - m[i]))",
        {"a": a},
        softmax,
    ),
    "variance": (
        """
        mean[i] = sum(a[i,k]) / n   # of a row
        y[i] = sum((a[i,k] - mean[i])**2) / n
        """,
        {"a": a, "n": 7},
        mean_and_variance,
    ),
    "embedding": ("y[t,u,h] = a[ids[t,u], h]", {"a": a, "ids": ids}, lambda: nf.take(a, ids)),
    "one hot": (
        "y[t,u,k] = select(ids[t,u] == k, 1.0, 0.0)",
        {"ids": ids, "extents": {"k": 5}},
        lambda: nf.one_hot(ids, 5),
    ),
    "transpose": ("y[i,j] = a[j,i]", {"a": a}, lambda: nf.transpose(a)),
    "flip": ("y[i] = v[6 - i]", {"v": v}, lambda: nf.flip(v)),
    "upsampling": ("y[i] = v[i // 2]", {"v": v}, lambda: nf.repeat(v, 2, 0)),
    "tiling": ("y[i] = v[i % 7]", {"v": v, "extents": {"i": 21}}, lambda: nf.tile(v, 3)),
    "concat": (
        "y[i] = v[i] if i < 7 else w[i - 7]",
        {"v": v, "w": v, "extents": {"i": 14}},
        lambda: nf.concat([v, v]),
    ),
    "lower triangle": ("y[i,j] = select(j <= i, a[i,j], 0)", {"a": a}, lambda: nf.tril(a)),
    "rank 0": ("y = s * 2 + 1", {"s": s}, lambda: nf.compute((), lambda: s[()] * 2 + 1)),
    "argmax": (
        "y[i] = argmax(a[i,k])",
        {"a": a},
        lambda: nf.argmax(a, axis=1),
    ),
    "norm": (
        "y[i] = sqrt(sum(a[i,k]**2)) * scale",
        {"a": a, "scale": 0.5},
        lambda: nf.compute((5,), lambda i: nf.sqrt(nf.sum(a[i, K] ** 2, axis=[K])) * 0.5),
    ),
    "indices as values": (
        "y[i,j] = a[i,j] * cast(i + 2*j, float32)",
        {"a": a},
        lambda: nf.compute((5, 7), lambda i, j: a[i, j] * nf.cast(i + 2 * j, "float32")),
    ),
    "siblings": (
        "y[i] = sum(a[i,k]) / sum(v[k]) - prod(v[k])",
        {"a": a, "v": v},
        lambda: nf.compute(
            (5,), lambda i: nf.sum(a[i, K], axis=[K]) / nf.sum(v[K], axis=[K]) - nf.prod(v[K], axis=[K])
        ),
    ),
    "logic": (
        "y[i] = (v[i] > 0) & ~(v[i] >= 1) | (v[i] != v[i]) or not -2 < v[i] <= 3",
        {"v": v},
        lambda: nf.compute((7,), lambda i: (v[i] > 0) & ~(v[i] >= 1) | (v[i] != v[i]) | ~((v[i] > -2) & (v[i] <= 3))),
    ),
}
K = nf.axis(7, "k")


def _window(n, c, p, q):
    r, t = axes(r=2, t=2)
    return nf.sum(image[n, c, 2 * p + r, 2 * q + t], axis=[r, t])


@pytest.mark.parametrize("case", [k for k, row in OPERATORS.items() if row[2] is not None])
def test_both_notations_give_the_same_definition(case):
    text, bindings, python = OPERATORS[case]
    written, expected = nf.expr(text, **bindings), python()
    assert written.definition is expected.definition, f"\n{written}\n{expected}"
    assert [t.uid for t in written.inputs] == [t.uid for t in expected.inputs] or ";" in text or "\n" in text
    assert nf.expr(text, **bindings).definition is written.definition


UNARY = "exp log log1p expm1 stop_gradient tanh sigmoid sqrt rsqrt erf sin cos abs sign floor ceil relu logical_not"
BINARY = "maximum minimum pow equal not_equal logical_and logical_or"


@pytest.mark.parametrize("name", f"{UNARY} {BINARY}".split())
def test_every_function_under_its_public_name(name):
    function = getattr(nf, name)
    logic, unary = name.startswith("logical"), name in UNARY.split()
    x = f((7,), "bool" if logic else "float32", name="x")
    if unary:
        written, expected = nf.expr(f"y[i] = {name}(x[i])", x=x), nf.compute((7,), lambda i: function(x[i]))
    else:
        written = nf.expr(f"y[i] = {name}(x[i], x[6-i])", x=x)
        expected = nf.compute((7,), lambda i: function(x[i], x[6 - i]))
    assert written.definition is expected.definition


def test_names_and_outputs():
    y = nf.expr("y[i] = v[i]", v=v, name="z")
    assert y.name == "z"
    assert y.axis_names == ("i",)
    first, second = nf.expr("p[i] = v[i] + 1\nq[i] = p[i] * 2", v=v, outputs=["p", "q"])
    assert (first.name, second.name) == ("p", "q")
    assert second.inputs[0] is first
    assert nf.expr("s[i] = v[i]; t = sum(s[i])", v=v).shape == ()


def test_meaning():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 7)).astype("f"), rng.normal(size=(7, 3)).astype("f")
    (z,) = nf.evaluate(nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b), {a: x, b: y})
    np.testing.assert_allclose(z, x @ y, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y[p] = sum(v[2*p + r] * u[r])", (3,)),
        ("y[p] = sum(v[p + 2*r] * u[r])", (5,)),
        ("y[p] = v[6 - p]", (7,)),
        ("y[p] = v[3*p]", (3,)),
        ("y[p] = v[p // 3]", (21,)),
        ("y[p] = v[(p + 1) // 3]", (20,)),
        ("y[p] = v[3*p + 1] + v[2*p]", (2,)),
        ("y[p,q] = v[p + q] * u[q]", (6, 2)),
        ("y[p,q] = u[q] * v[p + q] * v[2*p]", (4, 2)),
        ("y[p,q] = v[p + q] * v[2*q] * v[3*p]", (3, 4)),
        ("y[p] = v[p] if p > 3 else 0", (7,)),
        ("y[p] = v[p] if v[p] > 0 else 0", (7,)),
        ("y[p] = sum[r<4](v[p + r])", (4,)),
        ("y[p<3] = v[p]", (3,)),
        ("y[p] = v[p] + v[p+1]", (6,)),
        ("y[p] = v[p+1] - v[p] * v[2*p]", (4,)),
        ("y[p] = v[p] + v[p+1] if p+1 < 7 else 0.0", (7,)),
        ("y[p] = v[p] + (v[p+1] if p+1 < 7 else 0.0)", (7,)),
        ("y[p] = (v[p-1] if p >= 1 else 0.0) + (v[p] if p < 5 else 1.0)", (7,)),
        ("y[p<n-1] = v[p + n]", (2,)),
    ],
)
def test_extents(text, shape):
    u = f((2,), name="u")
    assert nf.expr(text, v=v, u=u, n=3).shape == shape


def round_trips(seeds) -> int:
    count = 0
    for seed in seeds:
        known, names = {}, {}
        for n, t in enumerate(topological(random_program(seed).outputs)):
            names[t.uid] = f"T{n}"
            if isinstance(t, Compute) and len(t.inputs) == len(set(t.inputs)):
                text = print_compute(t, names)
                again = nf.expr(text, **known)
                assert again.definition is t.definition, f"seed {seed}: {text}\nread back as {again}"
                assert [i.uid for i in again.inputs] == [i.uid for i in t.inputs]
                count += 1
            known[f"T{n}"] = t
    return count


def test_what_is_printed_reads_back():
    for text, bindings, _ in OPERATORS.values():
        y = nf.expr(text, **bindings)
        assert nf.expr(print_compute(y), **{t.name: t for t in y.inputs}).definition is y.definition
    assert round_trips(range(40)) > 150


def scatters():
    """Repeated, computed, constant and rank-0 targets; values that read, reduce, choose, cast; no axis at all."""
    places, n = f((5,), "int32", name="places"), f((), "int64", name="n")
    g, table = f((5, 3), name="g"), f((7, 3), name="table")
    i, j, k = axes(i=5, j=3, k=3)
    yield nf.scatter((7, 3), [i, j], (places[i], j), g[i, j] * 2.0)
    yield nf.scatter((7,), [i], (places[i],), nf.sum(g[i, k], axis=[k]))
    yield nf.scatter((7, 4), [i], (places[i], 2), 1.0)
    yield nf.scatter((9,), [i, j], (places[i] + places[j],), g[i, j])
    yield nf.scatter((7, 5), [i, j], (nf.select(places[i] > 2, places[i], 0), i), nf.select(i > j, g[i, j], 0.0))
    yield nf.scatter((7,), [i], (places[4 - i],), nf.cast(places[i], "int8"))
    yield nf.scatter((7,), [i], (i + 2,), i)
    yield nf.scatter((7,), [], (n,), 3.5)
    for y in (nf.take(table, places) ** 2, nf.gather(table, f((7, 2), "int64", name="columns"))):
        yield from (t for t in topological(nf.vjp(y, [table], f(y.shape, name="g"))) if isinstance(t, Compute))


def test_scatters_read_back():
    for t in scatters():
        text = print_compute(t)
        again = nf.expr(text, **{i.name: i for i in t.inputs})
        assert again.definition is t.definition, f"{text}\nread back as {again}"
        assert [i.uid for i in again.inputs] == [i.uid for i in t.inputs]
    assert sum("scatter[" in print_compute(t) for t in scatters()) == 8


@pytest.mark.slow
def test_what_is_printed_reads_back_over_many_programs():
    print(f"\n{round_trips(range(1000, 3000))} definitions read back")


ERRORS = {
    "y[i] = v[i] +": ("the text does not parse: invalid syntax", 13),
    "y[i] = (v[i]": ("the text does not parse: '(' was never closed", 7),
    "v[i] + 1": ("a statement is an assignment: y[i, j] = expression", 0),
    "y[i] += v[i]": ("a statement is an assignment", 0),
    "y[i] = v[i]\n    + v[i]": ("a statement is an assignment", 0),
    "(y, z) = v[i]": ("`(y, z)` cannot be assigned to; write y[i, j] = ... or y = ...", 0),
    "v[i] = v[i]": ("`v` is already given; each tensor is defined once, take another name", 0),
    "y[i] = v[i]; y[i] = v[i]": ("`y` is already given", 13),
    "y[i,i] = a[i,i]": ("index `i` stands twice on the left", 4),
    "y[i,0] = v[i]": ("`0` is no index; write a name, or name < extent", 4),
    "y[v] = a[v,v]": ("index `v` is also the name of a tensor; take another name", 2),
    "y[n] = v[n]": ("index `n` is also the name of a parameter; take another name", 2),
    "y[i<0] = v[i]": ("the extent of `i` is no integer > 0", 4),
    "y[i<a] = v[i]": ("tensor a of shape (5, 7) stands where a scalar is needed; index it with 2 axes", 4),
    "y[i<4] = sum[i<5](v[i])": ("`i` has extent 4 elsewhere, here 5", 13),
    "y[i] = vv[i]": ("unknown name `vv`; did you mean `v`? bound here: ", 7),
    "y[i] = v[i] * alpha": ("unknown name `alpha`; bound here: ", 14),
    "y[i] = y[i]": ("`y` is being defined here and cannot be read", 7),
    "y[i] = v[k]": ("index `k` is neither on the left nor inside a reduction over it; add it to the left or ", 9),
    "y[i] = v[i] * k": ("unknown name `k`", 14),
    "y[i] = a[i]": ("a has rank 2 (shape (5, 7)) but is read with 1 indices", 7),
    "y[i] = v[i, 0]": ("v has rank 1 (shape (7,)) but is read with 2 indices", 7),
    "y[i] = v[v[i]]": ("index 0 of v is `v[i]` of type float32; an index is an integer", 7),
    "y[i] = v[0.5]": ("the float 0.5 meets a value of type int64; cast it first", 7),
    "y[i] = n[i]": ("`n` is the number 3 and cannot be indexed", 7),
    "y[i] = v[1:3]": ("slices are not part of index notation; name an index for each dimension", 9),
    "y[i] = a[i][0]": ("`a[i]` is no tensor and cannot be indexed", 7),
    "y[i] = v + 1": ("tensor v of shape (7,) stands where a scalar is needed; index it with 1 axes", 7),
    "y[i] = v[i] * ids[0,0]": (
        "* mixes `v[i]` (float32) and `ids[0, 0]` (int32); cast one: nf.cast(..., 'float32')",
        7,
    ),
    "y[i] = v[i] and 1": ("& takes conditions (bool), but `v[i]` is float32", 7),
    "y[i] = 3 and 4": ("`3 and 4` joins numbers; and, or, & and | join conditions", 7),
    "y[i] = v[i] @ v[i]": ("`v[i] @ v[i]` is not part of index notation; write sum(x[i, k] * w[k, j])", 7),
    "y[i] = v[i] ^ 2": ("^ takes integers or conditions, but `v[i]` and `2` are not; a power is written x ** y", 7),
    "y[i] = v[i] * (1 << 65)": ("the shifted number `1 << 65` is too large", 15),
    "y[i] = clip(v[i], 0)": ("clip takes 3 arguments, got 2", 7),
    "y[i] = v[-8] + v[i]": (
        "read `v[-8]` leaves its tensor: index 0 is `-8` = -8 at every point, but the extent is 7",
        7,
    ),
    "y[i] = v.shape": ("`v.shape` is not part of index notation; bind the value by keyword instead", 7),
    "y[i] = (v[i], 1)": ("`(v[i], 1)` is not part of index notation; an expression is one scalar", 7),
    "y[i] = 'text'": ("`'text'` is not part of index notation", 7),
    "y[i] = v[i] is v[i]": ("`v[i] is v[i]` is not part of index notation; compare numbers", 7),
    "y[i] = v[i // 0]": ("`i // 0` has no value", 9),
    "y[i] = 1 / 0": ("`1 / 0` has no value: division by zero", 7),
    "y[i] = 9**9**9": ("the power of numbers `9**9**9` is too large", 7),
    "y[i] = sqroot(v[i])": (
        "unknown function `sqroot`; did you mean `sqrt`? the functions are abs, all, any, argmax",
        7,
    ),
    "y[i] = v(i)": ("`v` is a tensor or a number, no function; read a tensor with v[i]", 7),
    "y[i] = a.b(i)": ("`a.b` is not a function of index notation", 7),
    "y[i] = exp(v[i], 2)": ("exp takes 1 argument, got 2", 7),
    "y[i] = exp(x=v[i])": ("exp takes its arguments by position", 11),
    "y[i] = select(v[i] > 0, 1)": ("select takes a condition and two values, got 2 arguments", 7),
    "y[i] = select(v[i], 1, 2)": ("select needs a condition, but `v[i]` is float32; compare it: x != 0", 7),
    "y[i] = max(v[i], 0)": ("max takes one argument, got 2; the larger of two is maximum(a, b)", 7),
    "y[i] = sum(v[i])": ("sum has nothing to go over: every index in its argument is on the left or bound ", 7),
    "y[i] = max(sum(a[i,k]))": ("max has nothing to go over", 7),
    "y[i] = sum[i](v[i])": ("sum goes over `i`, which is on the left; take another name", 11),
    "y = sum[i](sum[i](v[i]))": ("sum goes over `i`, which is bound by a reduction around this sum; take another", 15),
    "y = sum[i]": ("`sum[i]` lacks its argument: sum[k](...)", 4),
    "y = median[i](v[i])": ("`median` is no reducer; the reducers are sum, prod, max, min, argmax, argmin, mean,", 4),
    "y = sum(v[i], keepdims=True)": ("sum takes axis=[...] and nothing else by keyword", 14),
    "y = sum(v[i] > 0)": ("sum takes numbers, but `v[i] > 0.0` is bool; cast it: nf.cast(..., 'int32')", 4),
    "y = argmax(a[i,k])": ("argmax goes over exactly one axis, not 2", 4),
    "y[i] = cast(v[i])": ('cast takes an expression and a dtype: cast(x[i], "float32")', 7),
    "y[i] = cast(v[i], float33)": ("`float33` is not one of float64, float32,", 18),
    "y[i] = a[i,i]": ("index `i` has extent 5 in dimension 0 of a (5, 7) and 7 in dimension 1 of a (5, 7); they ", 9),
    "y[i] = sum(a[i,k] * b[i,k])": ("index `i` has extent 5 in dimension 0 of a (5, 7) and 7 in dimension 0", 22),
    "y[j] = 1.0": ("the extent of index `j` cannot be inferred: it stands in no read that determines it; give ", 2),
    "y[p,q] = v[p+q]": ("the extent of index `p` cannot be inferred: it stands in no read that determines it", 11),
    "y[i] = v[i-1] if i > 0 else 0": (
        "the extent of index `i` cannot be inferred: every read it stands in is under a condition on it; give ",
        9,
    ),
    "y[i] = v[i] if i < 7 else v[i - 7]": ("the extent of index `i` cannot be inferred: every read it stands in is", 9),
    "y[i] = v[i-1]": ("no extent of `i` keeps index 0 of v (7,), `i - 1`, inside its extent 7; guard", 7),
    "y[i] = v[i-1] + v[i]": (
        "read `v[i - 1]` leaves its tensor: index 0 is `i - 1` = -1 at i=0, but the extent is 7",
        7,
    ),
    "y[i] = v[i] + v[7]": ("read `v[7]` leaves its tensor: index 0 is `7` = 7 at every point, but the extent is 7", 14),
    "ä[i] = v[i] + ü[i]": ("unknown name `ü`", 14),
    "y[i<7] = scatter[k](v[k])": ("scatter takes a value, and where it is added: scatter[b](x[b], at=[ids[b]])", 9),
    "y[i<7] = scatter[k](v[k], at=k)": ("scatter takes a value, and where it is added", 9),
    "y[i<7] = scatter[k](v[k], at=[k], to=[k])": ("scatter takes a value, and where it is added", 9),
    "y[i<7] = scatter(v[k], at=[k])": ("index `k` has no value here; a scatter reads the indices it names: ", 19),
    "y[i<7] = scatter[k](v[i], at=[k])": ("index `i` has no value here; a scatter reads the indices it names", 22),
    "y[i<7] = scatter[i](v[i], at=[i])": ("scatter goes over `i`, which is on the left; take another name", 17),
    "y[i<7] = scatter[k,k](v[k], at=[k])": ("scatter goes over distinct axes", 9),
    "y[i<7] = 2 * scatter[k](v[k], at=[k])": ("a scatter is the whole right side of a statement; define what", 13),
    "y[i<7] = scatter[k](v[k], at=[k, k])": ("`y` has 1 dimensions but scatters to 2 indices", 0),
    "y[i<7] = scatter[k](v[k], at=[k + 1])": ("index 0 is `k + 1` = 7 at k=6, but the extent is 7", 0),
    "y[i<7] = scatter[k](v[k], at=[0.5])": ("the float 0.5 meets a value of type int64; cast it first", 9),
    "y[i] = scatter[k](v[k], at=[k])": ("the extent of index `i` cannot be inferred", 2),
    "y[i<7] = scatter[k]": ("`scatter[k]` lacks its argument: scatter[k](...)", 9),
    "": ("the text has no statement; write for example y[i] = sum(x[i, k])", None),
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_point_into_the_text(text):
    message, column = ERRORS[text]
    with pytest.raises(nf.ExpressionError) as caught:
        nf.expr(text, v=v, a=a, b=b, n=3, ids=ids)
    said = str(caught.value)
    assert re.match(r"\S*test_notation\.py:\d+: ", said), said
    assert message in said
    if column is not None:
        *_, line, caret = said.splitlines()
        assert line.strip() in [part.strip() for part in text.splitlines()]
        assert caret.index("^") - 4 == column, said


def test_the_caret_finds_its_line():
    text = """
        p[i] = v[i] + 1
        q[i] = exp(
            p[i] * r[i])
    """
    with pytest.raises(nf.ExpressionError, match="unknown name `r`") as caught:
        nf.expr(text, v=v)
    assert str(caught.value).splitlines()[1:] == ["    p[i] * r[i])", "           ^"]


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        ({"v": [1, 2]}, "`v` is bound to a list; bind tensors (nf.placeholder ...) and numbers"),
        ({"v": v, "extents": {"k": 3}}, "extents gives `k`, which is no index here; the indices are `i`"),
        ({"v": v, "extents": {"i": 0}}, "extents gives `i` as 0; an extent is an integer greater than 0"),
        ({"v": v, "extents": {"i": 2.5}}, "extents gives `i` as 2.5"),
        ({"v": v, "outputs": ["z"]}, "outputs asks for `z`, which the text does not define; it defines `y`"),
    ],
)
def test_errors_of_arguments(bindings, message):
    with pytest.raises(nf.ExpressionError) as caught:
        nf.expr("y[i] = v[i]", **bindings)
    assert message in str(caught.value)


def test_nothing_is_evaluated():
    for text in ("y = __import__('os').getcwd()", "y = [1 for i in v]", "y = (lambda: 1)()", "y = f'{v}'"):
        with pytest.raises(nf.ExpressionError):
            nf.expr(text, v=v)


def test_the_package_is_the_function():
    import neoflow.expr

    assert callable(neoflow.expr)
    assert neoflow.expr("y[i] = v[i]", v=v).shape == (7,)


@pytest.mark.parametrize("join", [" < ", " and "])
def test_long_chains_of_conditions_are_refused(join):
    v = nf.placeholder((7,), name="v")
    term = "v[i]" if join == " < " else "(v[i] < 1.0)"
    conditions = join.join([term] * 1002)
    with pytest.raises(nf.ExpressionError, match=r"a chain of 100[12] conditions is too long: at most 1000"):
        nf.expr(f"y[i] = 1.0 if {conditions} else 0.0", v=v)
    allowed = join.join([term] * 1000)
    assert nf.expr(f"y[i] = 1.0 if {allowed} else 0.0", v=v).shape == (7,)
