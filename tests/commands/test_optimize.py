"""`neoflow optimize`: what a search finds for a model, for people and for programs."""

import json


def test_optimize(run):
    status, out, _ = run("optimize", "mi_lstm", "--mode", "infer", "--batch", "1", "--seconds", "0")
    assert status == 0 and "rules applied, by the estimate" in out and "\nbefore: " in out
    status, out, _ = run("optimize", "mi_lstm", "--mode", "infer", "--batch", "1", "--seconds", "0", "--json")
    entry = json.loads(out)
    assert (
        status == 0 and entry["parts"] and {"before", "after", "graphs", "stopped", "steps"} <= entry["parts"][0].keys()
    )


def test_rules_of_ones_own(run, tmp_path):
    status, _, err = run("optimize", "mi_lstm", "--rules", str(tmp_path / "absent.txt"))
    assert status == 1 and "is no file of rules" in err
