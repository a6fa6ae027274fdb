"""Importing neoflow and compiling with it leaves PyTorch alone, and PyTorch works after it."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.tvm


def run(program):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_compiling_does_not_import_pytorch():
    program = """
        import sys, numpy as np, neoflow as nf
        x = nf.placeholder((3,), name="x")
        print(nf.compile([x * 2], [x])(np.ones(3, np.float32))[0].sum(), "torch" in sys.modules)
    """
    assert run(program) == ["6.0", "False"]


@pytest.mark.torch
@pytest.mark.parametrize("first", ["torch", "neoflow"])
def test_pytorch_works_beside_it(first):
    pytest.importorskip("torch")
    program = f"""
        import {first}
        import sys, neoflow as nf
        x = nf.placeholder((3,), name="x")
        double = nf.compile([x * 2], [x])
        import torch
        t = torch.ones(3, requires_grad=True)
        (t * t).sum().backward()
        print(double(t.detach())[0].sum(), t.grad.sum().item())
    """
    assert run(program) == ["6.0", "6.0"]
