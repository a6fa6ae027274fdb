"""The steps of K through shared memory: one step is loaded while another is multiplied.

    one stage                          more of them
    for step:                          put the first `ahead` = stages - overlap steps
        fetch, put; barrier            for step:
        multiply; barrier                  barrier;  fetch step + ahead
                                           multiply step;  put what was fetched

What is put at a step goes where step - overlap was read, whose multiplication has ended: the barrier at the beginning
lies between the two. Operands that are copied are on their way from where the others are fetched; a step waits for its
own copies before its barrier, be they the threads' own or bulk copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.bulk import Bulk
from neoflow.codegen.gpu.grid import Value, barrier, called
from neoflow.codegen.gpu.operands import Env, Operand, Place, Slot
from neoflow.codegen.tir import emit


@dataclass(frozen=True)
class BlockBoxes:
    """What a block takes of sides that come by bulk copies; at: the first row of each."""

    bulk: Bulk
    thread: Value
    at: tuple[Value, ...]
    env: Env

    def begin(self) -> list:
        return self.bulk.begin(self.thread)

    def copy(self, step: Value, stage: Value) -> list:
        return self.bulk.copy(self.thread, self.at, self.env, step, stage)

    def wait(self, step: Value, stage: Value) -> list:
        return self.bulk.wait(step, stage)


@dataclass(frozen=True)
class Pipeline:
    """Operands with their places and accesses; the steps of a part of K: from `first` on, `length` of them.

    overlap: steps whose multiplications may be under way at a time. publish: what is done before a barrier after which
    others multiply what was stored. boxes: of sides that come by bulk copies.
    """

    operands: Sequence[tuple[Operand, Place, list[Slot]]]
    boxes: BlockBoxes | None
    stages: int
    overlap: int
    first: Value
    length: int | Value
    publish: Callable[[], list]

    def begin(self) -> list:
        """What is done before the first step."""
        out = self.boxes.begin() if self.boxes is not None else []
        for stage in range(self._ahead):
            out += self._when(emit.integer(stage), self._through(emit.integer(stage), emit.integer(stage)))
            out += self._commit()
        return out

    def step(self, step: Value, multiply: Callable[[Value], list]) -> list:
        """A step; `multiply(stage)` is of what lies in a stage."""
        if self.stages == 1:
            stage = emit.integer(0)
            return [*self._through(step, stage), *self.publish(), barrier(), *multiply(stage), barrier()]
        out: list = []
        stage = self._stage(out, step)
        out += [*self._wait(step, stage), *self.publish(), barrier()]
        ahead = emit.bind(out, step + emit.integer(self._ahead), "ahead")
        into = self._stage(out, ahead)
        held = {id(o): o.registers() for o, _, _ in self.operands if not o.is_copied}
        fetched, put = self._brought(ahead, into), []
        for operand, place, slots in self.operands:
            if operand.is_copied:
                fetched += operand.copy(slots, self.first + ahead, place, into)
                continue
            registers = held[id(operand)]
            out += registers.allocate()
            fetched += operand.fetch(slots, self.first + ahead, registers)
            put += operand.put(slots, place, into, registers)
        out += [*self._when(ahead, fetched), *self._commit()]
        out += multiply(stage)
        return out + (self._when(ahead, put) if put else [])

    @property
    def _ahead(self) -> int:
        """Steps that are on their way while one is multiplied."""
        return self.stages - self.overlap

    def _brought(self, step: Value, stage: Value) -> list:
        """The bulk copies of a step are begun."""
        return [] if self.boxes is None else self.boxes.copy(self.first + step, stage)

    @property
    def _copies(self) -> bool:
        return any(o.is_copied for o, _, _ in self.operands)

    def _commit(self) -> list:
        """The copies of a step are a group, be there any or not."""
        return [called("nf_cp_async_commit")] if self._copies else []

    def _wait(self, step: Value, stage: Value) -> list:
        """For all groups of copies but those of the steps ahead, and for what bulk copies bring."""
        own = [called(f"nf_cp_async_wait_{self._ahead - 1}")] if self._copies else []
        return own if self.boxes is None else [*own, *self.boxes.wait(step, stage)]

    def _stage(self, out: list, step: Value) -> Value:
        return emit.bind(out, tirx.truncmod(step, emit.integer(self.stages)), "stage")

    def _through(self, step: Value, stage: Value) -> list:
        """From memory to shared memory at once, or on the way there."""
        out = self._brought(step, stage)
        for operand, place, slots in self.operands:
            if operand.is_copied:
                out += operand.copy(slots, self.first + step, place, stage)
                continue
            registers = operand.registers()
            out += [*registers.allocate(), *operand.fetch(slots, self.first + step, registers)]
            out += operand.put(slots, place, stage, registers)
        return out

    def _when(self, step: Value, statements: list) -> list:
        """Only of steps that there are."""
        if isinstance(self.length, int) and isinstance(step, tirx.IntImm):
            return statements if int(step.value) < self.length else []
        length = emit.integer(self.length) if isinstance(self.length, int) else self.length
        return emit.when(step < length, statements)
