"""What is thought to take long takes long, and what is fast is not among it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoflow.loops import complete, default, problem_of, space
from neoflow.measure import Measurer
from neoflow.target import cpu_target
from neoflow.tune.likely import HOPELESS, likely_cycles
from tests.loops.programs import product
from tests.tune.problems import GPU, TARGET, named, only, pool

TOP = 20


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_it_is_a_number(data):
    subgraph = data.draw(st.sampled_from(pool(2)), "subgraph")
    target = data.draw(st.sampled_from((TARGET, GPU)), "target")
    problem = problem_of(subgraph)
    schedule = space(problem, target).sample(np.random.default_rng(data.draw(st.integers(0, 999))))
    assert 0 <= likely_cycles(problem, schedule, target) < np.inf


def test_a_product_as_a_plain_sum_or_one_by_one_is_thought_hopeless():
    problem = problem_of(only(product, (256, 256), (256, 256)))
    usual = likely_cycles(problem, default(problem, TARGET), TARGET)
    fused = {"fuse": problem.all_fused}
    assert likely_cycles(problem, complete("reduction", problem, TARGET, fused), TARGET) > HOPELESS * usual
    scalar = complete("contraction", problem, TARGET, {**fused, "lanes": 1, "vectors": 1})
    assert likely_cycles(problem, scalar, TARGET) > HOPELESS * usual
    alone = complete("contraction", problem, TARGET, {**dict(default(problem, TARGET).knobs), "parallel": False})
    assert 1.5 * usual < likely_cycles(problem, alone, TARGET) < HOPELESS * usual


@pytest.mark.slow
@pytest.mark.tvm
def test_few_of_the_truly_fastest_are_thought_hopeless(capsys):
    """Of random schedules and neighbours of the default, all measured: the fastest 20 of each kernel."""
    target, lost, left_out, count = cpu_target(), 0, 0, 0
    with Measurer() as measure:
        for name in ("product", "columns", "softmax", "map"):
            subgraph = named()[name]
            problem, rng = problem_of(subgraph), np.random.default_rng(0)
            made = space(problem, target)
            drawn = [default(problem, target), *(made.sample(rng) for _ in range(50))]
            drawn += [made.mutated(drawn[0], rng) for _ in range(30)]
            trials = [t for t in measure(subgraph, target, list(dict.fromkeys(drawn))) if t.seconds]
            usual = likely_cycles(problem, drawn[0], target)
            trials.sort(key=lambda t: t.seconds)
            hopeless = [likely_cycles(problem, t.schedule, target) > HOPELESS * usual for t in trials]
            lost, left_out, count = lost + sum(hopeless[:TOP]), left_out + sum(hopeless), count + len(hopeless)
    with capsys.disabled():
        print(f"{left_out} of {count} left out, {lost} of the fastest {4 * TOP}")
    assert lost <= 0.05 * 4 * TOP and left_out >= 0.05 * count
