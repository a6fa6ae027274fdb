"""The compiler: the stages in order, each run, timed and recorded; nothing else knows the order.

expressions -> graph -> canonical -> padded -> canonical -> chained -> canonical -> kernels -> order -> schedules
-> code -> plan -> Function
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from neoflow import codegen, config
from neoflow.errors import CodegenError, ConfigError
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Tensor
from neoflow.graph import Graph, canonicalize, make_graph, pad_guards
from neoflow.loops import Schedule, default_schedule
from neoflow.partition import KernelCall, Partition, Subgraph, chain_sums, is_shared, order_calls, partition
from neoflow.runtime import native
from neoflow.runtime.cache import KernelCache
from neoflow.runtime.function import Function
from neoflow.runtime.plan import Plan, make_plan
from neoflow.target import Target, cpu_target
from neoflow.trace import Trace


@dataclass(frozen=True)
class Compiled:
    """What a compilation made: the plan, each distinct kernel with its schedule and key, and the record of stages.

    built: kernels that were compiled now; cached: kernels that came from the cache.
    """

    graph: Graph
    calls: tuple[KernelCall, ...]
    plan: Plan
    subgraphs: tuple[Subgraph, ...]
    schedules: tuple[Schedule, ...]
    keys: tuple[str, ...]
    target: Target
    built: int
    cached: int
    trace: Trace

    def source(self, format: str = "tir") -> str:
        """The code of every distinct kernel."""
        lowered = [
            codegen.lower(s, schedule, self.target, kernel_symbol(key))
            for s, schedule, key in zip(self.subgraphs, self.schedules, self.keys, strict=True)
        ]
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


def kernel_symbol(key: str) -> str:
    return f"nf_{key[:16]}"


def kernel_key(subgraph: Subgraph, schedule: Schedule, target: Target) -> str:
    """What a compiled kernel is found by: everything its code depends on."""
    parts = (subgraph.digest, schedule.to_json(), str(target), codegen.CODEGEN_VERSION)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=4)
def _cache(settings: config.Config) -> KernelCache:
    return KernelCache(settings.cache_dir, settings.cache_bytes)


@lru_cache(maxsize=256)
def _module(settings: config.Config, name: str) -> Any:
    return native.load(_cache(settings).data(name))


def resolve_target(target: str) -> Target:
    """The target of a name. Raises `ConfigError` for one there is not (yet)."""
    if target != "cpu":
        raise ConfigError(f"target {target!r} is not there yet; there is 'cpu'")
    return cpu_target(config.load().threads)


def stages(graph: Graph, trace: Trace) -> tuple[Graph, Partition]:
    """The rewriting stages: from the graph as written to its division into kernels."""

    def count(g: Graph) -> str:
        return f"{len(g.nodes)} computes"

    graph = trace.run("canonicalize", lambda: canonicalize(graph), count)
    graph = trace.run("pad guards", lambda: canonicalize(pad_guards(graph)), count)
    graph = trace.run("chain sums", lambda: canonicalize(chain_sums(graph)), count)
    kernels = trace.run(
        "partition",
        lambda: partition(graph),
        lambda p: f"{len(p.calls)} kernel calls of {len(p.subgraphs)} distinct subgraphs",
        _partition_text,
    )
    return graph, kernels


def _partition_text(p: Partition) -> str:
    lines = [f"{what}: {'yes' if v.ok else 'no'}, {v.reason}" for what, v in p.verdicts]
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
    graph, kernels = stages(graph, trace)
    calls, in_place = trace.run(
        "order",
        lambda: order_calls(graph, kernels),
        lambda r: f"{len(r[1])} of {len(graph.updates)} updates in place",
        lambda r: "\n".join(c.name for c in r[0]),
    )
    subgraphs = tuple({c.subgraph.digest: c.subgraph for c in calls}.values())
    schedules = trace.run(
        "schedules",
        lambda: tuple(default_schedule(s, machine) for s in subgraphs),
        lambda s: f"{len(s)} default schedules",
        lambda s: "\n".join(map(str, s)),
    )
    keys = tuple(kernel_key(s, schedule, machine) for s, schedule in zip(subgraphs, schedules, strict=True))
    missing = [n for n, key in enumerate(keys) if _cache(settings).find(key) is None]
    trace.run(
        "code",
        lambda: _build(subgraphs, schedules, keys, missing, machine, settings),
        lambda _: f"{len(missing)} kernels compiled, {len(keys) - len(missing)} from the cache",
        lambda _: "\n".join(f"{kernel_symbol(k)} {s.digest[:8]}" for k, s in zip(keys, subgraphs, strict=True)),
    )
    plan = trace.run(
        "plan",
        lambda: make_plan(graph, calls, in_place, kernels.views),
        lambda p: f"{p.arena_bytes} bytes of temporaries",
    )
    built = len(missing)
    return Compiled(graph, calls, plan, subgraphs, schedules, keys, machine, built, len(keys) - built, trace)


def _build(
    subgraphs: tuple[Subgraph, ...],
    schedules: tuple[Schedule, ...],
    keys: tuple[str, ...],
    missing: list[int],
    target: Target,
    settings: config.Config,
) -> None:
    """Compile the missing kernels into a few modules and publish them.

    Modules are built by threads, as LLVM runs without the interpreter's lock, while this one lowers the next.
    """
    workers = len(os.sched_getaffinity(0))
    size = max(1, -(-len(missing) // (4 * workers)))
    alike = [[n for n in missing if is_shared(subgraphs[n]) == shared] for shared in (False, True)]
    parts = [group[start : start + size] for group in alike for start in range(0, len(group), size)]
    with ThreadPoolExecutor(workers, "neoflow-build") as pool:
        builds = []
        for part in parts:
            symbols = {keys[n]: kernel_symbol(keys[n]) for n in part}
            lowered = [codegen.lower(subgraphs[n], schedules[n], target, symbols[keys[n]]) for n in part]
            builds.append((part, symbols, pool.submit(codegen.build, lowered, target)))
        for part, symbols, build in builds:
            data = build.result()
            if settings.check:
                module = native.load(data)
                native.use_threads(target.threads)
                for n in part:
                    check_kernel(subgraphs[n], module.get(symbols[keys[n]]))
            _cache(settings).publish(data, symbols)


def check_kernel(subgraph: Subgraph, kernel: Any, seed: int = 0) -> None:
    """Compare a compiled kernel with NumPy on random inputs. Raises `CodegenError` with the worst element."""
    rng = np.random.default_rng(seed)
    inputs, outputs = subgraph.tensors()
    arrays = []
    for p in inputs:
        array = native.empty(p.shape, p.dtype)
        array[...] = rng.standard_normal(p.shape) if dt.is_float(p.dtype) else rng.integers(0, 2, p.shape)
        arrays.append(array)
    feeds: dict[Tensor, Any] = dict(zip(inputs, arrays, strict=True))
    results = [native.empty(t.shape, t.dtype) for t in outputs]
    kernel(*(native.as_argument(a) for a in (*arrays, *results)))
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


def bind(compiled: Compiled) -> Function:
    """Load the kernels and bind them to memory."""
    settings = config.load()
    kernels = []
    for key in compiled.keys:
        entry = _cache(settings).find(key)
        if entry is None:
            raise CodegenError(
                f"kernel {key} vanished from the cache {settings.cache_dir} while it was loaded; try again"
            )
        kernels.append(_module(settings, entry.module).get(entry.symbol))
    return Function(compiled, kernels, compiled.target.threads)


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
