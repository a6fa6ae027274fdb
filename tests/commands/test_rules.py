"""`neoflow rules`: listed, shown, proved again, for people and for programs."""

import json

import pytest


def test_list(run):
    status, out, _ = run("rules", "list")
    assert status == 0
    assert "first_of_rows: first[P=A](rows(x, y)) = x  (same, exact)" in out
    assert "rows_again: rows(first[P=A](x), last[P=B, D=A](x)) = x  where M = A + B  (" in out
    status, out, _ = run("rules", "list", "--json")
    entries = json.loads(out)
    assert status == 0 and len(entries) >= 44
    assert all({"name", "source", "target", "guards", "proof", "exact"} == e.keys() for e in entries)
    status, out, _ = run("rules", "list", "--file", "generated", "--json")
    assert status == 0 and len(json.loads(out)) > 250


def test_show_and_prove(run, tmp_path):
    status, shown, _ = run("rules", "show", "matmul_of_add")
    assert status == 0 and shown.startswith("neoflow rules 1\noperator ")
    file, output = tmp_path / "mine.txt", tmp_path / "proved.txt"
    file.write_text(shown)
    status, out, _ = run("rules", "prove", "--file", str(file), "--output", str(output))
    assert status == 0 and out == "matmul_of_add: same\n" and output.read_text() == shown
    status, out, _ = run("rules", "show", "matmul_of_add", "--json")
    assert json.loads(out)["operators"]["add"] == "add(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] + b[i, j]"


def test_generate(run, tmp_path):
    file = tmp_path / "generated.txt"
    some = ["--operator", "transpose", "--operator", "add", "--operator", "relu"]
    status, out, _ = run("rules", "generate", str(file), *some)
    assert status == 0 and "up to names" in out and "refused: all graphs were made\ngraphs: " in out
    assert out.endswith(" rules written\n") and " s of processors\n" in out
    status, again, _ = run("rules", "generate", str(file), *some, "--json")
    found = json.loads(again)
    assert found["proved"] > 3 and {"graphs", "proofs"} < {s["name"] for s in found["stages"]}
    status, out, _ = run("rules", "list", "--file", str(file))
    assert status == 0 and "transpose(transpose(x)) = x" in out
    status, smaller, _ = run("rules", "generate", str(file), *some, "--largest", "1", "--json")
    assert 0 < json.loads(smaller)["written"] < found["written"] == found["proved"]
    status, out, _ = run("rules", "list", "--file", str(file))
    assert status == 0 and "add(x, y) = add(y, x)" in out and "transpose(transpose(x)) = x" not in out
    status, _, err = run("rules", "generate", str(file), "--operator", "absent")
    assert status == 1 and "there is no operator absent; there are add, mul," in err


WRONG = """neoflow rules 1
operator transpose(a[M, N]) [i<N, j<M] = a[j, i]

rule symmetric
variables x[M, M]
source transpose(x)
target x
"""


def test_what_is_refused(run, tmp_path):
    file = tmp_path / "wrong.txt"
    file.write_text(WRONG)
    status, out, _ = run("rules", "prove", "symmetric", "--file", str(file))
    assert status == 1 and out.startswith("symmetric: no, its sides may differ where M >= 2; at M = ")
    status, out, _ = run("rules", "list", "--file", str(file))
    assert out == "symmetric: transpose(x) = x  (not proved)\n"
    status, out, _ = run("rules", "prove", "--file", str(file), "--json")
    (entry,) = json.loads(out)
    assert status == 1 and not entry["proved"] and entry["proof"] is None and "M >= 2" in entry["reason"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["show", "absent"], "there is no rule absent; `neoflow rules list` has their names"),
        (["list", "--file", "absent.txt"], "absent.txt is no file of rules"),
    ],
)
def test_errors(run, arguments, message):
    status, _, err = run("rules", *arguments)
    assert status == 1 and message in err
