"""Models of ONNX files: what they compute, what is trained, what is refused."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import neoflow as nf  # noqa: E402
from neoflow.errors import ArgumentError, DataError, ExpressionError, RuntimeFault  # noqa: E402
from neoflow.interop.onnx import reader  # noqa: E402
from tests.interop.onnx_models import drawn, info, model, network, node, saved  # noqa: E402

pytestmark = pytest.mark.onnx


def loaded(proto, folder, shapes=None, **options):
    return nf.onnx.load(saved(proto, folder), shapes, **options)


def valued(m, *arrays):
    return nf.evaluate(m.outputs, dict(zip(m.inputs, arrays, strict=True)))


@pytest.mark.tvm
def test_a_network_has_the_values_of_onnxruntime_and_is_trained(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    proto, x = network(), drawn(5, 2, 8, 8)
    m = loaded(proto, tmp_path, {"batch": 5})
    (expected,) = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(m(x)[0], expected, rtol=1e-4, atol=1e-4)
    assert [p.name for p in m.parameters()] == ["w", "b", "scale", "bias", "v", "u"]  # no running statistics
    loss = nf.mean(m.outputs[0] * m.outputs[0])
    updates = {p: p - 1e-5 * d for p, d in zip(m.parameters(), nf.grad(loss, m.parameters()), strict=True)}
    step = nf.compile([loss], inputs=list(m.inputs), updates=updates)
    losses = [float(step(x)[0]) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    np.testing.assert_allclose(np.square(m(x)[0]).mean(), step(x)[0], rtol=1e-4)  # the same parameters
    assert repr(m) == "Model(x: float32[5, 2, 8, 8]) -> y: float32[5, 3], 6 parameters"


def test_open_extents_are_bound(tmp_path):
    path = saved(network(), tmp_path)
    for shapes in ({"batch": 3}, {"x": (3, 2, 8, 8)}):
        assert nf.onnx.load(path, shapes).outputs[0].shape == (3, 3)
    with pytest.raises(DataError, match=r"leaves extents open: batch of 'x'; give them .* shapes="):
        nf.onnx.load(path)
    with pytest.raises(DataError, match="shapes has 'bath', which is neither an input nor an open extent"):
        nf.onnx.load(path, {"batch": 3, "bath": 1})
    with pytest.raises(DataError, match=r"'x' has the shape \['batch', 2, 8, 8\] in the file, which \[3, 1, 8, 8\]"):
        nf.onnx.load(path, {"x": (3, 1, 8, 8)})
    with pytest.raises(ArgumentError, match="shapes is 3; it maps names"):
        nf.onnx.load(path, 3)
    with pytest.raises(ExpressionError, match="extents are integers greater than 0"):
        nf.onnx.load(path, {"batch": 0})


def test_an_unknown_operator_is_named_and_can_be_given(tmp_path):
    nodes = [node("Twice", ["x"], ["y"], name="second", domain="my.own", by=3.0)]
    proto = model(nodes, [info("x", [2])], ["y"], domains=["my.own"])
    with pytest.raises(
        DataError, match=r"node 'second' \(Twice\): operator Twice of domain 'my.own' is not known: .*ext"
    ):
        loaded(proto, tmp_path)
    m = loaded(proto, tmp_path, extra={"Twice": lambda x, by: x * by})
    assert valued(m, np.ones(2, np.float32))[0].tolist() == [3, 3]
    with pytest.raises(DataError, match="unexpected keyword argument 'by', as Twice is known here"):
        loaded(proto, tmp_path, extra={"Twice": lambda x: x})
    with pytest.raises(DataError, match="the function of Twice gave 3, which is no tensor"):
        loaded(proto, tmp_path, extra={"Twice": lambda x, by: 3})
    with pytest.raises(ArgumentError, match=r"extra is .*; it maps names of operators to functions"):
        loaded(proto, tmp_path, extra={"Twice": 3})


def test_functions_of_the_file_and_branches_that_are_known(tmp_path):
    body = [node("Mul", ["a", "a"], ["q"]), node("Add", ["q", "w"], ["z"])]
    square = helper.make_function("my.own", "Square", ["a", "w"], ["z"], body, [helper.make_opsetid("", 17)])
    then = helper.make_graph([node("Square", ["x", "w"], ["t"], domain="my.own")], "t", [], [info("t", None)])
    other = helper.make_graph([node("Neg", ["x"], ["t"])], "e", [], [info("t", None)])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    for condition, expected in ((True, 5.0), (False, -2.0)):
        weights = {"c": np.array(condition), "w": np.ones(1, np.float32)}
        m = loaded(model(nodes, [info("x", [1])], ["y"], weights, functions=[square], domains=["my.own"]), tmp_path)
        assert valued(m, np.full(1, 2, np.float32))[0].tolist() == [expected]
        assert [p.name for p in m.parameters()] == (["w"] if condition else [])
    del weights["c"]
    given = [info("x", [1]), info("c", [], TensorProto.BOOL)]
    with pytest.raises(DataError, match="the condition depends on inputs of the model"):
        loaded(model(nodes, given, ["y"], weights, functions=[square], domains=["my.own"]), tmp_path)


def endless():
    body = [node("F", ["a"], ["z"], domain="my.own")]
    f = helper.make_function("my.own", "F", ["a"], ["z"], body, [helper.make_opsetid("my.own", 1)])
    return model([node("F", ["x"], ["y"], domain="my.own")], [info("x", [1])], ["y"], functions=[f], domains=["my.own"])


def doubling():
    """Functions that call one another twice: 2^40 nodes."""
    fs = []
    for n in range(40):
        body = [node(f"F{n + 1}", ["a"], ["b"], domain="d"), node(f"F{n + 1}", ["b"], ["z"], domain="d")]
        body = body if n < 39 else [node("Identity", ["a"], ["z"])]
        fs.append(helper.make_function("d", f"F{n}", ["a"], ["z"], body, [helper.make_opsetid("", 17)]))
    return model([node("F0", ["x"], ["y"], domain="d")], [info("x", [1])], ["y"], functions=fs, domains=["d"])


REFUSED = {
    "an input of another type": (
        model([node("Neg", ["x"], ["y"])], [info("x", [2], TensorProto.UINT8)], ["y"]),
        "input 'x': element type uint8 is none of float64",
    ),
    "an input without elements": (
        model([node("Neg", ["x"], ["y"])], [info("x", [0, 2])], ["y"]),
        "input 'x': shape .0, 2. has extent 0",
    ),
    "an input without a shape": (
        model([node("Neg", ["x"], ["y"])], [info("x", None)], ["y"]), "input 'x' has no shape: shapes="
    ),
    "a name that nothing gives": (
        model([node("Neg", ["z"], ["y"])], [info("x", [2])], ["y"]), "it reads 'z', which nothing before it gives"
    ),
    "an output that nothing gives": (
        model([node("Neg", ["x"], ["y"])], [info("x", [2])], ["z"]), "output 'z': output 'z' is given by no node"
    ),
    "a shape that depends on data": (
        model([node("Reshape", ["x", "s"], ["y"])], [info("x", [2]), info("s", [1], TensorProto.INT64)], ["y"]),
        "input 1, 's', is computed from inputs of the model, and has to be known",
    ),
    "too many outputs": (
        model([node("Neg", ["x"], ["y", "z"])], [info("x", [2])], ["y"]), "has 2 outputs, and only 1 of them are known"
    ),
    "an old operator": (
        model([node("Softmax", ["x"], ["y"])], [info("x", [2, 2])], ["y"], version=11),
        "Softmax is that of version 11, and versions before 13 are not known: convert the model",
    ),
    "a version to come": (
        model([node("Neg", ["x"], ["y"])], [info("x", [2])], ["y"], version=10**6), "has operators of version 1000000"
    ),
    "an attribute of the wrong kind": (
        model([node("Transpose", ["x"], ["y"], perm="ab")], [info("x", [2, 2])], ["y"]), r"node 0 \(Transpose\)"
    ),
    "functions that never end": (endless(), "functions call each other more than 64 deep"),
    "functions that double": (doubling(), "more than 1000 nodes"),
    "billions of elements": (
        model([node("ConstantOfShape", ["s"], ["y"])], [], ["y"], {"s": np.array([1 << 40, 1 << 40])}),
        "has more than 2.62 elements",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_it_says_what_is_wrong(what, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MOST_NODES", 1000)
    proto, message = REFUSED[what]
    with pytest.raises(DataError, match=message):
        loaded(proto, tmp_path)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "model.onnx"
    with pytest.raises(DataError, match="cannot be read"):
        nf.onnx.load(path)
    for content in (b"", b"no model", network().SerializeToString()[:-100]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"is no ONNX model, or a damaged one|model\.onnx"):
            nf.onnx.load(path, {"batch": 1})
    proto = network()
    proto.graph.initializer[0].dims[0] = 1 << 30
    with pytest.raises(DataError, match=r"tensor 'w' of shape .* cannot be read"):
        loaded(proto, tmp_path, {"batch": 1})
    sparse = model([node("Neg", ["x"], ["y"])], [info("x", [2])], ["y"])
    values, places = numpy_helper.from_array(np.ones(1, np.float32), "v"), numpy_helper.from_array(np.array([3]), "i")
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 40]))
    with pytest.raises(DataError, match="initializer 'v' is sparse; store it dense"):
        loaded(sparse, tmp_path)


def elsewhere(location, **where):
    """A model whose weights lie in another file."""
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], ["y"], {"w": np.array([1, 2], np.float32)})
    (w,) = proto.graph.initializer
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **where}.items():
        w.external_data.add(key=key, value=str(value))
    return proto


def test_elements_in_another_file(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (folder / "weights").write_bytes(bytes(4) + np.array([1, 2], np.float32).tobytes())
    m = loaded(elsewhere("weights", offset=4, length=8), folder)
    assert valued(m, np.zeros(2, np.float32))[0].tolist() == [1, 2]
    (folder / "link").symlink_to(tmp_path / "secret")
    for location in ("../secret", str(tmp_path / "secret"), "link"):
        with pytest.raises(DataError, match="outside of the model's folder"):
            loaded(elsewhere(location), folder)
    for where in ({"offset": 8, "length": 8}, {"offset": 1 << 60}):
        with pytest.raises(DataError, match="weights has 12 bytes, not"):
            loaded(elsewhere("weights", **where), folder)
    with pytest.raises(DataError, match="which is no file there"):
        loaded(elsewhere("nothing"), folder)
    for where in ({"offset": "a"}, {"offset": -4}, {"length": -1}):
        with pytest.raises(DataError, match="where its elements lie is not said"):
            loaded(elsewhere("weights", **where), folder)


@pytest.mark.tvm
def test_a_call_says_what_is_wrong_with_arrays(tmp_path):
    m = loaded(model([node("Neg", ["x"], ["y"])], [info("x", [2])], ["y"]), tmp_path)
    with pytest.raises(RuntimeFault):
        m(np.ones(3, np.float32))
    assert m(np.ones(2, np.float32))[0].tolist() == [-1, -1]
