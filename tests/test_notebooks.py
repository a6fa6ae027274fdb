"""What notebooks show of values: well-formed HTML with what a person looks for."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import neoflow as nf
from neoflow.text import html
from neoflow.train.records import EpochRecord, History


class Cells(HTMLParser):
    """The rows of a table; that each element is closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_a_table_is_escaped():
    shown = html.table("<caption>", ("a&b", "n"), [("<i>", 1), ("x", 0.123456)])
    assert Cells(shown).rows == [["a&b", "n"], ["<i>", "1"], ["x", "0.1235"]] and "<i>" not in shown


def test_a_tensor_is_its_definition():
    x = nf.placeholder((4, 5), name="x")
    y = nf.expr("y[i] = max[j](select(x[i,j] < 1, x[i,j], 0))", x=x)
    assert "x[i, j] &lt; 1" in y._repr_html_() and "float32[4]" in y._repr_html_()


@pytest.mark.tvm
def test_a_function_and_its_profile():
    x, w = nf.placeholder((4, 5), name="x"), nf.parameter((4, 5), name="w", init=np.ones((4, 5), np.float32))
    step = nf.compile([nf.sum(x * w)], [x], updates={w: w - x})
    rows = Cells(step._repr_html_()).rows
    assert ["input", "x", "float32", "4 x 5"] in rows and ["parameter, updated", "w", "float32", "4 x 5"] in rows
    assert f"<caption>{len(step.plan.calls)} kernel calls<" in step._repr_html_()
    profile = step.profile(np.zeros((4, 5), np.float32))
    assert isinstance(profile, list) and [r[0] for r in Cells(profile._repr_html_()).rows[1:]] == [
        t.name for t in profile
    ]


def test_the_epochs_of_a_training():
    history = History([EpochRecord(1, {"loss": 0.5}, {"loss": 0.75}, 2.0)], [1.0, 0.5])
    assert Cells(history._repr_html_()).rows == [
        ["epoch", "loss", "validation loss", "seconds"],
        ["1", "0.5", "0.75", "2"],
    ]
    assert re.search("&lt;History 2 steps", history._repr_html_()) and "<table>" in History()._repr_html_()
