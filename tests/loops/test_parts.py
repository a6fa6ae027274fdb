"""How the `contraction` template cuts K without a search: parts that are tasks, passes, points that are written out."""

from dataclasses import replace

import neoflow as nf
from neoflow.loops import complete, legal, problem_of
from tests.loops.programs import subgraphs
from tests.loops.test_contraction import EAGER, OLDER, TARGET, contraction, convolution, gradient_of, turned_product


def test_a_long_k_is_gone_through_in_passes_where_multiply_adds_outrun_the_second_cache():
    """64 samples by weights of 512 x 2048: a panel of 256 KB is eight of the first cache; tasks stay even."""
    long, short = turned_product(64, 512, 2048, EAGER), turned_product(64, 2048, 512, EAGER)
    assert not long["pack"] and (long["passes"], long["tiles"]) == (8, 5)
    assert short["passes"] == 1, "two of the first cache are not worth it"
    assert turned_product(64, 512, 2048, TARGET)["passes"] == 1


def test_products_of_a_batch_go_through_a_long_k_in_passes_where_threads_have_as_many_of_them():
    """Those of a filter's gradient by minimal filtering: 16 of 128 x 128 over 3,136 tiles, each a task's."""
    a = nf.placeholder((16, 3136, 128), name="a")
    b = nf.placeholder((16, 3136, 128), name="b")
    y = nf.expr("y[s,m,n] = sum(a[s,k,m] * b[s,k,n])", a=a, b=b)
    eager, _ = contraction(y, [a, b], EAGER)
    assert eager["passes"] > 8 and eager["tiles"] * eager["tile_rows"] >= 128
    for odd in (TARGET, replace(EAGER, threads=3)):
        assert contraction(y, [a, b], odd)[0]["passes"] == 1


def test_parts_of_k_are_so_many_that_all_their_panels_stay_near():
    """The gradient of 64 x 256 weights of 16 images of 56 x 56: a part's panel, and all panels of a part."""
    x, w = nf.placeholder((16, 64, 56, 56), name="x"), nf.placeholder((256, 64, 1, 1), name="w")
    few, _ = gradient_of(x, w, TARGET)
    many, _ = gradient_of(x, w, EAGER)
    assert 4 * 50176 * 64 / many["splits"] <= 0.75 * EAGER.l2_bytes < 4 * 50176 * 64 / few["splits"] * 2
    assert many["tiles"] > few["tiles"]


def test_parts_of_a_long_k_are_tasks_that_pack_panels_themselves():
    for channels, size, wanted in ((128, 56, "panels"), (256, 28, "tiles")):
        x, w, _ = convolution(1, channels, channels // 2, size, kernel=1)
        assert gradient_of(x, w, EAGER)[0]["order"] == wanted


def test_a_long_k_is_in_parts_whose_panel_the_first_cache_nearly_holds():
    """Gradients of the weights of 1x1 convolutions: 64 KB of a panel of 16 columns are 1,024 points of K."""
    for channels, size, wanted in ((160, 14, 4), (256, 28, 13), (512, 14, 1), (64, 56, 9)):
        x, w, _ = convolution(16, channels, channels // 2, size, kernel=1)
        assert gradient_of(x, w, OLDER)[0]["splits"] == wanted, (channels, size)


def test_points_of_k_are_written_out_where_they_are_few():
    def product(depth, target):
        x, w = nf.placeholder((64, depth), name="x"), nf.placeholder((depth, 64), name="w")
        schedule, _ = contraction(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w), [x, w], target)
        return schedule["unroll"]

    assert [product(depth, TARGET) for depth in (2, 3, 4, 5, 64)] == [2, 4, 4, 1, 1]
    older = replace(TARGET, mcpu="x86-64-v3", vector_bytes=32)
    assert [product(depth, older) for depth in (2, 3, 4, 5, 64)] == [2, 4, 4, 4, 4]


def test_parts_that_are_tasks_may_be_in_passes():
    x, w = nf.placeholder((64, 1000), name="x"), nf.placeholder((1000, 64), name="w")
    (subgraph,) = subgraphs([nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)], [x, w])
    problem = problem_of(subgraph)
    both = complete("contraction", problem, TARGET, {"splits": 2, "passes": 8})
    assert legal(problem, both, TARGET).ok and complete("contraction", problem, TARGET, {"splits": 2})["passes"] == 1
    parts = complete("contraction", problem, TARGET, {"splits": 250, "passes": 5})
    assert "a part of the first axis of K has 4 points" in legal(problem, parts, TARGET).reason
