"""Subgraphs as text."""

import pytest

import neoflow as nf
from neoflow.errors import TextError
from neoflow.nn import functional as F
from neoflow.partition import Subgraph
from tests.text.nouns import nouns_of


def test_golden():
    a, b, c = nf.placeholder((4, 6), name="a"), nf.placeholder((6, 5), name="b"), nf.placeholder((5,), name="c")
    (s,) = nouns_of([nf.tanh(nf.expr("y[i, j] = sum(a[i, k] * b[k, j])", a=a, b=b) + c)], [a, b, c]).subgraphs
    assert s.to_text() == (
        "neoflow subgraph 1\n"
        "in0: float32[4, 6]\n"
        "in1: float32[6, 5]\n"
        "in2: float32[5]\n"
        "v3[i<4, j<5] = sum[r<6](in0[i, r] * in1[r, j])\n"
        "v4[i<4, j<5] = v3[i, j] + in2[j]\n"
        "v5[i<4, j<5] = tanh(v4[i, j])\n"
        "outputs v5\n"
    )
    assert Subgraph.from_text(s.to_text()) == s


def test_rows_and_constants():
    x = nf.placeholder((32, 48), name="x")
    (s,) = nouns_of([F.softmax(x)], [x]).subgraphs
    assert s.to_text().splitlines()[-2:] == ["rows 1", "outputs v6"]
    assert Subgraph.from_text(s.to_text()) == s
    (s,) = nouns_of([nf.zeros((3,))], []).subgraphs
    assert s.to_text() == "neoflow subgraph 1\nv0[i<3] = 0.0\noutputs v0\n"
    assert Subgraph.from_text(s.to_text()) == s


def test_many_nodes_in_a_row():
    """Neither the depth nor the number of ways from one node to another matters."""
    lines = ["neoflow subgraph 1", "in0: float32[2, 3]", "v1[i<2, j<3] = in0[i, j]", "v2[i<2, j<3] = v1[i, j]"]
    lines += [f"v{n}[i<2, j<3] = v{n - 1}[i, j] - v{n - 2}[i, j]" for n in range(3, 3000)]
    text = "\n".join([*lines, "v3000[i<2, j<3] = sum[r<3](v2999[i, r])", "rows 1", "outputs v3000"]) + "\n"
    s = Subgraph.from_text(text)
    assert s.to_text() == text
    assert [n for n in range(3001) if s.depends(n)] == [3000]


HEAD = "neoflow subgraph 1\nin0: float32[2]\n"
REFUSED = {
    HEAD: (3, 1, "expected a value, `rows` or `outputs`, found the end of the text"),
    HEAD + "in2: float32[2]\n": (3, 1, "expected value number 1 (in1: an input, or v1: a node), found `in2`"),
    HEAD + "v2[i<2] = in0[i]\n": (3, 1, "expected value number 1"),
    HEAD + "v1[i<2] = in0[i]\nin2: float32[2]\n": (4, 1, "expected value number 2"),
    HEAD + "v1[i<2] = v2[i]\n": (3, 11, "unknown name `v2`"),
    HEAD + "v1[i<2] = in0[i]\noutputs\n": (4, 8, "expected the label of a value, found the end of the line"),
    HEAD + "v1[i<2] = in0[i]\noutputs v2\n": (4, 9, "`v2` is no value above"),
    HEAD + "v1[i<2] = in0[i]\noutputs v1,\n": (4, 12, "expected the label of a value, found the end of the line"),
    HEAD + "v1[i<2] = in0[i]\noutputs in0\n": (5, 1, "the outputs are not values of nodes"),
    HEAD + "v1[i<2] = in0[i]\nrows 65\noutputs v1\n": (4, 6, "a number of leading dimensions is at most 32"),
    HEAD + "v1[i<2] = in0[i]\nv2[i<1] = in0[i]\noutputs v1, v2\n": (6, 1, "the outputs differ in shape"),
    HEAD + 'v1[i<2] = in0[i] @ "a.py":1\noutputs v1\n': (3, 1, "a node has no place and no names"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[-30:])
def test_refused(text):
    line, column, message = REFUSED[text]
    with pytest.raises(TextError) as e:
        Subgraph.from_text(text)
    assert message in str(e.value)
    assert (e.value.line, e.value.column) == (line, column)
