"""Kernels that the tests run, `kernels/*.cu`, which nvcc takes: what each is given, and what it must give back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from tests.emulator import Launch

HERE = Path(__file__).parent
DEVICE = (HERE.parents[1] / "neoflow" / "codegen" / "gpu" / "device.cuh").read_text()
INCLUDES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
AMPERE = {"matmul", "tiles", "fragments"}
"""Those that need sm_80."""

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """`arrays(rng)`: arguments; `expected(*arrays)`: what they are afterwards, by position."""

    blocks: int
    threads: int
    shared_bytes: int
    arrays: Callable[[np.random.Generator], Arrays]
    expected: Callable[..., dict[int, np.ndarray]]
    tolerance: float = 0.0


@cache
def text(name: str) -> str:
    return (HERE / "kernels" / f"{name}.cu").read_text()


def launches(name: str, arrays: Arrays, kernel: str = "") -> list[Launch]:
    case = CASES[name]
    return [(kernel or name, case.blocks, case.threads, case.shared_bytes, arrays)]


def _normal(rng: np.random.Generator, *shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _empty(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def _softmax(a: np.ndarray, _: np.ndarray) -> dict[int, np.ndarray]:
    e = np.exp(a.astype(float) - a.max(1, keepdims=True))
    return {1: e / e.sum(1, keepdims=True)}


def _scatter(ids: np.ndarray, rows: np.ndarray, table: np.ndarray, *_: np.ndarray) -> dict[int, np.ndarray]:
    table = table.copy()
    for id, row in zip(ids, rows, strict=True):
        if 0 <= id < 10:
            table[id] += row
    return {2: table, 3: ids.max(keepdims=True), 4: np.array([np.flatnonzero((ids < 0) | (ids >= 10))[0] + 1])}


def _compact(a: np.ndarray, b: np.ndarray, _: np.ndarray) -> dict[int, np.ndarray]:
    b = b.copy()
    for i, row in enumerate(a):
        b[i, : (row > 0).sum()] = row[row > 0]
    return {1: b, 2: (a > 0).sum(1)}


def _exchange(a: np.ndarray, _: np.ndarray) -> dict[int, np.ndarray]:
    back = a.reshape(-1, 32)[:, ::-1] + 1
    return {1: back[:, np.arange(32) ^ 15].reshape(a.shape)}


def _product(a: np.ndarray, b: np.ndarray, _: np.ndarray) -> dict[int, np.ndarray]:
    return {2: a.astype(float) @ b.astype(float)}


CASES = {
    "sum": Case(
        5,
        256,
        0,
        lambda rng: [_normal(rng, 5, 1024), _empty(5), _empty(1, dtype=np.int32)],
        lambda a, b, n: {1: a.sum(1, dtype=float), 2: n + 5},
        1e-4,
    ),
    "transpose": Case(
        9,
        256,
        0,
        lambda rng: [_normal(rng, 96, 70, dtype=np.float16), _empty(70, 96, dtype=np.float16)],
        lambda a, b: {1: a.T},
    ),
    "scatter": Case(
        40,
        64,
        0,
        lambda rng: [
            rng.integers(-1, 11, 40).astype(np.int32),
            rng.integers(-9, 9, (40, 64)).astype(np.float32),
            _empty(10, 64),
            _empty(1, dtype=np.int32),
            _empty(1, dtype=np.int32),
        ],
        _scatter,
    ),
    "softmax": Case(4, 128, 0, lambda rng: [_normal(rng, 16, 100), _empty(16, 100)], _softmax, 1e-6),
    "compact": Case(
        6,
        64,
        0,
        lambda rng: [
            rng.integers(-3, 4, (6, 64)).astype(np.int32),
            _empty(6, 64, dtype=np.int32),
            _empty(6, dtype=np.int32),
        ],
        _compact,
    ),
    "exchange": Case(
        2, 96, 768, lambda rng: [_normal(rng, 2, 96, dtype=np.float64), _empty(2, 96, dtype=np.float64)], _exchange
    ),
    "matmul": Case(
        4, 128, 0, lambda rng: [_normal(rng, 64, 128), _normal(rng, 128, 64), _empty(64, 64)], _product, 1e-4
    ),
    "tiles": Case(
        1,
        128,
        0,
        lambda rng: [_normal(rng, 32, 64, dtype=np.float16), _normal(rng, 64, 32, dtype=np.float16), _empty(32, 32)],
        _product,
        1e-5,
    ),
    "fragments": Case(
        1,
        64,
        0,
        lambda rng: [
            _normal(rng, 32, 32, dtype=ml_dtypes.bfloat16),
            _normal(rng, 32, 32, dtype=ml_dtypes.bfloat16),
            _empty(32, 32),
        ],
        _product,
        1e-5,
    ),
    "partial": Case(
        8,
        32,
        0,
        lambda rng: [_normal(rng, 8, 32), _empty(4)],
        lambda a, b: {1: a.reshape(4, 64).sum(1, dtype=float)},
        1e-5,
    ),
}


def source(*texts: str) -> str:
    """With what a kernel of neoflow is given before it."""
    return INCLUDES + DEVICE + "\n".join(texts)
