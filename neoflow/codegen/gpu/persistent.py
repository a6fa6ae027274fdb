"""Persistent kernels: the loops of `loops.persistent` as CUDA C++.

    static __device__ __forceinline__ void NAME_part0(int block, float *in0, ..., float *out0) { ... }
    extern "C" __global__ void NAME_0(float *__restrict__ m0, ...) {
      for (int turn = 0; turn < T; ++turn) { NAME_part0(blockIdx.x, m0 + turn * step, ...); ... }
    }

The functions are those that TVM prints for the kernels of a turn, but for how they begin: their block is an argument,
and their pointers may be of the same memory. The kernel's own are apart, so that what no turn writes may be read ahead;
but for memory in which a thread reads what others have written: of that a compiler has to think that a barrier changes
it. A block does the tasks of a kernel one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from neoflow.code import Code, Entry, kernel_symbol
from neoflow.codegen.gpu.compile import toolchain
from neoflow.codegen.gpu.compilers import compiler, cubin
from neoflow.codegen.gpu.cuda import cuda_source
from neoflow.codegen.gpu.kernel import Lowered, lower
from neoflow.codegen.keys import digest
from neoflow.codegen.keys import kernel_key as key_of_text
from neoflow.errors import CodegenError
from neoflow.loops.persistent import POINTS, Motion, Part, Persistent, Pointer
from neoflow.target import Target

UNROLLS = (8, 4, 2)
"""Turns written out: what they read that no turn writes is on its way together, and what one leaves to the next stays
in registers."""
MOST_LINES = 800
"""Of the kernels of all turns that are written out."""
_HEAD = re.compile(r'extern "C" __global__ void __launch_bounds__\([\d, ]+\) (\w+)\(')


def persistent_source(loop: Persistent, target: Target, name: str = "loop") -> str:
    """The kernel of a loop as CUDA C++, whole but for the headers of CUDA."""
    kernels = _kernels(loop.parts, target, name)
    text = cuda_source(list(kernels.values()), target)
    functions = _HEAD.sub(r"static __device__ __forceinline__ void \1(int nf_block, ", text)
    if "__global__" in functions:
        raise CodegenError("a kernel of a loop does not begin as expected")
    lines = functions[functions.index("nf_block") :].count("\n")
    functions = functions.replace("((int)blockIdx.x)", "nf_block")
    if "blockIdx" in functions:
        raise CodegenError("a kernel of a loop asks for its block in another way than expected")
    types = _types(loop, kernels, text)
    return f"{functions}\n{_kernel(loop, kernels, types, lines, f'{name}_0')}"


def lower_persistent(loop: Persistent, target: Target) -> tuple[str, str, Code]:
    """The key that its code is found by, its source under that name, and how it is launched."""
    plain = persistent_source(loop, target)
    key = key_of_text(digest(plain), str(target), toolchain(compiler().version()))
    symbol = kernel_symbol(key)
    source = re.sub(r"\bloop_(?=part|0\b)", f"{symbol}_", plain)
    return key, source, Code((Entry(f"{symbol}_0", loop.blocks, True, loop.threads),))


def build_persistent(source: str, target: Target) -> bytes:
    """Machine code. Raises `CodegenError`."""
    return cubin(source, target)


def _kernels(parts: Sequence[Part], target: Target, name: str) -> dict[tuple[str, str], Lowered]:
    """The kernels of a turn, each once, none of whose pointers is thought to be apart from the others."""
    found: dict[tuple[str, str], Lowered] = {}
    for p in parts:
        key = _key(p)
        if key in found:
            continue
        lowered = lower(p.subgraph, p.schedule, target, f"{name}_part{len(found)}")
        if lowered.code.faults or lowered.code.workspaces or len(lowered.code.entries) != 1:
            raise CodegenError("a kernel of a loop in one launch has a launch and no more")
        functions = tuple((n, f.with_attr("tirx.noalias", False)) for n, f in lowered.functions)
        found[key] = replace(lowered, functions=functions)
    return found


def _key(part: Part) -> tuple[str, str]:
    return part.subgraph.digest, part.schedule.to_json()


def _types(loop: Persistent, kernels: dict[tuple[str, str], Lowered], text: str) -> list[str]:
    """What CUDA C++ calls the elements of each memory, by what its kernels call them."""
    found = ["char"] * len(loop.roots)
    for part in loop.parts:
        symbol = kernels[_key(part)].code.entries[0].symbol
        head = re.search(rf"\b{symbol}\(([^()]*)\)", text)
        assert head is not None
        given = [p.replace("__restrict__", "").split("*")[0].strip() for p in head[1].split(",")]
        for pointer, kind in zip(part.pointers, given, strict=True):
            found[pointer.root] = kind
    return found


def _kernel(
    loop: Persistent, kernels: dict[tuple[str, str], Lowered], types: Sequence[str], lines: int, symbol: str
) -> str:
    apart = ("" if n in loop.mixed else " __restrict__" for n in range(len(types)))
    memory = ", ".join(f"{kind}*{a} m{n}" for n, (kind, a) in enumerate(zip(types, apart, strict=True)))
    calls = []
    for part in loop.parts:
        [entry] = kernels[_key(part)].code.entries
        given = ", ".join(_address(p, loop) for p in part.pointers)
        if loop.form == POINTS:
            calls.append(f"    {entry.symbol}(((int)blockIdx.x), {given});")
        else:
            calls += _tasks(entry, f"{entry.symbol}(task, {given});", _is_sharing(kernels[_key(part)]))
    fitting = (n for n in UNROLLS if n * lines <= MOST_LINES and n <= loop.turns)
    unroll = next(fitting, 1) if loop.form == POINTS else 1
    return "\n".join(
        [
            f'extern "C" __global__ void __launch_bounds__({loop.threads}) {symbol}({memory}) {{',
            f"  #pragma unroll {unroll}",
            f"  for (int turn = 0; turn < {loop.turns}; ++turn) {{",
            *calls,
            "  }",
            "}",
            "",
        ]
    )


def _tasks(entry: Entry, call: str, is_sharing: bool) -> list[str]:
    """All tasks of a kernel by one block; where they have shared memory they come one after the other."""
    begin = f"    for (int task = 0; task < {entry.tasks}; ++task) {{"
    between = ["      __syncthreads();"] * is_sharing
    return [begin, f"      {call}", *between, "    }", *["    __syncthreads();"] * (not is_sharing)]


def _is_sharing(kernel: Lowered) -> bool:
    """Whether its threads have shared memory."""
    return kernel.code.entries[0].shared_bytes > 0 or '"shared' in kernel.text()


def _address(pointer: Pointer, loop: Persistent) -> str:
    """Where an argument of a turn lies."""
    terms = [f"m{pointer.root}"]
    terms += [f"{pointer.offset}LL"] if pointer.offset else []
    terms += _moved(pointer.turns, "turn", loop.turns)
    terms += _moved(pointer.strands, "((int)blockIdx.x)", loop.strands)
    return " + ".join(terms)


def _moved(motion: Motion | None, counter: str, count: int) -> list[str]:
    """How far a pointer has gone, of a counter that stays below `count`."""
    if motion is None or motion.step == 0:
        return []
    place = f"({counter} + {motion.ahead})" if motion.ahead else counter
    return [
        f"{motion.step}LL * " + (place if motion.ahead + count <= motion.period else f"({place} % {motion.period})")
    ]
