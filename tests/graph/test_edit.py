"""The editor against what one finds by looking at the whole graph again, and its cost on large graphs."""

import cProfile
import pstats

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import same
from neoflow.expr.tensor import Compute, topological
from neoflow.graph import Editor, canonicalize, make_graph
from tests.chance import Chance
from tests.strategies import random_program


def rank(definition):
    """A kind of definitions."""
    return len(definition.shape)


def agrees(editor):
    """Every answer of the editor, from the finished tensors alone."""
    order = topological(editor.finish())
    computes = editor.computes()
    made = [t for t in order if isinstance(t, Compute)]
    assert len(made) == len(computes)
    behind: dict[int, set[int]] = {}
    position = {t.uid: n for n, t in enumerate(computes)}
    for t in computes:
        inputs = editor.inputs(t)
        assert t.definition.slots == tuple(
            type(s)(n, i.shape, i.dtype) for n, (s, i) in enumerate(zip(t.definition.slots, inputs, strict=True))
        )
        assert all(position.get(i.uid, -1) < position[t.uid] for i in inputs), "an input stands behind its reader"
        assert all(editor.place(i) < editor.place(t) for i in inputs)
        assert all(any(r is t for r in editor.readers(i)) for i in inputs)
        behind[t.uid] = {t.uid}.union(*(behind.get(i.uid, {i.uid}) for i in inputs))
    for t in computes:
        for other in computes:
            assert editor.depends(t, other) == (other.uid in behind[t.uid])
        readers = {r.uid for r in computes if any(i is t for i in editor.inputs(r))}
        assert {r.uid for r in editor.readers(t)} == readers and len(editor.readers(t)) == len(readers)
        assert editor.is_read_once(t) == (len(readers) == 1 and not editor.is_root(t))
        twins = {
            o.uid
            for o in computes
            if o is not t and o.definition is t.definition and same(editor.inputs(o), editor.inputs(t))
        }
        alike = [
            n for o in computes if (n := editor.number(o)) in editor.alike(t, rank) and len(o.shape) == len(t.shape)
        ]
        assert sorted(alike) == list(editor.alike(t, rank)) and editor.number(t) in alike
        twin = editor.twin(t)
        assert (twin.uid in twins) if twins else twin is None


def edit(editor, chance):
    """A random legal edit of one or two tensors, or None: by an equal tensor, by a copy, by something that reads it."""
    computes = editor.computes()
    t = chance.pick(computes)
    kind = chance.between(0, 3)
    if kind == 0:
        return {t: Compute(t.definition, editor.inputs(t), f"{t.name}'")}
    if kind == 1:
        others = [o for o in computes if (o.shape, o.dtype) == (t.shape, t.dtype) and not editor.depends(o, t)]
        return {t: chance.pick(others)} if others else None
    if t.dtype == "bool":
        return None
    if kind == 2:
        return {t: nf.compute(t.shape, lambda *i: t[i], name=f"{t.name}+")}
    joint = nf.compute((2, *t.shape), lambda n, *i: nf.select(n == 0, t[i], t[i]), name=f"{t.name}2")
    u = chance.pick(computes)
    alike = (u.shape, u.dtype) == (t.shape, t.dtype) and u is not t and not editor.depends(t, u)
    return {t: joint[0], u: joint[1]} if alike else {t: joint[0]}


def edited(seed):
    program = random_program(seed)
    editor = Editor(make_graph(program.with_gradients(), list(program.feeds)).roots)
    chance = Chance(np.random.default_rng(seed))
    for _ in range(12):
        change = edit(editor, chance)
        if change is not None:
            before = {t.uid for t in editor.computes()}
            touched = editor.replace(change)
            assert {t.uid for t in editor.computes()} - before <= {t.uid for t in touched}
    return editor


@pytest.mark.parametrize("seed", range(25))
def test_what_is_kept_up_to_date_is_what_one_finds(seed):
    agrees(edited(seed))


@pytest.mark.slow
def test_what_is_kept_up_to_date_is_what_one_finds_in_many():
    for seed in range(1000, 1400):
        agrees(edited(seed))


def test_the_same_edits_give_the_same_numbers():
    a, b = edited(7), edited(7)
    assert [(t.name, a.number(t)) for t in a.computes()] == [(t.name, b.number(t)) for t in b.computes()]


def test_nothing_that_is_gone_has_a_number():
    x = nf.placeholder((3,), name="x")
    a = nf.exp(x)
    editor = Editor([nf.tanh(a)])
    editor.replace({a: x})
    assert not editor.is_live(a)
    for number in (editor.number(a), -1, 99):
        with pytest.raises(nf.GraphError, match=f"the graph has no tensor {number}"):
            editor.tensor(number)


def calls(work):
    """Calls of functions, Python's and its own: the same in every run, unlike time."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls


def deep(n):
    """A chain of n computes, with a constant and a copy at each."""
    x = nf.placeholder((4,), name="x")
    t, one = x, nf.compute((4,), lambda i: 1.0)
    for _ in range(n // 3):
        t = nf.compute((4,), lambda i, t=t: t[i])
        t = nf.exp(t * one)
    return [t], [x]


def wide(n):
    """One tensor that n others read, each equal to another; all are added up."""
    x = nf.placeholder((4,), name="x")
    a = nf.tanh(x)
    made = [nf.compute((4,), lambda i, k=k: a[i] * float(k // 2)) for k in range(n)]
    layer = made
    while len(layer) > 1:
        layer = [p + q for p, q in zip(layer[::2], layer[1::2], strict=False)] + layer[len(layer) & ~1 :]
    return [*layer, *made], [x]


def copies(n):
    """One sum of n tensors, each a copy of another one."""
    x = nf.placeholder((n, 4), name="x")
    made = [nf.exp(x[k]) for k in range(n)]
    made = [nf.compute((4,), lambda i, t=t: t[i]) for t in made]

    def body(i):
        terms = [t[i] for t in made]
        while len(terms) > 1:
            terms = [p + q for p, q in zip(terms[::2], terms[1::2], strict=False)] + terms[len(terms) & ~1 :]
        return terms[0]

    return [nf.compute((4,), body)], [x]


@pytest.mark.parametrize("program", [deep, wide, copies], ids=lambda p: p.__name__)
def test_twice_the_graph_is_twice_the_work(program):
    small, large = (make_graph(*program(n)) for n in (600, 1200))
    canonicalize(large), canonicalize(small)  # from now on what follows from definitions is remembered
    assert calls(lambda: canonicalize(large)) < 2.4 * calls(lambda: canonicalize(small))
