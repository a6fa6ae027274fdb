"""Rules one after the other, at random, on random graphs: every value is kept, and every derivation replays."""

import random

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Placeholder
from neoflow.graph import Editor, make_graph, sites
from neoflow.superopt import Variable, standard, substitution
from neoflow.superopt.hunt import values
from neoflow.superopt.rewrite import rewritten

RULES = [r for rule in standard().rules for r in (rule, rule.reversed()) if r is not None]
REWRITES = [substitution(r) for r in RULES if not isinstance(r.source, Variable)]


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


@pytest.mark.parametrize("count, seed", [(4, 0), pytest.param(300, 1, marks=pytest.mark.slow)])
def test_sequences_of_rules_keep_values(count, seed):
    chance = random.Random(seed)
    applied = set()
    for n in range(count):
        graph = random_graph(chance, 8, n % 2 == 0)
        arrays = values({t.name: t.shape for t in graph.inputs}, n)
        given = {t: arrays[t.name] for t in graph.inputs}
        expected = nf.evaluate(list(graph.outputs), given)
        for _ in range(6):
            editor = Editor(graph.roots, graph.order)
            found = [s for t in editor.computes() for s in sites(editor, REWRITES, t)]
            if not found:
                break
            site = chance.choice(found)
            new, derivation = rewritten(graph, site.rewrite, site.match.tensors[0])
            assert derivation.replay(graph).digest == new.digest
            applied.add(site.rewrite.name)
            graph = new
        for a, b in zip(expected, nf.evaluate(list(graph.outputs), given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    print(f"{count} graphs, {len(applied)} different rules: {', '.join(sorted(applied))}")
    assert len(applied) >= min(5, count)
