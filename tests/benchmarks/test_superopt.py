"""Searches for faster graphs: what is kept, what is taken and what is not; an operator from end to end."""

import pytest

from benchmarks import superopt
from benchmarks.own_operators import OWN
from benchmarks.superopt import CASES, Found
from neoflow.graph import make_graph


def test_programs_are_kept_and_the_rest_goes_on(tmp_path, capsys):
    asked, path = [], tmp_path / "superopt.jsonl"

    def perform(kind, name, seconds, small, cache):
        asked.append(name)
        if name == "bert/1":
            return Found(kind, name, "2026-01-01", "abc", missing="it took more than 3 s")
        used = (("matmul_of_add_back", 2),) if name == "nasrnn/1" else ()
        return Found(kind, name, "2026-01-01", "abc", 7, used, 4e-3, 2e-3, (8e-3, 5e-3), 90, "the time is up")

    arguments = ["--only", "^inference (nasrnn|bert|nasnet_a)/", "--out", str(path), "--seconds", "3"]
    superopt.main(arguments, perform)
    out = capsys.readouterr().out
    assert "| inference nasrnn/1 | 7 | 2 | 4.000 | 2.00 | 8.000 to 5.000 | 1.60 | 90 |" in out
    assert "| inference nasnet_a/1 | 7 | 0 | 4.000 | 2.00 | 8.000 to 5.000 (refused: 1.60) | 1.00 | 90 |" in out
    assert "| inference bert/1 | it took more than 3 s |" in out
    assert "| **inference, geometric mean** | | | | | | **1.26** | |" in out
    with path.open("a") as file:
        file.write('{"kind": "infer')
    superopt.main(arguments, perform)
    assert asked == ["nasnet_a/1", "nasrnn/1", "bert/1", "bert/1"]
    assert len(CASES) == 7 + 9 + 5


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.name)
def test_operators_are_programs(own):
    root, inputs = own.build(**own.small)
    assert make_graph([root], inputs).nodes


@pytest.mark.slow
@pytest.mark.tvm
def test_an_operator_in_a_process_of_its_own(tmp_path):
    found = superopt.alone("operator", "block-circulant layer", 9.0, True, tmp_path / "kernels")
    assert not found.missing and found.own > 0 and found.graphs > 1
    assert "StopIteration" in superopt.alone("operator", "absent", 1.0, True, tmp_path / "kernels").missing
