"""What is declared of templates: legality and its sentences, defaults, text, space, features; without a compiler."""

import gc
import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.errors import ScheduleError
from neoflow.loops import (
    TEMPLATES,
    Schedule,
    complete,
    default,
    default_schedule,
    feature_names,
    features,
    fits,
    legal,
    nearest,
    problem_of,
    schedule_from_json,
    space,
)
from neoflow.loops.knob import INDEX, MASK, NUMBER, WORD
from neoflow.loops.nest import input_reads
from neoflow.loops.rows import following, loops
from neoflow.loops.template import templates_of, usual_template
from neoflow.nn import functional as F
from neoflow.target import Target
from tests.loops.programs import product, random_subgraphs, subgraphs

TARGETS = (
    Target("cpu", "x86-64-v4", 2, 64, 1 << 20, 1),
    Target("cpu", "x86-64-v3", 2, 32, 1 << 19, 2),
    Target("cpu", "x86-64-v4", 1, 64, 1 << 20, 2),
    Target("cpu", "x86-64-v4", 8, 64, 1 << 20, 2),
    gpu_target("cuda", "sm_75"),
    gpu_target("cuda", "sm_90"),
)
TWO = TARGETS[0]


def matmul(m=37, k=53, n=41):
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    (found,) = subgraphs([product(a, b)], [a, b])
    return found


def softmax():
    x = nf.placeholder((70, 45), name="x")
    (found,) = subgraphs([F.softmax(x)], [x])
    return found


def by_windows():
    x = nf.placeholder((70, 46), name="x")
    (found,) = subgraphs([F.softmax(nf.compute((70, 45), lambda i, j: x[i, j] + x[i, j + 1]))], [x])
    return found


def scatter():
    table, ids = nf.placeholder((11, 80), name="table"), nf.placeholder((50,), "int64", name="ids")
    y = nf.compute((50, 80), lambda i, h: table[ids[i], h])
    g = nf.placeholder((50, 80), name="g")
    (found,) = subgraphs(nf.vjp(y, [table], g), [ids, g])
    return found


def total(n=100):
    x = nf.placeholder((n,), name="x")
    (found,) = subgraphs([nf.sum(x)], [x])
    return found


def plain():
    x = nf.placeholder((33, 47), name="x")
    (found,) = subgraphs([nf.transpose(x, (1, 0)) + 1.0], [x])
    return found


ONE_OF_EACH = {"contraction": matmul, "rows": softmax, "scatter": scatter, "reduction": total, "map": plain}


def changed(schedule, **knobs):
    return Schedule(schedule.template, tuple(sorted({**dict(schedule.knobs), **knobs}.items())), schedule.inner)


def without(schedule, name):
    return Schedule(schedule.template, tuple(k for k in schedule.knobs if k[0] != name), schedule.inner)


# ---------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("seed", range(12))
def test_defaults_samples_and_neighbours_are_legal(seed):
    rng = np.random.default_rng(seed)
    for subgraph in random_subgraphs(seed):
        problem = problem_of(subgraph)
        for target in TARGETS:
            schedule, all_of = default(problem, target), space(problem, target)
            assert legal(problem, schedule, target).ok, (schedule, legal(problem, schedule, target).reason)
            assert nearest(problem, schedule, target) == schedule
            assert schedule_from_json(schedule.to_json()) == schedule
            for s in [schedule, all_of.sample(rng), all_of.sample(rng)]:
                assert s in all_of, (s, legal(problem, s, target).reason)
                found = features(problem, s, target)
                assert found.shape == (len(feature_names(s.template)),) and np.isfinite(found).all()
        for other in all_of.neighbours(schedule)[:50]:
            assert other != schedule and other in all_of, (other, legal(problem, other, target).reason)


@pytest.mark.parametrize("seed", range(8))
def test_every_default_is_in_its_range_whatever_was_chosen_before(seed):
    rng = np.random.default_rng(seed)
    for subgraph in random_subgraphs(seed):
        problem = problem_of(subgraph)
        for target in TARGETS:
            for name in (n for n in templates_of(target) if fits(n, problem).ok):
                chosen = {}
                for knob in TEMPLATES[name].knobs:
                    allowed = knob.range(problem, target, chosen)
                    usual = knob.default(problem, target, chosen)
                    assert usual in allowed and type(usual) is knob.kind.type, (name, knob.name, usual, chosen)
                    assert all(type(v) is knob.kind.type for v in allowed.values[:3])
                    chosen[knob.name] = allowed.values[int(rng.integers(len(allowed.values)))]


def test_a_small_space_is_counted_and_a_large_one_estimated():
    small = space(problem_of(total(7)), TARGETS[2])
    everything = list(small)
    assert small.size() == len(everything) == len(set(everything))
    assert all(s in small for s in everything)
    assert {small.sample(np.random.default_rng(n)) for n in range(500)} == set(everything)
    assert space(problem_of(matmul()), TWO).size() > 1_000_000


def test_samples_follow_from_the_seed():
    every = [space(problem_of(f()), TWO) for f in ONE_OF_EACH.values()]
    for s in every:
        drawn = [[s.sample(rng) for _ in range(5)] for rng in (np.random.default_rng(3), np.random.default_rng(3))]
        assert drawn[0] == drawn[1]


# ----------------------------------------------------------------------------------------------------- declarations


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_each_form_has_its_template(name):
    subgraph = ONE_OF_EACH[name]()
    assert default_schedule(subgraph, TWO).template == name == usual_template(problem_of(subgraph), TWO)


def test_every_knob_says_what_it_is():
    for template in TEMPLATES.values():
        names = [k.name for k in template.knobs]
        assert len(set(names)) == len(names) and all(k.meaning for k in template.knobs)
        assert all(bool(k.words) == (k.kind is WORD) for k in template.knobs)
        assert len(set(feature_names(template.name))) == len(feature_names(template.name))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_knobs_missing_unknown_or_of_another_kind_are_refused(name):
    subgraph = ONE_OF_EACH[name]()
    problem, schedule = problem_of(subgraph), default_schedule(subgraph, TWO)
    for knob in TEMPLATES[name].knobs:
        verdict = legal(problem, without(schedule, knob.name), TWO)
        assert not verdict.ok and f"lacks the knob '{knob.name}'" in verdict.reason
        other = {bool: 1, int: True, str: 1}[knob.kind.type]
        verdict = legal(problem, changed(schedule, **{knob.name: other}), TWO)
        assert not verdict.ok and f"the knob '{knob.name}' is {other}" in verdict.reason
        outside = {INDEX: 1000, MASK: -1, NUMBER: 0, WORD: "sideways"}.get(knob.kind)
        if outside is not None:
            verdict = legal(problem, changed(schedule, **{knob.name: outside}), TWO)
            assert not verdict.ok and verdict.reason.startswith(f"{knob.name}={outside} ({knob.meaning}) is not in")
    verdict = legal(problem, changed(schedule, colour="red"), TWO)
    assert not verdict.ok and f"{name} has no knob 'colour'; it has " in verdict.reason


REFUSED = [
    (matmul, {"pack": False, "run": False, "turn_rows": False, "row_points": 4}, "the side with M is not packed"),
    (matmul, {"pack_panels": True, "vectors": 1, "vector_points": 4}, "lie side by side as it is"),
    (matmul, {"vectors": 17}, "no register tile"),
    (matmul, {"tile_rows": 33, "vectors": 2}, "at most 64 accumulators"),
    (matmul, {"tiles": 99}, "row tiles"),
    (matmul, {"panels": 99}, "there are"),
    (matmul, {"splits": 2, "passes": 28, "store": "stack"}, "a part of the first axis of K has 27 points"),
    (matmul, {"passes": 65}, "passes are few"),
    (matmul, {"order": "panels", "pack_panels": True, "inner": "panels"}, "gone through at once"),
    (matmul, {"order": "tiles", "pack": False, "run": False, "turn_rows": False, "ahead": True}, "is not packed"),
    (matmul, {"pack": True, "run": False, "turn_rows": True}, "not packed from one read in vectors along K"),
    (matmul, {"pack": True, "prefetch": 64}, "gone before it is needed"),
    (matmul, {"pack": True, "pack_parts": 999}, "the first axis of K has"),
    (matmul, {"store": "sideways"}, "neighbouring rows are not"),
    (matmul, {"splits": 2, "store": "stack", "fetch": True}, "does not write what it has summed at once"),
    (matmul, {"splits": 2, "store": "registers"}, "partial sums are added row by row"),
    (matmul, {"pack": False, "run": True}, "is not packed"),
    (matmul, {"lanes": 5}, "points of N, in two registers at most"),
    (matmul, {"split": 1}, "1 ways to divide the factors"),
    (total, {"lane": "output"}, "no such axis of the output"),
    (total, {"tile_rows": 2}, "no axis for rows"),
    (total, {"splits": 2, "parallel": False}, "by threads"),
    (total, {"lanes": 3}, "powers of two"),
    (total, {"fetch": True}, "no read goes side by side along the lanes"),
    (plain, {"inner": 1}, "before the last of 2"),
    (plain, {"residues": True}, "nothing depends on the remainder of a short division"),
    (plain, {"inner": -1, "turn": True}, "along an inner axis"),
    (plain, {"lanes": 64}, "up to two registers"),
    (plain, {"lanes": 1, "turn": False, "stream": True}, "no whole registers, or it is read again"),
    (plain, {"parallel": False, "chunks": 2}, "there is one"),
    (scatter, {"chunks": 99}, "whole vectors"),
    (softmax, {"stored": 8}, "need not be stored"),
    (by_windows, {"fetch": True}, "no nest goes once through all that a row has of an input"),
]


@pytest.mark.parametrize(("make", "knobs", "reason"), REFUSED, ids=[str(k) for _, k, _ in REFUSED])
def test_refusals_have_their_reasons(make, knobs, reason):
    problem = problem_of(make())
    schedule = changed(default(problem, TWO), **knobs)
    verdict = legal(problem, schedule, TWO)
    assert not verdict.ok and reason in verdict.reason, verdict.reason
    assert legal(problem, nearest(problem, schedule, TWO), TWO).ok


def test_templates_that_do_not_fit():
    cases = [
        (plain, matmul, "a contraction does not fit: it is no sum of products"),
        (plain, total, "a reduction does not fit a map"),
        (total, plain, "a map does not fit a kernel that reduces"),
        (plain, softmax, "template 'rows' does not fit a kernel of one nest"),
        (softmax, plain, "template 'map' does not fit a row kernel"),
        (scatter, plain, "template 'map' does not fit a scatter"),
    ]
    for make, other, reason in cases:
        verdict = legal(problem_of(make()), default_schedule(other(), TWO), TWO)
        assert not verdict.ok and reason in verdict.reason, verdict.reason
    verdict = legal(problem_of(plain()), Schedule("spiral"), TWO)
    assert not verdict.ok and "there is no template 'spiral'; there are rows, scatter, map" in verdict.reason


def test_nests_of_a_row_are_judged_each():
    problem = problem_of(softmax())
    schedule = default(problem, TWO)
    assert [s.template for s in schedule.inner] == ["reduction", "map", "reduction", "map", "map"]
    short = Schedule("rows", schedule.knobs, schedule.inner[:-1])
    assert "rows has 5 nests here, the schedule 4" in legal(problem, short, TWO).reason
    parallel = changed(schedule.inner[1], parallel=True)
    inside = Schedule("rows", schedule.knobs, (schedule.inner[0], parallel, *schedule.inner[2:]))
    assert legal(problem, inside, TWO).reason.startswith("nest 1: parallel=True")
    product_inside = (default_schedule(matmul(), TWO), *schedule.inner[1:])
    reason = legal(problem, Schedule("rows", schedule.knobs, product_inside), TWO).reason
    assert reason == "nest 0: template 'contraction' does not fit a nest of a row"


def test_what_the_next_row_reads_is_fetched_where_it_is_read_last():
    x, g = nf.placeholder((7, 5, 40), name="x"), nf.placeholder((7, 5, 40), name="g")
    y = F.softmax(x)
    (subgraph,) = subgraphs([y, *nf.vjp(y, [x], g)], [x, g])
    schedule = default_schedule(subgraph, TWO)
    found = following(problem_of(subgraph), schedule)
    readers = [
        {r.slot for e in n.problem.nest.expressions for r in input_reads(e)}
        for n in loops(problem_of(subgraph), schedule)
    ]
    for number in range(len(subgraph.inputs)):
        last = max(n for n, slots in enumerate(readers) if number in slots)
        assert [n for n, by in enumerate(found) if number in by] == [last] and found[last][number] == 40
    beside = following(problem_of(subgraph), changed(schedule, beside=3))
    assert [{n: 3 * far for n, far in by.items()} for by in found] == [*beside]
    assert following(problem_of(subgraph), changed(schedule, fetch=False)) == ({},) * len(found)
    assert not default_schedule(subgraph, replace(TWO, l2_bytes=1024))["fetch"]


def test_few_rows_go_side_by_side():
    problem, usual = problem_of(softmax()), default_schedule(softmax(), TWO)
    assert usual["beside"] == 1 and legal(problem, changed(usual, beside=4), TWO).ok
    assert "4 rows at most go side by side" in legal(problem, changed(usual, beside=5), TWO).reason
    x = nf.placeholder((64, 3000), name="x")
    (wide,) = subgraphs([F.softmax(x)], [x])
    allowed = next(k for k in TEMPLATES["rows"].knobs if k.name == "beside").range(
        problem_of(wide), TWO, default_schedule(wide, TWO)
    )
    assert max(allowed.values) == (1 << 15) // (4 * 3000 + 8) == 2  # a row, its maximum and its sum


def test_what_a_row_kernel_stores_is_a_knob():
    problem = problem_of(softmax())
    usual = default(problem, TWO)
    fewer = complete("rows", problem, TWO, {"stored": int(usual["stored"]) & ~2})
    assert usual["stored"] != fewer["stored"] and len(fewer.inner) < len(usual.inner)
    assert fewer in space(problem, TWO).neighbours(usual)


# ------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a schedule is not JSON"),
        ("[]", "a schedule has a template, knobs and perhaps inner schedules"),
        (
            '{"template": "map", "knobs": {}, "extra": 1}',
            "a schedule has a template, knobs and perhaps inner schedules",
        ),
        ('{"template": "spiral", "knobs": {}}', "there is no template 'spiral'"),
        ('{"template": ["map"], "knobs": {}}', "there is no template"),
        ('{"template": "scatter", "knobs": {"lanes": 1}}', "lacks the knob 'chunks'"),
        (
            '{"template": "scatter", "knobs": {"lanes": 1, "chunks": true}}',
            "the knob 'chunks' is True, which is no int",
        ),
        ('{"template": "scatter", "knobs": {"lanes": 1, "chunks": 1, "zeros": 1, "x": 1}}', "scatter has no knob 'x'"),
        ('{"template": "scatter", "knobs": {"lanes": 1, "chunks": 1}, "inner": 1}', "the inner schedules are"),
    ],
)
def test_text_that_is_no_schedule(text, message):
    with pytest.raises(ScheduleError, match=message.replace("[", "\\[")):
        schedule_from_json(text)


def test_text_is_canonical():
    for make in ONE_OF_EACH.values():
        schedule = default_schedule(make(), TWO)
        assert json.loads(schedule.to_json())["template"] == schedule.template
        assert schedule_from_json(schedule.to_json()).to_json() == schedule.to_json()


# ---------------------------------------------------------------------------------------------------------- problems


def test_a_problem_is_derived_once_and_goes_with_its_subgraph():
    import weakref

    subgraph = matmul()
    problem = problem_of(subgraph)
    assert problem_of(subgraph) is problem
    default(problem, TWO)
    gone = weakref.ref(problem)
    del problem
    assert problem_of(subgraph) is gone()
    del subgraph
    gc.collect()
    assert gone() is None


def test_what_a_problem_remembers_is_bounded():
    problem = problem_of(matmul())
    rng, every = np.random.default_rng(0), space(problem, TWO)
    for _ in range(2000):
        features(problem, every.sample(rng), TWO)
    assert len(problem.memo) <= problem.memo.most


def test_a_search_needs_no_compiler():
    program = """
        import sys
        import numpy as np
        import neoflow as nf
        from neoflow.loops import default, features, legal, problem_of, space
        from neoflow.partition import partition
        from neoflow.graph import canonicalize, make_graph
        from neoflow.target import Target
        target = Target("cpu", "x86-64-v4", 2, 64)
        x, w = nf.placeholder((40, 50)), nf.placeholder((50, 60))
        y = nf.nn.functional.softmax(nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=x, b=w))
        graph = canonicalize(make_graph([y, *nf.vjp(nf.sum(y * y), [w])], [x, w]))
        for subgraph in partition(graph).subgraphs:
            problem = problem_of(subgraph)
            every = space(problem, target)
            schedule = every.sample(np.random.default_rng(0))
            assert legal(problem, schedule, target).ok and len(every.neighbours(default(problem, target)))
            features(problem, schedule, target)
        print([name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi")])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
