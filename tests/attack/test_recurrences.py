"""Recurrences written out: compiled in a time and to a size that grow with the number of steps, and right."""

import time

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline
from neoflow.graph import make_graph, operations, optimize
from neoflow.partition import partition
from neoflow.partition.choose import MAX_ROW_OPERATIONS
from neoflow.partition.copies import instructions
from neoflow.partition.inlined import MAX_COPIES, MAX_INSTRUCTIONS, MAX_NODES
from tests.attack.recurrences import PROGRAMS

pytestmark = pytest.mark.tvm


def divided(name, steps):
    program = PROGRAMS[name](steps)
    return partition(optimize(make_graph(program.outputs, list(program.feeds))))


def work(found):
    """Instructions of all nodes of all kernels, what is recomputed counted in each kernel that recomputes it."""
    return sum(instructions(node.definition) for call in found.calls for node in call.subgraph.nodes)


LARGE = ("soft_dtw_in_place", "scan")
"""Programs of more than a kernel a step, of which few steps are much already."""
MANY = ("soft_dtw_square",)
"""Programs of which few steps have a kernel each: more than 64 share theirs."""
LIKE = ("soft_dtw", "soft_dtw_square")
"""Programs that are like another one."""
EQUAL = [name for name in PROGRAMS if name not in MANY]


def drawn(names, small, steps):
    """So many steps of each; unless the slow tests are run, fewer of what is large and none of what is like it."""
    few = [(name, small if name in LARGE else steps) for name in names if name not in LIKE]
    more = [pytest.param(name, steps, marks=pytest.mark.slow) for name in names if name in (*LARGE, *LIKE)]
    return pytest.mark.parametrize(("name", "steps"), [*few, *more])


@drawn(PROGRAMS, 6, 12)
def test_kernels_and_their_sizes_grow_with_the_steps(name, steps):
    few, more, most = (divided(name, n * steps) for n in (1, 2, 4))
    for measure in (lambda p: len(p.calls), work):
        first, second = measure(more) - measure(few), measure(most) - measure(more)
        assert 0 < second <= 2.5 * first + 10
    parts = [c.subgraph for c in most.calls]
    assert max(len(s.nodes) for s in parts[:-1] if s.rows is None) <= 40 + 2 * MAX_NODES
    rows = [sum(operations(n.definition) for n in s.nodes) for s in parts if s.rows is not None]
    assert max(rows, default=0) <= MAX_ROW_OPERATIONS


@drawn(EQUAL, 28, 40)
def test_equal_steps_are_equal_kernels(name, steps):
    assert len(divided(name, steps).subgraphs) <= 24


def test_many_steps_under_other_conditions_are_equal_kernels():
    """Those of one half of the table, and those of the other; forward and backward."""
    found = divided("soft_dtw_square", 76)
    assert len(found.calls) == 152 and len(found.subgraphs) <= 24


def test_what_would_grow_says_why_it_does_not():
    reasons = {d.verdict.reason.split(" of ")[0] for d in divided("heat", 30).decisions if not d.verdict.ok}
    assert reasons  # the sentences themselves are in tests/partition/test_choose.py
    assert MAX_COPIES < MAX_NODES < MAX_INSTRUCTIONS


def compiled_and_exact(program):
    f = nf.compile(program.outputs, list(program.feeds))
    return f(*program.feeds.values()), nf.evaluate(program.outputs, program.feeds, dtype="float64")


@drawn(PROGRAMS, 7, 9)
def test_values_and_gradients(name, steps):
    program = PROGRAMS[name](steps)
    for found, exact in zip(*compiled_and_exact(program), strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2e-5 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_differences(name):
    """Of the loss in float64, along a random direction of every parameter."""
    program, rng, step = PROGRAMS[name](9), np.random.default_rng(1), 1e-6

    def exact(shift):
        feeds = {t: np.asarray(v, np.float64) + shift.get(t, 0.0) for t, v in program.feeds.items()}
        return nf.evaluate(program.outputs, feeds, dtype="float64")

    gradients = exact({})[1:]
    for t, gradient in zip(program.parameters, gradients, strict=True):
        along = rng.standard_normal(t.shape)
        ends = [exact({t: sign * step * along})[0].item() for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(np.sum(gradient * along), rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_256_steps_compile_in_30_seconds(name, tmp_path, monkeypatch):
    """Of processor time, with an empty cache; and 256 steps take hardly more than four times what 64 do."""
    seconds = []
    for steps in (80, 128, 256) if name in MANY else (16, 64, 256):
        folder = tmp_path / str(steps)
        folder.mkdir(mode=0o700)
        monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(folder))
        start = time.process_time()
        program = PROGRAMS[name](steps)
        pipeline.compile_program(program.outputs, list(program.feeds))
        seconds.append(time.process_time() - start)
    assert seconds[-1] < 30
    assert seconds[-1] < 8 * max(seconds[-2], 0.5)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("steps", [12, 48])
def test_soft_dtw_and_scan_against_pytorch(steps):
    agrees_with_torch(*warped("soft_dtw", steps))
    agrees_with_torch(*warped("soft_dtw_in_place", steps))
    agrees_with_torch(*warped("soft_dtw_square", 76 if steps == 48 else steps))
    agrees_with_torch(*scanned(steps))


def warped(name, steps):
    import torch

    program = PROGRAMS[name](steps)
    (table,) = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in program.parameters.values())
    n, m = table.shape
    far = torch.tensor(1e9, dtype=torch.float64)
    r = {(i, j): far for i in range(-1, n) for j in range(-1, m)}
    for i in range(n):
        for j in range(m):
            before = torch.stack([r[i - 1, j], r[i, j - 1], r[i - 1, j - 1]])
            r[i, j] = table[i, j] - (torch.logsumexp(-before, 0) if (i, j) != (0, 0) else 0.0)
    return program, r[n - 1, m - 1], [table]


def scanned(steps):
    import torch

    program = PROGRAMS["scan"](steps)
    x = torch.tensor(next(iter(program.inputs.values())), dtype=torch.float64)
    a, d, b, c = tensors = [
        torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in program.parameters.values()
    ]
    h, ys = torch.zeros(a.shape, dtype=torch.float64), []
    for t in range(steps):
        h = torch.exp(d[t, :, None] * a) * h + d[t, :, None] * b[t] * x[t, :, None]
        ys.append(h @ c[t])
    return program, torch.mean(torch.stack(ys) ** 2), tensors


def agrees_with_torch(program, loss, tensors):
    loss.backward()
    wanted = [loss.detach().numpy(), *(t.grad.numpy() for t in tensors)]
    for found, value in zip(compiled_and_exact(program)[0], wanted, strict=True):
        np.testing.assert_allclose(np.squeeze(found), np.squeeze(value), rtol=1e-3, atol=1e-4 * np.abs(value).max())
