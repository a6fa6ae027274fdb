"""TVM's meta_schedule on a row, in a process of its own, which keeps to the protocol of `worker`.

    python -m benchmarks.rows.meta_worker REQUEST

REQUEST: {"row", "dry", "trials", "folder"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.rows.arrays import draw
from benchmarks.rows.cases import Row, rows
from benchmarks.rows.worker import block
from neoflow.imports import without_torch
from neoflow.target import Target, cpu_target

with without_torch():
    import tvm
    from tvm import te
    from tvm.s_tir import meta_schedule

PATIENCE = 120.0
"""Seconds of a candidate: with 30, the default, all of the first ones were lost on a machine that did other things."""


def _matmul(a: Any, b: Any, left: str, right: str) -> Any:
    k = te.reduce_axis((0, a.shape[left.index("k")]), name="k")
    shape = (a.shape[left.index("m")], b.shape[right.index("n")])

    def product(m: Any, n: Any) -> Any:
        at = {"m": m, "n": n, "k": k}
        return te.sum(a(*(at[c] for c in left)) * b(*(at[c] for c in right)), axis=k)

    return te.compute(shape, product)


def _batched(a: Any, b: Any) -> Any:
    k = te.reduce_axis((0, a.shape[2]), name="k")
    return te.compute((a.shape[0], a.shape[1], b.shape[2]), lambda s, m, n: te.sum(a[s, m, k] * b[s, k, n], axis=k))


def _convolution(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    """Of one group."""
    c, r, s = (te.reduce_axis((0, int(extent)), name=n) for n, extent in zip("crs", w.shape[1:], strict=True))
    high, wide = int(x.shape[2]), int(x.shape[3])
    padded = te.compute(
        (x.shape[0], x.shape[1], high + 2 * padding, wide + 2 * padding),
        lambda n, c, i, j: tvm.tirx.if_then_else(
            tvm.tirx.all(i >= padding, i < high + padding, j >= padding, j < wide + padding),
            x[n, c, i - padding, j - padding],
            tvm.tirx.const(0.0, "float32"),
        ),
    )
    out = [(n + 2 * padding - int(window)) // stride + 1 for n, window in zip((high, wide), w.shape[2:], strict=True)]
    return te.compute(
        (x.shape[0], w.shape[0], *out),
        lambda n, o, p, q: te.sum(padded[n, c, stride * p + r, stride * q + s] * w[o, c, r, s], axis=[c, r, s]),
    )


FORMS = {"matmul": _matmul, "batched": _batched, "convolution": _convolution}


def tuned(row: Row, target: Target, trials: int, folder: str) -> Any:
    """The compiled function of the row, by the best schedule of so many trials. Raises whatever TVM raises."""
    inputs = [te.placeholder(shape, "float32", name=f"x{n}") for n, shape in enumerate(row.shapes)]
    function = te.create_prim_func([*inputs, FORMS[row.form](*inputs, **row.options)])
    module = tvm.IRModule({"main": function})
    for_tvm = tvm.target.Target({"kind": "llvm", "mcpu": target.mcpu, "num-cores": target.threads})
    builder = meta_schedule.builder.LocalBuilder(max_workers=target.threads, timeout_sec=PATIENCE)
    runner = meta_schedule.runner.LocalRunner(timeout_sec=PATIENCE)
    options = {"builder": builder, "runner": runner, "num_tuning_cores": target.threads, "seed": 0}
    database = meta_schedule.tune_tir(module, for_tvm, folder, trials, num_trials_per_iter=min(64, trials), **options)
    schedule = meta_schedule.tir_integration.compile_tir(database, module, for_tvm)
    if schedule is None:
        raise ValueError(f"meta_schedule found no schedule in {trials} trials")
    return tvm.compile(schedule.mod, target=for_tvm)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no answer

    def answer(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    request = json.loads(sys.argv[1])
    try:
        (row,) = [r for r in rows(request["dry"]) if r.name == request["row"]]
        arrays = draw(row)
        start = time.perf_counter()
        function = tuned(row, cpu_target(), request["trials"], request["folder"])
        seconds = time.perf_counter() - start
        wanted = {"matmul": _numpy_matmul, "batched": np.matmul}.get(row.form)
        out = np.empty(tuple(request["out"]), np.float32)
        given = [tvm.runtime.tensor(a) for a in (*arrays, out)]
        function["main"](*given)
        error = 0.0
        if wanted is not None:
            expected = wanted(*arrays, **row.options)
            error = float(np.max(np.abs(given[-1].numpy() - expected)) / np.max(np.abs(expected)))
    except Exception as failure:  # the table says so, and the others go on
        answer(failure=f"{type(failure).__name__}: {failure}".splitlines()[0])
        return
    answer(tuning=seconds, error=error, version=tvm.__version__)
    for line in sys.stdin:
        answer(**block(lambda: function["main"](*given), json.loads(line)["seconds"]))


def _numpy_matmul(a: np.ndarray, b: np.ndarray, left: str, right: str) -> np.ndarray:
    return np.einsum(f"{left},{right}->mn", a, b, optimize=True)


if __name__ == "__main__":
    main()
