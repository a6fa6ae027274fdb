"""A network in a table: its layers, what they give, their parameters and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neoflow.expr.recurrence import Looped
from neoflow.expr.tensor import Compute, Parameter, Tensor, topological

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Summary", "SummaryRow", "summary"]

_HEAD = ("layer", "gives", "parameters", "values", "bytes")


@dataclass(frozen=True)
class SummaryRow:
    """A layer: the parameters whose names begin alike. gives: the shape of what it computes, where it is used.

    shapes: of its parameters, by the rest of their names. values: how many numbers it has, nbytes: their size.
    """

    layer: str
    gives: tuple[int, ...] | None
    shapes: dict[str, tuple[int, ...]]
    values: int
    nbytes: int


@dataclass(frozen=True, repr=False)
class Summary:
    """The layers of a network in the order in which they are used; `print` shows a table, and so does rich."""

    rows: tuple[SummaryRow, ...]

    @property
    def values(self) -> int:
        """How many numbers all layers have."""
        return sum(r.values for r in self.rows)

    @property
    def nbytes(self) -> int:
        return sum(r.nbytes for r in self.rows)

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                r.layer,
                "" if r.gives is None else str(list(r.gives)),
                " ".join(f"{n}{list(s)}" for n, s in r.shapes.items()),
                f"{r.values:,}",
                f"{r.nbytes:,}",
            )
            for r in self.rows
        ]

    def _total(self) -> tuple[str, ...]:
        return ("all", "", f"{sum(len(r.shapes) for r in self.rows)} tensors", f"{self.values:,}", f"{self.nbytes:,}")

    def __str__(self) -> str:
        lines = [_HEAD, *self._cells(), self._total()]
        widths = [max(len(line[n]) for line in lines) for n in range(len(_HEAD))]
        text = [
            "  ".join(_aligned(c, n, w) for n, (c, w) in enumerate(zip(line, widths, strict=True))) for line in lines
        ]
        rule = "-" * max(map(len, text))
        return "\n".join(t.rstrip() for t in (text[0], rule, *text[1:-1], rule, text[-1]))

    __repr__ = __str__

    def __rich__(self) -> Table:
        from rich.table import Table

        table, total = Table(show_footer=True), self._total()
        for n, name in enumerate(_HEAD):
            table.add_column(name, footer=total[n], justify="right" if n >= 3 else "left")
        for cells in self._cells():
            table.add_row(*cells)
        return table


def _aligned(cell: str, column: int, width: int) -> str:
    return cell.rjust(width) if column >= 3 else cell.ljust(width)


def summary(tensors: Tensor | Sequence[Tensor], parameters: Iterable[Parameter] | None = None) -> Summary:
    """The layers that tensors (a loss, scores) are computed with.

    parameters: those to be listed, in that order; None: every one that the tensors need, running statistics too, in the
    order in which they are read.
    """
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    order = topological(roots)
    listed = [t for t in order if isinstance(t, Parameter)] if parameters is None else list(parameters)
    gives = _shapes_given(order, set(listed))
    layers: dict[str, list[Parameter]] = {}
    for p in listed:
        layers.setdefault(_split(p.name)[0], []).append(p)
    return Summary(tuple(_row(layer, own, gives) for layer, own in layers.items()))


def _split(name: str) -> tuple[str, str]:
    """A parameter's layer and its name there: `block.0.weight` is `weight` of `block.0`; else it is its own layer."""
    head, dot, rest = name.rpartition(".")
    return (head, rest) if dot else (name, name)


def _row(layer: str, own: Sequence[Parameter], gives: dict[Any, tuple[int, ...]]) -> SummaryRow:
    found = [gives[p] for p in own if p in gives]
    return SummaryRow(
        layer,
        max(found, key=len) if found else None,
        {_split(p.name)[1]: p.shape for p in own},
        sum(p.size for p in own),
        sum(p.nbytes for p in own),
    )


def _shapes_given(order: Sequence[Tensor], parameters: set[Parameter]) -> dict[Any, tuple[int, ...]]:
    """The shape of the last tensor that is computed from each parameter and from the network's inputs."""
    from_inputs: dict[Tensor, bool] = {}
    owners: dict[Tensor, set[Parameter]] = {}
    gives: dict[Any, tuple[int, ...]] = {}
    for t in order:
        if not isinstance(t, (Compute, Looped)):
            from_inputs[t] = not isinstance(t, Parameter)
            owners[t] = {t} & parameters if isinstance(t, Parameter) else set()
            continue
        from_inputs[t] = any(from_inputs[n] for n in t.inputs)
        of = set().union(*(owners[n] for n in t.inputs))
        if from_inputs[t]:
            gives.update(dict.fromkeys(of, t.shape))
        owners[t] = set() if from_inputs[t] else of
    return gives
