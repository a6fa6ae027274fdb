"""A recurrence in strands that are blocks of one launch on a GPU, see `loops.persistent`.

What all strands read in every step comes to each block from the level-2 cache, or lies in its level-1 cache: that is
little, or a step takes longer than its launches would. Where every point goes alone, threads need no strands.
"""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.expr.ir import Read, Reduce, postorder
from neoflow.expr.recurrence import Run
from neoflow.expr.tensor import Compute, Tensor, topological
from neoflow.graph import reads_at_own_point
from neoflow.partition.strands import Strands, strands_of
from neoflow.verdict import Verdict

SHARED_BYTES = 160 << 10
"""That all strands read in a step, at most: as much as stays near a processor (sm_80: 192 KiB of level-1 cache and
shared memory), and takes 2 us to come from further away."""
LEAST_BYTES = 4
"""Of what a strand carries: blocks write lines of the level-2 cache that others write too, and wait for none."""


def blocks_of(run: Run, kept: Sequence[Tensor], processors: int) -> Strands | Verdict:
    """The strands of a run for so many processors; where there are none, or they do not pay, why.

    kept: the tensors of its body that are asked for of every step.
    """
    if is_of_points(run):
        return Verdict(False, "every point goes alone")
    return strands_of(run, kept, processors, SHARED_BYTES, LEAST_BYTES, float("inf"))


def is_of_points(run: Run) -> bool:
    """Whether all that follows from what is carried is read at its reader's own point."""
    r = run.recurrence
    follows: set[Tensor] = set(r.carried)
    for t in topological(list(r.then)):
        if not isinstance(t, Compute):
            if t.inputs and any(i in follows for i in t.inputs):
                return False
            continue
        behind = {s.position for s, i in zip(t.definition.slots, t.inputs, strict=True) if i in follows}
        reads = [e for e in postorder(t.definition.body) if isinstance(e, Read) and e.slot in behind]
        if isinstance(t.definition.body, Reduce) and reads:
            return False
        if not all(reads_at_own_point(e, t.shape) for e in reads):
            return False
        if behind:
            follows.add(t)
    return True
