"""Threads: forks, many callers, interrupts, faults, exits, and what stays behind when a program is gone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import RuntimeFault
from neoflow.machine import cpu_quota

pytestmark = pytest.mark.tvm

PROGRAM = """
    import numpy as np
    import neoflow as nf
    x = nf.placeholder((256, 192), name="x")
    w = nf.parameter((192, 320), name="w", init=lambda s, r: r.standard_normal(s) / 16)
    h = nf.tanh(nf.expr("h[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w))
    loss = nf.mean(h * h)
    (dw,) = nf.grad(loss, [w])
    step = nf.compile([loss, dw], inputs=[x])
    a = np.random.default_rng(0).standard_normal((256, 192)).astype(np.float32)
    first = step(a)
"""


def child(code: str, seconds: float = 120, **flags: str) -> str:
    """What a new process prints that runs PROGRAM and then `code`."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **flags},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program():
    x = nf.placeholder((256, 192), name="x")
    w = nf.parameter((192, 320), name="w", init=lambda s, r: r.standard_normal(s) / 16)
    h = nf.tanh(nf.expr("h[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w))
    loss = nf.mean(h * h)
    step = nf.compile([loss, *nf.grad(loss, [w])], inputs=[x])
    a = np.random.default_rng(0).standard_normal((256, 192)).astype(np.float32)
    return step, a


def same(found, wanted):
    return all(np.array_equal(f, w) for f, w in zip(found, wanted, strict=True))


def test_runs_give_the_same_bits(program):
    step, a = program
    first = step(a)
    assert all(same(step(a), first) for _ in range(200))


@pytest.mark.parametrize("threads", ["1", "2", "3", "16"])
def test_any_number_of_threads(threads):
    code = """
        assert all(np.array_equal(f, w) for _ in range(300) for f, w in zip(step(a), first))
        feeds = {x: a, w: nf.get_value(w)}
        for f, e in zip(first, nf.evaluate([loss, dw], feeds)):
            np.testing.assert_allclose(f, e, rtol=1e-4, atol=1e-6)
        print("ok")
    """
    assert child(code, NEOFLOW_THREADS=threads) == "ok\n"


def test_a_forked_child_computes():
    code = """
        import os
        def right():
            return all(np.array_equal(f, w) for _ in range(20) for f, w in zip(step(a), first))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if right() else 1)
        print(os.waitpid(pid, 0) == (pid, 0), right())
    """
    assert child(code) == "True True\n"


def test_a_pool_of_forked_processes():
    code = """
        import multiprocessing
        def work(n):
            return all(np.array_equal(f, w) for f, w in zip(step(a), first))
        with multiprocessing.get_context("fork").Pool(3) as pool:
            print(all(pool.map(work, range(12))))
    """
    assert child(code) == "True\n"


def test_many_threads_call_at_once(program):
    step, a = program
    wanted, found = step(a), []
    other = nf.compile([nf.exp(x := nf.placeholder((300, 300)))], inputs=[x])
    b = np.linspace(-1, 1, 90_000, dtype=np.float32).reshape(300, 300)
    exact = other(b)

    def work():
        for _ in range(20):
            found.append(same([r.copy() for r in step(a)], wanted) and same(other(b), exact))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 120


def test_threads_that_called_leave_nothing_behind(program):
    step, a = program
    step(a)
    before = len(os.listdir("/proc/self/task"))
    for _ in range(100):
        thread = threading.Thread(target=step, args=(a,))
        thread.start()
        thread.join()
    deadline = time.monotonic() + 10  # a thread that was joined may be listed for a moment
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= before


def test_threads_do_not_sleep_in_the_gap_that_python_leaves_between_two_steps():
    """Counted by the system: a sleep is given up by a thread itself, a yield is not. Where others have the cores the
    gap is longer, so several attempts are made."""
    code = """
        import time
        from pathlib import Path
        def sleeps():
            texts = [p.read_text() for p in Path("/proc/self/task").glob("*/status")]
            return sum(int(t.split("\\nvoluntary_ctxt_switches:")[1].split()[0]) for t in texts)
        def in_turn(gap):
            before = sleeps()
            for _ in range(20):
                end = time.perf_counter() + gap
                while time.perf_counter() < end:
                    pass
                step(a)
            return sleeps() - before
        print(min(in_turn(2e-4) for _ in range(25)), max(in_turn(1e-2) for _ in range(3)))
    """
    short, long = map(int, child(code, NEOFLOW_THREADS="2").split())
    assert short <= 10 < long


def test_a_process_with_more_threads_than_cores_ends():
    code = """
        import time
        print(time.monotonic())
    """
    started = float(child(code, NEOFLOW_THREADS="32"))
    assert time.monotonic() - started < 5


def test_an_interrupt_between_steps():
    code = """
        import os, signal, threading, time
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                step(a)
        except KeyboardInterrupt:
            print("interrupted", np.array_equal(step(a)[1], first[1]))
    """
    assert child(code) == "interrupted True\n"


def test_a_fault_ends_the_step_and_nothing_else():
    table = nf.parameter((50, 40), name="table", init=lambda s, r: r.standard_normal(s))
    ids = nf.placeholder((30,), "int64", name="ids")
    total = nf.parameter((), name="total", init=lambda s, r: np.zeros(s))
    rows = nf.take(table, ids)
    square = nf.expr("s[i,j] = sum(r[i,k] * r[j,k])", r=rows)
    f = nf.compile([rows], inputs=[ids], updates={total: total + nf.sum(nf.tanh(square))})
    good = np.arange(30)
    wanted = f(good)
    bad = good.copy()
    bad[17] = 50
    for _ in range(5):
        before = nf.get_value(total)
        with pytest.raises(
            RuntimeFault, match=r"table is indexed in dimension 0 by `ids\[i\]` = 50 at i=17, but its extent"
        ):
            f(bad)
        assert nf.get_value(total) == before
        assert same(f(good), wanted)


def mapped() -> int:
    """Libraries of kernels that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:neoflow" in line})


def test_code_goes_with_its_last_function():
    def program(n):
        x = nf.placeholder((40,), name="x")
        return nf.compile([nf.tanh(x) * float(n + 1) + 0.37], inputs=[x])

    kept = program(0)
    kept(np.ones(40, np.float32))
    gc.collect()
    before = mapped()
    for n in range(1, 9):
        f = program(n)
        f(np.ones(40, np.float32))
    twin = program(8)
    assert mapped() <= before + 2
    del f
    gc.collect()
    np.testing.assert_allclose(twin(np.ones(40, np.float32))[0], np.tanh(1) * 9 + 0.37, rtol=1e-6)
    del twin
    gc.collect()
    assert mapped() == before


def test_a_program_can_go_while_threads_are_late():
    code = """
        import gc
        for n in range(60):
            y = nf.placeholder((200, 200), name="y")
            f = nf.compile([nf.exp(y) + float(n % 7)], inputs=[y])
            f(np.zeros((200, 200), np.float32))
            del f
            gc.collect()
        print("ok")
    """
    assert child(code, NEOFLOW_THREADS="12") == "ok\n"


@pytest.mark.torch
def test_beside_the_threads_of_pytorch(program):
    import torch

    step, a = program
    wanted = step(a)
    m = torch.from_numpy(a)
    for _ in range(30):
        product = m @ m.T
        assert same(step(a), wanted)
        assert torch.equal(product, m @ m.T)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, float("inf")),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000", "a/b/cpu.max": "50000 100000", "a/cpu.max": "400000 100000"}, 0.5),
        ({"a/cpu.max": "200000 100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, float("inf")),
        ({"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"}, 3.0),
        ({}, float("inf")),
    ],
)
def test_the_quota_of_a_container(tmp_path, files, cores):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path, "/a/b") == cores
