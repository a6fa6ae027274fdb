"""The steps of K through shared memory: one step is loaded while another is multiplied.

    one stage                          more of them
    for step:                          put the first stages - 1 steps
        fetch, put; barrier            for step:
        multiply; barrier                  barrier;  fetch step + stages - 1
                                           multiply step;  put what was fetched

What is put at a step goes where the step before was read: the barrier at its beginning lies between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.grid import Value, barrier
from neoflow.codegen.gpu.operands import Operand, Place, Slot
from neoflow.codegen.tir import emit


@dataclass(frozen=True)
class Pipeline:
    """Operands with their places and accesses; the steps of a part of K: from `first` on, `length` of them, of which
    there are `steps` in all parts."""

    operands: Sequence[tuple[Operand, Place, list[Slot]]]
    stages: int
    first: Value
    length: int | Value
    steps: int

    def begin(self) -> list:
        """What is done before the first step."""
        out: list = []
        for stage in range(self.stages - 1):
            out += self._when(emit.integer(stage), self._through(emit.integer(stage), emit.integer(stage)))
        return out

    def step(self, step: Value, multiply: Callable[[Value], list]) -> list:
        """A step; `multiply(stage)` is of what lies in a stage."""
        if self.stages == 1:
            stage = emit.integer(0)
            return [*self._through(step, stage), barrier(), *multiply(stage), barrier()]
        out: list = [barrier()]
        ahead = emit.bind(out, step + emit.integer(self.stages - 1), "ahead")
        held = [o.registers() for o, _, _ in self.operands]
        fetched: list = []
        for (operand, _, slots), registers in zip(self.operands, held, strict=True):
            out += registers.allocate()
            fetched += self._fetch(operand, slots, ahead, registers)
        out += self._when(ahead, fetched)
        out += multiply(self._stage(out, step))
        stage, put = self._stage(out, ahead), []
        for (operand, place, slots), registers in zip(self.operands, held, strict=True):
            put += operand.put(slots, place, stage, registers)
        return out + self._when(ahead, put)

    def _stage(self, out: list, step: Value) -> Value:
        return emit.bind(out, tirx.truncmod(step, emit.integer(self.stages)), "stage")

    def _fetch(self, operand: Operand, slots: list[Slot], step: Value, to: emit.Registers) -> list:
        return operand.fetch(slots, self.first + step, to)

    def _through(self, step: Value, stage: Value) -> list:
        """From memory to shared memory at once."""
        out: list = []
        for operand, place, slots in self.operands:
            registers = operand.registers()
            out += [*registers.allocate(), *self._fetch(operand, slots, step, registers)]
            out += operand.put(slots, place, stage, registers)
        return out

    def _when(self, step: Value, statements: list) -> list:
        """Only of steps that there are."""
        if isinstance(self.length, int) and isinstance(step, tirx.IntImm):
            return statements if int(step.value) < self.length else []
        length = emit.integer(self.length) if isinstance(self.length, int) else self.length
        return emit.when(step < length, statements)
