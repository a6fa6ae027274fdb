"""What is computed again and what is not, on programs small enough to count; and what a user sees of it."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code, Fault
from neoflow.errors import ConfigError
from neoflow.nn import functional as F
from neoflow.partition import KernelCall
from neoflow.recompute import Run, bytes_of, fit
from neoflow.recompute.search import candidates
from neoflow.recompute.steps import Step, Steps
from neoflow.recompute.unroll import profile, unroll
from neoflow.roofs import STATED
from tests.recompute.networks import program_of

BATCH, WIDTH = 64, 16
ACT, SQUARE = BATCH * WIDTH * 4, WIDTH * WIDTH * 4


def chain(layers, rate=0.0):
    """The loss of dense layers, its inputs, parameters and updates; with dropout of a seed that each step sets."""
    x, counter = nf.placeholder((BATCH, WIDTH), name="x"), nf.parameter((), "int64", name="counter", init=7)
    start = np.random.default_rng(0).standard_normal((layers, WIDTH, WIDTH)).astype(np.float32) / 4
    weights = [nf.parameter((WIDTH, WIDTH), name=f"w{n}", init=w) for n, w in enumerate(start)]
    h, updates = x, {}
    for n, w in enumerate(weights):
        h = F.dropout(nf.tanh(F.linear(h, w)), rate, counter, n)
        updates |= {counter: counter + 1} if rate else {}
    loss = nf.sum(h * h)
    updates |= {w: w - 0.01 * g for w, g in zip(weights, nf.grad(loss, weights), strict=True)}
    return loss, x, [*weights, *([counter] if rate else [])], updates


def test_bytes_as_they_are_written():
    written = {"2GiB": 2 << 30, "500MB": 500_000_000, " 1.5 kib ": 1536, "7": 7, "3b": 3, 12: 12, "1tib": 1 << 40}
    assert {text: bytes_of(text) for text in written} == written


@pytest.mark.parametrize("text", ["", "much", "-1GiB", "2 GiBs", "0", "1.5", 0, -4, True, "0.1B"])
def test_what_is_no_amount_of_memory(text):
    with pytest.raises(ConfigError, match="is no amount of memory: give bytes, or a text like '2GiB' or '500MB'"):
        bytes_of(text)


def line(*steps, sizes, held=(), lasting=0):
    """Steps of (reads, writes, until) over temporaries of these bytes, a second each. lasting: written beside."""
    untils = [until if isinstance(until, tuple) else (until,) * len(w) for _, w, until in steps]
    made = tuple(
        Step(tuple(r), tuple(w), (), 0, lasting, 1.0, until) for (r, w, _), until in zip(steps, untils, strict=True)
    )
    return Steps(made, tuple(nf.placeholder((1,)) for _ in sizes), tuple(sizes), frozenset(held))


FORWARD = line(
    ((), (0,), 9), ((0,), (1,), 9), ((1,), (2,), 9), ((2, 1), (3,), 9), ((3, 0), (4,), 9), sizes=(8,) * 5, held=(4,)
)  # fmt: skip
"""a, b(a), c(b), c's backward with b, b's with a"""


def test_what_is_lost_runs_again_before_it_is_read():
    assert unroll(FORWARD, ()) == [Run(n) for n in range(5)]
    assert unroll(FORWARD, [(0, 1)]) == [Run(0), Run(1), Run(2), Run(3), Run(0, (0,)), Run(4)]
    assert profile(FORWARD, unroll(FORWARD, ())).live == [8, 16, 24, 32, 24]
    assert profile(FORWARD, unroll(FORWARD, [(0, 1)])).live == [8, 16, 16, 24, 24]


def test_what_runs_again_for_something_else_is_there_from_then_on_or_lost_again():
    found = [unroll(FORWARD, [(0, 1), (1, 2)], brief) for brief in ((), [(0, 1)])]
    assert found[0] == [Run(0), Run(1), Run(2), Run(0, (0,)), Run(1, (1,)), Run(3), Run(4)]
    assert found[1] == [*found[0][:-1], Run(0, (0,)), Run(4)]


def test_what_it_is_computed_from_runs_again_first():
    found = unroll(FORWARD, [(0, 1), (1, 2)])
    assert found == [Run(0), Run(1), Run(2), Run(0, (0,)), Run(1, (1,)), Run(3), Run(4)]


def test_nothing_runs_again_once_what_it_reads_is_overwritten():
    steps = [(s.reads, s.writes, 9) for s in FORWARD.steps]
    steps[0] = ((), (0,), 3)
    assert unroll(line(*steps, sizes=(8,) * 5), [(0, 1)]) is None
    steps[0] = ((), (0,), 4)
    assert unroll(line(*steps, sizes=(8,) * 5), [(0, 1)]) is not None


def test_what_follows_from_something_else_runs_again_all_the_same():
    """0 and 1 are of one step, which overwrites what 1 alone follows from."""
    steps = line(((), (0, 1), (9, 0)), ((0, 1), (2,), 9), ((2, 0), (3,), 9), ((3, 1), (4,), 9), sizes=(8,) * 5)
    assert unroll(steps, [(0, 1)]) == [Run(0), Run(1), Run(0, (0,)), Run(2), Run(3)]
    assert unroll(steps, [(1, 1)]) is None
    assert unroll(steps, [(0, 1), (1, 1)]) is None


def test_what_is_written_in_vain_has_memory_for_that_long():
    """It is a parameter where the step first runs, and nobody reads it where it runs again."""
    lost = [(0, 1)]
    steps = [(s.reads, s.writes, s.until) for s in FORWARD.steps]
    found = [profile(line(*steps, sizes=(8,) * 5, lasting=n), unroll(FORWARD, lost)).live for n in (0, 16)]
    assert found == [[8, 16, 16, 24, 24], [8, 16, 16, 24, 32]]


def centred(layers):
    """The loss of dense layers with norms, the running means of which are updated; its input and updates."""
    x, updates, weights = nf.placeholder((BATCH, WIDTH), name="x"), {}, []
    h = x
    for n in range(layers):
        weights.append(nf.parameter((WIDTH, WIDTH), name=f"w{n}", init=0.1))
        h = F.linear(h, weights[-1])
        mean, running = nf.mean(h, axis=1, keepdims=True), nf.parameter((BATCH, 1), name=f"running{n}", init=0.0)
        updates[running] = 0.9 * running + 0.1 * mean
        h = nf.tanh(h - mean)
    loss = nf.sum(h * h)
    updates |= {w: w - 0.01 * g for w, g in zip(weights, nf.grad(loss, weights), strict=True)}
    return loss, x, updates


def running(program):
    """What running means become, where that overwrites them."""
    return {v for p, v in program.graph.updates if p in program.in_place and p.name.startswith("running")}


def test_a_norm_runs_again_once_its_running_mean_is_updated():
    loss, x, updates = centred(8)
    program = program_of([loss], [x], updates)
    kept = running(program)
    fitted = fit(program, program.plan().nbytes - 4 * ACT, STATED)
    norms = [program.calls[r.step] for r in fitted.again if not kept.isdisjoint(program.calls[r.step].outputs)]
    assert len(norms) >= 4
    written = [t for c in fitted.program.calls for t in c.outputs if t in kept]
    assert len(written) == len(set(written)) == len(kept) == 8


def test_a_norm_that_checks_an_index_runs_again_only_before_that():
    """What it finds wrong may follow from what is overwritten."""
    loss, x, updates = centred(3)
    program = program_of([loss], [x], updates)
    checking = program.using({digest: Code((), (), (Fault(None, 1),)) for digest in program.kernels})
    kept = running(program)
    norms = [n for n, c in enumerate(program.calls) if not kept.isdisjoint(c.outputs)]
    assert len(norms) == 3
    for found in (program, checking):
        steps = found.steps(STATED).steps
        for n in norms:
            assert set(steps[n].until) == {n if found is checking else len(steps)}


def test_a_seed_is_read_again_before_it_is_set():
    loss, x, _, updates = chain(6, 0.5)
    program = program_of([loss], [x], updates)
    whole = program.plan().nbytes
    fitted = fit(program, whole - ACT, STATED)
    assert fitted.again
    writers = {v: p for p, v in program.graph.updates if p in program.in_place}
    overwritten = set()
    for call in fitted.program.calls:
        assert isinstance(call, KernelCall) and overwritten.isdisjoint(call.inputs)
        overwritten |= {writers[t] for t in call.outputs if t in writers}


@pytest.mark.tvm
@pytest.mark.parametrize(("layers", "rate"), [(10, 0.0), pytest.param(5, 0.25, marks=pytest.mark.slow)])
def test_losses_are_the_same_to_the_bit(layers, rate):
    x = np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype(np.float32)
    runs, whole = [], 0
    for share in (None, 0.95, 0.8):
        loss, fed, parameters, updates = chain(layers, rate)
        step = nf.compile([loss], fed, updates, memory=int(share * whole) if share else None)
        whole = whole or step.plan.nbytes
        assert step.plan.nbytes <= (share or 1) * whole
        runs.append([*(step(x)[0].item() for _ in range(4)), *map(nf.get_value, parameters)])
    for other in runs[1:]:
        for a, b in zip(runs[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.tvm
def test_the_price_is_said():
    loss, x, _, updates = chain(10)
    whole = nf.compile([loss], x, updates)
    step = nf.compile([loss], x, updates, memory=whole.plan.nbytes - 1)
    summary, parts, *kernels = step.explain("memory").splitlines()
    assert " brought to " in summary and "1 kernels run again beside" in summary and "by the estimate from" in summary
    assert parts.startswith("temporaries ") and "parameters 10.0 KiB" in parts
    assert len(kernels) == 1 and " not kept, 4.0 KiB: " in kernels[0]
    assert sum(c.name.endswith(" again") for c in step.plan.calls) == 1
    assert len(step.compiled.kernels) == len(whole.compiled.kernels)
    enough = nf.compile([loss], x, updates, memory="1GiB")
    assert "nothing need be computed again" in enough.explain("memory")
    assert enough.plan.calls == whole.plan.calls


@pytest.mark.tvm
def test_too_little_memory():
    loss, x, _, updates = chain(10)
    with pytest.raises(ConfigError) as caught:
        nf.compile([loss], x, updates, memory="10KiB")
    assert str(caught.value).count("does not fit into 10.0 KiB: the least that works is ") == 1
    least = int(str(caught.value).split(" bytes (")[0].split()[-1])
    assert nf.compile([loss], x, updates, memory=least).plan.nbytes == least


@pytest.mark.tvm
def test_a_trainer_says_it_before_it_trains(capsys):
    loss, x, parameters, _ = chain(10)
    batch = np.random.default_rng(1).standard_normal((BATCH, WIDTH)).astype(np.float32)
    told, losses = [], []
    for memory in (None, 60_000):
        loss, x, parameters, _ = chain(10)
        trainer = nf.Trainer(loss, parameters, inputs=[x], memory=memory)
        values = []
        trainer.fit(lambda: iter([(batch,)] * 3), on_step=lambda r, values=values: values.append(r.values["loss"]))
        losses.append(values)
        told.append(capsys.readouterr())
    assert losses[0] == losses[1] and len(losses[0]) == 3
    assert all("kernels run again" not in t for t in (told[0].out, told[0].err))
    assert "kernels run again" in told[1].out + told[1].err
    with pytest.raises(ConfigError, match="is no amount of memory"):
        nf.Trainer(loss, parameters, inputs=[x], memory="plenty")


def test_parts_that_follow_from_each_other():
    """Of a whole 0: its second part is made from 1, which is made from the first one."""
    steps = line(((), (0,), 9), ((0,), (1,), 9), ((1,), (0,), 9), ((0,), (2,), 9), ((0, 2, 1), (3,), 9), sizes=(8,) * 4)
    assert unroll(steps, [(0, 3)]) == [Run(0), Run(1), Run(2), Run(3), Run(0, (0,)), Run(2, (0,)), Run(4)]
    assert unroll(steps, [(0, 3), (1, 2)]) is None


def test_what_runs_again_for_something_else_is_lost_again_where_it_would_be_the_peak():
    """a is computed again for b, and would then lie beside 6, which is large, until its own gradient."""
    forward = [((), (0,), 9), ((0,), (1,), 9), ((1,), (2,), 9), ((2,), (3,), 9), ((3,), (4,), 9)]
    back = [((4, 1), (5,), 9), ((5,), (6,), 9), ((6,), (7,), 9), ((7, 0), (8,), 9)]
    found = list(candidates(line(*forward, *back, sizes=(32, 32, 8, 64, 8, 8, 64, 8, 8), held=(8,))))
    assert [(c.peak, c.seconds) for c in found] == [(136, 9), (104, 10), (104, 11), (72, 12)]
    assert found[-1].lost == {(0, 1), (1, 2)} and found[-1].brief == {(0, 1)}


def test_what_was_lost_too_early_is_kept_again():
    """d is lost first, being large. Once b and c are computed again from a, c is needed for d again long before its own
    gradient, beside which d is the peak: that is less with d kept."""
    forward = [((), (0,), 9), ((0,), (1,), 9), ((1,), (2,), 9), ((1, 2), (3,), 9), ((3,), (4,), 9)]
    back = [((4,), (5,), 9), ((5, 3), (6,), 9), ((6, 2), (7,), 9), ((7, 1), (8,), 9), ((8, 0), (9,), 9)]
    steps = line(*forward, *back, sizes=(16, 16, 32, 64, 64, 8, 8, 8, 8, 8), held=(9,))
    found = list(candidates(steps))
    assert [(c.peak, c.seconds) for c in found] == [(200, 10), (192, 11), (160, 12), (144, 13), (144, 14), (136, 13)]
    assert found[-1].lost == {(0, 1), (1, 3), (2, 3)} == found[-2].lost - {(3, 4)}


def test_what_is_written_together_is_written_again_together():
    steps = line(((), (0, 1), 9), ((0, 1), (2,), 9), ((2, 0), (3,), 9), ((3, 1), (4,), 9), sizes=(8,) * 5)
    assert unroll(steps, [(0, 1), (1, 1)]) == [Run(0), Run(1), Run(0, (0, 1)), Run(2), Run(3)]
