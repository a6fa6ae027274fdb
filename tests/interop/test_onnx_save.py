"""Programs as ONNX files: which operators stand for what, values in onnxruntime and read back, refusals."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import neoflow as nf  # noqa: E402
from neoflow import models  # noqa: E402
from neoflow.dtype import NUMPY  # noqa: E402
from neoflow.errors import ArgumentError, DataError, GraphError  # noqa: E402
from neoflow.expr.functions import FUNCTIONS  # noqa: E402
from neoflow.expr.tensor import Placeholder, topological  # noqa: E402
from neoflow.interop.onnx import saving  # noqa: E402
from neoflow.interop.onnx.writing import body, loops  # noqa: E402
from neoflow.interop.onnx.writing.functions import WRITERS  # noqa: E402
from tests.interop.onnx_models import drawn  # noqa: E402
from tests.strategies import random_program  # noqa: E402

pytestmark = pytest.mark.onnx
F = nf.nn.functional


def run(path, feeds):
    """The values of onnxruntime, of a file that the package's checker likes."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(path, options).run(None, feeds)


def close(found, wanted):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=2e-3, atol=1e-3)


def judged(outputs, feeds, folder):
    """The file of a program, after its values were compared: onnxruntime's, and those of what is read from it."""
    path, names = folder / "model.onnx", [f"out{n}" for n in range(len(outputs))]
    nf.onnx.save(path, dict(zip(names, outputs, strict=True)), list(feeds))
    given = {t.name: a for t, a in feeds.items()}
    wanted = nf.evaluate(outputs, feeds)
    back = nf.onnx.load(path)
    assert back.names == tuple(names) and [t.name for t in back.inputs] == [t.name for t in feeds]
    again = nf.evaluate(list(back.outputs), {t: given[t.name] for t in back.inputs})
    for b, c in zip(again, wanted, strict=True):
        close(b, c)
    if all(t.dtype != "bfloat16" for t in feeds):  # which onnxruntime is fed with in C++ only
        for a, c in zip(run(str(path), given), wanted, strict=True):
            close(a, c)
    return onnx.load(path)


def operators(proto):
    return [n.op_type for n in proto.graph.node]


def attributes(proto, op):
    (found,) = [n for n in proto.graph.node if n.op_type == op]
    return {a.name: onnx.helper.get_attribute_value(a) for a in found.attribute}


# ----------------------------------------------------------------------------------------------------------- patterns

a, b = nf.placeholder((4, 5), name="a"), nf.placeholder((5, 6), name="b")
heads, keys = nf.placeholder((2, 3, 4, 5), name="heads"), nf.placeholder((2, 3, 6, 5), name="keys")
image = nf.placeholder((2, 4, 9, 8), name="image")
filters, grouped = nf.placeholder((6, 4, 3, 3), name="filters"), nf.placeholder((6, 2, 3, 3), name="grouped")
single = nf.placeholder((4, 1, 3, 3), name="single")
ids, flags = nf.placeholder((3,), "int64", name="ids"), nf.placeholder((4, 5), "bool", name="flags")

PATTERNS = {
    "gemm": (lambda: nf.matmul(a, b), ["Gemm"]),
    "gemm of what is transposed": (lambda: nf.einsum("ki,jk->ij", a, nf.transpose(a)), ["Transpose", "Gemm"]),
    "einsum": (lambda: nf.einsum("ij,jk->ki", a, b), ["Gemm"]),
    "batched": (lambda: nf.einsum("bik,bjk->bij", heads[:, 0], keys[:, 0]), None),
    "attention": (lambda: nf.einsum("bhik,bhjk->bhij", heads, keys), ["Transpose", "MatMul"]),
    "many rows": (lambda: nf.matmul(heads, b), ["MatMul"]),
    "three factors": (lambda: nf.einsum("ij,jk,ij->ik", a, b, a), ["Mul", "Gemm"]),
    "convolution": (lambda: F.conv2d(image, filters, None, (2, 1), (1, 1), (1, 2)), ["Conv"]),
    "groups": (lambda: F.conv2d(image, grouped, padding=1, groups=2), ["Conv"]),
    "depthwise": (lambda: F.depthwise_conv2d(image, single), ["Conv"]),
    "one dimension": (lambda: F.conv1d(image[:, :, 0], filters[:, :, 0], padding=2), None),
    "max pooling": (lambda: F.max_pool(image, 3, 2, 1), ["MaxPool"]),
    "average pooling": (lambda: F.avg_pool(image, 2), ["AveragePool", "Mul", "Mul"]),
    "reductions": (lambda: nf.max(nf.sum(image, 1), (1, 2)), ["ReduceSum", "ReduceMax"]),
    "positions": (lambda: nf.argmax(a, 1), ["ArgMax"]),
    "transpose": (lambda: nf.transpose(image, (0, 2, 3, 1)), ["Transpose"]),
    "reshape": (lambda: nf.reshape(image, (8, 72)), ["Reshape"]),
    "slice": (lambda: image[:, 1:, ::-2, 3], ["Slice", "Reshape"]),
    "concat": (lambda: nf.concat([a, a], 0), ["Concat"]),
    "stack": (lambda: nf.stack([a, a, a], 1), ["Reshape", "Reshape", "Reshape", "Concat"]),
    "pad": (lambda: nf.pad(a, ((1, 0), (2, 3)), value=1.5), ["Pad"]),
    "gather": (lambda: nf.take(a, ids, axis=1), ["Gather"]),
    "windows": (lambda: nf.compute((4, 3, 3), lambda i, j, r: a[i, j + r]), ["Gather"]),
    "diagonal": (lambda: nf.compute((4,), lambda i: a[i, i]), ["Reshape", "Gather"]),
    "select": (lambda: nf.select(flags, a, -a), ["Neg", "Where"]),
    "broadcast": (lambda: nf.broadcast_to(a, (3, 4, 5)), ["Unsqueeze", "Expand"]),
    "softmax": (lambda: F.softmax(a), None),
    "scatter": (lambda: nf.vjp(nf.take(a, ids, axis=1), [a], nf.take(a, ids, axis=1))[0], None),
    "transposed convolution": (lambda: F.conv_transpose2d(image, filters[:4], stride=2, padding=1), None),
    "gradients": (lambda: nf.grad(nf.sum(nf.tanh(F.conv2d(image, filters, padding=1))), [filters])[0], None),
}


def feeds_of(t):
    found = {}
    for n, p in enumerate(p for p in topological([t]) if isinstance(p, Placeholder)):
        if p.dtype == "float32":
            found[p] = drawn(*p.shape, seed=n)
        else:
            found[p] = (np.arange(p.size).reshape(p.shape) % 3).astype(p.dtype)
    return found


QUICK = (
    "gemm",
    "convolution",
    "groups",
    "max pooling",
    "average pooling",
    "slice",
    "concat",
    "pad",
    "windows",
    "scatter",
)


@pytest.mark.parametrize("what", [w if w in QUICK else pytest.param(w, marks=pytest.mark.slow) for w in PATTERNS])
def test_a_pattern_is_its_operator(what, tmp_path):
    make, wanted = PATTERNS[what]
    t = make()
    proto = judged([t], feeds_of(t), tmp_path)
    found = [op for op in operators(proto) if op != "Constant"]
    if wanted is not None:
        assert found == wanted


def test_a_convolution_has_its_attributes(tmp_path):
    proto = judged([PATTERNS["convolution"][0]()], {image: drawn(2, 4, 9, 8), filters: drawn(6, 4, 3, 3)}, tmp_path)
    found = attributes(proto, "Conv")
    assert found == {"dilations": [1, 2], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]}
    t = PATTERNS["depthwise"][0]()
    assert attributes(judged([t], feeds_of(t), tmp_path), "Conv")["group"] == 4


# --------------------------------------------------------------------------------------------------------- programs


def check_program(seed, folder):
    p = random_program(seed)
    judged(p.with_gradients() if seed % 3 == 0 else p.outputs, p.feeds, folder)


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed, tmp_path):
    check_program(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_random_programs(part, tmp_path):
    for seed in range(50 * part, 50 * part + 50):
        check_program(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [found.name for found in models.list_models()])
def test_models(name, tmp_path):
    """In inference form, with the parameters that they begin with, which the file has by their names."""
    m = models.build_model(name, batch=2, small=True)
    path = tmp_path / "model.onnx"
    nf.onnx.save(path, {"scores": m.scores}, [m.x])
    x = m.example()[0]
    (wanted,) = nf.evaluate([m.scores], {m.x: x} | m.initial())
    close(run(str(path), {m.x.name: x})[0], wanted)
    back = nf.onnx.load(path)
    close(nf.evaluate(list(back.outputs), {back.inputs[0]: x})[0], wanted)
    assert {p.name for p in back.parameters()} <= {p.name for p in (*m.parameters.values(), *m.state)}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_recurrences_are_written_out(is_reversed, tmp_path, monkeypatch):
    xs, h = nf.placeholder((5, 4), name="xs"), nf.placeholder((4,), name="h")
    last, ys = nf.scan(lambda c, x: (nf.tanh(c + x), c * x), h, xs, reverse=is_reversed)
    feeds = {xs: drawn(5, 4), h: drawn(4)}
    judged([last * 2.0, ys], feeds, tmp_path)
    judged(nf.grad(nf.sum(ys * ys), [xs, h]), feeds, tmp_path)
    monkeypatch.setattr(loops, "MOST_STEPS", 4)
    with pytest.raises(DataError, match="a recurrence of 5 steps; up to 4 are written out"):
        nf.onnx.save(tmp_path / "m.onnx", last, [xs, h])


# ------------------------------------------------------------------------------------------------- names and values


def test_names_and_trained_values_stay(tmp_path):
    x, w = nf.placeholder((2, 3), name="x"), nf.parameter((3, 4), name="layer.weight", init=np.ones((3, 4), np.float32))
    nf.set_value(w, np.full((3, 4), 2, np.float32))
    hidden = nf.compute((2, 4), lambda i, j: nf.relu(nf.matmul(x, w)[i, j]), name="hidden")
    scale = nf.constant(np.arange(4, dtype=np.float32))
    y = nf.compute((2, 4), lambda i, j: hidden[i, j] * scale[j,], name="y")
    path = tmp_path / "folder" / "model.onnx"
    nf.onnx.save(path, [y, hidden, x, y], x)
    proto = onnx.load(path)
    assert [i.name for i in proto.graph.input] == ["x"]
    assert [o.name for o in proto.graph.output] == ["y", "hidden", "x_1", "y_1"]
    assert [i.name for i in proto.graph.initializer] == ["layer.weight"]  # what is constant is no parameter
    arrays = run(str(path), {"x": np.ones((2, 3), np.float32)})
    assert arrays[1].tolist() == [[6.0] * 4] * 2 and arrays[0].tolist() == arrays[3].tolist() == [[0, 6, 12, 18]] * 2
    back = nf.onnx.load(path)
    assert [p.name for p in back.parameters()] == ["layer.weight"] and back.names == ("y", "hidden", "x_1", "y_1")
    nf.onnx.save(tmp_path / "again.onnx", back)
    assert run(str(tmp_path / "again.onnx"), {"x": np.ones((2, 3), np.float32)})[1].tolist() == arrays[1].tolist()


def test_large_weights_lie_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "MOST_BYTES", 4096)
    x, w = nf.placeholder((2, 30), name="x"), nf.parameter((30, 40), name="w", init=drawn(30, 40))
    path = tmp_path / "model.onnx"
    nf.onnx.save(path, nf.matmul(x, w), [x])
    assert path.stat().st_size < 1000 and (tmp_path / "model.onnx.data").stat().st_size == 4800
    wanted = nf.evaluate([nf.matmul(x, w)], {x: drawn(2, 30)})[0]
    close(run(str(path), {"x": drawn(2, 30)})[0], wanted)
    back = nf.onnx.load(path)
    close(nf.evaluate(list(back.outputs), {back.inputs[0]: drawn(2, 30)})[0], wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int16", "int32", "int64"])
def test_types_are_computed_as_the_language_says(dtype, tmp_path):
    x = nf.placeholder((6,), dtype, name="x")
    t = x * x + x
    judged([t, nf.max(t)], {x: np.array([-100, -7, 0, 3, 50, 127]).astype(NUMPY[dtype])}, tmp_path)


def test_integers_divide_and_shift_as_the_language_says(tmp_path):
    p, q = nf.placeholder((9,), "int64", name="p"), nf.placeholder((9,), "int64", name="q")
    outputs = [p // q, p % q, nf.left_shift(p, q), nf.right_shift(p, q), ~p & q | p ^ 3]
    feeds = {p: np.array([7, -7, 7, -7, 0, 5, -5, -1, 2**40]), q: np.array([2, 2, -2, -2, 3, 0, 0, 70, 33])}
    judged(outputs, feeds, tmp_path)


def test_small_arguments_keep_their_digits(tmp_path):
    x = nf.placeholder((6,), name="x")
    array = np.array([1e-20, -1e-8, 1e-3, 3.0, np.inf, 0.0], np.float32)
    nf.onnx.save(tmp_path / "m.onnx", [nf.log1p(x), nf.expm1(x), nf.expm1(-x)], [x])
    found = run(str(tmp_path / "m.onnx"), {"x": array})
    for f, g in zip(found, (np.log1p(array), np.expm1(array), np.expm1(-array)), strict=True):
        np.testing.assert_allclose(f, g, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------- refusals


def test_every_function_has_operators_but_one():
    assert set(FUNCTIONS) - set(WRITERS) == {"round_tf32"}


def test_what_cannot_be_written_is_an_error_that_names_it(tmp_path, monkeypatch):
    x, y = nf.placeholder((4, 5), name="x"), nf.placeholder((5, 6), name="y")
    path = tmp_path / "model.onnx"
    narrow = nf.mixed_precision(nf.compute((4, 6), lambda i, j: nf.matmul(x, y)[i, j], name="z"), "tf32")
    with pytest.raises(DataError, match=r"tensor .*: ONNX has no operator that computes round_tf32"):
        nf.onnx.save(path, narrow, [x, y])
    with pytest.raises(GraphError, match="y"):
        nf.onnx.save(path, nf.matmul(x, y), [x])
    other = nf.placeholder((5, 6), name="x")
    with pytest.raises(DataError, match="two inputs or parameters are named 'x', and a file knows them by"):
        nf.onnx.save(path, nf.matmul(x, other), [x, other])
    with pytest.raises(DataError, match="output 'x' has the name of an input or a parameter: give outputs as"):
        nf.onnx.save(path, {"x": x * 2.0}, [x])
    monkeypatch.setattr(body, "MOST", 100)
    k = nf.axis(5, "k")
    far = nf.compute((4, 6), lambda i, j: nf.sum(nf.abs(x[i, k] - y[k, j]), axis=[k]), name="far")
    with pytest.raises(DataError, match="tensor far: the operators of ONNX that compute it have an array of 120 elem"):
        nf.onnx.save(path, far, [x, y])
    assert not path.exists()


def test_wrong_arguments(tmp_path):
    x, path = nf.placeholder((4, 5), name="x"), tmp_path / "model.onnx"
    for wrong in (3, [1], {}, {"": x}, {"a": 1}, []):
        with pytest.raises(ArgumentError, match="outputs is "):
            nf.onnx.save(path, wrong, [x])
    with pytest.raises(ArgumentError, match="inputs is 3; it is a placeholder or a list of placeholders"):
        nf.onnx.save(path, x * 2.0, 3)
    nf.onnx.save(path, x * 2.0, x)
    with pytest.raises(ArgumentError, match="inputs are those of the model; leave them out"):
        nf.onnx.save(path, nf.onnx.load(path), x)
