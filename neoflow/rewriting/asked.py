"""What stages do only where that is asked for, or where there is reason to: `optimize=`, what `NEOFLOW_WITH` names, and
recurrences that are written out.

Imported then: these bring proofs, integer sets and sparse matrices along, a tenth of a second of every first step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from neoflow import config
from neoflow.errors import ConfigError, shown
from neoflow.expr.ir import Apply
from neoflow.expr.recurrence import LARGE as LARGE_STEPS
from neoflow.expr.recurrence import runs_of
from neoflow.expr.tensor import Compute
from neoflow.graph import Graph
from neoflow.mapping.chains import may_recur
from neoflow.nn.attention import LARGE
from neoflow.partition import RIDERS, RULES, Subgraph, object_for_gpu, object_to, partition
from neoflow.rewriting.flowing import BLOCKED, SWAPPED
from neoflow.rewriting.lying import LAYOUTS
from neoflow.rewriting.sequence import ATTENTION, MAPPING, TOGETHER, TORCH, left_out, size_of
from neoflow.rewriting.times import Lookup, Times
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.tune.roofs import stated
from neoflow.verdict import Verdict

if TYPE_CHECKING:
    from neoflow.rewriting.handing import Beside, Refusal, Values
    from neoflow.rewriting.optimizing import Optimizer
    from neoflow.superopt import Rule

ASKED = (MAPPING, TOGETHER, SWAPPED, BLOCKED, TORCH, RIDERS)
"""What `NEOFLOW_WITH` may name."""


def seconds_of(optimize: float | None) -> float | None:
    """The seconds of `optimize`. Raises `ConfigError`."""
    if optimize is None:
        return None
    if isinstance(optimize, bool) or not isinstance(optimize, (int, float)) or not 0 <= optimize < math.inf:
        raise ConfigError(f"optimize is seconds, 0 at least, or None, not {shown(optimize)}")
    return float(optimize)


def optimizer_for(
    target: Target,
    optimize: float | None,
    without: Collection[str] = (),
    rules: Sequence[Rule] = (),
    seed: int = 0,
    known: Lookup = lambda kernel: None,
    measure: Lookup | None = None,
    prepares: bool = True,
    may_last: Callable[[Subgraph], bool] | None = None,
) -> Optimizer | None:
    """What searches for faster graphs on a target, for so many seconds; None where nothing is to.

    without: passes, and rules of fusion, that are left out. rules: besides those that come along. known, measure: what
    kernels took before, and take now. prepares: whether what follows from parameters that stay is. may_last: which
    kernels may read parameters that are packed once. Raises `ConfigError`.
    """
    seconds = seconds_of(optimize)
    if seconds is None:
        return None
    from neoflow.rewriting.forms import Forms
    from neoflow.rewriting.optimizing import WIDEST, Optimizer
    from neoflow.superopt import Limits

    choose = object_to if target.device == "cpu" else object_for_gpu
    divide = partial(partition, without={r.name for r in RULES}.intersection(without), choose=choose)
    times = Times(stated(target), known)
    forms = Forms(target, LAYOUTS not in without, may_last) if target.device == "cpu" else None
    return Optimizer(Limits(seconds, widest=WIDEST, seed=seed), divide, times, without, rules, measure, prepares, forms)


def mapped(graph: Graph, trace: Trace, settings: config.Config, target: Target, precision: str) -> Graph:
    """The graph with its recurrences in their best form, where it may have any and nobody left that out; where it is
    asked for, other patterns too. Raises `ConfigError`."""
    if unknown := sorted(settings.asked.difference(ASKED)):
        raise ConfigError(
            f"NEOFLOW_WITH: there is no transformation {unknown[0]!r} to ask for; there are {', '.join(ASKED)}"
        )
    is_asked_for = MAPPING in settings.asked
    may_pay = target.device == "cpu" and may_recur(graph.order)  # on a GPU loops were not measured yet
    if MAPPING in left_out() or not (is_asked_for or may_pay):
        return graph
    from neoflow.rewriting.recurring import chosen

    choosing = partial(chosen, graph, target, precision, is_asked_for)
    return trace.run(MAPPING, choosing, lambda m: m.summary, str, size_of(graph), is_asked_for=is_asked_for).graph


def handed(
    graph: Graph,
    trace: Trace,
    settings: config.Config,
    target: Target,
    precision: str,
    memory: int | None,
    values: Values,
    beside: Beside,
    refusal: Refusal,
) -> Graph:
    """The graph with recurrences as calls of another library, where that is asked for and was measured to be faster.
    memory: bytes that there are, if anybody said so: what another library takes is not counted. values, beside,
    refusal: see `handing`."""
    if TORCH not in settings.asked or precision != "fp32" or not runs_of(graph.order):
        return graph
    from neoflow.rewriting.handing import Handing, handing

    def trying() -> Handing:
        if memory is not None:
            return Handing(graph, (Verdict(False, "memory= counts every byte, and what PyTorch takes is not known"),))
        return handing(graph, values, beside, refusal)

    return trace.run(TORCH, trying, lambda h: h.summary, str, size_of(graph), is_asked_for=True).graph


def attended(graph: Graph, trace: Trace, target: Target, precision: str, memory: int | None) -> Graph:
    """The graph with attention in blocks of keys where its scores are so large that this may pay. memory: bytes that
    there are, if anybody said so. Raises `ConfigError`."""
    least = LARGE if memory is None else LARGE_STEPS  # what a step has of less is kept of all steps for a gradient
    may_pay = target.device == "cpu" or memory is not None  # on a GPU loops were not measured yet
    if not may_pay or ATTENTION in left_out() or not _has_weights(graph, least):
        return graph
    from neoflow.rewriting.attending import in_blocks

    blocking = partial(in_blocks, graph, target, precision, least, memory)
    return trace.run(ATTENTION, blocking, lambda a: a.summary, str, size_of(graph)).graph


def _has_weights(graph: Graph, least: int) -> bool:
    """Whether anything so large is an exponential, as the weights of attention are."""
    large = (t for t in graph.nodes if isinstance(t, Compute) and t.nbytes >= least)
    return any(isinstance(e, Apply) and e.fn == "exp" for t in large for e in t.definition.nodes)
