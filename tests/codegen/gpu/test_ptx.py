"""PTX by LLVM: what the driver can launch, with nothing left undefined, that ptxas assembles."""

import re
import shutil
import subprocess

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.resources import resources
from neoflow.loops import complete, default, problem_of
from neoflow.nn import functional as F
from tests.codegen.gpu.contractions import in_tf32, matmul, narrowly
from tests.codegen.kernels import subgraph_of

pytestmark = pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas, and libdevice beside it")


def program(target):
    x, y = nf.placeholder((7, 33)), nf.placeholder((7, 33))
    h, d, ids = nf.placeholder((64, 64), "float16"), nf.placeholder((4, 5), "float64"), nf.placeholder((9,), "int64")
    z = nf.exp(x) * y + nf.tanh(x) + nf.maximum(x, y) + nf.pow(x, 1.5) + nf.floor(x) + nf.sqrt(y)
    looked_up = nf.compute((9, 33), lambda i, j: x[ids[i], j] + 1.0)
    outputs = [z, nf.cast(h, "float32") * 2.0, nf.pow(d, d) + nf.erf(d), looked_up, nf.cast(z, "bfloat16"), x * y + x]
    return nf.compile(outputs, [x, y, h, d, ids], target=target)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_it_is_assembled(architecture, tmp_path):
    f = program(f"nvptx:{architecture}")
    text = f.source("ptx")
    (tmp_path / "k.ptx").write_text(text)
    command = ["ptxas", f"-arch={architecture}", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin"), "-v"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = [e.symbol for k in f.plan.kernels for e in k.entries]
    kernels = re.findall(r"^\.visible \.entry (\w+)\(", text, re.MULTILINE)
    assert len(kernels) == len(entries) == text.count(".maxntid 256\n.minnctapersm 1\n")
    assert ".extern" not in text


def test_a_product_and_a_sum_stay_two_operations():
    text = program("nvptx:sm_80").source("ptx")
    assert "mul.rn.f32" in text and "add.rn.f32" in text and not re.search(r"\b(mul|add|sub)\.f32", text)


VECTORS = {
    "exp": (nf.exp, "float32"),
    "pow": (lambda x: nf.pow(x, x + 1.5), "float32"),
    "tanh": (nf.tanh, "float32"),
    "sin": (nf.sin, "float32"),
    "exp of doubles": (nf.exp, "float64"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_one_access_and_functions_of_libdevice_take_them_lane_by_lane(name):
    function, dtype = VECTORS[name]
    x = nf.placeholder((512, 64), dtype)
    subgraph, target = subgraph_of([function(x)], [x]), gpu_target("nvptx", "sm_80")
    lanes = 2 if dtype == "float64" else 4
    schedule = complete("gpu_map", problem_of(subgraph), target, {"lanes": lanes})
    text = codegen.source([codegen.lower(subgraph, schedule, target, "k")], target, "ptx")
    width = 128 // lanes
    assert f"ld.v{lanes}.b{width}" in text and f"st.v{lanes}.b{width}" in text
    assert ".extern .func" not in text and "__nv_fma" not in text
    assert not resources(text, target)["k_0"].spills


def test_what_a_warp_does_together_is_an_instruction():
    x, d = nf.placeholder((64, 96)), nf.placeholder((64, 96), "float64")
    ids, rows = nf.placeholder((40,), "int64"), nf.placeholder((40, 96))
    b, h = nf.axis(40), nf.axis(96)
    scattered = nf.scatter((50, 96), [b, h], (ids[b], h), rows[b, h])
    f = nf.compile([F.softmax(x), nf.argmax(d, axis=1), scattered], [x, d, ids, rows], target="nvptx:sm_80")
    text = f.source("ptx")
    for instruction in ("shfl.sync.bfly.b32", "vote.sync.ballot.b32", "popc.b32", "bar.warp.sync"):
        assert instruction in text
    assert ".extern .func" not in text


def test_of_another_kind_there_is_no_text():
    x = nf.placeholder((3,))
    f = nf.compile([x + 1.0], [x], target="cuda:sm_80")
    with pytest.raises(nf.CodegenError, match=r"kernels for cuda\(sm_80\) are no ptx: compile for nvptx:sm_80"):
        f.source("ptx")
    with pytest.raises(
        nf.CodegenError, match="a GPU kernel has no source in format 'asm'; there are tir, cuda and ptx"
    ):
        f.source("asm")


MULTIPLIED = {
    "tf32": (lambda: in_tf32()["product 0"], "m16n8k8.row.col.f32.tf32.tf32.f32"),
    "float16": (lambda: narrowly(matmul(128, 136, 72), "float16"), "m16n8k16.row.col.f32.f16.f16.f32"),
    "bfloat16": (lambda: narrowly(matmul(128, 136, 72), "bfloat16"), "m16n8k16.row.col.f32.bf16.bf16.f32"),
}


@pytest.mark.parametrize("dtype", MULTIPLIED)
def test_tensor_cores_multiply_what_is_in_registers(dtype):
    make, instruction = MULTIPLIED[dtype]
    subgraph, target = make(), gpu_target("nvptx", "sm_80")
    schedule = default(problem_of(subgraph), target)
    assert schedule.template == "gpu_tensor_core"
    text = codegen.source([codegen.lower(subgraph, schedule, target, "k")], target, "ptx")
    assert f"mma.sync.aligned.{instruction}" in text and ".extern" not in text and ".local" not in text
    assert ("cvt.rna.tf32.f32" in text) == (dtype == "tf32")
    assert not any(used.spills for used in resources(text, target).values())


def test_tf32_by_llvm_where_its_ptx_has_it():
    x = nf.placeholder((64, 64))
    f = nf.compile([nf.matmul(x, x)], [x], target="nvptx:sm_90", precision="tf32")
    assert "tf32.tf32.f32" in f.source("ptx")
    with pytest.raises(nf.ConfigError, match="sm_80 and newer, which target 'nvptx:sm_75'"):
        nf.compile([nf.matmul(x, x)], [x], target="nvptx:sm_75", precision="tf32")
