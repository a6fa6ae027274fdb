"""What the `reduction` template chooses without a search for sums in lanes; without a compiler."""

import neoflow as nf
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.nn import functional as F
from neoflow.target import Target
from tests.loops.programs import subgraphs

WIDE = Target("cpu", "x86-64-v4", 2, 64, 1 << 20, 1)
OLDER = Target("cpu", "x86-64-v3", 2, 32, 1 << 19, 2)


def depthwise_gradient(kernel, size, stride, target):
    x, w = nf.placeholder((4, 32, size, size), name="x"), nf.placeholder((32, 1, kernel, kernel), name="w")
    y = F.depthwise_conv2d(x, w, stride=stride, padding=kernel // 2)
    g = nf.placeholder(y.shape, name="g")
    (d,) = nf.vjp(y, [w], g)
    found = [default_schedule(s, target) for s in subgraphs([d], [x, g])]
    return next((s["tile_rows"], s["unroll"]) for s in found if s.template == "reduction")


def test_outputs_of_a_window_go_over_what_they_read_together():
    """All of 3 x 3, of 5 x 5 a row; vectors for which registers hold their sums, one more where rows are short, none
    more where each is put together of two loads."""
    for kernel, size, stride, target, rows, vectors in (
        (3, 112, 1, OLDER, 9, 1),
        (3, 28, 1, OLDER, 9, 2),
        (3, 56, 2, OLDER, 9, 1),
        (5, 28, 1, OLDER, 5, 3),
        (3, 112, 1, WIDE, 9, 3),
        (5, 112, 1, WIDE, 5, 4),
    ):
        found = depthwise_gradient(kernel, size, stride, target)
        assert found == (rows, vectors), (kernel, size, stride, target.mcpu)


def test_what_follows_a_short_sum_is_computed_in_vectors_of_outputs():
    """Vectors of as many outputs as lanes: where what follows is more than the terms, or all read a few terms."""

    def rows(outputs, terms, follow, target=OLDER):
        x, w = nf.placeholder((1, terms), name="x"), nf.placeholder((outputs, terms), name="w")
        r = nf.axis(terms, "r")
        s = nf.compute((1, outputs), lambda i, j: nf.sum(x[i, r] * w[j, r], axis=[r]), name="s")
        (kernel,) = subgraphs([follow(s)], [x, w])
        schedule = default_schedule(kernel, target)
        assert (schedule.template, schedule["lane"]) == ("reduction", "reduced")
        return schedule["tile_rows"], schedule["unroll"]

    assert rows(512, 128, nf.sigmoid) == (8, 1) and rows(512, 128, nf.sigmoid, WIDE) == (16, 1)
    assert rows(512, 256, lambda s: s + 1.0) == (8, 1)
    assert rows(512, 264, lambda s: s + 1.0) == (1, 4)  # a longer sum of which little follows
    assert rows(24, 128, nf.sigmoid) == (1, 4)  # fewer outputs than threads have tasks


def test_outputs_side_by_side_are_no_more_than_accumulators_allow_whatever_else_is_chosen():
    x, w = nf.placeholder((1, 128), name="x"), nf.placeholder((512, 128), name="w")
    r = nf.axis(128, "r")
    (kernel,) = subgraphs([nf.compute((1, 512), lambda i, j: nf.sum(x[i, r] * w[j, r], axis=[r]))], [x, w])
    problem = problem_of(kernel)
    for vectors in range(1, 17):
        schedule = complete("reduction", problem, OLDER, {"unroll": vectors})
        assert legal(problem, schedule, OLDER).ok and schedule["tile_rows"] == min(8, 32 // vectors)


def test_sums_of_rows_of_their_own_end_in_vectors_only_where_much_follows():
    x = nf.placeholder((512, 16), name="x")
    r = nf.axis(16, "r")
    s = nf.compute((512,), lambda i: nf.sum(x[i, r] * x[i, r], axis=[r]), name="s")
    for root, rows in ((nf.sqrt(s + 1.0), 8), (s, 1)):
        (kernel,) = subgraphs([root], [x])
        assert default_schedule(kernel, OLDER)["tile_rows"] == rows


def test_sums_of_windows_that_take_two_loads_a_vector_leave_registers_for_them():
    x, w = nf.placeholder((1, 32, 112, 112), name="x"), nf.placeholder((32, 1, 3, 3), name="w")
    for step, target, vectors in ((2, OLDER, 2), (1, OLDER, 4), (2, WIDE, 3)):
        (kernel,) = subgraphs([F.depthwise_conv2d(x, w, stride=step, padding=1)], [x, w])
        schedule = default_schedule(kernel, target)
        assert (schedule["lane"], schedule["unroll"]) == ("output", vectors), (step, target.mcpu)


def test_a_sum_of_one_term_has_a_schedule():
    x, r = nf.placeholder((), name="x"), nf.axis(1, "r")
    for target in (OLDER, WIDE):
        for kernel in subgraphs([nf.compute((), lambda: nf.sum(x[()] * 2.0, axis=[r]), name="s")], [x]):
            assert default_schedule(kernel, target).template in ("reduction", "map")
