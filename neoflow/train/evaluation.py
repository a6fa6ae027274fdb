"""What a network gives without being trained: means of the loss and the metrics, and its outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from neoflow.data import Dataset, Text
from neoflow.errors import ConfigError, RuntimeFault, shown
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Placeholder, Tensor, topological
from neoflow.runtime.function import Function
from neoflow.train.ahead import Call, called
from neoflow.train.feed import Batch, Data, Fed, Feed, divisible, is_array, iterate, said_samples
from neoflow.train.samples import Counted, sample_dimensions


def judge(
    function: Function, names: Sequence[str], feed: Feed, data: Data, looks_ahead: bool = False
) -> dict[str, float]:
    """Means over all samples of what `function` gives, by name.

    Its last input may be the weights of samples. Where it has none, values of rank 0 are means over a whole batch, so
    that an incomplete one does not count for them, unless there is no other.
    """
    is_weighted = len(function.inputs) > len(feed.inputs)
    totals = {n: [0.0, 0.0] for n in names}
    partial: dict[str, float] = {}

    def calls() -> Iterator[Call]:
        for batch in iterate(data, feed.size):
            valid = said_samples(batch, len(feed.inputs))
            fed = feed.prepare(batch if valid is None else batch[:-1], valid)
            weights = [feed.weights(fed).astype(dt.NUMPY[function.inputs[-1].dtype])] if is_weighted else []
            yield Call(fed, (*fed.arrays, *weights))

    for fed, results in called(function, calls(), looks_ahead):
        for name, result in zip(names, results, strict=True):
            share = fed.valid / feed.size
            if result.ndim:
                totals[name][0] += float(result[: fed.valid].sum(dtype=np.float64))
                totals[name][1] += fed.valid
            elif is_weighted or share == 1.0:
                totals[name][0] += share * float(result)
                totals[name][1] += share
            else:
                partial[name] = float(result)
    return {n: t / w if w else partial.get(n, math.nan) for n, (t, w) in totals.items()}


class Outputs:
    """Tensors to be computed for any number of samples: what they are fed with, and where they count samples.

    Raises `ConfigError` for a tensor that has no value for each sample.
    """

    def __init__(self, outputs: Sequence[Tensor], feed: Feed):
        self.outputs, self.whole = tuple(outputs), feed
        if not self.outputs:
            raise ConfigError("there is nothing to compute: give one tensor at least")
        needed = set(topological(list(outputs)))
        inputs = tuple(t for t in feed.inputs if t in needed)
        self.feed = Feed(inputs, feed.size, {t: d for t, d in feed.axes.items() if t in needed})
        counted = sample_dimensions(self.outputs, self.feed.axes)
        lost = [t for t in self.outputs if t not in counted]
        if lost:
            raise ConfigError(f"{lost[0].name}{list(lost[0].shape)} has no value for each sample", lost[0].where)
        self.counted = [counted[t] for t in self.outputs]

    def batches(self, data: Any) -> Iterable[tuple[Batch, int | None]]:
        """Batches for the inputs that are needed, each with how many of its samples count, where some do not."""
        if is_array(data) or (isinstance(data, tuple) and all(is_array(a) for a in data)):
            arrays = data if isinstance(data, tuple) else (data,)
            yield from ((b, None) for b in self._split([divisible(a) for a in arrays]))
            return
        if not isinstance(data, (Dataset, Text)) and not callable(data) and not hasattr(data, "__iter__"):
            raise RuntimeFault(f"{shown(data)} is neither an array nor batches")
        for batch in iterate(data, self.feed.size):
            yield self._chosen((batch,) if is_array(batch) else batch)

    def _split(self, arrays: Sequence[Any]) -> Iterable[Batch]:
        if len(arrays) != len(self.feed.inputs):
            names = ", ".join(t.name for t in self.feed.inputs)
            raise RuntimeFault(f"there are {len(arrays)} arrays for {len(self.feed.inputs)} inputs ({names})")
        axes = [self.feed.axes.get(t) for t in self.feed.inputs]
        counts = {
            a.shape[d]
            for t, a, d in zip(self.feed.inputs, arrays, axes, strict=True)
            if d is not None and self._fits(t, a)
        }
        if len(counts) != 1:
            raise RuntimeFault(f"the arrays have {', '.join(map(str, sorted(counts)))} samples; they have one number")
        for start in range(0, counts.pop(), self.feed.size):
            part = slice(start, start + self.feed.size)
            yield tuple(a if d is None else a[(slice(None),) * d + (part,)] for a, d in zip(arrays, axes, strict=True))

    def _fits(self, t: Placeholder, array: Any) -> bool:
        if len(array.shape) != t.rank:
            raise RuntimeFault(f"input {t.name} has shape {t.shape}, the array {tuple(array.shape)}", t.where)
        return True

    def _chosen(self, batch: Batch) -> tuple[Batch, int | None]:
        """Of a batch for all inputs those that are needed."""
        if not hasattr(batch, "__len__") or len(batch) < len(self.whole.inputs):
            self.feed.prepare(batch)  # says what is wrong, unless it has what is needed
        if len(batch) == len(self.feed.inputs):
            return batch, None
        valid = said_samples(batch, len(self.whole.inputs))
        named = dict(zip(self.whole.inputs, batch, strict=False))
        return [named[t] for t in self.feed.inputs], valid

    def run(self, function: Function, data: Any, looks_ahead: bool = False) -> list[np.ndarray]:
        """Each output for all samples, joined."""
        parts: list[list[np.ndarray]] = [[] for _ in self.outputs]
        prepared = (self.feed.prepare(batch, valid) for batch, valid in self.batches(data))
        calls = (Call(fed, fed.arrays) for fed in prepared)
        for fed, results in called(function, calls, looks_ahead):
            for part, where, result in zip(parts, self.counted, results, strict=True):
                part.append(_valid(result, where, fed))
        if not parts[0]:
            raise RuntimeFault("there is no sample to predict")
        return [np.concatenate(part, axis=where.dim) for part, where in zip(parts, self.counted, strict=True)]


def _valid(result: np.ndarray, where: Counted, fed: Fed) -> np.ndarray:
    return result[(slice(None),) * where.dim + (slice(fed.valid * where.run),)]
