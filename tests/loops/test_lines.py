"""Panels that end where the last axis of N does: the same values, and by default where lines are no whole vectors."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.loops import complete, default_schedule, legal, problem_of, space
from neoflow.loops.space import Space
from neoflow.nn import functional as F
from neoflow.target import Target
from tests.codegen.kernels import subgraph_of
from tests.loops.programs import Case, cases
from tests.loops.test_law import TWO, check

pytestmark = pytest.mark.tvm
FIXED = Target("cpu", "x86-64-v4", 2, 64, 2 << 20, 2)


def groups(line, dtype="float32", beside=True):
    """A grouped 1x1 convolution of 3 samples and 2 groups of 5 to 7 channels, over `line` points."""
    rng = np.random.default_rng(line)
    a, w, b = (nf.placeholder(s, dtype) for s in ((3, 2, 5, line), (2, 7, 5), (3, 2, 7, line)))
    y = nf.expr("y[i,j,k,l] = sum(a[i,j,r,l] * w[j,k,r])", a=a, w=w)
    inputs = (a, w, b) if beside else (a, w)
    feeds = {t: rng.standard_normal(t.shape).astype(dtype) for t in inputs}
    [case] = cases("groups", [nf.relu(y + b) if beside else y], feeds)
    return case


def in_lines(case: Case, **knobs) -> int:
    """Check a schedule whose panels end with lines of the side that has several axes."""
    problem = problem_of(case.subgraph)
    given = {"fuse": 0, "side": "left", "in_lines": True, "parallel": False, **knobs}
    schedule = complete("contraction", problem, TWO, given)
    assert legal(problem, schedule, TWO).ok, legal(problem, schedule, TWO).reason
    return check([(case, [schedule])])


WAYS = (
    {"order": "panels", "pack_panels": False, "prefetch": 8},
    {"order": "panels", "pack_panels": True, "passes": 2},
    {"order": "tiles", "pack_panels": False, "tile_rows": 3, "panels": 3},
    {"order": "tiles", "pack_panels": True, "splits": 2},
    {"order": "panels", "pack_panels": True, "ahead": True, "store": "stack"},
)


@pytest.mark.parametrize("knobs", WAYS, ids=lambda knobs: "-".join(map(str, knobs.values())))
def test_lines_that_are_no_whole_panels(knobs):
    """Shorter than a vector, shorter than a panel, one point more than a vector, and several panels."""
    for line in (3, 9, 17, 41):
        assert in_lines(groups(line), vectors=2, **knobs)
    assert in_lines(groups(23, "float64"), vectors=1, **knobs)


def test_lines_of_windows_and_their_gradients():
    """Lines of the outputs are longer than those of the windows; gradients have tails along K, done again in blocks."""
    x, w, g = nf.placeholder((2, 4, 9, 13)), nf.placeholder((5, 4, 3, 3)), nf.placeholder((2, 5, 7, 11))
    y = F.conv2d(x, w)
    (dx,), (dw,) = nf.vjp(y, [x], g), nf.vjp(y, [w], g)
    rng, count = np.random.default_rng(0), 0
    for root, inputs in ((nf.relu(y), (x, w)), (dx, (w, g)), (w - 0.1 * dw, (x, w, g))):
        for case in cases("windows", [root], {t: rng.standard_normal(t.shape).astype("float32") for t in inputs}):
            problem = problem_of(case.subgraph)
            for side in ("left", "right") if "contraction" in space(problem, TWO).templates else ():
                schedule = complete("contraction", problem, TWO, {"side": side, "in_lines": True, "parallel": False})
                if legal(problem, schedule, TWO).ok:
                    count += check([(case, [schedule])])
    assert count >= 3


def test_sampled_schedules_in_lines():
    case = groups(19, beside=False)
    every, rng = Space(problem_of(case.subgraph), TWO, ("contraction",)), np.random.default_rng(1)
    found = [s for s in dict.fromkeys(every.sample(rng) for _ in range(32)) if s["in_lines"]]
    assert len(found) >= 4
    check([(case, found[:8])])


@pytest.mark.parametrize(("points", "rows", "is_cut"), [(196, 40, True), (196, 240, False), (256, 240, False)])
def test_the_default_ends_panels_with_lines_where_lanes_left_empty_are_less_work(points, rows, is_cut):
    a, w = nf.placeholder((16, 3, 160, points)), nf.placeholder((3, rows, 160))
    subgraph = subgraph_of([nf.expr("y[i,j,k,l] = sum(a[i,j,r,l] * w[j,k,r])", a=a, w=w)], [a, w])
    assert default_schedule(subgraph, FIXED)["in_lines"] is is_cut


def test_few_rows_go_over_whole_vectors_in_lines():
    """Of 20 rows, panels of what is far away come once, and ahead; of a small tensor nothing is far."""

    def usual(samples):
        a, w = nf.placeholder((samples, 3, 80, 784)), nf.placeholder((3, 20, 80))
        return default_schedule(
            subgraph_of([nf.expr("y[i,j,k,l] = sum(a[i,j,r,l] * w[j,k,r])", a=a, w=w)], [a, w]), FIXED
        )

    many, few = usual(16), usual(2)
    assert many["in_lines"] and not many["pack_panels"] and many["prefetch"] > 1
    assert not few["in_lines"]


@pytest.mark.parametrize("points", [3, 12, 13, 15, 18])
def test_what_is_left_of_a_run_along_k(points):
    """Squares turned along K: of what is left, a block again from three points on, single points before."""
    a, b = nf.placeholder((3, 18, points + 16)), nf.placeholder((3, 21, points + 16))
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in (a, b)}
    [case] = cases("turned", [nf.expr("y[i,j] = sum(a[r,i,s] * b[r,j,s])", a=a, b=b)], feeds)
    problem, count = problem_of(case.subgraph), 0
    for knobs in ({"pack_panels": True, "turn": True}, {"pack": True, "run": True, "turn_rows": True}):
        given = {"side": "right", "last_k": 1, "lanes": 8, "vectors": 2, "parallel": False, **knobs}
        schedule = complete("contraction", problem, TWO, given)
        if legal(problem, schedule, TWO).ok:
            count += check([(case, [schedule])])
    assert count
