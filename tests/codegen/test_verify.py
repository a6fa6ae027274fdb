"""The judge of kernels: every wrong kernel is caught, the meaning itself in float32 is accepted. No compiler here."""

import ctypes
import json
from dataclasses import asdict

import ml_dtypes
import numpy as np
import pytest

import neoflow as nf
from neoflow.codegen.verify import Certificate, Judge, verifier_version, verify
from neoflow.errors import CodegenError, RuntimeFault
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.tensor import Compute, topological
from neoflow.graph import make_graph
from neoflow.nn import functional as F
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.rewriting import stages
from neoflow.trace import Trace
from tests.strategies import random_program


def subgraph_of(outputs, inputs):
    """Every compute between `inputs` and `outputs`, as one kernel."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    number, made = {t.uid: n for n, t in enumerate(inputs)}, []
    for t in topological(outputs):
        if isinstance(t, Compute) and t.uid not in number:
            number[t.uid] = len(inputs) + len(made)
            made.append(Node(t.definition, tuple(number[i.uid] for i in t.inputs)))
    values = tuple(Value(t.shape, t.dtype) for t in inputs)
    return Subgraph(values, tuple(made), tuple(number[o.uid] for o in outputs))


def numpy_kernel(subgraph, spoil=None):
    """The subgraph in its own types, by NumPy; `spoil(inputs, outputs)` then does what a wrong kernel would."""
    inputs, outputs = subgraph.tensors()

    def run(arrays):
        given, written = arrays[: len(inputs)], arrays[len(inputs) :]
        feeds = {t: a.reshape(t.shape) for t, a in zip(inputs, given, strict=True)}
        for a, value in zip(written, nf.evaluate(list(outputs), feeds), strict=True):
            a[...] = value.reshape(-1)
        if spoil is not None:
            spoil(given, written)

    return run


def at(array, index, value):
    """Write at an index that may lie outside."""
    place = ctypes.addressof(ctypes.c_char.from_buffer(array)) + index * array.itemsize
    data = np.full(1, value, array.dtype).tobytes()
    ctypes.memmove(place, data, len(data))


def refused(subgraph, spoil, match):
    verify(subgraph, numpy_kernel(subgraph))
    with pytest.raises(CodegenError, match=match):
        verify(subgraph, numpy_kernel(subgraph, spoil), "kernel k7")


# ----------------------------------------------------------------------------------------------------- programs

x, y = nf.placeholder((7, 9), name="x"), nf.placeholder((7, 9), name="y")
k = nf.axis(9, "k")
TWICE = subgraph_of(x * 2.0, [x])
LOG = subgraph_of(nf.log(nf.relu(x)), [x])
PRODUCT = subgraph_of(nf.compute((7, 7), lambda i, j: nf.sum(x[i, k] * y[j, k], axis=[k])), [x, y])
FIRST = subgraph_of(nf.argmax(x, axis=1), [x])
table, ids = nf.placeholder((5, 4), name="table"), nf.placeholder((6,), "int32", name="ids")
TAKE = subgraph_of(nf.compute((6, 4), lambda i, j: table[ids[i] - 1, j]), [table, ids])
n = nf.placeholder((8,), "int32", name="n")
NEXT = subgraph_of(n + 1, [n])
SAME = subgraph_of(nf.equal(x, y), [x, y])


def everywhere(value):
    return lambda inputs, outputs: outputs[0].fill(value)


def where(condition, value):
    """Wrong wherever the first input is so."""

    def spoil(inputs, outputs):
        outputs[0][condition(inputs[0])] = value

    return spoil


def minus_zero(a):
    return (a == 0) & np.signbit(a)


WRONG = {
    "12345 everywhere": (LOG, everywhere(12345.0), r"kernel k7 computes v2\[\d+, \d+\] = 12345.0, NumPy .* draw"),
    "infinity everywhere": (LOG, everywhere(-np.inf), "= -inf, NumPy"),
    "NaN everywhere": (LOG, everywhere(np.nan), "= nan, NumPy"),
    "near": (TWICE, lambda i, o: np.multiply(o[0], 1.001, out=o[0]), r"\d+ of 63 elements differ"),
    "near, of a sum": (PRODUCT, lambda i, o: np.multiply(o[0], 1.001, out=o[0]), "elements differ"),
    "the last element": (TWICE, lambda i, o: at(o[0], 62, 0.5), r"computes v1\[6, 8\]"),
    "the last element unwritten": (TWICE, lambda i, o: at(o[0], 62, np.nan), r"computes v1\[6, 8\] = nan"),
    "one after the end": (TWICE, lambda i, o: at(o[0], 63, 1.0), "writes after the array of output 0"),
    "one before the start": (TWICE, lambda i, o: at(o[0], -1, 1.0), "writes before the array of output 0"),
    "past an input": (TWICE, lambda i, o: at(i[0], 63, 1.0), "writes after the array of input 0"),
    "NaN past the end": (TWICE, lambda i, o: at(o[0], 63, np.nan), "writes after"),
    "an input": (TWICE, lambda i, o: at(i[0], 5, 1.0), "changes input 0 at element 5"),
    "only NaN": (TWICE, where(np.isnan, 0.0), "= 0.0, NumPy nan.* on draw 'nan'"),
    "only infinity": (TWICE, where(np.isposinf, 3e38), "NumPy inf"),
    "only -infinity": (TWICE, where(np.isneginf, np.inf), "= inf, NumPy -inf"),
    "only -0": (TWICE, where(minus_zero, 0.0), "= 0.0, NumPy -0.0"),
    "only denormals": (TWICE, where(lambda a: (a != 0) & (np.abs(a) < 1e-38), 0.0), "computes"),
    "only ties": (
        FIRST,
        lambda i, o: o[0].__setitem__(..., 8 - np.argmax(i[0].reshape(7, 9)[:, ::-1], axis=1)),
        "draw 'whole'",
    ),
    "only the largest index": (TAKE, lambda i, o: o[0].reshape(6, 4).__setitem__(i[1] == 5, 0), "computes"),
    "only the least index": (TAKE, lambda i, o: o[0].reshape(6, 4).__setitem__(i[1] == 1, 0), "computes"),
    "only the largest integer": (NEXT, where(lambda a: a == 2**31 - 1, 2**31 - 1), "= 2147483647, NumPy -2147483648"),
    "an integer unwritten": (NEXT, lambda i, o: at(o[0].view(np.uint8), 31, 0xA5), "computes"),
    "a condition that is no bool": (SAME, lambda i, o: o[0].view(np.uint8).fill(2), "= 2, NumPy"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_caught(name):
    refused(*WRONG[name])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_sum_in_too_narrow_a_type_is_caught(dtype):
    def narrow(inputs, outputs):
        a, b = (i.reshape(7, 9).astype(dtype) for i in inputs)
        outputs[0][...] = (a @ b.T).astype(np.float32).reshape(-1)

    with np.errstate(all="ignore"):
        refused(PRODUCT, narrow, "computes")


LARGE = {
    "near": (lambda i, o: np.multiply(o[0], 1.001, out=o[0]), "draw 'normal'"),
    "only NaN": (lambda i, o: np.nan_to_num(o[0], copy=False, nan=0.5, posinf=np.inf, neginf=-np.inf), "NumPy nan"),
    "the last element": (lambda i, o: at(o[0], o[0].size - 1, 0.25), "computes"),
    "one after the end": (lambda i, o: at(o[0], o[0].size, 0.25), "writes after"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_kernel_has_fewer_draws_and_no_more_room(name):
    a, b = nf.placeholder((190, 160), name="a"), nf.placeholder((170, 160), name="b")
    product = subgraph_of(F.linear(a, b), [a, b])
    assert verify(product, numpy_kernel(product)).draws == ("normal", "whole", "special")
    refused(product, *LARGE[name])


wide, scale = nf.placeholder((3, 20000), name="wide"), nf.placeholder((9,), name="scale")
OPERATORS = {
    "softmax": (F.softmax(x), [x]),
    "layer norm": (F.layer_norm(x, scale, scale), [x, scale]),
    "gelu": (F.gelu(x), [x]),
    "linear": (F.linear(x, y), [x, y]),
    "mean square": (nf.mean(wide * wide, axis=1), [wide]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_one_in_ten_thousand_is_too_much(name):
    """However long the sums: integers are summed exactly."""
    refused(subgraph_of(*OPERATORS[name]), lambda i, o: np.multiply(o[0], 1.0001, out=o[0]), "elements differ")


def test_an_infinity_loosens_nothing_else():
    """One row is infinite; the others are held to their own bounds."""
    rows = subgraph_of(nf.sum(x, axis=1), [x])

    def spoil(inputs, outputs):
        infinite = np.isinf(inputs[0].reshape(7, 9)).any(axis=1)
        outputs[0][~infinite] *= 1.001 if infinite.any() else 1.0

    refused(rows, spoil, "draw 'infinite'")


def test_a_value_unwritten_is_caught_where_the_reference_is_nan():
    """Outputs hold NaN before the run; a kernel that writes only what is positive leaves NaN where 0 belongs."""
    relu = subgraph_of(nf.relu(x), [x])
    refused(relu, lambda i, o: o[0].__setitem__(i[0] <= 0, np.nan), "= nan, NumPy 0.0")


def test_an_infinity_times_what_vanishes_has_no_class():
    """0.5 / x and y * y / 2 leave float32, in which 0 times an infinity is NaN; where they do not, nothing is NaN."""
    product = subgraph_of((0.5 / x) * (y * y * 0.5), [x, y])
    seen = []

    def spoil(inputs, outputs):
        a, b = (i.astype(np.float64) for i in inputs)
        exact = (0.5 / a) * (b * b * 0.5)
        seen.append(np.isnan(outputs[0]) & np.isinf(exact))

    with np.errstate(all="ignore"):
        verify(product, numpy_kernel(product, spoil))
    assert np.any(seen)
    refused(TWICE, where(np.isinf, np.nan), "= nan, NumPy -?inf")


def test_beside_what_vanishes_a_class_is_certain():
    """In the same product: where neither factor is small, an infinity stays one."""
    product = subgraph_of((0.5 / x) * (y * y * 0.5), [x, y])

    def spoil(inputs, outputs):
        certain = np.isinf(outputs[0]) & (inputs[0] == 0) & (np.abs(inputs[1]) > 0.1) & np.isfinite(inputs[1])
        outputs[0][certain] = np.nan

    with np.errstate(all="ignore"):
        refused(product, spoil, "= nan, NumPy -?inf")


def test_what_vanishes_in_float64_leaves_room_for_little():
    a, b = (nf.placeholder((40,), "float64") for _ in range(2))
    product = subgraph_of(a * b * a, [a, b])

    def spoil(inputs, outputs):
        gone = (outputs[0] == 0) & (inputs[0] != 0) & (inputs[1] != 0)
        outputs[0][gone] = 1e-290

    refused(product, spoil, "= 1e-290, NumPy")


# ------------------------------------------------------------------------------------------------------ indices


@pytest.mark.parametrize("is_checked", [True, False])
def test_an_index_that_nobody_needs_may_be_outside(is_checked):
    """Of a tensor between that is written out nowhere, a kernel computes what is read."""
    found = nf.compute((6, 4), lambda i, j: table[ids[i] - 1, j])
    rows = subgraph_of(nf.compute((3, 4), lambda i, j: found[i + i // 2, j]), [table, ids])

    def run(arrays):
        needed = np.int64(arrays[1])[[0, 1, 3]] - 1
        if is_checked and ((needed < 0) | (needed >= 5)).any():
            raise RuntimeFault("an index leaves its tensor")
        arrays[2][...] = np.take(arrays[0].reshape(5, 4), needed, axis=0, mode="clip").reshape(-1)

    if is_checked:
        assert verify(rows, run).faults > 0
    else:
        with pytest.raises(CodegenError, match="does not refuse an index that leaves its tensor, on draw 'outside'"):
            verify(rows, run)


def test_an_index_is_needed_although_it_makes_no_difference():
    """What is looked up is larger than 9 nowhere; a kernel that reads anything does not show."""
    large = subgraph_of(nf.compute((6, 4), lambda i, j: table[ids[i] - 1, j] * 0.0 > 9.0), [table, ids])

    def silent(arrays):
        arrays[2][...] = False

    with pytest.raises(CodegenError, match="does not refuse an index that leaves its tensor, on draw 'outside'"):
        verify(large, silent)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_an_index_outside_must_be_refused(mode):
    def silent(arrays):
        rows = np.take(arrays[0].reshape(5, 4), np.int64(arrays[1]) - 1, axis=0, mode=mode)
        arrays[2][...] = rows.reshape(-1)

    with pytest.raises(CodegenError, match="does not refuse an index that leaves its tensor, on draw 'outside'"):
        verify(TAKE, silent)


def test_an_index_inside_must_not_be_refused():
    def timid(inputs, outputs):
        if (inputs[1] == 5).any():
            raise RuntimeFault("index out of range")

    refused(TAKE, timid, r"refuses indices that are inside \(index out of range\)")


def test_a_refusal_must_write_nowhere_else():
    def wild(arrays):
        if ((arrays[1] < 1) | (arrays[1] > 5)).any():
            at(arrays[2], 24, 1.0)
        numpy_kernel(TAKE)(arrays)

    with pytest.raises(CodegenError, match="writes after the array of output 0, on draw 'outside'"):
        verify(TAKE, wild)


i64 = nf.placeholder((6,), "int64", name="i64")
one = nf.placeholder((1, 4), name="one")
p = nf.placeholder((), "int64", name="p")
LEGAL = {
    "shifted": (nf.compute((6, 4), lambda i, j: table[ids[i] - 1, j]), [table, ids]),
    "far": (nf.compute((6, 4), lambda i, j: table[ids[i] - 1000, j]), [table, ids]),
    "one row": (nf.compute((6, 4), lambda i, j: one[ids[i], j]), [one, ids]),
    "quotient": (nf.compute((6, 4), lambda i, j: table[i64[i] // 7, j]), [table, i64]),
    "difference": (nf.compute((6, 4), lambda i, j: table[i64[i] - i64[5 - i] + 2, j]), [table, i64]),
    "two": (nf.compute((6, 4), lambda i, j: table[i64[i] + ids[i], j]), [table, i64, ids]),
    "one element": (nf.compute((4,), lambda j: table[ids[3], j]), [table, ids]),
    "scalar": (nf.compute((4,), lambda j: table[4 - p[()], j]), [table, p]),
    "of an index": (nf.compute((6,), lambda i: table[ids[nf.cast(i64[i], "int64")], 0]), [table, ids, i64]),
    "scatter": (nf.vjp(nf.compute((6, 4), lambda i, j: table[ids[i] - 2, j]), [table])[0], None),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_integers_are_found(name):
    outputs, inputs = LEGAL[name]
    if inputs is None:
        inputs = [t for t in topological([outputs]) if not isinstance(t, Compute)]
    s = subgraph_of(outputs, inputs)
    drawn = []

    def run(arrays):
        drawn.append([a.copy() for a in arrays])
        numpy_kernel(s)(arrays)

    certificate = verify(s, run)
    assert certificate.faults and certificate.compared
    if name == "shifted":
        legal = np.concatenate([d[1] for d in drawn[:6]])
        assert set(legal) == {1, 2, 3, 4, 5}
        assert all({1, 5} <= set(d[1]) for d in drawn[:6])


def test_guarded_indices_and_folded_ones_have_every_value():
    guarded = nf.compute((6,), lambda i: nf.select((ids[i] >= 0) & (ids[i] < 5), table[ids[i], 0], -1.0))
    folded = nf.compute((6,), lambda i: table[ids[i] % 5, 0])
    for t in (guarded, folded):
        s = subgraph_of(t, [table, ids])
        seen = []

        def run(arrays, s=s, seen=seen):
            seen.extend(arrays[1])
            numpy_kernel(s)(arrays)

        assert verify(s, run).faults == 0
        assert min(seen) == -(2**31) and max(seen) == 2**31 - 1 and set(range(5)) & set(seen)


def test_a_program_with_no_legal_integers_says_so():
    s = subgraph_of(nf.compute((6,), lambda i: table[i64[i] % 2 + 77, 0]), [table, i64])
    with pytest.raises(CodegenError, match="kernel k7 cannot be checked: no integers were found for which every index"):
        verify(s, numpy_kernel(s), "kernel k7")


# ------------------------------------------------------------------------------------------------- certificates


def test_a_certificate_says_what_was_seen():
    certificate = verify(TAKE, numpy_kernel(TAKE), seed=3)
    assert certificate.verifier == verifier_version() and certificate.subgraph == TAKE.digest
    assert certificate.seed == 3 and certificate.draws == ("normal", "positive", "whole", "small", "nan", "infinite")
    assert certificate.compared == 6 * 24 and certificate.doubtful == 0 and certificate.worst == 0
    assert certificate.faults == 4 and certificate.date.startswith("20")
    data = json.loads(json.dumps(asdict(certificate)))
    assert Certificate(**{**data, "draws": tuple(data["draws"])}) == certificate


def test_the_same_seed_draws_the_same():
    seen = []
    for seed in (1, 1, 2):
        arrays = []
        verify(TAKE, lambda a, arrays=arrays: (arrays.append(a[0].copy()), numpy_kernel(TAKE)(a)), seed=seed)
        seen.append(np.concatenate(arrays))
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2], equal_nan=True)


# ------------------------------------------------------------------------------------------------------- laws


def random_subgraphs(seeds):
    """The distinct kernels of random programs with their gradients."""
    seen = set()
    for seed in seeds:
        program = random_program(seed)
        graph = make_graph(program.with_gradients(), list(program.feeds))
        for s in stages(graph, Trace())[1].subgraphs:
            if s.digest not in seen:
                seen.add(s.digest)
                yield s


@pytest.mark.parametrize("start", range(0, 25, 5))
def test_the_meaning_in_its_own_types_is_accepted(start):
    """Some 250 kernels in all, none of constants alone. Little is left in doubt, or the judge were hollow."""
    found = [verify(s, numpy_kernel(s)) for s in random_subgraphs(range(start, start + 5))]
    assert len(found) >= 40
    assert sum(c.doubtful for c in found) < 0.02 * sum(c.compared for c in found)


@pytest.mark.slow
def test_the_meaning_of_thousands_of_kernels_is_accepted():
    for s in random_subgraphs(range(1000, 1200)):
        verify(s, numpy_kernel(s))


UNARY = (
    "exp",
    "log",
    "log1p",
    "expm1",
    "stop_gradient",
    "tanh",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "erf",
    "sin",
    "cos",
    "floor",
    "ceil",
    "round",
    "sign",
    "abs",
    "relu",
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", UNARY)
def test_every_function_in_every_type(name, dtype):
    a, b = nf.placeholder((5, 33), dtype, name="a"), nf.placeholder((5, 33), dtype, name="b")
    function = getattr(nf, name)
    for t in (function(a), function(a * b), function(a - b) / (a + 0.5), nf.sum(function(a) * b, axis=1)):
        s = subgraph_of(t, [i for i in (a, b) if any(i is u for u in topological([t]))])
        verify(s, numpy_kernel(s))


def test_every_function_of_floats_has_an_error():
    floats = {name for name, row in FUNCTIONS.items() if row.typing in ("arith", "real", "single")}
    own_rules = {"mul", "neg", "abs"}
    assert {n for n, row in FUNCTIONS.items() if row.error is not None} == floats - own_rules
    assert {n for n, row in FUNCTIONS.items() if row.monotone} <= floats - own_rules
    assert {row.whole for row in FUNCTIONS.values()} == {"", "always", "of whole"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_sign_of_what_a_narrow_type_rounds_to_zero_is_free(dtype):
    shape = (200, 400)  # so many that a sum of what float32 still holds cancels in float64 alone
    a, b, c = (nf.placeholder(shape, kind, name="x") for kind in ("float32", "float32", "float16"))
    y = nf.compute(shape, lambda i, j: nf.cast(a[i, j] + 2.0 * (b[i, j] * nf.cast(c[i, j], "float32")), dtype))
    s = subgraph_of(y, [a, b, c])
    verify(s, numpy_kernel(s), seed=5)  # draws least, tiny and the least of float16 in one place


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reductions_and_comparisons(dtype):
    a, b = nf.placeholder((5, 33), dtype, name="a"), nf.placeholder((5, 33), dtype, name="b")
    q = nf.axis(33, "q")
    tensors = [
        nf.max(a * b, axis=1),
        nf.argmax(a * b, axis=1),
        nf.argmin(nf.tanh(a) + b, axis=1),
        nf.compute((5,), lambda i: nf.prod(a[i, q] + 0.5, axis=[q])),
        nf.select(a * b < 0.25, a, b),
        nf.cast(a * b, "int32"),
        nf.cast(nf.sum(a * b, axis=1), "float16"),
        nf.pow(nf.abs(a), b),
        a / b,
        nf.select((a < b) | (nf.tanh(a) > b), a, b * b),
    ]
    for t in tensors:
        s = subgraph_of(t, [i for i in (a, b) if any(i is u for u in topological([t]))])
        verify(s, numpy_kernel(s))


@pytest.mark.parametrize("memory", [1 << 30, 0])
def test_a_judge_of_many_kernels_says_of_each_what_verify_says(memory):
    """What it keeps, and what it has no room for and draws again, is the same."""
    for subgraph in (PRODUCT, TAKE):
        judge, run = Judge(subgraph, 3, memory), numpy_kernel(subgraph)
        alone = asdict(verify(subgraph, run, seed=3))
        for _ in range(2):
            found = asdict(judge.judge(run))
            assert {k: v for k, v in found.items() if k != "date"} == {k: v for k, v in alone.items() if k != "date"}
        with pytest.raises(CodegenError, match="computes"):
            judge.judge(numpy_kernel(subgraph, everywhere(7.0)))
        assert (judge.nbytes > 0) == (memory > 0)


def test_a_judge_that_is_told_it_is_enough_has_seen_the_special_values():
    judge = Judge(LOG)
    assert judge.judge(numpy_kernel(LOG), is_enough=lambda: True).draws == ("infinite",)
    assert judge.judge(numpy_kernel(LOG), is_enough=lambda: False).draws[0] == "infinite"
    with pytest.raises(CodegenError, match="computes"):
        judge.judge(numpy_kernel(LOG, everywhere(7.0)), is_enough=lambda: True)
