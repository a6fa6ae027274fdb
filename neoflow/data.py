"""Data with NumPy alone: MNIST (IDX files), CIFAR-10 (binary files), scikit-learn's digits, text of a known entropy;
seeded batches.

Images are float32 in [0, 1], `[N, C, H, W]`; labels are int64, `[N]`. No file is ever unpickled.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from neoflow.boundary import publish
from neoflow.errors import DataError, shown

__all__ = [
    "BatchState",
    "Batches",
    "Dataset",
    "Split",
    "Text",
    "chain",
    "characters",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "padded_batches",
    "read_idx",
    "resize_bilinear",
    "stratified_split",
]

Images = NDArray[np.float32]
Labels = NDArray[np.int64]

_IDX_UBYTE = 0x08  # the type code of unsigned bytes, the only one MNIST uses
_IDX_LIMIT = 1 << 31  # bytes; a header that asks for more is damaged
_CIFAR_RECORD = 1 + 3 * 32 * 32


@dataclass(frozen=True)
class Dataset:
    """Labelled images: float32 `[N, C, H, W]`, int64 `[N]` in [0, classes). Raises DataError when they do not fit."""

    images: Images
    labels: Labels
    classes: int

    def __post_init__(self) -> None:
        for name in ("images", "labels"):
            if not isinstance(getattr(self, name), np.ndarray):
                raise DataError(f"{name} are a NumPy array, not {shown(getattr(self, name))}")
        if self.images.ndim != 4 or self.images.dtype != np.float32:
            raise DataError(f"images are float32 [N, C, H, W], not {self.images.dtype} {list(self.images.shape)}")
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != np.int64:
            raise DataError(
                f"{len(self.images)} images need int64 labels [{len(self.images)}], "
                f"not {self.labels.dtype} {list(self.labels.shape)}"
            )
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < self.classes):
            raise DataError(f"labels lie in [{self.labels.min()}, {self.labels.max()}], not in [0, {self.classes})")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"<Dataset {len(self)} x float32{list(self.images.shape[1:])}, {self.classes} classes>"

    @property
    def inputs(self) -> Images:
        return self.images


@dataclass(frozen=True)
class Text:
    """Windows of a text: words, and as labels the word after each; int64 `[N, T]` in [0, classes)."""

    inputs: Labels
    labels: Labels
    classes: int

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"<Text {len(self)} x {self.inputs.shape[1]} words, of {self.classes}>"


@dataclass(frozen=True)
class Split:
    """What to learn from and what to be judged by. floor: the loss expected of the best predictor, if known."""

    name: str
    train: Dataset | Text
    test: Dataset | Text
    floor: float | None = None


# ---- files ---------------------------------------------------------------------------------------------------------


def read_idx(path: str | Path, rank: int) -> NDArray[np.uint8]:
    """The bytes of an IDX file (plain or `.gz`), shaped by its header. Raises DataError on anything unexpected."""
    path = Path(path)
    try:
        with cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
            return _read_idx(path, file, rank)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _read_idx(path: Path, file: BinaryIO, rank: int) -> NDArray[np.uint8]:
    header = file.read(4 + 4 * rank)
    if len(header) >= 4 and header[:4] != bytes((0, 0, _IDX_UBYTE, rank)):
        raise DataError(
            f"{path}: starts with magic number 0x{header[:4].hex()}, "
            f"an IDX file of unsigned bytes with {rank} dimensions with 0x0000{_IDX_UBYTE:02x}{rank:02x}"
        )
    if len(header) < 4 + 4 * rank:
        raise DataError(f"{path}: truncated: {len(header)} bytes, the header alone has {4 + 4 * rank}")
    shape = struct.unpack(f">{rank}I", header[4:])
    size = math.prod(shape)
    if not 0 < size < _IDX_LIMIT:
        raise DataError(f"{path}: the header asks for {' x '.join(map(str, shape))} bytes: it is damaged")
    body = file.read(size)
    if len(body) < size:
        raise DataError(f"{path}: truncated: {len(body)} of {size} data bytes; get the file again")
    if file.read(1):
        raise DataError(f"{path}: more data than the {size} bytes its header announces")
    return np.frombuffer(body, np.uint8).reshape(shape)


def load_mnist(folder: str | Path) -> Split:
    """MNIST (or any set in its format) from `train-images-idx3-ubyte[.gz]` and its three companions in `folder`."""
    folder = Path(folder)
    parts = []
    for part in ("train", "t10k"):
        images_file, labels_file = _idx_file(folder, f"{part}-images", 3), _idx_file(folder, f"{part}-labels", 1)
        images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(images) != len(labels):
            raise DataError(f"{images_file} has {len(images)} images, {labels_file} has {len(labels)} labels")
        if labels.max() > 9:
            raise DataError(f"{labels_file}: label {labels.max()}, MNIST has 0 to 9")
        parts.append(Dataset(_unit(images[:, np.newaxis]), labels.astype(np.int64), 10))
    return Split("mnist", parts[0], parts[1])


def _idx_file(folder: Path, stem: str, rank: int) -> Path:
    names = [f"{stem}{dot}idx{rank}-ubyte{suffix}" for dot in "-." for suffix in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: no {names[0]} and no {names[1]}; --data names the folder with the four MNIST IDX files")


def load_cifar10(folder: str | Path) -> Split:
    """CIFAR-10 from its *binary* version: `data_batch_*.bin` and `test_batch.bin` in `folder`."""
    folder = Path(folder)
    train, test = sorted(folder.glob("data_batch_*.bin")), folder / "test_batch.bin"
    if not train or not test.is_file():
        raise DataError(
            f"{folder}: no data_batch_*.bin with test_batch.bin; neoflow reads the binary version of CIFAR-10 "
            "(cifar-10-binary.tar.gz), never the pickled one"
        )
    return Split("cifar10", _cifar(train), _cifar([test]))


def _cifar(paths: list[Path]) -> Dataset:
    records = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error})") from error
        if not data or len(data) % _CIFAR_RECORD:
            raise DataError(f"{path}: truncated: {len(data)} bytes are not a multiple of {_CIFAR_RECORD}, one record")
        records.append(np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_RECORD))
        if records[-1][:, 0].max() > 9:
            raise DataError(f"{path}: label {records[-1][:, 0].max()}, CIFAR-10 has 0 to 9")
    table = np.concatenate(records)
    return Dataset(_unit(table[:, 1:].reshape(-1, 3, 32, 32)), table[:, 0].astype(np.int64), 10)


def _unit(images: NDArray[np.uint8]) -> Images:
    return images.astype(np.float32) / np.float32(255)


# ---- scikit-learn's digits -----------------------------------------------------------------------------------------


def load_digits(size: int = 28, test: int = 360, seed: int = 0) -> Split:
    """scikit-learn's 1797 digits, 8x8 resized to `size` x `size`; `test` of them held out, of all classes alike."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise DataError("the digits come with scikit-learn: pip install 'neoflow[models]'") from error
    images, labels = load(return_X_y=True)
    pixels = resize_bilinear(np.asarray(images, np.float32).reshape(-1, 1, 8, 8) / np.float32(16), size)
    whole = Dataset(pixels, np.asarray(labels, np.int64), 10)
    return Split("digits", *stratified_split(whole, test, seed))


def resize_bilinear(images: Images, size: int | tuple[int, int]) -> Images:
    """`[N, C, H, W]` -> `[N, C, *size]` (one int: a square), linear between pixel centres, its border beyond."""
    sizes = (size, size) if isinstance(size, int) else tuple(size)
    if not isinstance(images, np.ndarray) or images.ndim != 4 or len(sizes) != 2 or min(sizes) < 1:
        raise DataError(f"images are [N, C, H, W], and resized to two sizes of at least 1, not to {shown(size)}")
    rows, columns = (_interpolation(extent, n) for extent, n in zip(images.shape[2:], sizes, strict=True))
    return np.ascontiguousarray(rows @ images @ columns.T)


def _interpolation(extent: int, size: int) -> Images:
    """The `[size, extent]` matrix that interpolates: each row has weights of at most two neighbours and sums to one."""
    centre = np.clip((np.arange(size) + 0.5) * extent / size - 0.5, 0, extent - 1)
    return np.maximum(0, 1 - np.abs(centre[:, np.newaxis] - np.arange(extent))).astype(np.float32)


def stratified_split(whole: Dataset, test: int, seed: int) -> tuple[Dataset, Dataset]:
    """Hold out exactly `test` samples with every class in proportion; the same seed gives the same split."""
    if not 0 < test < len(whole):
        raise DataError(f"cannot hold out {shown(test)} of {len(whole)} samples")
    order = _generator(seed).permutation(len(whole))
    # Position of each sample within its class, in shuffled order, as a fraction: the smallest `test` are held out.
    labels = whole.labels[order]
    rank = np.empty(len(whole))
    for label in range(whole.classes):
        members = np.flatnonzero(labels == label)
        rank[members] = (np.arange(len(members)) + 0.5) / max(len(members), 1)
    order = order[np.argsort(rank, kind="stable")]
    chosen = (np.sort(order[test:]), np.sort(order[:test]))
    train, held_out = (Dataset(whole.images[c], whole.labels[c], whole.classes) for c in chosen)
    return train, held_out


# ---- text ----------------------------------------------------------------------------------------------------------

_CHOICES = (0.5, 0.25, 0.125, 0.125)
_ASCII = 128
_CHAIN_LIMIT = 1 << 28
"""Words of a chain; they and what they are drawn from take 24 bytes each."""


def chain(vocabulary: int, length: int, train: int, test: int, words: int = 32, seed: int = 0) -> Split:
    """Windows of `length` words that a Markov chain writes; only the first `words` of the vocabulary occur.

    The first word is any; each further one is one of the four successors of the word before it, with probabilities
    1/2, 1/4, 1/8 and 1/8. So no predictor gets below the entropy of that choice, 1.75 log 2 = 1.213, nor right more
    than half of the time.
    """
    words = min(words, vocabulary)
    if words < len(_CHOICES) or length < 1:
        raise DataError(f"a chain needs {len(_CHOICES)} words and windows of 1, not {words} and {length}")
    if min(train, test) < 0 or (train + test) * (length + 1) > _CHAIN_LIMIT:
        raise DataError(
            f"a chain has {shown(train)} windows to learn from and {shown(test)} to be judged by, of {shown(length)} "
            f"words: neither is less than 0, and all have {_CHAIN_LIMIT} words at most"
        )
    generator = _generator(seed)
    successors = np.argsort(generator.random((words, words)), axis=1)[:, : len(_CHOICES)]
    text = generator.integers(0, words, (train + test, length + 1))
    choices = generator.choice(len(_CHOICES), text.shape, p=_CHOICES)
    for t in range(length):
        text[:, t + 1] = successors[text[:, t], choices[:, t]]
    learned, held_out = (Text(part[:, :-1], part[:, 1:], vocabulary) for part in (text[:train], text[train:]))
    entropy = -sum(p * math.log(p) for p in _CHOICES)
    return Split(f"a chain of {words} words", learned, held_out, entropy)


def characters(length: int, train: int, test: int, vocabulary: int = _ASCII) -> Split:
    """Windows of `length` characters of Python's own documentation, which every Python has: ASCII, "?" for all else.

    A label is the character after. The last `test` windows are what is judged by, of chapters that the `train` windows
    before them have nothing of but their border.
    """
    if vocabulary < _ASCII or length < 1 or min(train, test) < 1:
        raise DataError(
            f"characters need a vocabulary of {_ASCII}, and windows of at least 1 to learn from and to be judged by, "
            f"not {shown(vocabulary)}, and {shown(train)} and {shown(test)} windows of {shown(length)}"
        )
    from pydoc_data.topics import topics  # of the standard library; half a megabyte that nothing else needs

    text = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    if (train + test) * length >= len(text):
        raise DataError(
            f"the text has {len(text)} characters, too few for {train + test} windows of {length} and one after"
        )
    codes = np.frombuffer(text, np.uint8).astype(np.int64)

    def windows(begin: int, count: int) -> Text:
        part = codes[begin * length : (begin + count) * length + 1]
        return Text(part[:-1].reshape(count, length), part[1:].reshape(count, length), vocabulary)

    whole = (len(codes) - 1) // length
    return Split("characters of Python's documentation", windows(0, train), windows(whole - test, test))


# ---- batches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchState:
    """Where a run stands: `step` batches of `epoch` are behind it. Enough to continue exactly."""

    seed: int = 0
    epoch: int = 0
    step: int = 0


class Batches:
    """Batches of a fixed size, shuffled anew each epoch; an incomplete last batch is dropped, unless `keep_last`.

    Iterating gives what is left of the current epoch as `(inputs, labels)` and then moves on to the next one.
    `shift` moves each image by up to that many pixels in each direction, zeros coming in. Order and shifts depend on
    (seed, epoch, step) alone, so a run that continues from `state` sees the same batches as one that never stopped.
    """

    def __init__(
        self,
        data: Dataset | Text,
        batch: int,
        *,
        seed: int = 0,
        shift: int = 0,
        state: BatchState | None = None,
        keep_last: bool = False,
    ):
        if not 0 < batch <= len(data):
            raise DataError(f"batches of {batch} need a batch size between 1 and {len(data)}, the number of samples")
        if not 0 <= shift < min(data.inputs.shape[2:], default=1):
            raise DataError(f"cannot shift images of {data.inputs.shape[2:]} pixels by up to {shown(shift)}")
        self.data, self.batch, self.shift, self.keep_last = data, batch, shift, keep_last
        self.state = BatchState(seed) if state is None else state

    @property
    def state(self) -> BatchState:
        return self._state

    @state.setter
    def state(self, state: BatchState) -> None:
        if state.seed < 0 or state.epoch < 0 or not 0 <= state.step <= len(self):
            raise DataError(f"{state} does not fit {len(self)} batches an epoch")
        self._state = state

    def __len__(self) -> int:
        """Batches in one epoch."""
        return -(-len(self.data) // self.batch) if self.keep_last else len(self.data) // self.batch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self)} of {self.batch} samples, of {self.data!r}, at {self.state}>"

    def __iter__(self) -> Iterator[tuple[NDArray, Labels]]:
        seed, epoch = self._state.seed, self._state.epoch
        order = np.random.default_rng((seed, epoch)).permutation(len(self.data))
        for step in range(self._state.step, len(self)):
            chosen = order[step * self.batch : (step + 1) * self.batch]
            inputs: NDArray = self.data.inputs[chosen]
            if self.shift:
                inputs = _shifted(inputs, self.shift, np.random.default_rng((seed, epoch, step + 1)))
            self._state = BatchState(seed, epoch, step + 1)
            yield inputs, self.data.labels[chosen]
        self._state = BatchState(seed, epoch + 1, 0)


def _shifted(images: Images, shift: int, generator: np.random.Generator) -> Images:
    height, width = images.shape[2:]
    padded = np.pad(images, ((0, 0), (0, 0), (shift, shift), (shift, shift)))
    down, right = generator.integers(0, 2 * shift + 1, (2, len(images)))
    return sliding_window_view(padded, (height, width), axis=(2, 3))[np.arange(len(images)), :, down, right]


def padded_batches(data: Dataset | Text, batch: int) -> Iterator[tuple[NDArray, Labels, int]]:
    """All samples in order for evaluation: `(inputs, labels, valid)`; the last batch is filled up by the last one."""
    if batch <= 0:
        raise DataError(f"a batch has at least one sample, not {batch}")
    for start in range(0, len(data), batch):
        valid = min(batch, len(data) - start)
        chosen = np.minimum(np.arange(start, start + batch), len(data) - 1)
        yield data.inputs[chosen], data.labels[chosen], valid


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise DataError(f"the seed is {shown(seed)}; it is at least 0")
    return np.random.default_rng(seed)


publish(globals(), __all__)
