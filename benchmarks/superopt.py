"""What a search for faster equal graphs brings: models in inference and training, operators nobody has registered.

    python -m benchmarks.superopt [--only REGEX] [--seconds 120] [--small] [--again] [--write]

Each program is a process of its own: it is compiled with `optimize=SECONDS`, which measures the kernels it thinks of
and times the whole program, on random parameters, beside the one that was written. What is not faster is not taken, and
its factor is 1. Each is a line of FILE as soon as it ends, and the same command goes on with those that are left.
`--write` puts all into RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.ablation import MODELS as TRAINED
from benchmarks.models.measure import revision
from benchmarks.own_operators import OWN
from benchmarks.results import append, last_of_each, write
from benchmarks.steps.contenders import ROOT
from neoflow.machine import processor

INFERENCE = ("squeezenet", "inception_v3", "resnext50", "nasnet_a", "nasrnn", "sru_rnntc", "bert")
"""MetaFlow's and TASO's, one sample at a time."""
INFER, TRAIN, OPERATOR = KINDS = ("inference", "training", "operator")
CASES = (
    *((INFER, f"{name}/1") for name in INFERENCE),
    *((TRAIN, key) for key in TRAINED if not key.startswith("capsconv8")),
    *((OPERATOR, own.name) for own in OWN),
)
OUT = Path("model-results") / "superopt.jsonl"
SPARE = 1800.0
"""Seconds that a program may take beyond the search."""


@dataclass(frozen=True)
class Found:
    """Of one program. own: rules that follow from its own operators, proved; used: how often each rule and
    form was; before, after: seconds by the estimate; measured: of a call, before and
    after, whether it was taken or not. missing: why there is nothing."""

    kind: str
    name: str
    date: str
    revision: str
    own: int = 0
    used: tuple[tuple[str, int], ...] = ()
    before: float = 0.0
    after: float = 0.0
    measured: tuple[float, float] | None = None
    graphs: int = 0
    stopped: str = ""
    missing: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def factor(self) -> float:
        """How many times as fast the program that is taken is."""
        return self.measured[0] / self.measured[1] if self.used and self.measured is not None else 1.0


def search(kind: str, name: str, seconds: float, small: bool = False) -> Found:
    """One program, in this process. small: sizes for tests, of an operator."""
    from neoflow.models import build_model
    from neoflow.pipeline import compile_program
    from neoflow.train.step import program

    if kind == OPERATOR:
        own = next(o for o in OWN if o.name == name)
        root, inputs = own.build(**(own.small if small else {}))
        compiled = compile_program([root], inputs, optimize=seconds)
    else:
        label, _, batch = name.partition("/")
        model = build_model(label, int(batch))
        asked = program(model) if kind == TRAIN else ([model.scores], [model.x], None)
        compiled = compile_program(*asked, optimize=seconds)
    assert compiled.optimizer is not None
    parts = list(compiled.optimizer.found.values())
    used = Counter(s.rewrite.name for part in parts for s in part.steps)
    used.update(name for part in parts for _, name in part.forms)
    used.update(str(move) for part in parts for move in part.moves if not tuple(move.steps))
    before, after = sum(p.before.seconds for p in parts), sum(p.after.seconds for p in parts)
    measured = next((p.measured for p in parts if p.measured is not None), None)
    stopped, graphs = "; ".join(dict.fromkeys(p.stopped for p in parts)), sum(p.graphs for p in parts)
    rules = tuple(used.most_common())
    own_rules = len(compiled.optimizer.own)
    return Found(kind, name, _today(), revision(), own_rules, rules, before, after, measured, graphs, stopped)


def _today() -> str:
    return datetime.date.today().isoformat()


def alone(kind: str, name: str, seconds: float, small: bool, cache: Path) -> Found:
    """One program in a process of its own; a failure is said in what it gives."""
    command = [sys.executable, "-m", "benchmarks.superopt", "--one", kind, name, "--seconds", str(seconds)]
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {**os.environ, "NEOFLOW_CACHE_DIR": str(cache)}
    try:
        done = subprocess.run(
            [*command, *(["--small"] if small else [])],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds + SPARE,
        )
        return from_json(done.stdout)
    except subprocess.TimeoutExpired:
        said = f"it took more than {seconds + SPARE:.0f} s"
    except (ValueError, TypeError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        said = f"its process ended with status {done.returncode}: {last}"[:300]
    return Found(kind, name, _today(), revision(), missing=said)


def from_json(text: str) -> Found:
    """A line of the file. Raises `ValueError`, `TypeError` or `KeyError` for none."""
    said = json.loads(text)
    measured = said["measured"]
    used = tuple((rule, count) for rule, count in said["used"])
    return Found(**{**said, "used": used, "measured": None if measured is None else (measured[0], measured[1])})


def read(path: Path) -> dict[str, Found]:
    """By program, the last of each; a line that was cut off is passed over."""
    return last_of_each(path, from_json, lambda found: found.key)


def mean(found: Iterable[Found]) -> float | None:
    """The geometric mean of factors."""
    factors = [f.factor for f in found if not f.missing]
    return statistics.geometric_mean(factors) if factors else None


def table(found: Mapping[str, Found]) -> list[str]:
    """A row a program, the kinds one below the other, each with the geometric mean of its factors."""
    heads = [
        "program",
        "own rules proved",
        "rules and forms used",
        "estimate ms",
        "thought",
        "measured ms",
        "factor",
        "graphs",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    for kind in KINDS:
        rows = [found[f"{k} {name}"] for k, name in CASES if k == kind and f"{k} {name}" in found]
        lines += [_row(row) for row in rows]
        if (average := mean(rows)) is not None:
            lines.append(f"| **{kind}, geometric mean** | | | | | | **{average:.2f}** | |")
    return lines


def _row(f: Found) -> str:
    if f.missing:
        return f"| {f.kind} {f.name} | {f.missing.replace('|', '/')} | | | | | | |"
    count = sum(n for _, n in f.used)
    thought = f"{f.before / f.after:.2f}" if f.after else "-"
    cells = [str(f.own), str(count), f"{1e3 * f.before:.3f}", thought]
    if f.measured is None:
        cells += ["nothing to measure", f"{f.factor:.2f}"]
    else:
        refused = "" if f.used else f" (refused: {f.measured[0] / f.measured[1]:.2f})"
        cells += [f"{1e3 * f.measured[0]:.3f} to {1e3 * f.measured[1]:.3f}{refused}", f"{f.factor:.2f}"]
    return "| " + " | ".join([f"{f.kind} {f.name}", *cells, str(f.graphs)]) + " |"


def main(arguments: Sequence[str] | None = None, perform: Callable[..., Found] = alone) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the programs whose kind and name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each search, with all that it measures")
    parser.add_argument("--small", action="store_true", help="operators at sizes for tests")
    parser.add_argument("--again", action="store_true", help="search what is done once more")
    parser.add_argument("--out", type=Path, default=OUT, help="the file that keeps what was found")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(search(*options.one, options.seconds, options.small))))
        return
    found = read(options.out)
    for kind, name in CASES:
        key = f"{kind} {name}"
        is_done = key in found and not found[key].missing and not options.again
        if is_done or not re.search(options.only, key):
            continue
        print(key, file=sys.stderr, flush=True)
        cache = options.out.resolve().parent / "caches" / "neoflow"
        found[key] = perform(kind, name, options.seconds, options.small, cache)
        append(options.out, found[key])
    lines = table(found)
    print("\n".join(lines))
    if options.write:
        how = f"{processor()}, sources {', '.join(sorted({f.revision for f in found.values()}))}"
        how += f"; searches of {options.seconds:.0f} s, a sample at a time in inference"
        write("superopt", "Faster equal graphs", f"{how}; `python -m benchmarks.superopt --write`", lines)


if __name__ == "__main__":
    main()
