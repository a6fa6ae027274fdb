"""Contractions against the interpreter: every float, tiles of all kinds, parts of K, odd shapes."""

from __future__ import annotations

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.loops import complete, legal, problem_of
from neoflow.loops.tile import sided
from neoflow.target import cpu_target
from tests.codegen import kernels as k
from tests.codegen.test_kernels import FLOATS, p

pytestmark = pytest.mark.tvm


def contractions(dtype: str = "float32"):
    """Name, output, inputs."""

    def q(*shape: int):
        return p(*shape, dtype=dtype)

    a, b, bt = q(37, 29), q(29, 53), q(53, 29)
    yield "nn", nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b), [a, b]
    yield "nt", nf.expr("y[i,j] = sum(a[i,k] * b[j,k])", a=a, b=bt), [a, bt]
    at = q(29, 37)
    yield "tn", nf.expr("y[i,j] = sum(a[k,i] * b[k,j])", a=at, b=b), [at, b]
    c, d = q(3, 9, 11), q(3, 11, 21)
    yield "batched", nf.expr("y[n,i,j] = sum(a[n,i,k] * b[n,k,j])", a=c, b=d), [c, d]
    x, w = q(4, 3, 13, 13, 4, 4), q(7, 3, 3, 3, 4, 4)
    y = nf.expr("y[b,o,p,q,i,j] = sum(a[b,c,2*p+r,2*q+s,i,k] * w[o,c,r,s,k,j])", a=x, w=w)
    yield "capsule", y, [x, w]
    x, w = q(3, 5, 10, 11), q(6, 5, 3, 3)
    yield "convolution", nf.expr("y[b,o,p,q] = sum(x[b,c,p+r,q+s] * w[o,c,r,s])", x=x, w=w), [x, w]
    g = q(3, 6, 8, 9)
    yield "weight gradient", nf.expr("y[o,c,r,s] = sum(x[b,c,p+r,q+s] * g[b,o,p,q])", x=x, g=g), [x, g]
    u, h = q(3, 20, 6), q(20, 5, 8, 6)
    yield "votes", nf.expr("y[b,n,k,d] = sum(h[n,k,d,e] * u[b,n,e])", h=h, u=u), [h, u]
    s, v = q(3, 20, 5), q(3, 20, 5, 8)
    yield "weighted sum", nf.expr("y[b,k,d] = sum(c[b,n,k] * u[b,n,k,d])", c=s, u=v), [s, v]


@pytest.mark.parametrize("dtype", FLOATS)
def test_contractions(dtype):
    for _, y, inputs in contractions(dtype):
        k.check(y, inputs, scale=8.0)


@pytest.mark.parametrize("threads", [1, 2])
def test_contractions_by_threads(threads):
    for _, y, inputs in contractions():
        k.check(y, inputs, scale=8.0, target=cpu_target(threads))


SCHEDULES = [
    {"side": side, "order": order, "pack": pack, "splits": splits, "tile_rows": rows, "vectors": v, "tiles": tiles}
    for side, order, pack, splits, rows, v, tiles in (
        ("right", "panels", False, 1, 5, 2, 1),
        ("right", "panels", True, 3, 6, 1, 2),
        ("left", "panels", True, 2, 4, 3, 1),
        ("left", "tiles", False, 2, 3, 2, 3),
        ("right", "tiles", True, 1, 7, 1, 2),
        ("right", "tiles", True, 4, 6, 2, 3),
    )
]


@pytest.mark.parametrize("knobs", SCHEDULES, ids=lambda s: f"{s['side']}-{s['order']}-{s['splits']}")
def test_contraction_schedules(knobs):
    for _, y, inputs in contractions():
        schedule = k.scheduled(k.subgraph_of([y], inputs), **knobs, parallel=True)
        if schedule.template == "contraction":
            k.check(y, inputs, schedule, scale=8.0)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("order", ["panels", "tiles"])
@pytest.mark.parametrize(("splits", "passes"), [(1, 3), (2, 2), (3, 4), (4, 5), (37, 1)])
def test_parts_of_k_are_gone_through_in_passes(splits, passes, order, pack):
    """A few of them as tasks, each in passes; the last one may have fewer: of 37 in four, three of ten and one of 7."""
    x, w = nf.placeholder((3, 25, 37, 2), name="x"), nf.placeholder((37, 2, 40), name="w")
    y = nf.tanh(nf.expr("y[b,i,j] = sum(x[b,i,k,l] * w[k,l,j])", x=x, w=w))
    subgraph = k.subgraph_of([y], [x, w])
    problem = problem_of(subgraph)
    for fuse in (0, problem.all_fused):
        given = {"fuse": fuse, "parallel": True, "pack": pack, "order": order, "splits": splits, "passes": passes}
        schedule = complete("contraction", problem, k.TARGET, given)
        k.check(y, [x, w], schedule, scale=8.0)


@pytest.mark.parametrize("unroll", [1, 2, 4, 8])
@pytest.mark.parametrize("depth", [3, 8, 9, 31, 1000])
def test_points_of_k_are_written_out(unroll, depth):
    """Also those that are left over, and those of blocks of a long sum."""
    x, w = nf.placeholder((13, depth), name="x"), nf.placeholder((depth, 21), name="w")
    y = nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)
    subgraph = k.subgraph_of([y], [x, w])
    problem = problem_of(subgraph)
    schedule = complete("contraction", problem, k.TARGET, {"unroll": unroll})
    if unroll >= 2 * depth:
        assert "only make code longer" in legal(problem, schedule, k.TARGET).reason
        return
    k.check(y, [x, w], schedule, scale=8.0)
    if depth > 2 * unroll:
        text = codegen.lower(subgraph, schedule, k.TARGET, "k").text()
        usual = codegen.lower(subgraph, complete("contraction", problem, k.TARGET, {"unroll": 1}), k.TARGET, "k").text()
        assert (len(text) > len(usual)) is (unroll > 1)


@pytest.mark.parametrize("pack", [False, True])
def test_rows_of_a_tile_along_any_axis(pack):
    for name, y, inputs in contractions():
        if name not in ("capsule", "convolution", "weight gradient"):
            continue
        subgraph = k.subgraph_of([y], inputs)
        for side in ("right", "left"):
            for last in range(len(sided(problem_of(subgraph), {"fuse": 0, "split": 0, "side": side}).m)):
                schedule = k.scheduled(subgraph, side=side, fuse=0, last_m=last, tile_rows=5, pack=pack)
                assert schedule["last_m"] == last
                k.check(y, inputs, schedule, scale=8.0)


@pytest.mark.parametrize("order", ["panels", "tiles"])
def test_a_panel_that_ends_in_a_bit_of_a_vector(order):
    """The bit is packed under a mask, also beside so many vectors of a long expression that these go in a loop."""
    a, b = p(6, 9), p(9, 75)
    long = nf.tanh(nf.exp(b) * 0.5 + nf.sin(b) * nf.cos(b)) / (nf.sqrt(b * b + 1.0))
    y = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=long)
    knobs = {"side": "right", "lanes": 8, "vectors": 10, "tile_rows": 3, "splits": 1, "order": order, "pack": True}
    schedule = k.scheduled(k.subgraph_of([y], [a, b]), **knobs, pack_loop=True)
    assert schedule["pack_loop"] and schedule["vectors"] == 10
    k.check(y, [a, b], schedule, scale=8.0)


def test_lanes_that_are_no_power_of_two():
    """What is turned in registers has a power of two of them; the panel has all twelve."""
    a, b = p(16, 64), p(96, 64)
    y = nf.expr("y[i,j] = sum(a[i,k] * b[j,k])", a=a, b=b)
    schedule = k.scheduled(k.subgraph_of([y], [a, b]), side="right", lanes=12, vectors=2, tile_rows=3)
    assert schedule["lanes"] == 12 and schedule["turn"]
    k.check(y, [a, b], schedule, scale=8.0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_line_that_ends_in_one_narrow_element(dtype):
    """LLVM 22 stores 4 bytes under a mask with nothing but the first of 8 lanes: the next line began with a zero."""
    x, w = p(2, 5, 9, 11, dtype=dtype), p(8, 5, 2, 3, dtype=dtype)
    y = nf.expr("y[b,o,p,q] = sum(x[b,c,p+r,q+s] * w[o,c,r,s])", x=x, w=w)
    schedule = k.scheduled(k.subgraph_of([y], [x, w]), side="right", lanes=8, vectors=1, tile_rows=14, store="turned")
    assert schedule["store"] == "turned" and y.shape[-1] == 9
    k.check(y, [x, w], schedule, scale=8.0)


def test_contraction_with_producers_and_epilogue():
    a, b, bias = p(20, 30), p(30, 40), p(40)
    product = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=nf.relu(a), b=nf.exp(b))
    k.check([nf.tanh(product + bias), product], [a, b, bias], scale=8.0)


def test_padded_convolution():
    x, w = p(2, 3, 9, 9), p(5, 3, 3, 3)
    y = nf.expr("y[b,o,p,q] = sum(x[b,c,p+r,q+s] * w[o,c,r,s])", x=nf.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w=w)
    k.check(y, [x, w], scale=8.0)


def test_three_factors():
    a, b, c = p(12, 9), p(9, 17), p(9)
    k.check(nf.expr("y[i,j] = sum(a[i,k] * c[k] * b[k,j])", a=a, b=b, c=c), [a, b, c], scale=8.0)
    k.check(nf.expr("y[i,j] = sum(0.5 * a[i,k] * b[k,j])", a=a, b=b), [a, b], scale=8.0)
