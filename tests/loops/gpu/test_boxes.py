"""Boxes of tensors: which sides bulk copies may bring, and why not the others."""

import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.loops import complete, problem_of
from neoflow.loops.gpu.boxes import Boxes, Dim
from neoflow.loops.gpu.wgmma import KNOBS, boxes
from tests.codegen.kernels import subgraph_of

HOPPER = gpu_target("cuda", "sm_90")
TILE = {"block_m": 64, "block_n": 64, "stages": 3}


def left(text, a_shape, b_shape, along="k", function=lambda a: nf.cast(a, "float32")):
    """What bulk copies of the left side would be of."""
    a, b = nf.placeholder(a_shape, "float16"), nf.placeholder(b_shape, "float16")
    y = nf.expr(text, a=function(a), b=nf.cast(b, "float32"))
    problem = problem_of(subgraph_of([y], [a, b]))
    chosen = dict(complete("gpu_wgmma", problem, HOPPER, {**TILE, "left_along": along}).knobs)
    found = boxes(problem, HOPPER, chosen, "left")
    (knob,) = (k for k in KNOBS if k.name == "left_bulk")
    ranged = knob.range(problem, HOPPER, chosen)
    assert tuple(ranged.values) == ((False,) if isinstance(found, str) else (False, True))
    assert not isinstance(found, str) or ranged.reason == found
    return found


PRODUCT = "y[i,j] = sum(a[i,k] * b[k,j])"
BATCHED = "y[s,i,j] = sum(a[s,i,k] * b[s,k,j])"


def test_of_a_matrix():
    found = left(PRODUCT, (40, 72), (72, 48))
    assert isinstance(found, Boxes) and found.dims == (Dim(72, 1), Dim(40, 72)) and found.box == (64, 64)
    found = left("y[i,j] = sum(a[k,i] * b[k,j])", (72, 40), (72, 48), "rows")
    assert isinstance(found, Boxes) and found.dims == (Dim(40, 1), Dim(72, 40)) and not found.is_along_k


def test_axes_that_lie_as_one_are_one():
    found = left("y[i,p,j] = sum(a[i,p,k,l] * b[k,l,j])", (5, 8, 9, 8), (9, 8, 48))
    assert isinstance(found, Boxes) and found.dims == (Dim(72, 1), Dim(40, 72))
    found = left(BATCHED, (3, 40, 72), (3, 72, 48))
    assert isinstance(found, Boxes) and found.dims == (Dim(72, 1), Dim(40, 72), Dim(3, 40 * 72))


def test_of_one_row():
    found = left(BATCHED, (3, 16, 72), (3, 72, 48))
    assert isinstance(found, Boxes) and found.slow[-1] == Dim(16, 72)


REFUSED = {
    "no axis of rows is contiguous in memory": (PRODUCT, (40, 72), (72, 48), "rows"),
    "at multiples of 16 bytes": (PRODUCT, (40, 71), (71, 48), "k"),
    "a tile's 64 points go over the end of an axis of 8": (
        "y[i,p,j] = sum(a[p,i,k] * b[k,j])", (8, 5, 72), (72, 48), "k"),
    "a tensor's dimensions go forward in memory": ("y[i,j] = sum(a[39-i,k] * b[k,j])", (40, 72), (72, 48), "k"),
    "it has 6 dimensions, and a tensor at most 5": (
        "y[s,t,u,v,i,j] = sum(a[s,t,u,v,i,k] * b[v,u,t,s,k,j])", (2, 2, 2, 2, 40, 72), (2, 2, 2, 2, 72, 48), "k"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_no_box(reason):
    found = left(*REFUSED[reason])
    assert isinstance(found, str) and reason in found


def test_what_is_computed_first_is_no_box():
    found = left(PRODUCT, (40, 72), (72, 48), "k", lambda a: nf.relu(nf.cast(a, "float32")))
    assert found == "the left side is not one read at linear addresses of what is multiplied"
