"""Loaders on files made here: what they accept, what they refuse and how they say it; batches that can be continued."""

import gzip
import struct

import numpy as np
import pytest

from neoflow.data import (
    Batches,
    BatchState,
    Dataset,
    load_cifar10,
    load_digits,
    load_mnist,
    padded_batches,
    read_idx,
    resize_bilinear,
    stratified_split,
)
from neoflow.errors import DataError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)


@pytest.fixture
def mnist(tmp_path, pixels):
    """A folder with both compressed and plain files."""
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pixels))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array([0, 9, 3, 3, 1], np.uint8))))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels[:2])))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([7, 2], np.uint8)))
    return tmp_path


def numbered(n: int, size: int = 4, classes: int = 10) -> Dataset:
    """Sample i is constant i."""
    images = np.broadcast_to(np.arange(n, dtype=np.float32).reshape(-1, 1, 1, 1), (n, 1, size, size)).copy()
    return Dataset(images, np.arange(n, dtype=np.int64) % classes, classes)


def test_mnist(mnist, pixels):
    split = load_mnist(mnist)
    assert split.train.images.shape == (5, 1, 28, 28)
    assert split.train.images.dtype == np.float32
    np.testing.assert_array_equal(np.round(split.train.images[:, 0] * 255), pixels)
    np.testing.assert_array_equal(split.train.labels, [0, 9, 3, 3, 1])
    np.testing.assert_array_equal(split.test.labels, [7, 2])
    assert split.test.labels.dtype == np.int64


def test_mnist_missing_file(mnist):
    (mnist / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"no t10k-labels-idx1-ubyte and no t10k-labels-idx1-ubyte\.gz; --data names"):
        load_mnist(mnist)


def test_mnist_counts_differ(mnist):
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match=r"has 2 images, .* has 3 labels"):
        load_mnist(mnist)


def test_mnist_label_out_of_range(mnist):
    (mnist / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([1, 10], np.uint8)))
    with pytest.raises(DataError, match="label 10, MNIST has 0 to 9"):
        load_mnist(mnist)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated: 0 bytes, the header alone has 16"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:9], "truncated: 9 bytes, the header alone has 16"),
        (idx(np.zeros((2, 3, 4), np.uint8))[:-1], "truncated: 23 of 24 data bytes"),
        (idx(np.zeros((2, 3, 4), np.uint8)) + b"!", "more data than the 24 bytes"),
        (idx(np.zeros((2, 3), np.uint8)), "magic number 0x00000802, an IDX file .* 3 dimensions with 0x00000803"),
        (b"\0\0\x0d\x03" + bytes(40), "magic number 0x00000d03"),
        (b"PK\3\4" + bytes(40), "magic number 0x504b0304"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2), "2147483648 x 2147483648 x 2 bytes: it is damaged"),
        (struct.pack(">HBB3I", 0, 8, 3, 0, 28, 28), "0 x 28 x 28 bytes: it is damaged"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_refusals(tmp_path, content, message, suffix):
    path = tmp_path / f"images{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(DataError, match=message) as error:
        read_idx(path, 3)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("damage", [lambda b: b[:40], lambda b: b"no gzip", lambda b: b[:12] + b"\xff" * 12 + b[24:]])
def test_damaged_gzip(tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(damage(gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (4, 9, 9), np.uint8)))))
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(path, 3)


def test_missing_idx(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path / "nothing", 1)


def test_cifar10(tmp_path):
    generator = np.random.default_rng(1)
    records = [generator.integers(0, 256, (n, 3073), np.uint8) for n in (3, 2, 4)]
    for table in records:
        table[:, 0] %= 10
    for name, table in zip(("data_batch_1", "data_batch_2", "test_batch"), records, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(table.tobytes())
    split = load_cifar10(tmp_path)
    assert split.train.images.shape == (5, 3, 32, 32)
    np.testing.assert_array_equal(split.train.labels, np.concatenate([records[0][:, 0], records[1][:, 0]]))
    # Planes in the order red, green, blue, each row by row.
    assert split.test.images[2, 1, 3, 5] == np.float32(records[2][2, 1 + 1024 + 3 * 32 + 5]) / np.float32(255)

    (tmp_path / "data_batch_2.bin").write_bytes(records[1].tobytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_2\.bin: truncated: 6145 bytes are not a multiple of 3073"):
        load_cifar10(tmp_path)
    records[1][1, 0] = 200
    (tmp_path / "data_batch_2.bin").write_bytes(records[1].tobytes())
    with pytest.raises(DataError, match=r"data_batch_2\.bin: label 200"):
        load_cifar10(tmp_path)


def test_pickled_cifar10_is_not_read(tmp_path):
    for name in ("data_batch_1", "test_batch"):
        (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match="reads the binary version of CIFAR-10"):
        load_cifar10(tmp_path)


def test_dataset_refusals():
    images, labels = np.zeros((3, 1, 2, 2), np.float32), np.zeros(3, np.int64)
    with pytest.raises(DataError, match=r"images are float32 \[N, C, H, W\], not float64"):
        Dataset(images.astype(np.float64), labels, 10)
    with pytest.raises(DataError, match=r"3 images need int64 labels \[3\], not int64 \[2\]"):
        Dataset(images, labels[:2], 10)
    with pytest.raises(DataError, match=r"labels lie in \[0, 3\], not in \[0, 3\)"):
        Dataset(images, np.array([0, 1, 3]), 3)


def test_resize_bilinear():
    # A plane stays a plane away from the border, where the border's value goes on.
    row, column = np.mgrid[0:8, 0:8].astype(np.float32)
    large = resize_bilinear((2 * row + 3 * column)[np.newaxis, np.newaxis], 28)
    centre = np.clip((np.arange(28) + 0.5) / 3.5 - 0.5, 0, 7)
    np.testing.assert_allclose(large[0, 0], 2 * centre[:, np.newaxis] + 3 * centre, rtol=1e-6, atol=1e-5)
    same = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    np.testing.assert_array_equal(resize_bilinear(same, 8), same)


@pytest.mark.torch
def test_resize_bilinear_agrees_with_torch():
    torch = pytest.importorskip("torch")
    image = np.random.default_rng(0).random((3, 1, 8, 6), np.float32)
    expected = torch.nn.functional.interpolate(torch.from_numpy(image), (28, 28), mode="bilinear").numpy()
    np.testing.assert_allclose(resize_bilinear(image, 28), expected, atol=1e-6)


def test_digits():
    split = load_digits()
    assert split.train.images.shape == (1437, 1, 28, 28)
    assert split.test.images.shape == (360, 1, 28, 28)
    assert split.train.images.min() == 0
    assert split.train.images.max() == 1
    whole = np.bincount(split.train.labels) + np.bincount(split.test.labels)
    np.testing.assert_allclose(np.bincount(split.test.labels), whole * 360 / 1797, atol=1)
    again = load_digits()
    np.testing.assert_array_equal(again.test.images, split.test.images)
    assert not np.array_equal(load_digits(seed=1).test.images, split.test.images)


def test_digits_without_sklearn(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'neoflow\[models\]'"):
        load_digits()


def test_split_keeps_every_sample_once():
    train, test = stratified_split(numbered(103), 20, seed=3)
    seen = np.concatenate([train.images[:, 0, 0, 0], test.images[:, 0, 0, 0]])
    np.testing.assert_array_equal(np.sort(seen), np.arange(103))
    assert set(np.bincount(test.labels)) <= {1, 2, 3}
    with pytest.raises(DataError, match="cannot hold out 103 of 103"):
        stratified_split(numbered(103), 103, seed=0)


def epoch(batches: Batches) -> list[np.ndarray]:
    return [images[:, 0, 0, 0].copy() for images, _ in batches]


def test_batches_visit_each_sample_at_most_once_and_drop_the_rest():
    batches = Batches(numbered(103), 10, seed=5)
    assert len(batches) == 10
    first, second = epoch(batches), epoch(batches)
    for order in (first, second):
        assert [len(b) for b in order] == [10] * 10
        assert len(np.unique(np.concatenate(order))) == 100
    assert not np.array_equal(first, second)
    assert batches.state == BatchState(5, 2, 0)


def test_batches_are_deterministic():
    a, b, c = (Batches(numbered(40, size=8), 8, seed=s, shift=2) for s in (1, 1, 2))
    for _ in range(2):
        for (xa, ya), (xb, yb) in zip(a, b, strict=True):
            np.testing.assert_array_equal(xa, xb)
            np.testing.assert_array_equal(ya, yb)
    a.state = BatchState(1)
    assert not np.array_equal(epoch(a), epoch(c))


@pytest.mark.parametrize("stop", [0, 1, 7, 10, 13])
def test_batches_continue_exactly(stop):
    def steps(batches, n):
        taken = []
        while len(taken) < n:
            for images, labels in batches:
                taken.append((images, labels))
                if len(taken) == n:
                    break
        return taken

    data = numbered(43, size=6)
    whole = steps(Batches(data, 4, seed=9, shift=1), 25)
    before = Batches(data, 4, seed=9, shift=1)
    head = steps(before, stop) if stop else []
    tail = steps(Batches(data, 4, shift=1, state=before.state), 25 - stop)
    for (x, y), (expected_x, expected_y) in zip(head + tail, whole, strict=True):
        np.testing.assert_array_equal(x, expected_x)
        np.testing.assert_array_equal(y, expected_y)


def test_shift_moves_pixels_and_brings_in_zeros():
    size, shift = 7, 2
    image = np.zeros((64, 1, size, size), np.float32)
    image[:, 0, 3, 3] = 1
    images, _ = next(iter(Batches(Dataset(image, np.zeros(64, np.int64), 1), 64, shift=shift)))
    assert images.sum() == 64
    places = {tuple(p) for p in np.argwhere(images[:, 0])[:, 1:]}
    assert places <= {(r, c) for r in range(1, 6) for c in range(1, 6)}
    assert len(places) > 10


def test_batches_refusals():
    with pytest.raises(DataError, match="batch size between 1 and 5"):
        Batches(numbered(5), 6)
    with pytest.raises(DataError, match="by up to 4"):
        Batches(numbered(5), 2, shift=4)
    with pytest.raises(DataError, match=r"step=3\) does not fit 2 batches"):
        Batches(numbered(5), 2, state=BatchState(0, 0, 3))


def test_padded_batches():
    batches = list(padded_batches(numbered(10), 4))
    assert [valid for _, _, valid in batches] == [4, 4, 2]
    assert all(images.shape == (4, 1, 4, 4) for images, _, _ in batches)
    np.testing.assert_array_equal(np.concatenate([y[:v] for _, y, v in batches]), np.arange(10))
    np.testing.assert_array_equal(batches[-1][1], [8, 9, 9, 9])
    with pytest.raises(DataError, match="at least one sample"):
        list(padded_batches(numbered(3), 0))
