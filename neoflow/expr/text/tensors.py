"""Labels of tensors, and the lines of those that are given."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import Location
from neoflow.expr.limits import MOST_EXTENT, MOST_RANK, excess
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor
from neoflow.expr.text.build import Source, build_definition
from neoflow.expr.text.syntax import read_place, read_statement
from neoflow.expr.text.write import definition_lines, is_free_name, usable_names
from neoflow.text import Scanner, Token, quote


def make_labels(tensors: Iterable[Tensor], reserved: frozenset[str] = frozenset()) -> dict[Tensor, str]:
    """A label for each tensor: its name where that is free, else a new one."""
    taken, found = set(reserved), {}
    count: dict[str, int] = {}
    for t in tensors:
        base = t.name if is_free_name(t.name) and t.name not in reserved else "t"
        label = base
        while label in taken:
            count[base] = count.get(base, 0) + 1
            label = f"{base}_{count[base]}"
        taken.add(label)
        found[t] = label
    return found


def type_text(shape: Sequence[int | str], dtype: str) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def read_type(scanner: Scanner) -> tuple[tuple[int, ...], str]:
    """`float32[64, 784]`."""
    if scanner.token.text not in dt.NUMPY:
        scanner.fail(f"a dtype ({', '.join(dt.NUMPY)})")
    dtype = scanner.next().text
    scanner.expect("[")
    shape: list[int] = []
    while not scanner.accept("]"):
        if shape:
            scanner.expect(",")
        token = scanner.token
        shape.append(scanner.number("an extent", MOST_EXTENT))
        if not shape[-1] or len(shape) > MOST_RANK:
            scanner.refuse(f"a shape has at most {MOST_RANK} extents, each greater than 0", token)
        wrong = excess(shape)
        if wrong is not None:
            scanner.refuse(wrong, token)
    return tuple(shape), dtype


def leaf_line(t: Tensor, label: str) -> str:
    """`x: placeholder float32[64, 784] @ "train.py":12`; a constant with its bytes, `c: constant int8[2] = "AQI="`."""
    value = f" = {quote(_encoded(t.value))}" if isinstance(t, Constant) else ""
    return f"{named(t, label)}: {type(t).__name__.lower()} {type_text(t.shape, t.dtype)}{value}{place_text(t.where)}"


def _encoded(value: np.ndarray) -> str:
    """The elements in row-major order, little-endian, in base 64."""
    return base64.b64encode(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()).decode()


def _decoded(scanner: Scanner, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The elements of a constant. Raises `TextError` when they are not as many as the shape has."""
    token = scanner.token
    text = scanner.string("the elements of the constant, in base 64")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        scanner.refuse("the elements of a constant are written in base 64", token)
    wanted = math.prod(shape) * dt.itemsize(dtype)
    if len(data) != wanted:
        scanner.refuse(f"the constant has {wanted} bytes, the text {len(data)}", token)
    if dtype == "bool" and not set(data) <= {0, 1}:
        scanner.refuse("a bool is 0 or 1", token)
    return np.frombuffer(data, dt.NUMPY[dtype].newbyteorder("<")).astype(dt.NUMPY[dtype]).reshape(shape)


def compute_lines(t: Compute, label: str, sources: Sequence[str]) -> list[str]:
    """The lines of a compute whose inputs have the labels `sources`."""
    names = usable_names(t.definition, t.axis_names, set(sources))
    first, *others = definition_lines(t.definition, named(t, label), sources, names)
    axes = "" if names is not None else f" axes {', '.join(map(quote, t.axis_names))}".rstrip()
    return [f"{first}{axes}{place_text(t.where)}", *others]


def named(t: Tensor, label: str) -> str:
    """A label, and the name where that is another one."""
    return label if label == t.name else f"{label} {quote(t.name)}"


def place_text(where: Location | None) -> str:
    """A place as `read_place` reads it; nothing where there is none."""
    return f" @ {quote(where[0])}:{where[1]}" if where else ""


def read_leaf(scanner: Scanner, name: str) -> Placeholder | Constant:
    """The rest of a leaf's line after its label and the colon: a new tensor."""
    kinds = ("placeholder", "parameter", "constant")
    if scanner.token.text not in kinds:
        scanner.fail("placeholder, parameter or constant")
    kind = scanner.next().text
    shape, dtype = read_type(scanner)
    value = None
    if kind == "constant":
        scanner.expect("=")
        value = _decoded(scanner, shape, dtype)
    where = read_place(scanner)
    scanner.end_of_line()
    if value is not None:
        return Constant(value, name, where)
    return (
        Parameter(shape, dtype, name, where, init=None)
        if kind == "parameter"
        else Placeholder(shape, dtype, name, where)
    )


def read_compute(scanner: Scanner, start: Token, name: str, tensors: Mapping[str, Tensor]) -> Compute:
    """The rest of a compute's lines after its label: a new tensor over the tensors above it."""
    s = read_statement(scanner, start, tensors)
    sources = {n: Source(tensors[n].shape, tensors[n].dtype) for n in s.labels if n in tensors}
    definition, reads, names = build_definition(scanner, s, sources)
    names = names if s.axes is None else s.axes
    return Compute(definition, tuple(tensors[label] for label in reads), name, names, s.where)
