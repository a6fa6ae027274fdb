"""The report of a run: one well-formed file that refers to nothing outside, with every kernel and true shares."""

import itertools
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

import neoflow as nf
from neoflow.pipeline import compile
from neoflow.report.beside import render_pair
from neoflow.report.charts import buckets, lifetimes, line_chart, log_ticks, memory_map, nice_ticks, smoothed
from neoflow.report.html import Report, render, write_page
from neoflow.report.kernels import kernel_rows, profile
from neoflow.report.record import Curve, EpochRow, Fact, KernelFigure, Origin, RunRecord, read_run
from neoflow.report.roofline import MORE_THAN_BANDWIDTH, MORE_THAN_PEAK, KernelRow
from neoflow.report.searches import searches
from neoflow.report.timeline import write_timeline
from neoflow.report.tuned import render_tuning
from neoflow.report.tuning import TunedKernel, TunedModel
from neoflow.roofs import Level, Roofs
from neoflow.runtime.plan import Buffer, Call, Plan
from neoflow.train.trainer import StepRecord
from neoflow.tuning import SearchCurve

VOID = {"meta", "br"}
ROOFS = Roofs(200.0, (Level("L2", 1 << 20, 100.0), Level("L3", 1 << 24, 50.0), Level("memory", None, 20.0)))


class Page(HTMLParser):
    """Fails where a tag is not closed, or not where it should be; collects the text of the cells of each row."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.tags = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def run_record(kernels, losses=90):
    values = tuple((n + 1, 0.9**n) for n in range(losses))
    return RunRecord(
        model="tiny <b>",
        data="digits & more",
        origin=Origin("neoflow train 'tiny <b>' --seed 3", 3, "A Processor", 2, "2026-01-02T03:04:05+00:00", "0.1.0"),
        facts=(Fact("Time", "1.0 s", "<i>2 epochs"),),
        curves=(
            Curve("loss", values, ((30, 0.5), (60, 0.25), (90, 0.125))[:losses]),
            Curve("accuracy", tuple((n, 1 - v) for n, v in values), ((30, 0.25), (60, 0.75))[:losses]),
            Curve("f1", (), ((30, -1.5), (60, 2.5))[:losses]),
        ),
        rates=tuple((n, 0.1 / n) for n, _ in values),
        epochs=(
            EpochRow(1, 1.5, (("loss", 0.5), ("validation loss", 0.625))),
            EpochRow(2, 1.25, (("loss", 0.25), ("accuracy", 0.75))),
        ),
        kernels=tuple(KernelFigure(k.label, k.place, len(k.names), k.seconds, k.flops, k.nbytes) for k in kernels),
        epoch=30,
    )


@pytest.fixture(scope="module")
def step():
    x = nf.placeholder((8, 12), name="x")
    w = nf.parameter((6, 12), name="<w&>", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.expr("y[b,o] = sum[i](x[b,i] * w[o,i])", x=x, w=w)
    z = nf.expr("y[b,o] = sum[i](x[b,i] * w[o,i] * w[o,i])", x=x, w=w)
    loss = nf.mean(y * y) + nf.mean(nf.exp(z))
    return compile([loss], [x], {w: w - 0.1 * nf.grad(loss, [w])[0]})


@pytest.fixture(scope="module")
def times(step):
    array = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    (w,) = step.parameters
    before = nf.get_value(w)
    found = profile(step, [array], seconds=0.01)
    assert np.array_equal(nf.get_value(w), before)
    return found


@pytest.fixture(scope="module")
def report(step, times):
    rows = kernel_rows(step.compiled, times)
    return Report(run_record(rows), 0.5, rows, ROOFS, step.compiled)


@pytest.mark.tvm
def test_a_notebook_shows_the_page_itself(report):
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and unescape(re.search('srcdoc="([^"]*)"', shown)[1]) == render(report)


@pytest.mark.tvm
def test_the_page_is_well_formed_and_alone(report, tmp_path):
    """Its scripts are inside: the record of the run, which shows nothing, and what sorts."""
    write_page(tmp_path / "new" / "report.html", render(report))
    text = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert [a for tag, a in page.tags if tag == "script"] == [{"type": "text/neoflow", "id": "run"}, {}]
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href", "onclick"))


@pytest.mark.tvm
def test_a_report_says_where_it_comes_from_and_how_the_run_went(report):
    text = render(report)
    page = Page(text)
    origin = (
        "<code>neoflow train &#x27;tiny &lt;b&gt;&#x27; --seed 3</code> · seed 3 · A Processor · 2026-01-02T03:04:05"
    )
    assert origin in text
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert captions == ["Loss", "Accuracy", "F1", "Learning rate"]
    assert text.count("<title>step 60: validation ") == 2  # of the loss and of the accuracy; F1 has no other curve
    epochs = [row for row in page.rows if len(row) == 5]
    assert epochs[0] == ["Epoch", "Times", "loss", "validation loss", "accuracy"]
    assert epochs[1:] == [["1", "1.50", "0.5", "0.625", ""], ["2", "1.25", "0.25", "", "0.75"]]


@pytest.mark.tvm
def test_the_run_in_a_page_reads_back(report, tmp_path):
    path = tmp_path / "report.html"
    write_page(path, render(report))
    assert read_run(path) == report.run
    damaged = path.read_text().replace("epoch = 30", "epoch = many")
    for text, message in (
        ("<html></html>", "is no report of neoflow that keeps its run"),
        (damaged, "the run kept in .* is damaged"),
    ):
        path.write_text(text)
        with pytest.raises(nf.ConfigError, match=message):
            read_run(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(nf.ConfigError, match="cannot be read"):
        read_run(path)
    with pytest.raises(nf.ConfigError, match="cannot be read"):
        read_run(tmp_path / "absent.html")


def kernel(label, seconds, calls=1):
    return KernelFigure(label, "m.py:3", calls, seconds, 100, 100)


def test_two_runs_stand_side_by_side():
    """Kernels by name, the largest difference first; one that only one run has is listed too."""
    first = replace(run_record(()), kernels=(kernel("a", 10e-6), kernel("b", 5e-6), kernel("gone", 1e-6)))
    second = replace(
        run_record((), losses=50), model="other", kernels=(kernel("a", 4e-6), kernel("b", 5e-6, 2), kernel("c", 3e-6))
    )
    text = render_pair(first, second)
    page = Page(text)
    rows = [row for row in page.rows if len(row) == 7]
    assert rows[1:] == [
        ["am.py:3", "1", "10", "1", "4", "-6", "0.40"],
        ["cm.py:3", "", "", "1", "3", "+3", ""],
        ["gonem.py:3", "1", "1", "", "", "-1", ""],
        ["bm.py:3", "1", "5", "2", "5", "+0", "1.00"],
        ["all", "", "16", "", "12", "-4", "0.75"],
    ]
    assert re.findall(r"<figcaption>(.*?)</figcaption>", text) == [
        "Loss",
        "Validation loss",
        "Accuracy",
        "Validation accuracy",
        "Validation f1",
    ]
    assert text.count('<path class="beside"') == 5
    assert "no values in common" in render_pair(replace(first, curves=()), second)


@pytest.mark.tvm
def test_the_timeline_has_every_stage_step_and_call(step, times, tmp_path):
    """Spans of a track follow one another; what JSON has no number for is text."""
    records = [StepRecord(n, n // 2, {"loss": 1.0 / (n + 1), "odd": float("nan")}, 0.1, 0.25) for n in range(4)]
    write_timeline(tmp_path / "new" / "t.trace.json", step.compiled, times, records)
    text = (tmp_path / "new" / "t.trace.json").read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))["traceEvents"]
    spans = {track: [e for e in found if e["ph"] == "X" and e["pid"] == track] for track in (1, 2, 3)}
    assert [e["name"] for e in spans[1]] == [r.name for r in step.compiled.trace.records]
    assert [e["name"] for e in spans[2]] == ["step 1", "step 2", "step 3", "step 4"]
    assert [e["name"] for e in spans[3]] == [c.name for c in step.plan.calls]
    for track in spans.values():
        for a, b in itertools.pairwise(track):
            assert b["ts"] == pytest.approx(a["ts"] + a["dur"])
    assert spans[2][1]["ts"] == pytest.approx(0.25e6) and spans[2][1]["args"] == {"loss": 0.5, "odd": "nan", "epoch": 1}
    assert [e["args"]["loss"] for e in found if e["ph"] == "C"] == [1.0, 0.5, pytest.approx(1 / 3), 0.25]
    assert {e["args"]["name"] for e in found if e["ph"] == "M"} == {
        "compilation",
        "training steps",
        "calls of one step",
    }


@pytest.mark.tvm
def test_kernels_have_names_of_their_own_and_the_users_line(report, step):
    labels = [r.label for r in report.kernels]
    assert len(set(labels)) == len(labels) == len(step.compiled.kernels)
    assert all(re.fullmatch(r"test_html\.py:\d+", r.place) for r in report.kernels)
    twice = replace(
        step.compiled, plan=step.plan._replace(calls=tuple(c._replace(name="same") for c in step.plan.calls))
    )
    assert sorted({r.label for r in kernel_rows(twice, step.profile(np.zeros((8, 12), np.float32), runs=1))}) == [
        f"same #{n}" for n in range(len(labels))
    ]


def test_more_than_a_roof_has_a_reason():
    row = KernelRow(0, "a", ("a",), "m.py:1", 1e-3, 1.0, 10**8, 10**6, 10**6, "map()", "")
    assert row.above(ROOFS) == ()
    assert replace(row, flops=3 * 10**8).above(ROOFS) == (MORE_THAN_PEAK,)
    assert replace(row, nbytes=3 * 10**8).above(ROOFS) == (MORE_THAN_BANDWIDTH,)
    assert replace(row, flops=3 * 10**8, nbytes=3 * 10**8).above(ROOFS) == (MORE_THAN_PEAK, MORE_THAN_BANDWIDTH)


@pytest.mark.tvm
def test_shares_above_a_roof_are_starred(report):
    """With roofs so low that every kernel exceeds them, and so high that none does."""
    low, high = (Roofs(g, (Level("memory", None, g),)) for g in (1e-9, 1e9))
    text = render(replace(report, roofs=low))
    assert text.count("*</abbr>") >= len(report.kernels) and f"*&nbsp;{MORE_THAN_BANDWIDTH}." in text
    text = render(replace(report, roofs=high))
    assert "*</abbr>" not in text and MORE_THAN_PEAK not in text


@pytest.mark.tvm
def test_every_kernel_is_listed_and_shares_are_whole(report):
    page = Page(render(report))
    assert sorted(r.number for r in report.kernels) == list(range(len(report.compiled.kernels)))
    assert sum(r.share for r in report.kernels) == pytest.approx(1.0)
    rows = {row[0]: row for row in page.rows if len(row) == 11}
    assert {r.label + r.place for r in report.kernels} <= rows.keys()
    shown = [float(row[3]) for row in page.rows if len(row) == 11 and row[0] not in ("Kernel", "all")]
    assert len(shown) == len(report.kernels) and sum(shown) == pytest.approx(100.0, abs=0.05 * len(shown))
    assert shown == sorted(shown, reverse=True)
    texts = [row[0] for row in page.rows if len(row) == 1]
    for kernel in report.kernels:
        assert any(kernel.schedule in text and kernel.text in text for text in texts)
    for record in report.compiled.trace.records:
        assert record.text() in texts


@pytest.mark.tvm
def test_text_is_escaped(report):
    text = render(report)
    assert "<b>" not in text.partition("<section>")[0] and "tiny &lt;b&gt;" in text and "digits &amp; more" in text
    assert "&lt;i&gt;2 epochs" in text
    assert "<w&>" not in text and "&lt;w&amp;&gt;" in text


@pytest.mark.tvm
def test_a_run_without_steps_or_accuracies(report):
    Page(render(replace(report, run=replace(report.run, curves=report.run.curves[:1], rates=(), epochs=()))))
    Page(render(replace(report, test_accuracy=float("nan"))))
    assert "No step was made" in render(replace(report, run=replace(report.run, curves=(Curve("loss", ()),))))


def test_profiling_counts_all_calls_of_a_kernel_and_finds_its_roof():
    row = KernelRow(0, "a", ("a", "b"), "m.py:1", 1e-3, 1.0, 10**8, 10**6, 10**6, "map()", "")
    assert (row.gflops, row.gb_s, row.roof(ROOFS)) == (100.0, 1.0, "compute")
    assert replace(row, flops=10**3).roof(ROOFS) == "L2"
    assert replace(row, flops=10**3, touched=10**7).roof(ROOFS) == "L3"
    assert replace(row, flops=10**3, touched=10**9).roof(ROOFS) == "memory"


def test_ticks():
    assert nice_ticks(0, 1) == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1))
    assert nice_ticks(1, 720) == (200, 400, 600)
    assert nice_ticks(3, 3) == (3,)
    assert log_ticks(0.02, 1.2) == pytest.approx((0.02, 0.05, 0.1, 0.2, 0.5, 1))
    assert log_ticks(1e-6, 1e6) == pytest.approx(tuple(10.0**p for p in range(-6, 7)))


def test_means_of_neighbours():
    values = [(n, float(n % 2)) for n in range(1, 10)]
    assert buckets(values, 5) == [(1.5, 0.5), (3.5, 0.5), (5.5, 0.5), (7.5, 0.5), (9.0, 1.0)]
    assert smoothed(values, 1)[0] == (1.0, 1.0) and smoothed(values, 1)[1] == (2.0, pytest.approx(2 / 3))
    assert smoothed(values, 1)[-1] == (9.0, 0.5)


@pytest.mark.parametrize("values", [[(1, 0.0)], [(1, 2.0), (2, 2.0)], [(n, 10.0 ** (-n / 20)) for n in range(1, 99)]])
def test_charts_of_few_equal_and_many_values(values):
    page = Page(line_chart("loss", values, str))
    assert "nan" not in str(page.tags) and "inf" not in str(page.tags)


def test_memory_is_drawn_from_the_first_to_the_last_call():
    buffers = (
        Buffer("x", (16,), "float32", "input"),
        Buffer("a", (16,), "float32", "temporary", 0),
        Buffer("b", (16,), "float32", "temporary", 64),
        Buffer("v", (8,), "float32", "view", 0, 1),
        Buffer("y", (16,), "float32", "output"),
    )
    calls = (Call(0, (0, 1), (), "a"), Call(0, (1, 2), (), "b"), Call(1, (3, 2, 4), (), "y"))
    plan = Plan(buffers, calls, ("k", "l"), (0,), (4,), (), (), (), 128, 128)
    assert lifetimes(plan) == {1: (0, 2), 2: (1, 2)}
    rects = [a for tag, a in Page(memory_map(plan)).tags if tag == "rect"]
    drawn = [tuple(float(r[k]) for k in ("x", "y", "width", "height")) for r in rects]
    assert drawn == [(0, 500, 3, 500), (1, 0, 2, 500)]
    assert memory_map(plan._replace(buffers=buffers[:1], calls=(), arena_bytes=0)) == ""


CURVE = SearchCurve("dot <1>", 2, 5e-6, ((1.0, 8, 40e-6), (2.5, 16, 10e-6)))


@pytest.mark.tvm
def test_searches_are_drawn_over_their_floors(report):
    still = SearchCurve("still", 1, None, ((1.0, 8, 4e-6),))
    text = render(replace(report, searches=(still, CURVE)))
    Page(text)
    assert "<figcaption>dot &lt;1&gt;</figcaption>" in text and 'aria-label="best us by candidate"' in text
    assert "16 candidates in 2 s: 40.0 to 10.0 us, 50% of its floor&#x27;s speed" in text
    assert text.index("dot &lt;1&gt;</fig") < text.index("still</fig") and "floor 5</text>" in text
    assert "<h2>Search</h2>" not in render(report) and "The other" not in text
    assert "The other 2 gained less." in searches([CURVE] * 26)


@pytest.mark.tvm
def test_every_kernel_says_how_far_its_floor_is(report):
    text = render(report)
    assert len(re.findall(r"at least [\d.,]+ us by its roof: \d+% of that speed", text)) == len(report.kernels)


def test_the_page_of_a_tuning():
    kernel = TunedKernel("dot <1>", 2, 16, 40.0, 10.0, 5.0, "contraction(<x>)", CURVE.points)
    left = TunedKernel("left", 1, 0, None, None, None, "map()")
    text = render_tuning(TunedModel("m", 2, "train", "cpu", 9.5, 16, "seconds", 2.0, 1.0, (kernel, left)))
    page = Page(text)
    assert ["dot <1>", "2", "16", "40.0", "10.0", "5.0", "50", "contraction(<x>)"] in page.rows
    assert ["left", "1", "0", "", "", "", "", "map()"] in page.rows and "a step: 2.000 to 1.000 ms" in text
    assert "<h2>Search</h2>" in text
