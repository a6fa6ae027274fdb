"""What outputs that slide over what they read share: the windows of convolutions, poolings and of their gradients."""

from __future__ import annotations

from neoflow.expr.ir import Axis, Select, postorder
from neoflow.loops import costs
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, reduced, stride
from neoflow.loops.sides import overlap
from neoflow.target import Target


def sharing(nest: Nest, most: int) -> int:
    """The last outputs, so many at most, that all go through one read together while a window slides over another."""
    reads, reduction, count = input_reads(reduced(nest).body), reduced(nest), 1
    if any(is_data_dependent(r) for r in reads):
        return 1
    for axis in reversed(nest.axes):
        moved = [r for r in reads if axis in r.free]
        slide = all(any(overlap(r, axis, a) for a in reduction.axes) for r in moved)
        if not slide or len(moved) == len(reads) or count * axis.extent > most:
            break
        count *= axis.extent
    return count


def side_by_side(nest: Nest, target: Target) -> int:
    """Outputs whose windows slide over one read: all of a window, as what they read is then read once."""
    return sharing(nest, min(costs.SHARED_OUTPUTS, target.registers - costs.SPARE_REGISTERS))


def slides(nest: Nest, axis: Axis, windows: tuple[Axis, ...]) -> bool:
    """Whether windows of three points and more go along an axis point by point: neighbours share most of what they
    read, and nothing is read that moves otherwise."""
    found = False
    for read in input_reads(reduced(nest).body):
        if is_data_dependent(read):
            return False
        over = [w for w in windows if axis in read.free and overlap(read, axis, w)]
        if over:
            step = abs(stride(read.indices[0], axis) or 0)
            if not any(w.extent >= costs.LONG_WINDOW and abs(stride(read.indices[0], w) or 0) == step for w in over):
                return False
            found = True
    return found


def is_shared(nest: Nest, target: Target) -> bool:
    """Whether rows of a sum of a few terms are better side by side, for what they share, than one after the other:
    under conditions where windows go point by point, or a row is half a vector."""
    reduction, rows = reduced(nest), nest.axes[-2]
    if reduction.op != "sum" or not any(isinstance(n, Select) for n in postorder(reduction.body)):
        return reduction.op == "sum"
    reads = [r for r in input_reads(reduction.body) if not is_data_dependent(r)]
    overlaps = any(overlap(r, rows, a) for r in reads for a in reduction.axes if a.extent >= costs.LONG_WINDOW)
    is_short = 2 * nest.axes[-1].extent <= target.lanes(reduction.body.dtype)
    return slides(nest, rows, reduction.axes) or (is_short and overlaps)


def is_gathered(nest: Nest, axis: Axis) -> bool:
    """Whether points of the lanes' axis that are neighbours are none in memory: a vector takes two loads and more."""
    return any(abs(stride(r.indices[0], axis) or 0) > 1 for r in input_reads(reduced(nest).body))
