"""What fusion asks of a definition, remembered: its cost, its reads, whether it contracts, moves or compares."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neoflow.expr import dtype as dt
from neoflow.expr import traits
from neoflow.expr.ir import Apply, Axis, Binder, Expr, Read, Select, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor


def reduces(t: Tensor) -> bool:
    return isinstance(t, Compute) and isinstance(t.definition.body, Binder)


@remembered
def compared(definition: Definition) -> frozenset[int]:
    """Slots whose value is compared for equality: a recomputed value may differ in its last bit."""
    found = set()
    for node in definition.nodes:
        if isinstance(node, Apply) and node.fn in ("eq", "ne") and dt.is_float(node.args[0].dtype):
            found |= {n.slot for n in postorder(node) if isinstance(n, Read)}
    return frozenset(found)


@remembered
def reads_across(definition: Definition) -> bool:
    """Whether neighbours along the last axis read what lies apart in memory."""
    last = len(definition.shape) - 1
    return any(
        a.ident == last for read in definition.reads for index in read.indices[:-1] for a in index.free
    ) and definition.shape[-1:] != (1,)


@remembered
def moves_across(definition: Definition) -> bool:
    """Whether it only moves elements, neighbours along the last axis from where others lie between them."""
    last = len(definition.shape) - 1
    if not is_view(definition) or definition.shape[-1:] == (1,):
        return False
    (read,) = definition.reads
    varied = [i for i in read.indices if i.free]
    return any(a.ident == last for i in varied for a in i.free) and all(a.ident != last for a in varied[-1].free)


@remembered
def goes_along_all(definition: Definition) -> bool:
    """Whether every read is along the last axis: a depthwise convolution whose channels lie last."""
    last = len(definition.shape) - 1
    return bool(definition.shape) and all(
        any(a.ident == last for a in read.indices[-1].free) for read in definition.reads
    )


@remembered
def is_exact(definition: Definition) -> bool:
    """Whether the value has the same bits however it is compiled."""
    return traits.is_exact(definition.body)


@remembered
def is_view(definition: Definition) -> bool:
    """One read at other indices, known before the program runs: nothing is computed."""
    body = definition.body
    return isinstance(body, Read) and not any(isinstance(n, Read) for i in body.indices for n in postorder(i))


@remembered
def looks_up(definition: Definition) -> bool:
    """Whether a read has an index that is itself read from a tensor."""
    return any(_is_data(i) for read in definition.reads for i in read.indices)


@remembered
def looks_up_by_element(definition: Definition) -> bool:
    """Whether neighbours in memory look up elements of their own, or look up under conditions: one at a time."""
    last = len(definition.shape) - 1
    indices = [i for read in definition.reads for i in read.indices if _is_data(i)]
    has_condition = any(isinstance(n, Select) or n.dtype == "bool" for n in definition.nodes)
    return bool(indices) and (has_condition or any(a.ident == last for i in indices for a in i.free))


def _is_data(index: Expr) -> bool:
    return any(isinstance(n, Read) for n in postorder(index))


@remembered
def looked_up_axes(definition: Definition, slot: int, through: frozenset[int] = frozenset()) -> frozenset[int]:
    """Dimensions of what is read in a slot that get an index read from data; `through`: own axes that do."""
    return frozenset(
        d
        for read in definition.reads
        if read.slot == slot
        for d, index in enumerate(read.indices)
        if _is_data(index) or any(a.ident in through for a in index.free)
    )


@remembered
def checked_axes(definition: Definition) -> frozenset[int]:
    """Axes that, whatever else holds, are themselves the index of a dimension of their own extent.

    An index that leaves such an axis leaves the tensor that is read, too: what checks the one checks the other.
    """
    found, stack = set(), [definition.body]
    while stack:
        e = stack.pop()
        if isinstance(e, Read):
            found |= {
                i.ident for i, n in zip(e.indices, e.source.shape, strict=True) if isinstance(i, Axis) and i.extent == n
            }
        if isinstance(e, Select) or (isinstance(e, Apply) and e.fn in ("and", "or")):
            stack.append(e.children[0])
        else:
            stack += e.children
    return frozenset(found).intersection(range(len(definition.shape)))


@remembered
def reads_columns(definition: Definition, rows: int | tuple[int, ...]) -> bool:
    """Whether a read that goes along a row strides through memory, neighbours belonging to other rows; rows: the
    dimensions that number them, or how many of the leading ones do."""
    own = range(rows) if isinstance(rows, int) else rows
    return any(goes_across(read.indices, own) for read in definition.reads)


def goes_across(indices: Sequence[Expr], rows: Collection[int]) -> bool:
    """Whether what is read at these indices along a row has its neighbours in other rows; rows: as above."""
    inside = [any(a.ident not in rows for a in i.free) for i in indices]
    return any(inside) and bool(indices[-1].free) and not inside[-1]
