"""Faults planted in what is lowered: the emulator finds each, or its values are no longer those of NumPy."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.loops import Schedule, complete, legal, problem_of
from neoflow.nn import functional as F
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target
from tests.codegen.gpu.contractions import matmul, narrowly
from tests.codegen.gpu.running import launch
from tests.codegen.kernels import subgraph_of
from tests.emulator import Fault, Program

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")]
AMPERE, HOPPER = gpu_target("cuda", "sm_80"), gpu_target("cuda", "sm_90")


@dataclass(frozen=True)
class Form:
    """A kernel, what it is given, and what it gives."""

    subgraph: Subgraph
    schedule: Schedule
    inputs: tuple[np.ndarray, ...]
    wanted: np.ndarray
    target: Target = AMPERE


def _scheduled(template: str, subgraph: Subgraph, target: Target = AMPERE, **knobs) -> Schedule:
    problem = problem_of(subgraph)
    schedule = complete(template, problem, target, knobs)
    verdict = legal(problem, schedule, target)
    assert verdict.ok, verdict.reason
    return schedule


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _turned(turn: str) -> Form:
    x, z = nf.placeholder((45, 37)), nf.placeholder((37, 45))
    subgraph = subgraph_of([nf.compute((37, 45), lambda i, j: x[j, i] * 2.0 + z[i, j])], [x, z])
    a, b = _normal(45, 37), _normal(37, 45)
    schedule = _scheduled("gpu_map", subgraph, turn=turn, side=32, lanes=1, threads=128)
    return Form(subgraph, schedule, (a, b), a.T * np.float32(2) + b)


def _vectors() -> Form:
    x = nf.placeholder((36, 40))
    subgraph = subgraph_of([nf.transpose(x, (1, 0)) * 2.0], [x])
    schedule = _scheduled("gpu_map", subgraph, turn="reads", side=32, lanes=4, threads=64)
    return Form(subgraph, schedule, (_normal(36, 40),), _normal(36, 40).T * np.float32(2))


def _rows() -> Form:
    x, w = nf.placeholder((5, 7)), nf.placeholder((7, 11))
    subgraph = subgraph_of([nf.expr("y[i,j] = max[k](x[i,k] + w[k,j])", x=x, w=w)], [x, w])
    a, b = _normal(5, 7), _normal(7, 11)
    schedule = _scheduled("gpu_reduction", subgraph, lane="output", threads=64, team=64 // 8, tile_rows=2)
    return Form(subgraph, schedule, (a, b), (a[:, :, None] + b).max(1))


def _long() -> Form:
    x = nf.placeholder((2, 13001))
    subgraph = subgraph_of([F.softmax(x)], [x], rows=1)
    e = np.exp(_normal(2, 13001).astype(float))
    schedule = _scheduled("gpu_rows", subgraph, team=64, threads=64, place="shared")
    return Form(subgraph, schedule, (_normal(2, 13001),), e / e.sum(1, keepdims=True))


def _adding() -> Form:
    ids, g = nf.placeholder((130,), "int64"), nf.placeholder((130, 5))
    b, h = nf.axis(130, "b"), nf.axis(5, "h")
    subgraph = subgraph_of([nf.scatter((11, 5), [b, h], (ids[b], h), g[b, h])], [ids, g])
    where, wanted = np.random.default_rng(0).integers(0, 11, 130), np.zeros((11, 5))
    np.add.at(wanted, where, _normal(130, 5).astype(float))
    schedule = _scheduled("gpu_scatter", subgraph, atomics=True, threads=32, width=4)
    return Form(subgraph, schedule, (where, _normal(130, 5)), wanted)


def _boxes() -> Form:
    subgraph = narrowly(matmul(40, 48, 264), "float16")
    a, b = (_normal(*shape).astype(np.float16) for shape in ((40, 264), (264, 48)))
    schedule = _scheduled("gpu_wgmma", subgraph, HOPPER, block_m=64, block_n=64, stages=4, overlap=2)
    assert schedule["left_bulk"] and schedule["right_bulk"]
    return Form(subgraph, schedule, (a, b), a.astype(float) @ b.astype(float), HOPPER)


FORMS: dict[str, Callable[[], Form]] = {
    "turned reads": lambda: _turned("reads"),
    "turned outputs": lambda: _turned("outputs"),
    "turned vectors": _vectors,
    "rows of teams": _rows,
    "long rows": _long,
    "atomics": _adding,
    "boxes": _boxes,
}


@dataclass(frozen=True)
class Planted:
    """What matches `old` becomes `new`, `count` times or, for 0, everywhere: a fault of a kind, or wrong "values"."""

    form: str
    old: str
    new: str
    kind: str
    count: int = 1


BARRIER = r"  __syncthreads\(\);\n"
PLANTED = (
    # squares
    *(
        Planted(form, *what)
        for form in ("turned reads", "turned outputs")
        for what in (
            (BARRIER, "", "uninitialised|race"),
            (BARRIER, "  __syncwarp();\n", "uninitialised|race"),
            (r"square_ptr\[1056\]", "square_ptr[1055]", "none"),
            (r"square_ptr\[1056\]", "square_ptr[1040]", "bounds"),
            (r" \* 33\)", " * 32)", "race|uninitialised|values"),
            (r"blockIdx\.x\) % 2\) \* 32", "blockIdx.x) / 2) * 32", "bounds|race", 0),
            (r"\* (?:264|132)\)", "* 99)", "values|uninitialised"),
            (r"if \(.*< 45\)", "if (true)", "bounds|race|uninitialised"),
            (r"(__syncthreads.*)if \([^\n]*< 37\)", r"\1if (true)", "bounds|uninitialised"),
        )
    ),
    Planted("turned vectors", BARRIER, "", "uninitialised|race"),
    Planted("turned vectors", r"\*\(float4\*\)\(in0 \+ \(", "*(float4*)(in0 + (1 + ", "alignment"),
    Planted("turned vectors", r"\*\(float4\*\)\(in0 \+ \(", "*(float4*)(in0 + (40 + ", "values|bounds", 2),
    # rows of a team
    Planted("rows of teams", r"min\((.*?), 4\)", r"(\1)", "bounds|values", 9),
    Planted("rows of teams", r"(acc1_ptr\[0\];\n\s*out0\[.*?)\* 11", r"\1* 0", "race|values"),
    Planted("rows of teams", BARRIER, "", "race|uninitialised"),
    Planted("rows of teams", r"nf_shuffle_xor\(acc1_ptr\[0\], 8\)", "acc1_ptr[0]", "values"),
    Planted(
        "rows of teams",
        r"nf_shuffle_xor\(acc0_ptr\[0\], 8\)",
        "(threadIdx.x < 16 ? nf_shuffle_xor(acc0_ptr[0], 8) : 0)",
        "warp",
    ),
    # rows that a launch asks memory for
    Planted("long rows", BARRIER, "", "race|uninitialised", 1),
    Planted(
        "long rows", r"row4_float32_ptr\[(.*?) \+ 8\)\]", r"row4_float32_ptr[\1 + 4)]", "values|race|uninitialised", 1
    ),
    Planted("long rows", r"row5_float32_ptr\[13012\]", "row5_float32_ptr[13016]", "bounds|uninitialised", 1),
    Planted("long rows", r"\+ 13000\)\]", "+ 13010)]", "bounds|race|uninitialised"),
    # atomics
    Planted("atomics", r"nf_add\(out0, (.*), (t\d+_ptr(?:_\d+)?\[0\])\);", r"out0[\1] += \2;", "race"),
    Planted("atomics", r"\(\(t0_ptr\[0\] < \(int64_t\)11\)|\* 5\) \+", "* 6) +", "bounds|values"),
    Planted("atomics", r"threadIdx\.x\) < 55", "threadIdx.x) < 54", "uninitialised"),
    Planted("atomics", r"threadIdx\.x\) < 55", "threadIdx.x) < 56", "bounds"),
    Planted("atomics", r" < 130\)", " < 131)", "bounds"),
    Planted("atomics", r" < 5\)\)", " < 6))", "bounds|values"),
    # bulk copies and multiplications under way
    Planted("boxes", r"nf_mbarrier_wait\(", "(void)(", "copy"),
    Planted("boxes", r"(nf_mbarrier_wait\(.*)\(k / 4\)\)", r"\1(k / 4 ^ 1))", "copy"),
    Planted(
        "boxes", r"if \((.*) == 0\) \{\n    nf_mbarrier_expect", r"if (\1 < 2) {\n    nf_mbarrier_expect", "copy", 2
    ),
    Planted("boxes", r"(nf_mbarrier_expect\(.*), 16384\)", r"\1, 8192)", "copy"),
    Planted("boxes", r"nf_mbarrier_expect\(", "(void)(", "copy"),
    Planted("boxes", r"nf_mbarrier_new\(.*\n", "\n", "copy|uninitialised"),
    Planted("boxes", BARRIER, "", "race|uninitialised"),
    Planted("boxes", r"(nf_mbarrier_wait\(.*\n)    __syncthreads\(\);", r"\1", "race|copy"),
    Planted("boxes", r"nf_map_acquire\(maps, 1\);", ";", "copy"),
    Planted("boxes", r"if \((\(k < 3\)|k < 3)\)", "if (true)", "copy"),
    Planted("boxes", r"nf_map_new\(maps, 1,", "nf_map_new(maps, 0,", "copy|uninitialised"),
    Planted("boxes", r"nf_map_dim_1\(maps, 0, 40,", "nf_map_dim_1(maps, 0, 41,", "bounds"),
    Planted("boxes", r"nf_map_dim_0\(maps, 0, 264,", "nf_map_dim_0(maps, 0, 272,", "bounds|values"),
    Planted("boxes", r"nf_map_stride_0\(maps, 0, \(int64_t\)528", "nf_map_stride_0(maps, 0, (int64_t)520", "alignment"),
    Planted("boxes", r"nf_map_stride_0\(maps, 0, \(int64_t\)528", "nf_map_stride_0(maps, 0, (int64_t)512", "values"),
    Planted(
        "boxes",
        r"nf_bulk_copy_2\(\(&\(tiles_float16_ptr\[4096\]",
        "nf_bulk_copy_2((&(tiles_float16_ptr[4128]",
        "alignment",
    ),
    Planted(
        "boxes",
        r"nf_bulk_copy_2\(\(&\(tiles_float16_ptr\[4096\]",
        "nf_bulk_copy_2((&(tiles_float16_ptr[0]",
        "copy|race",
    ),
    Planted("boxes", r"\(k \+ 2\) % 4", "(k + 3) % 4", "race|copy|values", 0),
    Planted("boxes", r"nf_wgmma_wait_n64_1\(", "nf_wgmma_wait_n64_2(", "race|copy"),
    Planted("boxes", r"nf_wgmma_wait_n64_0\(", "(void)(", "values"),
    Planted("boxes", r"nf_wgmma_commit\(\);", ";", "race|copy|values"),
)


@cache
def form_of(name: str) -> tuple[Form, codegen.gpu.Lowered, str]:
    form = FORMS[name]()
    lowered = codegen.lower(form.subgraph, form.schedule, form.target, "k")
    return form, lowered, codegen.source([lowered], form.target, "cuda")


def run(name: str, text: str) -> np.ndarray:
    form, lowered, _ = form_of(name)
    out = np.zeros(form.wanted.shape, np.float32)
    launch(Program(text), lowered, [*(a.copy() for a in form.inputs), out], len(form.inputs))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_a_form_without_a_fault_is_as_numpy(name):
    form, _, text = form_of(name)
    np.testing.assert_allclose(run(name, text), form.wanted, rtol=1e-5, atol=1e-5)


QUICK = ("turned reads", "atomics", "boxes")


def cases():
    """A few of them without being asked."""
    for n, p in enumerate(PLANTED):
        is_first = n == 0 or PLANTED[n - 1].form != p.form
        marks = () if is_first and p.form in QUICK else pytest.mark.slow
        yield pytest.param(n, id=f"{p.form}-{p.old[:30]!r}", marks=marks)


@pytest.mark.parametrize("number", list(cases()))
def test_a_planted_fault_is_found(number):
    planted = PLANTED[number]
    form, _, text = form_of(planted.form)
    start = [m.start() for m in re.finditer('extern "C"', text)][-len(form_of(planted.form)[1].code.entries)]
    changed, count = re.subn(
        planted.old, planted.new, text[start:], count=planted.count, flags=re.DOTALL if "__sync" in planted.old else 0
    )
    assert count, text
    try:
        found = run(planted.form, text[:start] + changed)
        kind = "none" if np.allclose(found, form.wanted, rtol=1e-5, atol=1e-5) else "values"
    except Fault as fault:
        kind = fault.kind
    assert kind in planted.kind.split("|"), kind
