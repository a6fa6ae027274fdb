"""TIR functions to machine code: the passes that lower them, LLVM, and the link to a shared library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import tvm
from tvm import tirx

from neoflow.codegen.cpu.elf import link
from neoflow.codegen.cpu.entry import entry_function, forget_source, stream_source
from neoflow.codegen.cpu.kernel import Lowered
from neoflow.codegen.keys import digest, program_digest
from neoflow.codegen.keys import kernel_key as key_of_text
from neoflow.errors import CodegenError
from neoflow.target import FEATURES, Target


@lru_cache(maxsize=1)
def toolchain() -> str:
    """What turns lowered text into machine code: TVM, LLVM, and the files here that drive and link them."""
    here = Path(__file__).parent
    files = [here / "compile.py", here / "entry.py", *here.glob("elf*.py"), *here.glob("elf/*.py")]
    llvm = tvm.get_global_func("target.llvm_version_major")()
    return f"TVM {version('apache-tvm')}, LLVM {llvm}, {program_digest(files)}"


def kernel_key(kernel: Lowered, target: Target) -> str:
    """What the code of a kernel is found by, whatever its name.

    Hashes of 64 bits stand for its bodies, whose text takes a quarter as long as their compilation. So what they follow
    from counts too: only what two versions of neoflow make of one schedule of one subgraph has to differ in them.
    """
    plain = kernel.named("kernel")
    bodies = " ".join(f"{h:x}" for h in plain.hashes())
    return key_of_text(digest(plain.source, bodies, plain.entries, plain.code.to_json()), target.mcpu, toolchain())


@lru_cache(maxsize=8)
def _tvm_target(mcpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "opt-level": 2})


def features(target: Target) -> tuple[str, ...]:
    """The instructions that code for a target may use, by the names of the system."""
    known = set(map(str, tvm.get_global_func("target.llvm_get_cpu_features")(_tvm_target(target.mcpu))))
    return tuple(sorted(name for feature, name in FEATURES.items() if feature in known))


def compiled(functions: Mapping[str, tirx.PrimFunc], mcpu: str) -> tvm.runtime.Module:
    """Plain C functions through LLVM, by the few of TVM's passes that hand-made loop nests need."""
    machine, t = _tvm_target(mcpu), tirx.transform
    named = {n: f.with_attr("global_symbol", n) for n, f in functions.items()}
    module = t.BindTarget(machine.with_host(machine))(tvm.IRModule(named))
    passes = [t.StmtSimplify(), t.LowerTVMBuiltin(), t.LowerIntrin()]  # buffers are flat as they are written
    return tvm.get_global_func("target.build.llvm")(tvm.transform.Sequential(passes)(module), machine)


def object_file(module: tvm.runtime.Module) -> bytes:
    """The machine code of a module, to be linked."""
    file = os.memfd_create("neoflow", os.MFD_CLOEXEC)  # no disk, which may be full
    try:
        path = Path(f"/proc/self/fd/{file}")
        module.write_to_file(str(path), "o")
        return path.read_bytes()
    finally:
        os.close(file)


def library(module: tvm.runtime.Module, name: str) -> bytes:
    """A shared library called `name`, as the bytes of its file; needs no C compiler and no linker."""
    return link([object_file(module)], name)


def compiled_kernels(kernels: Sequence[Lowered], target: Target) -> tvm.runtime.Module:
    """The bodies and the entries of kernels that are alike in `is_shared`."""
    names = [k.name for k in kernels]
    if len(set(names)) != len(names) or not names:
        raise CodegenError(f"a module needs kernels with distinct names, not {names}")
    if len({k.is_shared for k in kernels}) > 1:  # TVM 0.27 compiles all functions as the last one says
        raise CodegenError("kernels whose arguments may share memory need a module of their own")
    functions = {name: body for k in kernels for name, body in k.bodies}
    imported: str | None = "".join(
        [forget_source(target.registers), stream_source(target.vector_bytes), *(k.entries for k in kernels)]
    )
    for entry in (e for k in kernels for e in k.code.entries):
        functions[entry.symbol] = entry_function(entry.symbol, imported)
        imported = None
    return compiled(functions, target.mcpu)


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A shared library with the entries of every kernel. The kernels are alike in `is_shared`."""
    return library(compiled_kernels(kernels, target), f"libneoflow-{kernels[0].name}.so")


def source(kernels: Sequence[Lowered], target: Target, format: str = "tir") -> str:
    """The kernels as text: "tir" before the passes, "llvm" IR or "asm" after optimisation."""
    if format == "tir":
        return "\n".join(k.text() for k in kernels)
    kind = {"llvm": "ll", "asm": "asm"}.get(format)
    if kind is None:
        raise CodegenError(f"a CPU kernel has no source in format {format!r}; there are tir, llvm and asm")
    groups = [[k for k in kernels if k.is_shared == shared] for shared in (False, True)]
    return "\n".join(compiled_kernels(group, target).inspect_source(kind) for group in groups if group)
