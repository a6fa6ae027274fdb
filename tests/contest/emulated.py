"""A contender's process whose GPU is the emulator: `python -m tests.contest.emulated KIND`. PyTorch for CPUs stands in
the place of PyTorch for CUDA."""

import importlib.util

import pytest

from neoflow.contest import kinds, serving
from neoflow.report import run
from tests.emulator.driver import emulated

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        emulated(patch, checked=False)
        patch.setattr(run, "measure_gpu", lambda place: {})  # what it reaches takes minutes to emulate
        if importlib.util.find_spec("torch") is not None:
            patch.setattr(kinds, "DEVICE", "cpu")
            patch.setattr("torch.cuda.is_available", lambda: True)
            patch.setattr("torch.cuda.synchronize", lambda: None)
        serving.main()
