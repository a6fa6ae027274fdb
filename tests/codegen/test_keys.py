"""What kernels are found by: everything their code follows from, and nothing else."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import grimp
import pytest

from neoflow.codegen.keys import FOLLOWED, compiler_digest, digest, kernel_key, program_digest, request_key

ROOT = Path(__file__).parents[2]


def test_parts_do_not_run_into_each_other():
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("ab", "c", "")}) == 4


def test_every_part_counts():
    requests = {request_key(*parts) for parts in (("s", "k", "t"), ("z", "k", "t"), ("s", "z", "t"), ("s", "k", "z"))}
    kernels = {kernel_key(*parts) for parts in (("s", "k", "t"), ("z", "k", "t"), ("s", "z", "t"), ("s", "k", "z"))}
    assert len(requests | kernels) == 8 and all(len(key) == 64 for key in requests | kernels)
    assert compiler_digest() == compiler_digest.__wrapped__()


def test_everything_that_lowering_imports_counts():
    """But for what is in the target's text, the machine, and what has no say in it."""
    graph = grimp.build_graph("neoflow")
    silent = {
        f"neoflow.{m}" for m in ("machine", "errors", "imports", "trace", "boundary", "arguments", "config", "roofs")
    }
    kernels = ("neoflow.codegen.cpu.kernel", "neoflow.codegen.gpu.kernel")
    needed = set().union(*map(graph.find_upstream_modules, kernels)) - silent
    packages = {name.removesuffix(".py") for name in FOLLOWED}
    assert {m for m in needed if m.split(".")[1] not in packages} == set()
    assert all((ROOT / "neoflow" / name).exists() for name in FOLLOWED)


SOURCE = '''
"""A module."""
LIMIT = 3


def double(x):
    """Twice."""
    return 2 * x
'''


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        (("LIMIT = 3", "LIMIT  =  3  # three"), False),
        (("Twice.", "Two times."), False),
        (('    """Twice."""\n', ""), False),
        (("2 * x", "x * 2"), True),
        (("LIMIT = 3", "LIMIT = 4"), True),
    ],
)
def test_a_program_is_more_than_its_text(tmp_path, edit, changes):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    before = program_digest([path])
    path.write_text(SOURCE.replace(*edit))
    assert path.read_text() != SOURCE
    assert (program_digest([path]) != before) == changes


def test_a_program_is_its_files(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "b.py").write_text("x = 1")
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    assert len({program_digest([a]), program_digest([b]), program_digest([a, b])}) == 3
    assert program_digest([a, b]) == program_digest([b, a])


PROGRAM = """
    import sys
    import numpy as np
    import neoflow as nf
    x = nf.placeholder((5, 37), name="x")
    y = nf.compute((4, 37), lambda i, j: x[i + 1, j] * 2.0)
    value = np.arange(185, dtype=np.float32).reshape(5, 37)
    f = nf.compile([y], [x])
    print(f.compiled.built, "tvm" in sys.modules, np.array_equal(f(value)[0], value[1:] * 2))
"""


@pytest.mark.tvm
def test_an_edit_that_changes_code_compiles_again_and_no_other_does(tmp_path):
    """A copy of the compiler whose index arithmetic is wrong at first, then mended, then commented."""
    shutil.copytree(ROOT / "neoflow", tmp_path / "neoflow", ignore=shutil.ignore_patterns("__pycache__"))
    affine = tmp_path / "neoflow" / "expr" / "affine.py"
    right = affine.read_text()
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NEOFLOW_CACHE_DIR": str(tmp_path / "cache")}

    def run(check="0"):
        """How many kernels were compiled, whether the compiler was loaded, whether the result is right."""
        command = [sys.executable, "-B", "program.py"]
        environment["NEOFLOW_CHECK"] = check
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        return done.stdout.split() or [done.stderr.splitlines()[-1], done.stderr]

    start = "    terms, constant = form\n    ordered"
    assert right.count(start) == 1
    affine.write_text(right.replace(start, "    terms, constant = form[0], form[1] % 37\n    ordered"))
    assert run() == ["1", "True", "False"]
    assert run() == ["0", "False", "False"]
    _, error = run(check="1")  # it comes from the cache, and is wrong
    assert "CodegenError: kernel nf_" in error and "computes v1[" in error

    affine.write_text(right)
    assert run() == ["1", "True", "True"]
    assert run(check="1") == ["0", "False", "True"]

    affine.write_text(right + "\n# Integer programming would do it too.\n")
    assert run() == ["0", "True", "True"]  # lowered again, not compiled
    assert run() == ["0", "False", "True"]
