"""Values as notebooks show them: a table, or code, in HTML that needs no style of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def code(text: str) -> str:
    """A text as it is written."""
    return f"<pre>{escape(text)}</pre>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts; numbers stand to the right."""
    shown = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{shown}</tr></thead><tbody>{lines}</tbody></table>"


def framed(page: str, height: int) -> str:
    """A whole page inside another one. height: in pixels."""
    return f'<iframe srcdoc="{escape(page)}" width="100%" height="{height}" style="border: 0"></iframe>'


def _cell(value: object) -> str:
    if not isinstance(value, (int, float)):
        return f"<td>{escape(str(value))}</td>"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f'<td style="text-align: right">{shown}</td>'
