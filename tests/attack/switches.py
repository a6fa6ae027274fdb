"""The table of transformations: of each one that can be left out or asked for, programs in which it applies, and its
law: that values stay.

A law is asked of a seed: it draws a program, transforms it by this transformation alone, and where others could be done
too, by all together; it compares every value and gradient with that of the program as written, and gives how often the
transformation applied. The laws themselves stand with what they are laws of, and are asked here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import PASSES, make_graph, optimize, run
from neoflow.graph.algorithms import ALGORITHMS
from neoflow.mapping import reroll
from neoflow.partition import LOSES, RETURNED, ROWS, RULES, STRANDS, as_made, object_to, order_calls, partition
from neoflow.partition import prepared_first as prepared_of
from neoflow.partition.rules import EPILOGUES, RIDERS, SIBLINGS
from neoflow.rewriting import flowing
from neoflow.rewriting.flowing import BLOCKED, SWAPPED
from neoflow.rewriting.lying import JOINT
from neoflow.rewriting.sequence import TORCH
from tests import random_recurrences
from tests.attack.test_transformations import agree, only
from tests.chance import Chance
from tests.codegen.gpu import test_persistent
from tests.emulator.driver import emulated
from tests.graph import programs, test_blocks, test_chunks, test_laid, test_packing
from tests.graph.algorithms import test_table
from tests.mapping import cells
from tests.partition import test_fuse, test_kept_rows, test_riders, test_rules, test_strands, test_together
from tests.recompute import networks, test_laws, test_segments
from tests.rewriting import test_attending, test_channels, test_flowing, test_gathered, test_lying, test_unread
from tests.runtime import test_prepared


@dataclass(frozen=True)
class Law:
    """holds: of a seed, how often the transformation applied; it raises where a value changed. share: of the programs
    it applies in so many at least. few: programs that are drawn by the default suite. marks: what it needs."""

    holds: Callable[[int], int]
    share: float
    few: int = 10
    marks: tuple[pytest.MarkDecorator, ...] = ()


# ----------------------------------------------------------------------------------------- passes and their rewrites


def rewritten(name, make, seed):
    """Alone, all but it, and all."""
    case = make(seed)
    written = make_graph(case.roots, list(case.feeds))
    plain, every = run(written, PASSES[0])[0], optimize(written)
    alone, others = optimize(written, only(name)), optimize(written, frozenset((name,)))
    wanted = case.values(written.outputs)
    for graph in {g.digest: g for g in (alone, others, every)}.values():
        agree(case, graph, wanted, f"{name}, {make.__name__}({seed})")
    return alone.digest != plain.digest or others.digest != every.digest


def slices(seed):
    """Steps that read a tensor at constant indices, and differ by these."""
    make = programs.Maker(seed)
    steps, width, where = make.between(2, 5), make.between(3, 6), make.between(0, 1)
    x, y = make.input(steps + 1, 2, width), make.input(width)

    def step(n, i):
        e = x[n, where, i] * y[i]
        return e + (x[n, where, width - 1 - i] if make.chance(0.5) else y[i])

    return make.case([nf.compute((width,), partial(step, n)) for n in range(steps)])


PROGRAMS_OF = {
    "pad guards": (programs.windows, 0.6),
    "pad narrow": (programs.windows, 0.6),
    "factor": (programs.linear_sums, 0.5),
    "factor sums": (programs.linear_sums, 0.5),
    "share sums": (programs.norms, 0.9),
    "drop ones": (programs.norms, 0.9),
    "read vectors": (programs.norms, 0.9),
    "hoist": (programs.rotations, 0.6),
    "hoist costly": (programs.rotations, 0.6),
    "hoist lookups": (programs.lookups, 0.9),
    "read slices": (slices, 0.9),
    "batch": (programs.recurrences, 0.9),
    "join slices": (programs.branches, 0.3),
    "add first": (programs.branches, 0.2),
    "batch shared": (programs.recurrences, 0.9),
    "widen shared": (programs.widths, 0.3),
    "batch sums": (programs.recurrences, 0.9),
    "chain sums": (programs.recurrences, 0.9),
    "move offsets": (programs.steps, 0.4),
    "move numbers": (programs.steps, 0.1),
    "move reads": (programs.steps, 0.4),
    "sums within": (programs.samples, 0.1),
    "sum within": (programs.samples, 0.1),
}
"""Of each pass and rewrite the programs that it is for."""


# ----------------------------------------------------------------------------------------- rules of fusion


def fused(rule, make, seed):
    """Whatever is legal of one rule, and of all."""
    case = make(seed)
    others = {r.name for r in RULES} - {rule, *NEEDS.get(rule, ())}
    alone = test_rules.law(seed, lambda _: case, without=others, choose=lambda *_: None)
    test_rules.law(seed, lambda _: case, choose=lambda *_: None)
    return rule in alone


def puzzles(seed):
    """Sums and maps of one tensor, moves of what is made, slices, and what is put together of both."""
    make = programs.Maker(seed)
    rows, width = make.between(3, 6), make.between(3, 6)
    x, y, w = make.input(rows, width), make.input(rows, width), make.input(width, width)
    k = nf.axis(width, "k")
    product = nf.compute((rows, width), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))
    a, b = nf.exp(x * 0.3) * y, nf.tanh(x + y)
    total = nf.sum(a, axis=1)
    parts = make.shuffled([product, nf.tanh(a), b])[: make.between(2, 3)]
    whole = nf.concat(parts, axis=0)
    padded = nf.pad(make.pick((a, product, b)), [(0, 0), (1, 1)])
    low = make.between(0, rows - 1)
    roots = [
        nf.sum(whole * whole, axis=0),
        a / (1.5 + nf.abs(total)[:, None]),
        padded * 2.0 if make.chance(0.5) else padded,
    ]
    return make.case([nf.sum(roots[0]), *roots, nf.sin(product[low]) + nf.sum(product), make.pick((a * b, b - a))])


NEEDS = {SIBLINGS.name: (EPILOGUES.name,)}
"""Rules that take up what another one has left."""
PROGRAMS_TO_FUSE = {
    "alongside": (programs.norms, 0.25),
    "epilogues": (puzzles, 0.9),
    "inlining": (puzzles, 0.9),
    "moves": (puzzles, 0.9),
    "parts": (puzzles, 0.9),
    "row kernels": (programs.norms, 0.9),
    "sharing": (puzzles, 0.9),
    "siblings": (puzzles, 0.9),
    "views": (puzzles, 0.9),
}


def by_reward(seed):
    """Rows that are worth to be one kernel and rows that are not, with the reward and without."""
    make = programs.Maker(seed)
    rows, width = make.between(2000, 4000), make.pick((17, 33, 49, 48, 64))
    x, k = make.input(rows, width), nf.axis(width, "k")
    top = nf.compute((rows,), lambda i: nf.max(x[i, k], axis=[k]))
    e = nf.compute((rows, width), lambda i, j: nf.tanh(nf.tanh(nf.exp(x[i, j] - top[i]))))
    case = programs.Case([e], make.feeds)
    graph = optimize(make_graph(case.roots, list(case.feeds)))
    cuts = [partition(graph, choose=choose) for choose in (object_to, partial(object_to, besides=(LOSES,)))]
    for cut in cuts:
        np.testing.assert_allclose(test_fuse.run(cut, case.feeds)[graph.outputs[0]], case.values([e])[0], rtol=1e-12)
    return len(cuts[0].calls) != len(cuts[1].calls)


def returned(seed):
    """Products and sums in the shape in which they are made or another, some of them returned in both."""
    make = programs.Maker(seed)
    rows, width, inner = make.between(2, 6), 2 * make.between(1, 4), make.between(2, 5)
    x, w = make.input(rows, inner), make.input(inner, width)
    made = make.pick((lambda: x @ w, lambda: nf.tanh(x @ w), lambda: nf.sum(x[:, :, None] * w[None], axis=1)))()
    shape = make.pick(((rows, 2, width // 2), (rows * width,), (rows, width // 2, 2)))
    roots = [
        nf.reshape(made, shape),
        *((made,) if make.chance(0.2) else ()),
        *((nf.exp(made),) if make.chance(0.3) else ()),
    ]
    graph = optimize(make_graph(roots, list(make.feeds)))
    cut = as_made(graph, partition(graph))
    values = test_fuse.run(cut, make.feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate(roots, make.feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t].reshape(t.shape), wanted, rtol=1e-9, atol=1e-9)
    return sum(d.rule == RETURNED and d.verdict.ok for d in cut.decisions)


def prepared(seed):
    """What follows from parameters alone is made first, of nothing else, and serves calls of other inputs."""
    w, x, outputs, updates, make = test_prepared.drawn(seed)
    graph = optimize(make_graph(outputs, [x], updates))
    cut = partition(graph)
    calls, count = prepared_of(graph, order_calls(graph, cut)[0], cut.views)
    held = {p: make.rng.standard_normal(p.shape) for p in w}
    ready = test_fuse.run(replace(cut, calls=calls[:count]), {**held, **{c: c.value for c in graph.constants}})
    for _ in range(2):
        feeds = {**held, x: make.rng.standard_normal(x.shape)}
        values = test_fuse.run(replace(cut, calls=calls[count:]), {**ready, x: feeds[x]})
        for t, wanted in zip(graph.roots, nf.evaluate(list(graph.roots), feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9)
    return count


def together(seed):
    """Kernels that are launched together need nothing of each other, and write no byte that another one uses."""
    graph, cuts = test_together.with_updates(seed)
    groups = 0
    for cut in cuts:
        found = test_together.check(graph, cut)
        test_together.check_memory(graph, cut, *found)
        groups += len(found[0].groups)
    return groups


# ----------------------------------------------------------------------------------------- where tensors lie


def lying(kind, seed):
    """Whatever is legal is thought to pay."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CLEARLY", 30.0), ("ROOM", 30.0), ("_refused", lambda *_: None), ("LEAST", 0)):
            patch.setattr(flowing, name, value)
        graph, feeds = test_flowing.network(seed)
        return test_flowing.law(kind, graph, lambda roots: nf.evaluate(list(roots), feeds, dtype="float64"))


# ----------------------------------------------------------------------------------------- recurrences


def mapped(seed):
    """Cells written out, found and made loops again, in their best form."""
    program = random_recurrences.draw(seed, seed % 2, (5, 10))
    outputs = [*program.unrolled, *random_recurrences.gradients(program, program.unrolled)]
    graph = make_graph(outputs, [t for t in program.feeds if not isinstance(t, nf.Parameter)])
    found = reroll(graph)
    values = (nf.evaluate(list(g.outputs), program.feeds, dtype="float64") for g in (graph, found.graph))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9 * max(1.0, float(np.abs(a).max(initial=0))))
    return len(found.found)


def attended(seed):
    """Softmaxes of products in every form that users write, under masks of every kind."""
    make = Chance(np.random.default_rng(seed))
    kind = make.pick(("none", "padded", "biased", "seen", "causal", "later", "both"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neoflow.rewriting.attending.PRICE", 100.0)
        patch.setattr("neoflow.expr.recurrence.LARGE", 1)
        roots, fed = test_attending.attention(kind, make.pick(("library", "shifted", "plain")))
        found = test_attending.blocked(roots, fed)
    feeds = test_attending.draw(fed, seed)
    values = (nf.evaluate(list(r), feeds, dtype="float64") for r in (roots, found.graph.outputs))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
    return found.is_taken


def of_one(law, seed):
    """A law that is asked of several seeds, of one."""
    return law([seed])


def stranded(seed):
    """Compiled for two threads; strands may be of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEOFLOW_THREADS", "2")
        patch.setattr("neoflow.partition.strands.LEAST_BYTES", 1)
        return test_strands.law([seed])


def in_rows(seed):
    """Compiled: of what a step changes one row of that is written in place, unless anything else speaks against it."""
    make = programs.Maker(seed)
    steps, batch, width = make.between(2, 7), make.between(1, 3), make.between(2, 5)
    more, is_back, function = make.between(0, 2), make.chance(0.3), make.pick((nf.tanh, nf.sin, nf.exp))
    kept, x, w = make.input(steps + more, batch, width), make.input(steps, batch, width), make.input(width, width)
    first, what = make.between(0, more), make.pick(("sum", "attended", "old", "row", "row"))

    def step(old, row):
        n, given = row
        new = function(given @ w) + (nf.sum(old, axis=0) if what == "old" else 0.0)
        then = test_kept_rows.put(old, n, new, first)
        if what == "attended":
            return then, test_kept_rows.attended(given, n, then, then, steps + more)
        return then, nf.sum(then, axis=0) if what == "sum" else new * 0.5

    last, ys = nf.scan(step, kept, (nf.arange(steps), x), reverse=is_back)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEOFLOW_WITHOUT", STRANDS)  # steps that are shared out by samples keep whole tensors
        f = nf.compile([last, ys], list(make.feeds))
    for a, b in zip(f(*make.feeds.values()), nf.evaluate([last, ys], make.feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")
    is_told = ROWS in (r.name for r in f.compiled.trace.records)
    return f.explain(ROWS).count("yes, a step writes it in place") if is_told else 0


def persisted(seed):
    """Compiled for a GPU, which is the emulator: loops of points that are one launch."""
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        emulated(patch)
        f = test_persistent.agree(*test_persistent.drawn(rng, int(rng.integers(1, 9))), seed)
    return f.explain("persistent").count("in one launch")


def of_pytorch(seed):
    """Compiled with calls of PyTorch, which are thought to be faster."""
    torch = pytest.importorskip("torch")
    make, threads = Chance(np.random.default_rng(seed)), torch.get_num_threads()
    sizes = (make.between(1, n) for n in (9, 4, 6, 8))
    x, own, outputs = cells.case(make.pick(cells.KINDS), *sizes)
    feeds = cells.values([x, *own], seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEOFLOW_WITH", TORCH)
        patch.setattr("neoflow.trials.Trials.beside", lambda *_: (1.0, 0.5))
        torch.set_num_threads(1)
        try:
            f = nf.compile(outputs, [x])
            for p in own:
                nf.set_value(p, feeds[p])
            found = f(feeds[x])
        finally:
            torch.set_num_threads(threads)
    for a, b in zip(found, nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}")
    return sum(c.name.startswith("torch.") for c in f.plan.calls)


def limited(seed):
    """Steps under limits to memory, every bit as without."""
    return test_laws.law((networks.network, networks.scattered)[seed % 2], seed)


# ----------------------------------------------------------------------------------------- algorithms


def computed(name, seed):
    """By one algorithm, in programs of its form in turns."""
    those = test_table.programs_of(name)
    return test_table.law(those[seed % len(those)], name, seed)


LAWS = {
    **{n: Law(partial(rewritten, n, make), share) for n, (make, share) in PROGRAMS_OF.items()},
    **{n: Law(partial(fused, n, make), share) for n, (make, share) in PROGRAMS_TO_FUSE.items()},
    RIDERS.name: Law(partial(of_one, test_riders.law), 0.2),
    "reward": Law(by_reward, 0.25, few=6),
    RETURNED: Law(returned, 0.25),
    "prepared": Law(prepared, 0.07),
    "together": Law(together, 0.9),
    SWAPPED: Law(partial(lying, SWAPPED), 0.9, few=4),
    BLOCKED: Law(partial(lying, BLOCKED), 0.7, few=3),
    "packed parameters": Law(test_laid.training_law, 0.9),
    "layouts": Law(test_packing.law, 0.3, few=20),
    JOINT: Law(test_lying.law, 0.2, few=8),
    "channels last": Law(test_channels.law, 0.9, few=3),
    "unread": Law(test_unread.law, 0.25),
    "gathered": Law(test_gathered.law, 0.7),
    "mapping": Law(mapped, 0.25, few=12),
    "attention": Law(attended, 0.9, few=3),
    "segments": Law(partial(of_one, test_segments.law), 0.25, few=8),
    "chunks": Law(partial(of_one, test_chunks.law), 0.35, few=8),
    "blocks": Law(partial(of_one, test_blocks.law), 0.9),
    STRANDS: Law(stranded, 0.4, few=2, marks=(pytest.mark.tvm,)),
    ROWS: Law(in_rows, 0.35, few=6, marks=(pytest.mark.tvm,)),
    "persistent": Law(persisted, 0.9, few=2, marks=(pytest.mark.tvm,)),
    TORCH: Law(of_pytorch, 0.9, few=1, marks=(pytest.mark.tvm, pytest.mark.torch)),
    "memory": Law(limited, 0.2, few=4),
    **{a.name: Law(partial(computed, a.name), 1.0, few=1) for a in ALGORITHMS},
}
