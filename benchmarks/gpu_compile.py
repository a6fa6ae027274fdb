"""Every kernel of a model's training step, by its default schedule, compiled for GPUs that need not be here.

    python -m benchmarks.gpu_compile [--models capsnet,resnet50] [--targets cuda:sm_75,nvptx:sm_90] [--again] [--write]

CUDA C++ is compiled by nvcc, PTX through LLVM is assembled by ptxas; `ptxas -v` says what a kernel takes. A row is one
model and target, printed as soon as it is done. `--write` puts each row into RESULTS.md at once, and leaves out those
that are there, unless `--again`: so the table is made in pieces.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks import results
from neoflow import codegen
from neoflow.architectures import REGISTERS_A_THREAD, gpu_target
from neoflow.autodiff import grad
from neoflow.codegen.gpu.resources import Resources, resources
from neoflow.errors import CodegenError
from neoflow.graph import make_graph
from neoflow.loops import default_schedule
from neoflow.models import build_model
from neoflow.partition import Subgraph, order_calls
from neoflow.pipeline import stages
from neoflow.report.machine import examine
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.train.step import sgd_updates

MODELS = ("capsnet", "mi_lstm_mnist", "mi_lstm_ptb", "ptb_lstm", "shufflenet", "resnet18", "bert_layer", "resnet50")
TARGETS = tuple(f"{kind}:{name}" for name in ("sm_75", "sm_80", "sm_90") for kind in ("cuda", "nvptx"))
TOGETHER = 8
"""Kernels of one source."""
HEAD = [
    "| model | target | kernels | launches | fail | spill | most registers | with a stack | most shared bytes | s |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
]


@dataclass(frozen=True)
class Found:
    """Of a model and a target. failures: by the kernel's template, what was said. used: by the launch's template."""

    kernels: int
    failures: tuple[tuple[str, str], ...]
    used: tuple[tuple[str, Resources], ...]
    seconds: float

    def row(self, model: str, target: str) -> str:
        """A line of the table."""
        each = [r for _, r in self.used]
        numbers = (
            self.kernels,
            len(each),
            len(self.failures),
            sum(r.spills for r in each),
            max((r.registers for r in each), default=0),
            sum(r.stack > 0 for r in each),
            max((r.shared_bytes for r in each), default=0),
        )
        return f"| {model} | {target} | " + " | ".join(map(str, numbers)) + f" | {self.seconds:.0f} |"

    def remarks(self) -> list[str]:
        """What did not compile, spills, or takes more than there is."""
        bad = [f"{t}: {r}" for t, r in self.used if r.spills or r.registers > REGISTERS_A_THREAD]
        return [f"{t}: {said}" for t, said in self.failures] + bad


def kernels(model: str, target: Target) -> list[Subgraph]:
    """The distinct kernels of a training step."""
    built = build_model(model, None)
    gradients = grad(built.loss, list(built.parameters.values()))
    graph = make_graph([built.loss], built.inputs, sgd_updates(built, gradients))
    graph, divided = stages(graph, Trace(), target)
    calls, _ = order_calls(graph, divided)
    return list({c.subgraph.digest: c.subgraph for c in calls}.values())


def compiled(subgraphs: Sequence[Subgraph], target: Target) -> Found:
    """All of them, some in one source; those of a source that fails once more by themselves."""
    start = time.perf_counter()
    failures: list[tuple[str, str]] = []
    used: list[tuple[str, Resources]] = []
    numbered = list(enumerate(subgraphs))
    for group in (numbered[n : n + TOGETHER] for n in range(0, len(numbered), TOGETHER)):
        try:
            used += _used(group, target)
        except Exception:  # TVM has many classes, and a table is of all kernels
            for one in group:
                try:
                    used += _used([one], target)
                except Exception as error:
                    failures.append((default_schedule(one[1], target).template, str(error)[:400]))
    return Found(len(subgraphs), tuple(failures), tuple(used), time.perf_counter() - start)


def _used(group: Sequence[tuple[int, Subgraph]], target: Target) -> list[tuple[str, Resources]]:
    """What each launch takes, with the template it is of."""
    schedules = [default_schedule(s, target) for _, s in group]
    lowered = [codegen.lower(s, c, target, f"k{n}") for (n, s), c in zip(group, schedules, strict=True)]
    found = resources(codegen.source(lowered, target, "ptx" if target.kind == "nvptx" else "cuda"), target)
    launches = [(c.template, e.symbol) for k, c in zip(lowered, schedules, strict=True) for e in k.code.entries]
    missing = [symbol for _, symbol in launches if symbol not in found]
    if missing:
        raise CodegenError(f"the compiler says nothing of {', '.join(missing)}")
    return [(template, found[symbol]) for template, symbol in launches]


def written() -> dict[tuple[str, str], str]:
    """Rows by model and target, of the section as it stands."""
    section = results.PATH.read_text().partition("<!-- gpu compile -->")[2].partition("<!-- /gpu compile -->")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return {(line.split()[1], line.split()[3]): line for line in rows if line.split()[1] in MODELS}


def pieces(models: Sequence[str], targets: Sequence[str], done: set[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """The row of every model and target that is not done."""
    for model in models:
        todo = [t for t in targets if (model, t) not in done]
        if not todo:
            continue
        places = [gpu_target(*t.split(":")) for t in todo]
        subgraphs = kernels(model, places[0])
        for name, target in zip(todo, places, strict=True):
            found = compiled(subgraphs, target)
            for remark in found.remarks():
                print(f"  {model} {name} {remark}", flush=True)
            yield model, name, found.row(model, name)


def publish(rows: dict[tuple[str, str], str], processor: str) -> None:
    how = (
        f"{processor}, without a GPU; training step (SGD), default schedules; "
        "`python -m benchmarks.gpu_compile --write`"
    )
    lines = HEAD + [rows[m, t] for m in MODELS for t in TARGETS if (m, t) in rows]
    results.write("gpu compile", "Kernels compiled for GPUs: CUDA C++ by nvcc, PTX by LLVM and ptxas", how, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = written() if options.write else {}
    done = set() if options.again else set(rows)
    processor = examine().processor if options.write else ""
    print("\n".join(HEAD), flush=True)
    for model, target, row in pieces(options.models.split(","), options.targets.split(","), done):
        print(row, flush=True)
        rows[model, target] = row
        if options.write:
            publish(rows, processor)


if __name__ == "__main__":
    main()
