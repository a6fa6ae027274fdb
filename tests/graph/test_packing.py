"""Operands packed beside: values stay, who shares what, why not; layouts are bijections."""

from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Editor, Layout, Wish, make_graph, operands, optimize, pack_shared, sites
from neoflow.graph.packing import PackShared, block_axis
from tests.chance import Chance
from tests.graph.programs import PROGRAMS, Case

K = nf.axis(8, "k")
W = nf.parameter((8, 12), name="w")
PANELS = Layout((), 1, (0,), 4)


def product(x, w=W):
    return nf.compute((x.shape[0], w.shape[1]), lambda i, j: nf.sum(x[i, K] * w[K, j], axis=[K]), name="y")


def inputs(count, rows=6):
    return [nf.placeholder((rows, 8), name=f"x{n}") for n in range(count)]


def packed(graph, wishes, few=3):
    """The graph after the rewrite and its derivation; values stay, nothing is left, a replay gives the same."""
    wishes = [replace(w, few=few) for w in wishes]
    after, derivation = pack_shared(graph, wishes)
    after.check()
    assert derivation.replay(graph).digest == after.digest
    editor = Editor(after.roots)
    rewrite = PackShared(wishes=tuple(wishes))
    assert not [s for t in editor.computes() for s in sites(editor, (rewrite,), t)]
    return after, derivation


def wishes_of(graph, layout=PANELS, slot=1):
    return [Wish(d, slot, layout) for d in dict.fromkeys(t.definition for t in graph.nodes) if operands(d)]


def test_what_three_contractions_read_is_packed_once():
    xs = inputs(3)
    graph = make_graph([product(x) for x in xs], xs)
    after, derivation = packed(graph, wishes_of(graph))
    (step,) = derivation.steps
    assert step.reason == "w is packed once for 3 that read it"
    p = next(t for t in after.nodes if t.name == "w_packed")
    assert p.shape == (3, 8, 4) and all(t.inputs[1] is p for t in after.outputs)
    assert all(block_axis(t.definition, 1) is t.definition.axes[1] for t in after.outputs)


def test_two_would_not_pay_and_a_width_that_does_not_divide_is_refused():
    xs = inputs(3)
    two = make_graph([product(x) for x in xs[:2]], xs[:2])
    after, derivation = packed(two, wishes_of(two))
    assert after is two and [s.reason for s in derivation.refused] == ["w is packed by 2 kernels, and 3 would pay"]
    three = make_graph([product(x) for x in xs], xs)
    for layout, reason in (
        (Layout((), 1, (0,), 5), "w: its 12 elements are not several blocks of 5"),
        (Layout((), 1, (0,), 12), "w: its 12 elements are not several blocks of 12"),
        (Layout((), 1, (), 4), "w: [1/4, 1%4] is no layout of 2 dimensions"),
    ):
        after, derivation = packed(three, wishes_of(three, layout))
        assert after is three and {s.reason for s in derivation.refused} == {reason}


def test_other_readers_read_what_they_read():
    xs = inputs(4)
    other = nf.compute((8, 12), lambda k, j: W[k, j] * 2.0)
    graph = make_graph([*(product(x) for x in xs), other], xs, {W: other})
    after, _ = packed(graph, wishes_of(graph))
    assert after.outputs[-1] is other and after.updates == graph.updates


def test_only_what_is_read_at_axes_of_its_own_is_an_operand():
    x, v = nf.placeholder((32, 8), name="x"), nf.placeholder((16, 12), name="v")
    strided = nf.compute((32, 12), lambda i, j: nf.sum(x[i, K] * v[2 * K, j], axis=[K]))
    diagonal = nf.compute((32, 12), lambda i, j: nf.sum(x[i, K] * v[K, K] * W[K, j], axis=[K]))
    twice = nf.compute((32, 12), lambda i, j: nf.sum(x[i, K] * v[j, 0] * v[K, j], axis=[K]))
    assert [[o.slot for o in operands(t.definition)] for t in (product(x), strided, diagonal, twice)] == [
        [0, 1],
        [0],
        [0, 2],
        [0],
    ]


def drawn(seed):
    """Contractions that share an operand, of any dimensions: batch, rows and columns, several of each, and a layout."""
    make = Chance(np.random.default_rng(seed))
    groups = {"b": make.between(0, 1), "n": make.between(1, 2), "k": make.between(1, 2)}
    dims = [(g, make.pick((2, 4, 6))) for g, count in groups.items() for _ in range(count)]
    shared = make.shuffled(dims)
    w = nf.placeholder([n for _, n in shared], name="w")
    feeds = {w: make.rng.standard_normal(w.shape)}
    order = make.shuffled(range(len(dims)))

    def one(rows):
        x = nf.placeholder((rows, *(dims[d][1] for d in order if dims[d][0] != "n")), name="x")
        feeds[x] = make.rng.standard_normal(x.shape)
        free = [d for d in range(len(dims)) if dims[d][0] != "k"]
        axes = {d: nf.axis(n, f"k{d}") for d, (g, n) in enumerate(dims) if g == "k"}

        def body(i, *own):
            at = {**axes, **dict(zip(free, own, strict=True))}
            left = x[(i, *(at[d] for d in order if dims[d][0] != "n"))]
            return nf.sum(left * w[tuple(at[dims_at(d)] for d in range(len(shared)))], axis=list(axes.values()))

        return nf.compute((rows, *(dims[d][1] for d in free)), body)

    places = list(range(len(dims)))
    chosen = {}
    for n, pair in enumerate(shared):
        chosen[n] = next(p for p in places if dims[p] == pair)
        places.remove(chosen[n])

    def dims_at(n):
        return chosen[n]

    rows = [8 if make.chance(0.8) else 12 for _ in range(make.between(3, 5))]
    roots = [one(r) for r in rows]
    mixed = make.shuffled(range(len(shared)))
    at = make.between(0, len(mixed) - 1)
    layout = Layout(tuple(mixed[:at]), mixed[at], tuple(mixed[at + 1 :]), make.pick((1, 2, 3)))
    return Case(roots, feeds), w, layout, make


def law(seed):
    """How many operands were packed of a random program of contractions."""
    case, w, layout, make = drawn(seed)
    graph = make_graph(case.roots, list(case.feeds))
    wishes = [
        Wish(t.definition, n, layout)
        for t in {t.definition: t for t in graph.nodes}.values()
        for n, i in enumerate(t.inputs)
        if i is w and make.chance(0.9)
    ]
    after, derivation = packed(graph, wishes, make.between(1, 3))
    for a, b in zip(case.values(graph.outputs), case.values(after.outputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    return len(derivation.steps)


def programs(seed):
    """The same of programs of every kind, each operand in a layout drawn for it."""
    count, rng = 0, np.random.default_rng(seed)
    for program in PROGRAMS:
        case = program(seed)
        graph = optimize(make_graph(case.roots, list(case.feeds)))
        wishes = []
        for t in {t.definition: t for t in graph.nodes}.values():
            if found := operands(t.definition):
                operand = found[int(rng.integers(len(found)))]
                first, *rest = map(int, rng.permutation(len(operand.axes)))
                divisors = [w for w in range(1, operand.shape[first]) if operand.shape[first] % w == 0]
                width = divisors[int(rng.integers(len(divisors)))] if divisors else 2
                wishes.append(Wish(t.definition, operand.slot, Layout(tuple(rest[:1]), first, tuple(rest[1:]), width)))
        after, derivation = packed(graph, wishes, 1)
        count += len(derivation.steps)
        for a, b in zip(case.values(graph.outputs), case.values(after.outputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"{program}, seed {seed}")
    return count


def test_values_stay_in_random_programs():
    assert sum(map(law, range(20))) >= 5
    assert programs(0) >= 4


@pytest.mark.slow
def test_values_stay_in_many_programs_of_every_kind():
    assert sum(map(programs, range(1000, 1060))) >= 200


def test_the_rewrite_is_drawn():
    first, *rest = PackShared().drawing.strip().splitlines()
    assert first.endswith(".") and any("->" in line for line in rest)
