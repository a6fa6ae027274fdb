"""Batches as programs take them: counted, and filled up where they are incomplete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow import devices
from neoflow.data import Batches, Dataset, Text, padded_batches
from neoflow.errors import ConfigError, RuntimeFault, shown
from neoflow.expr.tensor import Placeholder
from neoflow.runtime.device.cuda.dlpack import CUDA

Batch = Sequence[Any]
"""The arrays of one step, in the order of `inputs`; in an evaluation, also how many of its samples count."""
Data = Dataset | Text | Iterable[Batch] | Callable[[], Iterable[Batch]]


@dataclass(frozen=True)
class Fed:
    """Arrays for a program, the first `valid` of its samples being the batch's."""

    arrays: tuple[Any, ...]
    valid: int


@dataclass(frozen=True)
class Feed:
    """What a program is fed. size: samples of a whole batch. axes: the dimension that counts them, of every input that
    has one."""

    inputs: tuple[Placeholder, ...]
    size: int
    axes: Mapping[Placeholder, int]

    def prepare(self, batch: Batch, valid: int | None = None) -> Fed:
        """The batch's arrays, filled up with its last sample where there are fewer than a whole batch.

        valid: how many of its samples count, where some do not. Raises `RuntimeFault` for what is no batch.
        """
        names = ", ".join(t.name for t in self.inputs)
        if isinstance(batch, Mapping) or not hasattr(batch, "__len__"):
            what = type(batch).__name__
            raise RuntimeFault(f"a batch is a list of arrays, one for each input ({names}), not a {what}")
        if len(batch) != len(self.inputs):
            raise RuntimeFault(f"a batch has {len(batch)} arrays for {len(self.inputs)} inputs ({names})")
        counts = {n for t, a in zip(self.inputs, batch, strict=True) if (n := self._count(t, a)) is not None}
        if len(counts) != 1 or counts == {self.size}:
            return Fed(tuple(batch), self.size if valid is None else valid)
        (count,) = counts
        if not 0 < count < self.size:
            raise RuntimeFault(f"a batch has {count} samples; the program takes 1 to {self.size}")
        filled = (self._filled(t, a, count) for t, a in zip(self.inputs, batch, strict=True))
        return Fed(tuple(filled), count if valid is None else min(count, valid))

    def _count(self, t: Placeholder, array: Any) -> int | None:
        """How many samples an array has; None where it counts none, or is not of the input's rank."""
        if t not in self.axes:
            return None
        shape = array.shape if hasattr(array, "shape") else np.shape(array)
        return int(shape[self.axes[t]]) if len(shape) == t.rank else None

    def _filled(self, t: Placeholder, array: Any, count: int) -> Any:
        if t not in self.axes:
            return array
        values = as_array(array)
        return np.take(values, np.minimum(np.arange(self.size), count - 1), axis=self.axes[t])

    def weights(self, fed: Fed) -> np.ndarray:
        """The weights of a batch's samples, float64 [size]; their mean is 1."""
        return (np.arange(self.size) < fed.valid) * (self.size / fed.valid)


def make_feed(inputs: Sequence[Placeholder], size: int, axis: int | Mapping[Placeholder, int]) -> Feed:
    """The feed of a program whose inputs count samples in dimension `axis`, given for all or for each."""
    given = {t: axis for t in inputs} if isinstance(axis, int) else {t: axis.get(t, 0) for t in inputs}
    for t, d in given.items():
        if not isinstance(d, int) or d < 0 or (t.rank and not isinstance(axis, int) and d >= t.rank):
            raise ConfigError(f"batch_axis of {t.name}{list(t.shape)} is {d!r}; it is a dimension number")
    axes = {t: d for t, d in given.items() if t.rank > d and t.shape[d] == size}
    return Feed(tuple(inputs), size, axes)


def is_on_gpu(value: Any) -> bool:
    return hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) == CUDA


def as_array(value: Any) -> np.ndarray:
    """`value` as NumPy sees it: an array, something with DLPack, of a GPU its copy, or nested lists."""
    if is_on_gpu(value):
        return np.asarray(devices.gpu().adopted(value))
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value)


def divisible(value: Any) -> Any:
    """`value`, or `value` as an array, so that its parts are where it is."""
    return value if is_on_gpu(value) and hasattr(value, "__getitem__") else as_array(value)


def on_host(results: Sequence[Any]) -> list[np.ndarray]:
    """What a function has returned as arrays of NumPy, wherever it lies."""
    return [np.asarray(r) for r in results]


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def training_batches(data: Data, size: int, seed: int) -> Iterable[Batch] | Callable[[], Iterable[Batch]]:
    """The batches of a run: those given, or of a whole data set, shuffled anew each epoch, none left out."""
    if isinstance(data, (Dataset, Text)):
        return Batches(data, min(size, len(data)), seed=seed, keep_last=True)
    return data


def iterate(data: Data, size: int) -> Iterable[Batch]:
    """The batches of an evaluation."""
    if isinstance(data, (Dataset, Text)):
        return padded_batches(data, size)
    return begun(data)


def begun(data: Iterable[Batch] | Callable[[], Iterable[Batch]]) -> Iterator[Batch]:
    """The batches of one pass. Raises `RuntimeFault` where a function makes none."""
    if not callable(data):
        return iter(data)
    given = data()
    try:
        return iter(given)
    except TypeError:
        raise RuntimeFault(f"what makes batches gave {shown(given)}") from None


def said_samples(batch: Batch, inputs: int) -> int | None:
    """How many samples of a batch count, where it says so beside its `inputs`."""
    if not hasattr(batch, "__len__") or len(batch) != inputs + 1:
        return None
    if not isinstance(batch[-1], (int, np.integer)):
        raise RuntimeFault(f"a batch ends with how many of its samples count, not with {shown(batch[-1])}")
    return int(batch[-1])
