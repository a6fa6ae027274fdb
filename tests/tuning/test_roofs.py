"""What a machine reaches is kept beside its kernels: once, of a quiet machine, and read back in steps."""

import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.devices import resolve_target
from neoflow.measure.roofs import measure_roofs
from neoflow.roofs import STATED, Level, Roofs
from neoflow.tuning import keep_roofs, machine_roofs

FOUND = Roofs(100.0, (Level("L2", 1 << 20, 51.0), Level("memory", None, 9.0)), start=1e-7)


def refuse(_):
    raise AssertionError("nothing is to be measured")


def test_roofs_are_measured_once_of_a_quiet_machine(tmp_path):
    target = resolve_target("cpu")
    assert machine_roofs(target, tmp_path) == STATED
    assert keep_roofs(target, tmp_path, refuse, busy=0.5) == "not kept, as other work takes 50% of the cores"
    assert machine_roofs(target, tmp_path) == STATED
    assert keep_roofs(target, tmp_path, lambda _: FOUND, busy=0.0) is None
    assert machine_roofs(target, tmp_path) == FOUND.rounded()
    assert keep_roofs(target, tmp_path, refuse, busy=0.0) is None


def test_what_cannot_be_read_is_stated(tmp_path):
    target = resolve_target("cpu")
    keep_roofs(target, tmp_path, lambda _: FOUND, busy=0.0)
    (file,) = tmp_path.iterdir()
    file.write_text(FOUND.to_text().replace("gflops", "flops"))
    assert machine_roofs(target, tmp_path) == STATED


def test_a_gpu_has_those_of_its_data_sheet(tmp_path):
    target = gpu_target("cuda", "sm_80")
    assert keep_roofs(target, tmp_path, refuse, busy=0.0) is None
    assert machine_roofs(target, tmp_path).levels[-1].gb_s == pytest.approx(1560)


@pytest.mark.tvm
def test_programs_are_divided_by_what_is_kept(tmp_path, monkeypatch):
    """Rows of 33 fill three vectors of 16: where a kernel's start takes long, they are one kernel nevertheless."""
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    x, k = nf.placeholder((8192, 33), name="x"), nf.axis(33, "k")
    top = nf.compute((8192,), lambda i: nf.max(x[i, k], axis=[k]), name="top")
    roots = [nf.compute((8192, 33), lambda i, j: nf.tanh(nf.tanh(nf.exp(x[i, j] - top[i]))), name="e")]
    assert len(nf.compile(roots, [x]).compiled.calls) == 2
    slow = Roofs(STATED.gflops, STATED.levels, start=1e-2)
    keep_roofs(resolve_target("cpu"), tmp_path, lambda _: slow, busy=0.0)
    assert len(nf.compile(roots, [x]).compiled.calls) == 1


@pytest.mark.slow
@pytest.mark.tvm
def test_every_roof_is_measured():
    found = measure_roofs(resolve_target("cpu"), 0.02)
    speeds = [v.gb_s for v in found.levels]
    assert speeds == sorted(speeds, reverse=True) and found.levels[-1].nbytes is None
    assert 0 < found.start < 1e-3 and found.gflops > 1
