"""The data there are in the form a model takes: images resized, words and their labels, samples along its axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neoflow import data
from neoflow.errors import ConfigError
from neoflow.nn import Model

TEXT = (250 * 64, 32 * 64)
"""Windows of characters to learn from, and to be judged by."""
Arrange = Callable[[NDArray, data.Labels], tuple[NDArray, data.Labels]]
"""From inputs and labels, samples first, to what a model takes."""


class Arranged(data.Batches):
    """Batches as a model takes them."""

    arrange: Arrange

    def __iter__(self) -> Iterator[tuple[NDArray, data.Labels]]:
        for inputs, labels in super().__iter__():
            yield self.arrange(inputs, labels)


def load_data(folder: Path | None, model: Model, text: bool = False) -> tuple[data.Split, Arrange]:
    """What a model can learn, and how it takes it: MNIST from its folder, else scikit-learn's digits; of words a made
    text, or with `text` the characters of Python's documentation."""
    axis, shape = model.batch_axis, list(model.x.shape)
    batch = shape.pop(axis)
    if model.vocabulary is not None and model.labels.shape == model.x.shape and len(shape) == 1:
        if folder is not None:
            raise ConfigError(f"{model.name} learns words, and in {folder} there are images: leave out --data")
        split = data.chain(model.vocabulary, shape[0], 100 * 16, 20 * 16)
        if text:
            split = data.characters(shape[0], *TEXT, model.vocabulary)
        return split, partial(arrange_text, axis=axis)
    if text:
        raise ConfigError(f"{model.name} learns no words: leave out --text")
    if model.vocabulary is not None or len(shape) not in (2, 3) or model.labels.shape != (batch,) or model.classes < 10:
        raise ConfigError(
            "there are images [B, C, H, W] or their rows [B, H, W] of 10 classes to train on, and words [B, T] with a "
            f"label each; {model.name} takes {list(model.x.shape)} and has {model.classes} classes"
        )
    split = data.load_digits(size=8) if folder is None else data.load_mnist(folder)
    return split, partial(arrange_images, shape=tuple(shape), axis=axis)


def arrange_images(
    images: data.Images, labels: data.Labels, shape: tuple[int, ...], axis: int
) -> tuple[NDArray, data.Labels]:
    """Images [B, 1, h, w] resized to `shape`: [C, H, W], all channels alike, or [H, W]; samples counted by `axis`."""
    resized = data.resize_bilinear(images, (shape[-2], shape[-1]))
    channels = resized[:, 0] if len(shape) == 2 else np.broadcast_to(resized, (len(images), *shape))
    return np.ascontiguousarray(np.moveaxis(channels, 0, axis)), labels


def arrange_text(words: NDArray, following: data.Labels, axis: int) -> tuple[NDArray, data.Labels]:
    """Words and their labels [B, T] with samples counted by `axis`."""
    return np.ascontiguousarray(np.moveaxis(words, 0, axis)), np.ascontiguousarray(np.moveaxis(following, 0, axis))
