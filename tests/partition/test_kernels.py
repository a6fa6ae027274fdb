"""Which kernels need which, as they merge: against a search through all that they read."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernels, Merge
from neoflow.partition.storage import Storing
from tests.strategies import random_program


def reached(state, n):
    """The kernels that kernel n reads, and those that they read."""
    found, stack = set(), [n]
    while stack:
        for m in state.sources(state.kernels[stack.pop()]):
            if m != n and m not in found:
                found.add(m)
                stack.append(m)
    return found


def check(state):
    assert sorted(state.kernels) == sorted(set(state.number.values()))
    for n in state.kernels:
        assert {m for m in state.kernels if m != n and state.needs(n, m)} == reached(state, n)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_kernel_needs_follows_from_what_it_reads(seed):
    program, rng = random_program(seed, tensors=(5, 9)), np.random.default_rng(seed)
    graph = make_graph(program.with_gradients(), list(program.feeds))
    state = Kernels(Storing(Facts.of(graph)).settle())
    check(state)
    for _ in range(30):
        n = int(rng.choice(list(state.kernels)))
        free = [
            m
            for m in state.sources(state.kernels[n])
            if m != n and not any(k != m and state.needs(k, m) for k in state.sources(state.kernels[n]) if k != n)
        ]
        if free:
            m = int(rng.choice(free))
            members = state.merged(Merge(m, n)).members
            state.merge(Merge(m, n), (m, n)[int(rng.integers(2))])
            assert state.kernels[state.number[members[0]]].members == members
            check(state)


def test_that_two_kernels_share_no_rows_is_said_once():
    x = nf.placeholder((4, 8), name="x")
    roots = [nf.exp(x), nf.tanh(x), nf.swapaxes(x, 0, 1)]
    state = Kernels(Storing(Facts.of(make_graph(roots, [x]))).settle())
    first, second, third = state.kernels

    def none(storage, members):
        return 0, ()

    def one(storage, members):
        return 1, ()

    assert list(state.with_rows(first, second, one)) == list(state.with_rows(first, second, one)) != []
    assert [m.rows for m in state.with_rows(first, third, none)] == [0]
    assert not list(state.with_rows(first, third, none))
    state.merge(Merge(first, second, 1), first)
    assert [m.rows for m in state.with_rows(first, third, none)] == [0], "it is another kernel now"
