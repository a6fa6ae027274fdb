"""Knobs that say how operands of a contraction lie: in blocks of K, or nowhere; what is known of these beforehand."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.loops import complete, default_schedule, feature_names, features, legal, nearest, problem_of
from neoflow.loops.schedule import schedule_of
from neoflow.loops.space import Space
from neoflow.nn import functional as F
from neoflow.tune.floors import floor_of
from neoflow.tune.likely import likely_cycles
from tests.codegen.kernels import WIDE, changed, subgraph_of
from tests.loops.programs import product


def maps_of(f, m=190, k=53, n=410):
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    return subgraph_of([product(f(a), f(b))], [a, b])


def plain(m=37, k=53, n=41):
    return maps_of(lambda t: t, m, k, n)


def of_exp():
    return maps_of(nf.exp)


def of_long_maps():
    def long(t):
        for n in range(6):
            t = nf.tanh(nf.exp(t) * (n + 0.5)) + nf.sin(t) * nf.cos(t) * nf.sqrt(nf.abs(t))
        return t

    return maps_of(long)


def of_windows():
    """Rows of x along images; K has channels and a window of 3 x 3."""
    x, w = nf.placeholder((2, 5, 9, 9)), nf.placeholder((37, 5, 3, 3))
    return subgraph_of([F.conv2d(x, w)], [x, w])


def of_lines():
    """Rows lie along a line of 9 points of K, and the lines of one K far apart."""
    a, b = nf.placeholder((6, 37, 9)), nf.placeholder((6, 9, 41))
    return subgraph_of([nf.expr("y[i,j] = sum(a[k,i,l] * b[k,l,j])", a=a, b=b)], [a, b])


PACKED = {"side": "right", "pack": True, "run": True, "turn_rows": False, "pack_panels": True, "vectors": 2}

REFUSED = [
    (plain, {"pack": False, "run": False, "row_points": 4}, "the side with M is not packed"),
    (plain, {"turn_rows": True, "row_points": 4}, "squares turned in registers are one point of K after another"),
    (plain, {"run": False, "row_points": 2}, "K has 53 points, and blocks are of 1, 4, 8 or 16"),
    (lambda: plain(k=9), {"run": False, "row_points": 16}, "K has 9 points"),
    (of_lines, {"row_points": 4}, "in vectors along 9 points of K, which are no whole blocks of so many"),
    (of_lines, {"last_k": 0, "row_points": 4}, "in vectors along another axis of K than the innermost one"),
    (plain, {"pack_panels": False, "vector_points": 4}, "the side with N is not packed"),
    (plain, {"vectors": 1, "vector_points": 4}, "a panel of one vector lie side by side as it is"),
    (plain, {"lanes": 12, "vector_points": 4}, "vectors of 12 lanes are no power of two"),
    (plain, {"vector_points": 32}, "K has 53 points, and blocks are of"),
    (
        of_exp,
        {"pack": False, "run": False, "pack_panels": False, "prefetch": 8},
        "both sides are computed in each tile",
    ),
    (of_exp, {"pack": False, "run": True}, "the side with M is not packed"),
    (of_long_maps, {"pack": False, "run": False, "tile_rows": 14, "unroll": 8}, "nodes of the side with M 112 times"),
    (of_long_maps, {"pack_panels": False, "vectors": 4, "unroll": 8}, "nodes of the side with N 32 times"),
    (of_windows, {"side": "left", "run": False, "pack_panels": False, "in_lines": False}, "cross the ends of lines"),
]


@pytest.mark.parametrize(("make", "knobs", "reason"), REFUSED, ids=[str(k) for _, k, _ in REFUSED])
def test_forms_that_are_refused(make, knobs, reason):
    p = problem_of(make())
    schedule = schedule_of("contraction", dict(complete("contraction", p, WIDE, {**PACKED, **knobs}).knobs))
    verdict = legal(p, schedule, WIDE)
    assert not verdict.ok and reason in verdict.reason, verdict.reason
    assert legal(p, nearest(p, schedule, WIDE), WIDE).ok


@pytest.mark.parametrize("make", [plain, of_exp, of_long_maps, of_windows])
def test_no_default_takes_them(make):
    """Computed sides are packed, one point of K after another."""
    schedule = default_schedule(make(), WIDE)
    assert (schedule["row_points"], schedule["vector_points"]) == (1, 1)
    if make in (of_exp, of_long_maps):  # of more rows than a tile has
        assert schedule["pack"] and schedule["pack_panels"]


@pytest.mark.parametrize(
    ("f", "m", "is_packed"), [(nf.exp, 4, False), (nf.exp, 53, True), (lambda t: nf.select(t > 0.5, t, 0.0), 4, True)]
)
def test_what_one_tile_uses_alone_is_computed_there(f, m, is_packed):
    """And what several tiles use is computed once, as is what is computed under conditions."""
    schedule = default_schedule(maps_of(f, m=m), WIDE)
    assert schedule["side"] == "right" and schedule["pack_panels"] == is_packed


def test_what_lies_across_lanes_is_packed():
    a, b = nf.placeholder((4, 53), name="a"), nf.placeholder((410, 53), name="b")
    y = nf.expr("y[i,j] = sum(a[i,k] * exp(b[j,k]))", a=a, b=b)
    schedule = complete("contraction", problem_of(subgraph_of([y], [a, b])), WIDE, {"side": "right"})
    assert schedule["pack_panels"]


def forms(knobs):
    p = problem_of(of_exp())
    packed = complete("contraction", p, WIDE, {"side": "right", "vectors": 2, "tile_rows": 12, "unroll": 1})
    assert packed["pack"] and packed["pack_panels"]
    found = nearest(p, changed(packed, **knobs), WIDE)
    assert all(found[name] == value for name, value in knobs.items())
    return p, packed, found


@pytest.mark.parametrize("knobs", [{"pack": False}, {"pack_panels": False}, {"row_points": 4}, {"vector_points": 16}])
def test_a_model_sees_them(knobs):
    """Each in a column of its own; and as operations, where tiles compute an operand."""
    p, packed, found = forms(knobs)
    names = feature_names("contraction")
    differ = {names[n] for n in np.flatnonzero(features(p, packed, WIDE) != features(p, found, WIDE))}
    ((name, value),) = knobs.items()
    assert (name if value is False else f"log {name}") in differ
    assert ("log operations" in differ) is (value is False)


def test_what_tiles_compute_takes_its_time():
    """exp of each of 53 x 410 elements once, or for each of 16 row tiles: the floor of the sums is below that."""
    for knobs in ({"pack": False}, {"pack_panels": False}):
        p, packed, found = forms(knobs)
        assert floor_of(p, found, WIDE).cycles >= floor_of(p, packed, WIDE).cycles
        assert likely_cycles(p, found, WIDE) > likely_cycles(p, packed, WIDE)


def test_a_floor_counts_what_tiles_compute():
    """Ten functions six times, two of them an instruction at least, beside a multiply-add: of four in a cycle."""
    p = problem_of(of_long_maps())
    knobs = {"side": "right", "lanes": 16, "vectors": 1, "tile_rows": 1, "unroll": 1, "pack": True}
    steps = 190 * 53 * 410 / 16
    for is_packed, each in ((False, (1 + 6 * 10 / 2) / 4), (True, 4 / (1 + 512 / 53))):
        schedule = complete("contraction", p, WIDE, {**knobs, "pack_panels": is_packed})
        assert floor_of(p, schedule, WIDE).cycles == pytest.approx(steps * max(0.5, each))


def test_a_search_meets_them():
    p, rng = problem_of(of_exp()), np.random.default_rng(0)
    found = [Space(p, WIDE, ("contraction",)).sample(rng) for _ in range(200)]
    assert {(s["pack"], s["pack_panels"]) for s in found} == {(a, b) for a in (False, True) for b in (False, True)}
    for name in ("row_points", "vector_points"):
        assert {s[name] for s in found} == {1, 4, 8, 16}
    assert all(legal(p, s, WIDE).ok for s in found)
