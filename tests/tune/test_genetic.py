import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neoflow.loops import Schedule, default, legal, problem_of, space
from neoflow.loops.knob import MASK, Knob, Range
from neoflow.loops.space import _drawn, _steps
from neoflow.tune.genetic import APART, Breeder, crossed, distance, diverse
from tests.tune.problems import GPU, TARGET, named, pool


def family(target, subgraph, seed, count=4):
    """Some random schedules, children of two of them, and mutations."""
    problem, rng = problem_of(subgraph), np.random.default_rng(seed)
    here = space(problem, target)
    old = [here.sample(rng) for _ in range(count)]
    children = [crossed(problem, target, a, b, rng) for a in old for b in old]
    return old, children + [here.mutated(s, rng) for s in old + children]


@pytest.mark.parametrize("target", [TARGET, GPU], ids=str)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_children_are_legal(target, data):
    subgraph, problem = data.draw(st.sampled_from(pool(2)), "subgraph"), None
    problem = problem_of(subgraph)
    _, young = family(target, subgraph, data.draw(st.integers(0, 1000), "seed"))
    for s in young:
        verdict = legal(problem, s, target)
        assert verdict.ok, f"{s}: {verdict.reason}"


@pytest.mark.slow
@pytest.mark.parametrize("target", [TARGET, GPU], ids=str)
def test_children_of_many_programs_are_legal(target):
    count = 0
    for seed, subgraph in enumerate(pool(40)):
        problem = problem_of(subgraph)
        for s in family(target, subgraph, seed)[1]:
            verdict = legal(problem, s, target)
            assert verdict.ok, f"{s}: {verdict.reason}"
            count += 1
    assert count >= 5000


def test_a_child_takes_a_stretch_of_neighbouring_knobs():
    """Where nothing is repaired, the knobs of the second parent are neighbours in the order of declaration."""
    problem = problem_of(named()["product"])
    a = default(problem, TARGET)
    order = ["split", "side", "lanes", "vectors", "tile_rows", "unroll"]
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        knobs = {**dict(a.knobs), "lanes": 8, "vectors": 1, "tile_rows": 4, "unroll": 2}
        child = crossed(problem, TARGET, a, Schedule(a.template, tuple(sorted(knobs.items()))), rng)
        changed = [n for n, name in enumerate(order) if child[name] != a[name]]
        seen.add(tuple(changed))
        assert changed == list(range(changed[0], changed[0] + len(changed))) if changed else True
    assert len(seen) >= 8


def test_of_different_templates_a_child_is_one_of_the_two():
    problem, rng = problem_of(named()["product"]), np.random.default_rng(0)
    here = space(problem, TARGET)
    samples = [here.sample(rng) for _ in range(30)]
    a = next(s for s in samples if s.template == "contraction")
    b = next(s for s in samples if s.template == "reduction")
    assert {crossed(problem, TARGET, a, b, rng) for _ in range(20)} == {a, b}


def test_mutations_reach_everything():
    """Of a small space every schedule, from one of them, by mutations alone."""
    here = space(problem_of(named()["small"]), TARGET)
    every, rng = set(here), np.random.default_rng(0)
    schedule = next(iter(here))
    seen = {schedule}
    for _ in range(50 * len(every)):
        schedule = here.mutated(schedule, rng)
        seen.add(schedule)
    assert seen == every and 3 <= len(every) <= 50


def test_nests_inside_mutate_and_cross():
    problem, rng = problem_of(named()["softmax"]), np.random.default_rng(0)
    here = space(problem, TARGET)
    a = default(problem, TARGET)
    mutated = [here.mutated(a, rng) for _ in range(60)]
    assert any(s.knobs == a.knobs and s.inner != a.inner for s in mutated)
    b = next(s for s in mutated if len(s.inner) == len(a.inner) and s.inner != a.inner)
    assert {crossed(problem, TARGET, a, b, rng).inner for _ in range(60)} >= {a.inner, b.inner}


def test_distance():
    a = Schedule("map", (("lanes", 8), ("turn", False)))
    b = Schedule("map", (("lanes", 4), ("turn", False)))
    row = Schedule("rows", (("parallel", True),), (a, b))
    assert distance(a, a) == 0 and distance(a, b) == distance(b, a) == 1
    assert distance(row, Schedule("rows", (("parallel", False),), (b, b))) == 2
    assert distance(row, Schedule("rows", (("parallel", True),), (a,))) == 4
    assert distance(a, Schedule("reduction", (("lanes", 8),))) == 2


def test_what_breeds_is_diverse_where_it_can_be():
    def one(lanes, chunks):
        return Schedule("map", (("chunks", chunks), ("lanes", lanes)))

    close = [one(8, 1), one(8, 2), one(8, 3), one(4, 4)]
    assert APART == 2
    assert diverse(close, 2) == [one(8, 1), one(4, 4)]
    assert diverse(close, 3) == [one(8, 1), one(8, 2), one(4, 4)]
    assert diverse(close, 9) == close


def test_candidates_are_new_and_different_and_repeat_with_their_seed():
    here = space(problem_of(named()["product"]), TARGET)

    def drawn(seed):
        breeder = Breeder(here, np.random.default_rng(seed))
        known = set(strangers := breeder.strangers(20, ()))
        children = breeder.children(strangers, 40, known)
        far = breeder.far(strangers[0], 10, known.union(children))
        assert len(known | set(children) | set(far)) == 70
        return strangers + children + far

    assert drawn(1) == drawn(1) != drawn(2)


def test_of_a_space_that_is_known_there_are_no_candidates():
    here = space(problem_of(named()["small"]), TARGET)
    assert Breeder(here, np.random.default_rng(0)).strangers(5, set(here)) == []


def test_a_mask_of_more_bits_than_a_number_has_is_drawn():
    """A row kernel of 70 nests that may be stored or not."""
    knob, allowed = Knob("stored", MASK, "", None, None), Range(range(1 << 70), "70 nests")
    drawn = [_drawn(knob, allowed, np.random.default_rng(n))[0] for n in range(50)]
    assert all(0 <= mask < 1 << 70 for mask in drawn) and max(drawn) > 1 << 66 and len(set(drawn)) == 50
    assert len(_steps(knob, allowed, drawn[0])) == 70
