"""Each transformation left out: ratios and means, models that are kept, what failed; one model from end to end."""

import pytest

from benchmarks import ablation
from benchmarks.ablation import ALL, Ablation, Variant
from neoflow.rewriting import OPTIONAL
from neoflow.rewriting.asked import ASKED

VARIANTS = (
    *(Variant("", 5.0, 5.0, 30, 9), Variant("batch", 8.0, 4.0, 40, 9), Variant(ALL, 20.0, 5.0, 90, 12)),
    *(Variant("", 4.0, 5.0, 28, 9, "together"), Variant("", 10.0, 5.0, 26, 9, ALL)),
)


def test_models_are_kept_and_the_rest_goes_on(tmp_path, capsys):
    asked, path = [], tmp_path / "ablation.jsonl"

    def perform(key, names, besides, seconds, cache):
        asked.append((key, tuple(names), tuple(besides)))
        if key == "bert/1":
            return Ablation(key, "2026-01-01", "abc", missing="it took more than 3600 s")
        return Ablation(key, "2026-01-01", "abc", VARIANTS)

    arguments = ["--models", "capsnet/16,bert/1", "--only", "^batch$", "--out", str(path)]
    ablation.main(arguments, perform)
    out = capsys.readouterr().out
    assert "| nothing | 5.00 ms, 30 calls |  |" in out
    assert "| batch | 2.00, 40 | 2.00 |" in out and f"| {ALL} | 4.00, 90 | 4.00 |" in out
    assert "| asked for | capsnet/16 | mean |" in out
    assert "| together | 1.25, 28 | 1.25 |" in out and f"| {ALL} | 0.50, 26 | 0.50 |" in out
    assert "| parallel fusion | 9.66 | batch | 2.00 |" in out and "| swapping | 1.20 | - | not measured |" in out
    assert "- bert/1: it took more than 3600 s" in out
    with path.open("a") as file:
        file.write('{"model": "caps')
    ablation.main(arguments, perform)
    assert asked == [(key, ("batch",), ()) for key in ("capsnet/16", "bert/1", "bert/1")]
    ablation.main(["--models", "resnet18/1", "--out", str(path)], perform)
    assert asked[-1] == ("resnet18/1", OPTIONAL, ASKED)


def test_what_is_timed():
    assert ablation.variants(["a", "b"], ["c"]) == [
        ((), ()),
        (("a",), ()),
        (("b",), ()),
        (("a", "b"), ()),
        ((), ("c",)),
    ]
    assert ablation.variants([], []) == [((), ())]


def test_lines_without_what_is_asked_for_are_read():
    """Of a file from before that was measured."""
    line = '{"model": "m/1", "date": "2026-01-01", "revision": "abc", "variants": [{"without": "batch", "ms": 8.0, '
    found = ablation.from_json(line + '"whole_ms": 4.0, "calls": 40, "kernels": 9}], "missing": ""}')
    assert found.variants == (Variant("batch", 8.0, 4.0, 40, 9),)
    assert "asked for" not in "\n".join(ablation.table({"m/1": found}))


@pytest.mark.slow
@pytest.mark.tvm
def test_a_model_in_a_process_of_its_own(tmp_path):
    found = ablation.alone(
        "mi_lstm_mnist/2", ["batch", "epilogues"], ["together", "swapping"], 0.1, tmp_path / "kernels"
    )
    assert not found.missing and [v.without for v in found.variants] == ["", "batch", "epilogues", ALL, "", "", ""]
    assert [v.asked for v in found.variants] == ["", "", "", "", "together", "swapping", ALL]
    whole, *others = found.variants
    assert whole.ratio == 1 and all(v.calls > whole.calls and v.ratio > 0 for v in others[:3])
    assert others[3].ratio != 1, "its calls are grouped, and so it is timed"
    assert "there is no model absent" in ablation.alone("absent/1", ["batch"], [], 0.1, tmp_path / "kernels").missing
