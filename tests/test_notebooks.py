"""What notebooks show of values: well-formed HTML with what a person looks for."""

import re
import sys
import types
from html.parser import HTMLParser

import numpy as np
import pytest

import neoflow as nf
from neoflow import trace
from neoflow.text import html, notebook
from neoflow.train.progress import Bar, Lines, Notebook, reporter
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


class ZMQInteractiveShell:
    """The shell of a notebook's kernel, by its name."""


class Output:
    """What a display of IPython shows: each text in its place, in order."""

    def __init__(self):
        self.shown = []

    def HTML(self, text):
        return text

    def display(self, text, display_id):
        assert display_id is True
        self.shown.append([text])
        return types.SimpleNamespace(update=self.shown[-1].append)


@pytest.fixture
def output(monkeypatch):
    """IPython as it is in the kernel of a notebook."""
    display = Output()
    found = types.ModuleType("IPython")
    found.get_ipython = ZMQInteractiveShell
    monkeypatch.setitem(sys.modules, "IPython", found)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(notebook, "AGAIN", 0.0)
    return display


def test_outside_of_notebooks_nothing_is_shown_there(monkeypatch):
    assert notebook.place() is None and isinstance(reporter(True), (Lines, Bar))
    terminal = types.ModuleType("IPython")
    terminal.get_ipython = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert notebook.place() is None
    with trace.shown("program"):
        trace.tell("tune", 1, 2)


@pytest.mark.tvm
def test_a_trainer_shows_a_bar_in_one_place(output, capsys):
    x, w = nf.placeholder((4, 5), name="x"), nf.parameter((4, 5), name="w", init=np.ones((4, 5), np.float32))
    trainer = nf.Trainer(nf.sum(x * w), [w], inputs=[x])
    trainer.fit([(np.ones((4, 5), np.float32),)] * 3, epochs=2)
    assert type(reporter(True)) is Notebook and type(reporter(False)) is not Notebook
    (texts,) = output.shown
    assert any('<div>epoch 1/2 <progress value="2" max="3"></progress> 2/3 loss ' in t for t in texts)
    assert any('epoch 2/2 <progress value="3" max="3">' in t for t in texts) and texts[-1] == ""
    for text in texts:
        Cells(text)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["epoch 1/2", "epoch 2/2"]


def test_a_bar_waits_for_the_browser(output, monkeypatch):
    monkeypatch.setattr(notebook, "AGAIN", 100.0)
    place = notebook.place()
    for n in range(5):
        place.show(str(n))
    place.show("<last>", is_due=True)
    assert output.shown == [["0", "<last>"]]
    assert "&lt;a&gt;" in notebook.bar("<a>", 0, None) and "value" not in notebook.bar("<a>", 0, None)


def test_what_is_compiled_is_shown_unless_somebody_listens(output):
    with trace.shown("program"):
        trace.tell("kernels", 1, 2)
        trace.tell("kernels", 2, 2)
    assert output.shown == [[*(notebook.bar("compiling the program: kernels", n, 2) for n in (1, 2)), ""]]
    with trace.listening(lambda *said: None), trace.shown("program"):
        trace.tell("kernels", 1, 2)
    assert len(output.shown) == 1


@pytest.mark.tvm
@pytest.mark.slow
def test_a_search_shows_how_far_it_is(output):
    x = nf.placeholder((16, 24), name="x")
    nf.compile(nf.exp(x) * 2.0, x)
    assert not output.shown
    nf.compile(nf.exp(x) * 2.0, x, tune=0.2)
    (texts,) = output.shown
    assert any("compiling the program: " in t for t in texts) and texts[-1] == ""


CELLS = (
    """
import numpy as np
import neoflow as nf
x, labels = nf.placeholder((3, 4), name="x"), nf.placeholder((3,), "int32", name="labels")
w = nf.parameter((4, 2), init=np.zeros((4, 2), "float32"), name="w")
scores = nf.expr("scores[b, o] = sum(x[b, i] * w[i, o])", x=x, w=w)
scores
""",
    "f = nf.compile(scores, x, tune=nf.tune.Limits(trials=2)); f",
    """
trainer = nf.Trainer(nf.nn.functional.cross_entropy(scores, labels), [w], inputs=[x, labels])
batch = np.ones((3, 4), "float32"), np.array([0, 1, 1], "int32")
trainer.fit([batch] * 5, epochs=2)
""",
    "f(3)",
)


@pytest.mark.slow
@pytest.mark.tvm
def test_a_notebook_shows_tensors_functions_histories_bars_and_short_errors():
    import nbclient  # imported here: a second
    import nbformat

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    nbclient.NotebookClient(made, timeout=120, kernel_name="python3", allow_errors=True).execute()
    tensor, function, trained, wrong = (
        [(o.output_type, o.get("data", {}).get("text/html", "")) for o in cell.outputs] for cell in made.cells
    )
    assert "scores[b, o] = " in tensor[-1][1]
    assert any(kind == "display_data" for kind, _ in function), "a bar while it searches"
    assert Cells(function[-1][1]).rows[1][1] == "x"
    assert any(kind == "display_data" for kind, _ in trained), "a bar while it trains"
    assert len(Cells(trained[-1][1]).rows) >= 3
    assert wrong[-1][0] == "error"
    error = made.cells[-1].outputs[-1]
    assert error.ename == "RuntimeFault"
    assert "neoflow/" not in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)), "only the user's frames"
