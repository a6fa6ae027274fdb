"""Gradients of whole programs judged by central differences and by PyTorch's autograd, everything in float64."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass

import numpy as np

from neoflow.autodiff import vjp
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Tensor, topological
from tests.strategies import Program

ATOL, RTOL = 1e-5, 1e-3
STEP = 1e-5


@dataclass
class Counts:
    """Elements compared, and those left out because the function has a kink there."""

    checked: int = 0
    kinks: int = 0

    def __iadd__(self, more: Counts) -> Counts:
        self.checked, self.kinks = self.checked + more.checked, self.kinks + more.kinks
        return self


@dataclass(frozen=True)
class Case:
    """A scalar function of the float inputs `wrt`, and its gradient. Its value is

    sum over the program's outputs of <output, cotangent>,    and of second order, where `first` is that case,
    sum over the gradients of `first` of <gradient, vector>
    """

    program: Program
    scalar: Tensor
    wrt: list[Tensor]
    gradients: list[Tensor]
    feeds: dict[Tensor, np.ndarray]
    weights: list[Tensor]
    """the cotangents, or the vectors"""
    first: Case | None = None

    def value(self, changed: dict[Tensor, np.ndarray]) -> float:
        return float(evaluate([self.scalar], {**self.feeds, **changed}, "float64")[0])


def _weighted(tensors: list[Tensor], seed: int, feeds: dict[Tensor, np.ndarray]) -> tuple[Tensor, list[Tensor]]:
    """sum over tensors of <tensor, random weights>, and the weights, added to the feeds."""
    rng = np.random.default_rng(seed)
    weights = [dsl.placeholder(t.shape, t.dtype, f"c{n}") for n, t in enumerate(tensors)]
    feeds.update({c: rng.standard_normal(c.shape) for c in weights})
    terms = [dsl.sum(t * c) for t, c in zip(tensors, weights, strict=True)]
    return functools.reduce(operator.add, terms), weights


def first_order(program: Program) -> Case | None:
    """The program's case, or None where no float output depends on a float input."""
    feeds = {t: a.astype(np.float64) if dt.is_float(t.dtype) else a for t, a in program.feeds.items()}
    outputs = [t for t in program.outputs if dt.is_float(t.dtype)]
    wrt = [t for t in topological(outputs) if t in program.feeds and dt.is_float(t.dtype)]
    if not outputs or not wrt:
        return None
    scalar, weights = _weighted(outputs, program.seed, feeds)
    return Case(program, scalar, wrt, vjp(scalar, wrt, allow_unused=True), feeds, weights)


def second_order(program: Program) -> Case | None:
    """The case of the program's gradient."""
    first = first_order(program)
    if first is None:
        return None
    feeds = dict(first.feeds)
    scalar, weights = _weighted(first.gradients, program.seed + 1, feeds)
    return Case(program, scalar, first.wrt, vjp(scalar, first.wrt, allow_unused=True), feeds, weights, first)


def compare_with_differences(case: Case, samples: int, rng: np.random.Generator) -> Counts:
    """Random elements of every gradient against central differences; raises with the first that is wrong.

    Where they disagree the function may have a kink: then its one-sided slopes differ however small the step, or the
    central differences of two steps do. Such elements are counted, and PyTorch judges them.
    """
    counts = Counts()
    for t, gradient in zip(case.wrt, evaluate(case.gradients, case.feeds, "float64"), strict=True):
        for n in rng.permutation(t.size)[:samples]:
            symbolic = float(gradient.flat[n])

            def at(h: float, t: Tensor = t, n: int = n) -> float:
                moved = case.feeds[t].copy()
                moved.flat[n] += h
                return case.value({t: moved})

            up, down = at(STEP), at(-STEP)
            counts.checked += 1
            if _agree(symbolic, (up - down) / (2 * STEP)):
                continue
            small, middle = STEP / 8, at(0)
            near_up, near_down = at(small), at(-small)
            wide = (up - down) / (2 * STEP)
            narrow = (near_up - near_down) / (2 * small)
            bend = (up + down - 2 * middle) / STEP  # a smooth function's is proportional to the step
            near_bend = (near_up + near_down - 2 * middle) / small
            if not _agree(wide, narrow) or (abs(near_bend) > ATOL and abs(near_bend) > 0.5 * abs(bend)):
                counts.kinks += 1
                continue
            where = np.unravel_index(n, t.shape)
            raise AssertionError(
                f"{case.program}\nd/d {t.name}{tuple(map(int, where))}: {symbolic}, differences {wide}, {narrow}"
            )
    return counts


def _agree(symbolic: float, numeric: float) -> bool:
    return abs(symbolic - numeric) <= ATOL + RTOL * abs(symbolic)


def compare_with_torch(case: Case) -> Counts:
    """Every element of every gradient against PyTorch's autograd over an independent translation of the program.

    Of second order PyTorch differentiates its own gradient.
    """
    import torch

    from tests.torch_translation import inputs_of, translate

    first = case.first or case
    leaves = inputs_of(case.feeds)
    wrt = [leaves[t] for t in case.wrt]

    def gradient(scalar: torch.Tensor) -> list[torch.Tensor]:
        if not scalar.requires_grad:
            return [torch.zeros_like(x) for x in wrt]
        found = torch.autograd.grad(scalar, wrt, allow_unused=True, create_graph=case.first is not None)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wrt, found, strict=True)]

    (scalar,) = translate([first.scalar], leaves)
    expected = gradient(scalar)
    if case.first is not None:
        products = [(g * leaves[v]).sum() for g, v in zip(expected, case.weights, strict=True)]
        expected = gradient(functools.reduce(operator.add, products))
    counts = Counts()
    for t, ours, theirs in zip(case.wrt, evaluate(case.gradients, case.feeds, "float64"), expected, strict=True):
        reference = theirs.detach().numpy()
        error = np.abs(ours - reference) / (1e-8 + 1e-6 * np.abs(reference))
        if not np.all(error <= 1):
            n = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
            where = tuple(map(int, np.unravel_index(n, t.shape)))
            raise AssertionError(
                f"{case.program}\nd/d {t.name}{where}: {ours.flat[n]} but PyTorch has {reference.flat[n]}"
            )
        counts.checked += t.size
    return counts
