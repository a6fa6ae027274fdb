"""Rules one after the other, at random, on random graphs: values and gradients stay, and every derivation replays."""

import random

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Placeholder
from neoflow.graph import Editor, make_graph
from neoflow.superopt import Sites, form, standard
from neoflow.superopt.alphabet import agreed
from neoflow.superopt.concrete import operator
from neoflow.superopt.hunt import values
from neoflow.superopt.rewrite import rewritten

RULES = standard().rules
IMAGES = [f for f in standard().operators if f.slots and len(f.shape) == 4 and "stride" not in f.name]
MOST = 400
"""Elements of a tensor of a random graph."""
KNOWN = 20_000
"""Computes whose sites are remembered."""


def random_graph(chance: random.Random, size: int, is_same: bool = False):
    """Square and other matrices of which each is made of some before. is_same: x + x and the like are among them."""
    inputs = [Placeholder(s, "float64", f"x{n}", None) for n, s in enumerate([(3, 3), (3, 3), (2, 3), (3, 4)])]
    made = list(inputs)
    for _ in range(size):
        a, b = chance.choice(made), chance.choice(made)
        differ = is_same or a is not b
        options = [nf.relu(a), nf.transpose(a)]
        if a.shape == b.shape and differ:
            options += [a + b, a * b] * 2
        if a.shape[1] == b.shape[0] and differ:
            options += [a @ b] * 2
        if a.shape[1] == b.shape[1] and differ and a.shape[0] + b.shape[0] < 9:
            options += [nf.concat([a, b], 0)]
        if a.shape[0] == b.shape[0] and differ and a.shape[1] + b.shape[1] < 9:
            options += [nf.concat([a, b], 1)]
        made.append(chance.choice(options))
    outputs = [t for t in made[len(inputs) :] if not any(t in getattr(u, "inputs", ()) for u in made)]
    return make_graph(outputs or made[-1:], inputs)


def random_images(chance: random.Random, size: int):
    """Images and kernels of which each is made of some before by an operator of the standard rules; two arguments may
    be one tensor."""
    shapes = [(1, 2, 3, 2), (1, 2, 3, 2), (1, 3, 3, 2), (2, 2, 3, 3), (3, 2, 3, 3), (3, 2, 1, 1), ()]
    inputs = [Placeholder(s, "float64", f"x{n}", None) for n, s in enumerate(shapes)]
    made = list(inputs)
    while len(made) < len(inputs) + size:
        f = chance.choice(IMAGES)
        args = [chance.choice(made) for _ in f.slots]
        found = agreed(f, [tuple(map(form, a.shape)) for a in args])
        if found is None:
            continue
        at = {s: found[s].constant if s in found else chance.randint(s not in f.offsets, 2) for s in f.symbols}
        try:
            t = operator(f, at, args, "float64")
        except nf.NeoflowError:
            continue
        if np.prod(t.shape) <= MOST and all(at.get(s, 0) >= 0 for s in f.offsets):
            made.append(t)
    outputs = [t for t in made[len(inputs) :] if not any(t in getattr(u, "inputs", ()) for u in made)]
    return make_graph(outputs, inputs)


def values_and_gradients(graph, seed: int) -> list[np.ndarray]:
    """Of a graph whose inputs are random, and of a random sum of what it gives; no two numbers are equal, since
    rounding decides between equal ones where a maximum has its gradient."""
    draw = np.random.default_rng(seed)
    arrays = {t.name: draw.standard_normal(t.shape) for t in graph.inputs}
    losses = []
    for n, out in enumerate(graph.outputs):
        weight = nf.constant(values({"r": out.shape}, n)["r"])
        losses.append(nf.sum(out * weight, axis=tuple(range(len(out.shape)))) if out.shape else out * weight)
    grads = nf.grad(sum(losses[1:], losses[0]), list(graph.inputs), allow_unused=True)
    return nf.evaluate([*graph.outputs, *grads], {t: arrays[t.name] for t in graph.inputs})


PARTS = [pytest.param(1000, 1 + n, marks=pytest.mark.slow, id=f"part{n}") for n in range(10)]


@pytest.mark.parametrize("count, seed", [pytest.param(4, 0, id="draw"), *PARTS])
def test_sequences_of_rules_keep_values_and_gradients(count, seed):
    """Six rules on each graph: matrices, some of them as both arguments of an operator, and images."""
    chance, sites = random.Random(seed), Sites(RULES)
    applied = set()
    steps = 0
    for n in range(count):
        graph = random_images(chance, 4) if n % 3 == 2 else random_graph(chance, 8, n % 3 == 1)
        expected = values_and_gradients(graph, n)
        for _ in range(6):
            editor = Editor(graph.roots, graph.order)
            found = [s for t in graph.nodes for s in sites.at(editor, t)]
            if not found:
                break
            site = chance.choice(found)
            new, derivation = rewritten(graph, site.rewrite, site.match.tensors[0])
            assert derivation.replay(graph).digest == new.digest
            applied.add(site.rewrite.name)
            steps += 1
            graph = new
        sites.forget(KNOWN)
        for a, b in zip(expected, values_and_gradients(graph, n), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        if n % 50 == 49:
            print(f"{n + 1} graphs, {steps} steps", flush=True)
    print(f"{count} graphs, {steps} steps, {len(applied)} different rules: {', '.join(sorted(applied))}")
    assert len(applied) >= min(5, count)
