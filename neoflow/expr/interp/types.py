"""How element types are held while a program is evaluated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neoflow import dtype as dt


@dataclass(frozen=True)
class Types:
    """`work`: the types inside bodies and between them, `stored`: those of results."""

    float64: bool

    def stored(self, dtype: str) -> np.dtype:
        return dt.NUMPY["float64"] if self.float64 and dt.is_float(dtype) else dt.NUMPY[dtype]

    def work(self, dtype: str) -> np.dtype:
        stored = self.stored(dtype)
        return np.dtype(np.float32) if dt.is_float(dtype) and stored.itemsize < 4 else stored

    def rounded(self, array: np.ndarray, dtype: str) -> np.ndarray:
        """A work array with the values its type can hold."""
        stored, work = self.stored(dtype), self.work(dtype)
        return array if stored == work else array.astype(stored).astype(work)
