"""Interrupts, arrays that lie, threads that share parameters: counts of what broke, all of them 0."""

from __future__ import annotations

import pytest

from tests.attack.arrays import hostile, mutate
from tests.attack.interrupted import WAYS, interrupt
from tests.attack.shared import READERS, read_beside_a_writer, write_beside_a_writer

pytestmark = pytest.mark.tvm
NOTHING = {"halves": 0, "untold": 0, "broken": 0, "wrong": 0}


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_call_is_done_or_not_begun(way):
    assert interrupt(way, 25, seed=1) == NOTHING


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_many_interrupts(way):
    assert interrupt(way, 500, seed=2) == NOTHING


def check(found):
    assert set(found) <= {"right", "refused", "not possible"}, found
    assert found["right"] and found["refused"], found


def test_an_array_changed_in_place_is_read_as_it_is_now():
    check(mutate(300, seed=1))


@pytest.mark.slow
def test_many_arrays_changed_in_place():
    check(mutate(20_000, seed=2))


def test_what_describes_itself_falsely_is_refused():
    check(hostile(300, seed=1))


@pytest.mark.slow
def test_much_that_describes_itself_falsely():
    check(hostile(20_000, seed=2))


@pytest.mark.parametrize("way", READERS)
def test_a_reader_sees_no_halves(way):
    assert read_beside_a_writer(way, 15) == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", READERS)
def test_readers_see_no_halves(way):
    assert read_beside_a_writer(way, 120) == 0


def test_two_writers_lose_no_step():
    assert write_beside_a_writer(60) == 0
