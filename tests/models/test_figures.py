"""The committed figures are what their generator gives."""

import json

import numpy as np
import pytest

from tests.data import generate

pytestmark = pytest.mark.torch
FAST = ("capsnet/1", "capsconv/1", "mi_lstm_mnist/64")
CASES = [
    pytest.param(file, key, marks=() if key in FAST else pytest.mark.slow, id=key)
    for file, keys in generate.FILES.items()
    for key in keys
]


@pytest.mark.parametrize(("file", "key"), CASES)
def test_the_files_say_what_pytorch_gives(file, key):
    wanted = json.loads(generate.path_of(file).read_text())[key]
    found, gradients = generate.figures(file, key)
    off = dict(generate.deviations(found, wanted, gradients))
    assert len(off) == 4 + 3 * len(gradients)
    assert {name: d for name, d in off.items() if d > generate.TOLERANCE} == {}


def test_every_file_is_generated():
    assert {p.name for p in generate.FOLDER.glob("*.json")} == {generate.path_of(f).name for f in generate.FILES}
    for file, keys in generate.FILES.items():
        assert tuple(json.loads(generate.path_of(file).read_text())) == keys


def test_what_is_written_is_read_back(tmp_path, monkeypatch, capsys):
    """And a figure that is off is noticed."""
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setitem(generate.FILES, "capsnet", ("capsnet/1",))
    assert generate.main(["capsnet", "--write"]) == 0
    path = tmp_path / "expected_capsnet.json"
    assert capsys.readouterr().out == f"{path}\n"
    content = json.loads(path.read_text())
    assert generate.as_text(content) == path.read_text()
    assert generate.main(["capsnet"]) == 0
    content["capsnet/1"]["parameters"]["digit"]["gradient"]["entries"][3] *= 1.001
    path.write_text(generate.as_text(content))
    assert generate.main(["capsnet"]) == 1
    assert "off, digit: entries" in capsys.readouterr().out


def test_an_unknown_file_is_refused(capsys):
    with pytest.raises(SystemExit):
        generate.main(["poetry"])
    assert "there are no figures of poetry; there are bert, capsnet," in capsys.readouterr().err


def test_entries_of_small_gradients():
    assert generate.of_gradient(np.array([1.0, -2.0])) == {"sum": -1.0, "norm": 2.23606798, "entries": [1.0, -2.0]}
