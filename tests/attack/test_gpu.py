"""Calls on a GPU, which is the emulator, that are stopped wherever they can be: counts of what broke, all of them 0."""

import pytest

from tests.attack.stopped import KINDS, stop
from tests.emulator.driver import emulated

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_call_is_done_or_not_begun(monkeypatch, kind):
    emulated(monkeypatch, checked=False)
    found = stop(kind)
    assert found.pop("stops") > 100
    assert found == {"halves": 0, "untold": 0, "broken": 0}
