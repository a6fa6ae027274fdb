"""A wheel, installed where nothing of the project lies, runs the main job."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of packages with the wheel's content; what neoflow needs comes from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(folder), str(PROJECT)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("neoflow-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def run(site, tmp_path):
    """Run Python in an empty folder with the wheel alone."""

    def call(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(site)}
        done = subprocess.run(
            [sys.executable, "-P", *arguments] if sys.version_info >= (3, 11) else [sys.executable, *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_a_wheel_has_the_package_the_models_and_their_peers(site, run):
    packaged = {p.relative_to(PROJECT) for p in (PROJECT / "neoflow").rglob("*") if p.suffix in (".py", ".ll")}
    there = {p.relative_to(site) for p in site.rglob("*")}
    assert packaged <= there
    for folder, target in (("models", "neoflow_models"), ("benchmarks/peers", "neoflow_models/peers")):
        assert {f"{target}/{p.name}" for p in (PROJECT / folder).glob("*.py")} <= {str(p) for p in there}
    assert not any(p.parts[0] in ("tests", "benchmarks", "models") for p in there)
    assert Path(run("-c", "import neoflow; print(neoflow.__file__)").strip()).is_relative_to(site)
    lines = run("-m", "neoflow", "models").splitlines()
    assert len(lines) >= 6 and all(str(site / "neoflow_models") in line for line in lines)


@pytest.mark.slow
@pytest.mark.tvm
def test_a_wheel_trains(run, tmp_path):
    out = run("-m", "neoflow", "train", "capsnet", "--epochs", "1", "--json")
    assert '"stopped": "finished"' in out
    assert "capsnet.py:" in (tmp_path / "neoflow-capsnet.html").read_text()  # the user's lines beside the kernels
