"""Cells by name: each is its implementation, and is found where it is written."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.mapping import CATALOGUE, pattern, reroll
from tests.mapping.near import lstm


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cell", CATALOGUE, ids=lambda p: p.name)
def test_a_cell_is_its_implementation(cell, seed):
    cell.check(seed)


def unrolled(cell, steps=5):
    sizes = {"B": 2, "I": 3, "H": 4}
    given = cell.given(sizes)
    states = {name: given[name] for name in cell.cell_input}
    xs = nf.placeholder((steps, 2, 3), name="xs")
    weights = {n: t for n, t in given.items() if n not in (*states, "x")}
    inputs = [xs, *states.values(), *weights.values()]
    for t in range(steps):
        results = cell.cell(x=xs[t], **states, **weights)
        states = {name: results[n] for name, n in cell.cell_input.items()}
    return make_graph([next(iter(states.values()))], inputs)


@pytest.mark.parametrize("cell", CATALOGUE, ids=lambda p: p.name)
def test_a_cell_is_found(cell):
    (found,) = reroll(unrolled(cell)).found
    assert found.cell == cell.name and str(found).endswith(f"; it is {cell.name}")


def test_what_is_no_lstm():
    outputs, _, inputs = lstm(8, np.random.default_rng(0))
    assert [f.cell for f in reroll(make_graph(outputs, inputs)).found] == [None]


def leaky(x, h, w):
    return (0.9 * h + nf.tanh(x @ w),)


HOLES = {"x": "BI", "h": "BH", "w": "IH"}


def test_a_user_adds_one():
    own = pattern("leaky", HOLES, leaky, {"h": 0}, lambda x, h, w: (nf.tanh(x @ w) + h * 0.9,))
    assert [f.cell for f in reroll(unrolled(own), [own]).found] == ["leaky"]
    assert reroll(unrolled(own)).found[0].cell is None


def test_an_implementation_of_other_values():
    with pytest.raises(nf.GraphError, match="pattern leaky: result 0 of its cell and of its implementation differ"):
        pattern("leaky", HOLES, leaky, {"h": 0}, lambda x, h, w: (nf.tanh(x @ w) + h * 0.8,))
