"""What the documents show is what happens."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from neoflow import config

ROOT = Path(__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.tvm
def test_the_tour():
    text = re.sub(r"^```.*$", "", (ROOT / "docs" / "tour.md").read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "tour.md", "docs/tour.md", 0)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append)
    assert result.attempted > 20 and not result.failed, "".join(output)


@pytest.mark.tvm
def test_the_operator_in_the_readme():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    assert all(a > b for a, b in zip(names["losses"], names["losses"][1:], strict=False))
    first, nf = names["y"], names["nf"]
    exec(compile(blocks[1], "README.md", "exec"), names)
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(t.shape, np.float32) for t in (names["x"], names["w"])}
    np.testing.assert_array_equal(*nf.evaluate([first, names["y"]], feeds))


def test_the_readme_lists_every_flag_and_nothing_else():
    rows = re.findall(r"^\| `(NEOFLOW_\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(rows) == set(re.findall(r"NEOFLOW_[A-Z_]+", Path(config.__file__).read_text())) - {"NEOFLOW_"}
