"""What each transformation is worth: a training step with all of them beside the same step without one, in turns, and
beside the same step with one more that is done only where it is asked for.

    python -m benchmarks.ablation [--models capsnet/16,...] [--only REGEX] [--seconds 6] [--again] [--write]

The transformations are those that the compiler says it can leave out (`rewriting.OPTIONAL`: passes over the graph,
their rewrites, rules of fusion), and at last all of them at once; then those that `NEOFLOW_WITH` asks for
(`rewriting.asked.ASKED`), and all of these. Each model is a process of its own: it compiles the step by default, then
without each, then with each that is asked for; where nothing but the same calls comes of it the ratio is 1, else both
are timed in turns.
A ratio is the time without over the time with: above 1, the transformation makes the step faster, be it done by default
or asked for. Each model is a line
of FILE as soon as it ends, and the same command goes on with those that are left. `--write` puts all into RESULTS.md.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.models.measure import revision
from benchmarks.results import append, last_of_each, write
from benchmarks.steps.contenders import ROOT
from neoflow.machine import processor

MODELS = (
    *("capsnet/16", "shufflenet/16", "mi_lstm_ptb/64", "scrnn_ptb/64", "sublstm_ptb/64", "lltm_ptb/64"),
    *("resnet50/1", "mobilenet/16", "bert_layer/8", "capsconv8/1"),
)
"""The paper's nine, and the capsule convolution that is written as eight."""
PAPERS = {"layout transformation": 1.25, "swapping": 1.20, "parallel fusion": 9.66}
"""Factors of the paper, on a GPU where launches dominate; reported, not tuned to."""
HERE = {"layout transformation": ("layouts",), "swapping": ("moves",), "parallel fusion": ("batch",)}
"""Transformations of ours that are the same, where the compiler has them. Of swapping it is the half that can be left
out: a transpose is folded into what reads it; rows whose dimensions are turned inside a kernel are no choice."""
ALL = "all of them"
Names = Sequence[str]
OUT = Path("model-results") / "ablation.jsonl"
PATIENCE = 3600.0
"""Seconds that a model may take."""


@dataclass(frozen=True)
class Variant:
    """A step without a transformation ("": with all), or with one that was asked for besides. milliseconds, and of the
    whole step beside it in the same turns; calls of kernels, distinct kernels."""

    without: str
    ms: float
    whole_ms: float
    calls: int
    kernels: int
    asked: str = ""

    @property
    def ratio(self) -> float:
        return self.whole_ms / self.ms if self.asked else self.ms / self.whole_ms


@dataclass(frozen=True)
class Ablation:
    """Of one model. missing: why it, or a variant of it, was not measured."""

    model: str
    date: str
    revision: str
    variants: tuple[Variant, ...] = ()
    missing: str = ""

    def of(self, name: str, asked: str = "") -> Variant | None:
        return next((v for v in self.variants if (v.without, v.asked) == (name, asked)), None)


def variants(without: Names, asked: Names) -> list[tuple[Names, Names]]:
    """What is left out and what is asked for, of each step that is timed: nothing of both first, all of one last."""

    def each(names: Names) -> list[Names]:
        return [*((n,) for n in names), *([tuple(names)] if len(names) > 1 else [])]

    return [((), ()), *((names, ()) for names in each(without)), *(((), names) for names in each(asked))]


def label(names: Names) -> str:
    return ALL if len(names) > 1 else "".join(names)


def measure(key: str, names: Names, asked: Names, seconds: float) -> Ablation:
    """One model, in this process."""
    from functools import partial

    from neoflow.errors import NeoflowError
    from neoflow.models import build_model
    from neoflow.pipeline import Compiled, bind, compile_program
    from neoflow.report import compare
    from neoflow.train.step import program, reset

    name, _, batch = key.partition("/")
    model = build_model(name, int(batch))
    written, arrays = program(model), model.example()
    reset(model)

    def compiled(without: Names, asked: Names) -> Compiled:
        os.environ |= {"NEOFLOW_WITHOUT": ",".join(without), "NEOFLOW_WITH": ",".join(asked)}
        return compile_program(*written)

    def calls(of: Compiled) -> tuple[object, ...]:
        """Of kernels and of other libraries, and which are launched together."""
        own = len(of.kernels)
        return *(of.kernels[c.kernel].key if c.kernel < own else c.name for c in of.plan.calls), of.plan.together

    whole = compiled((), ())
    step = bind(whole)
    first = float(step(*arrays)[0])
    own = compare.measure([partial(step, *arrays)], seconds / 2)[0]
    times: dict[tuple[object, ...], tuple[float, float]] = {calls(whole): (own, own)}
    found, missing = [], []
    for without, besides in variants(names, asked):
        try:
            made = compiled(without, besides)
            if calls(made) not in times:
                other = bind(made)
                reset(model)
                if not abs(float(other(*arrays)[0]) - first) <= 1e-3 * abs(first):
                    raise ValueError("its loss is another")
                times[calls(made)] = tuple(compare.measure([partial(f, *arrays) for f in (other, step)], seconds, 3))
        except (NeoflowError, ValueError, MemoryError) as error:
            what = f"with {label(besides)}" if besides else f"without {label(without)}"
            missing.append(f"{what}: {str(error).splitlines()[0][:200]}")
            continue
        counts = len(made.plan.calls), len(made.kernels)
        found.append(Variant(label(without), *times[calls(made)], *counts, label(besides)))
    return Ablation(key, datetime.date.today().isoformat(), revision(), tuple(found), "; ".join(missing))


def alone(key: str, names: Names, asked: Names, seconds: float, cache: Path) -> Ablation:
    """One model in a process of its own; a failure is said in what it gives."""
    command = [sys.executable, "-m", "benchmarks.ablation", "--one", key, "--seconds", str(seconds)]
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {**os.environ, "NEOFLOW_CACHE_DIR": str(cache)}
    try:
        done = subprocess.run(
            [*command, "--names", ",".join(names), "--asked", ",".join(asked)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return from_json(done.stdout)
    except subprocess.TimeoutExpired:
        said = f"it took more than {PATIENCE:.0f} s"
    except (ValueError, TypeError, KeyError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        said = f"its process ended with status {done.returncode}: {last}"[:300]
    return Ablation(key, datetime.date.today().isoformat(), revision(), missing=said)


def from_json(text: str) -> Ablation:
    """A line of the file. Raises `ValueError`, `TypeError` or `KeyError` for none."""
    said = json.loads(text)
    return Ablation(**{**said, "variants": tuple(Variant(**v) for v in said["variants"])})


def read(path: Path) -> dict[str, Ablation]:
    """By model, the last one of each; a line that was cut off is passed over."""
    return last_of_each(path, from_json, lambda found: found.model)


def names_of(found: Iterable[Ablation], kind: str = "without") -> list[str]:
    """The transformations that were left out, or "asked" for, all at once last."""
    names = dict.fromkeys(getattr(v, kind) for a in found for v in a.variants)
    return [*(n for n in names if n not in ("", ALL)), *([ALL] if ALL in names else [])]


def mean(name: str, found: Iterable[Ablation], asked: str = "") -> float | None:
    """The geometric mean of a transformation's ratios over the models."""
    ratios = [v.ratio for a in found if (v := a.of(name, asked)) is not None]
    return statistics.geometric_mean(ratios) if ratios else None


def row(done: Sequence[Ablation], name: str, asked: str = "") -> str:
    """The ratio and the calls of each model, and the mean."""
    cells = [f"{v.ratio:.2f}, {v.calls}" if (v := a.of(name, asked)) else "not measured" for a in done]
    average = mean(name, done, asked)
    return f"| {asked or name} | " + " | ".join([*cells, "-" if average is None else f"{average:.2f}"]) + " |"


def table(found: Mapping[str, Ablation]) -> list[str]:
    """A row a transformation, a column a model: the ratio, and the calls without it, or with it where it was asked for;
    then the paper's factors."""
    done = [a for a in found.values() if a.variants]
    models, rule = " | ".join(a.model for a in done), "|---|" + "--:|" * (len(done) + 1)
    lines = [f"| without | {models} | mean |", rule]
    whole = [f"{w.whole_ms:.2f} ms, {w.calls} calls" if (w := a.of("")) else "-" for a in done]
    lines.append("| nothing | " + " | ".join([*whole, ""]) + " |")
    lines += [row(done, name) for name in names_of(done)]
    if asked := names_of(done, "asked"):
        lines += ["", f"| asked for | {models} | mean |", rule, *(row(done, "", name) for name in asked)]
    lines += ["", "| in the paper | factor there | here | factor |", "|---|--:|---|--:|"]
    for what, factor in PAPERS.items():
        ours = next(((n, m) for n in HERE[what] if (m := mean(n, done)) is not None), None)
        lines.append(
            f"| {what} | {factor:.2f} | " + ("- | not measured |" if ours is None else f"{ours[0]} | {ours[1]:.2f} |")
        )
    missing = [f"- {a.model}: {a.missing}" for a in found.values() if a.missing]
    return [*lines, *([""] if missing else []), *missing]


def main(arguments: Sequence[str] | None = None, perform: Callable[..., Ablation] = alone) -> None:
    from neoflow.rewriting import OPTIONAL
    from neoflow.rewriting.asked import ASKED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names and batches")
    parser.add_argument("--only", default="", help="the transformations whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=6.0, help="of turns, for each pair of steps")
    parser.add_argument("--again", action="store_true", help="measure what is done once more")
    parser.add_argument("--out", type=Path, default=OUT, help="the file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--names", default="", help=argparse.SUPPRESS)
    parser.add_argument("--asked", default="", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.one:
        given = ([n for n in text.split(",") if n] for text in (options.names, options.asked))
        print(json.dumps(asdict(measure(options.one, *given, options.seconds))))
        return
    names, asked = ([n for n in those if re.search(options.only, n)] for those in (OPTIONAL, ASKED))
    found = read(options.out)
    for key in options.models.split(","):
        if not options.again and key in found and found[key].variants:
            continue
        print(f"{key}: without {', '.join(names)}; with {', '.join(asked)}", file=sys.stderr, flush=True)
        found[key] = perform(key, names, asked, options.seconds, options.out.resolve().parent / "caches" / "neoflow")
        append(options.out, found[key])
    lines = table(found)
    print("\n".join(lines))
    if options.write:
        how = f"{processor()}, sources {', '.join(sorted({a.revision for a in found.values()}))}"
        how += "; the time without over the time with all, and calls a step; `python -m benchmarks.ablation --write`"
        write("ablation", "Each transformation left out", how, lines)


if __name__ == "__main__":
    main()
