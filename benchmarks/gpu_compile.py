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
from dataclasses import dataclass, replace

from benchmarks import results
from neoflow import codegen
from neoflow.architectures import REGISTERS_A_THREAD, architecture, gpu_target
from neoflow.autodiff import grad
from neoflow.codegen.gpu.resources import Resources, resources
from neoflow.errors import CodegenError
from neoflow.graph import make_graph
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.gpu.limits import STATIC_BYTES
from neoflow.loops.gpu.occupancy import Block
from neoflow.machine import processor
from neoflow.models import build_model
from neoflow.partition import Subgraph, order_calls
from neoflow.rewriting import stages
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.train.step import sgd_updates

MODELS = ("capsnet", "mi_lstm_mnist", "mi_lstm_ptb", "ptb_lstm", "shufflenet", "resnet18", "bert_layer", "resnet50")
TARGETS = tuple(f"{kind}:{name}" for name in ("sm_75", "sm_80", "sm_90") for kind in ("cuda", "nvptx"))
TOGETHER = 8
"""Kernels of one source."""
HEAD = [
    "| model | target | kernels | launches | fail | spill | beyond | registers | over | stack | shared bytes | s |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
]
NOTE = """
fail: kernels that do not compile. spill: launches with values that are stored for want of registers. beyond: launches
that take more shared memory than the schedule's legality has it, or more registers than a block may have. registers,
shared bytes: the most of any launch. over: launches of more registers than the estimate of occupancy assumes.
stack: launches with local memory of another kind: a register tile that a loop goes over, or the slow path of a
division."""


@dataclass(frozen=True)
class Launch:
    """Of a template: what its code takes, and what its schedule says that a block asks for."""

    template: str
    used: Resources
    said: Block
    threads: int

    def is_beyond(self, target: Target) -> bool:
        """Whether a processor does not hold a block as legality has it."""
        registers = self.used.registers
        most = architecture(target).registers
        is_over = registers > REGISTERS_A_THREAD or registers * self.threads > most
        return is_over or self.used.shared_bytes > self.said.shared_bytes


@dataclass(frozen=True)
class Found:
    """Of a model and a target. failures: by the kernel's template, what was said."""

    target: Target
    kernels: int
    failures: tuple[tuple[str, str], ...]
    launches: tuple[Launch, ...]
    seconds: float

    def row(self, model: str) -> str:
        """A line of the table."""
        each = [one.used for one in self.launches]
        numbers = (
            self.kernels,
            len(each),
            len(self.failures),
            sum(r.spills for r in each),
            sum(one.is_beyond(self.target) for one in self.launches),
            max((r.registers for r in each), default=0),
            sum(one.used.registers > one.said.registers for one in self.launches),
            sum(r.stack > 0 for r in each),
            max((r.shared_bytes for r in each), default=0),
        )
        name = f"{self.target.kind}:{self.target.mcpu}"
        return f"| {model} | {name} | " + " | ".join(map(str, numbers)) + f" | {self.seconds:.0f} |"

    def remarks(self) -> list[str]:
        """What did not compile, spills, or takes more than there is."""
        bad = [str(one) for one in self.launches if one.used.spills or one.is_beyond(self.target)]
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
    used: list[Launch] = []
    numbered = list(enumerate(subgraphs))
    for group in (numbered[n : n + TOGETHER] for n in range(0, len(numbered), TOGETHER)):
        try:
            used += _used(group, target)
        except Exception:  # TVM has many classes, and a table is of all kernels
            for one in group:
                try:
                    used += _used([one], target)
                except Exception as error:  # as above; the row says so
                    failures.append((default_schedule(one[1], target).template, str(error)[:400]))
    return Found(target, len(subgraphs), tuple(failures), tuple(used), time.perf_counter() - start)


def _used(group: Sequence[tuple[int, Subgraph]], target: Target) -> list[Launch]:
    """What each launch takes; the second launch of a kernel may ask for what any may."""
    schedules = [default_schedule(s, target) for _, s in group]
    lowered = [codegen.lower(s, c, target, f"k{n}") for (n, s), c in zip(group, schedules, strict=True)]
    found = resources(codegen.source(lowered, target, "ptx" if target.kind == "nvptx" else "cuda"), target)
    missing = [e.symbol for k in lowered for e in k.code.entries if e.symbol not in found]
    if missing:
        raise CodegenError(f"the compiler says nothing of {', '.join(missing)}")
    launches = []
    for (_, subgraph), schedule, kernel in zip(group, schedules, lowered, strict=True):
        said = estimate(problem_of(subgraph), schedule, target).block
        for n, e in enumerate(kernel.code.entries):
            block = replace(said, shared_bytes=STATIC_BYTES) if n else said
            taken = found[e.symbol]
            taken = replace(taken, shared_bytes=taken.shared_bytes + e.shared_bytes)
            launches.append(Launch(schedule.template, taken, block, e.threads))
    return launches


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
            yield model, name, found.row(model)


def publish(rows: dict[tuple[str, str], str]) -> None:
    how = (
        f"{processor()}, without a GPU; training step (SGD), default schedules; "
        "`python -m benchmarks.gpu_compile --write`"
    )
    lines = HEAD + [rows[m, t] for m in MODELS for t in TARGETS if (m, t) in rows] + [NOTE]
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
    print("\n".join(HEAD), flush=True)
    for model, target, row in pieces(options.models.split(","), options.targets.split(","), done):
        print(row, flush=True)
        rows[model, target] = row
        if options.write:
            publish(rows)


if __name__ == "__main__":
    main()
