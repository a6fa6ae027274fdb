"""Short kernels as one launch: nobody in a group needs another's bytes, and everything else keeps its order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code, Entry, Workspace
from neoflow.expr import dtype as dt
from neoflow.partition import RULES, Loop, grouped, order_calls, partition
from neoflow.partition.together import MOST, MOST_BYTES, SHORT
from neoflow.runtime.planner import make_plan
from tests.partition.test_fuse import kernels
from tests.strategies import random_program


def with_updates(seed):
    """A random program in which each float input is a parameter that is moved along its gradient: its graph, in kernels
    as usual, and with each compute a kernel."""
    program = random_program(seed)
    outputs = [t for t in program.outputs if t.dtype.startswith("float")]
    loss = sum((nf.sum(t) for t in outputs[1:]), nf.sum(outputs[0]))
    inputs = [t for t in program.float_inputs if t.shape]
    parameters = [nf.parameter(t.shape, t.dtype, t.name) for t in inputs]
    gradients = nf.vjp(loss, inputs, allow_unused=True)
    updates = {p: p * 0.9 - g for p, g in zip(parameters, gradients, strict=True)}
    graph, parts = kernels([loss, *program.outputs], list(program.feeds), updates)
    return graph, (parts, partition(graph, [rule.name for rule in RULES]))


def touched(call, parts, graph, in_place):
    """What a call reads and writes: (tensor with memory, first byte, byte after the last)."""
    at = {value: p for p, value in graph.updates if p in in_place}

    def where(t):
        view = parts.views.get(t)
        base, first = (t, 0) if view is None else (view.base, view.offset * dt.itemsize(t.dtype))
        return at.get(base, base), first, first + t.nbytes

    return [where(t) for t in call.inputs], [where(t) for t in call.outputs]


def are_bound(one, other):
    """Whether of two calls the later one has to wait."""

    def meet(a, b):
        return any(p is q and s < v and u < e for p, s, e in a for q, u, v in b)

    return meet(one[1], other[0]) or meet(one[0], other[1]) or meet(one[1], other[1])


def check(graph, parts, seconds=lambda c: 0.0, fails=lambda c: False, prepared=0, loops=()):
    calls, in_place = order_calls(graph, parts)
    found = grouped(graph, calls, in_place, parts.views, prepared, loops, seconds, fails)
    assert sorted(map(id, found.calls)) == sorted(map(id, calls))
    group = list(range(len(calls)))
    for first, count in found.groups:
        assert 2 <= count <= MOST
        group[first : first + count] = [first] * count
        assert sum(t.nbytes for c in found.calls[first : first + count] for t in (*c.inputs, *c.outputs)) <= MOST_BYTES
    place = {id(c): group[n] for n, c in enumerate(found.calls)}
    bytes_of = [touched(c, parts, graph, in_place) for c in calls]
    for i, j in itertools.combinations(range(len(calls)), 2):
        if are_bound(bytes_of[i], bytes_of[j]):
            assert place[id(calls[i])] < place[id(calls[j])]
    return found, in_place


def check_memory(graph, parts, found, in_place):
    """In the plan, no call of a group writes a byte of memory that another one uses, workspaces included."""
    code = Code((Entry("k", 4, True),), (Workspace(100, True), Workspace(40, False)))
    codes = {c.subgraph.digest: code for c in found.calls}
    plan = make_plan(graph, found.calls, in_place, parts.views, codes, 2, together=found.groups)

    def where(number):
        b = plan.buffers[number]
        if b.kind == "view":
            room, first, _ = where(b.base)
            return room, first + b.offset, first + b.offset + b.nbytes
        return ("arena" if b.kind == "temporary" else number), b.offset, b.offset + b.nbytes

    for first, count in plan.together:
        uses = []
        for n, c in enumerate(plan.calls[first : first + count], first):
            reads = len(found.calls[n].inputs)
            places = [where(n) for n in (*c.arguments, *c.workspaces)]
            uses.append((places[:reads], places[reads:]))
        for (reads, writes), (others, written) in itertools.permutations(uses, 2):
            assert not [1 for p, s, e in writes for q, u, v in (*others, *written) if p == q and s < v and u < e], (
                reads,
                writes,
            )
    assert f"calls {plan.together[0][0]} to" in str(plan) if plan.together else "run together" not in str(plan)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_their_order_and_their_memory_apart(seed):
    graph, both = with_updates(seed)
    rng = np.random.default_rng(seed)
    for parts in both:
        check_memory(graph, parts, *check(graph, parts))
        short = {id(c): rng.random() < 0.7 for c in parts.calls}
        failing = {id(c): rng.random() < 0.1 for c in parts.calls}
        drawn = check(graph, parts, lambda c, s=short: 0.0 if s[id(c)] else 1.0, lambda c, f=failing: f[id(c)])
        check_memory(graph, parts, *drawn)


def updates_of(count, size=100):
    """A program that moves parameters along given arrays, each by a kernel of its own."""
    parameters = [nf.parameter((size + n,), name=f"p{n}") for n in range(count)]
    given = [nf.placeholder(p.shape, name=f"g{n}") for n, p in enumerate(parameters)]
    return kernels([], given, {p: p - 0.1 * g for p, g in zip(parameters, given, strict=True)})


def test_updates_of_all_sizes_are_one_group():
    found, _ = check(*updates_of(10))
    assert found.groups == ((0, 10),) and found.summary == "10 of 10 kernel calls run together with others, in 1 groups"
    assert found.to_text().count(" | ") == 9


def test_a_group_has_so_many_kernels_and_so_many_bytes():
    assert check(*updates_of(MOST + 1))[0].groups == ((0, MOST),)
    third = MOST_BYTES // 4 // 3 // 3  # of a kernel that reads two arrays and writes one
    assert check(*updates_of(6, third - 10))[0].groups == ((0, 3), (3, 3))


def test_what_is_long_or_may_fail_or_is_in_a_loop_or_prepared_stays_alone():
    graph, parts = updates_of(6)
    none, _ = check(graph, parts, seconds=lambda c: 1.01 * SHORT)
    assert none.groups == () and none.summary == "no two short kernel calls that need nothing of each other"
    third = parts.calls[2]
    assert check(graph, parts, fails=lambda c: c is third)[0].groups == ((0, 2), (3, 3))
    assert check(graph, parts, loops=(Loop(1, 2, 3, {}),))[0].groups == ((3, 3),)
    assert check(graph, parts, prepared=4)[0].groups == ((0, 4), (4, 2))


def test_a_kernel_waits_for_who_reads_what_it_overwrites():
    """p is read by the second update, and overwritten by the first."""
    p, q = (nf.parameter((50,), name=n) for n in "pq")
    x = nf.placeholder((50,), name="x")
    graph, parts = kernels([], [x], {p: p - x, q: q - nf.exp(p)})
    found, in_place = check(graph, parts)
    assert in_place == {p, q} and found.groups == ()
