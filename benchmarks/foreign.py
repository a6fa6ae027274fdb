"""What neoflow's threads lose beside others', and what they cost themselves.

    python -m benchmarks.foreign [--only between|busy|barrier] [--seconds 20] [--write]

between: a step of neoflow between two steps of PyTorch, in one process, over one alone; at most 1.05 is wanted.
busy: a step while another process keeps one of the cores busy, over one beside nothing, for neoflow and for PyTorch,
each in a process of its own; at most 2.5 is wanted. barrier: what a kernel of a microsecond takes on all threads, in a
chain of them, beyond its share of the time on one; at most 0.5 us is wanted. `--write` puts the tables into RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.results import write
from benchmarks.steps.compare import Comparison, ask, start
from benchmarks.steps.contenders import ROOT
from neoflow import codegen
from neoflow.codegen.cpu.peak import CHAINS
from neoflow.contest.contenders import Contender
from neoflow.contest.process import Worker, wait_until_quiet
from neoflow.devices import device, resolve_target
from neoflow.models import build_model, find_peer
from neoflow.report.machine import examine
from neoflow.runtime.device import Launch
from neoflow.train.step import RATE, reset, train_step

BETWEEN = [("capsnet", 16), ("mi_lstm_mnist", 32)]
BUSY = [("mi_lstm_mnist", 32), ("capsnet", 16)]
"""Models and batches."""
LOSS, SLOWER, MICROSECONDS = 1.05, 2.5, 0.5
"""Limits: a step between two of PyTorch's over one alone; beside a busy process over idle; a barrier on idle cores."""
BUSY_LOOP = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
CHAIN = 2000
"""Kernels of a chain."""
ITERATIONS = 200
"""Of a kernel of multiply-adds: about a microsecond."""
Step = Callable[[], object]


def mark(value: float, limit: float) -> str:
    """Whether a value is within its limit, in a word."""
    return "reached" if value <= limit else "missed"


def timed(step: Step, before: Step | None, steps: int) -> float:
    """The median seconds of a step, each after one of `before`."""
    found = []
    for _ in range(steps):
        if before is not None:
            before()
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def between(name: str, batch: int, seconds: float) -> tuple[float, float, float]:
    """(seconds of a step alone, between two of PyTorch's, median ratio): blocks of both, in both orders."""
    model = build_model(name, batch)
    peer = find_peer("torch", name, model.values())
    reset(model)
    step, (x, labels) = train_step(model), model.example()

    def ours() -> object:
        return step(x, labels)

    def theirs() -> object:
        return peer.step(x, labels, RATE)

    timed(ours, theirs, 3)
    steps = max(5, int(0.2 / timed(ours, None, 3)))
    found: list[dict[bool, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 4:
        order = (False, True) if len(found) % 2 else (True, False)
        pair = {}
        for mixed in order:
            time.sleep(0.1)
            timed(ours, theirs if mixed else None, 2)
            pair[mixed] = timed(ours, theirs if mixed else None, steps)
        found.append(pair)
    alone, among = (statistics.median(f[m] for f in found) for m in (False, True))
    return alone, among, statistics.median(f[True] / f[False] for f in found)


def between_table(seconds: float) -> list[str]:
    """A row a model."""
    lines = ["| model | alone ms | between PyTorch's ms | ratio | wanted | |", "|---|--:|--:|--:|--:|---|"]
    for name, batch in BETWEEN:
        alone, mixed, ratio = between(name, batch, seconds)
        figures = f"{1e3 * alone:.2f} | {1e3 * mixed:.2f} | {ratio:.3f} | {LOSS} | {mark(ratio, LOSS)}"
        lines.append(f"| {name} b{batch} | {figures} |")
    return lines


def beside_busy(workers: dict[str, Worker], seconds: float) -> dict[str, tuple[float, float, float]]:
    """By worker: (seconds of a step idle, beside a busy loop on the last core, median ratio), in turn."""
    core = max(os.sched_getaffinity(0))
    loop = subprocess.Popen([sys.executable, "-c", BUSY_LOOP, str(core)])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
    try:
        time.sleep(0.5)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(next(iter(found.values()))) < 3:
            for name, worker in workers.items():
                loop.send_signal(signal.SIGSTOP)
                wait_until_quiet(workers.values())
                idle = worker.block(0.3)
                loop.send_signal(signal.SIGCONT)
                found[name].append((idle, worker.block(0.6)))
    finally:
        loop.kill()
        loop.wait()
    return {
        name: (
            statistics.median(idle for idle, _ in pairs),
            statistics.median(busy for _, busy in pairs),
            statistics.median(busy / idle for idle, busy in pairs),
        )
        for name, pairs in found.items()
    }


def busy_table(seconds: float) -> list[str]:
    """A row a model and framework."""
    lines = ["| model | idle ms | one core busy ms | ratio | wanted | |", "|---|--:|--:|--:|--:|---|"]
    for name, batch in BUSY:
        with tempfile.TemporaryDirectory(prefix="neoflow-foreign-") as path:
            folder, arrays = Path(path), Path(path) / "arrays.npz"
            ask(name, str(batch), str(arrays))
            both = (Contender("neoflow", "neoflow"), Contender("PyTorch", "torch"))
            record, workers = Comparison(name, batch), dict[str, Worker]()
            try:
                for contender in both:
                    workers[contender.name] = start(contender, ROOT, record, folder, arrays, None)
                found = beside_busy(workers, seconds)
            finally:
                for worker in workers.values():
                    worker.close()
        for who, (idle, busy, ratio) in found.items():
            wanted = f"{SLOWER} | {mark(ratio, SLOWER)}" if who == "neoflow" else "|"
            lines.append(f"| {name} b{batch}, {who} | {1e3 * idle:.2f} | {1e3 * busy:.2f} | {ratio:.2f} | {wanted} |")
    return lines


def chain_seconds(threads: int, seconds: float) -> float:
    """Seconds of one of a chain of kernels of a microsecond of arithmetic for each core: the median over runs."""
    cpu, target = device(), resolve_target("cpu")
    kernel, _ = codegen.fma_kernel(target, ITERATIONS, "nf_short")
    library = cpu.load(codegen.build([kernel], target))
    [entry] = kernel.code.entries
    x = cpu.allocate((target.lanes("float32"),), "float32")
    y = cpu.allocate((target.threads * CHAINS * target.lanes("float32"),), "float32")
    x[...] = 0.5
    table = np.array([cpu.address(x), cpu.address(y)], np.int64)
    launches = [Launch(library.address(entry.symbol), 0, entry.tasks, entry.is_parallel)] * CHAIN
    recording = cpu.record(launches, table, cpu.status(1), threads)

    def run() -> None:
        cpu.launch(recording)
        cpu.synchronize()

    return timed(run, None, max(5, int(seconds / 2 / timed(run, None, 5)))) / CHAIN


def barrier_table(seconds: float) -> list[str]:
    """What a kernel on all threads takes beyond its share of the time that it takes on one."""
    threads = resolve_target("cpu").threads
    together, alone = (chain_seconds(n, seconds) for n in (threads, 1))
    barrier = 1e6 * (together - alone / threads)
    word = mark(barrier, MICROSECONDS)
    return [
        f"| a kernel in a chain of {CHAIN:,} | us | wanted | |",
        "|---|--:|--:|---|",
        f"| on one thread | {1e6 * alone:.3f} | | |",
        f"| on {threads} threads | {1e6 * together:.3f} | | |",
        f"| the barrier: what that is beyond 1/{threads} | {barrier:.3f} | {MICROSECONDS} | {word} |",
    ]


TABLES: dict[str, tuple[str, Callable[[float], Sequence[str]]]] = {
    "between": ("A step between two of PyTorch's in the same process", between_table),
    "busy": ("A step beside a process that keeps one core busy", busy_table),
    "barrier": ("The barrier between kernels", barrier_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    machine = examine()
    how = (
        f"{machine.processor}, {machine.threads} threads, {machine.busy:.0%} busy with other work, PyTorch "
        f"{machine.torch}; `python -m benchmarks.foreign --write`"
    )
    for section in [options.only] if options.only else TABLES:
        title, table = TABLES[section]
        lines = table(options.seconds)
        print("\n".join(lines), flush=True)
        if options.write:
            write(section, title, how, lines)


if __name__ == "__main__":
    main()
