"""Agreement with a peer: each gradient is held against the peer's own error of that gradient."""

from dataclasses import replace

import numpy as np

from neoflow.report.agreement import FEW_ULPS, Check, errors, neighbours

CHECK = Check(
    peer="torch",
    loss=1e-7,
    gradients={"rough": 2e-3, "smooth": 1e-6},
    peer_gradients={"rough": 1e-3, "smooth": 3e-7},
    steps=1,
    losses=1e-7,
    peer_losses=1e-7,
)


def test_a_gradient_may_be_three_times_the_peers_own_error_or_a_few_ulps():
    assert CHECK.is_close and "DISAGREES" not in str(CHECK)
    assert CHECK.limits == {"rough": 3e-3, "smooth": FEW_ULPS}


def test_another_gradients_error_is_no_excuse():
    worse = replace(CHECK, gradients={"rough": 2e-3, "smooth": 2e-5})
    assert not worse.is_close
    lines = str(worse).splitlines()
    assert "DISAGREES" in lines[0] and [line.split()[1] for line in lines if "too much" in line] == ["smooth"]


def test_no_gradient_is_more_than_its_limit():
    assert not replace(CHECK, gradients={"rough": 4e-3, "smooth": 0.0}).is_close
    assert not replace(CHECK, gradients={"rough": float("nan"), "smooth": 0.0}).is_close
    assert not replace(CHECK, loss=2e-5).is_close
    assert not replace(CHECK, losses=2e-3).is_close


def test_errors_are_parts_of_the_largest_entry_and_zero_has_none():
    exact = {"w": np.array([4.0, -2.0]), "shift": np.array([1e-15, 0.0])}
    found = {"w": np.array([4.0, -1.0], np.float32), "shift": np.array([1e-9, 0.0], np.float32)}
    assert errors(found, exact) == {"w": 0.25}


def test_neighbours_are_other_values_within_a_few_ulps():
    values = {"w": np.linspace(-1, 1, 101, dtype=np.float32), "ids": np.arange(5)}
    for near in neighbours(values):
        assert near["w"].dtype == np.float32 and (near["w"] != values["w"]).any()
        np.testing.assert_allclose(near["w"], values["w"], rtol=2 * FEW_ULPS)
        np.testing.assert_array_equal(near["ids"], values["ids"])
