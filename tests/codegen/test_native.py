"""Loading without the compiler, arrays as arguments, the target, what importing costs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from neoflow import codegen
from neoflow.codegen.cpu import elf
from neoflow.errors import CodegenError, RuntimeFault
from neoflow.loops import default_schedule
from neoflow.runtime import native
from neoflow.target import cpu_target


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "bfloat16", "float16"])
def test_empty_is_aligned_and_an_argument(dtype):
    for shape in ((), (1,), (3, 5)):
        array = native.empty(shape, dtype)
        assert array.shape == shape and array.ctypes.data % 64 == 0
        array[...] = 1
        native.as_argument(array)


def test_strided_arrays_are_refused():
    with pytest.raises(RuntimeFault, match="dense row-major"):
        native.as_argument(np.zeros((4, 4), np.float32).T[1:])


def test_target():
    target = cpu_target(3)
    assert target.threads == 3 and target == cpu_target(3)
    assert str(target) == str(cpu_target(3)) != str(cpu_target(2))
    with pytest.raises(CodegenError, match="at least one thread"):
        cpu_target(0)
    assert len(codegen.CODEGEN_VERSION) == 16


def test_the_linker_refuses_what_is_no_object_file():
    with pytest.raises(CodegenError, match="ELF"):
        elf.link(b"MZ" + bytes(100))


def test_schedules_and_targets_need_no_compiler():
    code = """
        import sys
        import neoflow as nf
        from neoflow.loops import default_schedule
        from neoflow.target import cpu_target
        from neoflow.runtime import native
        from neoflow.partition.subgraph import Stage, Subgraph, Value
        x = nf.placeholder((8, 8), "float32")
        s = Subgraph((Value((8, 8), "float32"),), (Stage((x + 1.0).definition, (0,)),), (1,))
        default_schedule(s, cpu_target())
        native.configure_threads(1)
        assert "tvm" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.tvm
def test_a_library_runs_in_a_process_without_the_compiler(tmp_path):
    import neoflow as nf
    from neoflow.partition.subgraph import Stage, Subgraph, Value

    x = nf.placeholder((1000,), "float32")
    s = Subgraph((Value(x.shape, x.dtype),), (Stage(nf.exp(x).definition, (0,)),), (1,))
    target = cpu_target()
    kernel = codegen.lower(s, default_schedule(s, target), target, "exp")
    path = tmp_path / "library.so"
    path.write_bytes(codegen.build([kernel], target))
    code = f"""
        import sys
        import numpy as np
        from neoflow.runtime import native
        native.configure_threads(2)
        x, y = native.empty((1000,), "float32"), native.empty((1000,), "float32")
        x[...] = np.linspace(-1, 1, 1000)
        native.load({str(path)!r}).get("exp")(native.as_argument(x), native.as_argument(y))
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
        assert "tvm" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
