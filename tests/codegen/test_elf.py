"""The linker: libraries that others accept, and object files that are refused."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.cpu import elf
from neoflow.devices import device
from neoflow.errors import CodegenError
from neoflow.loops import default_schedule
from tests.codegen.kernels import TARGET, subgraph_of

pytestmark = pytest.mark.tvm
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="links with the system's own linker")


@pytest.fixture(scope="module")
def lowered():
    x = nf.placeholder((1000,), "float64")
    s = subgraph_of([nf.tanh(x)], [x])
    return codegen.lower(s, default_schedule(s, TARGET), TARGET, "k")


@pytest.fixture(scope="module")
def object_file(lowered, tmp_path_factory):
    """What LLVM writes for a kernel that calls the C library."""
    from neoflow.codegen.cpu.compile import compiled_kernels

    path = tmp_path_factory.mktemp("elf") / "k.o"
    compiled_kernels([lowered], TARGET).write_to_file(str(path), "o")
    return path.read_bytes()


def sections(data):
    """Offset of each section header, by name."""
    start = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    strings = struct.unpack_from("<Q", data, start + 64 * names + 24)[0]
    found = {}
    for n in range(count):
        name = strings + struct.unpack_from("<I", data, start + 64 * n)[0]
        found[data[name : data.index(b"\0", name)].decode()] = start + 64 * n
    return found


@needs_cc
def test_a_c_program_links_with_it(lowered, tmp_path):
    (tmp_path / "libneoflow-k.so").write_bytes(codegen.build([lowered], TARGET))
    source = """
        #include <stdio.h>
        void k_0(void **pointers, int thread, int begin, int end);
        void k_0_body(double *x, double *y, int begin, int end);
        int main(void) {
            double x[1000], y[1000], z[1000];
            for (int i = 0; i < 1000; i++) x[i] = i / 1000.0;
            void *pointers[2] = {x, y};
            k_0(pointers, 0, 0, TASKS);
            k_0_body(x, z, 0, TASKS);
            printf("%.6f %.6f\\n", y[500], z[999]);
        }
    """.replace("TASKS", str(lowered.code.entries[0].tasks))
    (tmp_path / "main.c").write_text(source)
    command = ["cc", "main.c", "-L.", "-lneoflow-k", "-Wl,-rpath,.", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == f"{np.tanh(0.5):.6f} {np.tanh(0.999):.6f}\n"


@pytest.mark.skipif(shutil.which("readelf") is None, reason="reads it with binutils")
def test_others_read_its_tables(lowered, tmp_path):
    path = tmp_path / "k.so"
    path.write_bytes(codegen.build([lowered], TARGET))
    done = subprocess.run(["readelf", "-W", "-S", "-d", "--dyn-syms", str(path)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    for word in ("soname: [libneoflow-k.so]", ".dynsym", ".eh_frame_hdr", "UND tanh", "k_0_body"):
        assert word in done.stdout


def test_functions_can_be_unwound(lowered):
    library = device().load(codegen.build([lowered], TARGET))
    find = ctypes.CDLL("libgcc_s.so.1")._Unwind_Find_FDE
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    for symbol in ("k_0", "k_0_body"):
        bases = (ctypes.c_void_p * 3)()
        assert find(library.address(symbol) + 4, bases)
        assert bases[2] == library.address(symbol)  # where the function begins


def test_several_object_files_become_one_library(lowered):
    """What several leave open is one slot, and the kernels of all can be unwound."""
    from neoflow.codegen.cpu.compile import compiled_kernels, object_file
    from neoflow.codegen.cpu.team import team_object

    other = lowered.named("other")
    objects = [object_file(compiled_kernels([k], TARGET)) for k in (lowered, other)]
    library = device().load(elf.link([*objects, team_object()], "lib.so"))
    x = np.linspace(-1, 1, 1000)
    for name in ("k", "other"):
        y = np.zeros(1000)
        pointers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int] * 3)(library.address(f"{name}_0"))
        run(ctypes.addressof(pointers), 0, 0, max(e.tasks for e in lowered.code.entries))
        np.testing.assert_allclose(y, np.tanh(x), rtol=1e-12)
    find = ctypes.CDLL("libgcc_s.so.1")._Unwind_Find_FDE
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    for symbol in ("k_0", "k_0_body", "other_0", "other_0_body"):
        bases = (ctypes.c_void_p * 3)()
        assert find(library.address(symbol) + 4, bases) and bases[2] == library.address(symbol)


def test_what_is_no_object_file_is_refused():
    with pytest.raises(CodegenError, match="ELF"):
        elf.link([b"MZ" + bytes(100)], "lib.so")


def test_what_cannot_be_placed_is_refused(object_file):
    assert elf.link([object_file], "lib.so")[:4] == b"\x7fELF"
    at = sections(object_file)

    def changed(offset, form, value):
        data = bytearray(object_file)
        struct.pack_into(form, data, offset, value)
        return bytes(data)

    with pytest.raises(CodegenError, match="more than 2 GiB"):
        elf.link([changed(at[".text"] + 32, "<Q", 1 << 31)], "lib.so")
    with pytest.raises(CodegenError, match="memory of each thread"):
        elf.link([changed(at[".text"] + 8, "<Q", 6 | 0x400)], "lib.so")
    with pytest.raises(CodegenError, match="code to run when a library is loaded"):
        elf.link([changed(at[".text"] + 4, "<I", 14)], "lib.so")
    relocations = struct.unpack_from("<Q", object_file, at[".rela.text"] + 24)[0]
    kind = struct.unpack_from("<Q", object_file, relocations + 8)[0] & ~0xFFFFFFFF
    with pytest.raises(CodegenError, match="not to be written"):
        elf.link([changed(relocations + 8, "<Q", kind | 1)], "lib.so")
    with pytest.raises(CodegenError, match="relocation kind 99"):
        elf.link([changed(relocations + 8, "<Q", kind | 99)], "lib.so")
    symbols, size = struct.unpack_from("<QQ", object_file, at[".symtab"] + 24)
    last = symbols + size - 24
    for section, word in ((0xFFF2, "common"), (0xFFF1, "absolute")):
        with pytest.raises(CodegenError, match=word):
            elf.link([changed(last + 6, "<H", section)], "lib.so")
