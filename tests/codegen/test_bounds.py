"""No kernel reads or writes outside its arrays: shown with memory that must not be touched around them."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.tvm


def run(first, last):
    command = [sys.executable, "-m", "tests.codegen.guarded", str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tail = "\n".join(done.stdout.splitlines()[-40:])
    assert done.returncode == 0, f"exit status {done.returncode} in\n{tail}\n{done.stderr[-2000:]}"
    assert done.stdout.splitlines()[-1].endswith("kernels stayed inside")


def test_kernels_stay_inside_their_arrays():
    run(0, 2)


@pytest.mark.slow
def test_kernels_of_many_programs_stay_inside_their_arrays():
    run(5, 200)
