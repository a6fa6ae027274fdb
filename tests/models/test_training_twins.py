"""Models trained to the end by neoflow and by PyTorch, from the same start: the same quality on held-out data."""

import pytest

pytest.importorskip("torch")

from benchmarks import training
from benchmarks.training import RUNS, Pair, Run, Trained
from neoflow.models import find_model

pytestmark = pytest.mark.torch


@pytest.fixture
def one_thread():
    """PyTorch on one thread: its threads wait actively, and tests run beside each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("name", RUNS)
def test_the_same_final_quality(name, tmp_path, one_thread):
    found = training.train_pair(name, RUNS[name], tmp_path / "report.html")
    print("\n".join(training.table([found])))
    assert found.is_close, f"{name}: {found.ours} and {found.theirs}"
    first, last = found.ours.losses[0], found.ours.losses[-1]
    assert first == pytest.approx(found.theirs.losses[0], rel=1e-4) and last < 0.7 * first
    page = (tmp_path / "report.html").read_text()
    assert "<figcaption>Loss</figcaption>" in page and "<svg" in page


def test_tables_and_curves():
    ours, theirs = Trained(0.5, 0.9, (3.0, 2.0, 1.0), 1.0), Trained(0.52, 0.91, (3.0, 2.1, 1.1), 2.0)
    pair = Pair("capsnet", Run(1, 16), "digits", ours, theirs)
    assert training.table([pair])[-1] == (
        "| capsnet | digits | 3 of 16 | 0.5000 | 0.5200 | 90.00% | 91.00% | 1.0 | 2.0 | the same |"
    )
    apart = Pair("capsnet", Run(1, 16, loss=0.01), "digits", ours, theirs)
    assert not apart.is_close and training.table([apart])[-1].endswith("| APART |")
    assert training.smoothed([1.0, 3.0, 5.0], 2) == [(2.0, 2.0), (3.0, 4.0)]
    drawing = training.curves([pair])
    assert "PyTorch" in drawing and ">steps<" in drawing
    assert all(find_model(name)[1] == name for name in RUNS)


def test_wrong_use(capsys):
    with pytest.raises(SystemExit):
        training.main(["--models", "capsnet,abacus"])
    assert "there is no run of abacus; there are capsnet, shufflenet_small, " in capsys.readouterr().err
