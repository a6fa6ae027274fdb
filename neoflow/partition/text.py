"""A subgraph as text: its inputs, a line for each node, what it stores.

    subgraph ::= header { "in0" ":" type } { node } [ "rows" number ] "outputs" output, ...
    output   ::= "v3" [ "as" number { number } ]

A node is a compute of `expr.text` called v<value number>; values are numbered from the inputs on. `as`: the dimensions
of what a row kernel stores in the order in which they lie in memory, where that is another.
"""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.expr.limits import MOST_RANK
from neoflow.expr.tensor import Definition
from neoflow.expr.text import (
    Source,
    build_definition,
    definition_lines,
    read_statement,
    read_type,
    type_text,
)
from neoflow.text import Scanner, header

Shaped = tuple[tuple[int, ...], str]
"""Shape and dtype of an input."""
Numbered = tuple[Definition, tuple[int, ...]]
"""A node: its definition, and the value number that each slot reads."""


def value_label(number: int, inputs: int) -> str:
    """The label of a value of a subgraph with that many inputs."""
    return f"in{number}" if number < inputs else f"v{number}"


def write_subgraph(
    inputs: Sequence[Shaped],
    nodes: Sequence[Numbered],
    outputs: Sequence[int],
    rows: int | None,
    orders: Sequence[Sequence[int]] = (),
) -> str:
    """The text of a subgraph."""
    names = [value_label(n, len(inputs)) for n in range(len(inputs) + len(nodes))]
    lines = [header("subgraph")]
    lines += [f"{name}: {type_text(*shaped)}" for name, shaped in zip(names, inputs, strict=False)]
    for name, (definition, reads) in zip(names[len(inputs) :], nodes, strict=True):
        lines += definition_lines(definition, name, [names[n] for n in reads])
    lines += [f"rows {rows}"] if rows is not None else []
    lines.append(outputs_line([names[n] for n in outputs], orders))
    return "\n".join(lines) + "\n"


def outputs_line(names: Sequence[str], orders: Sequence[Sequence[int]]) -> str:
    """What a subgraph stores."""
    placed = [f" as {' '.join(map(str, order))}" if order else "" for order in orders or [()] * len(names)]
    return f"outputs {', '.join(name + order for name, order in zip(names, placed, strict=True))}"


Orders = tuple[tuple[int, ...], ...]


def read_subgraph(text: str) -> tuple[Scanner, list[Shaped], list[Numbered], tuple[int, ...], int | None, Orders]:
    """The parts of a subgraph, and the scanner at their end, for what is refused later. Raises `TextError`."""
    scanner = Scanner(text, "subgraph")
    inputs: list[Shaped] = []
    nodes: list[Numbered] = []
    sources: dict[str, Source] = {}
    number: dict[str, int] = {}
    while not (scanner.at("rows") or scanner.at("outputs")):
        token = scanner.token
        label = scanner.name("a value, `rows` or `outputs`")
        is_input = not nodes and scanner.accept(":")
        if label != value_label(len(number), len(number) + 1 if is_input else 0):
            scanner.fail(f"value number {len(number)} (in{len(number)}: an input, or v{len(number)}: a node)", token)
        if is_input:
            inputs.append(read_type(scanner))
            sources[label] = Source(*inputs[-1])
            scanner.end_of_line()
        else:
            statement = read_statement(scanner, token, sources)
            if statement.where is not None or statement.axes is not None:
                scanner.refuse("a node has no place and no names", token)
            definition, reads, _ = build_definition(scanner, statement, sources)
            nodes.append((definition, tuple(number[r] for r in reads)))
            sources[label] = Source(definition.shape, definition.body.dtype)
        number[label] = len(number)
    rows = None
    if scanner.accept("rows"):
        rows = scanner.number("a number of leading dimensions", MOST_RANK)
        scanner.end_of_line()
    scanner.expect("outputs")
    outputs, orders = [_value(scanner, number)], [_order(scanner)]
    while scanner.accept(","):
        outputs.append(_value(scanner, number))
        orders.append(_order(scanner))
    scanner.end_of_line()
    scanner.end()
    return scanner, inputs, nodes, tuple(outputs), rows, tuple(orders) if any(orders) else ()


def _order(scanner: Scanner) -> tuple[int, ...]:
    """The order in which a value lies in memory; () where none is said."""
    found: list[int] = []
    if scanner.accept("as"):
        while not found or scanner.token.kind == "integer":
            found.append(scanner.number("a dimension", MOST_RANK))
    return tuple(found)


def _value(scanner: Scanner, number: dict[str, int]) -> int:
    token = scanner.token
    label = scanner.name("the label of a value")
    if label not in number:
        scanner.refuse(f"`{label}` is no value above", token)
    return number[label]
