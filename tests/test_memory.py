"""What is remembered dies with what it is about: many different programs in one process need the memory of a few."""

import ast
import gc
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import neoflow as nf
from neoflow import codegen, rewriting
from neoflow.expr import ir
from neoflow.expr.functions import FUNCTIONS
from neoflow.graph import make_graph
from neoflow.loops import default_schedule
from neoflow.partition import order_calls
from neoflow.runtime.planner import make_plan
from neoflow.target import Target
from neoflow.trace import Trace

TARGET = Target("cpu", "x86-64-v3", 2, 32)
SMOOTH = [f.name for f in FUNCTIONS.values() if f.typing == "real" and f.arity == 1 and f.cost > 1]
ROOT = Path(__file__).parents[1]
FEW = 1000
"""Nodes that are alive at one moment and not at another (the last that were proved stay), of the thousands that each
program has."""
KEPT = {
    "arguments.py: _declared",
    "derive.py: _alone",
    "derive.py: _exchanged",
    "solve.py: hermite",
    "text.py: _parse",
    "compile.py: _tvm_target",
    "compile.py: toolchain",
    "cuda.py: tvm_target",
    "dtype.py: name_of",
    "emit.py: _constant",
    "emit.py: _layout",
    "tile.py: tiles",
    "fragments.py: tensor_tiles",
    "devices.py: kernel_cache",
    "holes.py: hole",
    "kept.py: records_in",
    "roofs.py: roofs_of",
    "points.py: filtering",
    "wgmma.py: warpgroup_tiles",
    "cpu.py: _ticks",
    "facts.py: own_indices",
    "versions.py: template_version",
}
"""What is kept beyond its subject, in limited numbers."""


def go_through_the_compiler(n: int, lower: bool) -> None:
    """A training step of its own for each n, through every stage before LLVM."""
    rows, columns, width = 2 + n % 5, 3 + n % 7, 2 + n // 35 % 60
    x = nf.placeholder((rows, columns), name="x")
    w = nf.parameter((columns, width), name="w")
    h = nf.expr(f"h[b,j] = {SMOOTH[n % len(SMOOTH)]}(sum(x[b,k] * w[k,j]) * {1 + n / 8})", x=x, w=w)
    loss = nf.mean(h * h)
    (dw,) = nf.grad(loss, [w])
    graph, kernels = rewriting.stages(make_graph([loss], [x], {w: w - 0.1 * dw}), Trace())
    calls, in_place = order_calls(graph, kernels)
    codes = {}
    for call in calls:
        schedule = default_schedule(call.subgraph, TARGET)
        if lower:
            codes[call.subgraph.digest] = codegen.lower(call.subgraph, schedule, TARGET, "kernel").code
    if lower:
        make_plan(graph, calls, in_place, kernels.views, codes, TARGET.threads)


def grown(programs: int, lower: bool) -> tuple[int, int]:
    """By how many nodes and bytes this process grows after the first 200 programs, up to the last."""
    start = (0, 0)
    for n in range(programs):
        go_through_the_compiler(n, lower)
        if n in (199, programs - 1):
            gc.collect()
            now = (len(ir._interned), psutil.Process().memory_info().rss)
            start = start if n != 199 else now
    return now[0] - start[0], now[1] - start[1]


def test_three_hundred_programs():
    """In a process of their own: `simplify` keeps its last 4,096 subjects, and how many of these are from tests before
    when the 200th program is through, so how many nodes come in their place after it, depends on what ran here."""
    program = "from tests.test_memory import grown; print(grown(300, lower=False)[0])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < FEW


@pytest.mark.slow
@pytest.mark.tvm
def test_two_thousand_programs():
    nodes, size = grown(2000, lower=True)
    print(f"\n2,000 programs: {nodes:+} nodes, {size / 2**20:+.1f} MiB since the first 200")
    assert nodes < FEW
    assert size < 8 << 20


def test_results_die_with_their_subject():
    x = nf.placeholder((61, 7), name="x")
    y = nf.mean(nf.exp(x) / nf.sum(nf.exp(x), axis=1, keepdims=True))
    nf.grad(y, [x])
    digest, before = y.definition.digest, len(ir._interned)
    del y
    gc.collect()
    assert digest and len(ir._interned) < before


def test_every_cache_has_a_limit():
    """`cache` is for what has no arguments; `lru_cache` says how much, and is asked about texts and numbers."""
    limited = set()
    for path in sorted(Path(nf.__file__).parent.rglob("*.py")):
        for f in ast.walk(ast.parse(path.read_text())):
            for mark in map(ast.unparse, f.decorator_list if isinstance(f, ast.FunctionDef) else ()):
                if "cache" in mark and "cached_property" not in mark:
                    assert mark.startswith("lru_cache(maxsize=") or not f.args.args, f"{path.name}: @{mark} {f.name}"
                    limited |= {f"{path.name}: {f.name}"} if f.args.args else set()
    assert limited <= KEPT
