"""Graphs as text: names, places, what goes in and comes out."""

import pytest

import neoflow as nf
from neoflow.errors import ExpressionError, TextError
from neoflow.expr.close import define
from neoflow.graph import Graph, make_graph, same_graph

WHERE = __file__.replace("\\", "\\\\")


def perceptron():
    x = nf.placeholder((4, 6), name="x")
    w = nf.parameter((6, 3), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.expr("y[i, j] = tanh(sum[k](x[i, k] * w[k, j]))", x=x, w=w)
    return make_graph([y, y], [x], {w: w * 0.5})


def test_golden():
    graph = perceptron()
    first = graph.inputs[0].where[1]
    assert graph.to_text() == (
        "neoflow graph 1\n"
        f'x: placeholder float32[4, 6] @ "{WHERE}":{first}\n'
        f'w: parameter float32[6, 3] @ "{WHERE}":{first + 1}\n'
        f'y[i<4, j<3] = tanh(sum[k<6](x[i, k] * w[k, j])) @ "{WHERE}":{first + 2}\n'
        f't "mul"[i<6, j<3] = w[i, j] * 0.5 @ "{WHERE}":{first + 3}\n'
        "inputs x\n"
        "outputs y, y\n"
        "update w = t\n"
    )


def test_new_tensors_or_given_ones():
    graph = perceptron()
    fresh = Graph.from_text(graph.to_text())
    (x,), (w,) = fresh.inputs, fresh.parameters
    assert x is not graph.inputs[0] and (w.name, w.shape, w.init) == ("w", (6, 3), None)
    assert fresh.to_text() == graph.to_text() and fresh.digest == graph.digest
    assert not same_graph(graph, fresh)
    again = Graph.from_text(graph.to_text(), graph.leaves)
    assert same_graph(graph, again) and again.parameters[0].init is not None
    some = Graph.from_text(graph.to_text(), {"x": graph.inputs[0]})
    assert some.inputs[0] is graph.inputs[0] and some.parameters[0] is not graph.parameters[0]


def test_places_survive():
    graph = Graph.from_text(perceptron().to_text())
    with pytest.raises(ExpressionError, match=r"test_text\.py"):
        nf.expr("z[i] = y[i, 5]", y=graph.outputs[0])
    assert graph.outputs[0].where[0] == __file__


def test_any_name():
    names = [
        "x",
        "x",
        "größe",
        "a b",
        'quo"te\\',
        "line\nbreak",
        "\u2028\ud800",
        "",
        "sum",
        "inputs",
        "t",
        "e0",
        "x_1",
        "True",
    ]
    tensors = [nf.placeholder((2,), name=n) for n in names[:-1]]
    last = nf.compute((2,), lambda i: sum((t[i] for t in tensors), start=nf.cast(0.0, "float32")), name=names[-1])
    graph = make_graph([last], tensors)
    again = Graph.from_text(graph.to_text())
    assert [t.name for t in again.order] == [t.name for t in graph.order]
    assert again.to_text() == graph.to_text()
    assert len(set(graph.leaves)) == len(tensors)
    graph.to_text().encode()


def test_axis_names_that_cannot_stand_in_a_text():
    x = nf.placeholder((4, 6), name="x")
    for names in (["i", "i"], ["lambda", "x"], ["i", "ä"], ["sum", "k"], ["i", "k"]):
        outer, inner = nf.axis(4, names[0]), nf.axis(6, names[1])
        y = define((4,), (outer,), nf.sum(x[outer, inner], axis=[inner]), "y")
        graph = make_graph([y], [x])
        again = Graph.from_text(graph.to_text()).outputs[0]
        assert again.axis_names == y.axis_names == tuple(names)
        assert again.definition is y.definition


def test_a_long_chain_of_tensors():
    x = nf.placeholder((2,), name="x")
    y = x
    for _ in range(3000):
        y = nf.tanh(y) + x
    graph = make_graph([y], [x])
    again = Graph.from_text(graph.to_text(), graph.leaves)
    assert same_graph(graph, again)


HEAD = "neoflow graph 1\nx: placeholder float32[2]\nw: parameter float32[2]\n"
REFUSED = {
    "": (1, 1, "expected `neoflow`, found the end of the text"),
    "neoflow plan 1\n": (1, 9, "expected a text of the kind `graph`, found `plan`"),
    "neoflow graph 2\n": (1, 15, "expected version 1, which this neoflow reads, found `2`"),
    "neoflow graph 1 x\n": (1, 17, "expected the end of the line, found `x`"),
    HEAD: (4, 1, "expected the label of a tensor, or `inputs`, found the end of the text"),
    HEAD + "x: placeholder float32[2]\n": (4, 1, "`x` is given above, or is a word of the language"),
    HEAD + "sum: placeholder float32[2]\n": (4, 1, "`sum` is given above, or is a word of the language"),
    HEAD + "y: input float32[2]\n": (4, 4, "expected placeholder, parameter or constant, found `input`"),
    HEAD + 'c: constant int8[2] = "AQI=="\n': (4, 23, "the elements of a constant are written in base 64"),
    HEAD + 'c: constant int8[2] = "AQID"\n': (4, 23, "the constant has 2 bytes, the text 3"),
    HEAD + 'c: constant bool[2] = "AQI="\n': (4, 23, "a bool is 0 or 1"),
    HEAD + "c: constant int8[2]\n": (4, 20, "expected `=`"),
    HEAD + "y: placeholder float8[2]\n": (4, 16, "expected a dtype"),
    HEAD + "y: placeholder int8[0]\n": (4, 21, "a shape has at most 32 extents, each greater than 0"),
    HEAD + f"y: placeholder int8[{'1, ' * 70}1]\n": (4, None, "a shape has at most 32 extents"),
    HEAD + "y 'y': placeholder int8[2]\n": (4, 3, "expected a name, a number, a string or a sign, found `'`"),
    HEAD + 'y "\\x": placeholder int8[2]\n': (4, 3, "a string with a character that JSON does not allow"),
    HEAD + "y[i<2] = z[i]\n": (4, 10, "unknown name `z`"),
    HEAD + "inputs w\noutputs x\n": (4, 8, "`w` is no placeholder"),
    HEAD + "inputs y\noutputs x\n": (4, 8, "`y` is no tensor above"),
    HEAD + "inputs x\n": (5, 1, "expected `outputs`, found the end of the text"),
    HEAD + "inputs\noutputs x\n": (6, 1, "the program reads placeholder x, which is not among the inputs"),
    HEAD + "inputs x\noutputs w\nupdate x = w\n": (6, 8, "`x` is no parameter, or is updated twice"),
    HEAD + "inputs x\noutputs w\nupdate w = x\nupdate w = x\n": (7, 8, "`w` is no parameter, or is updated twice"),
    HEAD + "v: placeholder int8[2]\ninputs v\noutputs w\nupdate w = v\n": (8, 1, "parameter w is float32(2,) but"),
    HEAD + "inputs x\noutputs x\nmore\n": (6, 1, "expected the end of the text, found `more`"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[-30:])
def test_refused(text):
    line, column, message = REFUSED[text]
    with pytest.raises(TextError) as e:
        Graph.from_text(text)
    assert message in str(e.value)
    assert (e.value.line, e.value.column) == (line, column or e.value.column)


def test_what_is_given_fits():
    text = HEAD + "inputs x\noutputs x, w\n"
    for given in (nf.placeholder((3,)), nf.placeholder((2,), "int8"), nf.parameter((2,))):
        with pytest.raises(TextError, match=r"line 2, column 1: `x` is given as .* another kind, shape or dtype"):
            Graph.from_text(text, {"x": given})
    with pytest.raises(TextError, match="`y` is given, but is no placeholder or parameter of this text"):
        Graph.from_text(text, {"y": nf.placeholder((2,))})


def test_only_texts():
    with pytest.raises(TextError, match="a graph is read from a text, not from a bytes"):
        Graph.from_text(b"neoflow graph 1")
    with pytest.raises(TextError, match="is too long; the limit is 67108864"):
        Graph.from_text(" " * ((1 << 26) + 1))
