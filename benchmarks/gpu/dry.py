"""A dry run: the tests' emulator as this machine's GPU, so that a slip of the pen is found without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

WORKER = (sys.executable, "-m", "tests.measure.emulated")
"""Whose GPU is the emulator."""


@contextmanager
def emulator() -> Iterator[None]:
    """While it lasts, programs for "cuda" run in the emulator, those of searches too; it needs g++ and pytest."""
    import pytest

    from neoflow import pipeline
    from neoflow.measure.here import Here
    from tests.emulator.driver import emulated

    with pytest.MonkeyPatch.context() as patch:
        emulated(patch, checked=False, architecture="sm_90")
        patch.setattr(pipeline, "Here", partial(Here, command=WORKER))
        yield


@contextmanager
def torch() -> Iterator[bool]:
    """While it lasts, PyTorch reaches the emulator; whether it is here."""
    if find_spec("torch") is None:
        yield False
        return
    import pytest

    from neoflow import devices
    from tests.emulator.cuda_torch import emulated_torch

    with pytest.MonkeyPatch.context() as patch:
        emulated_torch(patch, devices.gpu())
        yield True
