"""A verdict is read in `explain` and compared by value."""

import dataclasses

import pytest

from neoflow.verdict import Verdict


def test_a_verdict_says_yes_or_no_and_why():
    assert str(Verdict(True, "it fits")) == "yes, it fits"
    assert str(Verdict(False, "it is too large")) == "no, it is too large"
    assert Verdict(True, "it fits") == Verdict(True, "it fits")


def test_a_verdict_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Verdict(True, "it fits").ok = False
