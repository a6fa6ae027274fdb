"""What all contenders of a row get: the same arrays."""

from __future__ import annotations

import numpy as np

from benchmarks.rows.cases import Row


def draw(row: Row) -> list[np.ndarray]:
    """An array for each input and cotangent."""
    rng, found = np.random.default_rng(0), []
    shapes = (*row.shapes, *row.cotangents)
    for shape, dtype, scale in zip(shapes, row.dtypes, row.scales or [1.0] * len(shapes), strict=True):
        if dtype == "int64":
            found.append(rng.integers(0, row.ids, shape))
        else:
            found.append(np.float32(scale) * rng.standard_normal(shape, dtype=np.float32))
    return found
