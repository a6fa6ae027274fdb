"""Transformations left out: each is one that there is, none of the others changes, and a wrong name is told."""

import pytest

import neoflow as nf
from neoflow import rewriting
from neoflow.graph import OPTIONAL_REWRITES, PASSES, make_graph, optimize
from neoflow.rewriting import OPTIONAL
from neoflow.trace import Trace


def test_a_pass_without_some_of_its_rewrites():
    for row in PASSES:
        assert row.without(()) == row and row.without({row.name}) is None
        assert row.without({r.name for r in row.rewrites}) is None
        if len(row.rewrites) > 1:
            left = row.without({row.rewrites[-1].name})
            assert left.rewrites == row.rewrites[:-1] and left.after == row.after
    assert PASSES[0].name not in OPTIONAL_REWRITES and set(OPTIONAL_REWRITES) < set(OPTIONAL)


def test_a_flag_leaves_them_out(monkeypatch):
    x = nf.placeholder((6, 5), name="x")
    y = nf.exp(nf.sum(x * x, axis=1)) + 1.0
    whole = rewriting.stages(make_graph([y], [x]), Trace())[1]
    trace = Trace()
    monkeypatch.setenv("NEOFLOW_WITHOUT", "hoist, inlining,epilogues ,row kernels,siblings")
    graph, kernels = rewriting.stages(make_graph([y], [x]), trace)
    assert "hoist" not in [r.name for r in trace.records] and len(kernels.calls) > len(whole.calls)
    assert graph.digest == optimize(make_graph([y], [x]), {"hoist"}).digest
    monkeypatch.setenv("NEOFLOW_WITHOUT", "poetry")
    with pytest.raises(
        nf.ConfigError, match="no transformation 'poetry' to leave out; there are mapping, attention, pad guards, "
    ):
        rewriting.stages(make_graph([y], [x]), Trace())
