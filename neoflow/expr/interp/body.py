"""The values of one tensor: its body over all its axes, or over pieces of them where that would be too much at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from neoflow.errors import ExpressionError, RuntimeFault
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import ARG_REDUCERS, FUNCTIONS, REDUCERS
from neoflow.expr.interp.analysis import Guards, analysed
from neoflow.expr.interp.contraction import Mask, Product, as_product, pairing
from neoflow.expr.interp.product import contract, total
from neoflow.expr.interp.types import Types
from neoflow.expr.interp.views import affine_view
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, Slot
from neoflow.expr.limits import MOST_AXES
from neoflow.expr.printer import axis_names, print_expr
from neoflow.expr.tensor import Compute

LIMIT = 1 << 24
"""Elements of the largest temporary array inside one body: 128 MiB in float64."""
CACHED = 1 << 17
"""Elements of an expression that are computed at once where elements need nothing of each other: what is between stays
in a core's cache, and in memory that the process has already; fresh pages take longer than the arithmetic."""
BORDERED = 4
"""A copy with a border is made up to so many times the elements there are; beyond, elements are looked up."""


def _as_slice(there: np.ndarray) -> slice | np.ndarray:
    """Positions as a slice, if they are side by side."""
    at = np.flatnonzero(there)
    if at.size and at[-1] - at[0] + 1 == at.size:
        return slice(int(at[0]), int(at[-1]) + 1)
    return there


@dataclass(frozen=True)
class _Choice:
    """A value that a selection has `there`, at these positions of its axis, evaluated under the guards."""

    there: np.ndarray
    value: Expr
    guards: Guards


class Body:
    """The body of a compute over a box of its axes: all of it, or a piece along `split` of a `parent`'s box."""

    def __init__(self, tensor: Compute, inputs: list[np.ndarray], types: Types):
        self.tensor, self.inputs, self.types = tensor, inputs, types
        self.analysis = analysed(tensor.definition)
        if len(self.analysis.extents) > MOST_AXES:
            raise ExpressionError(
                f"{tensor.name} has {len(self.analysis.extents)} axes, reductions included; NumPy evaluates at most "
                f"{MOST_AXES}: let reductions side by side go over the same nf.axis, or define parts as tensors",
                tensor.where,
            )
        self.ranges = tuple((0, n) for n in self.analysis.extents)
        self.memo: dict[tuple[int, Guards], np.ndarray] = {}
        self.left: dict[int, int] = {}
        self.padded: dict[tuple, np.ndarray] = {}
        self.parent: Body | None = None
        self.split = -1

    def piece(self, dim: int, start: int, stop: int) -> Body:
        """The same body with axis `dim` in [start, stop)."""
        inner = object.__new__(Body)
        inner.tensor, inner.inputs, inner.types, inner.analysis = self.tensor, self.inputs, self.types, self.analysis
        inner.ranges = (*self.ranges[:dim], (start, stop), *self.ranges[dim + 1 :])
        inner.memo, inner.left, inner.padded, inner.parent, inner.split = {}, {}, self.padded, self, dim
        return inner

    # ------------------------------------------------------------------------------------------------ whole body

    def run(self) -> np.ndarray:
        """The tensor's value in its work type, rounded to what its own type can hold."""
        definition = self.tensor.definition
        if isinstance(definition.body, Scatter):
            return self.types.rounded(self._scatter(definition.body), self.tensor.dtype)
        rank = len(definition.shape)
        result = self._whole(rank)[(...,) + (0,) * (len(self.ranges) - rank)]
        if result.shape != definition.shape:
            result = np.broadcast_to(result, definition.shape)
        return self.types.rounded(np.asarray(result, order="C"), self.tensor.dtype)

    def _scatter(self, body: Scatter) -> np.ndarray:
        """Zeros, plus each point of the body where its targets say; a target outside is a fault."""
        result = np.zeros(self.tensor.shape, self.types.work(self.tensor.dtype))
        box = tuple(a.extent for a in body.axes)

        def over_axes(e: Expr) -> np.ndarray:
            array = self.value(e)
            bound = [a.ident for a in body.axes]
            unused = [d for d in range(array.ndim) if d not in bound]
            return np.broadcast_to(array.transpose(bound + unused)[(...,) + (0,) * len(unused)], box)

        targets = [over_axes(t) for t in body.targets]
        for n, (target, extent) in enumerate(zip(targets, result.shape, strict=True)):
            outside = (target < 0) | (target >= extent)
            if outside.any():
                raise RuntimeFault(
                    f"{self.tensor.name} scatters to index {int(target[outside][0])} of dimension {n}, "
                    f"whose extent is {extent}",
                    self.tensor.where,
                )
        np.add.at(result, tuple(targets), over_axes(body.body))
        return result

    def _whole(self, rank: int) -> np.ndarray:
        dims = [d for d in range(rank) if self.length(d) > 1]
        size = math.prod(self.length(d) for d in dims)
        if self.analysis.is_pointwise and (size > CACHED or self._chooses(self.tensor.definition.body) is not None):
            shape = [self.length(d) if d < rank else 1 for d in range(len(self.ranges))]
            result = np.empty(shape, self.types.work(self.tensor.definition.body.dtype))
            self._fill_in_pieces(result, dims)
            return result
        if size > LIMIT:
            return self._in_pieces(dims[0], size, lambda piece: piece._whole(rank))
        return self.value(self.tensor.definition.body)

    def _fill_in_pieces(self, result: np.ndarray, dims: list[int]) -> None:
        """The whole of a body whose elements need nothing of each other, written into `result`."""
        apart = [d for d in dims if d not in self.analysis.chosen]
        for own, most in ((apart, CACHED), (dims, LIMIT)):
            long = [d for d in own if self.length(d) > 1]
            size = math.prod(self.length(d) for d in long)
            if size > most:
                for at, piece in self._pieces(long[0], size, most):
                    piece._fill_in_pieces(result[(slice(None),) * long[0] + (at,)], dims)
                return
        run(self._fill(self.tensor.definition.body, result, (slice(None),) * result.ndim))

    def _fill(self, e: Expr, result: np.ndarray, at: tuple[slice, ...]) -> Walk[None]:
        """Write the values of `e` to the positions `at`; what a position of an axis chooses goes straight there."""
        dim = self._chooses(e)
        if isinstance(e, Select) and dim is not None and at[dim] == slice(None):
            choices: list[_Choice] = yield self._choices(e, dim, ())
            there = [c for c in choices if c.there.any()]
            places = [place for c in there if isinstance(place := _as_slice(c.there), slice)]
            if len(places) == len(there):
                for choice in choices:
                    if not choice.there.any():
                        self._skip(choice.value)
                for place, choice in zip(places, there, strict=True):
                    yield self._fill(choice.value, result, (*at[:dim], place, *at[dim + 1 :]))
                return
        array: np.ndarray = yield self.walk(e)
        result[at] = array[tuple(s if n > 1 else slice(None) for n, s in zip(array.shape, at, strict=True))]

    def _pieces(self, dim: int, size: int, most: int) -> Iterator[tuple[slice, Body]]:
        """Parts along `dim`, small enough for `size` to come under `most` elements, and where they lie."""
        start, stop = self.ranges[dim]
        step = max(1, (stop - start) // -(-size // most))
        for low in range(start, stop, step):
            high = min(low + step, stop)
            yield slice(low - start, high - start), self.piece(dim, low, high)

    def _in_pieces(
        self, dim: int, size: int, run: Callable[[Body], np.ndarray], combine: np.ufunc | None = None
    ) -> np.ndarray:
        """`run` on pieces along `dim`, small enough for `size` to come under the limit; combined, or side by side."""
        result = None
        for at, piece in self._pieces(dim, size, LIMIT):
            part = run(piece)
            if combine is not None:
                result = part if result is None else combine(result, part)
                continue
            if result is None:
                result = np.empty((*part.shape[:dim], self.length(dim), *part.shape[dim + 1 :]), part.dtype)
            result[(slice(None),) * dim + (at,)] = part
        assert result is not None
        return result

    def length(self, dim: int) -> int:
        start, stop = self.ranges[dim]
        return stop - start

    # ---------------------------------------------------------------------------------------------- expressions

    def value(self, e: Expr, guards: Guards = ()) -> np.ndarray:
        """The array of `e`, evaluated under the guards."""
        return run(self.walk(e, guards))

    def walk(self, e: Expr, guards: Guards = (), keep: bool = False) -> Walk[np.ndarray]:
        """`value`, for walks; what cannot fault is evaluated without regard to the guards."""
        if e not in self.analysis.faulty:
            guards = ()
        if self.parent is not None and all(a.ident != self.split for a in e.free):
            return (yield self.parent.walk(e, guards, keep=True))
        key = (e.uid, guards)
        found = self.memo.get(key)
        if found is None:
            found = yield from self._walk(e, guards)
            if keep or self.analysis.uses.get(e, 0) > 1:
                self.memo[key] = found
        if self.analysis.is_pointwise and not keep and self.analysis.uses.get(e, 0) > 1 and self._is_last(e):
            self.memo.pop(key, None)
        return found

    def _is_last(self, e: Expr) -> bool:
        """Count a use of what many use; whether there is none after it."""
        left = self.left[e.uid] = self.left.get(e.uid, self.analysis.uses[e]) - 1
        return not left

    def _skip(self, e: Expr) -> None:
        """Count the uses of what nobody will ask for, so that nothing is kept for them."""
        stack = [e]
        while stack:
            e = stack.pop()
            is_here = self.parent is None or any(a.ident == self.split for a in e.free)
            if is_here and self._is_last(e) and self.memo.pop((e.uid, ()), None) is None:
                stack += e.children

    def _walk(self, e: Expr, guards: Guards) -> Walk[np.ndarray]:
        match e:
            case Read():
                return (yield from self._read(e, guards))
            case Apply():
                return (yield from self._apply(e, guards))
            case Axis():
                shape = [1] * len(self.ranges)
                shape[e.ident] = -1
                return np.arange(*self.ranges[e.ident], dtype=np.int64).reshape(shape)
            case Const():
                array = np.full((1,) * len(self.ranges), e.value, self.types.work(e.dtype))
                return self.types.rounded(array, e.dtype)
            case Select() if (dim := self._along(e)) is not None:
                return (yield from self._chosen(e, dim, guards))
            case Select() if self.analysis.is_pointwise:
                return (yield from self._selected(e))
            case Select():
                cond: np.ndarray = yield self.walk(e.cond, guards)
                then: np.ndarray = yield self.walk(e.then, (*guards, (e.cond, True)))
                other: np.ndarray = yield self.walk(e.other, (*guards, (e.cond, False)))
                return np.where(cond, then, other)
            case Cast():
                return self._cast(e, (yield self.walk(e.arg, guards)))
            case Reduce():
                return (yield from self._reduce(e, guards))
        raise TypeError(type(e).__name__)

    def _long(self, e: Expr) -> list[int]:
        """The axes it depends on, here."""
        return [a.ident for a in e.free if self.length(a.ident) > 1]

    def _selected(self, e: Select) -> Walk[np.ndarray]:
        """What a condition on values selects; where it has one value alone, nothing of the other is computed."""
        cond: np.ndarray = yield self.walk(e.cond)
        if (is_all := bool(cond.all())) or not cond.any():
            self._skip(e.other if is_all else e.then)
            return (yield self.walk(e.then if is_all else e.other))
        then: np.ndarray = yield self.walk(e.then)
        other: np.ndarray = yield self.walk(e.other)
        return np.where(cond, then, other)

    def _along(self, e: Select) -> int | None:
        """The one axis whose positions decide."""
        used = self._long(e.cond)
        return used[0] if len(used) == 1 and e.cond not in self.analysis.reading else None

    def _chooses(self, e: Expr) -> int | None:
        """The same, of what nothing else reads."""
        return self._along(e) if isinstance(e, Select) and self.analysis.uses.get(e, 0) <= 1 else None

    def _choices(self, e: Select, dim: int, guards: Guards) -> Walk[list[_Choice]]:
        """What positions along one axis choose, and in the end what the others do."""
        found: list[_Choice] = []
        left, other = np.ones(self.length(dim), np.bool_), cast(Expr, e)
        while isinstance(other, Select) and (other is e or self._goes_on(other, dim)):
            cond: np.ndarray = yield self.walk(other.cond, guards)
            found.append(_Choice(left & cond.reshape(-1), other.then, (*guards, (other.cond, True))))
            left = left & ~cond.reshape(-1)
            guards, other = (*guards, (other.cond, False)), other.other
        return [*found, _Choice(left, other, guards)]

    def _chosen(self, e: Select, dim: int, guards: Guards) -> Walk[np.ndarray]:
        """What positions along one axis choose, each written where it belongs."""
        choices: list[_Choice] = yield self._choices(e, dim, guards)
        arrays: list[np.ndarray] = []
        for choice in choices:
            arrays.append((yield self.walk(choice.value, choice.guards)))
        shape = list(np.broadcast_shapes(*(array.shape for array in arrays)))
        shape[dim] = self.length(dim)
        result = np.empty(shape, np.result_type(*arrays))
        for choice, array in zip(choices, arrays, strict=True):
            at = (slice(None),) * dim + (_as_slice(choice.there),)
            result[at] = array if array.shape[dim] == 1 else array[at]
        return result

    def _goes_on(self, e: Select, dim: int) -> bool:
        is_own = self.analysis.uses.get(e, 0) <= 1 and e.cond not in self.analysis.reading
        return is_own and self._long(e.cond) == [dim]

    def _cast(self, e: Cast, array: np.ndarray) -> np.ndarray:
        work = self.types.work(e.dtype)
        array = array != 0 if e.dtype == "bool" else array.astype(work, copy=False)
        return self.types.rounded(array, e.dtype)

    def _apply(self, e: Apply, guards: Guards) -> Walk[np.ndarray]:
        first = yield self.walk(e.args[0], guards)
        if len(e.args) == 1:
            return FUNCTIONS[e.fn].numpy(first)
        inside = (*guards, (e.args[0], e.fn == "and")) if e.fn in ("and", "or") else guards
        return FUNCTIONS[e.fn].numpy(first, (yield self.walk(e.args[1], inside)))

    def mask(self, guards: Guards) -> np.ndarray:
        """Where all the guards hold."""
        result = np.ones((1,) * len(self.ranges), np.bool_)
        for n, (cond, positive) in enumerate(guards):
            array = self.value(cond, guards[:n])
            result = result & (array if positive else ~array)
        return result

    # ---------------------------------------------------------------------------------------------------- reads

    def _read(self, e: Read, guards: Guards) -> Walk[np.ndarray]:
        assert isinstance(e.source, Slot)
        base = self.inputs[e.slot]
        forms = self.analysis.forms.get(e)
        if forms is not None:
            most = min(BORDERED * max(base.size, math.prod(self.analysis.extents)), LIMIT)
            shared = self.analysis.borders[e.slot]
            view = affine_view(e.source, base, forms, self.ranges, self.padded, most, shared)
            if view is not None:
                return view
        indices = []
        for n, (index, extent) in enumerate(zip(e.indices, e.source.shape, strict=True)):
            array = yield self.walk(index, guards)
            outside = (array < 0) | (array >= extent)
            if outside.any():
                if index in self.analysis.reading:
                    self._check(e, n, array, outside, guards)
                array = np.clip(array, 0, extent - 1)
            indices.append(array)
        return base[tuple(indices)]

    def _check(self, e: Read, n: int, index: np.ndarray, outside: np.ndarray, guards: Guards) -> None:
        at = self._first(outside, guards)
        if at is None:
            return
        value = np.broadcast_to(index, np.broadcast_shapes(index.shape, self.mask(guards).shape))[at]
        name = self.tensor.inputs[e.slot].name
        raise RuntimeFault(
            f"read {self._text(e)} leaves {name}: index {n} is {value} {self._point(at)}, but the extent is "
            f"{e.source.shape[n]}; check the integers it comes from",
            self.tensor.where,
        )

    def _first(self, wrong: np.ndarray, guards: Guards) -> tuple[int, ...] | None:
        """The first point where `wrong` holds together with the guards."""
        if not wrong.any():
            return None
        wrong = wrong & self.mask(guards)
        flat = int(np.argmax(wrong))
        at = tuple(int(i) for i in np.unravel_index(flat, wrong.shape))
        return at if wrong[at] else None

    def _text(self, e: Expr) -> str:
        sources = tuple(t.name for t in self.tensor.inputs)
        return f"`{print_expr(e, axis_names(self.tensor), sources)}` of {self.tensor.name}"

    def _point(self, at: tuple[int, ...]) -> str:
        names = axis_names(self.tensor)
        inside = [f"{names[d]}={self.ranges[d][0] + i}" for d, i in enumerate(at) if d < len(names)]
        return "at " + (", ".join(inside) or "its only point")

    # ----------------------------------------------------------------------------------------------- reductions

    def _reduce(self, e: Reduce, guards: Guards) -> Walk[np.ndarray]:
        axes, body = e.axes, e.body
        while e.op == "sum" and isinstance(body, Reduce) and body.op == "sum":
            axes, body = axes + body.axes, body.body
        dims = tuple(a.ident for a in axes)
        if e.op == "sum":
            product = as_product(body, guards, self.analysis)
            if len(product.factors) > 1:
                return (yield from self._sum_of_products(e, dims, body, product, guards))
        return (yield from self._direct(e, dims, body, guards))

    def _direct(self, e: Reduce, dims: tuple[int, ...], body: Expr, guards: Guards) -> Walk[np.ndarray]:
        """The reduction of the whole body's array, in pieces when it is large."""
        used = sorted(a.ident for a in body.free if self.length(a.ident) > 1)
        size = math.prod(self.length(d) for d in used)
        is_arg = e.op in ARG_REDUCERS
        cuts = [d for d in used if not (is_arg and d in dims)]
        if size > LIMIT and cuts:
            combine = REDUCERS[e.op].numpy if cuts[0] in dims else None
            return self._in_pieces(cuts[0], size, lambda piece: run(piece._direct(e, dims, body, guards)), combine)
        array = yield self.walk(body, guards)
        shape = [self.length(d) if d in dims else n for d, n in enumerate(array.shape)]
        array = np.broadcast_to(array, shape)
        if is_arg:
            pick = np.argmax if e.op == "argmax" else np.argmin
            return np.asarray(pick(array, axis=dims[0], keepdims=True), np.int64)
        if e.op == "sum":
            return total(array, dims)
        return REDUCERS[e.op].numpy.reduce(array, axis=dims, keepdims=True, dtype=array.dtype)

    def _sum_of_products(
        self, e: Reduce, dims: tuple[int, ...], body: Expr, product: Product, guards: Guards
    ) -> Walk[np.ndarray]:
        """Sum over `dims` of `body`, which is a product, by matrix products of two factors at a time."""

        def used(e: Expr) -> frozenset[int]:
            return frozenset(a.ident for a in e.free if self.length(a.ident) > 1)

        sets = [used(f) for f, _ in product.factors]
        home: list[list[Mask]] = [[] for _ in sets]
        for mask in product.masks:  # each condition joins the factor that grows least by it, its own one if that can be
            own = used(mask.cond)
            grown = [self._size(s | own) - self._size(s) for s in sets]
            at = min(range(len(sets)), key=lambda n: (grown[n], mask.factors != {n}, -len(sets[n])))
            sets[at] |= own
            home[at].append(mask)
        is_apart = all(mask.factors == {n} for n, masks in enumerate(home) for mask in masks)
        is_last = is_apart and len(sets) == 2 and not (sets[0] ^ sets[1]) & frozenset(dims)
        steps, peak = pairing(sets, frozenset(dims), self._size)
        if self._size(peak) > LIMIT:
            cut = min(peak)
            combine = np.add if cut in dims else None
            return self._in_pieces(cut, self._size(peak), lambda piece: run(piece._reduce(e, guards)), combine)
        arrays = []
        for n, ((factor, inside), masks) in enumerate(zip(product.factors, home, strict=True)):
            array = yield self.walk(factor, inside)
            hidden = any(mask.factors != {n} for mask in masks) and array.dtype.kind == "f"
            if hidden and not np.isfinite(array).all():
                return (yield from self._direct(e, dims, body, guards))  # another factor's condition hides no NaN
            for mask in masks:
                holds = yield self.walk(mask.cond, mask.guards)
                array = np.where(holds if mask.holds else ~holds, array, np.zeros((), array.dtype))
            arrays.append(array)
        unused = [d for d in dims if all(a.shape[d] == 1 for a in arrays)]
        scale = product.sign * math.prod(self.length(d) for d in unused)
        for i, j in steps:
            right = arrays.pop(j)
            left = arrays.pop(i)
            made = contract(left, right, [d for d in dims if all(a.shape[d] == 1 for a in arrays)], is_last)
            if made is None:
                return (yield from self._direct(e, dims, body, guards))
            arrays.append(made)
        result = arrays[0] if scale == 1 else arrays[0] * np.asarray(scale).astype(arrays[0].dtype)
        if not is_last and result.dtype.kind == "f" and not np.isfinite(result).all():
            return (yield from self._direct(e, dims, body, guards))  # to infinities the order matters
        return result

    def _size(self, dims: frozenset[int]) -> int:
        return math.prod(self.length(d) for d in dims)
