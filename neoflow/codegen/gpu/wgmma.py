"""Launches of the `gpu_wgmma` template; see `loops.gpu.wgmma`.

`tiled` has the blocks and the steps of K. Here is how operands lie, so that a descriptor can say it, and the CUDA C++
of the instructions: functions named by columns, type and which operands are not along K.

Of lane 4 g + t of warp w, the sums of 64 x n are those of rows 16 w + g and 16 w + g + 8, columns 8 j + 2 t and the
next one, for every j.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.architectures import ACCESS_BYTES, WARP
from neoflow.codegen.gpu.grid import Grids, Value, called, divided
from neoflow.codegen.gpu.layouts import BANKED
from neoflow.codegen.gpu.operands import Place
from neoflow.codegen.gpu.results import Sums
from neoflow.codegen.gpu.tiled import Places, Tiled, places
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers
from neoflow.graph import TF32
from neoflow.loops.gpu.boxes import BARRIER_BYTES, Boxes
from neoflow.loops.gpu.tensor_core import element as element_of
from neoflow.loops.gpu.tensor_core import narrow
from neoflow.loops.gpu.wgmma import (
    ALIGNMENT,
    FAMILY,
    LINE_BYTES,
    ROWS,
    TERM_BYTES,
    WARPGROUP,
    WarpgroupTile,
    boxes,
    sides,
)
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule
from neoflow.target import Target

TYPES = {"float16": "f16", "bfloat16": "bf16", TF32: "tf32"}


def lower_wgmma(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """The launch of the blocks; before it, with bulk copies, one that makes maps; with K in parts, one that adds."""
    dtype, element, found = narrow(problem, schedule)[0], element_of(problem, schedule), sides(problem, schedule)
    tile, frame = FAMILY.tile(problem, buffers.target, schedule), buffers.frame(found.nest)
    left = Panels(tile.block_m, schedule["left_along"] == "k", tile.element_bytes)
    right = Panels(tile.block_n, schedule["right_along"] == "k", tile.element_bytes)
    memory = places(left, right, element, tile, ALIGNMENT, tile.stages * BARRIER_BYTES)
    overlap = int(schedule["overlap"])
    core = Warpgroup(tile, dtype, left, right, memory, overlap)
    copied = tuple(_boxes(problem, buffers.target, schedule, side) for side in ("left", "right"))
    given = (tile, (left, right), element, found.element, core, memory, (copied[0], copied[1]), overlap)
    return Tiled(frame, schedule, found.c, *given).grids()


def _boxes(problem: NestProblem, target: Target, schedule: Schedule, side: str) -> Boxes | None:
    """What the bulk copies of a side are of, where it has any."""
    if not schedule[f"{side}_bulk"]:
        return None
    found = boxes(problem, target, schedule, side)
    assert isinstance(found, Boxes)
    return found


@dataclass(frozen=True)
class Panels:
    """[rows][a line] or, of 16 bits and not along K, [rows / 64][terms][64]: lines of 128 bytes, `nbytes` an element.

    Chunk c of line i is at c xor i mod 8: the swizzle of 128 bytes that a descriptor names. along_k: how it is loaded.
    """

    rows: int
    along_k: bool
    nbytes: int

    @property
    def terms(self) -> int:
        """Of a line."""
        return LINE_BYTES // self.nbytes

    @property
    def is_turned(self) -> bool:
        """Whether lines go along rows: instructions take no others of longer elements than those along K."""
        return not self.along_k and self.nbytes == 2

    @property
    def is_in_lines(self) -> bool:
        return self.along_k or self.is_turned

    @property
    def elements(self) -> int:
        return self.rows * self.terms

    def point(self, flat: Value, lanes: int) -> tuple[Value, Value]:
        """(k, row) of an access: a warp goes along the lines or, where these are turned meanwhile, the rows."""
        if not self.is_in_lines:
            k, row = divided(flat, self.rows // lanes)
            return k, row * emit.integer(lanes)
        line, place = divided(flat, self.terms // lanes)
        place = place * emit.integer(lanes)
        if self.along_k:
            return place, line
        panel, k = divided(line, self.terms)
        return k, panel * emit.integer(self.terms) + place

    def index(self, k: Value, row: Value) -> Value:
        if not self.is_turned:
            return self._place(row, k)
        panel, column = divided(row, self.terms)
        return self._place(panel * emit.integer(self.terms) + k, column)

    def _place(self, line: Value, place: Value) -> Value:
        chunk, within = divided(place, ACCESS_BYTES // self.nbytes)
        moved = chunk ^ tirx.truncmod(line, emit.integer(BANKED))
        return line * emit.integer(self.terms) + moved * emit.integer(ACCESS_BYTES // self.nbytes) + within

    def start(self, step: int) -> int:
        """Where the terms of an instruction begin: within the lines, or some lines on."""
        return step * (TERM_BYTES // self.nbytes) * (self.terms if self.is_turned else 1)

    @property
    def panel_bytes(self) -> int:
        """From 64 rows to the next, where lines are not along K."""
        return self.terms * LINE_BYTES if self.is_turned else 0


@dataclass
class Warpgroup:
    """64 x `block_n` sums of a warpgroup."""

    tile: WarpgroupTile
    dtype: str
    left: Panels
    right: Panels
    memory: Places
    overlap: int

    def __post_init__(self) -> None:
        self.first: Value = emit.integer(0)

    def begin(self, out: list, thread: Value) -> Sums:
        """Where a warpgroup is in its block, and a thread's sums."""
        group, within = divided(thread, WARPGROUP)
        self.first = emit.bind(out, group * emit.integer(ROWS * self.left.terms), "group")
        warp, lane = divided(within, WARP)
        g, pair = divided(lane, 4)
        row = emit.bind(out, group * emit.integer(ROWS) + warp * emit.integer(ROWS // 4) + g, "row")
        acc = emit.Registers(self.tile.block_n // 8, "float32", 4)

        def column_of(v: Value) -> Value:
            return v * emit.integer(8) + pair * emit.integer(2)

        return Sums(
            acc,
            lambda i, v, j: acc.lane(v, i * 2 + j),
            2,
            acc.count,
            2,
            lambda i: row + i * emit.integer(8),
            column_of,
        )

    def publish(self) -> list:
        """What a thread has stored, for those who read by descriptors; before the barrier."""
        return [called("nf_wgmma_publish")]

    def multiply(self, acc: emit.Registers, stage: Value) -> list:
        """The terms of a step in shared memory."""
        n, sums = self.tile.block_n, [acc.address(j) for j in range(acc.count)]
        turned = "".join(str(int(layout.is_turned)) for layout in (self.left, self.right))
        name = f"nf_wgmma_n{n}_{TYPES[self.dtype]}_{turned}"
        out = [called(f"nf_wgmma_fence_n{n}", *sums)]
        for step in range(LINE_BYTES // TERM_BYTES):
            left = self._operand(self.left, self.memory.left, stage, step, self.first)
            right = self._operand(self.right, self.memory.right, stage, step, emit.integer(0))
            out.append(called(name, left, right, *sums))
        return [*out, called("nf_wgmma_commit"), self._wait(acc, self.overlap - 1)]

    def finish(self, acc: emit.Registers) -> list:
        """The multiplications that are still under way end."""
        return [self._wait(acc, 0)] if self.overlap > 1 else []

    def _wait(self, acc: emit.Registers, others: int) -> ts.Stmt:
        """For all steps but so many."""
        return called(f"nf_wgmma_wait_n{self.tile.block_n}_{others}", *(acc.address(j) for j in range(acc.count)))

    def _operand(self, layout: Panels, place: Place, stage: Value, step: int, first: Value) -> Value:
        """The descriptor of 64 rows or all columns, and the terms of an instruction."""
        at = place.at(stage, first + emit.integer(layout.start(step)))
        address = tirx.address_of(emit.load(place.buffer, at))
        return tirx.call_extern("uint64", "nf_wgmma_operand", address, emit.integer(layout.panel_bytes))


# --- CUDA C++

_NAME = re.compile(r"nf_wgmma_(?:fence_n\d+|wait_n\d+_\d|n\d+_\w+_\d\d)")


def functions(text: str) -> str:
    """The definitions of the instructions that kernels call."""
    return "".join(_defined(name) for name in sorted(set(_NAME.findall(text))))


def _defined(name: str) -> str:
    _, _, *parts = name.split("_")
    n = int(next(p for p in parts if p.startswith("n"))[1:])
    given = ", ".join(f"float* d{j}" for j in range(n // 8))
    sums = ", ".join(f'"+f"(d{j}[{i}])' for j in range(n // 8) for i in range(4))
    if parts[0] == "fence":
        return _ordering(name, given, "wgmma.fence.sync.aligned;", sums)
    if parts[0] == "wait":
        return _ordering(name, given, f"wgmma.wait_group.sync.aligned {parts[2]};", sums)
    _, dtype, turned = parts
    registers = ", ".join(f"%{i}" for i in range(n // 2))
    form = f"wgmma.mma_async.sync.aligned.m64n{n}k{_TERMS[dtype]}.f32.{dtype}.{dtype}"
    flags = "1, 1, 1" if dtype == "tf32" else f"1, 1, 1, {turned[0]}, {turned[1]}"
    code = f"{form} {{{registers}}}, %{n // 2}, %{n // 2 + 1}, {flags};\\n"
    return (
        f"NF_DEVICE void {name}(unsigned long long a, unsigned long long b, {given}) "
        f'{{ asm volatile("{code}" : {sums} : "l"(a), "l"(b)); }}\n'
    )


def _ordering(name: str, given: str, code: str, sums: str) -> str:
    """Sums are operands of these too: what is done to them stays before, or after."""
    return f'NF_DEVICE void {name}({given}) {{ asm volatile("{code}\\n" : {sums} :: "memory"); }}\n'


_TERMS = {"f16": 16, "bf16": 16, "tf32": 8}
"""Of an instruction."""
