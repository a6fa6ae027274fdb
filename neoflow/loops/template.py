"""`TEMPLATES`: one row for each kernel form, and what holds for all of them because it is declared: defaults, legality.

    problem = problem_of(subgraph)                the analysis of a subgraph, derived once
    default(problem, target)                      a schedule by structure, without search
    legal(problem, schedule, target)              whether it may be lowered, and why not
    schedule_from_json(text)                      the schedule that is written there, its knobs as declared

A new knob is a declaration in its template's file and the lowering that reads it.  Nothing here needs a compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from neoflow.boundary import public
from neoflow.errors import ScheduleError, shown
from neoflow.expr import dtype as dt
from neoflow.expr.memo import remembered
from neoflow.loops import contraction, costs, map, reduction, rows, scatter, tile
from neoflow.loops.blocked import blocked
from neoflow.loops.gpu import contraction as gpu_contraction
from neoflow.loops.gpu import map as gpu_map
from neoflow.loops.gpu import reduction as gpu_reduction
from neoflow.loops.gpu import rows as gpu_rows
from neoflow.loops.gpu import scatter as gpu_scatter
from neoflow.loops.gpu import tensor_core as gpu_tensor_core
from neoflow.loops.gpu import wgmma as gpu_wgmma
from neoflow.loops.knob import Chosen, Knob, Range, completed
from neoflow.loops.nest import ScatterNest, nest_of, scatter_of
from neoflow.loops.problem import Measures, NestProblem
from neoflow.loops.rows import RowProblem, row_problem
from neoflow.loops.schedule import KnobValue, Schedule, schedule_of
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target
from neoflow.verdict import Verdict

Problem = NestProblem | ScatterNest | RowProblem
P = TypeVar("P", NestProblem, ScatterNest, RowProblem)


def _no_inner(_: Any, __: Chosen) -> tuple[NestProblem, ...]:
    return ()


def _always(_: Any, __: Target) -> bool:
    return True


def _anywhere(_: Any, __: Target) -> Verdict:
    return Verdict(True, "it is for every target of its device")


def _without_sums(p: NestProblem, _: Target) -> Verdict:
    return Verdict(
        not p.nest.sums, "sums of its results ride along on a CPU alone" if p.nest.sums else "it has no sums"
    )


def _is_contracted(p: NestProblem, target: Target) -> bool:
    """Whether a contraction is the default: where lanes can go along one of its sides, and not few of them while terms
    of a sum fill all."""
    if p.nest.sums:
        return True  # no other template has them
    lanes, element = contraction.most_lanes(p, target), tile.element_of(p)
    is_narrow = lanes < target.lanes(element) and lanes * dt.itemsize(element) <= costs.NARROW_BYTES
    return lanes > 0 and not (is_narrow and reduction.fills(p, target))


@dataclass(frozen=True)
class Template(Generic[P]):
    """A form of kernels: the problems it is for, the decisions to make, in order; `codegen` has a lowering a target.

    inner: the problems inside that have schedules of their own. is_usable: whether it is a choice without a search.
    device: of the targets it is for. fits_target: whether such a one has what it needs.
    """

    name: str
    problem: type[P]
    fits: Callable[[P], Verdict]
    knobs: tuple[Knob[P], ...]
    measures: Callable[[P, Target, Chosen], Measures]
    inner: Callable[[P, Chosen], tuple[NestProblem, ...]] = _no_inner
    is_usable: Callable[[P, Target], bool] = _always
    device: str = "cpu"
    fits_target: Callable[[P, Target], Verdict] = _anywhere


TEMPLATES: dict[str, Template] = {
    t.name: t
    for t in (
        Template("rows", RowProblem, rows.fits, rows.KNOBS, rows.measures, rows.problems),
        Template("scatter", ScatterNest, scatter.fits, scatter.KNOBS, scatter.measures),
        Template("map", NestProblem, map.fits, map.KNOBS, map.measures),
        Template(
            "contraction",
            NestProblem,
            contraction.fits,
            contraction.KNOBS,
            tile.measures,
            is_usable=_is_contracted,
        ),
        Template("reduction", NestProblem, reduction.fits, reduction.KNOBS, reduction.measures),
        Template("gpu_rows", RowProblem, rows.fits, gpu_rows.KNOBS, gpu_rows.measures, device="gpu"),
        Template("gpu_scatter", ScatterNest, scatter.fits, gpu_scatter.KNOBS, gpu_scatter.measures, device="gpu"),
        Template(
            "gpu_wgmma",
            NestProblem,
            gpu_tensor_core.fits,
            gpu_wgmma.KNOBS,
            gpu_wgmma.FAMILY.measures,
            is_usable=gpu_wgmma.is_usable,
            device="gpu",
            fits_target=gpu_wgmma.fits_target,
        ),
        Template(
            "gpu_tensor_core",
            NestProblem,
            gpu_tensor_core.fits,
            gpu_tensor_core.KNOBS,
            gpu_tensor_core.FAMILY.measures,
            device="gpu",
            fits_target=gpu_tensor_core.fits_target,
        ),
        Template(
            "gpu_contraction",
            NestProblem,
            contraction.fits,
            gpu_contraction.KNOBS,
            gpu_contraction.FAMILY.measures,
            device="gpu",
            fits_target=_without_sums,
        ),
        Template("gpu_map", NestProblem, map.fits, gpu_map.KNOBS, gpu_map.measures, device="gpu"),
        Template(
            "gpu_reduction", NestProblem, reduction.fits, gpu_reduction.KNOBS, gpu_reduction.measures, device="gpu"
        ),
    )
}
INNER = ("map", "reduction")
"""What the nests of a row are lowered by."""


# --- problems

_PROBLEMS: WeakKeyDictionary[Subgraph, Problem] = WeakKeyDictionary()


def problem_of(subgraph: Subgraph) -> Problem:
    """What the templates ask of a subgraph, derived once for as long as the subgraph lives."""
    found = _PROBLEMS.get(subgraph)
    if found is None:
        found = row_problem(subgraph) or scatter_of(subgraph) or NestProblem(blocked(nest_of(subgraph)))
        _PROBLEMS[subgraph] = found
    return found


def fits(template: str, problem: Problem) -> Verdict:
    """Whether there are schedules of that template for the problem."""
    row = TEMPLATES.get(template)
    if row is None:
        return Verdict(False, f"there is no template {template!r}; there are {', '.join(TEMPLATES)}")
    if not isinstance(problem, row.problem):
        return Verdict(False, f"template {template!r} does not fit a {_FORMS[type(problem)]}")
    return row.fits(problem)


_FORMS: dict[type, str] = {RowProblem: "row kernel", ScatterNest: "scatter", NestProblem: "kernel of one nest"}


def templates_of(target: Target) -> tuple[str, ...]:
    """The names of the templates for a target's device, in the order of preference."""
    return tuple(t.name for t in TEMPLATES.values() if t.device == target.device)


def fitting(problem: Problem, target: Target, allowed: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The names of the templates that there are schedules of for the problem there, in the order of preference."""
    fit = (name for name in allowed or templates_of(target) if fits(name, problem).ok)
    return tuple(name for name in fit if TEMPLATES[name].fits_target(problem, target).ok)


def usual_template(problem: Problem, target: Target, allowed: tuple[str, ...] | None = None) -> str:
    """The first template that fits and is a choice without a search."""
    names = fitting(problem, target, allowed)
    return next(name for name in names if TEMPLATES[name].is_usable(problem, target))


# --- defaults


@remembered
def default_schedule(subgraph: Subgraph, target: Target) -> Schedule:
    """The schedule of a subgraph by its structure alone."""
    return default(problem_of(subgraph), target)


def default(problem: Problem, target: Target) -> Schedule:
    """The schedule by structure, without search."""
    return complete(usual_template(problem, target), problem, target, {})


def complete(template: str, problem: Problem, target: Target, given: Mapping[str, KnobValue]) -> Schedule:
    """The schedule with the knobs `given`, the others by their defaults."""
    row = TEMPLATES[template]
    knobs = completed(row.knobs, problem, target, given)
    inside = [
        complete(usual_template(p, rows.alone(target), INNER), p, rows.alone(target), {})
        for p in row.inner(problem, knobs)
    ]
    return schedule_of(template, knobs, tuple(inside))


def nearest(problem: Problem, schedule: Schedule, target: Target) -> Schedule:
    """A legal schedule of the same template: what is out of its range, or not there, takes its default.

    So a schedule of one size is offered to another, and one with a knob changed is made whole.
    """
    row, given = TEMPLATES[schedule.template], dict(schedule.knobs)
    chosen: dict[str, KnobValue] = {}
    for knob in row.knobs:
        if knob.name in given and given[knob.name] in knob.range(problem, target, chosen):
            chosen[knob.name] = given[knob.name]
        else:
            chosen[knob.name] = knob.default(problem, target, chosen)
    inside, alone = row.inner(problem, chosen), rows.alone(target)
    inner = schedule.inner
    if [s.template for s in inner] == [usual_template(p, alone, INNER) for p in inside]:
        inner = tuple(nearest(p, s, alone) for p, s in zip(inside, inner, strict=True))
    else:
        inner = tuple(complete(usual_template(p, alone, INNER), p, alone, {}) for p in inside)
    return schedule_of(schedule.template, chosen, inner)


def streamed_otherwise(problem: Problem, schedule: Schedule, target: Target) -> Schedule | None:
    """The schedule with what it writes past the caches, or into them where it goes past them; None where it has no
    choice. What it fetches follows from that."""
    given = {name: value for name, value in schedule.knobs if name != "fetch"}
    if "stream" not in given:
        return None
    found = complete(schedule.template, problem, target, {**given, "stream": not given["stream"]})
    return found if legal(problem, found, target).ok else None


# --- legality


def legal(problem: Problem, schedule: Schedule, target: Target) -> Verdict:
    """Whether the schedule may be lowered for the problem: every knob there, in its range, also of the nests inside."""
    fit = fits(schedule.template, problem)
    if not fit.ok:
        return fit
    row = TEMPLATES[schedule.template]
    if row.device != target.device:
        return Verdict(False, f"template {row.name!r} is for a {row.device}, the target is {target}")
    there = row.fits_target(problem, target)
    if not there.ok:
        return there
    declared = _as_declared(row, schedule)
    if not declared.ok:
        return declared
    for knob in row.knobs:
        allowed = knob.range(problem, target, schedule)
        if schedule[knob.name] not in allowed:
            return Verdict(False, _refusal(knob, schedule[knob.name], allowed))
    inside = row.inner(problem, schedule)
    if len(inside) != len(schedule.inner):
        return Verdict(False, f"{schedule.template} has {len(inside)} nests here, the schedule {len(schedule.inner)}")
    for n, (part, one) in enumerate(zip(inside, schedule.inner, strict=True)):
        if one.template not in INNER:
            return Verdict(False, f"nest {n}: template {one.template!r} does not fit a nest of a row")
        verdict = legal(part, one, rows.alone(target))
        if not verdict.ok:
            return Verdict(False, f"nest {n}: {verdict.reason}")
    return Verdict(True, "every knob is in its range")


def _refusal(knob: Knob, value: KnobValue, allowed: Range) -> str:
    values = allowed.values
    if isinstance(values, range):
        shown = f"{values[0]}..{values[-1]}"
    else:
        shown = ", ".join(str(v) for v in values)
    return f"{knob.name}={value} ({knob.meaning}) is not in {shown}: {allowed.reason}"


def _as_declared(row: Template, schedule: Schedule) -> Verdict:
    """Whether the schedule has the knobs of its template, each of its kind, and no others."""
    given = dict(schedule.knobs)
    for knob in row.knobs:
        if knob.name not in given:
            return Verdict(False, f"{schedule} lacks the knob '{knob.name}'")
        if type(given[knob.name]) is not knob.kind.type:
            wanted = knob.kind.type.__name__
            return Verdict(False, f"the knob '{knob.name}' is {shown(given[knob.name])}, which is no {wanted}")
    for name in given:
        if all(name != knob.name for knob in row.knobs):
            return Verdict(
                False, f"{row.name} has no knob {shown(name)}; it has {', '.join(k.name for k in row.knobs)}"
            )
    return Verdict(True, "the knobs are as declared")


# --- text


@public
def schedule_from_json(text: str) -> Schedule:
    """The schedule of `Schedule.to_json`. Raises `ScheduleError` when its template or knobs are not as declared."""
    try:
        return _schedule(json.loads(text))
    except RecursionError:
        raise ScheduleError("a schedule has no more than a few others inside of it") from None
    except (TypeError, ValueError) as error:
        raise ScheduleError(f"a schedule is not JSON: {error}") from None


def _schedule(data: object) -> Schedule:
    if not isinstance(data, dict) or not isinstance(data.get("knobs"), dict) or not data.keys() <= _KEYS:
        raise ScheduleError(f"a schedule has a template, knobs and perhaps inner schedules, not {shown(data)}")
    row = TEMPLATES.get(str(data.get("template")))
    if row is None:
        raise ScheduleError(f"there is no template {shown(data.get('template'))}; there are {', '.join(TEMPLATES)}")
    inner = data.get("inner", [])
    if not isinstance(inner, list):
        raise ScheduleError(f"the inner schedules are a list, not {shown(inner)}")
    schedule = schedule_of(row.name, data["knobs"], tuple(_schedule(s) for s in inner))
    declared = _as_declared(row, schedule)
    if not declared.ok:
        raise ScheduleError(declared.reason)
    return schedule


_KEYS = {"template", "knobs", "inner"}
