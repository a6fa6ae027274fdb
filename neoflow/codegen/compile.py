"""TIR functions to machine code: the passes that lower them, LLVM, and the link to a shared library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import tvm
from tvm import tirx

from neoflow.codegen.elf import link
from neoflow.codegen.kernel import Lowered
from neoflow.codegen.target import Target
from neoflow.errors import CodegenError


def _passes() -> list:
    """What hand-made loop nests need of TVM's pipeline: argument checks, calls of the runtime, intrinsics."""
    t = tirx.transform
    return [
        t.FlattenBuffer(),
        t.StmtSimplify(),
        t.AnnotateEntryFunc(),
        t.SplitHostDevice(),
        t.MakePackedAPI(),
        t.LowerTVMBuiltin(),
        t.LowerIntrin(),
    ]


@cache
def _tvm_target(mcpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu})


def _compile(kernels: Sequence[Lowered], target: Target) -> tvm.runtime.Module:
    names = [k.name for k in kernels]
    if len(set(names)) != len(names) or not names:
        raise CodegenError(f"a module needs kernels with distinct names, not {names}")
    machine = _tvm_target(target.mcpu)
    module = tvm.IRModule({k.name: k.func for k in kernels})
    module = tirx.transform.BindTarget(machine.with_host(machine))(module)
    module = tvm.transform.Sequential(_passes())(module)
    return tvm.get_global_func("target.build.llvm")(module, machine)


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A shared library with every kernel, as the bytes of its file; needs no C compiler and no linker."""
    module = _compile(kernels, target)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.o")
        module.write_to_file(path, "o")
        return link(Path(path).read_bytes())


def source(kernels: Sequence[Lowered], target: Target, format: str = "tir") -> str:
    """The kernels as text: "tir" before the passes, "llvm" IR or "asm" after optimisation."""
    if format == "tir":
        return "\n".join(k.text() for k in kernels)
    kind = {"llvm": "ll", "asm": "asm"}.get(format)
    if kind is None:
        raise CodegenError(f"a CPU kernel has no source in format {format!r}; there are tir, llvm and asm")
    return _compile(kernels, target).inspect_source(kind)
