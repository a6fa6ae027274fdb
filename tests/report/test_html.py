"""The report of a run: one well-formed file that refers to nothing outside, with every kernel and true shares."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import neoflow as nf
from neoflow.pipeline import compile
from neoflow.report.charts import buckets, lifetimes, line_chart, log_ticks, memory_map, nice_ticks, smoothed
from neoflow.report.html import Fact, Report, render, write_report
from neoflow.report.kernels import kernel_rows, profile
from neoflow.report.roofline import KernelRow, Level, Roofs
from neoflow.runtime.plan import Buffer, Call, Plan

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


@pytest.fixture(scope="module")
def report():
    x = nf.placeholder((8, 12), name="x")
    w = nf.parameter((6, 12), name="<w&>", init=lambda shape, rng: rng.standard_normal(shape))
    y = nf.expr("y[b,o] = sum[i](x[b,i] * w[o,i])", x=x, w=w)
    loss = nf.mean(y * y)
    step = compile([loss], [x], {w: w - 0.1 * nf.grad(loss, [w])[0]})
    array = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    before = nf.get_value(w)
    times = profile(step, [array], seconds=0.01)
    assert np.array_equal(nf.get_value(w), before)
    losses = [(n + 1, 0.9**n) for n in range(90)]
    return Report(
        model="tiny <b>",
        data="digits & more",
        facts=(Fact("Time", "1.0 s", "<i>2 epochs"),),
        losses=losses,
        accuracies=[(n, 1 - v) for n, v in losses],
        test_accuracy=0.5,
        epoch=30,
        kernels=kernel_rows(step.compiled, times),
        roofs=ROOFS,
        compiled=step.compiled,
    )


@pytest.mark.tvm
def test_the_page_is_well_formed_and_alone(report, tmp_path):
    write_report(tmp_path / "new" / "report.html", report)
    text = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href", "onclick"))


@pytest.mark.tvm
def test_every_kernel_is_listed_and_shares_are_whole(report):
    page = Page(render(report))
    assert sorted(r.number for r in report.kernels) == list(range(len(report.compiled.kernels)))
    assert sum(r.share for r in report.kernels) == pytest.approx(1.0)
    rows = {row[0]: row for row in page.rows if len(row) == 11}
    assert {r.names[0] for r in report.kernels} <= rows.keys()
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
    Page(render(replace(report, accuracies=())))
    assert "No step was made" in render(replace(report, losses=(), accuracies=()))


def test_profiling_counts_all_calls_of_a_kernel_and_finds_its_roof():
    row = KernelRow(0, ("a", "b"), 1e-3, 1.0, 10**8, 10**6, 10**6, "map()", "")
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
    assert memory_map(replace(plan, buffers=buffers[:1], calls=(), arena_bytes=0)) == ""
