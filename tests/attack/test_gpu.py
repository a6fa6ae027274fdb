"""Calls on a GPU, which is the emulator, that are stopped wherever they can be: counts of what broke, all of them 0."""

import gc
from itertools import count

import pytest

from tests.attack.stopped import KINDS, stop
from tests.emulator.driver import emulated
from tests.emulator.machine import Program

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_call_is_done_or_not_begun(monkeypatch, kind):
    emulated(monkeypatch, checked=False)
    found = stop(kind)
    assert found.pop("stops") > 100
    assert found == {"halves": 0, "untold": 0, "broken": 0}


@pytest.fixture
def few_objects():
    """A collection looks at those that are new alone, and comes when it is asked for."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.parametrize("every", (7, 16))
def test_the_same_where_garbage_is_collected_in_the_middle_of_a_kernel(monkeypatch, few_objects, every):
    """Stopped calls leave frames that hold memory: what they held last is freed while a kernel runs."""
    emulated(monkeypatch, checked=False)
    launch, launches = Program.launch, count(1)

    def collecting(*arguments, **options):
        if next(launches) % every == 0:
            gc.collect()
        return launch(*arguments, **options)

    monkeypatch.setattr(Program, "launch", collecting)
    found = stop("beside")
    assert found.pop("stops") > 100
    assert found == {"halves": 0, "untold": 0, "broken": 0}
