"""A kernel that does nothing but fused multiply-adds: what this machine's arithmetic can reach."""

from __future__ import annotations

from neoflow.codegen.cpu.kernel import Lowered, assemble
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.target import Target

CHAINS = 12
"""Independent accumulators: more than latency times throughput of a multiply-add, and few enough for 16 registers."""


def fma_kernel(target: Target, iterations: int, name: str = "nf_fma_peak") -> tuple[Lowered, int]:
    """A kernel (x [lanes], y [threads * CHAINS * lanes]), float32, and the floating-point operations of a call.

    Every accumulator a becomes a * x + x `iterations` times, then goes to y; each of `threads` tasks has `CHAINS`.
    """
    lanes = target.lanes("float32")
    size = target.threads * CHAINS * lanes
    x, y = emit.buffer(lanes, "float32", "x"), emit.buffer(size, "float32", "y")

    def task(t):
        acc, factor = emit.Registers(CHAINS, "float32", lanes), emit.Registers(1, "float32", lanes, "x")
        statements = [
            *acc.allocate(),
            *factor.allocate(),
            factor.put(0, emit.load(x, emit.ramp(emit.integer(0), 1, lanes))),
        ]
        statements += [acc.put(c, emit.splat(float(c), "float32", lanes)) for c in range(CHAINS)]
        statements += emit.loop(
            iterations,
            lambda _: [acc.put(c, emit.fma(acc.get(c), factor.get(0), factor.get(0))) for c in range(CHAINS)],
        )
        for c in range(CHAINS):
            at = emit.ramp((t * emit.integer(CHAINS) + emit.integer(c)) * emit.integer(lanes), 1, lanes)
            statements.append(emit.store(y, at, acc.get(c)))
        return statements

    phases = Phases((Phase(target.threads, task, is_parallel=True),))
    lowered = assemble(name, phases, (x, y), False, emit.Faults())
    return lowered, 2 * size * iterations
