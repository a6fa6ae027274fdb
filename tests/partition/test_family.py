"""Families: one operator at any size is one family, another operator is another."""

import pytest

import neoflow as nf
from neoflow.expr import Compute, Parameter, Placeholder, Tensor, topological
from neoflow.nn import functional as F
from neoflow.partition import Subgraph
from tests.strategies import random_program
from tests.text.nouns import nouns_of

x = nf.placeholder


def kernels(*outputs: Tensor) -> tuple[Subgraph, ...]:
    inputs = [t for t in topological(outputs) if isinstance(t, Placeholder) and not isinstance(t, Parameter)]
    return nouns_of(outputs, inputs).subgraphs


def families(*outputs: Tensor) -> list[str]:
    return [s.family.text for s in kernels(*outputs)]


def matmul(m, n, k, text="y[i, j] = sum(a[i, k] * b[k, j])", dtype="float32"):
    a = x((k, m) if "a[k, i]" in text else (m, k), dtype)
    return nf.expr(text, a=a, b=x((n, k) if "b[j, k]" in text else (k, n), dtype))


def conv(n, c, size, o, stride=2, padding=1, kernel=3):
    return F.conv2d(x((n, c, size, size)), x((o, c, kernel, kernel)), None, stride, padding)


def conv_gradients(*sizes):
    y = conv(*sizes)
    return nf.grad(nf.sum(y * y), [t for t in topological([y]) if isinstance(t, Placeholder)])


def layer_norm(rows, width):
    return F.layer_norm(x((rows, width)), x((width,)), x((width,)))


def mi_lstm(batch, inputs, size):
    u, g = F.linear(x((batch, inputs)), x((4 * size, inputs))), F.linear(x((batch, size)), x((4 * size, size)))
    alpha, beta1, beta2 = (x((4 * size,)) for _ in range(3))
    pre = alpha * u * g + beta1 * u + beta2 * g
    return F.lstm_gates(pre, x((batch, size)), {"i": 0, "f": size, "o": 2 * size, "g": 3 * size})


def capsules(n, c, o, size, k):
    return F.capsule_conv(x((n, c, size, size, k, k)), x((o, c, 3, 3, k, k)), stride=2, padding=0)


SAME = {
    "matmul": (matmul, [(64, 64, 64), (64, 128, 32), (64, 32, 64), (5, 7, 64)]),
    "strided convolution": (conv, [(4, 8, 14, 16), (2, 16, 28, 8), (3, 3, 9, 5)]),
    "gradients of a convolution": (conv_gradients, [(4, 8, 14, 16), (2, 16, 28, 8)]),
    "softmax": (lambda *shape: F.softmax(x(shape)), [(32, 48), (64, 100), (128, 1000)]),
    "layer norm": (layer_norm, [(32, 48), (8, 100), (16, 768)]),
    "capsules": (capsules, [(2, 8, 4, 14, 4), (3, 4, 6, 12, 5)]),
    "gates": (mi_lstm, [(8, 12, 16), (4, 20, 30), (64, 28, 128)]),
    "concatenation": (lambda *n: nf.concat([x((m, 5)) for m in n]) * 2.0, [(2, 3, 4), (7, 8, 9), (40, 5, 6)]),
    "embedding": (lambda v, h, n: F.embedding(x((v, h)), x((n,), "int64")) * 2.0, [(10, 8, 4), (1000, 64, 20)]),
    "attention": (lambda b, s, t: nf.expr("y[b,i,j] = sum(a[b,i,k] * c[b,j,k]) * 0.3", a=x((b, s, 8)), c=x((b, t, 8))),
        [(2, 10, 16), (3, 64, 64)]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_one_operator_at_several_sizes_is_one_family(name):
    make, sizes = SAME[name]
    found = [families(*(y if isinstance(y := make(*s), (tuple, list)) else (y,))) for s in sizes]
    assert all(f == found[0] for f in found)


DIFFERENT = {
    "transposed": [
        lambda: matmul(8, 9, 10),
        lambda: matmul(8, 9, 10, "y[i, j] = sum(a[k, i] * b[k, j])"),
        lambda: matmul(8, 9, 10, "y[i, j] = sum(a[i, k] * b[j, k])"),
        lambda: matmul(8, 9, 10, "y[j, i] = sum(a[i, k] * b[k, j])"),
    ],
    "dtype": [lambda d=d: matmul(8, 9, 10, dtype=d) for d in ("float32", "float64", "float16")],
    "stride": [lambda s=s: conv(2, 3, 16, 5, s, 0) for s in (1, 2, 3)],
    "padding": [lambda p=p: nf.pad(x((9,)), [(p, 4 - p)]) for p in (1, 2, 3)],
    "function": [lambda f=f: f(x((40,))) for f in (nf.tanh, nf.exp, nf.sqrt)],
    "reducer": [lambda f=f: f(x((4, 5)), axis=1) for f in (nf.sum, nf.max, nf.min, nf.mean)],
    "reduced axis": [lambda a=a: nf.sum(x((4, 5)), axis=a) for a in (0, 1, (0, 1))],
    "constant": [lambda c=c: x((40,)) * c for c in (0.5, 0.25, 2.0)],
    "rank": [lambda s=s: nf.tanh(x(s)) for s in ((4,), (4, 5), (4, 5, 6))],
    "one point": [lambda s=s: x(s) + x((4, 5)) for s in ((4, 5), (1, 5), (4, 1), (1, 1))],
    "what is shared": [
        lambda: nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=x((8, 8)), b=x((8, 8))),
        lambda: nf.expr("y[i,j] = sum(a[i,k] * a[k,j])", a=x((8, 8))),
        lambda: nf.expr("y[i,j] = sum(a[i,k] * a[j,k])", a=x((8, 8))),
    ],
    "diagonal": [
        lambda: nf.compute((8,), lambda i: a[i, i] + 1) if (a := x((8, 8))) is not None else None,
        lambda: nf.compute((8,), lambda i: a[i, 0] + 1) if (a := x((8, 8))) is not None else None,
    ],
    "offset": [lambda n=n: nf.expr("y[i] = a[i] + a[i + n]", {"i": 20}, a=x((40,)), n=n) for n in (1, 2, 3)],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_operators_are_other_families(name):
    found = ["\n".join(families(make())) for make in DIFFERENT[name]]
    assert len(set(found)) == len(found)


def test_golden():
    (s,) = kernels(layer_norm(32, 48))
    assert s.family.text == (
        "neoflow family 1\n"
        "in0: float32[A, B]\n"
        "in1: float32[B]\n"
        "in2: float32[B]\n"
        "v3[i<A, j<1] = sum[r<B](in0[i, r])\n"
        "v4[i<A, j<1] = v3[i, 0] * float32(1/(B))\n"
        "v5[i<A, j<B] = in0[i, j] - v4[i, 0]\n"
        "v6[i<A, j<B] = v5[i, j] * v5[i, j]\n"
        "v7[i<A, j<1] = sum[r<B](v6[i, r])\n"
        "v8[i<A, j<1] = v7[i, 0] * float32(1/(B))\n"
        "v9[i<A, j<1] = v8[i, 0] + 1e-05\n"
        "v10[i<A, j<1] = rsqrt(v9[i, 0])\n"
        "v11[i<A, j<B] = v5[i, j] * v10[i, 0]\n"
        "v12[i<A, j<B] = v11[i, j] * in1[j]\n"
        "v13[i<A, j<B] = v12[i, j] + in2[j]\n"
        "rows 1\n"
        "outputs v13\n"
    )
    assert len(s.family.digest) == 64


def test_numbers_that_follow_from_extents():
    assert "in0[i, j + (2*C)]" in families(*mi_lstm(8, 12, 16))[-1]
    assert "select(i < A, in0[i, j], in1[i - A, j])" in families(nf.concat([x((3, 5)), x((4, 5))]) * 2.0)[0]
    assert "(i >= 1) & (i < (1 + A)), in0[i - 1], 0.0)" in families(nf.pad(x((9,)), [(1, 2)]) * 2.0)[0]


def test_extents_that_are_equal_by_chance_have_symbols_of_their_own():
    (square,), (oblong,) = kernels(matmul(8, 8, 8)), kernels(matmul(8, 9, 10))
    assert square.family == oblong.family
    assert square.digest != oblong.digest
    assert square.family.text.splitlines()[1:3] == ["in0: float32[A, B]", "in1: float32[B, C]"]


def renamed(outputs: list[Tensor]) -> list[Tensor]:
    """The same program with other names and no places."""
    new: dict[Tensor, Tensor] = {}
    for n, t in enumerate(topological(outputs)):
        if isinstance(t, Compute):
            new[t] = Compute(t.definition, tuple(new[i] for i in t.inputs), f"other{n}")
        else:
            new[t] = Placeholder(t.shape, t.dtype, f"other{n}", None)
    return [new[t] for t in outputs]


def families_follow_from_structure(seeds) -> None:
    by_digest: dict[str, str] = {}
    by_family: dict[str, tuple] = {}
    for seed in seeds:
        outputs = random_program(seed).outputs
        found, again = kernels(*outputs), kernels(*renamed(outputs))
        assert [s.digest for s in found] == [s.digest for s in again]
        for s, t in zip(found, again, strict=True):
            assert s.family == t.family
            assert by_digest.setdefault(s.digest, s.family.digest) == s.family.digest
            assert by_family.setdefault(s.family.digest, signature(s)) == signature(s)


def signature(s: Subgraph) -> tuple:
    """What a family never loses: types, ranks, who reads what."""
    return (
        [(len(v.shape), v.dtype) for v in s.inputs],
        [(len(t.definition.shape), t.definition.body.dtype, t.inputs) for t in s.nodes],
        s.outputs,
        s.rows,
    )


def test_families_of_random_programs():
    families_follow_from_structure(range(40))


@pytest.mark.slow
def test_families_of_many_random_programs():
    families_follow_from_structure(range(100, 1100))
