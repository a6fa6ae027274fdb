"""Every stage of three fixed programs prints what it printed: a change that is meant is seen in the review."""

from __future__ import annotations

from functools import cache

import pytest

from tests.golden.programs import PROGRAMS, path, texts

pytestmark = pytest.mark.tvm
STAGES = ("graph", "derivation", "partition", "schedules", "tir", "plan")


@cache
def found(program):
    return texts(PROGRAMS[program]())


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_golden(program, stage):
    wanted = path(program, stage).read_text()
    assert found(program)[stage] + "\n" == wanted, "python -m tests.golden.programs writes what is printed now"


def test_all_are_compared():
    assert all(set(found(p)) == set(STAGES) for p in PROGRAMS)
