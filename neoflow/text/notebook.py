"""What moves in a notebook: an output of its cell that is shown again, with the display that IPython has."""

from __future__ import annotations

import importlib
import sys
import time
from html import escape
from typing import Any

_KERNEL = "ZMQInteractiveShell"
"""The shell that runs a notebook's cells; a terminal's is another one."""
AGAIN = 0.2
"""Seconds from one showing to the next: each is a message to the browser."""


class Place:
    """An output of the cell that runs."""

    def __init__(self, display: Any):
        self._display = display
        self._handle: Any = None
        self._shown = -AGAIN

    def show(self, text: str, is_due: bool = False) -> None:
        """In place of what was there; soon again only where it `is_due`. text: HTML."""
        now = time.monotonic()
        if not is_due and now - self._shown < AGAIN:
            return
        self._shown = now
        if self._handle is None:
            self._handle = self._display.display(self._display.HTML(text), display_id=True)
        else:
            self._handle.update(self._display.HTML(text))

    def clear(self) -> None:
        """Show nothing any more."""
        if self._handle is not None:
            self.show("", is_due=True)


def place() -> Place | None:
    """An output of the cell that runs; None outside of notebooks."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if type(shell).__name__ != _KERNEL:
        return None
    return Place(importlib.import_module("IPython.display"))


def bar(text: str, done: int, total: int | None, note: str = "") -> str:
    """A bar in HTML between two texts. total: None: not known, which moves."""
    known = "" if total is None else f' value="{done}" max="{total}"'
    count = "" if total is None else f" {done}/{total}"
    return f"<div>{escape(text)} <progress{known}></progress>{count} {escape(note)}</div>"
