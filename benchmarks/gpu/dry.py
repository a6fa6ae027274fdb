"""A dry run: the tests' emulator as this machine's GPU, so that a slip of the pen is found without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def emulator() -> Iterator[None]:
    """While it lasts, programs for "cuda" run in the emulator; it needs g++ and pytest."""
    import pytest

    from tests.emulator.driver import emulated

    with pytest.MonkeyPatch.context() as patch:
        emulated(patch, checked=False, architecture="sm_90")
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
