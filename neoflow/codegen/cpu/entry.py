"""The C functions of a kernel: a body of pointers for each phase, and the entry that takes them from an array.

void NAME_0_body(float *in0, ..., int begin, int end)
void NAME_0(void **pointers, int thread, int begin, int end)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import stmt as ts

from neoflow.codegen.tir import emit
from neoflow.expr import dtype as dt


def forget_registers() -> ts.Stmt:
    """Nothing is kept in a vector register across this place: a register tile needs all of them.

    LLVM moves the constants of a long epilogue out of the loops around a tile, holds them in registers while K is gone
    through, and spills accumulators for them at every step.
    """
    return ts.Evaluate(tirx.call_extern("void", _FORGET))


_FORGET = "nf_forget_registers"


def forget_source(registers: int) -> str:
    """LLVM IR of `forget_registers` for so many vector registers."""
    lost = ",".join(f"~{{xmm{n}}}" for n in range(registers))
    return f'define void @{_FORGET}() {{\n  call void asm sideeffect "", "{lost}"()\n  ret void\n}}\n'


_ELEMENTS = {"float32": "float", "float64": "double", "int32": "i32", "int64": "i64"}
"""As LLVM calls the types that are stored past the caches."""


def stream_source(vector_bytes: int) -> str:
    """LLVM IR of `emit.stream` and `emit.settle` for vectors of one and of two registers of so many bytes.

    Where such a store does not begin at a whole register, a processor refuses it.
    """
    lines = [
        f"define void @{emit.SETTLE}() {{",
        '  call void asm sideeffect "sfence", "~{memory}"()',
        "  ret void",
        "}",
    ]
    for element, llvm in _ELEMENTS.items():
        lanes = vector_bytes // dt.itemsize(element)
        for count in (lanes, 2 * lanes):
            vector = f"<{count} x {llvm}>"
            lines += [
                f"define void @{emit.STREAM}_{count}_{element}(ptr %p, {vector} %v) {{",
                "  %n = ptrtoint ptr %p to i64",
                f"  %o = and i64 %n, {vector_bytes - 1}",
                "  %b = icmp eq i64 %o, 0",
                "  br i1 %b, label %past, label %plain",
                "past:",
                f"  store {vector} %v, ptr %p, align {vector_bytes}, !nontemporal !0",
                "  ret void",
                "plain:",
                f"  store {vector} %v, ptr %p, align {dt.itemsize(element)}",
                "  ret void",
                "}",
            ]
    return "\n".join([*lines, "!0 = !{i32 1}", ""])


def body_function(
    name: str, buffers: Sequence[tirx.Buffer], statements: emit.Tasks, shared: bool, streamed: bool = False
) -> tirx.PrimFunc:
    """The tasks from `begin` to `end` over these buffers; `shared`: two of them may be the same memory. `streamed`:
    they store past the caches."""
    pointers = [tirx.Var(b.name, PointerType(PrimType(str(b.ty.dtype)))) for b in buffers]
    views = [ts.DeclBuffer(b, data=p) for b, p in zip(buffers, pointers, strict=True)]
    body = emit.sequence([*views, *statements.statements, *([emit.settle()] if streamed else [])])
    func = tirx.PrimFunc([*pointers, statements.begin, statements.end], body).with_attr("global_symbol", name)
    return func.with_attr("tirx.noalias", not shared)  # without it LLVM loads inputs after stores over them


def entry_source(symbol: str, body: str, count: int, offsets: Mapping[int, int]) -> str:
    """LLVM IR of what an entry does; for pointers in `offsets`, the pieces of two threads are so many bytes apart.

    The body is called, not taken in: LLVM would compile it twice.
    """
    lines = [f"declare void @{body}({', '.join(['ptr'] * count + ['i32', 'i32'])})"]
    lines.append(f"define void @{symbol}_call(ptr %p, i32 %thread, i32 %begin, i32 %end) {{")
    if offsets:
        lines.append("  %t = zext i32 %thread to i64")
    for n in range(count):
        lines.append(f"  %a{n} = getelementptr ptr, ptr %p, i64 {n}")
        lines.append(f"  %v{n} = load ptr, ptr %a{n}")
        if n in offsets:
            lines.append(f"  %o{n} = mul i64 %t, {offsets[n]}")
            lines.append(f"  %w{n} = getelementptr i8, ptr %v{n}, i64 %o{n}")
    values = ", ".join(f"ptr %{'w' if n in offsets else 'v'}{n}" for n in range(count))
    lines.append(f"  tail call void @{body}({values + ', ' if values else ''}i32 %begin, i32 %end) noinline")
    lines += ["  ret void", "}", ""]
    return "\n".join(lines)


def c_function(parameters: Sequence[tirx.Var], called: str, imported: str | None = None) -> tirx.PrimFunc:
    """An exported function that calls `called`, a function of LLVM IR; `imported` is taken into the module."""
    body: ts.Stmt = ts.Evaluate(tirx.call_extern("void", called, *parameters))
    if imported is not None:
        body = ts.AttrStmt(emit.integer(0), "pragma_import_llvm", tvm.ir.StringImm(imported), body)
    return tirx.PrimFunc(list(parameters), body)


def entry_function(symbol: str, imported: str | None = None) -> tirx.PrimFunc:
    """The exported entry of a phase; the module imports `imported` with it."""
    types = {"pointers": "handle", "thread": "int32", "begin": "int32", "end": "int32"}
    return c_function([tirx.Var(n, t) for n, t in types.items()], f"{symbol}_call", imported)
