"""What the documents show is what happens."""

import ast
import doctest
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neoflow as nf
from neoflow import config
from tests.emulator.driver import emulated

ROOT = Path(__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.tvm
@pytest.mark.parametrize(
    "page, least",
    [
        ("tour", 20),
        ("expressions", 45),
        ("training", 45),
        ("packages", 15),
        pytest.param("pytorch", 20, marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("jax", 15, marks=[pytest.mark.jax, pytest.mark.slow]),
        pytest.param("onnx", 20, marks=[pytest.mark.onnx, pytest.mark.slow]),
    ],
)
def test_a_page_shows_what_happens(page, least, monkeypatch, tmp_path):
    if page == "jax":
        pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", (ROOT / "docs" / f"{page}.md").read_text(), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page, f"docs/{page}.md", 0)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=output.append)
    assert result.attempted > least and not result.failed, "".join(output)


def test_the_guide_has_the_grammar_that_help_prints():
    (shown,) = re.findall(r"^```text\n(text +::= .*?)^```", (ROOT / "docs" / "expressions.md").read_text(), re.M | re.S)
    printed = inspect.cleandoc(pydoc.plain(pydoc.render_doc(nf.expr)).replace("\n    ", "\n"))
    (grammar,) = re.findall(r"^( +)(text +::= (?:.+\n)+)", printed, re.M)
    assert shown == inspect.cleandoc("".join(grammar)) + "\n"


def test_the_layout_names_every_module():
    text = (ROOT / "docs" / "design.md").read_text()
    rows = {name: set(re.findall(r"`(\w+)`", row)) for name, row in re.findall(r"^\| `(\w+)` \| (.*)\|$", text, re.M)}
    package = Path(nf.__file__).parent
    for path in sorted(package.glob("[a-z]*.py")):
        assert path.name in text, path
    for folder in sorted(p.parent for p in package.glob("*/__init__.py")):
        inside = {p.stem for p in folder.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists())}
        assert rows[folder.name] >= inside - {"__init__"}, folder.name


@pytest.mark.parametrize("page", ["docs/design.md", "docs/glossary.md", "CONTRIBUTING.md"])
def test_files_that_are_named_are_there(page):
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|ll|md))`", (ROOT / page).read_text()))
    missing = {p for p in named if "NAME" not in p and not any((top / p).exists() for top in (ROOT, ROOT / "neoflow"))}
    assert named and not missing


def test_the_site_is_built_and_its_reference_has_every_public_name(tmp_path):
    """No link in it leads nowhere: `--strict`."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [p.read_text(encoding="utf-8") for p in (tmp_path / "site" / "reference").rglob("index.html")]
    for name in set(nf.__all__) - {"__version__", "mapping", "nn", "optim", "tune"}:
        assert sum(f"<code>nf.{name}</code>" in page for page in pages) >= 1, name
    for prefix, module in (
        ("nf.nn", nf.nn),
        ("F", nf.nn.functional),
        ("nf.optim", nf.optim),
        ("nf.nn.init", nf.nn.init),
    ):
        for name in module.__all__:
            if not inspect.ismodule(getattr(module, name)):
                assert any(f"<code>{prefix}.{name}</code>" in page for page in pages), name


@pytest.mark.tvm
@pytest.mark.torch
def test_a_data_loader_gives_batches():
    """As the guide to training has it: shuffled, and the last batch incomplete."""
    torch = pytest.importorskip("torch")
    (block,) = re.findall(r"^```python\n(loader = .*?)^```", (ROOT / "docs" / "training.md").read_text(), re.M | re.S)
    x, labels = nf.placeholder((32, 20), name="x"), nf.placeholder((32,), "int64", name="labels")
    layer = nf.nn.Linear(20, 3)
    scores = layer(x)
    loss = nf.nn.functional.cross_entropy(scores, labels)
    trainer = nf.Trainer(loss, layer.parameters(), inputs=[x, labels], optimizer=nf.optim.Adam(lr=0.05), progress=False)
    inputs = torch.randn((333, 20), generator=torch.Generator().manual_seed(0))
    names = {"torch": torch, "trainer": trainer}
    names["dataset"] = torch.utils.data.TensorDataset(inputs, inputs[:, :3].argmax(1))
    exec(compile(block, "training.md", "exec"), names)
    assert trainer.position.step == 22 and trainer.position.epoch == 2
    guessed = trainer.predict(scores, inputs).argmax(1)
    assert guessed.shape == (333,) and (guessed == inputs[:, :3].argmax(1).numpy()).mean() > 0.6


@pytest.mark.tvm
def test_the_operator_in_the_readme():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(blocks[0], "README.md", "exec"), names)
    assert all(a > b for a, b in zip(names["losses"], names["losses"][1:], strict=False))
    first = names["y"]
    exec(compile(blocks[1], "README.md", "exec"), names)
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(t.shape, np.float32) for t in (names["x"], names["w"])}
    np.testing.assert_array_equal(*nf.evaluate([first, names["y"]], feeds))
    exec(compile(blocks[2], "README.md", "exec"), names)
    feeds = {t: rng.random(t.shape, np.float32) for t in (names["rows"], names["u"])}
    h, last = nf.evaluate([names["h"], names["last"]], feeds)
    np.testing.assert_allclose(h[-1], last, rtol=1e-5)


@pytest.mark.tvm
def test_the_network_in_the_readme(monkeypatch, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {"nf": importlib.import_module("neoflow")}
    exec(compile(blocks[3], "README.md", "exec"), names)
    assert (names["predicted"] == names["digits"].test.labels).mean() > 0.9
    assert names["history"].best and (tmp_path / "run.html").stat().st_size > 10_000


@pytest.mark.tvm
def test_the_program_for_a_gpu_in_the_readme(monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    emulated(monkeypatch, checked=False)
    names: dict = {}
    exec(compile(blocks[4], "README.md", "exec"), names)
    np.testing.assert_allclose(names["value"], np.full((64, 32), np.tanh(2.56)), rtol=1e-5)


@pytest.mark.tvm
@pytest.mark.onnx
def test_the_model_of_onnx_in_the_readme(monkeypatch, tmp_path):
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(blocks[6], "README.md", "exec"), names)
    assert names["values"].shape == (8, 16, 32, 32) and names["gradients"][0].shape == (16, 3, 3, 3)
    assert [n.op_type for n in onnx.load("model.onnx").graph.node] == ["Conv", "Relu"]


def test_the_readme_begins_inside_pytorch_as_its_page_does():
    readme, page = ((ROOT / name).read_text() for name in ("README.md", "docs/pytorch.md"))
    (said, code), (also_said, shown) = (
        re.search(r"^(An operator that PyTorch lacks .*?)\n\n```python\n(.*?)```", text, re.M | re.S).groups()
        for text in (readme, page)
    )
    written = "\n".join(line[4:] for line in shown.splitlines() if line.startswith((">>> ", "... ")))
    statements = [s for s in ast.parse(written).body if not isinstance(s, ast.Expr) or isinstance(s.value, ast.Call)]
    assert said == also_said
    assert ast.dump(ast.parse(code)) == ast.dump(ast.Module(statements, []))


@pytest.mark.tvm
@pytest.mark.torch
def test_the_operator_inside_pytorch_in_the_readme():
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(blocks[5], "README.md", "exec"), names)
    assert names["w"].grad.shape == (32, 16, 3)


def test_the_readme_lists_every_flag_and_nothing_else():
    rows = re.findall(r"^\| `(NEOFLOW_\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(rows) == set(re.findall(r"NEOFLOW_[A-Z_]+", Path(config.__file__).read_text())) - {"NEOFLOW_"}
