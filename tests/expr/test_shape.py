"""The shape functions against NumPy."""

import numpy as np
import pytest

import neoflow as nf

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 3, 4)).astype("float32")
x = nf.placeholder(X.shape, name="x")
Z = rng.normal(size=(2, 5, 4)).astype("float32")
z = nf.placeholder(Z.shape, name="z")
S = rng.normal(size=(5, 6)).astype("float32")
square = nf.placeholder(S.shape, name="s")
IDS = rng.integers(0, 3, (4, 2)).astype("int32")
ids = nf.placeholder(IDS.shape, "int32", name="ids")
N = rng.integers(-5, 5, (4, 3)).astype("int8")
n = nf.placeholder(N.shape, "int8", name="n")
FEEDS = {x: X, z: Z, square: S, ids: IDS, n: N}


def check(tensor, expected):
    (found,) = nf.evaluate([tensor], {t: v for t, v in FEEDS.items()})
    expected = np.asarray(expected)
    assert found.shape == expected.shape == tensor.shape
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


SHAPES = [
    (6, 4),
    (2, 12),
    (24,),
    (4, 6),
    (8, 3),
    (2, 1, 3, 2, 2),
    (1, 24, 1),
    (3, 8),
    (3, 2, 4),
    (2, -1),
    (-1,),
    (4, 3, 2),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_reshape(shape):
    check(nf.reshape(x, shape), X.reshape(shape))


@pytest.mark.parametrize("seed", range(30))
def test_random_reshapes(seed):
    draw = np.random.default_rng(seed)
    factors = draw.choice([1, 2, 2, 3, 5], size=draw.integers(1, 6))

    def shape():
        cuts = np.sort(draw.integers(0, len(factors) + 1, draw.integers(0, 4)))
        return tuple(int(np.prod(part)) for part in np.split(draw.permutation(factors), cuts))

    a, b = shape(), shape()
    array = np.arange(np.prod(a), dtype="int64").reshape(a)
    t = nf.placeholder(a, "int64", name="t")
    (found,) = nf.evaluate([nf.reshape(t, b)], {t: array})
    np.testing.assert_array_equal(found, array.reshape(b))


def test_reshape_of_whole_dimensions_is_clean():
    assert str(nf.reshape(x, (6, 4))).startswith("reshape[i, j] = x[i // 3, i % 3, j] ")
    assert str(nf.reshape(x, (2, 3, 2, 2))).startswith("reshape[i, j, k<2, l] = x[i, j, 2*k + l] ")
    assert str(nf.reshape(x, (1, 2, 3, 4))).startswith("reshape[i<1, j, k, l] = x[j, k, l] ")
    assert nf.reshape(nf.reshape(x, 6, 4), 24).shape == (24,)


def test_ravel():
    check(nf.ravel(x), X.ravel())


@pytest.mark.parametrize("axes", [None, (0, 1, 2), (2, 0, 1), (1, 2, 0), (-1, 0, -2)])
def test_transpose(axes):
    check(nf.transpose(x, axes), X.transpose(axes))


def test_swapaxes_and_moveaxis():
    check(nf.swapaxes(x, 0, -1), X.swapaxes(0, -1))
    check(nf.moveaxis(x, 0, -1), np.moveaxis(X, 0, -1))
    check(nf.moveaxis(x, 2, 0), np.moveaxis(X, 2, 0))


def test_expand_dims_and_squeeze():
    check(nf.expand_dims(x, 0), X[None])
    check(nf.expand_dims(x, -1), X[..., None])
    check(nf.expand_dims(x, (0, 2)), np.expand_dims(X, (0, 2)))
    one = nf.expand_dims(x, (0, 2))
    check(nf.squeeze(one), X)
    check(nf.squeeze(one, 2), X[None])
    check(nf.squeeze(one, (0, 2)), X)


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 3, 4)])
def test_broadcast_to(shape):
    check(nf.broadcast_to(x, shape), np.broadcast_to(X, shape))
    largest = nf.max(x, axis=1, keepdims=True)
    check(nf.broadcast_to(largest, (2, 7, 4)), np.broadcast_to(X.max(1, keepdims=True), (2, 7, 4)))


@pytest.mark.parametrize(
    "width", [0, 1, (1, 2), [(1, 2)], ((0, 0), (1, 0), (0, 2)), ((2, 1), (2, 2), (1, 3)), np.array([[1, 1]] * 3)]
)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(width, mode):
    if mode == "reflect" and np.max(width) >= 2:
        width = np.minimum(np.broadcast_to(width, (3, 2)), [[1], [2], [3]])
    if mode == "symmetric":
        width = np.minimum(np.broadcast_to(width, (3, 2)), [[2], [3], [4]])
    check(nf.pad(x, width, mode), np.pad(X, width, mode))


def test_pad_values_and_types():
    check(nf.pad(x, 1, value=2.5), np.pad(X, 1, constant_values=2.5))
    check(nf.pad(n, 1, value=3), np.pad(N, 1, constant_values=3))
    check(nf.pad(n > 0, 1, value=True), np.pad(N > 0, 1, constant_values=True))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_concat(count):
    check(nf.concat([x, z, x, x, z][:count], 1), np.concatenate([X, Z, X, X, Z][:count], 1))
    check(nf.concat([x] * count, -1), np.concatenate([X] * count, -1))


@pytest.mark.parametrize("axis", [0, 1, 3, -1, -4])
def test_stack(axis):
    check(nf.stack([x, x * 2, x + 1], axis), np.stack([X, X * 2, X + 1], axis))


@pytest.mark.parametrize(("sections", "axis"), [(2, 2), (3, 1), ([1], 2), ([1, 3], -1)])
def test_split(sections, axis):
    parts = nf.split(x, sections, axis)
    expected = np.split(X, sections, axis)
    assert len(parts) == len(expected)
    for part, array in zip(parts, expected, strict=True):
        check(part, array)


def test_tile_and_repeat():
    check(nf.tile(x, 2), np.tile(X, 2))
    check(nf.tile(x, (3, 1, 2)), np.tile(X, (3, 1, 2)))
    check(nf.tile(x, (2, 1, 1, 1)), np.tile(X, (2, 1, 1, 1)))
    check(nf.repeat(x, 3, 1), np.repeat(X, 3, 1))


KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[1, 2, 3],
    np.s_[:, 1:],
    np.s_[..., ::2],
    np.s_[:, ::-1, None],
    np.s_[1:, ..., -2:],
    np.s_[None, 0, :, 3:0:-2],
    np.s_[...],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices(key):
    check(x[key], X[key])


def test_take():
    check(nf.take(x, ids, 1), np.take(X, IDS, 1))
    check(nf.take(square, ids), np.take(S, IDS, 0))
    check(nf.take(square, ids, None), np.take(S, IDS))
    check(nf.take(x, 2, 1), np.take(X, 2, 1))
    check(nf.take(x, -1, -1), np.take(X, -1, -1))


def test_gather():
    places = rng.integers(0, 3, (2, 6, 4))
    p = nf.placeholder(places.shape, "int64", name="p")
    (found,) = nf.evaluate([nf.gather(x, p, 1)], {x: X, p: places})
    np.testing.assert_array_equal(found, np.take_along_axis(X, places, 1))
    (found,) = nf.evaluate([nf.take_along_axis(x, nf.argmax(x, axis=2)[..., None], -1)], {x: X})
    np.testing.assert_array_equal(found, X.max(2, keepdims=True))


def test_one_hot():
    check(nf.one_hot(ids, 3), np.eye(3, dtype="float32")[IDS])
    check(nf.one_hot(ids, 5, "int32"), np.eye(5, dtype="int32")[IDS])


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_flip(axis):
    check(nf.flip(x, axis), np.flip(X, axis))


@pytest.mark.parametrize(
    ("shift", "axis"), [(1, 0), (-1, 1), (5, 2), (0, 1), (3, None), ((1, -2), (1, 2)), (1, (1, 2))]
)
def test_roll(shift, axis):
    check(nf.roll(x, shift, axis), np.roll(X, shift, axis))


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 9])
def test_triangles(k):
    check(nf.tril(square, k), np.tril(S, k))
    check(nf.triu(x, k), np.triu(X, k))


@pytest.mark.parametrize("offset", [-4, -1, 0, 2, 5])
def test_diagonal(offset):
    check(nf.diagonal(square, offset), np.diagonal(S, offset))
    if abs(offset) < 3:
        check(nf.diagonal(x, offset, 2, 1), np.diagonal(X, offset, 2, 1))


def test_made_of_air():
    check(nf.zeros((2, 3)), np.zeros((2, 3), "float32"))
    check(nf.ones(4, "int8"), np.ones(4, "int8"))
    check(nf.full((2,), 2.5, "float64"), np.full(2, 2.5))
    check(nf.full((2,), True, "bool"), np.full(2, True))
    check(nf.zeros_like(n), np.zeros_like(N))
    check(nf.ones_like(x), np.ones_like(X))
    check(nf.full_like(n, -3), np.full_like(N, -3))
    check(nf.arange(5), np.arange(5))
    check(nf.arange(5, "float32"), np.arange(5, dtype="float32"))
    check(nf.eye(3), np.eye(3, dtype="float32"))
    check(nf.eye(2, 4, 1), np.eye(2, 4, 1, dtype="float32"))


ERRORS = [
    (
        lambda: nf.reshape(x, (5, 5)),
        "x of shape (2, 3, 4) has 24 elements and does not reshape to (5, 5) (25 ",
    ),
    (lambda: nf.reshape(x, (5, -1)), "does not reshape to (5, -1) (5 elements, times the extent -1)"),
    (lambda: nf.reshape(x, (-1, -1)), "reshape to (-1, -1): at most one extent may be -1"),
    (lambda: nf.reshape(x, (24, 0)), "shape (24, 0) has extent 0; extents are integers greater than 0"),
    (lambda: nf.reshape([1.0], (1,)), "reshape takes a tensor, not [1.0] of type list"),
    (lambda: nf.transpose(x, (0, 1)), "transpose of x (rank 3) takes each dimension once, not axes (0, 1)"),
    (lambda: nf.transpose(x, (0, 1, 3)), "transpose: x has shape (2, 3, 4); axis 3 is not in [-3, 3)"),
    (lambda: nf.swapaxes(x, 0, 0.5), "swapaxes takes one dimension number as axis, not 0.5"),
    (lambda: nf.expand_dims(x, (1, 1)), "expand_dims of x: places (1, 1) are not distinct"),
    (lambda: nf.squeeze(x, 1), "squeeze of x (2, 3, 4): dimension 1 has extent 3, not 1"),
    (lambda: nf.broadcast_to(x, (3, 4)), "x of shape (2, 3, 4) does not broadcast to (3, 4)"),
    (lambda: nf.broadcast_to(x, (2, 5, 4)), "x of shape (2, 3, 4) does not broadcast to (2, 5, 4)"),
    (lambda: nf.concat([x, square]), "concat along dimension 0: s has shape (5, 6), x (2, 3, 4); all other extents"),
    (lambda: nf.concat([x, z], 0), "concat along dimension 0: z has shape (2, 5, 4), x (2, 3, 4)"),
    (lambda: nf.concat(x), "concat takes a list of one or more tensors"),
    (lambda: nf.concat([]), "concat takes a list of one or more tensors, not []"),
    (lambda: nf.concat([x, nf.cast(x, "float64")]), "select mixes"),
    (lambda: nf.stack([x, z]), "stack: z has shape (2, 5, 4), x (2, 3, 4); shapes must be equal"),
    (lambda: nf.split(x, 3, 2), "split of x (2, 3, 4): extent 4 of dimension 2 is no multiple of 3"),
    (lambda: nf.split(x, [2, 2], 2), "split of x (2, 3, 4): positions [2, 2] do not ascend inside (0, 4)"),
    (lambda: nf.pad(x, (1, 2, 3)), "pad of x (rank 3) takes a width >= 0, a pair (before, after), or such a pair for"),
    (lambda: nf.pad(x, -1), "pad of x (rank 3) takes a width >= 0"),
    (lambda: nf.pad(x, 1, "mirror"), "pad has no mode 'mirror'; there are constant, edge, reflect and symmetric"),
    (lambda: nf.pad(x, 2, "reflect"), "mode reflect mirrors at most 1 elements"),
    (lambda: nf.pad(n, 1, value=0.5), "pad fills a tensor of type int8 with the float 0.5; give a value of type int8"),
    (lambda: nf.take(x, square), "take is indexed by s of type float32; indices are integers"),
    (lambda: nf.take(x, 9), "take: index 9 leaves dimension 0 of x (2, 3, 4)"),
    (
        lambda: nf.gather(x, ids),
        "gather along dimension 2: ids ids (4, 2) must have the shape of x (2, 3, 4)",
    ),
    (lambda: nf.one_hot(square, 3), "one_hot is indexed by s of type float32; indices are integers"),
    (lambda: nf.one_hot(ids, 3, "float8"), "dtype 'float8' is not one of"),
    (lambda: nf.flip(x, 3), "x has rank 3 (shape (2, 3, 4)); there is no dimension 3"),
    (lambda: nf.roll(x, (1, 2), 0), "roll of x: 2 shifts for 1 axes"),
    (lambda: nf.roll(x, 0.5, 0), "a shift of roll is 0.5; it is an integer"),
    (lambda: nf.diagonal(x, 0, 1, 1), "diagonal of x takes two different dimensions, not 1 and 1"),
    (lambda: nf.diagonal(x, 5), "diagonal 5 of x (2, 3, 4) is empty"),
    (lambda: nf.tril(nf.ravel(x)), "tril takes a tensor of rank 2 or more; reshape has shape (24,)"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, message):
    with pytest.raises(nf.ExpressionError) as caught:
        call()
    assert message in str(caught.value)
    assert "test_shape.py:" in str(caught.value)
