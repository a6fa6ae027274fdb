"""`neoflow optimize`: what a search finds for a model, for people and for programs."""

import json


def test_optimize(run, tmp_path):
    page = tmp_path / "steps.html"
    status, out, _ = run(
        "optimize", "capsconv", "--mode", "infer", "--batch", "1", "--seconds", "0", "--json", "--html", str(page)
    )
    (part,) = json.loads(out)["parts"]
    assert status == 0 and {"before", "after", "graphs", "stopped", "steps", "measured"} <= part.keys()
    assert "No rule was applied: the graph stays as it was written." in page.read_text()
    status, out, _ = run("optimize", "capsconv", "--mode", "infer", "--batch", "1", "--seconds", "0")
    assert status == 0 and "rules applied, by the estimate" in out and "\nbefore: " in out


def test_rules_of_ones_own(run, tmp_path):
    status, _, err = run("optimize", "mi_lstm", "--rules", str(tmp_path / "absent.txt"))
    assert status == 1 and "is no file of rules" in err
