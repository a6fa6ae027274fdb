"""Sums that ride along with the tiles of a contraction: what they add is the interpreter's, whatever the schedule."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.functions import BLOCK
from neoflow.loops import complete, default_schedule, fits, legal, problem_of
from neoflow.loops.tile import pieces
from tests.codegen.kernels import subgraph_of
from tests.loops.programs import Case
from tests.loops.test_law import TWO, check, sampled

pytestmark = pytest.mark.tvm


def case(name, outputs, inputs):
    subgraph, rng = subgraph_of(outputs, inputs), np.random.default_rng(0)
    arrays = [rng.standard_normal(i.shape).astype(i.dtype) for i in inputs]
    places, written = subgraph.tensors()
    exact = nf.evaluate(list(written), dict(zip(places, arrays, strict=True)), dtype="float64")
    return Case(name, subgraph, arrays, exact)


def product(m, n, k, dtype="float32"):
    x, w, r = nf.placeholder((m, k), dtype), nf.placeholder((k, n), dtype), nf.axis(k)
    return nf.compute((m, n), lambda i, j: nf.sum(x[i, r] * w[r, j], axis=[r])), x, w


def columns(m, n, k, dtype="float32"):
    """A bias' gradient with its update, and sums of squares beside what is read at the point."""
    y, x, w = product(m, n, k, dtype)
    b, i = nf.placeholder((n,), dtype), nf.axis(m)
    z = nf.compute((m, n), lambda i, j: nf.maximum(y[i, j] + b[j], 0.0))
    s = nf.compute((n,), lambda j: nf.sum(z[i, j], axis=[i]))
    q = nf.compute((n,), lambda j: nf.sum(y[i, j] * y[i, j] * x[i, 0], axis=[i]))
    return case("columns", [z, y, s, q, nf.compute((n,), lambda j: b[j] - 0.5 * s[j] + q[j])], [x, w, b])


def rows(m, n, k, dtype="float32"):
    """Sums that keep the other side, and one that keeps neither."""
    y, x, w = product(m, n, k, dtype)
    i, j = nf.axis(m), nf.axis(n)
    s = nf.compute((m,), lambda i: nf.sum(y[i, j], axis=[j]))
    return case("rows", [y, s, nf.compute((), lambda: nf.sum(y[i, j] * y[i, j], axis=[i, j]))], [x, w])


def images(b, c, o, size, taps):
    """The mean of each channel of a convolution."""
    x, w = nf.placeholder((b, c, size, size)), nf.placeholder((o, c, taps, taps))
    cc, r, s, n = nf.axis(c), nf.axis(taps), nf.axis(taps), size - taps + 1
    y = nf.compute((b, o, n, n), lambda b, o, p, q: nf.sum(x[b, cc, p + r, q + s] * w[o, cc, r, s], axis=[cc, r, s]))
    at = nf.axis(b), nf.axis(n), nf.axis(n)
    total = nf.compute((o,), lambda o: nf.sum(y[at[0], o, at[1], at[2]], axis=[*at]))
    return case("images", [y, nf.compute((o,), lambda o: total[o] * (1 / (b * n * n)))], [x, w])


def groups(b, g, c, o, p):
    """Axes of the batch that are kept, and others that are added up."""
    x, w, r = nf.placeholder((b, g, c, p)), nf.placeholder((g, o, c)), nf.axis(c)
    y = nf.compute((b, g, o, p), lambda b, g, o, p: nf.sum(x[b, g, r, p] * w[g, o, r], axis=[r]))
    i, j, k = nf.axis(b), nf.axis(p), nf.axis(g)
    s = nf.compute((g, o), lambda g, o: nf.sum(y[i, g, o, j], axis=[i, j]))
    t = nf.compute((o,), lambda o: nf.sum(y[i, k, o, j] * 2.0, axis=[i, j, k]))
    return case("groups", [y, s, t, nf.compute((o, g), lambda o, g: nf.sum(y[i, g, o, j], axis=[i, j]))], [x, w])


CASES = (
    *(columns(37, 45, 19), columns(5, 130, 33), columns(700, 20, 9), rows(37, 45, 19), rows(9, 300, 30)),
    *(images(3, 5, 18, 11, 3), images(2, 7, 33, 13, 1), groups(3, 2, 5, 17, 29)),
)


@pytest.mark.parametrize("n", range(len(CASES)), ids=lambda n: CASES[n].name)
def test_sums_that_ride_along_are_the_interpreters(n):
    """Shapes that are no multiple of a tile; sampled schedules have every order of tasks and way to store."""
    subgraph = CASES[n].subgraph
    assert check([(CASES[n], [default_schedule(subgraph, TWO), *sampled(CASES[n], 4, n)])]) >= 4


@pytest.mark.slow
def test_sums_that_ride_along_for_many_schedules():
    wide = [columns(37, 45, 19, "float64"), rows(37, 45, 19, "float64")]
    assert check([(c, sampled(c, 40, n)) for n, c in enumerate((*CASES, *wide))]) >= 300


@pytest.mark.parametrize("store", ["registers", "stack", "turned"])
@pytest.mark.parametrize("order", ["tiles", "panels"])
def test_each_way_to_store_adds_up(order, store):
    for c in (columns(61, 64, 24), rows(64, 61, 24)):
        problem = problem_of(c.subgraph)
        for side in ("right", "left"):
            knobs = {"side": side, "vectors": 2, "tile_rows": 8, "order": order, "tiles": 3, "panels": 2}
            schedule = complete("contraction", problem, TWO, {**knobs, "parallel": True, "store": store})
            if legal(problem, schedule, TWO).ok:
                check([(c, [schedule])])


def test_many_tiles_of_a_task_add_to_several_numbers():
    """No number takes more than 512 additions: so many rows, or columns, of one task have several partial sums."""
    for c in (columns(1300, 16, 4), rows(16, 1300, 4)):
        problem = problem_of(c.subgraph)
        for side in ("right", "left"):
            given = {"side": side, "tile_rows": 4, "vectors": 1, "order": "tiles"}
            cut = pieces(problem, complete("contraction", problem, TWO, given))
            schedule = complete("contraction", problem, TWO, {**given, "tiles": cut.tiles, "panels": cut.panels})
            assert legal(problem, schedule, TWO).ok
            assert max(cut.rows * cut.tiles, cut.panels * int(schedule["lanes"])) > 2 * BLOCK
            check([(c, [schedule])])


def test_what_does_not_ride_along():
    y, x, w = product(24, 20, 8)
    i, r = nf.axis(24), nf.axis(8)
    both = subgraph_of([y, nf.compute((24, 20), lambda a, b: y[a, b] * 2.0)], [x, w])
    assert fits("reduction", problem_of(both)).ok and not fits("map", problem_of(both)).ok
    sums = subgraph_of([y, nf.compute((20,), lambda j: nf.sum(y[i, j], axis=[i]))], [x, w])
    assert "tiles of a contraction alone" in fits("reduction", problem_of(sums)).reason
    x4, w4 = nf.placeholder((4, 6, 8)), nf.placeholder((8, 20))
    three = nf.compute((4, 6, 20), lambda a, b, c: nf.sum(x4[a, b, r] * w4[r, c], axis=[r]))
    at = nf.axis(6)
    part = subgraph_of([three, nf.compute((4, 20), lambda a, c: nf.sum(three[a, at, c], axis=[at]))], [x4, w4])
    assert "some of the axes of a side" in fits("contraction", problem_of(part)).reason
    bx = nf.placeholder((3, 6, 8)), nf.placeholder((3, 8, 20))
    many = nf.compute((3, 6, 20), lambda a, b, c: nf.sum(bx[0][a, b, r] * bx[1][a, r, c], axis=[r]))
    at = nf.axis(3)
    apart = subgraph_of([many, nf.compute((6, 20), lambda b, c: nf.sum(many[at, b, c], axis=[at]))], [*bx])
    assert "keeps both sides apart" in fits("contraction", problem_of(apart)).reason
    narrow, nx, nw = product(24, 20, 8, "bfloat16")
    rounded = subgraph_of([narrow, nf.compute((20,), lambda j: nf.sum(narrow[i, j], axis=[i]))], [nx, nw])
    assert "it adds up bfloat16" in fits("contraction", problem_of(rounded)).reason
