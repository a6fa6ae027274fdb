"""One contender, in a process of its own: it computes a row, runs blocks of calls when asked, then maybe another row.

    python -m benchmarks.rows.worker REQUEST

REQUEST and all that follows are JSON, a line each: questions on standard input, answers on standard output. A question
with a row is a request as well, which names the package that has the row and its forms. What it computes it leaves in a
file, for the errors. The contender "neoflow" runs two functions: by default schedules, and by those of a search.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.rows.arrays import draw
from benchmarks.rows.cases import Row

SETTLE = 0.02
"""Seconds of calls before a block: caches and threads are another contender's at first."""
DEFAULT, TUNED = "default", "tuned"
PEERS = {"torch": ("in_torch", False), "torch.compile": ("in_torch", True), "jax": ("in_jax", True)}
"""By kind: the module that has the forms, and whether the row is compiled as a whole."""

LARGEST = 1 << 22
"""Elements of a result that are compared."""
PROFILED = 0.3
"""Seconds of runs in which each kernel is timed, without the call from Python."""

Calls = dict[str, Callable[[], Sequence[Any]]]


def neoflow(row: Row, arrays: Sequence[np.ndarray], request: dict[str, Any]) -> tuple[Calls, dict[str, Any]]:
    """Both functions, and what is known of the row: operations, bytes, floor, what the search did, and the seconds of
    the kernels alone, of the function that the row is about."""
    from benchmarks.timing import aligned
    from neoflow.expr.count import count_ops
    from neoflow.expr.tensor import topological
    from neoflow.graph import make_graph, optimize
    from neoflow.machine import processor
    from neoflow.measure.near import Cores
    from neoflow.measure.roofs import measure_roofs
    from neoflow.pipeline import bind, compile_program
    from neoflow.report.kernels import profile
    from neoflow.tune import Limits

    roots, everything, values = importlib.import_module(f"{request['table']}.ours").program(row)
    reached = set(topological(roots))
    inputs = [t for t in everything if t in reached]
    given = [aligned(a) for a, t in zip(arrays, everything, strict=True) if t in reached]
    compile_program([everything[0] + everything[0]], [everything[0]])  # what a first compilation loads is no part
    begun = time.perf_counter()
    default = compile_program(roots, inputs)
    compiling = time.perf_counter() - begun
    functions = {DEFAULT: bind(default)}
    calls: Calls = {DEFAULT: lambda: functions[DEFAULT](*given)}
    computed = count_ops(list(optimize(make_graph(roots, inputs)).outputs)).flops
    if row.kind == "contraction" and not row.with_value:
        computed = count_ops(values).flops * len(row.wrt)  # each gradient takes the multiplications of the value
    roofs = Cores().between(lambda: measure_roofs(default.target, 0.1))
    nbytes = sum(t.nbytes for t in (*inputs, *roots))
    told: dict[str, Any] = {
        "machine": f"{processor()}, {default.target.mcpu}",
        "operations": computed,
        "bytes": nbytes,
        "floor": roofs.seconds(computed, nbytes),
        "peak": roofs.gflops * 1e9,
        "kernels": len(default.calls),
        "compile": compiling,
    }
    if request["tune"]:
        found = compile_program(roots, inputs, tune=Limits(seconds=request["tune"], rounding=request["rounding"]))
        functions[TUNED] = bind(found)
        calls[TUNED] = lambda: functions[TUNED](*given)
        told |= {"candidates": found.tuned.trials, "search": found.tuned.seconds}
        told["algorithms"] = [r.summary for r in found.trace.records if r.name == "algorithms"]
        told["schedules"] = [_told(c) for c in found.tuned.choices]
    own = functions.get(TUNED, functions[DEFAULT])
    told["alone"] = sum(k.seconds for k in Cores().between(lambda: profile(own, given, PROFILED)))
    return calls, told


def _told(choice: Any) -> dict[str, Any]:
    """A kernel's choice, for the file of rows."""
    return {
        "kernel": choice.use.name,
        "calls": choice.use.calls,
        "seconds": choice.seconds,
        "floor": choice.floor,
        "schedule": str(choice.schedule),
    }


def peer(row: Row, arrays: Sequence[np.ndarray], request: dict[str, Any]) -> tuple[Calls, dict[str, Any]]:
    """A row in another framework."""
    name, is_compiled = PEERS[request["kind"]]
    module = importlib.import_module(f"{request['table']}.{name}")
    run = module.prepared(row, arrays, is_compiled)
    return {DEFAULT: run}, {"version": sys.modules[module.NAME].__version__}


def sampled(value: Any) -> np.ndarray:
    """A result, or every so many of its elements where there are very many."""
    array = value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
    flat = array.reshape(-1)
    return flat[:: max(1, flat.size // LARGEST)]


def block(run: Callable[[], object], seconds: float) -> dict[str, float]:
    """Calls for so many seconds; the time of one."""
    end = time.perf_counter() + SETTLE
    while time.perf_counter() < end:
        run()
    calls, start = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() < start + seconds:
        run()
        calls += 1
    return {"step": (time.perf_counter() - start) / calls}


def computed(request: dict[str, Any]) -> tuple[Calls, dict[str, Any]]:
    """What to call for a row, and what is known of it, after a first call of each. Raises whatever a framework does."""
    rows = importlib.import_module(f"{request['table']}.cases").rows(request["dry"])
    (row,) = [r for r in rows if r.name == request["row"]]
    arrays, start = draw(row), time.perf_counter()
    calls, told = (neoflow if request["kind"] == "neoflow" else peer)(row, arrays, request)
    found = {f"{name}/{n}": sampled(v) for name, run in calls.items() for n, v in enumerate(run())}
    np.savez(request["results"], **found)
    return calls, told | {"first": time.perf_counter() - start}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no answer

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    calls: Calls = {}
    for line in itertools.chain([sys.argv[1]], sys.stdin):
        question = json.loads(line)
        if "row" not in question:
            answer(**block(calls[question["which"]], question["seconds"]))
            continue
        calls = {}
        try:
            calls, told = computed(question)
        except Exception as failure:  # the table says so, and the others go on
            answer(failure=f"{type(failure).__name__}: {failure}".splitlines()[0])
            return
        answer(**told)


if __name__ == "__main__":
    main()
