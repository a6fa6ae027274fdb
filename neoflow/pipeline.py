"""The compiler: the stages in order, each run, timed and recorded; `rewriting` has those from a graph to its kernels.

expressions -> graph -> the passes of `graph.PASSES` -> kernels -> order -> schedules -> code -> plan -> Function
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neoflow import codegen, config, devices, instep, sifting, tuning
from neoflow.building import find_kernels, load, usual_schedule
from neoflow.code import Handed
from neoflow.devices import device, parameter_store
from neoflow.errors import CodegenError, ConfigError, NeoflowError, RuntimeFault
from neoflow.expr.recurrence import runs_of
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.graph import Graph, Packed, make_graph
from neoflow.kernel import Kernel
from neoflow.loops import Schedule, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.measure import Measurer
from neoflow.measure.fleet import Fleet
from neoflow.measure.here import Here
from neoflow.measure.measurer import Pool
from neoflow.nn.form import warn_of_unkept
from neoflow.partition import Grouped, HandedCall, KernelCall, flattened, order_calls, prepared_first
from neoflow.persisting import NONE, Loops, persisting
from neoflow.precision import check_precision
from neoflow.recompute import Fitted, Program, bytes_of, fit
from neoflow.rewriting import (
    PERSISTENT,
    PREPARED,
    SEGMENTS,
    TOGETHER,
    Known,
    Price,
    attended,
    divided,
    handed,
    in_memory,
    mapped,
    nobody,
    segmented,
)
from neoflow.runtime.function import Elsewhere, Function
from neoflow.runtime.plan import Plan
from neoflow.runtime.records import Module
from neoflow.target import Target
from neoflow.trace import Trace, shown
from neoflow.trials import Trials, alone, faster, judge, loaded_on, measured_within, optimizer_of
from neoflow.tune import Limits
from neoflow.tune.limits import ROUNDING
from neoflow.tune.records import Verdict

if TYPE_CHECKING:
    from neoflow.rewriting.optimizing import Optimizer
    from neoflow.superopt import Rule


@dataclass(frozen=True)
class Compiled:
    """What a compilation made: the plan, its distinct kernels by their number in the plan, and the record of stages.

    written: the graph before any pass. modules: where the code of each kernel is. built: kernels that were compiled
    now; cached: kernels that came from the cache. precision: as it was asked for. optimizer: what found faster graphs.
    loops: on a GPU, those that are one launch each. foreign: calls of another library; their numbers in the plan come
    after those of the kernels. algorithms: what contractions are computed by, of each graph where that was asked, of
    those whose roundings are so many times a plain sum's at most. fitted: how it fits, under a limit to memory.
    """

    written: Graph
    graph: Graph
    calls: tuple[KernelCall, ...]
    plan: Plan
    kernels: tuple[Kernel, ...]
    modules: tuple[Module, ...]
    target: Target
    tuned: tuning.Tuned
    built: int
    cached: int
    trace: Trace
    precision: str = "fp32"
    optimizer: Optimizer | None = None
    loops: Loops = NONE
    foreign: tuple[Handed, ...] = ()
    algorithms: tuple[tuning.Algorithms, ...] = ()
    rounding: float = ROUNDING
    fitted: Fitted | None = None

    def __repr__(self) -> str:
        return f"<Compiled {len(self.graph.nodes)} computes: {len(self.calls)} calls of {len(self.kernels)} kernels>"

    def save(self, path: Path, functions: Mapping[str, Compiled]) -> None:
        """Write functions as a package, see `neoflow.package.saving`."""
        from neoflow.package.saving import save_package  # imported here: few programs are saved

        save_package(path, {name: _whole(f) for name, f in functions.items()})

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


def compile_program(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
    precision: str = "fp32",
    tune: float | Limits | None = None,
    fleet: str | None = None,
    memory: str | int | None = None,
    optimize: float | None = None,
    rules: Sequence[Rule] = (),
    seed: int = 0,
    optimizer: Optimizer | None = None,
) -> Compiled:
    """Run every stage and build what the cache lacks. fleet: whose machines measure for a search, see
    `measure.fleet`. memory, optimize: see `compile`; rules: proved ones besides those that come along; seed: of the
    order in which they are tried. optimizer: what has found a graph already, which is taken."""
    pool: Callable[[Target], Pool] = Here if fleet is None else partial(Fleet, address=fleet)
    machine, asked = devices.resolve_target(target), tuning.limits_of(tune)
    limits = asked if asked is not None and asked.has_search else None
    rounding = ROUNDING if asked is None else asked.rounding
    limit = None if memory is None else bytes_of(memory)
    check_precision(precision, target)
    begun = time.monotonic()
    make = partial(in_memory, partial(_compiled, outputs, inputs, updates, machine, precision, rounding=rounding))
    if optimizer is not None:
        return make(None, None, begun, limit, optimizer=optimizer)
    within = limits or measured_within(machine, optimize)
    with tuning.measuring(machine, within, config.load().cache_dir, pool) as measurer:
        optimizer = optimizer_of(machine, optimize, measurer, limit is None, rules, seed)
        if optimizer is not None and machine.device == "cpu":
            tried = make(None, None, begun, limit, optimizer=optimizer)
            if optimizer.has_found:
                again = partial(make, None, None, begun, limit, optimizer=optimizer)
                judge(optimizer, make(None, None, begun, limit), tried, again)
            elif limits is None:
                return tried
            begun = time.monotonic()
        if limits is None:
            return make(None, None, begun, limit, optimizer=optimizer)
        tried = make(None, measurer, begun, limit, optimizer=optimizer, measures=limits)
        known = partial(make, None, None, begun, limit, optimizer=optimizer)
        told = sifting.sifted(tried, known, instep.seconds_for(limits))
        found = make(limits, measurer, begun, limit, optimizer=optimizer)
        found.trace.records.extend([] if told is None else [told])
        return found


def _measured(given: Mapping[str, Schedule] | None, machine: Target, folder: Path) -> Known:
    """What kernels took, where that is known: those with a schedule that is given are as good as measured."""
    if given is not None:
        return lambda kernel: 1.0 if kernel.digest in given else None
    return tuning.known_seconds(machine, folder) if tuning.has_records(folder) else nobody


def _compiled(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    updates: Mapping[Tensor, Tensor] | None,
    machine: Target,
    precision: str,
    limits: Limits | None,
    measurer: Measurer | None,
    begun: float,
    memory: int | None = None,
    given: Mapping[str, Schedule] | None = None,
    optimizer: Optimizer | None = None,
    lives: bool = True,
    in_blocks: bool = True,
    hands: bool = True,
    measures: Limits | None = None,
    rounding: float = ROUNDING,
    price: Price | None = None,
) -> Compiled:
    """begun: when the seconds of the limits did (`time.monotonic`). memory: bytes that there are. given: schedules
    of subgraphs, by digest. With either of them nothing is prepared: every call runs all kernels. lives: whether
    parameters may live packed; with schedules that are given none does. in_blocks: whether recurrences may go in
    strands that are blocks of one launch on a GPU. hands: whether recurrences may become calls of another library;
    where not, those that are there stay. measures: limits within which the algorithms of contractions are measured;
    where none, what is known of them decides, and of the whole program; rounding: those that are allowed. price: of
    bytes that wait, under a limit to memory."""
    trace, settings = Trace(), config.load()
    written = trace.run(
        "expressions", lambda: make_graph(outputs, inputs, updates), lambda g: f"{len(g.nodes)} computes as written"
    )
    source = mapped(written, trace, settings, machine, precision)
    if hands and given is None and optimizer is None:
        tried = Trials(machine, partial(_compiled, begun=begun, hands=False))
        ways = tried.values, tried.beside, tried.refusal
        source = handed(source, trace, settings, machine, precision, memory, *ways)
    source = attended(source, trace, machine, precision, memory)
    choosing, algorithms = None, list[tuning.Algorithms]()
    if tuning.knows_algorithms(machine, measures, settings.cache_dir):

        def choosing(graph: Graph) -> tuning.Algorithms:
            if measures is None:
                algorithms.append(tuning.known_algorithms(graph, machine, settings.cache_dir, rounding))
            else:
                algorithms.append(tuning.algorithms(graph, machine, measures, settings.cache_dir, measurer))
            return algorithms[-1]

    may_last = None
    if given is None and memory is None and limits is None and PREPARED not in settings.without:
        may_last = tuning.unmeasured(machine, settings.cache_dir)
    if memory is not None and SEGMENTS not in settings.without and runs_of(source.order):
        divide = partial(
            divided, trace=Trace(), target=machine, precision=precision, algorithms=choosing, may_last=None, price=price
        )
        find = partial(segmented, source, memory, machine, settings, divide)
        source = trace.run(SEGMENTS, find, lambda s: s.summary, str, f"{len(source.nodes)} computes").graph
    may_live = None if given is not None or not lives else tuning.unmeasured(machine, settings.cache_dir)
    in_blocks = in_blocks and given is None and memory is None
    known, roofs = _measured(given, machine, settings.cache_dir), tuning.machine_roofs(machine, settings.cache_dir)
    how = precision, choosing, may_last, optimizer, may_live, known, in_blocks, roofs
    graph, parts = divided(source, trace, machine, *how, price)
    judging = 0.0 if limits is None else instep.seconds_for(limits)
    if limits is not None and limits.seconds is not None:
        left = limits.seconds - judging - (time.monotonic() - begun)
        limits = replace(limits, seconds=max(tuning.LEAST, left))
    calls, in_place = trace.run(
        "order",
        lambda: order_calls(graph, parts),
        lambda r: f"{len(r[1])} of {len(graph.updates)} updates in place",
        lambda r: "\n".join(c.name for c in r[0]),
        f"{len(parts.calls)} kernel calls",
    )
    prepared = 0
    if machine.device == "cpu" and PREPARED not in settings.without and given is None and memory is None:
        calls, prepared = trace.run(
            PREPARED,
            lambda: prepared_first(graph, calls, parts.views),
            lambda r: f"{r[1]} of {len(r[0])} kernel calls run when parameters have changed",
            lambda r: "\n".join(c.name for c in r[0][: r[1]]) or "nothing follows from parameters alone that stay",
            f"{len(calls)} kernel calls",
        )
    prepared = len(flattened(calls[:prepared])[0])
    calls, loops = flattened(calls)
    codegen.check_sizes(calls, graph.outputs)
    foreign = {c.subgraph.digest: c.handed for c in calls if isinstance(c, HandedCall)}
    own = [c for c in calls if c.subgraph.digest not in foreign]
    subgraphs = {c.subgraph.digest: c.subgraph for c in own}
    distinct = f"{len(subgraphs)} kernels of {sum(len(s.nodes) for s in subgraphs.values())} nodes"
    tuned = trace.run(
        "schedules",
        lambda: _schedules(own, machine, limits, settings, measurer),
        lambda t: t.summary,
        lambda t: _schedules_text(t, machine),
        distinct,
        is_asked_for=limits is not None,
    )
    schedules = [(given or {}).get(c.use.subgraph.digest, c.schedule) for c in tuned.choices]
    kernels, modules, built = trace.run(
        "code",
        lambda: find_kernels(tuple(subgraphs.values()), schedules, machine, settings),
        lambda r: _code_summary(r[1], r[2], machine),
        lambda r: "\n".join(f"{k.symbol} {k.subgraph.digest[:8]}" for k in r[0]),
        distinct,
    )
    codes = {k.subgraph.digest: m.codes[k.key] for k, m in zip(kernels, modules, strict=True)}
    codes |= {digest: h.code for digest, h in foreign.items()}
    program = Program(graph, calls, in_place, parts.views, codes, machine.threads, prepared, loops)
    fitted = None
    if memory is not None:
        fitting = partial(fit, program, memory, roofs)
        fitted = trace.run("memory", fitting, str, Fitted.to_text, f"{len(calls)} kernel calls")
        program = fitted.program
    elif TOGETHER in settings.asked:
        text = f"{len(calls)} kernel calls"
        group = partial(program.grouped, roofs, machine.device != "cpu" or machine.threads > 1)
        found = trace.run(TOGETHER, group, lambda g: g.summary, Grouped.to_text, text)
        program = replace(program, calls=found.calls, together=found.groups)
    plan = trace.run(
        "plan",
        program.plan,
        lambda p: f"{p.arena_bytes} bytes of temporaries",
        of=f"{len(program.calls)} kernel calls",
    )
    whole = NONE
    if machine.device == "gpu" and plan.loops and PERSISTENT not in settings.without:
        finding = partial(persisting, plan, kernels, machine, settings)
        whole = trace.run(PERSISTENT, finding, lambda w: w.summary, str, f"{len(plan.calls)} kernel calls")
        if whole.has_lost_strands:
            asked = (outputs, inputs, updates, machine, precision, limits, measurer, begun)
            return _compiled(*asked, optimizer=optimizer, lives=lives, in_blocks=False, rounding=rounding)
    cached = max(0, sum(1 for m in modules if m.library) - built)
    made = (program.calls, plan, kernels, modules, machine, tuned, built, cached)
    others = whole, tuple(foreign.values()), tuple(algorithms), rounding, fitted
    compiled = Compiled(written, graph, *made, trace, precision, optimizer, *others)
    return compiled if limits is None or machine.device != "cpu" else _in_step(compiled, judging, settings)


def _in_step(c: Compiled, seconds: float, settings: config.Config) -> Compiled:
    """The same program with the schedules that are best in it, which is kept beside the records of kernels."""
    default = {k.subgraph.digest: usual_schedule(k.subgraph, c.target, settings) for k in c.kernels}
    alone_best = {k.subgraph.digest: k.schedule for k in c.kernels}
    known = tuning.verdict_of(c.tuned, c.target, settings.cache_dir)
    sets = instep.sets_of(default, alone_best, known, instep.streamed(c.kernels, alone_best))
    if len(sets) == 1:
        return c
    try:
        function = alone(c)
        runs = instep.Sets(function, c.kernels, adopt, device(c.target))
        judged = c.trace.run(
            "in the step", lambda: instep.judge(runs, sets, seconds), lambda j: j.summary, str, f"{len(sets)} schedules"
        )
        adopt(function, judged.schedules)
    except NeoflowError as error:
        warnings.warn(f"the program could not be timed: {error.message}", stacklevel=2)
        return c
    tuned = tuning.judged(c.tuned, Verdict(judged.schedules, judged.seconds), default, c.target, settings.cache_dir)
    changed = function.compiled
    assert isinstance(changed, Compiled)
    return replace(changed, tuned=tuned)


def _whole(c: Compiled) -> Compiled:
    """The same program with all its kernels run at every call, by the schedules they have, on parameters as users know
    them: who has an instance of it in C may read and write these at any time. What a search has found for it may have
    counted on weights that are made ready once: then it is timed beside what is written."""
    if not c.plan.prepared and not _lives_packed(c) and not c.loops.has_strands and not c.foreign:
        return c
    schedules = {k.subgraph.digest: k.schedule for k in c.kernels}
    g = c.written
    updates: dict[Tensor, Tensor] = dict(g.updates)
    asked = (g.outputs, g.inputs, updates, c.target, c.precision)
    make = partial(_compiled, *asked, None, None, time.monotonic(), given=schedules, rounding=c.rounding)
    found = make(optimizer=c.optimizer)
    is_other = c.optimizer is not None and c.optimizer.has_found
    return faster(make(), found) if is_other and c.plan.prepared else found


def _code_summary(modules: Sequence[Module], built: int, target: Target) -> str:
    """What was compiled, of a module a kernel; or why nothing can be."""
    if any(not m.library for m in modules):
        return f"{len(modules)} kernels written, not compiled: {codegen.missing(target)}"
    return f"{built} kernels compiled, {len(modules) - built} from the cache"


def _schedules(
    calls: Sequence[KernelCall],
    target: Target,
    limits: Limits | None,
    settings: config.Config,
    measurer: Measurer | None,
) -> tuning.Tuned:
    """What earlier runs know, or the default; with limits, what a search within them finds."""
    uses = tuning.uses_of(calls)
    if limits is None:
        return tuning.choose(uses, target, settings.cache_dir, partial(usual_schedule, settings=settings))
    return tuning.tune(uses, target, limits, settings.cache_dir, measure=measurer)


def _schedules_text(tuned: tuning.Tuned, target: Target) -> str:
    """A schedule a line; for a GPU also what its launches ask for and would take."""
    if target.device == "cpu":
        return str(tuned)
    found = ((c, estimate(problem_of(c.use.subgraph), c.schedule, target)) for c in tuned.choices)
    return "\n".join(f"{choice}\n  {estimated}" for choice, estimated in found)


def bind(compiled: Compiled) -> Function:
    """Load the kernels and bind them to memory. Of a device that is not here the code can only be looked at.

    Raises `CodegenError` where the device is here, and no compiler for it.
    """
    try:
        place = device(compiled.target)
    except RuntimeFault as reason:
        return Elsewhere(compiled, reason.message)
    if any(not m.library for m in compiled.modules):
        raise CodegenError(codegen.missing(compiled.target) or "the kernels were not compiled")
    otherwise = partial(_plainly, compiled) if _lives_packed(compiled) else None
    asked = (parameter_store(), place, compiled.target.threads, otherwise, compiled.loops.loaded(place))
    return Function(compiled, loaded_on(place, compiled), *asked)


def _lives_packed(c: Compiled) -> bool:
    return any(isinstance(p, Packed) for p in c.graph.parameters)


def _plainly(c: Compiled) -> Function:
    """The same program with all parameters as users know them: it shares these with others at every other call."""
    g = c.written
    updates: dict[Tensor, Tensor] = dict(g.updates)
    asked = (g.outputs, g.inputs, updates, c.target, c.precision)
    make = partial(_compiled, *asked, None, None, time.monotonic(), lives=False)
    return bind(make(optimizer=c.optimizer, rounding=c.rounding))


def adopt(function: Function, schedules: Mapping[str, Schedule]) -> int:
    """Have a function run the subgraphs of these digests by other schedules from its next call on.

    Kernels that the cache lacks are compiled. Memory and parameters stay; results change by rounding alone. Gives how
    many kernels are others now. Raises `ScheduleError` when a schedule is not legal, `CodegenError`.
    """
    compiled = function.compiled
    if not isinstance(compiled, Compiled):
        raise CodegenError("the function was not compiled here: its kernels are what they are")
    asked = {
        n: (k.subgraph, schedules[k.subgraph.digest])
        for n, k in enumerate(compiled.kernels)
        if schedules.get(k.subgraph.digest, k.schedule) != k.schedule
    }
    if not asked:
        return 0
    settings, target = config.load(), compiled.target
    found = find_kernels([s for s, _ in asked.values()], [s for _, s in asked.values()], target, settings)
    kernels, modules = list(compiled.kernels), list(compiled.modules)
    for n, kernel, module in zip(asked, *found[:2], strict=True):
        kernels[n], modules[n] = kernel, module
    codes = {n: modules[n].codes[kernels[n].key] for n in asked}
    plan = function.plan.adopting(codes, target.threads)
    changed = replace(compiled, kernels=tuple(kernels), modules=tuple(modules), plan=plan)
    loaded = load([kernels[n] for n in asked], [modules[n] for n in asked], device(target), settings)
    function.adopt(changed, dict(zip(asked, loaded, strict=True)))
    return len(asked)


def compile(
    outputs: Sequence[Tensor] | Tensor,
    inputs: Sequence[Placeholder] | Placeholder = (),
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str = "cpu",
    precision: str = "fp32",
    tune: float | Limits | None = None,
    memory: str | int | None = None,
    optimize: float | None = None,
) -> Function:
    """Compile a program: `f = nf.compile([loss], inputs=[x, labels], updates={w: w - 0.1 * dw})`.

    outputs: tensors a call returns. inputs: placeholders, in the order of the call's arrays; of both, a single one may
    stand for a list. updates: new values of parameters, written at the end of each call; with `**nf.nn.state(loss)`
    those of layers too. target: "cpu"; "cuda", this machine's GPU; "cuda:sm_80", an architecture that need not be here:
    then `f.source("cuda")` shows the code. precision: "fp32", as it is written; "bf16", "fp16" or, for a GPU, "tf32":
    what `nf.mixed_precision` makes of the outputs and updates together. tune: search for better schedules, for so many
    seconds or within `nf.tune.Limits`; None: the best that were found before on this machine, defaults for the rest.
    memory: the most bytes that a call may take, of parameters, inputs, outputs and all in between: 2147483648, "2GiB".
    What there is no room to keep is computed again where it is read, by the same kernels, so that every bit stays;
    `f.explain("memory")` has what, and its price. What recurrences keep of their steps for a gradient is computed again
    a segment at a time, and what is one operation of many steps may go back to a chain of them: sums over time may be
    rounded otherwise then (`f.explain("segments")`, `f.explain("over time")`). optimize: search for so many seconds for
    a faster equal graph, by rules that are proved (`neoflow rules list`), and take it where a call is measured to be
    faster; sums may be rounded otherwise; `f.explain("optimize")` has the graph before and after, and what it gains,
    estimated and measured.
    Raises `GraphError`, `CodegenError`, `ConfigError`.
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    with shown("program") if tune is not None else nullcontext():
        compiled = compile_program(roots, given, updates, target, precision, tune, memory=memory, optimize=optimize)
    if updates:
        warn_of_unkept([*roots, *updates.values()], updates)
    return bind(compiled)
