"""What kernels fetch for later without a search."""

from dataclasses import replace

import pytest

import neoflow as nf
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.map import further
from neoflow.nn import functional as F
from neoflow.target import Target
from tests.loops.programs import subgraphs
from tests.loops.test_template import TWO

AVX2 = Target("cpu", "x86-64-v3", 2, 32, 1 << 20, 2)

GATES = "y[i, j] = tanh(x[i, j]) * sigmoid(z[i, j + 96]) + b[j]"


@pytest.mark.parametrize(
    ("text", "target", "wanted"),
    [
        (GATES, TWO, True),
        (GATES, replace(TWO, threads=1), False),  # there is nothing else to do meanwhile
        ("y[i, j] = x[i, j] * z[i, j + 96] + b[j]", TWO, False),  # a core comes to the next loads by itself
    ],
)
def test_a_map_of_long_expressions_fetches_what_later_rows_read(text, target, wanted):
    tensors = {"x": (64, 96), "z": (64, 192), "b": (96,)}
    inputs = {name: nf.placeholder(shape, name=name) for name, shape in tensors.items()}
    (subgraph,) = subgraphs([nf.expr(text, **inputs)], list(inputs.values()))
    assert default_schedule(subgraph, target)["fetch"] is wanted
    nest = problem_of(subgraph).fused({"fuse": 0})
    rows = {subgraph.inputs[slot].shape: distance for slot, distance in further(nest).items()}
    assert rows == {(64, 96): 2 * 96, (64, 192): 192}  # 512 bytes at least, and the bias is read by each row


def test_sums_down_columns_fetch_terms_that_lie_in_other_pages():
    """In a row of a kernel, where each nest is for one thread."""

    def found(width):
        x = nf.placeholder((64, width), name="x")
        (subgraph,) = subgraphs([nf.expr("y[j] = sum(x[i, j])", x=x)], [x])
        return default_schedule(subgraph, replace(TWO, threads=1))["fetch"]

    assert found(2048) and not found(512)


@pytest.mark.parametrize(
    ("images", "channels", "size", "target", "wanted"),
    [
        (16, 80, 28, AVX2, True),  # 4 MB
        (1, 80, 28, AVX2, False),  # a core's own cache has them
        (1, 64, 112, AVX2, False),  # 3 MB, of which cores foresee long lines
        (16, 64, 112, AVX2, True),
        (16, 80, 28, TWO, False),  # points of K are fetched ahead
    ],
)
def test_row_tiles_fetch_the_next_panel_where_planes_come_from_afar(images, channels, size, target, wanted):
    x = nf.placeholder((images, channels, size, size), name="x")
    w = nf.placeholder((40, channels, 1, 1), name="w")
    (subgraph,) = subgraphs([F.conv2d(x, w)], [x, w])
    schedule = default_schedule(subgraph, target)
    assert not schedule["pack_panels"] and schedule["next_panel"] is wanted
