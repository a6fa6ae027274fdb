"""Whatever the declaration calls legal computes what the interpreter does."""

import numpy as np
import pytest

from neoflow import codegen
from neoflow.loops import Schedule, legal, problem_of, space
from neoflow.runtime.device.cpu import empty
from neoflow.target import Target
from tests.codegen.kernels import TARGET, loaded
from tests.loops.programs import Case, named_cases, random_cases

pytestmark = pytest.mark.tvm
TWO = Target("cpu", TARGET.mcpu, 2, TARGET.vector_bytes, TARGET.l2_bytes, TARGET.fma_units)


def disagreement(case: Case, kernel) -> str | None:
    """Where a kernel differs from the interpreter, its outputs full of NaN before."""
    held = []
    for array in case.arrays:
        held.append(empty(array.shape, array.dtype.name))
        held[-1][...] = array
    results = [empty(v.shape, v.dtype) for v in map(case.subgraph.value, case.subgraph.outputs)]
    for r in results:
        r[...] = np.nan if r.dtype.kind not in "biu" else 1
    kernel(*held, *results)
    for found, exact in zip(results, case.exact, strict=True):
        wide = np.asarray(found, np.float64)
        size = max(1.0, float(np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)))
        tolerance = {8: 1e-9, 4: 2e-3, 2: 5e-2}.get(found.dtype.itemsize, 0.0) if found.dtype.kind not in "biu" else 0.0
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - exact) <= tolerance * size
        agree = near | (np.isnan(wide) & np.isnan(exact)) | (wide == exact)
        if not agree.all():
            at = np.unravel_index(int(np.argmax(~agree)), agree.shape)
            return f"{found[at]!r} at {tuple(map(int, at))}, not {exact[at]!r}"
    return None


def check(cases: list[tuple[Case, list[Schedule]]], target: Target = TWO) -> int:
    """Compile every case by its schedules and compare; how many kernels there were."""
    jobs = [
        (c, s, codegen.lower(c.subgraph, s, target, f"k{c.subgraph.digest[:8]}_{n}"))
        for c, schedules in cases
        for n, s in enumerate(schedules)
    ]
    for shared in (False, True):
        alike = [j for j in jobs if j[2].is_shared == shared]
        for start in range(0, len(alike), 24):
            part = alike[start : start + 24]
            for (case, schedule, _), kernel in zip(part, loaded([j[2] for j in part], target), strict=True):
                wrong = disagreement(case, kernel)
                assert wrong is None, f"{case.name}: {schedule}\ngives {wrong}\n{case.subgraph}"
    return len(jobs)


def sampled(case: Case, count: int, seed: int, target: Target = TWO) -> list[Schedule]:
    """Different legal schedules."""
    rng, problem = np.random.default_rng(seed), problem_of(case.subgraph)
    found = dict.fromkeys(space(problem, target).sample(rng) for _ in range(count))
    for schedule in found:
        verdict = legal(problem, schedule, target)
        assert verdict.ok, f"{schedule}: {verdict.reason}"
    return list(found)


def test_sampled_schedules_of_named_kernels():
    assert check([(c, sampled(c, 4, n)) for n, c in enumerate(named_cases())]) >= 100


def test_sampled_schedules_of_random_programs():
    assert check([(c, sampled(c, 3, seed)) for seed in range(8) for c in random_cases(seed)]) >= 50


@pytest.mark.slow
def test_many_sampled_schedules():
    count = check([(c, sampled(c, 20, n)) for n, c in enumerate(named_cases())])
    count += check([(c, sampled(c, 20, n)) for n, c in enumerate(named_cases("float64"))])
    for seed in range(100, 400):
        count += check([(c, sampled(c, 4, seed)) for c in random_cases(seed)])
    assert count >= 3000
