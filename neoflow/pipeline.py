"""The compiler: the stages in order, each run, timed and recorded; nothing else knows the order.

expressions -> graph -> the passes of `graph.PASSES` -> kernels -> order -> schedules -> code -> plan -> Function
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import WeakValueDictionary

from neoflow import codegen, config
from neoflow.codegen.keys import request_key
from neoflow.errors import CodegenError, ConfigError
from neoflow.expr.ir import caller
from neoflow.expr.tensor import Tensor
from neoflow.graph import PASSES, Derivation, Graph, make_graph, run
from neoflow.kernel import Code, Kernel, kernel_symbol
from neoflow.loops import Schedule, default_schedule
from neoflow.machine import available_cores
from neoflow.nn.form import unkept
from neoflow.partition import KernelCall, Partition, Subgraph, order_calls, partition
from neoflow.runtime.cache import Entry, KernelCache
from neoflow.runtime.device import Memory
from neoflow.runtime.device.cpu import CPU, Cpu
from neoflow.runtime.device.library import Library
from neoflow.runtime.executor import Loaded, load_kernel, run_kernel
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import STORE, ParameterStore
from neoflow.runtime.plan import Plan, make_plan
from neoflow.target import Target, cpu_target
from neoflow.trace import Trace, tell


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

    def __repr__(self) -> str:
        return f"<Compiled {len(self.graph.nodes)} computes: {len(self.calls)} calls of {len(self.kernels)} kernels>"

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
        cache, request = _cache(config.load()), request_key("the thread team", "", "")
        key = cache.kernel_of(request)
        if key is None or cache.find(key) is None:
            key = codegen.team_key()
            if cache.find(key) is None:
                cache.publish(codegen.build_team(), {key: Code(())})
            cache.remember(request, key)
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
    return f"{p}\n\n" + "\n".join(map(str, p.decisions))


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
    graph, divided = stages(graph, trace)
    calls, in_place = trace.run(
        "order",
        lambda: order_calls(graph, divided),
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
    kernels, built = trace.run(
        "code",
        lambda: _kernels(tuple(subgraphs.values()), schedules, machine, settings),
        lambda r: f"{r[1]} kernels compiled, {len(r[0]) - r[1]} from the cache",
        lambda r: "\n".join(f"{k.symbol} {k.subgraph.digest[:8]}" for k in r[0]),
    )
    codes = {k.subgraph.digest: _entry(settings, k).code for k in kernels}
    plan = trace.run(
        "plan",
        lambda: make_plan(graph, calls, in_place, divided.views, codes, machine.threads),
        lambda p: f"{p.arena_bytes} bytes of temporaries",
    )
    return Compiled(graph, calls, plan, kernels, machine, built, len(kernels) - built, trace)


def _kernels(
    subgraphs: Sequence[Subgraph], schedules: Sequence[Schedule], target: Target, settings: config.Config
) -> tuple[tuple[Kernel, ...], int]:
    """The kernels, all of them in the cache now, and how many of them were compiled for it.

    What the cache knows by its request is not even lowered; what is lowered to code that is there is not compiled.
    """
    cache = _cache(settings)
    asked = list(zip(subgraphs, schedules, strict=True))
    requests = [request_key(s.digest, schedule.to_json(), str(target)) for s, schedule in asked]
    keys = [cache.kernel_of(r) for r in requests]
    unknown = [n for n, key in enumerate(keys) if key is None or cache.find(key) is None]
    built = _build([asked[n] for n in unknown], target, cache) if unknown else []
    for n, (key, _) in zip(unknown, built, strict=True):
        cache.remember(requests[n], key)
        keys[n] = key
    kernels = tuple(Kernel(s, schedule, target, key or "") for (s, schedule), key in zip(asked, keys, strict=True))
    return kernels, sum(is_new for _, is_new in built)


def _build(asked: Sequence[tuple[Subgraph, Schedule]], target: Target, cache: KernelCache) -> list[tuple[str, bool]]:
    """Lower kernels, and compile those whose code the cache lacks into a few modules; each key, and whether it is new.

    Modules are built by threads, as LLVM runs without the interpreter's lock, while this one lowers the next.
    """
    workers = available_cores()
    size = max(1, -(-len(asked) // (4 * workers)))
    found: list[tuple[str, bool]] = []
    seen: set[str] = set()
    groups: dict[bool, list[tuple[str, Any]]] = {False: [], True: []}
    builds: list[tuple[dict[str, Code], Future[bytes]]] = []
    known = 0
    with ThreadPoolExecutor(workers, "neoflow-build") as pool:

        def submit(group: list[tuple[str, Any]]) -> None:
            if group:
                codes = {key: kernel.code for key, kernel in group}
                builds.append((codes, pool.submit(codegen.build, [kernel for _, kernel in group], target)))

        for subgraph, schedule in asked:
            lowered = codegen.lower(subgraph, schedule, target, "kernel")
            key = codegen.kernel_key(lowered, target)
            is_new = key not in seen and cache.find(key) is None
            found.append((key, is_new))
            known += not is_new
            tell("code", known + sum(len(codes) for codes, build in builds if build.done()), len(asked))
            seen.add(key)
            if is_new:
                group = groups[lowered.is_shared]  # those alone may be in one module
                group.append((key, lowered.named(kernel_symbol(key))))
                if len(group) == size:
                    groups[lowered.is_shared] = []
                    submit(group)
        for group in groups.values():
            submit(group)
        for codes, build in builds:
            cache.publish(build.result(), codes)
            known += len(codes)
            tell("code", known, len(asked))
    return found


def _check(kernel: Kernel, entry: Entry, loaded: Loaded, settings: config.Config) -> None:
    """Compare a kernel with NumPy, unless that was done for this very code; a wrong one leaves the cache.

    Raises `CodegenError` with the kernel, the draw and the worst element.
    """
    from neoflow.codegen.verify import verifier_version, verify  # imported here: who does not ask for it need not wait

    cache, digest = _cache(settings), kernel.subgraph.digest
    found = cache.certificate(kernel.key, digest, entry.module)
    if found is not None and found.get("verifier") == verifier_version():
        return

    def run(arrays: Sequence[Memory]) -> None:
        run_kernel(device(), loaded, arrays, kernel.target.threads)

    try:
        certificate = verify(kernel.subgraph, run, f"kernel {kernel.symbol}")
    except CodegenError:
        cache.drop(kernel.key)
        raise
    cache.certify(kernel.key, digest, entry.module, asdict(certificate))


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
    if settings.check:
        for found in zip(compiled.kernels, entries, loaded, strict=True):
            _check(*found, settings)
    return Function(compiled, loaded, parameter_store(), compiled.target.threads)


def compile(
    outputs: Sequence[Tensor] | Tensor,
    inputs: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
) -> Function:
    """Compile a program: `f = nf.compile([loss], inputs=[x, labels], updates={w: w - 0.1 * dw})`.

    outputs: tensors a call returns. inputs: placeholders, in the order of the call's arrays. updates: new values of
    parameters, written at the end of each call; with `**nf.nn.state(loss)` those of layers too. target: "cpu".
    Raises `GraphError`, `CodegenError`, `ConfigError`.
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    compiled = compile_program(roots, inputs, updates, target)
    if updates:
        _warn_of_unkept([*roots, *updates.values()], updates)
    return bind(compiled)


def _warn_of_unkept(roots: Sequence[Tensor], updates: Mapping[Tensor, Tensor]) -> None:
    """A training step in which running statistics stay what they are, or the same elements are dropped for ever."""
    if lost := unkept(roots, updates):
        names = ", ".join(p.name for p in lost)
        text = f"the step leaves the state of its layers as it is ({names}): add **nf.nn.state(loss) to its updates"
        file, line = caller() or (__file__, 0)
        warnings.warn_explicit(text, UserWarning, file, line)
