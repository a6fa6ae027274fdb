"""TIR functions to machine code: the passes that lower them, LLVM, and the link to a shared library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import tvm
from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.cpu.elf import link
from neoflow.codegen.cpu.kernel import Lowered
from neoflow.codegen.tir import emit
from neoflow.errors import CodegenError
from neoflow.target import Target


def _lowered(module: tvm.IRModule) -> tvm.IRModule:
    """What hand-made loop nests need of TVM's pipeline: the calling convention, calls of the runtime, intrinsics."""
    t = tirx.transform
    first = [t.FlattenBuffer(), t.StmtSimplify(), t.AnnotateEntryFunc(), t.SplitHostDevice(), t.MakePackedAPI()]
    module = tvm.transform.Sequential(first)(module)
    unchecked = {name: f.with_body(_without_checks(f.body)) for name, f in module.functions.items()}
    module = tvm.IRModule(unchecked, attrs=module.attrs)
    return tvm.transform.Sequential([t.LowerTVMBuiltin(), t.LowerIntrin()])(module)


def _without_checks(s: ts.Stmt) -> ts.Stmt:
    """The entry of a kernel without the checks of rank, dtype, extents and strides that TVM puts before its body.

    The runtime made the arguments and knows that they fit; the checks are half of the code of a small kernel, and of
    the time to compile it.
    """
    if isinstance(s, ts.SeqStmt):
        return emit.sequence([_without_checks(x) for x in s.seq if not isinstance(x, ts.AssertStmt)])
    if isinstance(s, ts.IfThenElse):
        return _without_checks(s.then_case) if not isinstance(s.then_case, ts.AssertStmt) else emit.sequence([])
    if isinstance(s, ts.AttrStmt) and s.attr_key != "compute_scope":  # that one is the body
        return ts.AttrStmt(s.node, s.attr_key, s.value, _without_checks(s.body))
    return s


@lru_cache(maxsize=8)
def _tvm_target(mcpu: str) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "opt-level": 2})


def _compile(kernels: Sequence[Lowered], target: Target) -> tvm.runtime.Module:
    names = [k.name for k in kernels]
    if len(set(names)) != len(names) or not names:
        raise CodegenError(f"a module needs kernels with distinct names, not {names}")
    if len({k.is_shared for k in kernels}) > 1:  # TVM 0.27 compiles all bodies as the last kernel says
        raise CodegenError("kernels whose arguments may share memory need a module of their own")
    machine = _tvm_target(target.mcpu)
    module = tvm.IRModule({k.name: k.func for k in kernels})
    module = tirx.transform.BindTarget(machine.with_host(machine))(module)
    module = _lowered(module)
    return tvm.get_global_func("target.build.llvm")(module, machine)


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A shared library with every kernel, as the bytes of its file; needs no C compiler and no linker.

    The kernels are alike in `is_shared`.
    """
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
    groups = [[k for k in kernels if k.is_shared == shared] for shared in (False, True)]
    return "\n".join(_compile(group, target).inspect_source(kind) for group in groups if group)
