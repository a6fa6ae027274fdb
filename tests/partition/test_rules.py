"""Every rule of fusion where it applies and where it is refused, with its sentence; and the laws all rules keep."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import PartitionError
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import make_graph
from neoflow.partition import RIDERS, RULES, object_for_gpu, object_to, partition
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernels, Merge
from neoflow.partition.rules import EPILOGUES, INLINING, PARTS, ROW_KERNELS, SHARING, SIBLINGS, VIEWS
from neoflow.partition.storage import Storing
from neoflow.rewriting import sequence
from neoflow.roofs import STATED
from tests.graph.programs import anything, recurrences
from tests.partition.test_fuse import kernels, run
from tests.strategies import random_program

X, Y = nf.placeholder((8, 64), name="x"), nf.placeholder((8, 64), name="y")
W = nf.placeholder((64, 64), name="w")
K, R = nf.axis(64, "k"), nf.axis(8, "r")


def compute(name, body, shape=(8, 64)):
    return nf.compute(shape, body, name=name)


def decided(rule, outputs, choose=lambda *_: None, **options):
    """Subject to reason of what a rule was asked: where it was applied, where not; any legal candidate, unless told."""
    inputs = [t for t in topological(outputs) if isinstance(t, Placeholder)]
    found = partition(make_graph(outputs, inputs), choose=choose, **options)
    mine = [d for d in found.decisions if d.rule == rule.name]
    yes = {d.subject: d.verdict.reason for d in mine if d.verdict.ok}
    return yes, {d.subject: d.verdict.reason for d in mine if not d.verdict.ok}


def kept(*names):
    """A choice that keeps the computes of these names in memory."""
    return lambda rule, facts, state, t: "so chosen" if rule == INLINING.name and t.name in names else None


def product(name, x=X, w=W):
    return compute(name, lambda i, j: nf.sum(x[i, K] * w[K, j], axis=[K]))


# ----------------------------------------------------------------------------------------- inlining


def test_a_compute_is_inlined_into_its_readers():
    a = compute("a", lambda i, j: X[i, j] + 1.0)
    b, c = compute("b", lambda i, j: a[i, j] * 2.0), compute("c", lambda i, j: a[i, j] * Y[i, j])
    assert decided(INLINING, [b])[0] == {"a[8, 64]": "its reader computes it in place"}
    assert decided(INLINING, [b, c])[0] == {"a[8, 64]": "each reader recomputes it"}


def test_what_is_asked_for_summed_or_compared_is_not_inlined():
    a = compute("a", lambda i, j: nf.exp(X[i, j]))
    s = compute("s", lambda i: nf.max(a[i, K], axis=[K]), (8,))
    d = compute("d", lambda i, j: nf.select(a[i, j] == s[i], Y[i, j], 0.0))
    yes, no = decided(INLINING, [d])
    assert not yes and no == {
        "d[8, 64]": "it is an output of the program",
        "s[8]": "it is a reduction: recomputing it for each reader repeats the whole sum",
        "a[8, 64]": "d compares it for equality, so its bits must be stored once",
    }


def test_what_is_compared_through_a_slice_is_not_inlined():
    a = compute("a", lambda i, j: nf.exp(X[i, j]))
    row = compute("row", lambda j: a[0, j], (64,))
    d = compute("d", lambda j: nf.select(row[j] == 1.0, 1.0, 0.0), (64,))
    _, no = decided(INLINING, [d])
    assert no["a[8, 64]"] == "d compares it for equality, so its bits must be stored once"


# ----------------------------------------------------------------------------------------- views


IDS = nf.placeholder((3,), "int64", name="ids")


def test_what_is_looked_up_is_inlined_where_its_source_checks_the_index():
    a = compute("a", lambda i, j: X[i, j] * 2.0)
    b = compute("b", lambda i, j: a[IDS[i], j], (3, 64))
    assert decided(INLINING, [b])[0] == {"a[8, 64]": "its reader computes it in place"}


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (lambda i: (2 * i) % 5, (4, 64)),  # another extent than x has
        (lambda i: i + 2, (4, 64)),
        (lambda i: 0 * i, (1, 64)),  # an extent of 1, of which nothing is left
        (lambda i: nf.select(i < 4, i, 0), (8, 64)),
    ],
)
def test_what_is_looked_up_is_not_inlined_where_the_check_would_be_lost(index, shape):
    a = compute("a", lambda i, j: X[index(i), j] * 2.0, shape)
    b = compute("b", lambda i, j: a[i, j] + 1.0, shape)  # through what is recomputed too
    c = compute("c", lambda i, j: nf.exp(b[IDS[i], j]), (3, 64))
    name = "b" if shape[0] == 1 else "a"
    reason = "it is looked up at indices from data, and they are checked by its own extents"
    assert decided(INLINING, [c])[1][f"{name}{list(shape)}"] == reason
    f = nf.compile([c], inputs=[X, IDS])
    x = np.ones((8, 64), np.float32)
    for good in (0, shape[0] - 1):
        np.testing.assert_allclose(f(x, np.full(3, good))[0], np.full((3, 64), np.exp(3.0)), rtol=1e-6)
    for bad in (-1, shape[0], 7 + shape[0]):
        with pytest.raises(nf.RuntimeFault, match="index out of range"):
            f(x, np.array([0, bad, 0]))


def test_a_contiguous_run_of_what_is_stored_is_a_view():
    row = compute("row", lambda j: X[2, j], (64,))
    half = compute("half", lambda j: row[32 + j], (32,))
    yes, _ = decided(VIEWS, [compute("z", lambda j: half[j] * 2.0, (32,))])
    assert yes == {
        "row[64]": "its elements lie in x in order, from 128 on",
        "half[32]": "its elements lie in row in order, from 32 on",
    }


def test_an_output_or_a_run_of_what_is_recomputed_is_no_view():
    a = compute("a", lambda i, j: X[i, j] + 1.0)
    row = compute("row", lambda j: a[2, j], (64,))
    last = compute("last", lambda j: X[7, j], (64,))
    yes, no = decided(VIEWS, [compute("z", lambda j: row[j] * 2.0, (64,)), last])
    assert not yes and no == {
        "row[64]": "a is recomputed where it is read, and has no memory",
        "last[64]": "it is an output of the program, and has memory of its own",
    }
    column = compute("column", lambda i: X[i, 3], (8,))
    assert decided(VIEWS, [compute("z", lambda i: column[i] * 2.0, (8,))]) == ({}, {})


# ----------------------------------------------------------------------------------------- epilogues


def test_what_reads_a_contraction_at_its_own_point_rides_along():
    s = product("s")
    yes, _ = decided(EPILOGUES, [compute("z", lambda i, j: nf.relu(s[i, j] + Y[i, j]))])
    assert yes == {"z[8, 64] with the kernel of s": "it reads the kernel's result at its own point"}


def test_what_does_not_ride_along():
    s, square = product("s"), compute("square", lambda i, j: nf.sum(X[R, i] * X[R, j], axis=[R]), (64, 64))
    ids = nf.placeholder((8, 64), "int64", name="ids")
    table = nf.placeholder((64,), name="table")
    turned = compute("turned", lambda i, j: square[j, i] + square[i, j], (64, 64))
    alike = compute("alike", lambda i, j: X[i, 63 - j] * 2.0)
    mirrored = compute("mirrored", lambda i, j: alike[i, 63 - j] * 3.0)
    for output, subject, reason in (
        (product("t", s), "t[8, 64] with the kernel of s", "it reduces, and a kernel has one reduction"),
        (
            compute("u", lambda i, j: s[i, j] + table[ids[i, j]]),
            "u[8, 64] with the kernel of s",
            "u looks up each element, and a contraction writes whole vectors",
        ),
        (
            compute("v", lambda i: s[i, 0] + s[i, 1], (8,)),
            "v[8] with the kernel of s",
            "its shape [8] is not the kernel's [8, 64]",
        ),
        (
            compute("o", lambda i, j: s[i, j] + product("p", s)[i, j]),
            "o[8, 64] with the kernel of s",
            "o also reads p, which needs the first to have finished",
        ),
        (turned, "turned[64, 64] with the kernel of square", "turned reads square away from its own point"),
        (mirrored, "mirrored[8, 64] with the kernel of alike", "mirrored reads alike away from its own point"),
    ):
        _, no = decided(EPILOGUES, [output], kept("alike"))
        assert no[subject] == reason


def test_a_view_of_what_a_kernel_writes_is_read_when_it_has_finished():
    s = product("s")
    flat = compute("flat", lambda i: s[i // 64, i % 64], (512,))
    folded = compute("folded", lambda i, j: flat[64 * i + j] + s[i, j])
    _, no = decided(EPILOGUES, [folded])
    assert no == {"folded[8, 64] with the kernel of s": "folded reads flat, which is memory of s"}


def test_nothing_rides_along_with_a_scatter():
    ids = nf.placeholder((64,), "int64", name="ids")
    spread = nf.scatter((64,), [K], (ids[K],), X[0, K], name="spread")
    _, no = decided(EPILOGUES, [compute("z", lambda i: spread[i] * 2.0, (64,))])
    assert no == {
        "z[64] with the kernel of spread": "spread scatters, and what it scatters is complete only when its kernel ends"
    }


# ----------------------------------------------------------------------------------------- siblings


def siblings():
    a, b = compute("a", lambda i, j: nf.exp(X[i, j])), compute("b", lambda i, j: nf.log(X[i, j]))
    return a, b, compute("c", lambda i, j: a[i, j] + b[i, j])


def test_two_that_are_read_at_one_point_are_one_kernel():
    yes, _ = decided(SIBLINGS, siblings(), kept("a", "b"))
    assert yes == {"c[8, 64] with the kernel of b": "one reads the other at its own point"}


def test_what_reduces_is_no_sibling():
    s = product("s")
    a = compute("a", lambda i, j: nf.exp(X[i, j]))
    _, no = decided(SIBLINGS, [a, compute("c", lambda i, j: a[i, j] + s[i, j])])
    assert no == {"c[8, 64] with the kernel of a": "s reduces"}


def test_what_is_read_elsewhere_too_is_no_sibling():
    a, b, _ = siblings()
    c = compute("c", lambda i, j: a[i, j] + b[i, 63 - j])
    _, no = decided(SIBLINGS, [a, b, c])
    assert no == {"c[8, 64] with the kernel of b": "c reads b away from its own point"}


# ----------------------------------------------------------------------------------------- sharing


def gelu_and_its_gradient(rows, width):
    x, g = nf.placeholder((rows, width), name="x"), nf.placeholder((rows, width), name="g")
    y = nf.nn.functional.gelu(x)
    return [y, *nf.vjp(y, [x], g)]


def test_maps_that_read_the_same_are_one_kernel():
    y, d = gelu_and_its_gradient(8, 64)
    yes, _ = decided(SHARING, [y, d])
    assert yes == {"d_x[8, 64] with the kernel of mul": "they read the same at the same points"}


def test_where_that_saves_surely():
    y, d = gelu_and_its_gradient(512, 512)
    yes, _ = decided(SHARING, [y, d], object_to)
    assert len(yes) == 1
    small = [compute(f"c{n}", lambda i, j, n=n: nf.exp(X[i, j] + float(n)) * Y[i, 63 - j]) for n in range(2)]
    assert all("one kernel would take about" in r for r in decided(SHARING, small, object_to)[1].values())


def test_but_none_that_reads_the_other_elsewhere_or_needs_it_through_a_third():
    a = compute("a", lambda i, j: nf.exp(X[i, j]))
    b = compute("b", lambda i, j: X[i, j] + a[i, 63 - j])
    _, no = decided(SHARING, [a, b])
    assert no == {"b[8, 64] with the kernel of a": "b reads a away from its own point"}
    s = nf.compute((), lambda: nf.sum(a[R, K], axis=[R, K]), name="s")
    c = compute("c", lambda i, j: X[i, j] + nf.tanh(s[()]))
    _, no = decided(SHARING, [a, s, c])
    assert no == {"c[8, 64] with the kernel of a": "c also reads s, which needs the first to have finished"}


def test_and_none_that_is_smaller_than_what_it_writes():
    """What two maps share is a row; each writes 8 of them."""
    row = nf.placeholder((64,), name="row")
    a, b = compute("a", lambda i, j: row[j] * X[i, j]), compute("b", lambda i, j: row[j] + Y[i, j])
    assert decided(SHARING, [a, b]) == ({}, {})


# ----------------------------------------------------------------------------------------- row kernels


def centred(read=lambda s, i: s[i]):
    s = compute("s", lambda i: nf.sum(X[i, K], axis=[K]), (8,))
    return compute("c", lambda i, j: X[i, j] - read(s, i))


def test_a_sum_of_each_row_and_what_reads_it_are_one_kernel():
    yes, _ = decided(ROW_KERNELS, [centred()])
    assert yes == {"c[8, 64] with the kernel of s": "they go through the same rows, 1 dimensions of them"}


def test_what_is_no_row_kernel():
    a = compute("a", lambda i, j: nf.exp(X[i, j]))
    mirrored = compute("mirrored", lambda i, j: a[i, 63 - j])
    _, no = decided(ROW_KERNELS, [a, mirrored])
    assert no == {"mirrored[8, 64] with the kernel of a": "neither reduces"}
    _, no = decided(ROW_KERNELS, [centred(lambda s, i: s[7 - i])])
    assert no == {"c[8, 64] with the kernel of s": "they share no rows at which one reads the other"}
    s = compute("s", lambda i: nf.sum(X[i, K], axis=[K]), (8,))
    t = compute("t", lambda i: nf.max(s[R], axis=[R]), (1,))
    _, no = decided(ROW_KERNELS, [compute("c", lambda i, j: X[i, j] - s[i] + t[i // 8])])
    assert no["c[8, 64] with the kernel of s"] == "c also reads t, which needs the first to have finished"


def test_more_rows_than_are_shared_are_no_row_kernel():
    c = centred()
    facts = Facts.of(make_graph([c], [X]))
    state = Kernels(Storing(facts).settle())
    assert ROW_KERNELS.legal(facts, state, Merge(0, 1, 1)).ok
    assert ROW_KERNELS.legal(facts, state, Merge(0, 1, 2)).reason == "s does not go through the kernel's rows [8, 64]"


# ----------------------------------------------------------------------------------------- parts


def side_by_side(*parts):
    """A product of rows of tensors one after another, which a contraction reads."""
    s = nf.concat(parts)
    rows = s.shape[0]
    return s, nf.compute((rows, 64), lambda i, j: nf.sum(s[i, K] * W[K, j], axis=[K]))


def test_what_a_contraction_reads_is_written_in_parts():
    a, b = product("a"), compute("b", lambda i, j: X[i, j] + 1.0)
    s, y = side_by_side(a, b)
    yes, no = decided(PARTS, [y], object_to)
    assert yes == {"concat[16, 64]": "its 2 parts are written where they stand in it"} and not no
    found = partition(make_graph([y], [X, W]))
    assert [(v.base, v.offset, v.is_part) for v in found.views.values()] == [(s, 0, True), (s, 512, True)]
    assert all(s not in call.outputs for call in found.calls) and len(found.calls) == 3
    assert "part b = concat from element 512" in str(found) and found.makers(s) == (a, b)
    reason = decided(INLINING, [y], object_to)[1]["b[8, 64]"]
    assert reason.startswith("it is written where it stands in concat, which t") and reason.endswith(" contracts")


def test_what_is_not_written_in_parts():
    def refused(outputs, choose=object_to):
        _, no = decided(PARTS, outputs, choose)
        return next(iter(no.values()))

    a, b = product("a"), product("b", Y)
    s, y = side_by_side(a, b)
    assert refused([s]) == "it is an output of the program, and its parts are not"
    assert refused([y, a]) == "a has memory of its own"
    assert refused([side_by_side(a, X)[1]]) == "x has memory of its own"
    assert refused([nf.exp(s)]) == "it is recomputed where it is read, and has no memory"
    _, z = side_by_side(b, a)
    assert refused([y, z]) in ("a is put together with others already", "b is put together with others already")
    c = compute("c", lambda i, j: Y[i, j] + 1.0)
    assert refused([side_by_side(a, c)[1]], kept("concat")) == "c is not written by a kernel"


def test_on_a_gpu_parts_begin_where_vectors_do():
    k = nf.axis(9, "k")
    v = nf.placeholder((64, 9), name="v")
    short = [compute(n, lambda i, j, x=x: nf.sum(x[i, K] * v[K, j], axis=[K]), (7, 9)) for n, x in (("a", X), ("b", Y))]
    s = nf.concat(short)
    y = nf.compute((14, 64), lambda i, j: nf.sum(s[i, k] * v[j, k], axis=[k]))
    _, no = decided(PARTS, [y], object_for_gpu)
    assert no == {"concat[14, 9]": "b would begin at byte 252, no multiple of 16"}


# ----------------------------------------------------------------------------------------- laws


def test_there_is_no_rule_of_another_name():
    known = "inlining, parts, views, epilogues, siblings, row kernels"
    with pytest.raises(PartitionError, match=f"there is no rule 'rows'; there are {known}"):
        partition(make_graph([X * 2.0], [X]), without={"rows"})


def law(seed, make=anything, **options):
    """Kernel by kernel a program computes what it computes as a whole; the rules that were applied."""
    case = make(seed)
    graph, _ = kernels(case.roots, list(case.feeds))
    parts = partition(graph, **options)
    values = run(parts, case.feeds)
    for t, wanted in zip(graph.outputs, case.values(case.roots), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    return {d.rule for d in parts.decisions if d.verdict.ok}


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_kernels_are_right_without_a_rule(rule):
    applied = [law(seed, without={rule}) for seed in range(100, 112)]
    assert rule not in set().union(*applied)


def coin(seed):
    rng = np.random.default_rng(seed)
    return lambda *_: "the coin fell so" if rng.random() < 0.5 else None


def test_kernels_are_right_whatever_is_chosen():
    """What is legal is right, be it wise or not: no choice, and choices by chance."""
    applied = [law(seed, choose=coin(seed) if seed % 4 else lambda *_: None) for seed in range(200, 224)]
    applied += [law(seed, recurrences, choose=choose) for seed in range(12) for choose in (coin(seed), object_to)]
    assert set().union(*applied) == {rule.name for rule in RULES} - {
        RIDERS
    }  # what rides asks the templates: test_riders


def divided_by(chosen, graph, without=(), choose=object_to, roofs=STATED):
    """`partition`, by a choice of the test in place of what it is given."""
    return partition(graph, without, chosen, roofs)


@pytest.mark.slow
@pytest.mark.tvm
def test_kernels_compile_whatever_is_chosen(monkeypatch):
    """What is legal can be compiled: no check of code generation is missing in `legal`."""
    for seed in range(400, 440):
        choose = coin(seed) if seed % 3 else lambda *_: None
        dividing = partial(divided_by, choose)
        monkeypatch.setattr(sequence, "partition", dividing)
        program = random_program(seed, jumps=False)
        roots = program.with_gradients()
        found = nf.compile(roots, list(program.feeds))(*program.feeds.values())
        for value, wanted in zip(found, nf.evaluate(roots, program.feeds, dtype="float64"), strict=True):
            scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
            np.testing.assert_allclose(value, wanted, rtol=5e-3, atol=5e-3 * scale, err_msg=f"seed {seed}")


@pytest.mark.slow
def test_kernels_are_right_whatever_is_chosen_for_many():
    for seed in range(3000, 4000):
        law(seed, choose=coin(seed) if seed % 3 else lambda *_: None)
        law(seed, without={RULES[seed % len(RULES)].name})
