"""What is said of a GPU: the emulator's, none, and kernels that every architecture's compiler takes."""

import shutil

import pytest

from neoflow import codegen
from neoflow.architectures import ARCHITECTURES, gpu_target
from neoflow.codegen.gpu import ceiling
from neoflow.report import machine
from neoflow.report.gpu import examine_gpu, measure_gpu
from tests.emulator.driver import emulated


def test_every_ceiling_is_measured(monkeypatch):
    monkeypatch.setattr(ceiling, "ROUNDS", 1)
    monkeypatch.setattr(ceiling, "COPIES", 1)
    monkeypatch.setattr("neoflow.report.gpu.COPY_BYTES", 1 << 16)
    monkeypatch.setattr("neoflow.report.gpu.LAUNCHES", 3)
    place = emulated(monkeypatch)
    monkeypatch.setattr(ceiling, "cubin", lambda source, _: b"#define NEOFLOW_EMULATED\n" + source.encode())
    found = measure_gpu(place, repeats=1)
    assert codegen.ceilings(gpu_target("cuda", "sm_75"))[-1].mma == "nf_mma_m16n8k8_f16"
    assert set(found) == {c.name for c in codegen.ceilings(gpu_target("cuda", "sm_80"))} | {"launch in a graph"}
    assert all(v > 0 for v in found.values())


def test_it_says_what_is_here_and_what_is_not(monkeypatch):
    place = emulated(monkeypatch)
    said = examine_gpu(measure=False)
    assert said.gpu == "emulator (sm_80)" and said.driver == "13.0" and said.memory_bytes == place.driver.gpu.nbytes
    assert "emulator (sm_80), 4.0 GiB, driver 13.0" in said.lines()["GPU"]


def test_a_machine_without_a_gpu_says_why():
    said = examine_gpu()
    assert said.gpu is None and said.missing and said.lines()["GPU"] == f"none: {said.missing}"


def test_the_doctor_says_what_ptx_needs(monkeypatch):
    monkeypatch.setattr(machine, "fma_gflops", lambda target: 1.0)
    monkeypatch.setattr(machine, "bandwidth_gb_s", lambda target, nbytes: 1.0)
    monkeypatch.setattr(codegen, "missing", lambda target: f"nothing for {target.kind}")
    assert machine.examine().missing["libdevice"] == "the target nvptx: nothing for nvptx"
    monkeypatch.setattr(codegen, "missing", lambda target: None)
    assert "libdevice" not in machine.examine().missing


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_kernels_are_compiled(name):
    assert codegen.ceilings_module(gpu_target("cuda", name))[:4] == b"\x7fELF"
