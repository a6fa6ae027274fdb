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

from neoflow.architectures import WARP
from neoflow.codegen.gpu.grid import Grids, Value, called, divided
from neoflow.codegen.gpu.layouts import BANKED
from neoflow.codegen.gpu.operands import Place
from neoflow.codegen.gpu.results import Sums
from neoflow.codegen.gpu.tiled import Places, Tiled, places
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers
from neoflow.loops.gpu.tensor_core import narrow
from neoflow.loops.gpu.wgmma import ALIGNMENT, LINE, ROWS, TERMS, WARPGROUP, WarpgroupTile, tile_of
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule

TYPES = {"float16": "f16", "bfloat16": "bf16"}
CHUNK = 8
"""Elements of 16 bytes."""


def lower_wgmma(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """The launch of the blocks; with K in parts, one that adds these."""
    element, found = narrow(problem, schedule)
    tile, frame = tile_of(problem, buffers.target, schedule), buffers.frame(found.nest)
    left = Panels(tile.block_m, schedule["left_along"] == "k")
    right = Panels(tile.block_n, schedule["right_along"] == "k")
    memory = places(left, right, element, tile, ALIGNMENT)
    core = Warpgroup(tile, element, left, right, memory)
    return Tiled(frame, schedule, found.c, tile, (left, right), element, found.element, core, memory).grids()


@dataclass(frozen=True)
class Panels:
    """[rows][64] or, not along K, [rows / 64][terms][64], of 16 bits: lines of 128 bytes.

    Chunk c of line i is at c xor i mod 8: the swizzle of 128 bytes that a descriptor names.
    """

    rows: int
    along_k: bool

    @property
    def terms(self) -> int:
        return LINE

    @property
    def is_in_lines(self) -> bool:
        return True

    @property
    def elements(self) -> int:
        return self.rows * LINE

    def point(self, flat: Value, lanes: int) -> tuple[Value, Value]:
        """(k, row) of an access: a warp goes along the lines."""
        line, place = divided(flat, LINE // lanes)
        place = place * emit.integer(lanes)
        if self.along_k:
            return place, line
        panel, k = divided(line, LINE)
        return k, panel * emit.integer(LINE) + place

    def index(self, k: Value, row: Value) -> Value:
        if self.along_k:
            return self._place(row, k)
        panel, column = divided(row, LINE)
        return self._place(panel * emit.integer(LINE) + k, column)

    def _place(self, line: Value, place: Value) -> Value:
        chunk, within = divided(place, CHUNK)
        moved = chunk ^ tirx.truncmod(line, emit.integer(BANKED))
        return line * emit.integer(LINE) + moved * emit.integer(CHUNK) + within

    def start(self, step: Value) -> Value:
        """Where the terms of an instruction begin: within the lines, or some lines on."""
        return step * emit.integer(TERMS if self.along_k else TERMS * LINE)


@dataclass
class Warpgroup:
    """64 x `block_n` sums of a warpgroup."""

    tile: WarpgroupTile
    element: str
    left: Panels
    right: Panels
    memory: Places

    def __post_init__(self) -> None:
        self.first: Value = emit.integer(0)

    def begin(self, out: list, thread: Value) -> Sums:
        """Where a warpgroup is in its block, and a thread's sums."""
        group, within = divided(thread, WARPGROUP)
        self.first = emit.bind(out, group * emit.integer(ROWS * LINE), "group")
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
        turned = f"{int(not self.left.along_k)}{int(not self.right.along_k)}"
        name = f"nf_wgmma_n{n}_{TYPES[self.element]}_{turned}"
        out = [called(f"nf_wgmma_fence_n{n}", *sums)]
        for step in range(LINE // TERMS):
            left = self._operand(self.left, self.memory.left, stage, step, self.first)
            right = self._operand(self.right, self.memory.right, stage, step, emit.integer(0))
            out.append(called(name, left, right, *sums))
        return [*out, called(f"nf_wgmma_wait_n{n}", *sums)]

    def _operand(self, layout: Panels, place: Place, stage: Value, step: int, first: Value) -> Value:
        """The descriptor of 64 rows or all columns, and the terms of an instruction."""
        at = place.at(stage, first + layout.start(emit.integer(step)))
        panel = 0 if layout.along_k else LINE * LINE * 2
        address = tirx.address_of(emit.load(place.buffer, at))
        return tirx.call_extern("uint64", "nf_wgmma_operand", address, emit.integer(panel))


# --- CUDA C++

_NAME = re.compile(r"nf_wgmma_(?:n\d+_\w+_\d\d|fence_n\d+|wait_n\d+)")


def functions(text: str) -> str:
    """The definitions of the instructions that kernels call."""
    return "".join(_defined(name) for name in sorted(set(_NAME.findall(text))))


def _defined(name: str) -> str:
    _, _, *parts = name.split("_")
    n = int(next(p for p in parts if p.startswith("n"))[1:])
    given = ", ".join(f"float* d{j}" for j in range(n // 8))
    sums = ", ".join(f'"+f"(d{j}[{i}])' for j in range(n // 8) for i in range(4))
    if parts[0] in _ORDER:
        return f'NF_DEVICE void {name}({given}) {{ asm volatile("{_ORDER[parts[0]]}" : {sums} :: "memory"); }}\n'
    _, dtype, turned = parts
    registers = ", ".join(f"%{i}" for i in range(n // 2))
    form = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype}"
    flags = f"1, 1, 1, {turned[0]}, {turned[1]}"
    code = f"{form} {{{registers}}}, %{n // 2}, %{n // 2 + 1}, {flags};\\n"
    return (
        f"NF_DEVICE void {name}(unsigned long long a, unsigned long long b, {given}) "
        f'{{ asm volatile("{code}" : {sums} : "l"(a), "l"(b)); }}\n'
    )


_ORDER = {
    "fence": "wgmma.fence.sync.aligned;\\n",
    "wait": "wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\\n",
}
"""Sums are operands of these too: what is done to them stays before, or after."""
