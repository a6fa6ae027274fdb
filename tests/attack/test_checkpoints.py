"""Checkpoints with one bit changed, and runs killed while they write one: counts of what broke, all of them 0."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.attack.flipped import flips


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_flipped_bit_is_found(tmp_path, suffix):
    assert set(flips(tmp_path, suffix, share=1 / 11)) == {"refused"}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_every_flipped_bit_is_found(tmp_path, suffix):
    found = flips(tmp_path, suffix)
    assert set(found) == {"refused"} and (suffix != ".json" or found["refused"] > 2176)


def killed(trials, seed):
    command = [sys.executable, "-m", "tests.attack.flipped", str(trials), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


@pytest.mark.tvm
def test_a_killed_run_continues_to_the_bit_and_leaves_nothing():
    found = killed(2, 1)
    assert found["equal to the bit"] == found["tidy"] == 2


@pytest.mark.tvm
@pytest.mark.slow
def test_many_killed_runs():
    found = killed(60, 2)
    assert found["equal to the bit"] == found["tidy"] == 60
    assert found["resumed"] > 10
