"""The rewriting stages: from the graph as written to its division into kernels, each run, timed and recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from neoflow import config
from neoflow.architectures import architecture
from neoflow.errors import ConfigError
from neoflow.expr.foreign import calls_of
from neoflow.expr.recurrence import runs_of
from neoflow.graph import (
    CANONICALIZE,
    HOIST,
    MIXED,
    OPTIONAL_REWRITES,
    PASSES,
    Derivation,
    Graph,
    Known,
    Mixed,
    evaluate_constants,
    mix,
    run,
)
from neoflow.graph.blocks import Blocked, blocked
from neoflow.graph.chunked import Chunked, chunked
from neoflow.loops import fits, problem_of
from neoflow.partition import (
    LOSES,
    RETURNED,
    RIDERS,
    ROWS,
    RULES,
    STRANDS,
    Choice,
    Decision,
    Partition,
    Subgraph,
    as_made,
    blocks_of,
    compose,
    object_for_gpu,
    object_to,
    partition,
    strands_of,
)
from neoflow.partition.compose import Split
from neoflow.rewriting import chunking
from neoflow.rewriting.blocking import count_of
from neoflow.rewriting.channels import CHANNELS
from neoflow.rewriting.flowing import BLOCKED, SWAPPED, nobody
from neoflow.rewriting.flowing import Known as Measured
from neoflow.rewriting.forms import computed_by, in_place
from neoflow.rewriting.gathered import GATHERED
from neoflow.rewriting.lying import JOINT, LAYOUTS, LIVING, How, lay_all
from neoflow.rewriting.pricing import Price
from neoflow.rewriting.unread import UNREAD
from neoflow.roofs import STATED, Roofs
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.tuning import Algorithms
from neoflow.verdict import Verdict

if TYPE_CHECKING:
    from neoflow.rewriting.optimizing import Optimizer

PREPARED, OPTIMIZE, FORMS = "prepared", "optimize", "forms"
MAPPING, ATTENTION, REWARD, TOGETHER, TORCH = "mapping", "attention", "reward", "together", "torch cells"
SEGMENTS, CHUNKS, BLOCKS, PERSISTENT = "segments", "chunks", "blocks", "persistent"
RULE_NAMES = frozenset(rule.name for rule in RULES)
RECURRENT = (STRANDS, SEGMENTS, CHUNKS, BLOCKS, ROWS, PERSISTENT)
LYING = (SWAPPED, BLOCKED, LIVING, LAYOUTS, JOINT, CHANNELS, UNREAD, GATHERED)
OPTIONAL = (
    *(MAPPING, ATTENTION, *OPTIONAL_REWRITES),
    *LYING,
    *sorted(RULE_NAMES),
    *(REWARD, RETURNED, PREPARED),
    *RECURRENT,
)
"""What `NEOFLOW_WITHOUT` may name: recurrences found, attention in blocks, passes, their rewrites, activations that lie
with dimensions swapped or in blocks, parameters that live packed, layouts, what these choose together, channels of
images last, contractions of
what is read alone and products by one parameter gathered (the three where `optimize=` is given), rules of fusion and
their reward, what is returned as it is made, what is prepared, and strands, segments, chunks, blocks, rows in place and
persistent kernels of recurrences."""


def stages(
    graph: Graph,
    trace: Trace,
    target: Target | None = None,
    precision: str = "fp32",
    algorithms: Callable[[Graph], Algorithms] | None = None,
    may_last: Callable[[Subgraph], bool] | None = None,
    optimizer: Optimizer | None = None,
    may_live: Callable[[Subgraph], bool] | None = None,
    known: Measured | None = None,
    roofs: Roofs = STATED,
    is_program: bool = False,
    price: Price | None = None,
) -> tuple[Graph, Partition]:
    """The rewriting stages: from the graph as written to its division into kernels, for a CPU unless said otherwise.

    algorithms: chooses what contractions are computed by; None: directly. may_last: which kernels may read parameters
    that are packed once for all calls, see `layouts.lay_out`. optimizer: finds a faster equal graph. may_live: which
    kernels may become others because parameters live packed, see `living`; None: none live so. known: seconds of
    kernels that were measured, see `flowing`; None: activations lie as they are written. roofs: of the machine,
    by which kernels are compared. is_program: whether the graph's outputs are what a program returns. price: of bytes
    that wait for the last of many steps; None: where there is no limit to memory, they cost nothing.
    """
    choose: Choice = object_to if target is None or target.device == "cpu" else object_for_gpu
    without = left_out()
    if choose is object_to and REWARD in without:
        choose = partial(object_to, besides=(LOSES,))
    graph = rewritten(graph, trace, precision, without, optimizer, price)
    forms = {} if optimizer is None else optimizer.forms
    if forms:
        forming = partial(_formed, graph, forms)
        graph = trace.run(FORMS, forming, lambda f: f.summary, str, size_of(graph), is_asked_for=True).graph
    if algorithms is not None:
        choosing = partial(algorithms, graph)
        graph = trace.run("algorithms", choosing, lambda a: a.summary, str, size_of(graph), is_asked_for=True).graph
    asked = config.load().asked
    riding = in_tiles if RIDERS in asked and target is not None and target.device == "cpu" else None
    divide = partial(partition, without=without & RULE_NAMES, choose=choose, roofs=roofs, in_tiles=riding)
    cut: Partition | None = None
    if target is not None and target.device == "cpu":
        may_flow = known is not None  # in a step that trains no activations were ever taken
        kinds = (k for k in (SWAPPED, BLOCKED) if may_flow and (k in asked or not (graph.updates or k in without)))
        how = How(
            *(target, divide, known or nobody, may_live, may_last, in_place(forms), tuple(kinds)),
            lives=LIVING not in without,
            packs=LAYOUTS not in without,
            joins=JOINT not in without and may_live is not None,
        )
        graph, cut = lay_all(graph, trace, how)

    def divided_at_last(graph: Graph) -> Partition:
        found = divide(graph) if cut is None else cut
        return as_made(graph, found) if is_program and RETURNED not in without else found

    kernels = trace.run(
        "partition",
        lambda: divided_at_last(graph),
        lambda p: f"{len(p.calls)} kernel calls of {len(p.subgraphs)} distinct subgraphs",
        _partition_text,
        size_of(graph),
    )
    return graph, kernels


def divided(
    graph: Graph,
    trace: Trace,
    target: Target,
    precision: str,
    algorithms: Callable[[Graph], Algorithms] | None,
    may_last: Callable[[Subgraph], bool] | None,
    optimizer: Optimizer | None = None,
    may_live: Callable[[Subgraph], bool] | None = None,
    known: Measured | None = None,
    in_blocks: bool = False,
    roofs: Roofs = STATED,
    price: Price | None = None,
) -> tuple[Graph, Partition]:
    """The rewriting stages of a program, or of each of its parts where there are recurrences: what a body does not
    change may always be packed once. in_blocks: whether strands of a GPU are blocks of one launch, without which they
    would be launches. roofs, price: see `stages`."""
    parts: list[Trace] = []

    def divide(may: Callable[[Subgraph], bool] | None, part: Graph) -> tuple[Graph, Partition]:
        parts.append(Trace(clock=trace.clock))
        return stages(part, parts[-1], target, precision, algorithms, may, optimizer, roofs=roofs, price=price)

    if not (runs_of(graph.order) or calls_of(graph.order)):
        how = algorithms, may_last, optimizer, may_live, known, roofs
        return stages(graph, trace, target, precision, *how, is_program=True, price=price)
    split: Split | None = None
    if target.device == "cpu" and STRANDS not in left_out():
        split = partial(strands_of, threads=target.threads, cache_bytes=target.l2_bytes // 2)  # beside its own
    if in_blocks and target.kind == "cuda" and not left_out() & {STRANDS, PERSISTENT}:
        split = partial(blocks_of, processors=architecture(target).processors)
    block: Callable[[Graph], Graph] | None = None
    found, matrices = list[Blocked](), list[Chunked]()
    without = left_out()
    if target.device == "cpu" and not {BLOCKS, CHUNKS} <= without:

        def block(graph: Graph) -> Graph:
            if CHUNKS not in without:
                matrices.append(chunked(graph, chunking.length_of))
                graph = matrices[-1].graph
            if BLOCKS not in without:
                found.append(blocked(graph, count_of))
                graph = found[-1].graph
            return graph

    inner = partial(divide, may_last or (lambda _: True))
    result = compose(graph, partial(divide, may_last), inner, split, block, ROWS not in left_out())
    trace.take(parts)
    if rows := [d for d in result[1].decisions if d.rule == ROWS]:
        trace.run(ROWS, lambda: rows, _rows_summary, lambda found: "\n".join(map(str, found)))
    if matrices:
        trace.run(CHUNKS, lambda: matrices[0], lambda c: c.summary, str)
    if found:
        trace.run(BLOCKS, lambda: found[0], lambda b: b.summary, str)
    if split is not None:
        loops = [d for d in result[1].decisions if d.rule == STRANDS]
        trace.run(STRANDS, lambda: loops, _strands_summary, lambda found: "\n".join(map(str, found)))
    return result


def in_tiles(subgraph: Subgraph) -> Verdict:
    """Whether sums may ride along with the tiles of a kernel's contraction."""
    return fits("contraction", problem_of(subgraph))


def left_out() -> frozenset[str]:
    """The transformations that are not to be done. Raises `ConfigError`."""
    without = config.load().without
    if unknown := sorted(without.difference(OPTIONAL)):
        known = ", ".join(OPTIONAL)
        raise ConfigError(f"NEOFLOW_WITHOUT: there is no transformation {unknown[0]!r} to leave out; there are {known}")
    return without


def rewritten(
    graph: Graph,
    trace: Trace,
    precision: str,
    without: frozenset[str],
    optimizer: Optimizer | None = None,
    price: Price | None = None,
) -> Graph:
    """The graph after all passes. Rules are looked for in the canonical graph, before anything becomes special. What is
    narrow is chosen when every contraction is there to be seen, and before sums become chains."""
    for row in PASSES:
        if (left := row.without(without)) is not None:
            rewriting = (
                partial(run, graph, left) if price is None else partial(run, graph, price.of(left), price.choose)
            )
            graph, _ = trace.run(row.name, rewriting, _rewritten_summary, _rewritten_text, size_of(graph))
        if row is CANONICALIZE:
            evaluating = partial(_constants, graph)
            graph, _ = trace.run("constants", evaluating, _constants_summary, _constants_text, size_of(graph))
            if optimizer is not None:
                searching = partial(optimizer, graph)
                found = trace.run(OPTIMIZE, searching, lambda o: o.summary, str, size_of(graph), is_asked_for=True)
                graph = found.graph
        if row is HOIST and precision in MIXED:
            mixing = partial(mix, graph, precision)
            graph = trace.run("precision", mixing, lambda m: m.summary, Mixed.__str__, size_of(graph)).graph
    return graph


def size_of(graph: Graph) -> str:
    return f"{len(graph.nodes)} computes"


@dataclass(frozen=True)
class Formed:
    """A graph whose contractions are computed by what a search chose for their definitions, by digest."""

    graph: Graph
    chosen: Mapping[str, str]

    @property
    def summary(self) -> str:
        counts = Counter(self.chosen.values())
        return "; ".join(f"{n} definitions {name}" for name, n in counts.most_common())

    def __str__(self) -> str:
        return "\n".join([*(f"{digest[:8]}: {name}" for digest, name in self.chosen.items()), "", str(self.graph)])


def _formed(graph: Graph, chosen: Mapping[str, str]) -> Formed:
    there = {t.definition.digest for t in graph.nodes}
    return Formed(computed_by(graph, chosen), {d: name for d, name in chosen.items() if d in there})


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


def _strands_summary(found: list[Decision]) -> str:
    return f"{sum(d.verdict.ok for d in found)} of {len(found)} loops go in strands"


def _rows_summary(found: list[Decision]) -> str:
    return f"{sum(d.verdict.ok for d in found)} of {len(found)} rows are written in place"


def _partition_text(p: Partition) -> str:
    return f"{p}\n\n" + "\n".join(map(str, p.decisions))
