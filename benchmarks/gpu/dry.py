"""A dry run: the tests' emulator as this machine's GPU, so that a slip of the pen is found without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def emulator() -> Iterator[None]:
    """While it lasts, programs for "cuda" run in the emulator; it needs g++ and pytest."""
    import pytest

    from tests.emulator.driver import emulated

    with pytest.MonkeyPatch.context() as patch:
        emulated(patch, checked=False, architecture="sm_90")
        yield
