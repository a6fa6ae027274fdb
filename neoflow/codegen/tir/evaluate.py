"""Expressions of the language as straight-line `tirx` code, one point or one vector of points at a time.

An axis is bound to an integer, or the *lane axis* to one integer a lane.  Both branches of a `select` are computed
and the chosen one kept; a read that could leave its buffer is then masked by the conditions on indices it stands under
(on all of them, where an index is data), so nothing outside is read and nothing of the other branch is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

from tvm import tirx

from neoflow.code import Fault
from neoflow.codegen.tir import emit, masks
from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.functions import apply_function, constant_of, divide_index
from neoflow.codegen.tir.guards import Guard, Guards
from neoflow.codegen.tir.indices import is_inside, is_narrow, levels
from neoflow.codegen.tir.places import compared, equal_to_place
from neoflow.codegen.tir.storage import constant, convert, from_storage, to_storage
from neoflow.codegen.tir.strided import Within, is_near, near_load, repeated, repeated_load
from neoflow.errors import CodegenError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.deep import Walk, run
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select, postorder
from neoflow.loops.nest import is_data_dependent, is_index, stride

Value = emit.Value
_CONTEXTS = 2
"""Conditions under which one expression is computed again: from then on its reads are guarded by their own addresses,
as conditions around what branches share would multiply."""


_FOLDED = {f.name for f in FUNCTIONS.values() if f.arity == 2 and f.typing in ("arith", "real", "compare")}
"""Functions that TVM folds where an operand is a constant."""

_CHOICES = 4
"""Choices inside an index that are one expression of TVM: it recurses through them."""


class Evaluator:
    """Emits expressions at one point: `statements` grows, `value(e)` gives what `e` is there.

    buffers: kernel inputs by value number.  env: axes to scalars of the dialect's `index`, the start for the lane axis,
    which is a multiple of the lanes where the dialect asks for it.
    given: values known already (the anchor's result).  mask: lanes that exist, when not all do.  faults: where the
    checks of data-dependent indices go; without it there may be none.  instead: by value number, the element that is
    loaded where a read is not needed, if it is not the first.  begins: what the start is a multiple of also where the
    dialect does not ask for it; 0: of the lanes.  starts: by value number, the element that data counts indices from.
    further: by value number, how many elements behind neighbours that are loaded others are fetched, for later.
    unsettled: what others write meanwhile, in part: a read of it is needed, or not done, also where it is inside.
    """

    def __init__(
        self,
        buffers: dict[int, tirx.Buffer],
        env: dict[Axis, Value],
        lane_axis: Axis | None = None,
        lanes: int = 1,
        given: dict[Expr, Value] | None = None,
        mask: Guard = None,
        faults: emit.Faults | None = None,
        instead: Mapping[int, Value] | None = None,
        begins: int = 1,
        starts: Mapping[int, Value] | None = None,
        further: Mapping[int, int] | None = None,
        unsettled: frozenset[int] = frozenset(),
    ):
        self._faults, self._instead, self._begins = faults, instead or {}, begins
        self._unsettled = unsettled
        self._starts, self._further = starts or {}, further or {}
        self.statements: list = []
        self._buffers = buffers
        self._env = env
        self._lane_axis = lane_axis if lanes > 1 else None
        self._lanes = lanes
        self._mask = mask
        self._memo: dict[tuple[Expr, int], Value] = {(e, 0): v for e, v in (given or {}).items()}
        self._guards = Guards(self.statements)
        self._zeroed: set[tuple[Read, int]] = set()
        """reads, by the ids of their guards, that are 0 where these do not hold"""
        self._unsafe: dict[Expr, bool] = {}
        self._by_address: dict[Expr, bool] = {}
        self._contexts: dict[Expr, int] = {}
        self._own: Value = tirx.const(1, "bool")
        """stands for a guard: each read by its own address"""

    def value(self, e: Expr) -> Value:
        """`e` in its register type: a scalar when it does not depend on the lane axis."""
        return run(self._value(e, None))

    def stored(self, e: Expr, element: str) -> Value:
        """`e` as it lies in memory, one value a lane."""
        return to_storage(emit.widen(self.value(e), self._lanes), element)

    def index(self, e: Expr) -> Value:
        """An integer expression of axes: of the dialect's `index`, or int32 in lanes that are no ramp."""
        return run(self._index(affine.simplify(e)))

    def is_zero_outside(self, read: Expr) -> bool:
        """Whether a value is 0 in the lanes that the mask has not: one read from neighbours there, or 0 instead."""
        if isinstance(read, Select) and isinstance(read.other, Const) and read.other.value == 0:
            return self.is_zero_outside(read.then)
        if not isinstance(read, Read) or self._mask is None or self._is_invariant(read) or is_data_dependent(read):
            return False
        is_plain = dialect().any_address and self._repeated(read) is None and is_narrow(read.indices[0])
        return is_plain and stride(affine.simplify(read.indices[0]), cast(Axis, self._lane_axis)) == 1

    def _value(self, e: Expr, guard: Guard) -> Walk[Value]:
        if not self._is_unsafe(e):
            guard = None
        elif guard is not None and self._contexts.get(e, 0) >= _CONTEXTS and self._is_by_address(e):
            guard = self._own
        key = (e, id(guard) if guard is not None else 0)
        known = self._memo.get(key)
        if known is None:
            self._contexts[e] = self._contexts.get(e, 0) + 1
            known = yield from self._compute(e, guard)
            if not isinstance(e, Const | Axis):
                known = (emit.bind if is_index(e) else emit.kept)(self.statements, known)
            self._memo[key] = known
        return known

    def _is_unsafe(self, e: Expr) -> bool:
        """Whether computing `e` reads where it must not, unless its guard says so."""
        known = self._unsafe.get(e)
        if known is None:
            for node in postorder(e):
                unsafe = any(self._unsafe[c] for c in node.children)
                self._unsafe[node] = unsafe or (isinstance(node, Read) and not self._is_settled(node))
            known = self._unsafe[e]
        return known

    def _is_by_address(self, e: Expr) -> bool:
        """Whether no index in `e` is data: what is read there is checked where it is read, and only there."""
        known = self._by_address.get(e)
        if known is None:
            for node in postorder(e):
                below = all(self._by_address[c] for c in node.children)
                self._by_address[node] = below and not (isinstance(node, Read) and self._needs_guard(node))
            known = self._by_address[e]
        return known

    def _needs_guard(self, read: Read) -> bool:
        """Whether no address says that a read may not be done."""
        return is_data_dependent(read) or read.slot in self._unsettled

    def _is_settled(self, read: Read) -> bool:
        """Whether a read may be done where it is not needed."""
        return is_inside(read) and read.slot not in self._unsettled

    def _compute(self, e: Expr, guard: Guard) -> Walk[Value]:
        if is_index(e) and not isinstance(e, Const) and is_narrow(index := affine.simplify(e)):
            place = yield self._index(index)
            if emit.lanes_of(place) == 1 and emit.element_of(place) == dt.INDEX:
                return place
            return tirx.Cast(emit.vector_type(dt.INDEX, emit.lanes_of(place)), emit.narrow(place))
        match e:
            case Const():
                return constant(e.value, e.dtype)
            case Read():
                return (yield from self._read(e, guard))
            case Apply(fn="and" | "or"):
                first = yield self._value(e.args[0], guard)
                second = yield self._value(e.args[1], (yield self._under(guard, e.args[0], e.fn == "and", e.args[1])))
                return self._logic(tirx.And if e.fn == "and" else tirx.Or, first, second)
            case Apply():
                return (yield from self._apply(e, guard))
            case Select():
                condition = yield self._value(e.cond, guard)
                inside = yield self._under(guard, e.cond, True, e.then)
                then = yield self._value(e.then, inside)
                other = yield self._value(e.other, (yield self._under(guard, e.cond, False, e.other)))
                if _is_zero(e.other) and (e.then, id(inside)) in self._zeroed:
                    return (yield from self._where_data_says(e.cond, then, guard))
                if self._is_apart(e, then):
                    return (yield from self._or_zero(e.cond, then, guard))
                return emit.choose(self.statements, condition, then, other)
            case Cast():
                return convert((yield self._value(e.arg, guard)), e.dtype)
            case Reduce():
                raise CodegenError("a reduction inside an expression reached the evaluator")
        raise TypeError(type(e).__name__)

    def _is_apart(self, e: Select, value: Value) -> bool:
        """Whether a choice between `value` and 0 is none of one mask: where masks are vectors like others, LLVM
        makes those of conditions of all lanes together with conditions of each anew for each vector, of 16 bits a lane.
        """
        is_float = emit.element_of(value) in ("float32", "float64")
        is_apart = is_float and emit.lanes_of(value) > 1 and not dialect().masks
        return is_apart and _is_zero(e.other) and not isinstance(e.then, Read)

    def _or_zero(self, condition: Expr, value: Value, guard: Guard) -> Walk[Value]:
        """`value`, which has lanes, where a condition holds, else 0: what all lanes have together is a mask of its
        own."""
        whole: Value | None = None
        for part in conjuncts(condition, True) if not self._is_unsafe(condition) else (condition,):
            holds = yield self._value(part, guard)
            if emit.lanes_of(holds) > 1:
                value = emit.choose(self.statements, holds, value, emit.splat(0, emit.element_of(value)))
            else:
                whole = holds if whole is None else tirx.And(whole, holds)
        return value if whole is None else masks.or_zero(self.statements, whole, value)

    def _where_data_says(self, condition: Expr, loaded: Value, guard: Guard) -> Walk[Value]:
        """What is loaded, which is 0 where what indices say does not hold, also where what data says does not."""
        for part in conjuncts(condition, True):
            if _is_of_data(part):
                holds = yield self._value(part, guard)
                loaded = emit.choose(self.statements, holds, loaded, emit.splat(0, emit.element_of(loaded)))
        return loaded

    def _apply(self, e: Apply, guard: Guard) -> Walk[Value]:
        if dialect().any_address and (found := compared(e, self._lane_axis)) is not None:
            data, start = (yield self._value(found[0], guard)), (yield self._linear(found[1]))
            return equal_to_place(e.fn, data, start, found[2], self._lanes, self.statements)
        if e.dtype == "bool" and all(is_index(a) and is_narrow(affine.simplify(a)) for a in e.args):
            args = []
            for a in e.args:
                args.append((yield self._index(affine.simplify(a))))
            if any(emit.lanes_of(a) > 1 for a in args):
                args = [emit.narrow(a) for a in args]
        else:
            args = []
            for a in e.args:
                args.append(self._operand(e.fn, a, (yield self._value(a, guard))))
            if len(args) == 2 and args[0].same_as(args[1]):  # TVM takes x - x for 0, infinity or not
                args[1] = emit.held(self.statements, args[1])
        constant = isinstance(e.args[-1], Const)
        return apply_function(e.fn, self._aligned(*args), constant, self.statements)

    def _operand(self, fn: str, e: Expr, value: Value) -> Value:
        """A value to compute with: no constant from which TVM concludes what does not hold of NaN or of overflow."""
        known = isinstance(e, Const) and fn in _FOLDED and (dt.is_int(e.dtype) or constant_of(value) == 0)
        return emit.held(self.statements, value) if known else value

    def _aligned(self, *values: Value) -> list[Value]:
        """All scalars, or all with every lane."""
        lanes = max(emit.lanes_of(v) for v in values)
        return [emit.widen(v, lanes) for v in values]

    def _logic(self, op: type, a: Value, b: Value) -> Value:
        return op(*self._aligned(a, b))

    def _under(self, guard: Guard, condition: Expr, holds: bool, e: Expr) -> Walk[Guard]:
        """The guard of `e` where a condition around it holds, or does not.

        Where no index in `e` is data, what is said of data is no part of it: it is not why a read is inside.
        """
        if not self._is_unsafe(e):
            return None
        if not self._is_by_address(e):
            value = yield self._value(condition, guard)
            return self._both(guard, value if holds else tirx.Not(value))
        for part in conjuncts(condition, holds):
            if not _is_of_data(part):
                guard = self._both(guard, (yield self._value(part, None)))
        return guard

    def _both(self, guard: Guard, condition: Value) -> Guard:
        return guard if guard is self._own else self._guards.both(guard, condition)

    def _index(self, e: Expr) -> Walk[Value]:
        """Linear forms become a ramp, so that a vector of addresses with one step stays recognisable."""
        low, high = affine.bounds(e)
        if max(abs(low), abs(high)) >= 1 << 31:
            raise CodegenError(f"index `{e}` reaches {max(abs(low), abs(high))}: buffers hold fewer than 2^31 elements")
        if not is_narrow(e):
            wide = yield self._value(e, None)
            lanes = emit.lanes_of(wide)
            return tirx.Cast(dialect().index, wide) if lanes == 1 else tirx.Cast(emit.vector_type("int32", lanes), wide)
        step = stride(e, self._lane_axis) if self._lane_axis is not None else 0
        if self._lane_axis is not None and step:
            lanes = emit.ramp((yield self._linear(e)), step, self._lanes)
            return lanes if step != 1 or self._is_whole(e) else emit.held(self.statements, lanes)
        return (yield (self._linear(e) if step == 0 else self._vector_linear(e)))

    def _is_whole(self, e: Expr) -> bool:
        """Whether neighbours of this address may be one access of the device: vectors start at multiples of lanes."""
        if dialect().any_address:
            return True
        terms, constant = affine.linear(e)
        others = [c for atom, c in terms.items() if atom is not self._lane_axis]
        return all(c % self._lanes == 0 for c in (*others, constant))

    def _linear(self, e: Expr) -> Walk[Value]:
        """`e` with the lane axis at its start."""
        terms, constant = affine.linear(e)
        total: Value | None = None
        for atom, coefficient in terms.items():
            term = yield self._atom(atom, self._linear)
            term = term if coefficient == 1 else term * emit.integer(coefficient)
            total = term if total is None else total + term
        if total is None:
            return emit.integer(constant)
        return total + emit.integer(constant) if constant else total

    def _vector_linear(self, e: Expr) -> Walk[Value]:
        terms, constant = affine.linear(e)
        total = emit.splat(constant, "int32", self._lanes)
        for atom, coefficient in terms.items():
            term = emit.widen((yield self._atom(atom, self._vector_linear)), self._lanes)
            total = total + term * emit.splat(coefficient, "int32", self._lanes)
        return total

    def _atom(self, atom: Expr, inner: Callable[[Expr], Walk[Value]]) -> Walk[Value]:
        if isinstance(atom, Axis):
            start = self._env[atom]
            if inner != self._vector_linear:
                return start
            return emit.narrow(emit.ramp(start, 1, self._lanes) if atom is self._lane_axis else start)
        if not isinstance(atom, Apply):
            raise CodegenError(f"`{atom}` is no index")
        divisor = atom.args[-1]
        if atom.fn in ("floordiv", "mod") and isinstance(divisor, Const) and divisor.value > 0:
            low, _ = affine.bounds(atom.args[0])
            dividend = yield inner(atom.args[0])
            return divide_index(atom.fn, dividend, int(divisor.value), low, self.statements)
        args = []
        for a in atom.args:
            value = yield inner(a)
            deep = levels(a) and levels(a) % _CHOICES == 0  # TVM follows each choice into all that it chooses from
            args.append(emit.held(self.statements, value) if deep else value)
        lanes = max(emit.lanes_of(a) for a in args)
        args = [emit.widen(a, lanes) for a in args]
        if atom.fn == "mul":
            return args[0] * args[1]
        return apply_function(atom.fn, args, isinstance(divisor, Const), self.statements)

    def _read(self, read: Read, guard: Guard) -> Walk[Value]:
        buffer, given = self._buffers[read.slot], guard
        if is_data_dependent(read):
            address = yield self._address(read.source.shape, read.indices, read.slot, guard)
        else:
            repeats = self._repeated(read)
            if repeats is not None:
                return from_storage((yield from self._load_repeated(read, *repeats)), read.dtype)
            address = yield self._index(read.indices[0])
        if guard is self._own:
            kind, lanes, size = emit.element_of(address), emit.lanes_of(address), math.prod(read.source.shape)
            first, behind = emit.splat(0, kind, lanes), emit.splat(size, kind, lanes)
            guard = None if is_inside(read) else tirx.And(address >= first, address < behind)
        if is_data_dependent(read) and read.slot in self._starts:
            address = _plus(address, self._starts[read.slot])
        if dialect().any_address and is_near(address):
            return from_storage(near_load(self.statements, buffer, address, self._within(read, guard)), read.dtype)
        if read.slot in self._further:
            self.statements += emit.fetched(buffer, address, self._further[read.slot])
        is_by_lanes = guard is not None and emit.lanes_of(guard) > 1  # and may hold in lanes alone that are not there
        if self._mask is not None and (is_by_lanes or not self._is_invariant(read)):
            guard = self._both(guard, self._mask)
        instead = self._instead.get(read.slot, emit.integer(0))
        conditions = self._guards.conditions(guard)
        is_mixed = len({emit.lanes_of(c) > 1 for c in conditions}) == 2  # of all lanes, and of each
        if is_mixed and not dialect().masks and masks.can_load(buffer, address):
            self._zeroed.add((read, id(given)))
            return masks.load(self.statements, buffer, address, conditions)
        return from_storage(self._load(buffer, address, guard, math.prod(read.source.shape), instead), read.dtype)

    def _within(self, read: Read, guard: Guard) -> Within:
        """Which lanes of a read are there."""
        there = self._lanes if self._mask is None else emit.first_lanes(self._mask)
        if guard is None and there is not None:
            return Within(there)
        return Within(self._lanes, math.prod(read.source.shape))

    def _repeated(self, read: Read) -> tuple[Expr, int, int] | None:
        """What `repeated` makes of the address, where the device loads from any."""
        if self._lane_axis is None or self._begins == 1 or not (dialect().any_address and self._lane_axis in read.free):
            return None
        address = affine.simplify(read.indices[0])
        return repeated(address, self._lane_axis, self._lanes, self._begins) if is_narrow(address) else None

    def _load_repeated(self, read: Read, rest: Expr, divisor: int, phase: int) -> Walk[Value]:
        axis = cast(Axis, self._lane_axis)
        first = (yield self._linear(rest)) + tirx.truncdiv(self._env[axis], emit.integer(divisor))
        within = self._within(read, None if is_inside(read) else self._own)
        return repeated_load(self.statements, self._buffers[read.slot], first, self._lanes, divisor, phase, within)

    def _is_invariant(self, read: Read) -> bool:
        return self._lane_axis is None or self._lane_axis not in read.free

    def _load(self, buffer: tirx.Buffer, address: Value, guard: Guard, size: int, instead: Value) -> Value:
        """A load that touches nothing where `guard` is false; what it gives there is not used."""
        if guard is None:
            return emit.load(buffer, address)
        lanes = emit.lanes_of(address)
        if lanes == 1 and emit.lanes_of(guard) > 1:  # one element for all lanes: it is inside where any lane is
            address, lanes = tirx.Broadcast(address, emit.lanes_of(guard)), emit.lanes_of(guard)
        contiguous = isinstance(address, tirx.Ramp) and int(address.stride.value) == 1 and dialect().any_address
        if contiguous and (emit.lanes_of(guard) > 1 or lanes > size):
            return emit.masked_load(self.statements, buffer, address, emit.widen(guard, lanes))
        if contiguous:
            return emit.load(buffer, tirx.Ramp(tirx.Select(guard, address.base, instead), address.stride, lanes))
        chosen, first = emit.alike(address, instead)
        return emit.load(buffer, emit.choose(self.statements, guard, chosen, emit.widen(first, lanes)))

    def address(self, shape: tuple[int, ...], indices: tuple[Expr, ...], value: int | None) -> Value:
        """The position of `indices` in a dense tensor, after a check of each index that is read from a tensor.

        value: the number of the tensor among the kernel's values; None for the one it writes.
        """
        return run(self._address(shape, indices, value, None))

    def _address(
        self, shape: tuple[int, ...], indices: tuple[Expr, ...], value: int | None, guard: Guard
    ) -> Walk[Value]:
        """See `address`; under a guard."""
        address = emit.integer(0)
        varies = any(not is_index(i) and self._lane_axis in i.free for i in indices)
        if varies or (guard is not None and emit.lanes_of(guard) > 1):
            raise CodegenError(f"an index of {_named(value)} differs from lane to lane, which no schedule may ask for")
        for extent, index in zip(shape, indices, strict=True):
            if is_index(index):
                position = yield self._index(affine.simplify(index))
            else:
                wide = yield self._value(index, guard)
                inside = tirx.And(wide >= tirx.const(0, dt.INDEX), wide < tirx.const(extent, dt.INDEX))
                met = inside if guard is None else tirx.Or(inside, tirx.Not(guard))
                if self._faults is None:
                    raise CodegenError(f"an index of {_named(value)} is data where no check can be made")
                self.statements.append(self._faults.check(met, Fault(value, extent)))
                wide = tirx.Select(inside, wide, tirx.const(0, dt.INDEX))
                position = tirx.Cast(dialect().index, wide)
            address = _plus(_times(address, extent), position)
        return address


def _named(value: int | None) -> str:
    return "the output" if value is None else f"value {value}"


def _times(a: Value, factor: int) -> Value:
    """a * factor; a ramp stays one."""
    by, _ = emit.alike(emit.integer(factor), a)
    lanes = emit.lanes_of(a)
    if isinstance(a, tirx.Ramp):
        return tirx.Ramp(a.base * by, a.stride * by, lanes)
    return a * emit.widen(by, lanes)


def _plus(a: Value, b: Value) -> Value:
    """a + b; ramps stay ramps."""
    a, b = emit.alike(a, b)
    lanes = max(emit.lanes_of(a), emit.lanes_of(b))
    ramps = [v for v in (a, b) if isinstance(v, tirx.Ramp)]
    others = [v for v in (a, b) if not isinstance(v, tirx.Ramp)]
    if not ramps or any(emit.lanes_of(v) > 1 for v in others):
        return emit.widen(a, lanes) + emit.widen(b, lanes)
    base = sum([v.base for v in ramps[1:]] + others, ramps[0].base)
    return tirx.Ramp(base, sum([v.stride for v in ramps[1:]], ramps[0].stride), lanes)


def _is_of_data(condition: Expr) -> bool:
    return any(isinstance(node, Read) for node in postorder(condition))


def _is_zero(e: Expr) -> bool:
    """Whether all bits of a value are 0."""
    return isinstance(e, Const) and e.value == 0 and math.copysign(1.0, e.value) > 0
