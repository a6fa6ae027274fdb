"""Importing neoflow and compiling with it leaves PyTorch alone, and PyTorch works after it; what modules give."""

import ast
import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import neoflow

pytestmark = pytest.mark.tvm


def run(program):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_compiling_does_not_import_what_it_does_not_ask():
    program = """
        import sys, numpy as np, neoflow as nf
        x = nf.placeholder((3,), name="x")
        print(nf.compile([x * 2], [x])(np.ones(3, np.float32))[0].sum())
        slow = ("torch", "scipy.sparse", "z3", "sklearn", "neoflow.superopt", "neoflow.mapping.rolled")
        print(*(name for name in slow if name in sys.modules))
    """
    assert run(program) == ["6.0"]


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


def test_what_begins_with_an_underscore_stays_in_its_module():
    for path in sorted(Path(neoflow.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("neoflow"):
                taken = [a.name for a in node.names if a.name.startswith("_") and not a.name.startswith("__")]
                assert taken == [], f"{path}: {node.module}"


def test_a_package_gives_what_it_lists():
    for path in sorted(Path(neoflow.__file__).parent.rglob("__init__.py")):
        name = ".".join(("neoflow", *path.parent.relative_to(Path(neoflow.__file__).parent).parts))
        try:
            package = importlib.import_module(name)
        except ImportError as error:
            assert "is not installed: pip install" in str(error), name
            continue
        assert all(hasattr(package, n) for n in getattr(package, "__all__", ())), name
