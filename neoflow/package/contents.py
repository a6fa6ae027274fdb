"""What `program.json` says: the functions of a package, their plans, and the arrays they share."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple  # annotations are no text: each would be compiled, as a package is loaded

from neoflow import dtype as dt
from neoflow.code import Code, Entry, Fault, Workspace
from neoflow.errors import Location, PackageError
from neoflow.package.manifest import MALFORMED, is_name
from neoflow.plain import plain
from neoflow.runtime.plan import Buffer, Call, Moving, Plan, Repeated

PROGRAM = "program.json"
CONSTANTS = "constants.bin"
_KINDS = ("input", "output", "parameter", "constant", "temporary", "scratch", "view")
_MOST = 1 << 62


class Array(NamedTuple):
    """An array by its name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def where(self) -> Location | None:
        """No line of the user's is known any more."""
        return None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * dt.itemsize(self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Placed(NamedTuple):
    """A constant: where it begins in the constants of the package."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class Program(NamedTuple):
    """A function. parameters, constants: numbers of those of the package, in the order of the plan's; updated: of
    those that a call writes. libraries: of each kernel, the number of the library that it is in."""

    name: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    parameters: tuple[int, ...]
    updated: tuple[int, ...]
    constants: tuple[int, ...]
    libraries: tuple[int, ...]
    plan: Plan


class Contents(NamedTuple):
    """All functions, and what they share. libraries: names of files."""

    programs: tuple[Program, ...]
    parameters: tuple[Array, ...]
    constants: tuple[Placed, ...]
    libraries: tuple[str, ...]

    def to_json(self) -> bytes:
        """As `read_contents` reads it."""
        return json.dumps(plain(self), separators=(",", ":")).encode() + b"\n"


def read_contents(data: bytes) -> Contents:
    """Raises `PackageError` for what does not fit together."""
    try:
        said = json.loads(data)
        found = Contents(
            tuple(map(_program, said["programs"])),
            tuple(map(_array, said["parameters"])),
            tuple(Placed(_count(c["offset"]), _ints(c["shape"]), _dtype(c["dtype"])) for c in said["constants"]),
            tuple(map(_text, said["libraries"])),
        )
        for program in found.programs:
            _check(program, found)
        if not found.programs or len({p.name for p in found.programs}) < len(found.programs):
            raise ValueError("functions need names of their own")
        return found
    except MALFORMED as error:
        raise PackageError(f"{PROGRAM} does not describe a program: {error}") from None


def _program(said: Mapping[str, Any]) -> Program:
    if not is_name(said["name"]):
        raise ValueError("the name of a function is no word")
    return Program(
        said["name"],
        tuple(map(_array, said["inputs"])),
        tuple(map(_array, said["outputs"])),
        _ints(said["parameters"]),
        _ints(said["updated"]),
        _ints(said["constants"]),
        _ints(said["libraries"]),
        _plan(said["plan"]),
    )


def _array(said: Mapping[str, Any]) -> Array:
    return Array(_text(said["name"]), _shape(said["shape"]), _dtype(said["dtype"]))


def _plan(said: Mapping[str, Any]) -> Plan:
    return Plan(
        tuple(map(_buffer, said["buffers"])),
        tuple(
            Call(_count(c["kernel"]), _ints(c["arguments"]), _ints(c["workspaces"]), _text(c["name"]))
            for c in said["calls"]
        ),
        tuple(map(_code, said["kernels"])),
        _ints(said["inputs"]),
        _ints(said["outputs"]),
        _ints(said["parameters"]),
        _pairs(said["saves"]),
        _pairs(said["copies"]),
        _count(said["arena_bytes"]),
        _count(said["live_bytes"]),
        _ints(said["constants"]),
        _count(said["scratch_bytes"]),
        loops=tuple(map(_loop, said.get("loops", ()))),
        together=_pairs(said.get("together", ())),
    )


def _loop(said: Mapping[str, Any]) -> Repeated:
    moving = (
        Moving(_count(m["buffer"]), _int(m["step"]), _count(m["period"]), _count(m["ahead"])) for m in said["moving"]
    )
    return Repeated(_count(said["first"]), _count(said["count"]), _task(said["turns"]), tuple(moving))


def _buffer(said: Mapping[str, Any]) -> Buffer:
    kind, base = said["kind"], said["base"]
    if kind not in _KINDS or type(base) is not int:
        raise ValueError(f"there is no buffer of kind {kind!r}")
    return Buffer(_text(said["name"]), _shape(said["shape"]), _dtype(said["dtype"]), kind, _count(said["offset"]), base)


def _code(said: Mapping[str, Any]) -> Code:
    return Code(
        tuple(
            Entry(
                _text(e["symbol"]),
                _task(e["tasks"]),
                e["is_parallel"] is True,
                _task(e["threads"]),
                _count(e["shared_bytes"]),
            )
            for e in said["entries"]
        ),
        tuple(Workspace(_count(w["nbytes"]), w["is_shared"] is True) for w in said["workspaces"]),
        tuple(Fault(None if f["value"] is None else _count(f["value"]), _count(f["extent"])) for f in said["faults"]),
    )


def _check(program: Program, contents: Contents) -> None:
    """What is named is there, and lies where there is memory."""
    plan = program.plan
    buffers, count = plan.buffers, len(plan.buffers)
    numbers = [n for c in plan.calls for n in (*c.arguments, *c.workspaces)]
    numbers += [*plan.inputs, *plan.outputs, *plan.parameters, *plan.constants]
    numbers += [n for pair in (*plan.saves, *plan.copies) for n in pair]
    if any(n >= count for n in numbers) or any(c.kernel >= len(plan.kernels) for c in plan.calls):
        raise ValueError(f"{program.name} names a buffer or a kernel that is not there")
    for n, b in enumerate(buffers):
        room = plan.scratch_bytes if b.kind == "scratch" else plan.arena_bytes
        if b.kind == "view":
            if not 0 <= b.base < n:
                raise ValueError(f"{b.name} is a view of what is not there")
            room = buffers[b.base].nbytes
        if b.kind in ("view", "temporary", "scratch") and b.offset + b.nbytes > room:
            raise ValueError(f"{b.name} lies outside of its memory")
    if any(count < 2 or first + count > len(plan.calls) for first, count in plan.together):
        raise ValueError(f"{program.name} names calls that are not there")
    _check_loops(program)
    _match(program.inputs, [buffers[n] for n in plan.inputs])
    _match(program.outputs, [buffers[n] for n in plan.outputs])
    _match([contents.parameters[n] for n in program.parameters], [buffers[n] for n in plan.parameters])
    _match([contents.constants[n] for n in program.constants], [buffers[n] for n in plan.constants])
    if not {*program.updated} <= {*program.parameters} or len(program.libraries) != len(plan.kernels):
        raise ValueError(f"{program.name} does not fit its plan")
    if any(n >= len(contents.libraries) for n in program.libraries):
        raise ValueError(f"{program.name} names a library that is not there")


def _check_loops(program: Program) -> None:
    """Loops are one in another or apart, and what moves stays in its memory."""
    plan, ends = program.plan, list[tuple[int, int]]()
    runs = [1] * len(plan.calls)
    reach: dict[int, list[int]] = {}
    for loop in plan.loops:
        first, end = loop.first, loop.first + loop.count
        is_apart = all(b <= first or end <= a or (first <= a and b <= end) for a, b in ends)
        if not (loop.count and loop.turns and end <= len(plan.calls) and is_apart):
            raise ValueError(f"{program.name} has a loop over calls that are not there")
        ends.append((first, end))
        runs[first:end] = [n * loop.turns for n in runs[first:end]]
        for m in loop.moving:
            if not (m.buffer < len(plan.buffers) and plan.buffers[m.buffer].kind == "view" and m.period):
                raise ValueError(f"{program.name} has a loop that moves what is no view")
            far = m.step * (min(m.period, loop.turns + m.ahead) - 1)
            bounds = reach.setdefault(m.buffer, [0, 0])
            bounds[0], bounds[1] = bounds[0] + min(far, 0), bounds[1] + max(far, 0)
    if sum(runs) >= 1 << 31:
        raise ValueError(f"{program.name} has too many calls")
    for n, (low, high) in reach.items():
        b = plan.buffers[n]
        if b.offset + low < 0 or b.offset + high + b.nbytes > plan.buffers[b.base].nbytes:
            raise ValueError(f"{b.name} leaves its memory")


def _match(arrays: Sequence[Array | Placed], buffers: Sequence[Buffer]) -> None:
    said = [(a.shape, a.dtype) for a in arrays]
    if said != [(b.shape, b.dtype) for b in buffers]:
        raise ValueError("arrays and buffers differ")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def _dtype(value: object) -> str:
    if value not in dt.NUMPY:
        raise ValueError(f"{value!r:.60} is no dtype")
    return dt.known(str(value))


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise TypeError(f"{value!r:.60} is no size or number")
    return value


def _int(value: object) -> int:
    """Of either sign."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.60} is no number")
    return -_count(-value) if value < 0 else _count(value)


def _task(value: object) -> int:
    if _count(value) >= 1 << 31:
        raise ValueError(f"{value} are too many tasks")
    return _count(value)


def _ints(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.60} is no list of numbers")
    return tuple(map(_count, values))


def _shape(values: object) -> tuple[int, ...]:
    shape = _ints(values)
    if len(shape) > 32 or not 0 < math.prod(shape) < _MOST:
        raise ValueError(f"{values!r:.60} is no shape")
    return shape


def _pairs(values: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.60} is no list of pairs")
    return tuple((_count(a), _count(b)) for a, b in values)
