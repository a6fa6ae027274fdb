"""Memory, loading without the compiler, what importing costs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from neoflow import codegen
from neoflow.errors import CodegenError
from neoflow.loops import default_schedule
from neoflow.runtime.device import cpu
from neoflow.runtime.device.cpu import CPU
from neoflow.runtime.device.library import Library
from neoflow.target import cpu_target


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "bfloat16", "float16"])
def test_memory_is_aligned(dtype):
    for shape in ((), (1,), (3, 5)):
        array = CPU.allocate(shape, dtype)
        assert array.shape == shape and CPU.address(array) % 64 == 0
        array[...] = 1


def test_a_view_is_inside():
    base = CPU.allocate((4, 6), "float32")
    base[...] = np.arange(24).reshape(4, 6)
    view = CPU.view(base, 24, (2, 3), "float32")
    np.testing.assert_array_equal(view, np.arange(6, 12).reshape(2, 3))
    CPU.copy(view, np.zeros((2, 3), np.float32))
    assert base[1].sum() == 0 and base[0].sum() == 15


def test_target():
    target = cpu_target(3)
    assert target.threads == 3 and target == cpu_target(3)
    assert str(target) == str(cpu_target(3)) != str(cpu_target(2))
    with pytest.raises(CodegenError, match="at least one thread"):
        cpu_target(0)


def test_schedules_and_targets_need_no_compiler():
    code = """
        import sys
        import neoflow as nf
        from neoflow.loops import default_schedule
        from neoflow.target import cpu_target
        from neoflow.runtime.device.cpu import CPU
        from neoflow.partition.subgraph import Node, Subgraph, Value
        x = nf.placeholder((8, 8), "float32")
        s = Subgraph((Value((8, 8), "float32"),), (Node((x + 1.0).definition, (0,)),), (1,))
        default_schedule(s, cpu_target())
        CPU.allocate((8, 8), "float32")
        assert "tvm" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.tvm
def test_a_library_runs_in_a_process_without_the_compiler(tmp_path):
    import neoflow as nf
    from neoflow.partition.subgraph import Node, Subgraph, Value

    x = nf.placeholder((1000,), "float32")
    s = Subgraph((Value(x.shape, x.dtype),), (Node(nf.exp(x).definition, (0,)),), (1,))
    target = cpu_target()
    kernel = codegen.lower(s, default_schedule(s, target), target, "exp")
    path, team = tmp_path / "library.so", tmp_path / "team.so"
    path.write_bytes(codegen.build([kernel], target))
    team.write_bytes(codegen.build_team())
    code = f"""
        import sys
        from pathlib import Path
        import numpy as np
        from neoflow.code import Code
        from neoflow.runtime.device.cpu import CPU
        from neoflow.runtime.device.library import Library
        from neoflow.runtime.executor import load_kernel, run_kernel
        CPU.install(lambda: Library(Path({str(team)!r}).read_bytes()))
        x, y = CPU.allocate((1000,), "float32"), CPU.allocate((1000,), "float32")
        x[...] = np.linspace(-1, 1, 1000)
        library = CPU.load(Path({str(path)!r}).read_bytes())
        kernel = load_kernel(Code.from_json({kernel.code.to_json()!r}), library)
        run_kernel(CPU, kernel, [x, y], 2)
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
        assert "tvm" not in sys.modules and "tvm_ffi" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.tvm
def test_what_looks_for_a_library_by_its_path_finds_no_other_file(tmp_path):
    """A backtrace reads the files of all loaded code: one that was opened later, and is shorter, ended the process."""
    _library = Library(codegen.build_team())
    with contextlib.ExitStack() as files:
        for n in range(8):
            files.enter_context((tmp_path / str(n)).open("w"))
        names = [name for name in _loaded() if name.startswith("/proc/self/fd")]
        assert names and not any(os.path.exists(name) for name in names)


def _loaded():
    """The paths that the dynamic loader has of loaded code."""

    class Info(ctypes.Structure):
        _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))

    found = []
    visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(visitor(lambda info, *_: found.append(info[0].name.decode()) or 0), None)
    return found


class Disturbed:
    """A clock of a processor with 2.5e9 steps a second that takes 1 us to read, or 5 ms where another program runs."""

    def __init__(self, disturbed):
        self.now, self.times, self.waits = 0.0, np.zeros(1, np.int64), iter(disturbed)

    def seconds(self):
        return self.now

    def run(self):
        self.times[0] = round(self.now * 2.5e9)
        self.now += 5e-3 if next(self.waits) else 1e-6


@pytest.mark.parametrize("disturbed", [{0}, {15}, set(range(15)), set(range(1, 16))])
def test_a_program_that_runs_in_the_middle_does_not_set_the_clock_wrong(monkeypatch, disturbed):
    clock = Disturbed(n in disturbed for n in range(16))
    monkeypatch.setattr(cpu.time, "perf_counter", clock.seconds)
    count, moment = cpu._reading(clock)
    assert abs(count / 2.5e9 - moment) <= 1e-6
