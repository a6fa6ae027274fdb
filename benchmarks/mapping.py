"""A recurrence in primitive expressions, mapped to the best cell that is known, beside PyTorch's forms of it.

    python -m benchmarks.mapping [--batch 20] [--seconds 30] [--write]

neoflow compiles `ptb_lstm_native`, one product and one operator a gate and step, and maps it by itself. Beside it
PyTorch, as installed and in its expert setting, operator by operator as well, or with `torch.nn.LSTM`: each a process
of its own, blocks of training steps in turn (`benchmarks/steps`). Wanted: 4.12 times PyTorch as installed, operator by
operator, and no slower than `torch.nn.LSTM` in the expert setting. `--write` puts the table into RESULTS.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from benchmarks.results import write
from benchmarks.steps.__main__ import say, shown
from benchmarks.steps.compare import Comparison, compare, measure_machine
from neoflow.contest.contenders import OURS, PEERS
from neoflow.machine import processor

MODEL = "ptb_lstm_native"
FORMS = {"operators": "PtbLstmNative", "torch.nn.LSTM": "PtbLstmLibrary"}
"""What PyTorch has for the cells, and its class in the file of the model's peer."""
NAMES = [p.name for p in PEERS if p.kind == "torch"]
WANTED = {("operators", "PyTorch"): 4.12, ("torch.nn.LSTM", "PyTorch expert"): 1.0}
"""Of a peer's time over neoflow's."""


def table(found: dict[str, Comparison]) -> list[str]:
    """Milliseconds of a step, and each peer's time over neoflow's in the same rounds."""
    lines = ["| PyTorch's cells | setting | PyTorch ms | neoflow ms | ratio | wanted |", "|---|---|--:|--:|--:|--:|"]
    for form, c in found.items():
        for name in NAMES:
            times = [shown(s if s is None else 1e3 * s) for s in (c.seconds(name), c.seconds(OURS.name))]
            cells = [form, name, *times, shown(c.ratio(name, OURS.name)), shown(WANTED.get((form, name)))]
            lines.append("| " + " | ".join(cells) + " |")
    missing = [f"- {form}: no {n}: {why}." for form, c in found.items() for n, why in c.missing.items()]
    return [*lines, *([""] if missing else []), *missing]


def main(arguments: Sequence[str] | None = None, measure: Callable[..., Comparison] = compare) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="of blocks, for each form")
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args(arguments)
    roofs, only = measure_machine(), [OURS.name, *NAMES]
    found = {
        form: measure(MODEL, options.batch, roofs, None, options.seconds, 0.3, only, say, peer)
        for form, peer in FORMS.items()
    }
    lines = table(found)
    print("\n".join(lines))
    if options.write:
        version = next((v for c in found.values() for n, v in c.versions.items() if n == "PyTorch"), "")
        busy = max(c.foreign for c in found.values())
        how = (
            f"{processor()}, PyTorch {version}, batch {options.batch}, other work took at most {busy:.1%} of the "
            "machine; `python -m benchmarks.mapping`"
        )
        write("mapping", "An LSTM operator by operator, mapped", how, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
