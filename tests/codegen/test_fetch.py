"""What is fetched for later, past the ends of arrays too, changes nothing of what is computed."""

import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.loops import complete, default_schedule, problem_of
from neoflow.nn import functional as F
from neoflow.partition import partition
from tests.codegen.kernels import TARGET, check, check_subgraph, subgraph_of
from tests.codegen.test_windows import weights_gradient

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(300, 70), (9, 33), (131, 64)])
def test_columns(shape, dtype):
    x, g = nf.placeholder(shape, dtype, name="x"), nf.placeholder(shape, dtype, name="g")
    y = nf.sum(x * g, axis=0)
    schedule = complete("reduction", problem_of(subgraph_of([y], [x, g])), TARGET, {"terms": False, "fetch": True})
    assert check([y], [x, g], schedule, scale=4.0)["fetch"]


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("shape", [(9, 33), (5, 3, 77), (40, 128)])
def test_gates(shape, cut):
    """The gradient of what a cell cuts its gates out of: of the last rows too, behind which there is nothing."""
    *rows, width = shape
    z, c, g = (nf.placeholder((*rows, n), name=name) for n, name in ((2 * width, "z"), (width, "c"), (width, "g")))
    y = nf.tanh(z[..., :width]) * nf.sigmoid(z[..., width:]) * c
    (d,) = nf.vjp(y, [z], g)
    schedule = complete("map", problem_of(subgraph_of([d], [z, c, g])), TARGET, {"cut": cut, "fetch": True})
    assert check([d], [z, c, g], schedule)["fetch"]


def test_columns_are_fetched_where_no_cache_has_them():
    def default(rows):
        x = nf.placeholder((rows, 1 << 14), name="x")
        return default_schedule(subgraph_of([nf.sum(x, axis=0)], [x]), TARGET)

    assert default(1 << 10)["fetch"] and not default(8)["fetch"]


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 77), (70, 2500)])
def test_rows(shape, fetch):
    x, g = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="g")
    y = F.softmax(x)
    (subgraph,) = partition(optimize(make_graph([y, *nf.vjp(y, [x], g)], [x, g]))).subgraphs
    schedule = complete("rows", problem_of(subgraph), TARGET, {"fetch": fetch})
    check_subgraph(subgraph, schedule)


@pytest.mark.parametrize("tile_rows", [1, 9])
@pytest.mark.parametrize(("batch", "channels", "size"), [(5, 3, 7), (4, 2, 19)])
def test_pieces(batch, channels, size, tile_rows):
    roots, inputs = weights_gradient(batch, channels, size, size, 3)
    knobs = {"lane": "reduced", "fetch": True, "tile_rows": tile_rows}
    schedule = complete("reduction", problem_of(subgraph_of(roots, inputs)), TARGET, knobs)
    assert check(roots, inputs, schedule, scale=4.0)["fetch"]


def test_pieces_are_fetched_where_no_cache_has_them():
    def default(*sizes):
        schedule = default_schedule(subgraph_of(*weights_gradient(*sizes, sizes[-1], 3)), TARGET)
        return schedule["lane"] == "reduced" and schedule["fetch"]

    assert default(64, 512, 14) and not default(8, 16, 14) and not default(2, 1 << 14, 14)


@pytest.mark.parametrize("order", ["panels", "tiles"])
@pytest.mark.parametrize(("channels", "size", "window"), [(20, 14, 1), (7, 9, 1), (5, 10, 3)])
def test_the_next_panel(channels, size, window, order):
    """Of one axis of K and of three; behind the last panel of an image, and of the last image, there is another one's
    or nothing."""
    x, w = nf.placeholder((3, channels, size, size), name="x"), nf.placeholder((22, channels, window, window), name="w")
    y = F.conv2d(x, w)
    knobs = {"side": "left", "lanes": 8, "vectors": 2, "in_lines": True, "pack_panels": False, "tile_rows": 6}
    knobs |= {"order": order, "tiles": 3, "splits": 1, "passes": 1, "inner": "tiles", "next_panel": True}
    schedule = complete("contraction", problem_of(subgraph_of([y], [x, w])), TARGET, knobs)
    assert check([y], [x, w], schedule, scale=4.0)["next_panel"]
