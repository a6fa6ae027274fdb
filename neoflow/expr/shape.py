"""Functions that move elements: NumPy's names and conventions, each an ordinary compute that reads its argument."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow.errors import ExpressionError
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.dsl import Operand, checked_dims, checked_dtype, checked_shape, read
from neoflow.expr.ir import Const, Expr, caller
from neoflow.expr.tensor import Compute, Tensor


def _fail(message: str) -> ExpressionError:
    return ExpressionError(message, caller())


def _make(shape: Sequence[int], body: Callable[[tuple[Expr, ...]], Operand], name: str) -> Compute:
    """The compute whose element at the tuple of axes `ix` is `body(ix)`."""
    where = caller()
    axes = dsl.unnamed_axes(shape, where)
    return define(tuple(shape), axes, dsl.as_expr(body(axes), "float32"), name, where)


def _tensor(x: Any, fn: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise _fail(f"{fn} takes a tensor, not {x!r} of type {type(x).__name__}")
    return x


def _tensors(xs: Any, fn: str) -> list[Tensor]:
    if isinstance(xs, Tensor) or not isinstance(xs, Sequence) or not len(xs):
        raise _fail(f"{fn} takes a list of one or more tensors, not {xs!r}")
    return [_tensor(x, fn) for x in xs]


def _dim(x: Tensor, axis: Any, fn: str, rank: int | None = None) -> int:
    """One dimension number of `x` (or of a result of `rank`), made non-negative."""
    n = x.rank if rank is None else rank
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise _fail(f"{fn} takes one dimension number as axis, not {axis!r}")
    if not -n <= axis < n:
        raise _fail(f"{fn}: {x.name} has shape {x.shape}; axis {axis} is not in [{-n}, {n})")
    return int(axis) % n


def _int(value: Any, what: str) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise _fail(f"{what} is {value!r}; it is an integer")
    return int(value)


def _constant(value: float, dtype: str, fn: str) -> Const:
    """`value` as a constant of exactly `dtype`."""
    if isinstance(value, (float, np.floating)) and not dt.is_float(dtype):
        raise _fail(f"{fn} fills a tensor of type {dtype} with the float {value!r}; give a value of type {dtype}")
    return Const(value, dtype, caller())


def _at(ix: Sequence[Any], axis: int, *new: Any) -> tuple[Any, ...]:
    """`ix` with the index at `axis` replaced by `new`."""
    return (*ix[:axis], *new, *ix[axis + 1 :])


# ------------------------------------------------------------------------------------------------- new views of one


def reshape(x: Tensor, shape: Sequence[int] | int, *more: int) -> Tensor:
    """The elements of x in row-major order under another shape; one extent may be -1 (what is left).

    Dimensions that stay are indexed by one axis, merged ones by `i // n` and `i % n`, split ones by `n*i + j`.
    """
    x = _tensor(x, "reshape")
    dims = [shape, *more] if isinstance(shape, (int, np.integer)) else list(shape)
    if dims.count(-1) > 1:
        raise _fail(f"reshape to {tuple(dims)}: at most one extent may be -1")
    known = math.prod(n for n in dims if n != -1)
    if -1 in dims and known > 0 and x.size % known == 0:
        dims[dims.index(-1)] = x.size // known
    if any(n != -1 for n in dims) and -1 not in dims:
        dims = list(checked_shape(dims))
    if -1 in dims or math.prod(dims) != x.size:
        raise _fail(
            f"{x.name} of shape {x.shape} has {x.size} elements and does not reshape to {tuple(dims)} "
            f"({math.prod(n for n in dims if n != -1)} elements{', times the extent -1' if -1 in dims else ''})"
        )

    def body(ix: tuple[Expr, ...]) -> Operand:
        indices: list[Operand] = [0] * x.rank
        for source, target in _groups(x.shape, tuple(dims)):
            linear = ix[target[0]]
            for d in target[1:]:
                linear = linear * dims[d] + ix[d]
            stride = math.prod(x.shape[d] for d in source)
            for n, d in enumerate(source):
                stride //= x.shape[d]
                part = linear // stride if stride > 1 else linear
                indices[d] = part % x.shape[d] if n else part
        return read(x, indices)

    return _make(dims, body, "reshape")


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of equal product, as (old, new) dimension numbers; dimensions of extent 1 are left out."""
    a = [d for d, n in enumerate(old) if n > 1]
    b = [d for d, n in enumerate(new) if n > 1]
    groups = []
    while a and b:
        source, target = [a.pop(0)], [b.pop(0)]
        p, q = old[source[0]], new[target[0]]
        while p != q:
            if p < q:
                source.append(a.pop(0))
                p *= old[source[-1]]
            else:
                target.append(b.pop(0))
                q *= new[target[-1]]
        groups.append((source, target))
    return groups


def ravel(x: Tensor) -> Tensor:
    """x as one dimension, in row-major order."""
    return reshape(x, (-1,))


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Dimension n of the result is dimension axes[n] of x; None reverses them."""
    x = _tensor(x, "transpose")
    order = list(range(x.rank))[::-1] if axes is None else [_dim(x, a, "transpose") for a in axes]
    if sorted(order) != list(range(x.rank)):
        raise _fail(f"transpose of {x.name} (rank {x.rank}) takes each dimension once, not axes {tuple(order)}")
    place = [order.index(d) for d in range(x.rank)]
    return _make([x.shape[d] for d in order], lambda ix: read(x, [ix[n] for n in place]), "transpose")


def swapaxes(x: Tensor, a: int, b: int) -> Tensor:
    """x with two dimensions exchanged."""
    order = list(range(_tensor(x, "swapaxes").rank))
    a, b = _dim(x, a, "swapaxes"), _dim(x, b, "swapaxes")
    order[a], order[b] = b, a
    return transpose(x, order)


def moveaxis(x: Tensor, source: int, destination: int) -> Tensor:
    """x with dimension `source` moved to place `destination`."""
    order = list(range(_tensor(x, "moveaxis").rank))
    source = _dim(x, source, "moveaxis")
    order.remove(source)
    order.insert(_dim(x, destination, "moveaxis"), source)
    return transpose(x, order)


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """x with dimensions of extent 1 at the places `axis` of the result."""
    x = _tensor(x, "expand_dims")
    places = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    rank = x.rank + len(places)
    new = {_dim(x, a, "expand_dims", rank) for a in places}
    if len(new) != len(places):
        raise _fail(f"expand_dims of {x.name}: places {tuple(places)} are not distinct")
    kept = [d for d in range(rank) if d not in new]
    shape = [1] * rank
    for d, n in zip(kept, x.shape, strict=True):
        shape[d] = n
    return _make(shape, lambda ix: read(x, [ix[d] for d in kept]), "expand_dims")


def squeeze(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without the dimensions `axis`, which have extent 1 (None: all of extent 1)."""
    x = _tensor(x, "squeeze")
    gone = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else checked_dims(x, axis)
    for d in gone:
        if x.shape[d] != 1:
            raise _fail(f"squeeze of {x.name} {x.shape}: dimension {d} has extent {x.shape[d]}, not 1")
    kept = [d for d in range(x.rank) if d not in gone]
    place = {d: n for n, d in enumerate(kept)}

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [ix[place[d]] if d in place else 0 for d in range(x.rank)])

    return _make([x.shape[d] for d in kept], body, "squeeze")


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated to `shape` by NumPy's rule: dimensions are matched from the right, extent 1 stretches."""
    x = _tensor(x, "broadcast_to")
    dims = checked_shape(shape)
    own = dims[len(dims) - x.rank :] if len(dims) >= x.rank else ()
    if len(dims) < x.rank or any(n not in (1, m) for n, m in zip(x.shape, own, strict=True)):
        raise _fail(f"{x.name} of shape {x.shape} does not broadcast to {dims}")
    skip = len(dims) - x.rank

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [0 if n == 1 else i for n, i in zip(x.shape, ix[skip:], strict=True)])

    return _make(dims, body, "broadcast_to")


# ---------------------------------------------------------------------------------------------------------- joining


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along dimension `axis`; the other extents are equal."""
    xs = _tensors(tensors, "concat")
    d = _dim(xs[0], axis, "concat")
    for x in xs[1:]:
        if x.rank != xs[0].rank or _at(x.shape, d) != _at(xs[0].shape, d):
            raise _fail(
                f"concat along dimension {d}: {x.name} has shape {x.shape}, {xs[0].name} {xs[0].shape}; all other "
                "extents must be equal"
            )
    starts = [0]
    for x in xs:
        starts.append(starts[-1] + x.shape[d])

    def body(ix: tuple[Expr, ...]) -> Operand:
        parts = [read(x, _at(ix, d, ix[d] - start)) for x, start in zip(xs, starts, strict=False)]
        result = parts[-1]
        for part, end in zip(parts[-2::-1], starts[-2:0:-1], strict=True):
            result = dsl.select(ix[d] < end, part, result)
        return result

    return _make(_at(xs[0].shape, d, starts[-1]), body, "concat")


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, side by side along a new dimension at place `axis`."""
    xs = _tensors(tensors, "stack")
    for x in xs[1:]:
        if x.shape != xs[0].shape:
            raise _fail(f"stack: {x.name} has shape {x.shape}, {xs[0].name} {xs[0].shape}; shapes must be equal")
    d = _dim(xs[0], axis, "stack", xs[0].rank + 1)

    def body(ix: tuple[Expr, ...]) -> Operand:
        rest = _at(ix, d)
        result: Operand = read(xs[-1], rest)
        for n in range(len(xs) - 2, -1, -1):
            result = dsl.select(dsl.equal(ix[d], n), read(xs[n], rest), result)
        return result

    return _make((*xs[0].shape[:d], len(xs), *xs[0].shape[d:]), body, "stack")


def split(x: Tensor, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along `axis`: into so many equal parts, or before each of the given positions."""
    x = _tensor(x, "split")
    d = _dim(x, axis, "split")
    n = x.shape[d]
    if isinstance(sections, (int, np.integer)):
        if sections <= 0 or n % sections:
            raise _fail(f"split of {x.name} {x.shape}: extent {n} of dimension {d} is no multiple of {sections}")
        cuts = list(range(0, n + 1, n // int(sections)))
    else:
        cuts = [0, *(_int(c, "a position of split") for c in sections), n]
    if any(a >= b for a, b in itertools.pairwise(cuts)):
        raise _fail(f"split of {x.name} {x.shape}: positions {cuts[1:-1]} do not ascend inside (0, {n})")

    def part(a: int, b: int) -> Tensor:
        return _make(_at(x.shape, d, b - a), lambda ix: read(x, _at(ix, d, ix[d] + a)), "split")

    return [part(a, b) for a, b in itertools.pairwise(cuts)]


def tile(x: Tensor, reps: int | Sequence[int]) -> Tensor:
    """x repeated as a whole `reps` times along each dimension (matched from the right)."""
    x = _tensor(x, "tile")
    times = checked_shape(reps)
    rank = max(x.rank, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - x.rank) + x.shape

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [i % n for i, n in zip(ix[rank - x.rank :], x.shape, strict=True)])

    return _make([n * t for n, t in zip(shape, times, strict=True)], body, "tile")


def repeat(x: Tensor, repeats: int, axis: int) -> Tensor:
    """x with each slice along `axis` repeated `repeats` times in place."""
    d = _dim(_tensor(x, "repeat"), axis, "repeat")
    (times,) = checked_shape(repeats)
    return _make(_at(x.shape, d, x.shape[d] * times), lambda ix: read(x, _at(ix, d, ix[d] // times)), "repeat")


# ---------------------------------------------------------------------------------------------------------- padding


def _widths(x: Tensor, width: Any) -> list[tuple[int, int]]:
    """(before, after) for each dimension, from what NumPy accepts."""
    try:
        pairs = np.broadcast_to(np.asarray(width), (x.rank, 2))
    except ValueError:
        pairs = None
    if pairs is None or not np.issubdtype(pairs.dtype, np.integer) or (pairs < 0).any():
        raise _fail(
            f"pad of {x.name} (rank {x.rank}) takes a width >= 0, a pair (before, after), or such a pair for each "
            f"dimension, not {width!r}"
        )
    return [(int(a), int(b)) for a, b in pairs]


def pad(x: Tensor, width: Any, mode: str = "constant", value: float = 0) -> Tensor:
    """x with elements added around it.

    width: an integer, a pair (before, after), or a pair for each dimension.
    mode: "constant" (of `value`), "edge" (the outermost element), "reflect" (mirrored, the outermost element once)
    or "symmetric" (mirrored, the outermost element twice).
    """
    x = _tensor(x, "pad")
    widths = _widths(x, width)
    if mode == "constant":
        return _pad_constant(x, widths, value)
    if mode not in ("edge", "reflect", "symmetric"):
        raise _fail(f"pad has no mode {mode!r}; there are constant, edge, reflect and symmetric")
    for d, (before, after) in enumerate(widths):
        if before or after:
            x = _pad_mirror(x, d, before, after, mode)
    return x


def _pad_constant(x: Tensor, widths: list[tuple[int, int]], value: float) -> Tensor:
    fill = _constant(value, x.dtype, "pad")

    def body(ix: tuple[Expr, ...]) -> Operand:
        inside: Operand | None = None
        for i, n, (before, after) in zip(ix, x.shape, widths, strict=True):
            for condition in ([i >= before] if before else []) + ([i < before + n] if after else []):
                inside = condition if inside is None else inside & condition
        element = read(x, [i - before if before else i for i, (before, _) in zip(ix, widths, strict=True)])
        return element if inside is None else dsl.select(inside, element, fill)

    return _make([a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)], body, "pad")


def _pad_mirror(x: Tensor, d: int, before: int, after: int, mode: str) -> Tensor:
    n = x.shape[d]
    most = {"edge": max(before, after), "reflect": n - 1, "symmetric": n}[mode]
    if max(before, after) > most:
        raise _fail(
            f"pad of {x.name} {x.shape} by {(before, after)} in dimension {d}: mode {mode} mirrors at most {most} "
            "elements"
        )

    def body(ix: tuple[Expr, ...]) -> Operand:
        i = ix[d] - before
        low = {"edge": 0, "reflect": before - ix[d], "symmetric": before - 1 - ix[d]}[mode]
        high = {"edge": n - 1, "reflect": 2 * n - 2 - i, "symmetric": 2 * n - 1 - i}[mode]
        result: Operand = read(x, _at(ix, d, i))
        if after:
            result = dsl.select(ix[d] < before + n, result, read(x, _at(ix, d, high)))
        if before:
            result = dsl.select(ix[d] < before, read(x, _at(ix, d, low)), result)
        return result

    return _make(_at(x.shape, d, before + n + after), body, "pad")


# ------------------------------------------------------------------------------------------------- reading elsewhere


def _ids(ids: Any, fn: str) -> Tensor:
    if not isinstance(_tensor(ids, fn), Tensor) or not dt.is_int(ids.dtype):
        raise _fail(f"{fn} is indexed by {ids.name} of type {ids.dtype}; indices are integers")
    return ids


def take(x: Tensor, ids: Tensor | int, axis: int | None = 0) -> Tensor:
    """x at the positions `ids` along dimension `axis` (None: of the flattened x); ids's dimensions replace it.

    An index outside [0, extent) is an error at run time.
    """
    x = _tensor(x, "take")
    if axis is None:
        x, axis = ravel(x), 0
    d = _dim(x, axis, "take")
    if isinstance(ids, (int, np.integer)):
        if not -x.shape[d] <= ids < x.shape[d]:
            raise _fail(f"take: index {ids} leaves dimension {d} of {x.name} {x.shape}")
        n = int(ids) % x.shape[d]
        return _make(_at(x.shape, d), lambda ix: read(x, (*ix[:d], n, *ix[d:])), "take")
    ids = _ids(ids, "take")

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, (*ix[:d], read(ids, ix[d : d + ids.rank]), *ix[d + ids.rank :]))

    return _make(_at(x.shape, d, *ids.shape), body, "take")


def gather(x: Tensor, ids: Tensor, axis: int = -1) -> Tensor:
    """y[i, ..., j, ...] = x[i, ..., ids[i, ..., j, ...], ...] with the data-dependent index at `axis`.

    NumPy's take_along_axis: ids has x's rank, and x's extents everywhere but at `axis` (or 1, which stretches).
    """
    x, ids = _tensor(x, "gather"), _ids(ids, "gather")
    d = _dim(x, axis, "gather")
    others = zip(_at(ids.shape, d), _at(x.shape, d), strict=False)
    fits = ids.rank == x.rank and all(1 in (a, b) or a == b for a, b in others)
    if not fits:
        raise _fail(
            f"gather along dimension {d}: ids {ids.name} {ids.shape} must have the shape of {x.name} {x.shape} in all "
            "other dimensions"
        )
    shape = [max(a, b) if n != d else b for n, (a, b) in enumerate(zip(x.shape, ids.shape, strict=True))]

    def body(ix: tuple[Expr, ...]) -> Operand:
        place = read(ids, [0 if n == 1 else i for n, i in zip(ids.shape, ix, strict=True)])
        own = [0 if n == 1 else i for n, i in zip(x.shape, ix, strict=True)]
        return read(x, _at(own, d, place))

    return _make(shape, body, "gather")


take_along_axis = gather


def one_hot(ids: Tensor, depth: int, dtype: object = "float32") -> Tensor:
    """1 at position ids[...] of a new last dimension of extent `depth`, else 0."""
    ids = _ids(ids, "one_hot")
    target = checked_dtype(dtype)
    (n,) = checked_shape(depth)
    one, zero = Const(1, target), Const(0, target)
    return _make((*ids.shape, n), lambda ix: dsl.select(dsl.equal(read(ids, ix[:-1]), ix[-1]), one, zero), "one_hot")


def flip(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order along dimensions `axis` (None: all) reversed."""
    over = checked_dims(_tensor(x, "flip"), axis)

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [x.shape[d] - 1 - i if d in over else i for d, i in enumerate(ix)])

    return _make(x.shape, body, "flip")


def roll(x: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """x moved by `shift` along `axis`, elements that leave coming in again (None: of the flattened x)."""
    x = _tensor(x, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    places = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    shifts = list(shift) if isinstance(shift, Sequence) else [shift] * len(places)
    if len(shifts) != len(places):
        raise _fail(f"roll of {x.name}: {len(shifts)} shifts for {len(places)} axes")
    total = [0] * x.rank
    for d, s in zip(places, shifts, strict=True):
        total[_dim(x, d, "roll")] += _int(s, "a shift of roll")

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [(i + -s % n) % n if s % n else i for i, s, n in zip(ix, total, x.shape, strict=True)])

    return _make(x.shape, body, "roll")


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements x[..., i, i + offset, ...], their dimension last."""
    a, b = _dim(_tensor(x, "diagonal"), axis1, "diagonal"), _dim(x, axis2, "diagonal")
    if a == b:
        raise _fail(f"diagonal of {x.name} takes two different dimensions, not {axis1} and {axis2}")
    down, right = max(0, -_int(offset, "offset of diagonal")), max(0, offset)
    n = min(x.shape[a] - down, x.shape[b] - right)
    if n <= 0:
        raise _fail(f"diagonal {offset} of {x.name} {x.shape} is empty")
    kept = [d for d in range(x.rank) if d not in (a, b)]

    def body(ix: tuple[Expr, ...]) -> Operand:
        index = {a: ix[-1] + down, b: ix[-1] + right, **dict(zip(kept, ix, strict=False))}
        return read(x, [index[d] for d in range(x.rank)])

    return _make([*(x.shape[d] for d in kept), n], body, "diagonal")


def _triangle(x: Tensor, name: str, keep: Callable[[Expr, Expr], Any]) -> Tensor:
    if _tensor(x, name).rank < 2:
        raise _fail(f"{name} takes a tensor of rank 2 or more; {x.name} has shape {x.shape}")
    zero = Const(0, x.dtype)
    return _make(x.shape, lambda ix: dsl.select(keep(ix[-2], ix[-1]), read(x, ix), zero), name)


def tril(x: Tensor, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two dimensions."""
    return _triangle(x, "tril", lambda i, j: j <= i + k)


def triu(x: Tensor, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two dimensions."""
    return _triangle(x, "triu", lambda i, j: j >= i + k)


# ------------------------------------------------------------------------------------------------------- made of air


def full(shape: Sequence[int] | int, value: float, dtype: object = "float32") -> Tensor:
    """A tensor of one value."""
    fill = _constant(value, checked_dtype(dtype), "full")
    return _make(checked_shape(shape), lambda ix: fill, "full")


def zeros(shape: Sequence[int] | int, dtype: object = "float32") -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Sequence[int] | int, dtype: object = "float32") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def full_like(x: Tensor, value: float) -> Tensor:
    """A tensor of one value, of x's shape and dtype."""
    return full(_tensor(x, "full_like").shape, value, x.dtype)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    """Ones of x's shape and dtype."""
    return full_like(x, 1)


def arange(n: int, dtype: object = dt.INDEX) -> Tensor:
    """0, 1, ..., n - 1."""
    return _make(checked_shape(n), lambda ix: dsl.cast(ix[0], dtype), "arange")


def eye(n: int, m: int | None = None, k: int = 0, dtype: object = "float32") -> Tensor:
    """n x m (m: n): ones on the k-th diagonal, else zeros."""
    target = checked_dtype(dtype)
    one, zero = Const(1, target), Const(0, target)
    return _make((n, n if m is None else m), lambda ix: dsl.select(dsl.equal(ix[1], ix[0] + k), one, zero), "eye")
