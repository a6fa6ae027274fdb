"""What kernels fetch for later without a search."""

from dataclasses import replace

import pytest

import neoflow as nf
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.map import further
from tests.loops.programs import subgraphs
from tests.loops.test_template import TWO

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
