import pytest

import neoflow as nf
from neoflow.errors import ConfigError
from neoflow.tune import Limits


@pytest.mark.parametrize(
    "limits, said",
    [
        (Limits(trials=10), "trials: 10 of 10 candidates were measured"),
        (Limits(seconds=1.5), "seconds: 2.0 of 1.5 seconds have gone by"),
        (Limits(patience=4), "patience: the last 5 candidates were not better than the best one"),
        (Limits(), None),
        (Limits(trials=11, seconds=3, patience=6), None),
    ],
)
def test_a_limit_says_why(limits, said):
    assert limits.reached(10, 2.0, 5) == said


def test_in_no_seconds_there_is_no_search():
    assert Limits().has_search and Limits(seconds=0.1).has_search and not Limits(seconds=0).has_search
    assert Limits(4, 5.0, 6, 256).without_search == Limits(seconds=0, rounding=256)


@pytest.mark.parametrize("name, value", [("rounding", 0), ("trials", 0), ("seconds", -1.0), ("patience", float("nan"))])
def test_a_limit_is_positive(name, value):
    with pytest.raises(ConfigError) as caught:
        nf.tune.Limits(**{name: value})
    said = f"limits of a search: {name}={value!r} must be positive, or None for no limit"
    assert str(caught.value) == said
