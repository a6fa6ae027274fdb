"""The compiler: the stages in order, each run, timed and recorded; nothing else knows the order.

expressions -> graph -> the passes of `graph.PASSES` -> kernels -> order -> schedules -> code -> plan -> Function
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, overload
from weakref import WeakValueDictionary

from neoflow import codegen, config
from neoflow.architectures import GPU_KINDS, NEWEST, gpu_target, runs_on
from neoflow.codegen.keys import request_key
from neoflow.errors import CodegenError, ConfigError, RuntimeFault
from neoflow.expr.ir import caller
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.graph import (
    CANONICALIZE,
    HOIST,
    NARROW,
    PASSES,
    Derivation,
    Graph,
    Known,
    Mixed,
    evaluate_constants,
    make_graph,
    mix,
    run,
)
from neoflow.kernel import Code, Kernel, kernel_symbol
from neoflow.loops import Schedule, default_schedule, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.machine import available_cores
from neoflow.nn.form import unkept
from neoflow.partition import (
    KernelCall,
    Partition,
    Subgraph,
    object_for_gpu,
    object_to,
    order_calls,
    partition,
)
from neoflow.runtime.cache import KernelCache
from neoflow.runtime.device import Device, Library, Memory
from neoflow.runtime.device.cpu import CPU, Cpu
from neoflow.runtime.device.cuda import Cuda, CudaDriver
from neoflow.runtime.executor import Loaded, load_kernel, run_on
from neoflow.runtime.function import Elsewhere, Function
from neoflow.runtime.parameters import STORE, ParameterStore
from neoflow.runtime.plan import Plan, make_plan
from neoflow.runtime.records import Module
from neoflow.target import Target, cpu_target
from neoflow.trace import Trace, tell, tick


@dataclass(frozen=True)
class Compiled:
    """What a compilation made: the plan, its distinct kernels by their number in the plan, and the record of stages.

    written: the graph before any pass. modules: where the code of each kernel is. built: kernels that were compiled
    now; cached: kernels that came from the cache.
    """

    written: Graph
    graph: Graph
    calls: tuple[KernelCall, ...]
    plan: Plan
    kernels: tuple[Kernel, ...]
    modules: tuple[Module, ...]
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


_libraries: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()
"""Loaded modules by device and by the hash of their content, as long as something uses them."""


def _library(place: Device, module: Module) -> Library:
    library = _libraries.get((id(place), module.name))
    if library is None:
        library = _libraries[id(place), module.name] = place.load(module.library)
    return library


def device(target: Target | None = None) -> Device:
    """What code for a target runs on, ready: the CPU when None. Raises `RuntimeFault` when it is not there."""
    if target is None or target.device == "cpu":
        return cpu()
    place = gpu()
    here = place.driver.gpu
    if not runs_on(target, here.architecture):
        raise RuntimeFault(
            f"the code is for {target}, the GPU of this machine is a {here.name}, {here.architecture}: compile for "
            f"target='{target.kind}'"
        )
    return place


def cpu() -> Cpu:
    """The CPU, ready to run kernels: its thread team comes from the cache, or is compiled."""

    def team() -> bytes:
        cache, request = _cache(config.load()), request_key("the thread team", "", "")
        key = cache.kernel_of(request)
        module = None if key is None else cache.find(key)
        if module is None:
            key = codegen.team_key()
            module = cache.find(key) or cache.publish(codegen.build_team(), {key: Code(())})
            cache.remember(request, key)
        return module.library

    CPU.install(team)
    return CPU


@lru_cache(maxsize=1)
def gpu() -> Cuda:
    """The GPU of this machine. Raises `RuntimeFault` when there is none that this process may use."""
    return Cuda(CudaDriver())


def parameter_store() -> ParameterStore:
    """Where parameters live, at first on the CPU."""
    cpu()
    return STORE


def resolve_target(target: str) -> Target:
    """The target of a name: "cpu", this machine; "cuda" or "nvptx", its GPU or, where there is none, the newest
    architecture; "cuda:sm_80", that architecture. Raises `ConfigError` for any other."""
    kind, colon, name = target.partition(":")
    if target == "cpu":
        return cpu_target(config.load().threads)
    if kind in GPU_KINDS and bool(name) == bool(colon):
        return gpu_target(kind, name or _architecture_here())
    raise ConfigError(
        f"there is no target {target!r}; there are cpu, {', '.join(GPU_KINDS)} and cuda:sm_80 and the like"
    )


def _architecture_here() -> str:
    """Of this machine's GPU; the newest one where there is none."""
    try:
        return gpu().driver.gpu.architecture
    except RuntimeFault:
        return NEWEST


PRECISIONS = ("fp32", *NARROW)
"""fp32: as the program is written."""


def check_precision(precision: str, target: str) -> str:
    """The precision, if this target has it. Raises `ConfigError`."""
    if precision == "tf32":
        raise ConfigError(
            f"precision 'tf32' is one of NVIDIA's tensor cores, sm_80 and newer, not there yet for target {target!r}: "
            f"choose among {', '.join(PRECISIONS)}"
        )
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
    return precision


def stages(
    graph: Graph, trace: Trace, target: Target | None = None, precision: str = "fp32"
) -> tuple[Graph, Partition]:
    """The rewriting stages: from the graph as written to its division into kernels, for a CPU unless said otherwise."""
    choose = object_to if target is None or target.device == "cpu" else object_for_gpu
    graph = _rewritten(graph, trace, precision)
    kernels = trace.run(
        "partition",
        lambda: partition(graph, choose=choose),
        lambda p: f"{len(p.calls)} kernel calls of {len(p.subgraphs)} distinct subgraphs",
        _partition_text,
        _size(graph),
    )
    return graph, kernels


def _rewritten(graph: Graph, trace: Trace, precision: str) -> Graph:
    """The graph after all passes. What is narrow is chosen when every contraction is there to be seen, and before sums
    become chains."""
    for row in PASSES:
        rewriting = partial(run, graph, row)
        graph, _ = trace.run(row.name, rewriting, _rewritten_summary, _rewritten_text, _size(graph))
        if row is CANONICALIZE:
            evaluating = partial(_constants, graph)
            graph, _ = trace.run("constants", evaluating, _constants_summary, _constants_text, _size(graph))
        if row is HOIST and precision in NARROW:
            mixing = partial(mix, graph, precision)
            graph = trace.run("precision", mixing, lambda m: m.summary, Mixed.__str__, _size(graph)).graph
    return graph


def _size(graph: Graph) -> str:
    return f"{len(graph.nodes)} computes"


def _constants(graph: Graph) -> tuple[Graph, Known]:
    """Constant computes evaluated, and what follows from their values."""
    evaluated, known = evaluate_constants(graph)
    return (graph if evaluated is graph else run(evaluated, CANONICALIZE)[0]), known


def _constants_summary(result: tuple[Graph, Known]) -> str:
    graph, known = result
    return f"{known.count} tensors computed once, {sum(c.nbytes for c in graph.constants)} bytes of constants"


def _constants_text(result: tuple[Graph, Known]) -> str:
    graph, known = result
    return f"{known}\n\n{graph}" if known.count else str(known)


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
    precision: str = "fp32",
) -> Compiled:
    """Run every stage and build what the cache lacks."""
    trace, settings, machine = Trace(), config.load(), resolve_target(target)
    check_precision(precision, target)
    written = trace.run(
        "expressions", lambda: make_graph(outputs, inputs, updates), lambda g: f"{len(g.nodes)} computes as written"
    )
    graph, divided = stages(written, trace, machine, precision)
    calls, in_place = trace.run(
        "order",
        lambda: order_calls(graph, divided),
        lambda r: f"{len(r[1])} of {len(graph.updates)} updates in place",
        lambda r: "\n".join(c.name for c in r[0]),
        f"{len(divided.calls)} kernel calls",
    )
    codegen.check_sizes(calls, graph.outputs)
    subgraphs = {c.subgraph.digest: c.subgraph for c in calls}
    distinct = f"{len(subgraphs)} kernels of {sum(len(s.nodes) for s in subgraphs.values())} nodes"
    schedules = trace.run(
        "schedules",
        lambda: tuple(_schedule(s, machine) for s in subgraphs.values()),
        lambda s: f"{len(s)} default schedules",
        lambda s: _schedules_text(tuple(subgraphs.values()), s, machine),
        distinct,
    )
    kernels, modules, built = trace.run(
        "code",
        lambda: _kernels(tuple(subgraphs.values()), schedules, machine, settings),
        lambda r: _code_summary(r[1], r[2], machine),
        lambda r: "\n".join(f"{k.symbol} {k.subgraph.digest[:8]}" for k in r[0]),
        distinct,
    )
    codes = {k.subgraph.digest: m.codes[k.key] for k, m in zip(kernels, modules, strict=True)}
    plan = trace.run(
        "plan",
        lambda: make_plan(graph, calls, in_place, divided.views, codes, machine.threads),
        lambda p: f"{p.arena_bytes} bytes of temporaries",
        of=f"{len(calls)} kernel calls",
    )
    cached = sum(1 for m in modules if m.library) - built
    return Compiled(written, graph, calls, plan, kernels, modules, machine, built, max(0, cached), trace)


def _code_summary(modules: Sequence[Module], built: int, target: Target) -> str:
    """What was compiled, of a module a kernel; or why nothing can be."""
    if any(not m.library for m in modules):
        return f"{len(modules)} kernels written, not compiled: {codegen.missing(target)}"
    return f"{built} kernels compiled, {len(modules) - built} from the cache"


def _schedules_text(subgraphs: Sequence[Subgraph], schedules: Sequence[Schedule], target: Target) -> str:
    """A schedule a line; for a GPU also what its launches ask for and would take."""
    if target.device == "cpu":
        return "\n".join(map(str, schedules))
    pairs = zip(subgraphs, schedules, strict=True)
    return "\n".join(f"{s}\n  {estimate(problem_of(g), s, target)}" for g, s in pairs)


def _schedule(subgraph: Subgraph, target: Target) -> Schedule:
    tick()
    return default_schedule(subgraph, target)


def _kernels(
    subgraphs: Sequence[Subgraph], schedules: Sequence[Schedule], target: Target, settings: config.Config
) -> tuple[tuple[Kernel, ...], tuple[Module, ...], int]:
    """The kernels, the modules they are in, and how many of them were compiled now.

    What the cache knows by its request is not even lowered; what is lowered to code that is there is not compiled.
    Without a compiler for the target the modules are empty: the kernels can be looked at.
    """
    cache = _cache(settings)
    cache.refresh()
    asked = list(zip(subgraphs, schedules, strict=True))
    requests = [request_key(s.digest, schedule.to_json(), str(target)) for s, schedule in asked]
    keys = [cache.kernel_of(r) for r in requests]
    modules = {key: cache.find(key) for key in keys if key is not None}
    unknown = [n for n, key in enumerate(keys) if key is None or modules[key] is None]
    lowered, built = _build([asked[n] for n in unknown], target, cache) if unknown else ([], 0)
    for n, (key, module) in zip(unknown, lowered, strict=True):
        cache.remember(requests[n], key)
        keys[n], modules[key] = key, module
    kernels = tuple(Kernel(s, schedule, target, key or "") for (s, schedule), key in zip(asked, keys, strict=True))
    return kernels, tuple(m for m in (modules[k.key] for k in kernels) if m is not None), built


def _build(
    asked: Sequence[tuple[Subgraph, Schedule]], target: Target, cache: KernelCache
) -> tuple[list[tuple[str, Module]], int]:
    """Lower kernels, and compile those whose code the cache lacks into a few modules.

    The key of each and the module it is in, and how many were compiled. Modules are built by threads, as LLVM runs
    without the interpreter's lock, while this one lowers the next.
    """
    workers = available_cores()
    size = max(1, -(-len(asked) // (4 * workers)))
    keys: list[str] = []
    modules: dict[str, Module | None] = {}
    groups: dict[bool, list[tuple[str, Any]]] = {False: [], True: []}
    builds: list[tuple[dict[str, Code], Future[bytes]]] = []
    known, missing = 0, codegen.missing(target)
    with ThreadPoolExecutor(workers, "neoflow-build") as pool:

        def submit(group: list[tuple[str, Any]]) -> None:
            codes = {key: kernel.code for key, kernel in group}
            if missing is not None:
                modules.update((key, Module("", {key: code}, b"")) for key, code in codes.items())
            elif group:
                builds.append((codes, pool.submit(codegen.build, [kernel for _, kernel in group], target)))

        for subgraph, schedule in asked:
            lowered = codegen.lower(subgraph, schedule, target, "kernel")
            key = codegen.kernel_key(lowered, target)
            keys.append(key)
            tell("code", known + sum(len(codes) for codes, build in builds if build.done()), len(asked))
            if key in modules:
                continue
            modules[key] = cache.find(key)
            known += modules[key] is not None
            if modules[key] is None:
                group = groups[lowered.is_shared]  # those alone may be in one module
                group.append((key, lowered.named(kernel_symbol(key))))
                if len(group) == size:
                    groups[lowered.is_shared] = []
                    submit(group)
        for group in groups.values():
            submit(group)
        for codes, build in builds:
            modules.update(dict.fromkeys(codes, cache.publish(build.result(), codes)))
            known += len(codes)
            tell("code", known, len(asked))
    found = [(key, module) for key in keys if (module := modules[key]) is not None]
    return found, sum(len(codes) for codes, _ in builds)


def _check(kernel: Kernel, module: Module, loaded: Loaded, place: Device, settings: config.Config) -> None:
    """Compare a kernel with NumPy, unless that was done for this very code; a wrong one leaves the cache.

    Raises `CodegenError` with the kernel, the draw and the worst element.
    """
    from neoflow.codegen.verify import verifier_version, verify  # imported here: who does not ask for it need not wait

    cache, digest = _cache(settings), kernel.subgraph.digest
    found = cache.certificate(kernel.key, digest, module)
    if found is not None and found.get("verifier") == verifier_version():
        return

    def run(arrays: Sequence[Memory]) -> None:
        run_on(place, loaded, arrays, kernel.target.threads)

    try:
        certificate = verify(kernel.subgraph, run, f"kernel {kernel.symbol}")
    except CodegenError:
        cache.drop(kernel.key)
        raise
    cache.certify(kernel.key, digest, module, asdict(certificate))


def bind(compiled: Compiled) -> Function:
    """Load the kernels and bind them to memory. Of a device that is not here the code can only be looked at.

    Raises `CodegenError` where the device is here, and no compiler for it.
    """
    settings, placed = config.load(), list(zip(compiled.kernels, compiled.modules, strict=True))
    try:
        place = device(compiled.target)
    except RuntimeFault as reason:
        return Elsewhere(compiled, reason.message)
    if any(not m.library for m in compiled.modules):
        raise CodegenError(codegen.missing(compiled.target) or "the kernels were not compiled")
    loaded = [load_kernel(module.codes[k.key], _library(place, module)) for k, module in placed]
    if settings.check:
        for found in zip(compiled.kernels, compiled.modules, loaded, strict=True):
            _check(*found, place, settings)
    return Function(compiled, loaded, parameter_store(), place, compiled.target.threads)


def compile(
    outputs: Sequence[Tensor] | Tensor,
    inputs: Sequence[Placeholder] | Placeholder = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
    precision: str = "fp32",
) -> Function:
    """Compile a program: `f = nf.compile([loss], inputs=[x, labels], updates={w: w - 0.1 * dw})`.

    outputs: tensors a call returns. inputs: placeholders, in the order of the call's arrays; of both, a single one may
    stand for a list. updates: new values of parameters, written at the end of each call; with `**nf.nn.state(loss)`
    those of layers too. target: "cpu"; "cuda", this machine's GPU; "cuda:sm_80", an architecture that need not be here:
    then `f.source("cuda")` shows the code. precision: "fp32", as it is written; "bf16" or "fp16": what
    `nf.mixed_precision` makes of the outputs and updates together.
    Raises `GraphError`, `CodegenError`, `ConfigError`.
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    compiled = compile_program(roots, given, updates, target, precision)
    if updates:
        _warn_of_unkept([*roots, *updates.values()], updates)
    return bind(compiled)


@overload
def mixed_precision(tensors: Tensor, precision: str) -> Tensor: ...
@overload
def mixed_precision(tensors: Sequence[Tensor], precision: str) -> list[Tensor]: ...
def mixed_precision(tensors: Tensor | Sequence[Tensor], precision: str) -> Tensor | list[Tensor]:
    """The same tensors with contractions in mixed precision: what `nf.compile(precision=...)` computes of them.

    precision: "bf16" or "fp16" ("fp32": as they are). Operands of contractions are rounded to the narrow type, products
    summed in float32; softmax, norms, losses, other reductions and what is given back stay float32, as do parameters
    (`graph/precision.py` has the table). To be used last, after `nf.grad`, `nn.state` and `nn.inference`, on all
    tensors of a program together. Raises `ConfigError`.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    check_precision(precision, "any")
    if precision in NARROW:
        fed = [t for t in topological(roots) if isinstance(t, Placeholder) and not isinstance(t, Parameter)]
        roots = list(_rewritten(make_graph(roots, fed), Trace(), precision).outputs)
    return roots[0] if isinstance(tensors, Tensor) else roots


def _warn_of_unkept(roots: Sequence[Tensor], updates: Mapping[Tensor, Tensor]) -> None:
    """A training step in which running statistics stay what they are, or the same elements are dropped for ever."""
    if lost := unkept(roots, updates):
        names = ", ".join(p.name for p in lost)
        text = f"the step leaves the state of its layers as it is ({names}): add **nf.nn.state(loss) to its updates"
        file, line = caller() or (__file__, 0)
        warnings.warn_explicit(text, UserWarning, file, line)
