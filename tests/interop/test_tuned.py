"""What `tune=` finds for an operator inside another library is found again by the next process, without it."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = [pytest.mark.tvm, pytest.mark.slow]
LIBRARIES = {"torch": "import torch; ones = torch.ones", "jax": "import jax.numpy as jnp; ones = jnp.ones"}
PROGRAM = """
    import sys
    import neoflow as nf
    from neoflow import pipeline
    {imports}
    compile = pipeline.compile

    def told(*args, **named):
        f = compile(*args, **named)
        for c in f.compiled.tuned.choices:
            print(c.origin, "|", c.schedule)
        return f

    pipeline.compile = told

    @nf.{library}.operator(tune=nf.tune.Limits(trials=6) if sys.argv[1] == "tuned" else None)
    def product(x, w):
        return nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)

    assert float(product(ones((48, 40)), ones((40, 56))).sum()) == 48 * 40 * 56
"""


@pytest.mark.parametrize("library", [pytest.param(n, marks=getattr(pytest.mark, n)) for n in LIBRARIES])
def test_the_next_process_takes_what_was_found(library, tmp_path):
    if library == "torch":
        pytest.importorskip("torch")
    else:
        pytest.importorskip("jax")
    kernels = tmp_path / "kernels"
    kernels.mkdir(mode=0o700)
    text = textwrap.dedent(PROGRAM).format(library=library, imports=LIBRARIES[library])

    def told(how):
        command = [sys.executable, "-c", text, how]
        environment = {**os.environ, "NEOFLOW_CACHE_DIR": str(kernels)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return [line.split(" | ") for line in done.stdout.splitlines()]

    ((before, _),) = told("plain")
    ((searched, best),) = told("tuned")
    ((after, found),) = told("plain")
    assert [before, searched, after] == ["default", "tuned", "measured before"]
    assert found == best
