"""`Verdict`: the answer of whatever may refuse, the same in every stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Whether something may be done, and the sentence that says why or why not."""

    ok: bool
    reason: str

    def __str__(self) -> str:
        return f"{'yes' if self.ok else 'no'}, {self.reason}"
