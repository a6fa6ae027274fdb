"""The compiler: the stages in order, each run, timed and recorded; nothing else knows the order.

expressions -> graph -> the passes of `graph.PASSES` -> kernels -> order -> schedules -> code -> plan -> Function
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from neoflow import codegen, config
from neoflow.errors import CodegenError, ConfigError
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Tensor
from neoflow.graph import PASSES, Derivation, Graph, make_graph, run
from neoflow.kernel import Code, Kernel
from neoflow.loops import Schedule, default_schedule
from neoflow.machine import available_cores
from neoflow.partition import KernelCall, Partition, Subgraph, is_shared, order_calls, partition
from neoflow.runtime.cache import Entry, KernelCache
from neoflow.runtime.device.cpu import CPU, Cpu
from neoflow.runtime.device.library import Library
from neoflow.runtime.executor import Loaded, load_kernel, run_kernel
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import STORE, ParameterStore
from neoflow.runtime.plan import Plan, make_plan
from neoflow.target import Target, cpu_target
from neoflow.trace import Trace


@dataclass(frozen=True)
class Compiled:
    """What a compilation made: the plan, its distinct kernels by their number in the plan, and the record of stages.

    built: kernels that were compiled now; cached: kernels that came from the cache.
    """

    graph: Graph
    calls: tuple[KernelCall, ...]
    plan: Plan
    kernels: tuple[Kernel, ...]
    target: Target
    built: int
    cached: int
    trace: Trace

    def source(self, format: str = "tir") -> str:
        """The code of every distinct kernel."""
        lowered = [codegen.lower(k.subgraph, k.schedule, k.target, k.symbol) for k in self.kernels]
        return codegen.source(lowered, self.target, format)

    def explain(self, stage: str | None = None) -> str:
        """Every stage's result, in order; or one stage's. Raises `ConfigError` when there is no such stage."""
        records = {r.name: r for r in self.trace.records}
        if stage is not None and stage not in records:
            raise ConfigError(f"there is no stage {stage!r}; there are {', '.join(records)}")
        if stage is not None:
            return records[stage].text()
        return "\n\n".join(
            f"=== {r.name} ({r.seconds * 1e3:.1f} ms): {r.summary}\n{r.text()}" for r in records.values()
        )


def kernel_key(subgraph: Subgraph, schedule: Schedule, target: Target) -> str:
    """What a compiled kernel is found by: everything its code depends on."""
    parts = (subgraph.digest, schedule.to_json(), str(target), codegen.CODEGEN_VERSION)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4)
def _cache(settings: config.Config) -> KernelCache:
    return KernelCache(settings.cache_dir, settings.cache_bytes)


_libraries: WeakValueDictionary[str, Library] = WeakValueDictionary()
"""Loaded modules by the hash of their content, as long as something uses them."""


def _library(settings: config.Config, name: str) -> Library:
    library = _libraries.get(name)
    if library is None:
        library = _libraries[name] = CPU.load(_cache(settings).data(name))
    return library


def device() -> Cpu:
    """The CPU, ready to run kernels: its thread team comes from the cache, or is compiled."""

    def team() -> bytes:
        cache, key = _cache(config.load()), codegen.team_key()
        entry = cache.find(key)
        if entry is None:
            cache.publish(codegen.build_team(), {key: Code(())})
            entry = cache.find(key)
        if entry is None:
            raise CodegenError("the thread team vanished from the cache while it was loaded; try again")
        return cache.data(entry.module)

    CPU.install(team)
    return CPU


def parameter_store() -> ParameterStore:
    """Where parameters live, on a device that is ready."""
    device()
    return STORE


def resolve_target(target: str) -> Target:
    """The target of a name. Raises `ConfigError` for one there is not (yet)."""
    if target != "cpu":
        raise ConfigError(f"target {target!r} is not there yet; there is 'cpu'")
    return cpu_target(config.load().threads)


def stages(graph: Graph, trace: Trace) -> tuple[Graph, Partition]:
    """The rewriting stages: from the graph as written to its division into kernels."""

    for row in PASSES:
        graph, _ = trace.run(row.name, partial(run, graph, row), _rewritten_summary, _rewritten_text)
    kernels = trace.run(
        "partition",
        lambda: partition(graph),
        lambda p: f"{len(p.calls)} kernel calls of {len(p.subgraphs)} distinct subgraphs",
        _partition_text,
    )
    return graph, kernels


def _rewritten_summary(result: tuple[Graph, Derivation]) -> str:
    graph, derivation = result
    return f"{len(graph.nodes)} computes after {len(derivation.steps)} steps: {derivation.stopped}"


def _rewritten_text(result: tuple[Graph, Derivation]) -> str:
    graph, derivation = result
    return f"{graph}\n\n{derivation}"


def _partition_text(p: Partition) -> str:
    lines = [f"{what}: {v}" for what, v in p.verdicts]
    return f"{p}\n\n" + "\n".join(lines)


def compile_program(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
) -> Compiled:
    """Run every stage and build what the cache lacks."""
    trace, settings, machine = Trace(), config.load(), resolve_target(target)
    graph = trace.run(
        "expressions", lambda: make_graph(outputs, inputs, updates), lambda g: f"{len(g.nodes)} computes as written"
    )
    graph, parts = stages(graph, trace)
    calls, in_place = trace.run(
        "order",
        lambda: order_calls(graph, parts),
        lambda r: f"{len(r[1])} of {len(graph.updates)} updates in place",
        lambda r: "\n".join(c.name for c in r[0]),
    )
    subgraphs = {c.subgraph.digest: c.subgraph for c in calls}
    schedules = trace.run(
        "schedules",
        lambda: tuple(default_schedule(s, machine) for s in subgraphs.values()),
        lambda s: f"{len(s)} default schedules",
        lambda s: "\n".join(map(str, s)),
    )
    kernels = tuple(
        Kernel(s, schedule, machine, kernel_key(s, schedule, machine))
        for s, schedule in zip(subgraphs.values(), schedules, strict=True)
    )
    missing = [k for k in kernels if _cache(settings).find(k.key) is None]
    trace.run(
        "code",
        lambda: _build(missing, machine, settings),
        lambda _: f"{len(missing)} kernels compiled, {len(kernels) - len(missing)} from the cache",
        lambda _: "\n".join(f"{k.symbol} {k.subgraph.digest[:8]}" for k in kernels),
    )
    codes = {k.subgraph.digest: _entry(settings, k).code for k in kernels}
    plan = trace.run(
        "plan",
        lambda: make_plan(graph, calls, in_place, parts.views, codes, machine.threads),
        lambda p: f"{p.arena_bytes} bytes of temporaries",
    )
    built = len(missing)
    return Compiled(graph, calls, plan, kernels, machine, built, len(kernels) - built, trace)


def _build(missing: list[Kernel], target: Target, settings: config.Config) -> None:
    """Compile the missing kernels into a few modules and publish them.

    Modules are built by threads, as LLVM runs without the interpreter's lock, while this one lowers the next.
    """
    workers = available_cores()
    size = max(1, -(-len(missing) // (4 * workers)))
    alike = [[k for k in missing if is_shared(k.subgraph) == shared] for shared in (False, True)]
    parts = [group[start : start + size] for group in alike for start in range(0, len(group), size)]
    with ThreadPoolExecutor(workers, "neoflow-build") as pool:
        builds = []
        for part in parts:
            lowered = [codegen.lower(k.subgraph, k.schedule, target, k.symbol) for k in part]
            codes = {k.key: code.code for k, code in zip(part, lowered, strict=True)}
            builds.append((part, codes, pool.submit(codegen.build, lowered, target)))
        for part, codes, build in builds:
            data = build.result()
            if settings.check:
                library = device().load(data)
                for k in part:
                    check_kernel(k, load_kernel(codes[k.key], library))
            _cache(settings).publish(data, codes)


def check_kernel(kernel: Kernel, loaded: Loaded, seed: int = 0) -> None:
    """Compare a compiled kernel with NumPy on random inputs. Raises `CodegenError` with the worst element."""
    subgraph = kernel.subgraph
    rng = np.random.default_rng(seed)
    inputs, outputs = subgraph.tensors()
    arrays = []
    for p in inputs:
        array = device().allocate(p.shape, p.dtype)
        array[...] = rng.standard_normal(p.shape) if dt.is_float(p.dtype) else rng.integers(0, 2, p.shape)
        arrays.append(array)
    feeds: dict[Tensor, Any] = dict(zip(inputs, arrays, strict=True))
    results = [device().allocate(t.shape, t.dtype) for t in outputs]
    run_kernel(device(), loaded, [*arrays, *results], kernel.target.threads)
    exact = evaluate(list(outputs), feeds, dtype="float64")
    for t, found, wanted in zip(outputs, results, exact, strict=True):
        difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        tolerance = 2e-3 * max(1.0, float(np.nanmax(np.abs(wanted), initial=0.0)))
        agree = (difference <= tolerance) | (np.isnan(found) & np.isnan(wanted)) | (found == wanted)
        if not agree.all():
            at = np.unravel_index(int(np.argmax(~agree)), found.shape)
            element = f"{t.name}{list(map(int, at))}"
            raise CodegenError(
                f"a compiled kernel computes {element} = {found[at]!r}, NumPy {wanted[at]!r}:\n{subgraph}"
            )


def _entry(settings: config.Config, kernel: Kernel) -> Entry:
    entry = _cache(settings).find(kernel.key)
    if entry is None:
        raise CodegenError(
            f"kernel {kernel.key} vanished from the cache {settings.cache_dir} while it was loaded; try again"
        )
    return entry


def bind(compiled: Compiled) -> Function:
    """Load the kernels and bind them to memory."""
    settings = config.load()
    entries = [_entry(settings, k) for k in compiled.kernels]
    loaded = [load_kernel(e.code, _library(settings, e.module)) for e in entries]
    return Function(compiled, loaded, parameter_store(), compiled.target.threads)


def compile(
    outputs: Sequence[Tensor] | Tensor,
    inputs: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
) -> Function:
    """Compile a program: `f = nf.compile([loss], inputs=[x, labels], updates={w: w - 0.1 * dw})`.

    outputs: tensors a call returns. inputs: placeholders, in the order of the call's arrays. updates: new values of
    parameters, written at the end of each call. target: "cpu".
    Raises `GraphError`, `CodegenError`, `ConfigError`.
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    return bind(compile_program(roots, inputs, updates, target))
