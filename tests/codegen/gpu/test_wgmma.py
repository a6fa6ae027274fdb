"""Contractions by warpgroups: what descriptors name is what was stored, and faults of their order are found."""

import shutil
import subprocess

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.compilers import FLAGS, machine_of
from neoflow.codegen.gpu.resources import resources
from neoflow.codegen.verify import verify
from neoflow.errors import CodegenError
from neoflow.loops import complete, default, fits, legal, problem_of
from neoflow.loops.gpu.wgmma import KNOBS
from neoflow.loops.space import Space
from neoflow.loops.template import TEMPLATES
from tests.codegen.gpu.contractions import in_tf32, matmul, narrow_forms, narrowly
from tests.codegen.gpu.running import run_gpu, verified
from tests.codegen.kernels import subgraph_of
from tests.emulator.faults import Fault

pytestmark = pytest.mark.tvm
AMPERE, HOPPER = gpu_target("cuda", "sm_80"), gpu_target("cuda", "sm_90")
ALONG = [(left, right) for left in ("k", "rows") for right in ("k", "rows")]


def by_warpgroups(subgraph, **given):
    found = complete("gpu_wgmma", problem_of(subgraph), HOPPER, given)
    verdict = legal(problem_of(subgraph), found, HOPPER)
    assert verdict.ok, verdict.reason
    return found


@pytest.mark.parametrize(
    ("sizes", "target", "template"),
    [
        ((1024, 1024, 1024), HOPPER, "gpu_wgmma"),
        ((1024, 1024, 1024), AMPERE, "gpu_tensor_core"),
        ((64, 512, 2048), HOPPER, "gpu_tensor_core"),  # too few blocks for it to be clearly ahead
        ((1023, 1021, 1019), HOPPER, "gpu_tensor_core"),  # rows begin where no bulk copy may
    ],
    ids=str,
)
def test_it_is_the_choice_where_bulk_copies_bring_both_sides(sizes, target, template):
    m, n, k = sizes
    assert default(problem_of(narrowly(matmul(m, n, k), "float16")), target).template == template


SMALL = {"block_m": 64, "block_n": 64}


@pytest.mark.parametrize("along", [ALONG[1], *(pytest.param(a, marks=pytest.mark.slow) for a in ALONG)], ids=str)
def test_operands_lie_as_descriptors_say(along):
    """At the edges of tiles, of two steps of K."""
    found = narrowly(matmul(40, 50, 72), "float16")
    verified(found, by_warpgroups(found, **SMALL, left_along=along[0], right_along=along[1]), HOPPER)


def batched():
    a, b = nf.placeholder((3, 40, 72), "float16"), nf.placeholder((3, 72, 48), "float16")
    return [nf.expr("y[s,i,j] = sum(a[s,i,k] * b[s,k,j])", a=nf.cast(a, "float32"), b=nf.cast(b, "float32"))], [a, b]


def inner_batch():
    a, b = nf.placeholder((40, 2, 3, 72), "float16"), nf.placeholder((72, 3, 2, 48), "float16")
    a32, b32 = nf.cast(a, "float32"), nf.cast(b, "float32")
    return [nf.expr("y[i,s,t,j] = sum(a[i,s,t,k] * b[k,t,s,j])", a=a32, b=b32)], [a, b]


def windows():
    x, w = nf.placeholder((1, 6, 68, 64), "float16"), nf.placeholder((3, 3, 64, 8), "float16")
    x32, w32 = nf.cast(x, "float32"), nf.cast(w, "float32")
    return [nf.expr("y[b,p,q,o] = sum(x[b,p+2*r,q+2*s,c] * w[r,s,c,o])", x=x32, w=w32)], [x, w]


TENSORS = {"batched": (batched, 3), "inner batch": (inner_batch, 4), "windows": (windows, 5)}


@pytest.mark.slow
@pytest.mark.parametrize("name", TENSORS)
def test_bulk_copies_of_tensors(name):
    """Of three dimensions to five: batches, windows of an image, with points left out."""
    make, dims = TENSORS[name]
    found = subgraph_of(*make())
    schedule = by_warpgroups(found, **SMALL, stages=3, left_bulk=True)
    text = codegen.source([codegen.lower(found, schedule, HOPPER, "k")], HOPPER, "cuda")
    assert f"nf_bulk_copy_{dims}(" in text[text.index("nf_mbarrier_expect((") :]
    verified(found, schedule, HOPPER)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", (1, 2, 3))
@pytest.mark.parametrize("bulk", (True, False))
def test_multiplications_overlap(overlap, bulk):
    """Of nine steps, whose sums have two levels."""
    found = narrowly(matmul(40, 48, 544), "bfloat16")
    given = {"stages": 4, "overlap": overlap, "left_bulk": bulk, "right_bulk": bulk, "splits": 1}
    verified(found, by_warpgroups(found, **SMALL, **given), HOPPER)


def test_what_overlaps_leaves_a_stage_to_load():
    problem = problem_of(narrowly(matmul(40, 48, 544), "float16"))
    (knob,) = (k for k in KNOBS if k.name == "overlap")
    for stages, allowed in ((1, [1]), (2, [1]), (3, [1, 2]), (4, [1, 2, 3])):
        usual = complete("gpu_wgmma", problem, HOPPER, {**SMALL, "stages": stages})
        assert list(knob.range(problem, HOPPER, dict(usual.knobs)).values) == allowed
        assert usual["overlap"] == min(2, len(allowed)) and usual["left_bulk"] == (stages > 1)


@pytest.mark.parametrize("along", [ALONG[1], *(pytest.param(a, marks=pytest.mark.slow) for a in ALONG)], ids=str)
def test_tf32_lies_along_k_whatever_way_it_was_loaded(along):
    found = in_tf32()["product 0"]
    verified(found, by_warpgroups(found, **SMALL, left_along=along[0], right_along=along[1]), HOPPER)


@pytest.mark.slow
@pytest.mark.parametrize("along", ALONG, ids=str)
def test_several_warpgroups_and_panels(along):
    """Rows and columns of more than one line of 64; sums in two levels, and in parts."""
    found = narrowly(matmul(136, 200, 640), "bfloat16")
    sizes = {"block_m": 128, "block_n": 128, "stages": 2}
    verified(found, by_warpgroups(found, **sizes, left_along=along[0], right_along=along[1], splits=2), HOPPER)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "tf32"))
def test_random_schedules_by_warpgroups(dtype):
    """Convolutions, capsules, their gradients, what is computed where it is loaded."""
    forms = in_tf32() if dtype == "tf32" else narrow_forms(dtype)
    names = ("capsules 1", "product 0", "expression 0", "convolution 0") if dtype == "tf32" else NARROW
    for seed, name in enumerate(names):
        subgraph = forms[name]
        problem = problem_of(subgraph)
        if not TEMPLATES["gpu_wgmma"].fits_target(problem, HOPPER).ok:
            continue
        schedule = Space(problem, HOPPER, ("gpu_wgmma",)).sample(np.random.default_rng(seed))
        assert verified(subgraph, schedule, HOPPER).compared, name


NARROW = ("turned 0", "inner batch 0", "convolution 0", "capsules 0", "capsules 1")
FAULTS = {
    "what was stored is not published": ("nf_wgmma_publish();", ";", "stored and not published before the barrier"),
    "sums are not fenced": ("nf_wgmma_fence_n64(", "(void)(", "no fence after what was done to its sums"),
    "nobody waits": ("nf_wgmma_wait_n64_0(", "(void)(", "= nan"),
    "of no group": ("nf_wgmma_commit();", ";", "= nan"),
    "a descriptor of another place": ("+ 16)])), 0)", "+ 32)])), 0)", "elements differ"),
    "the other operand is turned": ("nf_wgmma_n64_f16_01", "nf_wgmma_n64_f16_10", "elements differ|copy: "),
    "too few barriers": ("__syncthreads();", ";", "race: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_was_planted_is_found(name):
    found, (text, fault, said) = narrowly(matmul(40, 50, 72), "float16"), FAULTS[name]
    schedule = by_warpgroups(found, **SMALL, stages=3, left_bulk=False, right_bulk=False, overlap=1)
    with pytest.raises((CodegenError, Fault), match=said):
        verify(found, run_gpu(found, schedule, HOPPER, planted=(text, fault)), str(schedule))


def test_what_warpgroups_multiply():
    half = problem_of(narrowly(matmul(64, 64, 64), "float16"))
    assert (
        fits("gpu_wgmma", half).ok and default(half, HOPPER).template == "gpu_tensor_core"
    )  # no choice without search
    row = TEMPLATES["gpu_wgmma"]
    for target in (AMPERE, gpu_target("nvptx", "sm_90")):
        verdict = row.fits_target(half, target)
        assert not verdict.ok and f"{target} has no instructions of warpgroups" in verdict.reason
    assert row.fits_target(problem_of(in_tf32()["product 0"]), HOPPER).ok


def test_their_instructions_are_for_one_architecture():
    found = narrowly(matmul(40, 50, 72), "float16")
    text = codegen.source([codegen.lower(found, by_warpgroups(found, **SMALL), HOPPER, "k")], HOPPER, "cuda")
    assert machine_of(text, HOPPER) == "sm_90a"
    text = codegen.source([codegen.lower(found, default(problem_of(found), HOPPER), HOPPER, "k")], HOPPER, "cuda")
    assert machine_of(text, HOPPER) == "sm_90"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("along", ALONG, ids=str)
@pytest.mark.parametrize("bulk", (True, False))
def test_sums_stay_in_registers(along, bulk):
    for shape, dtype in (((40, 50, 72), "float16"), ((4096, 4096, 512), "bfloat16"), ((4096, 4096, 4096), "float16")):
        found = narrowly(matmul(*shape), dtype)
        given = {} if bulk else {"left_bulk": False, "right_bulk": False}
        assert_in_registers(found, by_warpgroups(found, left_along=along[0], right_along=along[1], **given))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("along", ALONG, ids=str)
def test_sums_of_tf32_stay_in_registers(along):
    for name in ("product 0", "large 0"):
        found = in_tf32()[name]
        assert_in_registers(found, by_warpgroups(found, left_along=along[0], right_along=along[1]))


def assert_in_registers(found, schedule):
    text = codegen.source([codegen.lower(found, schedule, HOPPER, "k")], HOPPER, "cuda")
    for entry, used in resources(text, HOPPER).items():
        assert not used.spills and used.registers <= 255, f"{entry}: {used} by {schedule}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_multiplications_are_not_made_to_wait_for_each_other(tmp_path):
    """ptxas says where it does so, as where something else writes their sums meanwhile."""
    found = narrowly(matmul(4096, 4096, 512), "float16")
    text = codegen.source([codegen.lower(found, by_warpgroups(found), HOPPER, "k")], HOPPER, "cuda")
    said = {}
    for name, source in (("ours", text), ("with a write between", text.replace("nf_wgmma_commit();", WRITES))):
        (tmp_path / "k.cu").write_text(source)
        command = [
            "nvcc",
            "-cubin",
            "-arch=sm_90a",
            *FLAGS,
            "-Xptxas",
            "-v",
            "-o",
            str(tmp_path / "k"),
            str(tmp_path / "k.cu"),
        ]
        said[name] = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "injected" in said["with a write between"] and "GMMA" in said["with a write between"]
    assert "GMMA" not in said["ours"] and "serialized" not in said["ours"]


WRITES = "acc0_ptr[0] = acc0_ptr[0] + 1.0f; nf_wgmma_commit();"
