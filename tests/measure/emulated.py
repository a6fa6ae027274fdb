"""A worker whose GPU is the emulator: `python -m tests.measure.emulated PLACE`."""

import sys
import tempfile

import pytest

from neoflow.measure import worker
from tests.emulator.driver import emulated

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEOFLOW_CACHE_DIR", folder)
        emulated(patch)
        worker.main(sys.argv[1])
