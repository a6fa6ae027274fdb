"""Kernels that change while a run goes on, and those that a file fixes."""

import json
import queue
import time
from typing import ClassVar

import numpy as np
import psutil
import pytest

import neoflow as nf
from neoflow.pipeline import Compiled
from neoflow.train import dynamic, kernels
from neoflow.train.dynamic import Swap
from neoflow.train.kernels import Kernels
from neoflow.tuning import SearchCurve
from tests.runtime.programs import Softmax, batches


class Found:
    """An exploration that has found other schedules before the third step."""

    made: ClassVar[list] = []

    def __init__(self, function, limits, share, seed):
        from tests.test_adopt import other_schedules

        Found.made.append(self)
        self.function, self.share, self.asked, self.closed = function, share, 0, False
        self.told = "told"
        self.curves = (SearchCurve("kernel", 1, None, ((1.0, 8, 2e-6),)),)
        self.schedules = other_schedules(function, 7)

    def take(self):
        self.asked += 1
        if self.asked != 3:
            return []
        from neoflow.pipeline import adopt

        adopt(self.function, self.schedules)
        return [Swap("kernel", d, s, 2e-6, 1e-6) for d, s in self.schedules.items()]

    def close(self):
        self.closed = True


def trained(**options):
    problem = Softmax()
    trainer = problem.trainer(nf.Trainer, **options)
    history = trainer.fit(batches(), 2)
    return trainer, history, [nf.get_value(p) for p in trainer.parameters]


def test_what_is_better_is_swapped_in_between_steps_and_losses_stay(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "Exploration", Found)
    Found.made.clear()
    _, fixed, _ = trained()
    trainer, history, _ = trained(mode="dynamic", tune_share=0.5, progress=True)
    (found,) = Found.made
    assert trainer.kernels.curves == found.curves
    assert found.share == 0.5 and found.closed and found.asked == len(history.losses)
    assert {r.step for r in trainer.swaps} == {2} and len(trainer.swaps) == len(found.schedules)
    assert "step 2: kernel: 2.0 -> 1.0 us (2.00x)" in capsys.readouterr().err
    np.testing.assert_allclose(history.losses, fixed.losses, rtol=1e-5)


def test_a_pin_repeats_a_run_to_the_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "Exploration", Found)
    pin = tmp_path / "run.pin"
    first, _, _ = trained(mode="dynamic", pin=pin)
    said = json.loads(pin.read_text())
    compiled = first.step_function().compiled
    assert isinstance(compiled, Compiled) and set(said["kernels"]) == {k.subgraph.digest for k in compiled.kernels}
    runs = [trained(mode="dynamic", pin=pin) for _ in range(2)]
    assert not runs[0][0].swaps and runs[0][1].losses == runs[1][1].losses
    for a, b in zip(runs[0][2], runs[1][2], strict=True):
        np.testing.assert_array_equal(a, b)
    assert {k.schedule for k in runs[0][0].step_function().compiled.kernels} == {k.schedule for k in compiled.kernels}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: {**said, "version": 2}, "pins schedules in version 2; this neoflow reads 1"),
        (lambda said: {**said, "target": "cpu(zx81)"}, "pins schedules for cpu"),
        (lambda said: {**said, "kernels": {}}, "is of another program"),
        (lambda said: {**said, "kernels": {k: {"template": "magic"} for k in said["kernels"]}}, "pins no schedules"),
        (lambda said: [], "pins no schedules"),
    ],
)
def test_a_pin_of_something_else_is_refused(tmp_path, change, message):
    pin = tmp_path / "run.pin"
    trained(pin=pin)
    pin.write_text(json.dumps(change(json.loads(pin.read_text()))))
    with pytest.raises(nf.ConfigError, match=message):
        trained(pin=pin)


def test_what_cannot_be_read_or_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(nf.ConfigError, match="cannot be pinned in"):
        trained(pin=tmp_path / "file" / "run.pin")
    (tmp_path / "folder").mkdir()
    with pytest.raises(nf.ConfigError, match="cannot be read"):
        trained(pin=tmp_path / "folder")


def test_a_search_beside_a_run_has_time():
    with pytest.raises(nf.ConfigError, match="tune=0 leaves no time for it"):
        Softmax().trainer(nf.Trainer, mode="dynamic", tune=0)
    assert Softmax().trainer(nf.Trainer, tune=0).tune == nf.tune.Limits(seconds=0)


def test_functions_of_others_have_no_kernels_to_change(tmp_path):
    run = Kernels("dynamic", 0.5, None, None, 0)
    function = Softmax().trainer(nf.Trainer).step_function()
    function.compiled = None  # as of one that was loaded
    with pytest.raises(nf.ConfigError, match="there is nothing to search for"):
        run.begin(function)
    for action in (lambda: kernels.write_pin(tmp_path / "pin", function), lambda: kernels.read_pin(tmp_path, function)):
        with pytest.raises(nf.ConfigError, match="was not compiled by neoflow here"):
            action()


@pytest.mark.slow
def test_a_search_beside_a_run_ends_with_it(tmp_path, monkeypatch):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(folder))  # what is found is for this test alone
    trainer = Softmax().trainer(nf.Trainer, mode="dynamic", tune=nf.tune.Limits(trials=16), tune_share=1.0)
    told, end = set(), time.monotonic() + 240

    def epochs():
        while time.monotonic() < end and not any(t.startswith("16 ") for t in told):
            yield from batches()
            told.add(trainer.kernels.told)

    trainer.fit(epochs, 1)
    assert any(t.startswith("16 candidates") for t in told)
    assert not psutil.Process().children(recursive=True)
    _, fixed, _ = trained()
    again = Softmax().trainer(nf.Trainer).fit(batches(), 2)  # by the schedules that were found
    np.testing.assert_allclose(again.losses, fixed.losses, rtol=1e-5)


class Told(dynamic.Exploration):
    """An exploration without a process, that has found what it is told."""

    def __init__(self, function, swaps):
        self.function, self.told, self.stopped, self.said, self._curves = function, "", "", [], {}
        self._trial, self._is_tried, self._is_judged, self._found = None, True, False, {s.subgraph: s for s in swaps}
        self._first = None
        self._events = queue.SimpleQueue()

    def _say(self, line):
        self.said.append(line)

    def close(self):
        if self._trial is not None:
            self._end_trial()


def tried(monkeypatch, factor):
    """A step in which other kernels were found, whose calls then take so many times as long as they did."""
    from tests.test_adopt import other_schedules

    trainer = Softmax().trainer(nf.Trainer, mode="dynamic")
    function = trainer.step_function()
    used, found = dynamic.schedules_of(function.compiled), other_schedules(function, 7)
    digests = [k.subgraph.digest for k in function.compiled.kernels]
    swaps = [Swap("kernel", d, s, 2e-6, 1e-6) for d, s in found.items()]

    def watch(told):
        function._told = (
            None if told is None else lambda real: told([1e-3 * scale(c.kernel) for c in function.plan.calls])
        )

    def scale(kernel):
        digest = digests[kernel]
        changed = dynamic.schedules_of(function.compiled)[digest] != used[digest]
        return factor(digest) if changed else 1.0

    monkeypatch.setattr(function, "watch", watch)
    exploration = Told(function, swaps)
    monkeypatch.setattr(kernels, "Exploration", lambda *_: exploration)
    history = trainer.fit(batches(), 2)
    return exploration, used, found, dynamic.schedules_of(function.compiled), history, trainer.swaps


def test_kernels_that_take_less_in_the_program_stay_and_others_go_again(monkeypatch):
    first = {}

    def factor(digest):
        first.setdefault("slow", digest)
        return 1.01 if digest == first["slow"] else 0.5

    exploration, used, found, after, history, swaps = tried(monkeypatch, factor)
    assert len(history.losses) > 2 * dynamic.CALLS + 1 and exploration.said == ["pause", "resume"]
    assert {s.swap.subgraph for s in swaps} == {d for d in found if d != first["slow"] and found[d] != used[d]}
    assert all(s.swap.seconds == pytest.approx(0.5 * s.swap.before) for s in swaps)
    assert after == {**used, **{s.swap.subgraph: s.swap.schedule for s in swaps}}
    _, fixed, _ = trained()
    np.testing.assert_allclose(history.losses, fixed.losses, rtol=1e-5)


def test_the_search_is_told_what_kernels_take_in_the_program():
    trainer = Softmax().trainer(nf.Trainer)
    function = trainer.step_function()
    exploration = Told(function, [])
    exploration._first = []
    function.watch(exploration._first.append)
    arrays = (*next(iter(batches())), np.float64(0.1))
    for _ in range(dynamic.FIRST):
        assert exploration.take() == [] and exploration.said == []
        function(*arrays)
    assert exploration.take() == []
    (said,) = exploration.said
    assert set(json.loads(said)) == {k.subgraph.digest for k in function.compiled.kernels}
    assert all(seconds > 0 for seconds in json.loads(said).values())
    function(*arrays)
    assert exploration._first is None and exploration.take() == []


def test_none_stays_where_the_program_takes_longer(monkeypatch):
    slow = {}

    def factor(digest):
        slow.setdefault(digest, len(slow))
        return 0.9 if slow[digest] else 30.0

    _, used, _, after, _, swaps = tried(monkeypatch, factor)
    assert not swaps and after == used
