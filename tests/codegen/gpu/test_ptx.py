"""PTX by LLVM: what the driver can launch, with nothing left undefined, that ptxas assembles."""

import re
import shutil
import subprocess

import pytest

import neoflow as nf

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
    assert len(kernels) == len(entries) and text.count(".maxntid 256") == len(entries)
    assert ".extern" not in text


def test_a_product_and_a_sum_stay_two_operations():
    text = program("nvptx:sm_80").source("ptx")
    assert "mul.rn.f32" in text and "add.rn.f32" in text and not re.search(r"\b(mul|add|sub)\.f32", text)


def test_of_another_kind_there_is_no_text():
    x = nf.placeholder((3,))
    f = nf.compile([x + 1.0], [x], target="cuda:sm_80")
    with pytest.raises(nf.CodegenError, match=r"kernels for cuda\(sm_80\) are no ptx: compile for nvptx:sm_80"):
        f.source("ptx")
    with pytest.raises(
        nf.CodegenError, match="a GPU kernel has no source in format 'asm'; there are tir, cuda and ptx"
    ):
        f.source("asm")
