"""The laws of every rewrite and every pass, from the table: values stay, the end is an end, a replay gives the same."""

from functools import lru_cache

import numpy as np
import pytest

from neoflow.graph import PASSES, Editor, Pass, make_graph, optimize, run, sites
from neoflow.graph.passes import BATCH
from tests.graph.programs import PROGRAMS, branches, overlaps, recurrences, widths

REWRITES = tuple(dict.fromkeys(r for row in PASSES for r in (*row.rewrites, *row.after)))
ROWS = (*PASSES, *(Pass(f"only {r}", (r,), again=r in BATCH.rewrites) for r in REWRITES))
"""every pass, and every rewrite alone, on what the passes before it left and on what was written"""


@lru_cache(len(PROGRAMS) * 12)
def written(program, seed):
    """A program, the graph of it as written and after each of the passes, and the values of these graphs."""
    case = program(seed)
    graphs = [make_graph(case.roots, list(case.feeds))]
    for row in PASSES:
        graphs.append(run(graphs[-1], row)[0])
    return case, graphs, {g.digest: case.values(g.outputs) for g in graphs}


def law(row, seed):
    """How often the rewrites of a row applied."""
    steps = []
    for program in PROGRAMS:
        case, graphs, known = written(program, seed)
        starts = graphs[: PASSES.index(row) + 1] if row in PASSES else graphs[:2]
        for start in {g.digest: g for g in starts}.values():
            after, derivation = run(start, row)
            after.check()
            found = case.values(after.outputs) if derivation.steps else known[start.digest]
            for a, b in zip(found, known[start.digest], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{row.name}, {program}, seed {seed}")
            editor = Editor(after.roots)
            left = [site.rewrite for t in editor.computes() for site in sites(editor, row.rewrites, t)]
            assert not left and derivation.stopped == "nothing is left to rewrite", f"{program}, seed {seed}"
            assert derivation.replay(start).digest == after.digest, f"{program}, seed {seed}"
            assert len(derivation.steps) <= 5 * len(start.nodes) + 5, "the limit of steps is far"
            steps += derivation.steps
    return steps


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_stay_whatever_is_rewritten(row):
    """Four seeds; as many more as it takes until each of its rewrites has applied, up to twelve."""
    steps: list = []
    for seed in range(12):
        if seed >= 4 and {step.rewrite for step in steps} >= set(row.rewrites):
            break
        steps += law(row, seed)
    assert {step.rewrite for step in steps} >= set(row.rewrites)
    assert all(step.reason for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_stay_in_many_programs(row):
    for seed in range(1000, 1150):
        law(row, seed)


@pytest.mark.slow
@pytest.mark.parametrize("program", (branches, recurrences, widths, overlaps), ids=lambda p: p.__name__)
def test_what_is_put_side_by_side_keeps_values_in_thousands_of_programs(program):
    for seed in range(20_000, 21_700):
        case = program(seed)
        graph = make_graph(case.roots, list(case.feeds))
        after = run(graph, BATCH)[0]
        for a, b in zip(case.values(graph.outputs), case.values(after.outputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{program}, seed {seed}")


@pytest.mark.parametrize("rewrite", REWRITES, ids=str)
def test_each_rewrite_is_drawn(rewrite):
    first, *rest = (rewrite.drawing or "").strip().splitlines()
    assert first.endswith(".") and any("->" in line for line in rest)


def test_names_tell_the_rows_apart():
    assert len({r.name for r in REWRITES}) == len(REWRITES) and len({row.name for row in PASSES}) == len(PASSES)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_passes_leave_what_they_made(program):
    for seed in range(15):
        case = program(seed)
        graph = optimize(make_graph(case.roots, list(case.feeds)))
        assert optimize(graph).digest == graph.digest
        assert all(not run(graph, Pass(row.name, row.rewrites))[1].steps for row in PASSES)
