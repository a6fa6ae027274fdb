"""Attack on the language: random programs of what NumPy, PyTorch and index notation write, against NumPy and PyTorch.

Each step is written once, in NumPy's own words, and applied to a tensor and to an array; PyTorch has the gradient.
Inputs are placeholders or constants, so that parts of a program are known when it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import Tensor
from tests.chance import Chance

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]


@dataclass(frozen=True)
class Value:
    """One value three times: of the program, of NumPy, of PyTorch."""

    nf: Tensor
    np: np.ndarray
    torch: Any


@dataclass(frozen=True)
class Step:
    """plain: on a tensor and on an array alike. torch: the same there. fits: which shapes it takes."""

    name: str
    plain: Callable[..., Any]
    torch: Callable[..., Any]
    fits: Callable[[tuple[int, ...]], bool] = lambda shape: True


W = np.random.default_rng(7).uniform(-1, 1, (6, 6))
"""Weights of contractions and masks; a row or a block of it is taken."""


def row(x: Any) -> np.ndarray:
    return W[0, : x.shape[-1]]


def block(x: Any) -> np.ndarray:
    return W[: x.shape[-1], :3]


def t(array: Any) -> Any:
    return torch.tensor(array)


def weighted(x: Any) -> Any:
    if isinstance(x, Tensor):
        return nf.compute(x.shape, lambda *ix: x[ix] * ix[-1] / 4 + nf.select(ix[-1] > 1, 1, 0.5))
    return x * np.arange(x.shape[-1]) / 4 + np.where(np.arange(x.shape[-1]) > 1, 1, 0.5)


def centred(x: Any) -> Any:
    if isinstance(x, Tensor):
        return nf.expr("y[i,j] = x[i,j] - mean[k](x[i,k]) + x[-1,j] * (0.5 if any[k](x[i,k] > 0.3) else 2)", x=x)
    return x - x.mean(1, keepdims=True) + x[-1] * np.where((x > 0.3).any(1, keepdims=True), 0.5, 2)


def centred_torch(x: Any) -> Any:
    some = (x > 0.3).any(1, keepdim=True)
    return x - x.mean(1, keepdim=True) + x[-1] * torch.where(some, t(0.5), t(2.0)).double()


def neighbours(x: Any) -> Any:
    if isinstance(x, Tensor):
        return nf.expr("y[t] = x[t] * x[t+1] if t+1 < n else 0.0", x=x, n=x.shape[0])
    return np.concatenate([x[:-1] * x[1:], np.zeros(1)])


STEPS = (
    Step("sort", lambda x: np.sort(x, axis=-1), lambda x: torch.sort(x, -1).values),
    Step("downwards", lambda x: np.flip(np.sort(x, axis=0), 0), lambda x: torch.sort(x, 0, descending=True).values),
    Step("cumsum", lambda x: np.cumsum(x, axis=0), lambda x: torch.cumsum(x, 0)),
    Step("cumsum of all", lambda x: np.cumsum(x), lambda x: torch.cumsum(x.reshape(-1), 0)),
    Step("clip", lambda x: np.clip(x, -0.4, 0.7), lambda x: torch.clamp(x, -0.4, 0.7)),
    Step("var", lambda x: np.var(x, axis=-1, keepdims=True) + x, lambda x: x.var(-1, unbiased=False, keepdim=True) + x),
    Step("std", lambda x: np.std(x + np.arange(x.shape[-1]), axis=-1), lambda x: (x + torch.arange(x.shape[-1])).std(
        -1, unbiased=False), lambda s: s[-1] > 2 and len(s) > 1),
    Step("mean", lambda x: np.mean(x, axis=0), lambda x: x.mean(0), lambda s: len(s) > 1),
    Step("transposed", lambda x: x.T, lambda x: x.permute(*range(x.ndim)[::-1])),
    Step("rows", lambda x: np.stack([x[-1], *list(x)[:2]]), lambda x: torch.stack([x[-1], *list(x)[:2]])),
    Step("taken", lambda x: x[np.array([0, -1, 0])], lambda x: x[torch.tensor([0, -1, 0])]),
    Step("taken last", lambda x: x[..., [-1, 0]], lambda x: x[..., [-1, 0]]),
    Step("matmul", lambda x: x @ block(x), lambda x: x @ t(block(x))),
    Step("rmatmul", lambda x: W[:2, : x.shape[0]] @ x, lambda x: t(W[:2, : x.shape[0]]) @ x, lambda s: len(s) == 2),
    Step("einsum", lambda x: np.einsum("...i,...j->...ij", x, x), lambda x: torch.einsum("...i,...j->...ij", x, x),
         lambda s: len(s) < 3),
    Step("dot", lambda x: np.einsum("...i,...i->...", x, row(x) * x), lambda x: (x * t(row(x)) * x).sum(-1),
         lambda s: len(s) > 1),
    Step("array", lambda x: np.float64(2) * x * row(x) - np.arange(x.shape[-1]),
         lambda x: 2 * x * t(row(x)) - torch.arange(x.shape[-1])),
    Step("where", lambda x: np.where(x > 0.1, x, row(x)), lambda x: torch.where(x > 0.1, x, t(row(x)))),
    Step("numbers", lambda x: x * np.where(x > 0, 1.0, 0.25), lambda x: x * torch.where(x > 0, 1.0, 0.25)),
    Step("maximum", lambda x: np.maximum(x, row(x)), lambda x: torch.maximum(x, t(row(x)))),
    Step("bell", lambda x: np.exp(-np.square(x)), lambda x: torch.exp(-x.square())),
    Step("tanh", lambda x: np.tanh(x), torch.tanh),
    Step("padded", lambda x: np.pad(x, 1), lambda x: torch.nn.functional.pad(x, [1] * 2 * x.ndim),
         lambda s: len(s) < 3),
    Step("weighted", weighted, lambda x: x * torch.arange(x.shape[-1]) / 4 + torch.where(
        torch.arange(x.shape[-1]) > 1, 1.0, 0.5)),
    Step("centred", centred, centred_torch, lambda s: len(s) == 2),
    Step("neighbours", neighbours, lambda x: torch.cat([x[:-1] * x[1:], torch.zeros(1, dtype=torch.float64)]),
         lambda s: len(s) == 1 and s[0] > 1),
)  # fmt: skip


class Maker(Chance):
    """A random program: steps on values made before, and sums of two of them."""

    def __init__(self, seed: int):
        super().__init__(np.random.default_rng(seed))
        self.feeds: dict[Tensor, np.ndarray] = {}
        self.leaves: list[Value] = []
        self.used: list[str] = []

    def leaf(self) -> Value:
        shape = tuple(int(n) for n in self.rng.integers(2, 5, self.pick((1, 2, 2, 3))))
        array = self.rng.uniform(-1, 1, shape)
        if self.leaves and self.chance(0.4):
            return Value(nf.constant(array), array, torch.tensor(array))
        x = nf.placeholder(shape, "float64", f"x{len(self.feeds)}")
        self.feeds[x] = array
        value = Value(x, array, torch.tensor(array, requires_grad=True))
        self.leaves.append(value)
        return value

    def step(self, v: Value) -> Value:
        step = self.pick([s for s in STEPS if s.fits(v.np.shape)])
        self.used.append(step.name)
        return Value(step.plain(v.nf), step.plain(v.np), step.torch(v.torch))

    def value(self) -> Value:
        v = self.leaf()
        for _ in range(int(self.rng.integers(1, 5))):
            v = self.step(v)
            if np.abs(v.np).max(initial=0) > 4:
                v = Value(np.tanh(v.nf), np.tanh(v.np), torch.tanh(v.torch))
            if v.np.ndim == 0 or v.np.shape[-1] > 6 or v.np.shape[0] > 6 or v.np.size > 200:
                break
        return v

    def program(self) -> list[Value]:
        found = [self.value() for _ in range(int(self.rng.integers(1, 4)))]
        return [*found, Value(nf.sum(found[0].nf) * found[-1].nf, found[0].np.sum() * found[-1].np,
                              found[0].torch.sum() * found[-1].torch)]  # fmt: skip


def attack(seeds, compiled) -> dict[str, int]:
    """Values and gradients of random programs; those of `compiled` seeds compiled, too. What was counted."""
    count = {"programs": 0, "steps": 0, "values": 0, "gradients": 0, "compiled": 0, "constants": 0}
    for seed in seeds:
        maker = Maker(seed)
        values = maker.program()
        reached = [v for v in maker.leaves if v.torch.requires_grad]
        loss = nf.sum(np.square(values[-1].nf))
        gradients = nf.grad(loss, [v.nf for v in reached], allow_unused=True)
        expected = torch.autograd.grad((values[-1].torch ** 2).sum(), [v.torch for v in reached], allow_unused=True)
        outputs = [v.nf for v in values] + gradients
        references = [v.np for v in values] + [
            np.zeros(v.np.shape) if g is None else g.numpy() for v, g in zip(reached, expected, strict=True)
        ]
        found = nf.evaluate(outputs, maker.feeds)
        where = f"seed {seed}: {maker.used}"
        for a, b in zip(found, references, strict=True):
            assert a.shape == np.shape(b), where
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=where)
        if seed in compiled:
            step = nf.compile(outputs, list(maker.feeds))
            for a, b in zip(step(*maker.feeds.values()), found, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=where)
            count["constants"] += len(step.plan.constants)
            count["compiled"] += 1
        for v in values:
            np.testing.assert_allclose(v.np, v.torch.detach().numpy(), rtol=1e-9, atol=1e-9)
        count["programs"] += 1
        count["steps"] += len(maker.used)
        count["values"] += len(values)
        count["gradients"] += len(gradients)
    return count


@pytest.mark.tvm
def test_a_small_draw():
    count = attack(range(20), compiled=range(2))
    assert count["steps"] > 70 and count["gradients"] > 20


@pytest.mark.slow
@pytest.mark.tvm
def test_random_programs():
    count = attack(range(1000, 2500), compiled=range(1000, 1100))
    print(f"\n{count}")
    assert count["programs"] == 1500 and count["compiled"] == 100 and count["constants"] > 50


def test_every_step_is_drawn():
    used: set[str] = set()
    for seed in range(80):
        maker = Maker(seed)
        maker.program()
        used |= set(maker.used)
    assert used == {s.name for s in STEPS}
