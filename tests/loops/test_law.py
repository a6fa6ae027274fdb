"""Whatever the declaration calls legal computes what the interpreter does."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.cpu.templates import LOWERINGS
from neoflow.codegen.gpu.templates import LOWERINGS as GPU_LOWERINGS
from neoflow.errors import CodegenError, ScheduleError
from neoflow.loops import TEMPLATES, Schedule, complete, default_schedule, legal, nearest, problem_of, space
from neoflow.loops.space import Space
from neoflow.loops.tile import sides
from neoflow.nn import functional as F
from neoflow.runtime.device.cpu import empty
from neoflow.target import Target
from tests.codegen.kernels import TARGET, loaded
from tests.loops.programs import CUT, Case, cases, named_cases, product, random_cases, subgraphs

pytestmark = pytest.mark.tvm
TWO = Target("cpu", TARGET.mcpu, 2, TARGET.vector_bytes, TARGET.l2_bytes, TARGET.fma_units)


def disagreement(case: Case, kernel) -> str | None:
    """Where a kernel differs from the interpreter, its outputs full of NaN before."""
    held = []
    for array in case.arrays:
        held.append(empty(array.shape, array.dtype.name))
        held[-1][...] = array
    dtypes = [case.subgraph.value(o).dtype for o in case.subgraph.outputs]
    results = [empty(e.shape, d) for e, d in zip(case.exact, dtypes, strict=True)]
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


def check(jobs_of: list[tuple[Case, list[Schedule]]], target: Target = TWO) -> int:
    """Compile every case by its schedules and compare; how many kernels there were."""
    jobs = [
        (c, s, codegen.lower(c.subgraph, s, target, f"k{c.subgraph.digest[:8]}_{n}"))
        for c, schedules in jobs_of
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


def test_default_schedules_of_convolutions_whose_images_no_cache_holds():
    """Sizes that are no multiple of a tile, for a core of 1 KB: K goes along lines of images, or taps."""
    small = Target("cpu", TARGET.mcpu, 2, TARGET.vector_bytes, 1 << 10, TARGET.fma_units)
    rng, found = np.random.default_rng(0), []
    for batch, channels, filters, size, kernel, step in ((5, 3, 17, 37, 3, 1), (6, 5, 18, 23, 5, 2)):
        x, w = nf.placeholder((batch, channels, size, size)), nf.placeholder((filters, channels, kernel, kernel))
        y = F.conv2d(x, w, stride=step, padding=1)
        g = nf.placeholder(y.shape)
        feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, w, g)}
        found += cases("convolution", [y, *nf.vjp(y, [x, w], g)], feeds)
    defaults = [(c, [default_schedule(c.subgraph, small)]) for c in found]
    assert check(defaults, small) >= 6
    lasts = [
        (s["last_k"], len(sides(problem_of(c.subgraph), s).c.k)) for c, [s] in defaults if s.template == "contraction"
    ]
    assert any(1 <= last == axes - 1 for last, axes in lasts)


def test_sampled_schedules_of_named_kernels():
    assert check([(c, sampled(c, 2, n)) for n, c in enumerate(named_cases())]) >= 50


def test_sampled_schedules_of_random_programs():
    assert check([(c, sampled(c, 3, seed)) for seed in range(3) for c in random_cases(seed)]) >= 18


def cuts(dtype: str = "float32") -> Iterator[Case]:
    """Contractions of sizes that no tile divides, one for each way to pack and to write."""
    for case in named_cases(dtype, CUT):
        if "contraction" in space(problem_of(case.subgraph), TWO).templates:
            yield case


def cut_at_random(case: Case, count: int, seed: int) -> list[Schedule]:
    """Schedules of the contraction template, the knobs that cut tasks and K away from their defaults."""
    rng, problem = np.random.default_rng(seed), problem_of(case.subgraph)
    everything = Space(problem, TWO, ("contraction",))
    return list(dict.fromkeys(everything.sample(rng) for _ in range(count)))


def test_sampled_cuts_of_contractions():
    assert check([(c, cut_at_random(c, 1, n)) for n, c in enumerate(cuts())]) >= 12


@pytest.mark.slow
def test_many_sampled_cuts_of_contractions():
    count = check([(c, cut_at_random(c, 30, n)) for n, c in enumerate(cuts())])
    count += check([(c, cut_at_random(c, 15, n)) for n, c in enumerate(cuts("float64"))])
    assert count >= 500


WAYS = (
    {"order": "tiles", "pack": True, "passes": 4, "tiles": 2, "panels": 2, "inner": "panels", "ahead": True},
    {"order": "panels", "pack_panels": True, "passes": 3, "tiles": 2, "panels": 2, "prefetch": 8},
    {"order": "tiles", "pack": True, "run": True, "turn_rows": True, "tile_rows": 7, "tiles": 3, "panels": 2},
    {"order": "panels", "pack": True, "run": True, "turn_rows": True, "tile_rows": 18, "vectors": 1, "pack_parts": 5},
)


@pytest.mark.parametrize("knobs", WAYS, ids=lambda knobs: "-".join(knobs))
def test_ways_through_a_product(knobs):
    for name in ("odd product", "rows of products"):
        case = next(c for c in cuts() if c.name == name)
        problem = problem_of(case.subgraph)
        schedule = complete("contraction", problem, TWO, {"side": "right", "vectors": 2, "parallel": True, **knobs})
        assert legal(problem, schedule, TWO).ok, legal(problem, schedule, TWO).reason
        check([(case, [schedule])])


@pytest.mark.parametrize(("registers", "rows"), [(0, 7), (1 / 4, 20), (3 / 2, 4), (1, 20), (2, 7)])
def test_tiles_written_in_vectors_along_rows(registers, rows):
    """Lines of 4 or 7 rows, one or two in a tile; squares of 24 lanes had gone beyond the panel."""
    lanes = int(registers * TWO.lanes("float32")) or 1
    x, w, b = nf.placeholder((2, 5, 9, 9)), nf.placeholder((37, 5, 3, 3)), nf.placeholder((37,))
    y = nf.relu(F.conv2d(x, w, b))
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, w, b)}
    [case] = cases("rows", [y], feeds)
    problem, knobs = problem_of(case.subgraph), {"side": "right", "lanes": lanes, "vectors": 2, "tile_rows": rows}
    schedule = complete("contraction", problem, TWO, {**knobs, "parallel": False, "splits": 1, "store": "turned"})
    assert legal(problem, schedule, TWO).ok
    check([(case, [schedule])])


def test_steps_backwards_are_added_once():
    """The gradient of a convolution reads backwards along its window: no address is computed in the innermost loop."""
    x, w, g = nf.placeholder((2, 32, 20, 20)), nf.placeholder((8, 32, 3, 3)), nf.placeholder((2, 8, 18, 18))
    (dx,) = nf.vjp(F.conv2d(x, w), [x], g)
    found = [s for s in subgraphs([dx], [w, g]) if "contraction" in space(problem_of(s), TWO).templates]
    problem = problem_of(found[0])
    knobs = {"side": "right", "lanes": 16, "vectors": 2, "pack": False, "turn": False}
    schedule = complete("contraction", problem, TWO, knobs)
    code = codegen.source([codegen.lower(found[0], schedule, TWO, "k")], TWO, "asm")
    body = code[code.index("vbroadcastss") : code.rindex("vfmadd")].splitlines()
    assert sum("movslq" in line for line in body) < sum("vbroadcastss" in line for line in body) / 4


def test_what_is_multiplied_with_nothing_is_zero():
    """Lanes of a panel beyond its last column: denormals that a kernel before left there would take long on Intel's."""
    x, w = nf.placeholder((40, 32), name="x"), nf.placeholder((32, 8, 3), name="w")
    (s,) = subgraphs([nf.expr("y[i,j,l] = sum(x[i,k] * w[k,l,j])", x=x, w=w)], [x, w])
    knobs = {"side": "right", "lanes": 16, "vectors": 2, "pack_panels": True}
    schedule = complete("contraction", problem_of(s), TWO, knobs)
    code = codegen.source([codegen.lower(s, schedule, TWO, "k")], TWO, "tir")
    code = re.sub(r"T\.int64\((\d+)\)", r"\1", code)
    assert re.search(r"panels\w*\[(.*) \+ 24:\1 \+ 24 \+ 8\] = T.Broadcast\(T.float32\(0.0\), 8\)", code), code


JOINED = (
    {"side": "right", "vectors": 2, "order": "panels", "fetch": True},
    {"side": "right", "vectors": 3, "order": "tiles", "pack": True, "run": False, "splits": 2},
    {"side": "left", "vectors": 1, "order": "tiles", "pack": True, "pack_parts": 2, "fetch": True},
    {"side": "left", "vectors": 2, "order": "panels", "pack": True, "run": True, "passes": 3},
)


@pytest.mark.parametrize("knobs", JOINED, ids=lambda knobs: f"{knobs['side']}-{knobs['order']}")
def test_axes_joined_where_an_operand_is_packed_and_written(knobs):
    """Windows of 9 points of a kernel, turned in squares of 8 and one point more; rows of 7 neighbours, copied as two
    overlapping vectors; 45 points of a kernel's gradient, written in lines of them all."""
    x, w, g = nf.placeholder((1, 5, 9, 9)), nf.placeholder((19, 5, 3, 3)), nf.placeholder((1, 19, 7, 7))
    y = F.conv2d(x, w)
    (dx,), (dw,) = nf.vjp(y, [x], g), nf.vjp(y, [w], g)
    rng = np.random.default_rng(0)
    for root, inputs in ((nf.relu(y), (x, w)), (dx, (w, g)), (w - 0.1 * dw, (x, w, g))):
        feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
        for case in cases("joined", [root], feeds):
            problem = problem_of(case.subgraph)
            if "contraction" in space(problem, TWO).templates:
                wanted = complete("contraction", problem, TWO, {**knobs, "parallel": False})
                check([(case, [nearest(problem, wanted, TWO)])])


def test_outputs_that_lie_in_one_line_are_written_in_whole_vectors():
    x, w, g = nf.placeholder((1, 8, 9, 9)), nf.placeholder((32, 8, 3, 3)), nf.placeholder((1, 32, 7, 7))
    (dw,) = nf.vjp(F.conv2d(x, w), [w], g)
    [subgraph] = subgraphs([w - 0.1 * dw], [x, w, g])
    problem = problem_of(subgraph)
    found = sides(problem, complete("contraction", problem, TWO, {"side": "right"}))
    assert (found.chunk(16), found.line_chunk(8)) == (1, 8) and [a.extent for a in found.lines[0]] == [72]
    assert [a.extent for a in found.left_joined.axes] == [49]


def test_what_a_tile_writes_is_fetched_where_it_lies_far_away():
    def usual(count, terms, units=1, columns=512):
        a, b = nf.placeholder((count, terms)), nf.placeholder((terms, columns))
        [one] = subgraphs([nf.expr("y[m,n] = sum(a[m,k] * b[k,n])", a=a, b=b)], [a, b])
        return complete("contraction", problem_of(one), replace(TWO, fma_units=units), {"side": "right"})["fetch"]

    assert usual(4096, 64) and not usual(4096, 16) and not usual(64, 64)
    if TWO.vector_bytes == 64:
        assert usual(4096, 64, units=2) and usual(65536, 64, columns=64)
        assert not usual(65536, 64, units=2, columns=64), "rows lie side by side: they come by themselves"


@pytest.mark.parametrize(("vectors", "ahead"), [(2, 1), (3, 1), (2, 8), (3, 4)])
def test_windows_are_read_in_place(vectors, ahead):
    """Panels of two vectors end where lines do, of three they go on in the next one; dx reads backwards."""
    x, w = nf.placeholder((2, 6, 18, 18)), nf.placeholder((3, 6, 3, 3))
    y = F.conv2d(x, w)
    g = nf.placeholder((2, 3, 16, 16))
    (dx,) = nf.vjp(y, [x], g)
    rng = np.random.default_rng(0)
    for root, inputs in ((y, (x, w)), (dx, (w, g))):
        feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
        for case in cases("windows", [root], feeds):
            problem = problem_of(case.subgraph)
            if "contraction" in space(problem, TWO).templates:
                knobs = {"side": "left", "lanes": 2, "vectors": vectors, "pack_panels": False, "prefetch": ahead}
                schedule = complete("contraction", problem, TWO, knobs)
                assert legal(problem, schedule, TWO).ok
                check([(case, [schedule])])


def test_few_rows_read_windows_in_place_and_rows_a_page_apart_are_packed():
    x, w = nf.placeholder((2, 8, 58, 58)), nf.placeholder((4, 8, 3, 3))
    [few] = subgraphs([F.conv2d(x, w)], [x, w])
    assert not default_schedule(few, TWO)["pack_panels"]
    a, b = nf.placeholder((64, 2048)), nf.placeholder((512, 2048))
    [apart] = subgraphs([nf.expr("y[m,n] = sum(a[m,k] * b[n,k])", a=a, b=b)], [a, b])
    assert complete("contraction", problem_of(apart), TWO, {"side": "left", "vectors": 2})["pack"]


@pytest.mark.slow
def test_many_sampled_schedules():
    count = check([(c, sampled(c, 20, n)) for n, c in enumerate(named_cases())])
    count += check([(c, sampled(c, 20, n)) for n, c in enumerate(named_cases("float64"))])
    for seed in range(100, 200):
        count += check([(c, sampled(c, 4, seed)) for c in random_cases(seed)])
    assert count >= 3000


# ------------------------------------------------------------------------------------- what the laws have found


def agrees(roots, inputs, target=TWO):
    """The default kernels of a program compute what the interpreter does."""
    rng = np.random.default_rng(1)
    feeds = {
        x: (rng.integers(0, 3, x.shape) if x.dtype.startswith("int") else rng.standard_normal(x.shape)).astype(x.dtype)
        for x in inputs
    }
    every = list(cases("default", roots, feeds))
    check([(c, [default_schedule(c.subgraph, target)]) for c in every], target)
    return [default_schedule(c.subgraph, target) for c in every]


@pytest.mark.parametrize("where", ["result", "left", "right"])
def test_a_product_beside_a_function_of_one_lane(where):
    """tanh of float64 is a call of the C library, of the first lane of a vector if it is given one."""
    a, b = nf.placeholder((20, 30), "float64"), nf.placeholder((30, 40), "float64")
    y = product(nf.tanh(a) if where == "left" else a, nf.tanh(b) if where == "right" else b)
    agrees([nf.tanh(y) if where == "result" else y], [a, b])


def test_the_second_pass_over_parts_beside_a_function_of_one_lane():
    x = nf.placeholder((9, 5000), "float64")
    y = nf.tanh(nf.sum(x, axis=1))
    case = next(cases("parts", [y], {x: np.random.default_rng(0).standard_normal((9, 5000))}))
    schedule = complete("reduction", problem_of(case.subgraph), TWO, {"lane": "reduced", "lanes": 4, "parallel": True})
    assert schedule["splits"] == 1
    check([(case, [schedule])])


def test_a_lookup_at_a_position_that_is_reduced():
    """The index is the value of the reduction, and differs from lane to lane without any axis in it."""
    x, table = nf.placeholder((5, 40)), nf.placeholder((5,))
    k = nf.axis(5, "k")
    best = nf.compute((40,), lambda i: nf.argmax(x[k, i], axis=[k]))
    y = nf.compute((40,), lambda i: table[best[i]] * 2.0)
    [schedule] = agrees([y], [x, table])
    assert (schedule.template, schedule["lane"], schedule["lanes"]) == ("reduction", "output", 1)


def test_columns_of_a_scatter_that_threads_do_not_divide_evenly():
    """Five vectors for four threads: two each, and none for the last, which had left the columns between unset."""
    target = Target("cpu", TARGET.mcpu, 4, TARGET.vector_bytes, TARGET.l2_bytes, TARGET.fma_units)
    width = 5 * target.lanes("float32") + 3
    ids, g = nf.placeholder((300,), "int64"), nf.placeholder((300, width))
    table = nf.placeholder((11, width))
    y = nf.compute((300, width), lambda i, h: table[ids[i], h])
    [schedule] = agrees(nf.vjp(y, [table], g), [ids, g], target)
    assert (schedule.template, schedule["chunks"]) == ("scatter", 4)


# ------------------------------------------------------------------------------------------------------ the border


def test_a_bug_in_a_lowering_is_no_illegal_schedule(monkeypatch):
    """A search goes on after a `ScheduleError`; anything else must be seen."""

    def broken(*_):
        raise KeyError("a real bug")

    monkeypatch.setitem(LOWERINGS, "map", broken)
    x = nf.placeholder((8,))
    [case] = cases("x", [x + 1.0], {x: np.zeros(8, np.float32)})
    with pytest.raises(KeyError, match="a real bug"):
        codegen.lower(case.subgraph, default_schedule(case.subgraph, TWO), TWO, "f")
    with pytest.raises(ScheduleError, match="lacks the knob 'residues'"):
        codegen.lower(case.subgraph, Schedule("map", (("fuse", 0),)), TWO, "f")


def test_each_template_has_a_lowering_and_each_target_a_package():
    for device, lowerings in (("cpu", LOWERINGS), ("gpu", GPU_LOWERINGS)):
        assert set(lowerings) == {t.name for t in TEMPLATES.values() if t.device == device}
    x = nf.placeholder((8,))
    [case] = cases("x", [x + 1.0], {x: np.zeros(8, np.float32)})
    with pytest.raises(CodegenError, match="no code for a target of kind 'abacus'; there is for cpu, cuda, nvptx"):
        codegen.lower(case.subgraph, default_schedule(case.subgraph, TWO), Target("abacus", threads=2), "f")
