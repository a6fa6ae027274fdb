"""Statements of `tirx`, said shortly: loops, vector loads and stores, stack tiles, names for values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import stmt as ts
from tvm.tirx.layout import S, TileLayout

from neoflow.code import Fault
from neoflow.codegen.tir.dialect import dialect, next_value
from neoflow.errors import CodegenError
from neoflow.loops.costs import LINE_BYTES

Value: TypeAlias = Any
"""An expression of tirx, which has no types for a checker."""
Body = Callable[[Value], list]

STORAGE = {"bool": "int8", "bfloat16": "uint16"}
"""How an element type lies in memory, where that is not its own name."""
REGISTER = {"float16": "float32", "bfloat16": "float32"}
"""What an element type is computed in, where that is not its own name."""
_NAMED_ALIKE = 256
"""Values of a kernel that have one name: the printer of TVM numbers what is named alike in quadratic time."""


def integer(value: int) -> Value:
    """An integer of loops and addresses. Raises `CodegenError` for one that is too large."""
    if not -(1 << 31) <= value < 1 << 31:
        raise CodegenError(f"the kernel counts to {value}; loops and addresses of a kernel are below 2^31")
    return _constant(value, dialect().index)


@lru_cache(maxsize=4096)
def _constant(value: int, element: str) -> Value:
    return tirx.const(value, element)


def narrow(x: Value) -> Value:
    """An integer of loops and addresses in 32 bits, as lanes of vectors have it; a ramp stays one."""
    if element_of(x) == "int32":
        return x
    if isinstance(x, tirx.Ramp):
        return tirx.Ramp(narrow(x.base), narrow(x.stride), lanes_of(x))
    if isinstance(x, tirx.IntImm):
        return _constant(int(x.value), "int32")
    return tirx.Cast(vector_type("int32", lanes_of(x)), x)


def alike(*values: Value) -> list[Value]:
    """Integers of loops and addresses to compute with together: in 32 bits where one of them is a vector of these."""
    is_narrow = any(element_of(v) == "int32" for v in values)
    return [narrow(v) for v in values] if is_narrow else list(values)


def leading(count: int, lanes: int) -> Value:
    """The mask of the first `count` lanes."""
    zero, one = _constant(0, "int32"), _constant(1, "int32")
    return tirx.Ramp(zero, one, lanes) < tirx.Broadcast(_constant(count, "int32"), lanes)


@lru_cache(maxsize=1024)
def _layout(size: int) -> TileLayout:
    """Of a flat buffer; TVM would make it anew for each."""
    return TileLayout(S[(size,)])


def lanes_of(x: Value) -> int:
    """How many lanes `x` has: 1 for a scalar."""
    return x.ty.dtype.lanes


def element_of(x: Value) -> str:
    """The dtype of one lane."""
    return str(x.ty.dtype).split("x")[0]


def vector_type(element: str, lanes: int) -> str:
    """The dtype string of `lanes` elements of type `element`."""
    return element if lanes == 1 else f"{element}x{lanes}"


def splat(value: float | int | bool, element: str, lanes: int = 1) -> Value:
    """The constant `value` in every lane."""
    scalar = dialect().constant(value, element)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


_NEAR_BYTES = 1 << 13
"""From which what is fetched is too far away for a first-level cache, which other rows go through meanwhile."""


def widen(x: Value, lanes: int) -> Value:
    """`x` in every lane, when it is a scalar."""
    return tirx.Broadcast(x, lanes) if lanes > 1 and lanes_of(x) == 1 else x


def choose(statements: list, condition: Value, then: Value, other: Value) -> Value:
    """`then` where the condition holds, else `other`, in as many lanes as any of them has.

    On a GPU one condition for all lanes goes through memory: TVM 0.27 prints it with a wrong type as CUDA C++.
    """
    lanes = max(lanes_of(v) for v in (condition, then, other))
    if lanes > lanes_of(condition) and not dialect().any_address:
        number = tirx.Select(condition, splat(1, "int32"), splat(0, "int32"))  # of int8, TVM repeats constants alone
        condition = tirx.NE(held(statements, widen(number, lanes)), splat(0, "int32", lanes))
    return tirx.Select(widen(condition, lanes), widen(then, lanes), widen(other, lanes))


def expected(condition: Value) -> Value:
    """A condition that nearly always holds: LLVM computes nothing beforehand of what is done where it does not. Vectors
    of elements two apart, looked at for the ends of memory: 0.5 to 1.04 of the time, 0.93 of 21 kernels."""
    return tirx.call_llvm_pure_intrin("bool", "llvm.expect", condition, tirx.const(True, "bool"))


def ramp(base: Value, step: int, lanes: int) -> Value:
    """base, base + step, ...: one index a lane."""
    return base if lanes == 1 else tirx.Ramp(base, integer(step), lanes)


def buffer(size: int, element: str, name: str, alignment: int | None = None, scope: str = "global") -> tirx.Buffer:
    """A flat buffer of `size` elements, aligned to one element unless said otherwise."""
    storage = STORAGE.get(element, element)
    bytes_each = tvm.DataType(storage).bits // 8
    aligned = alignment or bytes_each
    return tirx.decl_buffer((size,), storage, name, data_alignment=aligned, scope=scope, layout=_layout(size))


def load(source: tirx.Buffer, index: Value) -> Value:
    return tirx.BufferLoad(source, [index])


def store(target: tirx.Buffer, index: Value, value: Value) -> ts.Stmt:
    return ts.BufferStore(target, value, [index])


def view(statements: list, source: tirx.Buffer, index: Value) -> tirx.Buffer:
    """What `source` holds from `index` on, by an address that is computed here; nothing may write it meanwhile."""
    element = str(source.ty.dtype)
    place = tirx.Var(f"at_{source.name}", PointerType(PrimType(element)))
    found = buffer(1, element, source.name)
    statements += [ts.Bind(place, tirx.address_of(load(source, index))), ts.DeclBuffer(found, data=place)]
    return found


STREAM, SETTLE = "nf_stream", "nf_settle"
"""Functions of LLVM IR that a module imports: the first with the number of lanes and the element type behind it."""


def stream(target: tirx.Buffer, index: Value, value: Value) -> ts.Stmt:
    """Store neighbours past the caches, where they begin at a whole vector register; elsewhere as any others.

    Another thread sees them after `settle`.
    """
    if not isinstance(index, tirx.Ramp) or int(index.stride.value) != 1:
        return store(target, index, value)
    name = f"{STREAM}_{lanes_of(value)}_{element_of(value)}"
    return ts.Evaluate(tirx.call_extern("void", name, tirx.address_of(load(target, index.base)), value))


def settle() -> ts.Stmt:
    """What was stored past the caches comes before all that is stored after this."""
    return ts.Evaluate(tirx.call_extern("void", SETTLE))


NEAREST, SECOND = 3, 2
"""Caches that `prefetch` brings to."""


def prefetch(source: tirx.Buffer, index: Value, is_written: bool = False, cache: int = NEAREST) -> ts.Stmt:
    """What lies there is brought into a cache, to be read or written; it may be outside of the buffer."""
    place = tirx.address_of(load(source, index))
    how = [_constant(n, "int32") for n in (is_written, cache, 1)]
    return ts.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch.p0", place, *how))


def fetched(source: tirx.Buffer, index: Value, distance: int) -> list:
    """What lies so many elements behind neighbours that are read here, a line at a time; of what does not lie side by
    side nothing."""
    if not isinstance(index, tirx.Ramp) or int(index.stride.value) != 1:
        return []
    each = tvm.DataType(str(source.ty.dtype)).bits // 8
    cache = NEAREST if distance * each <= _NEAR_BYTES else SECOND
    places = range(distance, distance + lanes_of(index), max(1, LINE_BYTES // each))
    return [prefetch(source, index.base + integer(n), cache=cache) for n in places]


def masked_load(statements: list, source: tirx.Buffer, index: Value, mask: Value) -> Value:
    """The lanes of a load that `mask` has, 0 in the others, loaded by statements that are added.

    LLVM's own load of neighbours has the zeros itself: selected afterwards by a mask that is known they stay an
    instruction. TVM's leaves those lanes undefined, and where a condition computed from one chooses an address, even of
    a value that is not used, LLVM may drop the whole kernel; it is not part of the selection, since TVM's simplifier
    takes the condition for granted there, removes the mask, and the load leaves the buffer. Of one lane there is no
    masked load: then the first element is loaded where the mask is false.
    """
    element = str(source.ty.dtype)
    lanes = lanes_of(index)
    if lanes == 1:
        loaded = held(statements, load(source, choose(statements, mask, index, integer(0))))
        return tirx.Select(mask, loaded, splat(0, element, 1))
    if not isinstance(index, tirx.Ramp) or int(index.stride.value) != 1:
        loaded = held(statements, tirx.op.masked_load(vector_type(element, lanes), source, index, mask))
        return tirx.Select(mask, loaded, splat(0, element, lanes))
    place = tirx.address_of(load(source, index.base))
    name, kind = "llvm.masked.load", vector_type(element, lanes)
    return held(statements, tirx.call_llvm_intrin(kind, name, place, mask, splat(0, element, lanes)))


def first_lanes(mask: Value) -> int | None:
    """How many lanes a mask of the first ones has; None for any other."""
    match mask:
        case tirx.LT(a=tirx.Ramp(base=tirx.IntImm(value=0)), b=tirx.Broadcast(value=tirx.IntImm(value=count))):
            return int(count)
    return None


def masked_store(target: tirx.Buffer, index: Value, value: Value, mask: Value) -> ts.Stmt:
    """The lanes of a store that `mask` has.

    Of neighbours the first lane alone is stored as a scalar: LLVM 22 makes 4 bytes of a narrower one, and overwrites
    its neighbour. Where the device takes long for such stores, as many as are known to be there go in pieces.
    """
    left = first_lanes(mask)
    if left is not None and isinstance(index, tirx.Ramp) and (left == 1 or not dialect().stores_masked):
        return _in_pieces(target, index, value, left)
    return ts.Evaluate(tirx.op.masked_store(target, value, index, mask))


def _in_pieces(target: tirx.Buffer, index: Value, value: Value, count: int) -> ts.Stmt:
    """The first lanes of a store, in vectors of 8, 4 and 2, and a scalar."""
    step = int(index.stride.value)
    whole = Registers(1, element_of(value), lanes_of(value), "whole")
    out, first = [*whole.allocate(), whole.put(0, value)], 0
    while first < count:
        lanes = 1 << ((count - first).bit_length() - 1)
        places = [integer(first + n) for n in range(lanes)]
        piece = whole.lane(0, first) if lanes == 1 else tirx.Shuffle([whole.get(0)], places)
        out.append(store(target, ramp(index.base + integer(first * step), step, lanes), piece))
        first += lanes
    return sequence(out)


def call(name: str, *args: Value) -> Value:
    """The LLVM intrinsic `name`, lane by lane, with the type of its last argument."""
    return dialect().call(name, *args)


def fma(a: Value, b: Value, c: Value) -> Value:
    """a * b + c with one rounding."""
    return call("llvm.fma", a, b, c)


def sequence(statements: Sequence) -> ts.Stmt:
    """One statement of several."""
    if not statements:
        return ts.Evaluate(integer(0))
    return statements[0] if len(statements) == 1 else ts.SeqStmt(list(statements))


def loop(extent: int | Value, body: Body, name: str = "i") -> list:
    """`body` of every value in [0, extent); no loop around a single one."""
    if isinstance(extent, int) and extent == 1:
        return body(integer(0))
    return span(integer(0), integer(extent) if isinstance(extent, int) else extent, body, name)


def span(begin: Value, length: Value, body: Body, name: str) -> list:
    """`body` of every value in [begin, begin + length)."""
    variable = tirx.Var(name, dialect().index)
    return [ts.For(variable, begin, length, ts.ForKind.SERIAL, sequence(body(variable)))]


@dataclass(frozen=True)
class Tasks:
    """Statements that do the tasks from `begin` to `end`."""

    begin: tirx.Var
    end: tirx.Var
    statements: list


def tasks(count: int, body: Body) -> Tasks:
    """`body` of every task in a range of `count` ones."""
    begin, end = tirx.Var("begin", "int32"), tirx.Var("end", "int32")
    first, length = (tirx.Cast(dialect().index, n) for n in (begin, end - begin))
    statements = body(integer(0)) if count == 1 else span(first, length, body, "task")
    return Tasks(begin, end, statements)


def when(condition: Value | bool, statements: list, otherwise: list | None = None) -> list:
    """`statements` where `condition` holds, `otherwise` where not; decided now when it is known now."""
    if isinstance(condition, tirx.IntImm):
        condition = bool(condition.value)
    if isinstance(condition, bool):
        return statements if condition else (otherwise or [])
    return [ts.IfThenElse(condition, sequence(statements), sequence(otherwise) if otherwise else None)]


def bind(statements: list, value: Value, name: str = "t") -> Value:
    """A name for `value`, given by statements that are added; constants and names need none.

    Index arithmetic becomes a binding of TVM; the rest is kept.
    """
    if isinstance(value, tirx.IntImm | tirx.FloatImm | tirx.Var):
        return value
    if lanes_of(value) == 1 and element_of(value).startswith("int"):
        variable = tirx.Var(name, value.ty)
        statements.append(ts.Bind(variable, value))
        return variable
    return kept(statements, value, name)


def kept(statements: list, value: Value, name: str = "t") -> Value:
    """`value`, computed from data, through memory, which LLVM removes; conditions as flags.

    TVM's simplifier follows bindings into every expression: its time is exponential in a chain of selections, a float
    `x * y + x * y` is an integer to it, and an integer that wraps around does not exist.
    """
    if isinstance(value, tirx.IntImm | tirx.FloatImm | tirx.Var):
        return value
    lanes = lanes_of(value)
    if element_of(value) == "bool":
        return tirx.NE(held(statements, flags(value), name), splat(0, "int8", lanes))
    return held(statements, value, name)


def held(statements: list, value: Value, name: str = "t") -> Value:
    """`value` through memory: TVM does not see through it, LLVM does."""
    block = next_value() // _NAMED_ALIKE
    place = Registers(1, element_of(value), lanes_of(value), f"{name}{block}_" if block else name)
    statements += [*place.allocate(), place.put(0, value)]
    return place.get(0)


def flags(condition: Value) -> Value:
    """1 where `condition` holds, else 0, as int8."""
    lanes = lanes_of(condition)
    return tirx.Select(condition, splat(1, "int8", lanes), splat(0, "int8", lanes))


def differ(statements: list, a: Value, b: Value) -> Value:
    """a != b, where a NaN differs from everything: for floats TVM's own means "less or greater"."""
    if not element_of(a).startswith("float"):
        return tirx.NE(a, b)
    return tirx.EQ(held(statements, flags(tirx.EQ(a, b))), splat(0, "int8", lanes_of(a)))


def magnitude(x: Value) -> Value:
    """The bits of a float without its sign, as an integer: 0 for zeros, above those of infinity for NaN."""
    bits = tvm.DataType(element_of(x)).bits
    kind = f"int{bits}"
    mask = splat((1 << (bits - 1)) - 1, kind, lanes_of(x))
    return reinterpret(kind, x) & mask


def reinterpret(element: str, x: Value) -> Value:
    """The bits of each lane as another type; of a float that is known now, since TVM 0.27 prints the address of a
    literal as CUDA C++."""
    if isinstance(x, tirx.Broadcast):
        return widen(reinterpret(element, x.value), lanes_of(x))
    if isinstance(x, tirx.FloatImm):
        bits = np.array(x.value, np.dtype(element_of(x))).view(np.dtype(element))
        return tirx.const(bits.item(), element)
    return tirx.reinterpret(vector_type(element, lanes_of(x)), x)


def is_nan(x: Value) -> Value:
    """Whether a float is NaN; of its bits, since TVM takes x != x for false."""
    kind = f"int{tvm.DataType(element_of(x)).bits}"
    infinity = 0x7F800000 if kind == "int32" else 0x7FF0000000000000
    return magnitude(x) > splat(infinity, kind, lanes_of(x))


def digits(statements: list, flat: Value, extents: Sequence[int]) -> list[Value]:
    """`flat` as mixed-radix digits, the last running fastest, each bound to a name."""
    found: list[Value] = []
    left = math.prod(extents)
    for extent in reversed(extents):
        left //= extent
        if extent == 1:
            found.append(integer(0))
        elif left == 1:
            found.append(flat)
            flat = integer(0)
        else:
            found.append(bind(statements, tirx.truncmod(flat, integer(extent)), "d"))
            flat = bind(statements, tirx.truncdiv(flat, integer(extent)), "q")
    return found[::-1]


def on_stack(target: tirx.Buffer) -> ts.Stmt:
    """Allocation in the frame: LLVM keeps it in registers where every index is a constant."""
    return ts.AllocBuffer(target, {"disable_lower_builtin": tirx.IntImm("int32", 1)})


def aligned_on_stack(target: tirx.Buffer, nbytes: int) -> list:
    """The same at a multiple of so many bytes, a power of two: of an array of vectors, which LLVM aligns to their
    size, where TVM has arrays of elements begin at a multiple of 16 bytes."""
    element = tvm.DataType(str(target.ty.dtype))
    lanes = nbytes * 8 // element.bits
    count = -(-math.prod(int(n) for n in target.ty.shape) // lanes)
    whole = tirx.decl_buffer((count,), f"{element}x{lanes}", target.name, data_alignment=nbytes)
    return [on_stack(whole), ts.DeclBuffer(target, data=whole.data)]


def nbytes(target: tirx.Buffer) -> int:
    return math.prod(int(n) for n in target.ty.shape) * (tvm.DataType(str(target.ty.dtype)).bits // 8)


class Faults:
    """A kernel's run-time checks: the number of the last failed one is kept in the kernel's status word.

    What follows a failed check still runs, and stays inside of every buffer.
    """

    def __init__(self) -> None:
        self.status = buffer(1, "int32", "status")
        self._found: dict[Fault, int] = {}

    @property
    def found(self) -> tuple[Fault, ...]:
        """What may fail, by number from 1."""
        return tuple(self._found)

    def check(self, condition: Value, fault: Fault) -> ts.Stmt:
        """Note `fault` unless `condition` holds."""
        code = self._found.setdefault(fault, len(self._found) + 1)
        return ts.IfThenElse(tirx.Not(condition), dialect().note(self.status, code), None)


class Registers:
    """A block of vector registers: a stack array of vectors whose every index is a constant."""

    def __init__(self, count: int, element: str, lanes: int, name: str = "acc") -> None:
        self.lanes, self.element, self.count = lanes, element, count
        bytes_each = lanes * tvm.DataType(element).bits // 8
        scope = dialect().registers
        self._parts = [buffer(lanes, element, f"{name}{n}", bytes_each, scope) for n in range(count)]

    def allocate(self) -> list:
        return [on_stack(part) for part in self._parts]

    def get(self, n: int) -> Value:
        return load(self._parts[n], ramp(integer(0), 1, self.lanes))

    def lane(self, n: int, lane: int) -> Value:
        """One lane of a register."""
        return load(self._parts[n], integer(lane))

    def address(self, n: int, lane: int = 0) -> Value:
        """Where a lane is, for a function that takes or changes those from there on."""
        return tirx.address_of(self.lane(n, lane))

    def put_lane(self, n: int, lane: int, value: Value) -> ts.Stmt:
        return store(self._parts[n], integer(lane), value)

    def put(self, n: int, value: Value) -> ts.Stmt:
        return store(self._parts[n], ramp(integer(0), 1, self.lanes), widen(value, self.lanes))
