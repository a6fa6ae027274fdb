"""The meaning of the language: NumPy evaluates tensors, and whatever a later stage makes must agree with it.

Inside a body every value is an array with one dimension for each axis of the definition, of extent 1 for the axes
it does not use. A read that is affine in the axes is a strided view; a sum of products is a chain of matrix products.
What would need more than `LIMIT` elements at once is done in pieces along one axis.

Types: integers are exact and wrap at their width, `//` and `%` round down; float16 and bfloat16 are computed in
float32 and rounded where a tensor is stored or a cast says so; sums of float32 accumulate in at least float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from neoflow.errors import ExpressionError, RuntimeFault
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS, REDUCERS
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, Slot, postorder
from neoflow.expr.printer import axis_names, print_expr
from neoflow.expr.tensor import Compute, Definition, Parameter, Tensor, topological

LIMIT = 1 << 24
"""Elements of the largest temporary array inside one body."""

Guards = tuple[tuple[Expr, bool], ...]
"""Conditions under which an expression is evaluated, outermost first, each with the value it has there."""


def evaluate(
    tensors: Tensor | Sequence[Tensor], feeds: Mapping[Tensor, Any], dtype: str | None = None
) -> list[np.ndarray]:
    """The values of `tensors` as C-contiguous arrays of their own, given an array for every placeholder they need.

    feeds: arrays of the placeholders' shapes and dtypes; a parameter that is not fed takes its `init` when that is an
    array. dtype: "float64" evaluates every float tensor in float64 (then feeds of any float type will do).

    Raises `ExpressionError` for a missing or unfit feed, `RuntimeFault` for a data-dependent index that leaves its
    tensor and for an integer division by zero, where the program really gets there.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if dtype not in (None, "float64"):
        raise ExpressionError(f"evaluate takes dtype=None (each tensor's own) or 'float64', not {dtype!r}")
    types = _Types(dtype == "float64")
    for fed in feeds:
        if isinstance(fed, Compute):
            raise ExpressionError(f"{fed.name} is computed, not fed; feed the placeholders it reads", fed.where)
    order = topological(roots)
    pending = dict.fromkeys(order, 0)
    for user in order:
        for t in user.inputs if isinstance(user, Compute) else ():
            pending[t] += 1
    for t in roots:
        pending[t] += 1
    values: dict[Tensor, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for t in order:
            if not isinstance(t, Compute):
                values[t] = _fed(t, feeds, types)
                continue
            values[t] = _Body(t, [values[s] for s in t.inputs], types).run()
            for s in t.inputs:
                pending[s] -= 1
                if not pending[s]:
                    del values[s]
        return [np.array(values[t], dtype=types.stored(t.dtype), order="C") for t in roots]


@dataclass(frozen=True)
class _Types:
    """How element types are held: `work` inside bodies and between them, `stored` in results."""

    float64: bool

    def stored(self, dtype: str) -> np.dtype:
        return dt.NUMPY["float64"] if self.float64 and dt.is_float(dtype) else dt.NUMPY[dtype]

    def work(self, dtype: str) -> np.dtype:
        stored = self.stored(dtype)
        return np.dtype(np.float32) if dt.is_float(dtype) and stored.itemsize < 4 else stored

    def rounded(self, array: np.ndarray, dtype: str) -> np.ndarray:
        """A work array with the values its type can hold."""
        stored, work = self.stored(dtype), self.work(dtype)
        return array if stored == work else array.astype(stored).astype(work)


def _fed(t: Tensor, feeds: Mapping[Tensor, Any], types: _Types) -> np.ndarray:
    given = feeds.get(t)
    if given is None and isinstance(t, Parameter) and hasattr(t.init, "dtype"):
        given = np.asarray(t.init).astype(types.stored(t.dtype))
    if given is None:
        kind = type(t).__name__.lower()
        raise ExpressionError(
            f"{kind} {t.name} ({t.dtype}{list(t.shape)}) is not fed; pass feeds={{{t.name}: array}}", t.where
        )
    array = np.asarray(given)
    if array.shape != t.shape:
        raise ExpressionError(f"{t.name} has shape {t.shape}, the array fed for it {array.shape}", t.where)
    stored = types.stored(t.dtype)
    any_float = types.float64 and dt.is_float(t.dtype) and array.dtype in [dt.NUMPY[d] for d in dt.FLOATS]
    is_plain = not hasattr(given, "dtype") and np.can_cast(array.dtype, stored, "same_kind")
    if array.dtype != stored and not any_float and not is_plain:
        raise ExpressionError(
            f"{t.name} is {t.dtype}, the array fed for it {array.dtype}; convert it: array.astype('{t.dtype}')", t.where
        )
    return array.astype(stored, copy=False).astype(types.work(t.dtype), copy=False)


@dataclass(frozen=True)
class _Facts:
    """What the body of a definition says about itself, whatever the values."""

    extents: tuple[int, ...]
    """of every axis, by ident; at least one"""
    uses: dict[Expr, int]
    """how many nodes use a node"""
    faulty: frozenset[Expr]
    """nodes that can fault at run time, so that the conditions around them matter"""
    forms: dict[Read, tuple[affine.Linear, ...]]
    """reads whose indices are all affine in the axes, with their linear forms"""


@lru_cache(maxsize=16384)
def _facts(definition: Definition) -> _Facts:
    nodes = list(postorder(definition.body))
    axes = {a.ident: a.extent for a in (*definition.axes, *definition.reduction_axes)}
    extents = tuple(axes.get(n, 1) for n in range(max(axes, default=0) + 1))
    uses: dict[Expr, int] = {}
    faulty: set[Expr] = set()
    reading: set[Expr] = set()
    forms: dict[Read, tuple[affine.Linear, ...]] = {}
    for e in nodes:
        for c in e.children:
            uses[c] = uses.get(c, 0) + 1
        if isinstance(e, Read) or any(c in reading for c in e.children):
            reading.add(e)
        follows_data = isinstance(e, Read) and any(c in reading for c in e.indices)
        divides = isinstance(e, Apply) and e.fn in ("floordiv", "mod") and not isinstance(e.args[1], Const)
        if follows_data or divides or any(c in faulty for c in e.children):
            faulty.add(e)
        if isinstance(e, Read):
            linear = tuple(affine.linear(i) for i in e.indices)
            if all(isinstance(atom, Axis) for terms, _ in linear for atom in terms):
                forms[e] = linear
    return _Facts(extents, uses, frozenset(faulty), forms)


class _Body:
    """The body of a compute over a box of its axes: all of it, or a piece along `split` of a `parent`'s box."""

    def __init__(self, tensor: Compute, inputs: list[np.ndarray], types: _Types):
        self.tensor, self.inputs, self.types = tensor, inputs, types
        self.facts = _facts(tensor.definition)
        self.ranges = tuple((0, n) for n in self.facts.extents)
        self.memo: dict[tuple[int, Guards], np.ndarray] = {}
        self.padded: dict[tuple, np.ndarray] = {}
        self.parent: _Body | None = None
        self.split = -1

    def piece(self, dim: int, start: int, stop: int) -> _Body:
        """The same body with axis `dim` in [start, stop)."""
        inner = object.__new__(_Body)
        inner.tensor, inner.inputs, inner.types, inner.facts = self.tensor, self.inputs, self.types, self.facts
        inner.ranges = (*self.ranges[:dim], (start, stop), *self.ranges[dim + 1 :])
        inner.memo, inner.padded, inner.parent, inner.split = {}, self.padded, self, dim
        return inner

    # ------------------------------------------------------------------------------------------------ whole body

    def run(self) -> np.ndarray:
        """The tensor's value in its work type, rounded to what its own type can hold."""
        definition = self.tensor.definition
        if isinstance(definition.body, Scatter):
            return self.types.rounded(self._scatter(definition.body), self.tensor.dtype)
        rank = len(definition.shape)
        result = self._whole(rank)[(...,) + (0,) * (len(self.ranges) - rank)]
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
        if size > LIMIT:
            return self._in_pieces(dims[0], size, lambda piece: piece._whole(rank))
        return self.value(self.tensor.definition.body)

    def _in_pieces(
        self, dim: int, size: int, run: Callable[[_Body], np.ndarray], combine: np.ufunc | None = None
    ) -> np.ndarray:
        """`run` on pieces along `dim`, small enough for `size` to come under the limit; combined, or side by side."""
        start, stop = self.ranges[dim]
        step = max(1, (stop - start) // -(-size // LIMIT))
        result = None
        for low in range(start, stop, step):
            high = min(low + step, stop)
            part = run(self.piece(dim, low, high))
            if combine is not None:
                result = part if result is None else combine(result, part)
                continue
            if result is None:
                result = np.empty((*part.shape[:dim], stop - start, *part.shape[dim + 1 :]), part.dtype)
            result[(slice(None),) * dim + (slice(low - start, high - start),)] = part
        assert result is not None
        return result

    def length(self, dim: int) -> int:
        start, stop = self.ranges[dim]
        return stop - start

    # ---------------------------------------------------------------------------------------------- expressions

    def value(self, e: Expr, guards: Guards = (), keep: bool = False) -> np.ndarray:
        """The array of `e`; what cannot fault is evaluated without regard to the guards."""
        if e not in self.facts.faulty:
            guards = ()
        if self.parent is not None and all(a.ident != self.split for a in e.free):
            return self.parent.value(e, guards, keep=True)
        key = (e.uid, guards)
        found = self.memo.get(key)
        if found is None:
            found = self._value(e, guards)
            if keep or self.facts.uses.get(e, 0) > 1:
                self.memo[key] = found
        return found

    def _value(self, e: Expr, guards: Guards) -> np.ndarray:
        match e:
            case Read():
                return self._read(e, guards)
            case Apply():
                return self._apply(e, guards)
            case Axis():
                shape = [1] * len(self.ranges)
                shape[e.ident] = -1
                return np.arange(*self.ranges[e.ident], dtype=np.int64).reshape(shape)
            case Const():
                array = np.full((1,) * len(self.ranges), e.value, self.types.work(e.dtype))
                return self.types.rounded(array, e.dtype)
            case Select():
                cond = self.value(e.cond, guards)
                then = self.value(e.then, (*guards, (e.cond, True)))
                return np.where(cond, then, self.value(e.other, (*guards, (e.cond, False))))
            case Cast():
                return self._cast(e, self.value(e.arg, guards))
            case Reduce():
                return self._reduce(e, guards)
        raise TypeError(type(e).__name__)

    def _cast(self, e: Cast, array: np.ndarray) -> np.ndarray:
        work = self.types.work(e.dtype)
        array = array != 0 if e.dtype == "bool" else array.astype(work, copy=False)
        return self.types.rounded(array, e.dtype)

    def _apply(self, e: Apply, guards: Guards) -> np.ndarray:
        first = self.value(e.args[0], guards)
        if len(e.args) == 1:
            return FUNCTIONS[e.fn].numpy(first)
        inside = (*guards, (e.args[0], e.fn == "and")) if e.fn in ("and", "or") else guards
        second = self.value(e.args[1], inside)
        if e.fn in ("floordiv", "mod") and not isinstance(e.args[1], Const):
            at = self._first(second == 0, guards)
            if at is not None:
                raise RuntimeFault(f"{self._text(e)} divides by zero {self._point(at)}", self.tensor.where)
        return FUNCTIONS[e.fn].numpy(first, second)

    def mask(self, guards: Guards) -> np.ndarray:
        """Where all the guards hold."""
        result = np.ones((1,) * len(self.ranges), np.bool_)
        for n, (cond, positive) in enumerate(guards):
            array = self.value(cond, guards[:n])
            result = result & (array if positive else ~array)
        return result

    # ---------------------------------------------------------------------------------------------------- reads

    def _read(self, e: Read, guards: Guards) -> np.ndarray:
        assert isinstance(e.source, Slot)
        base = self.inputs[e.source.position]
        forms = self.facts.forms.get(e)
        view = None if forms is None else self._view(e.source, base, forms)
        if view is not None:
            return view
        indices = []
        for n, (index, extent) in enumerate(zip(e.indices, e.source.shape, strict=True)):
            array = self.value(index, guards)
            outside = (array < 0) | (array >= extent)
            if outside.any():
                if e in self.facts.faulty and _reads(index):
                    self._check(e, n, array, outside, guards)
                array = np.clip(array, 0, extent - 1)
            indices.append(array)
        return base[tuple(indices)]

    def _view(self, slot: Slot, base: np.ndarray, forms: tuple[affine.Linear, ...]) -> np.ndarray | None:
        """`base` read at affine indices, without a copy: element strides are coefficient times stride.

        Where indices leave the tensor (under a condition that makes this harmless) the view is of a copy with a
        border; None when that would have to be large.
        """
        origin, below, above = [], [], []
        strides = [0] * len(self.ranges)
        for (terms, constant), extent in zip(forms, slot.shape, strict=True):
            low = high = first = constant
            for axis, k in terms.items():
                assert isinstance(axis, Axis)
                last = k * (axis.extent - 1)
                low, high, first = low + min(last, 0), high + max(last, 0), first + k * self.ranges[axis.ident][0]
            below.append(max(0, -low))
            above.append(max(0, high - extent + 1))
            origin.append(first + below[-1])
        if any(below) or any(above):
            wide = [b + n + a for b, n, a in zip(below, slot.shape, above, strict=True)]
            if math.prod(wide) > min(4 * max(base.size, math.prod(self.facts.extents)), LIMIT):
                return None
            key = (slot.position, *below, *above)
            if key not in self.padded:
                self.padded[key] = np.pad(base, list(zip(below, above, strict=True)))
            base = self.padded[key]
        for (terms, _), stride in zip(forms, base.strides, strict=True):
            for axis, k in terms.items():
                strides[axis.ident] += k * stride  # type: ignore[attr-defined]
        used = {axis.ident for terms, _ in forms for axis in terms}  # type: ignore[attr-defined]
        shape = [self.length(d) if d in used else 1 for d in range(len(self.ranges))]
        at: tuple[Any, ...] = (*origin, ...)
        return as_strided(base[at], shape, strides, writeable=False)

    def _check(self, e: Read, n: int, index: np.ndarray, outside: np.ndarray, guards: Guards) -> None:
        at = self._first(outside, guards)
        if at is None:
            return
        value = np.broadcast_to(index, np.broadcast_shapes(index.shape, self.mask(guards).shape))[at]
        name = self.tensor.inputs[e.source.position].name  # type: ignore[union-attr]
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

    def _reduce(self, e: Reduce, guards: Guards) -> np.ndarray:
        axes, body = e.axes, e.body
        while e.op == "sum" and isinstance(body, Reduce) and body.op == "sum":
            axes, body = axes + body.axes, body.body
        dims = tuple(a.ident for a in axes)
        if e.op == "sum":
            product = self._product(body, guards)
            if len(product.factors) > 1:
                return self._sum_of_products(e, dims, body, product, guards)
        return self._direct(e, dims, body, guards)

    def _direct(self, e: Reduce, dims: tuple[int, ...], body: Expr, guards: Guards) -> np.ndarray:
        """The reduction of the whole body's array, in pieces when it is large."""
        used = sorted(a.ident for a in body.free if self.length(a.ident) > 1)
        size = math.prod(self.length(d) for d in used)
        is_arg = e.op.startswith("arg")
        cuts = [d for d in used if not (is_arg and d in dims)]
        if size > LIMIT and cuts:
            combine = REDUCERS[e.op] if cuts[0] in dims else None
            return self._in_pieces(cuts[0], size, lambda piece: piece._direct(e, dims, body, guards), combine)
        array = self.value(body, guards)
        shape = [self.length(d) if d in dims else n for d, n in enumerate(array.shape)]
        array = np.broadcast_to(array, shape)
        if is_arg:
            pick = np.argmax if e.op == "argmax" else np.argmin
            return np.asarray(pick(array, axis=dims[0], keepdims=True), np.int64)
        if e.op == "sum":
            return _sum(array, dims)
        return REDUCERS[e.op].reduce(array, axis=dims, keepdims=True, dtype=array.dtype)

    def _product(self, body: Expr, guards: Guards) -> _Product:
        """`body` as a product of factors, some of them zero outside a condition."""
        factors: list[tuple[Expr, Guards]] = []
        masks: list[tuple[Expr, bool, Guards]] = []

        def visit(e: Expr, guards: Guards) -> int:
            if self.facts.uses.get(e, 0) <= 1:
                match e:
                    case Apply(fn="mul"):
                        return visit(e.args[0], guards) * visit(e.args[1], guards)
                    case Apply(fn="neg"):
                        return -visit(e.args[0], guards)
                    case Select(other=Const(value=0)):
                        masks.extend((c, p, guards) for c, p in self._conjuncts(e.cond, True))
                        return visit(e.then, (*guards, (e.cond, True)))
                    case Select(then=Const(value=0)):
                        masks.extend((c, p, guards) for c, p in self._conjuncts(e.cond, False))
                        return visit(e.other, (*guards, (e.cond, False)))
            factors.append((e, guards))
            return 1

        sign = visit(body, guards)
        return _Product(sign, factors, masks)

    def _conjuncts(self, cond: Expr, positive: bool) -> list[tuple[Expr, bool]]:
        """A condition as independent ones; one that can fault stays whole, for the order in it matters."""
        if isinstance(cond, Apply) and cond not in self.facts.faulty:
            if cond.fn == "not":
                return self._conjuncts(cond.args[0], not positive)
            if cond.fn == ("and" if positive else "or"):
                return self._conjuncts(cond.args[0], positive) + self._conjuncts(cond.args[1], positive)
        return [(cond, positive)]

    def _sum_of_products(
        self, e: Reduce, dims: tuple[int, ...], body: Expr, product: _Product, guards: Guards
    ) -> np.ndarray:
        """Sum over `dims` of `body`, which is a product, by matrix products of two factors at a time."""

        def used(e: Expr) -> frozenset[int]:
            return frozenset(a.ident for a in e.free if self.length(a.ident) > 1)

        sets = [used(f) for f, _ in product.factors]
        home: list[list[tuple[Expr, bool, Guards]]] = [[] for _ in sets]
        for mask in product.masks:  # each condition joins the factor that grows least by it
            own = used(mask[0])
            at = min(range(len(sets)), key=lambda n: (self._size(sets[n] | own) - self._size(sets[n]), -len(sets[n])))
            sets[at] |= own
            home[at].append(mask)
        steps, peak = self._order(sets, frozenset(dims))
        if self._size(peak) > LIMIT:
            cut = min(peak)
            combine = np.add if cut in dims else None
            return self._in_pieces(cut, self._size(peak), lambda piece: piece._reduce(e, guards), combine)
        arrays = []
        for (factor, inside), conditions in zip(product.factors, home, strict=True):
            array = self.value(factor, inside)
            for cond, positive, outside in conditions:
                holds = self.value(cond, outside)
                array = np.where(holds if positive else ~holds, array, np.zeros((), array.dtype))
            arrays.append(array)
        unused = [d for d in dims if all(a.shape[d] == 1 for a in arrays)]
        scale = product.sign * math.prod(self.length(d) for d in unused)
        for i, j in steps:
            right = arrays.pop(j)
            left = arrays.pop(i)
            arrays.append(_contract(left, right, [d for d in dims if all(a.shape[d] == 1 for a in arrays)]))
        result = arrays[0] if scale == 1 else arrays[0] * np.asarray(scale).astype(arrays[0].dtype)
        if result.dtype.kind == "f" and not np.isfinite(result).all():
            return self._direct(e, dims, body, guards)  # to infinities the order matters
        return result

    def _size(self, dims: frozenset[int]) -> int:
        return math.prod(self.length(d) for d in dims)

    def _order(self, sets: list[frozenset[int]], dims: frozenset[int]) -> tuple[list[tuple[int, int]], frozenset[int]]:
        """Which two factors to multiply next, cheapest first, and the axes of the largest array on the way."""
        sets = list(sets)
        steps = []
        peak = max(sets, key=self._size)
        while len(sets) > 1:
            pairs = [(i, j) for j in range(len(sets)) for i in range(j)]
            i, j = min(pairs, key=lambda p: self._size(sets[p[0]] | sets[p[1]]))
            steps.append((i, j))
            both = sets.pop(j) | sets.pop(i)
            sets.append(both - (dims - frozenset().union(*sets)))
            peak = max(peak, sets[-1], key=self._size)
        return steps, peak


@dataclass(frozen=True)
class _Product:
    """sign * the product of `factors`, zero where a mask's condition does not have the value given with it."""

    sign: int
    factors: list[tuple[Expr, Guards]]
    masks: list[tuple[Expr, bool, Guards]]


@lru_cache(maxsize=65536)
def _reads(e: Expr) -> bool:
    return any(isinstance(n, Read) for n in postorder(e))


def _sum(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    wide = np.float64 if array.dtype == np.float32 else array.dtype
    return np.add.reduce(array, axis=dims, keepdims=True, dtype=wide).astype(array.dtype, copy=False)


def _contract(a: np.ndarray, b: np.ndarray, dropped: list[int]) -> np.ndarray:
    """a * b summed over the dimensions `dropped`, as one batched matrix product; operands have one rank and broadcast.

    a: [batch, left, inner] and b: [batch, inner, right] after a transposition, each a group of dimensions.
    """
    a, b = (
        _sum(x, own) if (own := tuple(d for d in dropped if x.shape[d] > 1 and y.shape[d] == 1)) else x
        for x, y in ((a, b), (b, a))
    )
    both = [d for d in range(a.ndim) if a.shape[d] > 1 and b.shape[d] > 1]
    inner = [d for d in both if d in dropped]
    if not inner:
        return a * b
    batch = [d for d in both if d not in dropped]
    left = [d for d in range(a.ndim) if a.shape[d] > 1 and d not in both]
    right = [d for d in range(a.ndim) if b.shape[d] > 1 and d not in both]

    def grouped(x: np.ndarray, *groups: list[int]) -> np.ndarray:
        rest = [d for d in range(x.ndim) if all(d not in g for g in groups)]
        shape = [math.prod(x.shape[d] for d in g) for g in groups]
        return x.transpose([d for g in groups for d in g] + rest).reshape(shape)

    product = np.matmul(grouped(a, batch, left, inner), grouped(b, batch, inner, right))
    kept = batch + left + right
    shape = [max(a.shape[d], b.shape[d]) for d in kept]
    order = kept + [d for d in range(a.ndim) if d not in kept]
    return product.reshape(shape + [1] * (a.ndim - len(kept))).transpose(np.argsort(order))
