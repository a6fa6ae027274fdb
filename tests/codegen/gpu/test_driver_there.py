"""On a machine with CUDA's runtime and a driver TVM itself compiles every source it makes; ours it must not touch."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm
CALLED = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""What TVM's library for CUDA takes of a driver."""
SOURCE = """
import tvm
import tvm_ffi
assert tvm.get_global_func("ffi.Module.create.cuda", allow_missing=True), "TVM has not found CUDA"
compiled = []
tvm_ffi.register_global_func("tvm_callback_cuda_compile", lambda code: compiled.append(code) or b"", override=True)
import neoflow as nf
x = nf.placeholder((33, 65))
w = nf.placeholder((65, 17))
for target in ("cuda:sm_90", "nvptx:sm_90"):
    program = nf.compile([nf.matmul(nf.tanh(x), w)], [x, w], target=target).compiled
    print(target, "is built" if program.kernels else "")
tvm.get_global_func("tvm_callback_cuda_compile")("another's source")
print(*compiled)
"""


def runtime() -> Path | None:
    """The folder of CUDA's runtime, of the extra `cuda`."""
    found = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (found.submodule_search_locations or [])] if found is not None else []
    return next((file.parent for place in places for file in place.glob("*/lib/libcudart.so.13")), None)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver's stand-in is written in C")
def test_tvm_compiles_no_source_of_ours(tmp_path):
    folder = runtime()
    assert folder is not None, "CUDA's runtime 13 is not installed: pip install 'neoflow[cuda]'"
    stand_in = tmp_path / "libcuda.so.1"
    code = "".join(f"int {name}(void) {{ return 100; }}\n" for name in CALLED)
    command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(stand_in)]
    subprocess.run(command, input=code, text=True, check=True)
    there = {"LD_LIBRARY_PATH": f"{tmp_path}:{folder}", "NEOFLOW_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", SOURCE], env=os.environ | there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["cuda:sm_90 is built", "nvptx:sm_90 is built", "another's source"]
