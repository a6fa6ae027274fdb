"""What a training step costs beside its kernels: the time of calling them, and memory, beside PyTorch eager.

    python -m benchmarks.runtime [--only dispatch|memory|limited] [--write]

A step is forward, gradients and SGD. Dispatch is a step in which every kernel is an empty one with as many arguments.
Memory is counted twice: what the allocators gave, and how far the resident memory of a fresh process grows, each
framework in its own. Limited is a step that must fit into half of PyTorch's peak: `memory=`, with what that costs in
time, in turns with the step as it is. `--write` puts the tables into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import neoflow as nf
from benchmarks.results import write
from benchmarks.timing import aligned, block
from neoflow import codegen
from neoflow.codegen.cpu.kernel import Lowered, assemble
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.devices import device, parameter_store
from neoflow.errors import ConfigError
from neoflow.expr import dtype as dt
from neoflow.measure.near import Cores
from neoflow.models import build_model, find_peer
from neoflow.pipeline import Compiled
from neoflow.report.compare import measure
from neoflow.report.machine import examine
from neoflow.runtime.executor import load_kernel
from neoflow.runtime.function import Function
from neoflow.runtime.plan import Plan
from neoflow.train.step import RATE, train_step

DISPATCHED = [("capsnet", 16), ("mi_lstm_mnist", 32), ("mi_lstm_ptb", 32), ("ptb_lstm", 20)]
HELD = [("capsnet", 16), ("ptb_lstm", 20), ("ptb_lstm", 64)]
LIMITED = [("resnet50", 16)]
"""Models and batches."""
MICROSECONDS, WASTE, RATIO, HALF, SLOWER = 2.0, 1.10, 1.0, 0.5, 1.25
"""Limits: a kernel's call; the arena over the largest live set; memory over PyTorch's, and where it is limited; then
the time over that of a step without a limit."""
STEPS, ROUNDS, TRIES = 5, 3, 2
"""Steps in a fresh process, how many processes, and how many limits of resident memory."""
MIB = 2**20


def empty_kernel(arguments: int, entries: int) -> Lowered:
    """A kernel with so many arguments and launches that does nothing."""
    name = f"nf_empty_{arguments}_{entries}"
    buffers = tuple(emit.buffer(1, "float32", f"b{n}") for n in range(arguments))
    return assemble(name, Phases((Phase(1, lambda _: []),) * entries), buffers, False, emit.Faults())


def emptied(compiled: Compiled) -> Function:
    """The same calls on the same memory, but of kernels that do nothing."""
    codes = compiled.plan.kernels
    sizes = {
        c.kernel: (len(c.arguments) + len(c.workspaces), len(codes[c.kernel].entries)) for c in compiled.plan.calls
    }
    lowered = {size: empty_kernel(*size) for size in sizes.values()}
    library = device().load(codegen.build(list(lowered.values()), compiled.target))
    kernels = [load_kernel(lowered[sizes[n]].code, library) for n in range(len(codes))]
    return Function(compiled, kernels, parameter_store(), device(), compiled.target.threads)


def mark(value: float, limit: float) -> str:
    """Whether a value is within its limit, in a word."""
    return "reached" if value <= limit else "missed"


def dispatch(name: str, batch: int) -> str:
    """A row: calls of a step, microseconds of calling them, of one call, and milliseconds of the real step."""
    model = build_model(name, batch)
    step = train_step(model)
    assert isinstance(step.compiled, Compiled)
    empty = emptied(step.compiled)
    batches = itertools.cycle([[aligned(a) for a in model.example()] for _ in range(2)])  # new arrays at every call
    [calling] = measure([lambda: empty(*next(batches))], 1.0)
    [whole] = measure([lambda: step(*next(batches))], 2.0)
    calls = len(step.plan.calls)
    each = 1e3 * calling / calls
    return (
        f"| {name} b{batch} | {calls} | {1e3 * calling:.0f} | {each:.2f} | {MICROSECONDS:.0f} | "
        f"{mark(each, MICROSECONDS)} | {whole:.1f} | {calling / whole:.2%} |"
    )


class MallocState(ctypes.Structure):
    """`struct mallinfo2` of glibc: among others bytes in use, in the heaps and mapped."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


def allocated() -> int:
    """Bytes that this process has from malloc."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = MallocState
    state = mallinfo()
    return state.uordblks + state.hblkhd


def planned(plan: Plan, *kinds: str) -> int:
    """Bytes of the buffers of these kinds."""
    return sum(math.prod(b.shape) * dt.itemsize(b.dtype) for b in plan.buffers if b.kind in kinds)


def torch_step(name: str, parameters: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """A training step of the model's peer as PyTorch's tutorials write it; returns the loss before the update."""
    import torch

    peer: Any = find_peer("torch", name, parameters)
    optimizer = torch.optim.SGD(peer.tensors.values(), lr=RATE)

    def step() -> float:
        optimizer.zero_grad()
        loss = peer.loss(x, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def resident(field: str) -> int:
    """Bytes of this process by /proc/self/status: "VmRSS" now, "VmHWM" at most since `forget_peak`."""
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(field))


def forget_peak() -> None:
    """Let VmHWM begin again. (`ru_maxrss` cannot, and starts with what the parent process had.)"""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def neoflow_memory(name: str, batch: int, limit: int | None = None) -> dict[str, int]:
    """Bytes: growth of resident memory from before the model is built to its peak; buffers by kind; the arena's
    largest live set; scratch, which kernels take from the runtime's pool (packed operands, partial sums) and the pool
    keeps. Kernels come from the cache. limit: bytes that the step must fit into.
    """
    x, w = nf.placeholder((8, 8), name="x"), nf.parameter((8, 8), name="w", init=1.0)
    loss = nf.mean(nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w))
    nf.compile([loss], [x], {w: w - RATE * nf.grad(loss, [w])[0]})(np.ones((8, 8), np.float32))  # warm-up
    forget_peak()
    before = resident("VmRSS")
    model = build_model(name, batch)
    step, arrays = train_step(model, limit), [aligned(a) for a in model.example()]
    bound = allocated()
    for _ in range(STEPS):
        results = step(*arrays)
    grown, plan = resident("VmHWM") - before, step.plan
    found = {
        "arena": plan.arena_bytes,
        "live": plan.live_bytes,
        "parameters": planned(plan, "parameter"),
        "arrays": planned(plan, "input", "output"),
        "scratch": allocated() - bound - sum(r.nbytes for r in results),
        "grown": grown,
    }
    return {**found, "allocated": sum(found[k] for k in ("arena", "parameters", "arrays", "scratch"))}


def torch_memory(name: str, batch: int) -> dict[str, int]:
    """Bytes: growth as for neoflow, where the arrays that parameters are copied from are there before; the most that
    PyTorch's allocator has given at a time by its profiler, parameters included, plus the inputs, which NumPy has.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    model = build_model(name, batch)
    parameters, arrays = model.values(), model.example()
    x, w = torch.ones(1, 1, 8, 8), torch.ones(8, 8, requires_grad=True)
    torch.nn.functional.conv2d(x @ w, w[None, None, :3, :3]).mean().backward()
    torch.optim.SGD([w], lr=RATE).step()  # warm-up
    forget_peak()
    before = resident("VmRSS")
    step = torch_step(name, parameters, *arrays)
    for _ in range(STEPS):
        step()
    grown = resident("VmHWM") - before
    del step
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step = torch_step(name, parameters, *arrays)  # built again: the profiler counts from here
        for _ in range(STEPS):
            step()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        record.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    most = max(e["args"]["Total Allocated"] for e in events if e.get("name") == "[memory]")
    return {"grown": grown, "allocated": most + sum(a.nbytes for a in arrays)}


MEMORY: dict[str, Callable[..., dict[str, int]]] = {"neoflow": neoflow_memory, "torch": torch_memory}


def in_processes(framework: str, name: str, *numbers: int) -> dict[str, float]:
    """The median of each figure over fresh processes. numbers: the batch, and what else the framework's takes."""
    command = [sys.executable, "-m", "benchmarks.runtime", "--child", framework, name, *map(str, numbers)]
    outputs = [subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout for _ in range(ROUNDS)]
    found = [json.loads(text.splitlines()[-1]) for text in outputs]
    return {key: statistics.median(f[key] for f in found) for key in found[0]}


def compare_losses(name: str, batch: int) -> None:
    """Compile and run both frameworks' steps once. Raises when their first losses differ."""
    model = build_model(name, batch)
    x, labels = model.example()
    ours = float(train_step(model)(x, labels)[0])
    theirs = torch_step(name, model.values(), x, labels)()
    if not abs(ours - theirs) <= 1e-4 * abs(theirs):
        raise SystemExit(f"{name}: the loss is {ours} by neoflow and {theirs} by PyTorch")


def dispatch_table() -> list[str]:
    """A row a model; binding the arrays of a new batch is counted."""
    return [
        "| model | calls of a step | us to call them empty | us a call | wanted | | ms of a step | share |",
        "|---|--:|--:|--:|--:|---|--:|--:|",
        *(dispatch(*case) for case in DISPATCHED),
    ]


def memory_tables() -> list[str]:
    """In MiB: neoflow beside PyTorch, then what neoflow's allocations are."""
    against = ["| MiB | neoflow | PyTorch | ratio | wanted | |", "|---|--:|--:|--:|--:|---|"]
    parts = [
        "| MiB | arena | its largest live set | ratio | wanted | | parameters | inputs, outputs | scratch of kernels |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for name, batch in HELD:
        compare_losses(name, batch)
        ours, theirs = (in_processes(framework, name, batch) for framework in MEMORY)
        for what, key in (("allocated", "allocated"), ("growth of resident memory", "grown")):
            a, b = ours[key] / MIB, theirs[key] / MIB
            against.append(
                f"| {name} b{batch}, {what} | {a:.1f} | {b:.1f} | {a / b:.2f} | {RATIO:.1f} | {mark(a / b, RATIO)} |"
            )
        arena, live, *others = (ours[k] / MIB for k in ("arena", "live", "parameters", "arrays", "scratch"))
        shown = " | ".join(f"{v:.1f}" for v in others)
        waste = f"{arena / live:.3f} | {WASTE:.2f} | {mark(arena / live, WASTE)}"
        parts.append(f"| {name} b{batch} | {arena:.1f} | {live:.1f} | {waste} | {shown} |")
    return [*against, "", *parts]


def limited_table() -> list[str]:
    """A model under half of each of PyTorch's peaks: what it then has, and its time over that without a limit. Resident
    memory has more than what a limit is of, code and tables: the limit is so much lower as processes have more.
    """
    lines = [
        "| step | PyTorch MiB | limit MiB | neoflow MiB | ratio | wanted | | time, of without | wanted | |",
        "|---|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    for name, batch in LIMITED:
        compare_losses(name, batch)
        theirs = in_processes("torch", name, batch)
        for what, key in (("allocated", "allocated"), ("growth of resident memory", "grown")):
            limit, title = int(HALF * theirs[key]), f"{name} b{batch}, {what}"
            sizes = f"{theirs[key] / MIB:.0f} | {limit / MIB:.0f}"
            try:
                train_step(build_model(name, batch), limit)  # says so where it does not fit
                for _ in range(TRIES if key == "grown" else 0):
                    limit -= max(0, int(in_processes("neoflow", name, batch, limit)[key] - HALF * theirs[key]))
                took = limited_time(name, batch, limit)
            except ConfigError as error:
                lines.append(f"| {title} | {sizes} | {error.message} | | {HALF} | missed | | {SLOWER} | |")
                continue
            ours = in_processes("neoflow", name, batch, limit)[key]
            sizes, ratio = f"{theirs[key] / MIB:.0f} | {limit / MIB:.0f}", ours / theirs[key]
            shown = f"{ours / MIB:.0f} | {ratio:.3f} | {HALF} | {mark(ratio, HALF)}"
            lines.append(f"| {title} | {sizes} | {shown} | {took:.2f} | {SLOWER} | {mark(took, SLOWER)} |")
    return lines


def limited_time(name: str, batch: int, limit: int, rounds: int = ROUNDS) -> float:
    """The time of a step that fits into so many bytes over that of the step as it is, in turns: the median."""
    steps = []
    for memory in (None, limit):
        model = build_model(name, batch)
        steps.append(partial(train_step(model, memory), *(aligned(a) for a in model.example())))
    losses = [float(np.asarray(step()[0])) for step in steps]
    if not abs(losses[1] - losses[0]) <= 1e-4 * abs(losses[0]):
        raise SystemExit(f"{name}: the loss is {losses[1]} within {limit} bytes and {losses[0]} without a limit")
    cores, times = Cores(), []
    for _ in range(rounds):
        whole, fitted = (cores.between(partial(block, step)) for step in steps)
        times.append(fitted / whole)
    return statistics.median(times)


TABLES: dict[str, tuple[str, Callable[[], Sequence[str]]]] = {
    "dispatch": ("Dispatch: a training step with empty kernels", dispatch_table),
    "memory": ("Peak memory of a training step, against PyTorch {torch} eager", memory_tables),
    "limited": ("A training step in half of PyTorch {torch} eager's peak memory", limited_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        framework, name, *numbers = options.child
        print(json.dumps(MEMORY[framework](name, *map(int, numbers))))
        return
    machine = examine()
    how = (
        f"{machine.processor}, {machine.threads} threads, {machine.busy:.0%} busy with other work; "
        "`python -m benchmarks.runtime --write`"
    )
    for section in [options.only] if options.only else TABLES:
        title, table = TABLES[section]
        lines = table()
        print("\n".join(lines), flush=True)
        if options.write:
            write(section, title.format(torch=machine.torch), how, lines)


if __name__ == "__main__":
    main()
