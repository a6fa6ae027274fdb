"""What may be in a hole of a pattern, as text.

"BH"       floats, a letter for each extent; equal letters are equal extents
"B4H"      the second is four times H
"OC_3"     the last is 3
"N<K"      integers of at least 0 below K
"ST?"      booleans
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from neoflow.errors import GraphError, shown

_WHOLE = re.compile(r"((?:\d{0,3}[A-Z]|_\d{1,3})*)(\?|<[A-Z])?")
_EXTENT = re.compile(r"(\d*)([A-Z])|_(\d+)")


@dataclass(frozen=True)
class Hole:
    """extents: multiples of letters, or of none. kind: "", "?" or the letter that integers are below."""

    extents: tuple[tuple[int, str], ...]
    kind: str

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(letter for _, letter in self.extents if letter) + tuple(k for k in self.kind if k.isalpha())

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(k * sizes.get(letter, 1) for k, letter in self.extents)

    def dtype(self, of_floats: str) -> str:
        return {"": of_floats, "?": "bool"}.get(self.kind, "int64")

    def draw(self, rng: np.random.Generator, sizes: Mapping[str, int], of_floats: str) -> np.ndarray:
        """Values of its kind. Booleans are true somewhere in each row: of a row in which nothing is there, no softmax
        has a meaning, 0 / 0."""
        if self.kind == "?":
            chances = rng.random(self.shape(sizes))
            return (chances < 0.7) | (chances == chances.min(axis=-1, keepdims=True))
        if self.kind:
            return rng.integers(0, sizes[self.kind], self.shape(sizes))
        return rng.standard_normal(self.shape(sizes)).astype(of_floats)


@lru_cache(maxsize=256)
def hole(text: str) -> Hole:
    """The hole of a text. Raises `GraphError`."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise GraphError(f"a hole is letters of extents, like BH, B4H, N<K or ST?, not {shown(text)}")
    extents = tuple((int(k or fixed or 1), letter) for k, letter, fixed in _EXTENT.findall(found[1]))
    return Hole(extents, (found[2] or "").removeprefix("<"))
