"""Every transformation of a graph alone, each left out, and all of them: values stay, on random graphs, those of the
size of a model, and the models themselves; programs compiled without any of them compute the same."""

from collections import Counter

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Parameter
from neoflow.graph import OPTIONAL_REWRITES, PASSES, make_graph, optimize, run
from neoflow.models import build_model
from neoflow.rewriting import OPTIONAL
from tests.graph.programs import PROGRAMS, Case
from tests.models.table import SMALL_SIZES

GRAPHS, PARTS = 10_000, 20
TOGETHER = 24
"""Programs of a graph that is as large as a model's."""
COMPILED = 400
NAMES = tuple(row.name for row in PASSES[1:])
ALONE = (*NAMES, *(n for n in OPTIONAL_REWRITES if n not in NAMES))
"""Passes, and rewrites that are not a pass of that name: what may be done alone."""
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def only(name):
    """What is left out so that one transformation is left: all but it, and but the pass that it is in."""
    kept = {name} | {row.name for row in PASSES if name in (r.name for r in row.rewrites)}
    kept |= {r.name for row in PASSES if row.name == name for r in row.rewrites}
    return frozenset(OPTIONAL_REWRITES) - kept


def agree(case, graph, wanted, what):
    """Every value of a rewritten graph is what is wanted, in float64."""
    graph.check()
    for a, b in zip(case.values(graph.outputs), wanted, strict=True):
        scale = max(1.0, float(np.max(np.abs(b), initial=0, where=np.isfinite(b)))) if b.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(a / scale, b / scale, **CLOSE, err_msg=what)


def law(case, what, alone=ALONE):
    """How many graphs came of it that are not the written one, by what was done."""
    written = make_graph(case.roots, [t for t in case.feeds if not isinstance(t, Parameter)])
    plain = run(written, PASSES[0])[0]
    wanted = case.values(written.outputs)
    seen, changed = {written.digest}, Counter()
    for name, without in (("canonicalize", None), *((n, only(n)) for n in alone), ("all", frozenset())):
        graph = plain if without is None else optimize(written, without)
        if graph.digest != plain.digest:
            changed[name] += 1
        if graph.digest not in seen:
            seen.add(graph.digest)
            agree(case, graph, wanted, f"{what}, {name}")
    return changed


def drawn(seed):
    """A random program of the kind that is its seed's turn."""
    program = PROGRAMS[seed % len(PROGRAMS)]
    return program(seed), f"{program.__name__}({seed})"


def together(seed, count=TOGETHER):
    """Programs of all kinds as one graph, whose first outputs are added where they have a shape in common."""
    cases = [drawn(count * seed + n)[0] for n in range(count)]
    sums = [nf.sum(c.roots[0]) for c in cases if c.roots[0].dtype == "float32"]
    total = sums[0]
    for s in sums[1:]:
        total = nf.tanh(total) + s
    return Case([total, *(r for c in cases for r in c.roots)], {t: a for c in cases for t, a in c.feeds.items()})


def laws(seeds):
    """How often each transformation changed something."""
    changed = Counter()
    for seed in seeds:
        changed += law(*drawn(seed))
    return changed


def test_random_graphs():
    assert laws(range(100_000, 100_000 + len(PROGRAMS)))["all"] > len(PROGRAMS) // 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_graphs(part):
    size = GRAPHS // PARTS
    changed = laws(range(200_000 + part * size, 200_000 + (part + 1) * size))
    print(f"part {part}: {dict(changed)}")
    assert set(NAMES) <= changed.keys(), "a transformation that never changed anything was not tried"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_the_size_of_a_model(seed):
    case = together(seed)
    assert len(make_graph(case.roots, list(case.feeds)).nodes) > 300
    assert law(case, f"together({seed})")["all"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_SIZES)
def test_models(name):
    model = build_model(name, 2, **SMALL_SIZES[name])
    x, labels = model.example()
    roots = [model.loss, *nf.grad(model.loss, list(model.parameters.values())), *model.state.values(), model.scores]
    changed = law(Case(roots, {**model.initial(), model.x: x, model.labels: labels}), name)
    print(f"{name}: {dict(changed)}")


def compiled_agrees(seed, monkeypatch):
    """A program compiled without some transformations, without all and with all, each against NumPy in float64."""
    case, what = drawn(seed)
    rng = np.random.default_rng(seed)
    exact = case.values(case.roots)
    rounded = nf.evaluate(case.roots, case.feeds)
    some = [n for n in OPTIONAL if rng.random() < 0.5]
    for without in (some, OPTIONAL, ()):
        monkeypatch.setenv("NEOFLOW_WITHOUT", ",".join(without))
        found = nf.compile(case.roots, list(case.feeds))(*case.feeds.values())
        for a, b, c in zip(found, exact, rounded, strict=True):
            if b.dtype.kind != "f":
                np.testing.assert_array_equal(a, b, err_msg=what)
                continue
            told = np.isfinite(c) & (np.abs(b) <= np.finfo("float32").max)  # where float32 holds all on the way
            a, b, c = a[told], b[told], c[told]
            own = float(np.max(np.abs(c - b), initial=0))
            bound = 1e-4 * float(np.max(np.abs(b), initial=1)) + 20 * own
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=bound, err_msg=f"{what} without {', '.join(without)}")


@pytest.mark.tvm
def test_compiled_without_some(monkeypatch):
    compiled_agrees(300_003, monkeypatch)


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("part", range(4))
def test_many_compiled_without_some(part, monkeypatch):
    for seed in range(300_000 + part, 300_000 + COMPILED, 4):
        if PROGRAMS[seed % len(PROGRAMS)].__name__ != "anything":  # has jumps; `tests/test_pipeline.py` compiles these
            compiled_agrees(seed, monkeypatch)
