"""Kernels by the best reward first, beside those of the passes; and what each objection to a fusion is worth.

    python -m benchmarks.fusion [--models resnet50/16,...] [--modes train,infer] [--ablate] [--write]

Both orders have the same rules, the same objections and the same reward; estimates are seconds of all kernels one after
the other, by what is stated of a machine. Programs are divided as they are rewritten, before layouts, in one process.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from benchmarks.results import write
from neoflow.expr.recurrence import runs_of
from neoflow.graph import Graph, make_graph
from neoflow.models import build_model
from neoflow.partition import Partition, choose, objective, partition, reward
from neoflow.partition.calls import Decision
from neoflow.partition.choose import OBJECTIONS, Choice
from neoflow.partition.engine import Pass, judged
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernel, Kernels, Merge
from neoflow.partition.rules import EPILOGUES, SIBLINGS, Rule
from neoflow.rewriting.sequence import left_out, rewritten
from neoflow.roofs import STATED
from neoflow.trace import Trace
from neoflow.train.step import program
from neoflow.verdict import Verdict

MODELS = (
    *("capsnet/16", "shufflenet/16", "mi_lstm/64", "scrnn/64", "sublstm/64", "lltm/64", "nasrnn/64", "sru_rnntc/64"),
    *("ptb_lstm/20", "bert_layer/8", "resnet18/16", "resnet50/16", "mobilenet/16", "resnext50/16", "squeezenet/16"),
    *("inception_v3/16", "nasnet_a/16"),
)
Rules = tuple[Rule[Any, Any, Any], ...]


class BestFirst:
    """A queue of candidates by their reward. One whose kernels have become part of others is dropped when its turn
    comes: what these others may become was put into the queue when they were made."""

    def __init__(self, facts: Facts, state: Kernels, choice: Choice):
        self.facts, self.state, self.choice = facts, state, choice
        self.decisions: list[Decision] = []
        self._queue: list[tuple[float, int, Rule[Any, Any, Any], Merge, Kernel, Kernel]] = []
        self._seen: set[tuple[object, ...]] = set()
        self._asked = 0

    def run(self, rules: Rules) -> None:
        for n in list(self.state.kernels):
            self._offer(rules, n)
        while self._queue:
            _, _, rule, merge, first, second = heapq.heappop(self._queue)
            if self.state.kernels.get(merge.first) is not first or self.state.kernels.get(merge.second) is not second:
                continue
            subject, verdict = rule.subject(self.state, merge), rule.legal(self.facts, self.state, merge)
            self.decisions.append(Decision(rule.name, subject, verdict))
            if verdict.ok:  # others became one since: it may need now what needs it
                rule.apply(self.state, merge)
                for n in self._near(self.state.number[first.head]):
                    self._offer(rules, n)

    def _near(self, n: int) -> Iterator[int]:
        """A kernel, what it reads, and who reads it."""
        kernel, storage, number = self.state.kernels[n], self.state.storage, self.state.number
        readers = (number[r] for t in kernel.members for r in storage.uses[t] if r in number)
        yield from dict.fromkeys((n, *self.state.sources(kernel), *readers))

    def _offer(self, rules: Rules, n: int) -> None:
        """Put into the queue what is legal and chosen of a kernel, and not worse."""
        for rule in rules:
            sites: Sequence[Any] = (
                self.state.kernels[n].members if rule.name in (EPILOGUES.name, SIBLINGS.name) else (n,)
            )
            for merge in [m for site in sites for m in rule.propose(self.state, site)]:
                first, second = self.state.kernels[merge.first], self.state.kernels[merge.second]
                if first is second or (key := (rule.name, first, second, merge.rows, merge.turns)) in self._seen:
                    continue
                self._seen.add(key)
                verdict = judged(rule, self.facts, self.state, merge, self.choice)
                if verdict.ok:
                    costs = [self.state.cost(first), self.state.cost(second)]
                    saved = reward(costs, [self.state.cost(self.state.merged(merge))], self.state.roofs)
                    verdict = verdict if saved >= 0 else Verdict(False, f"it would take {-saved * 1e6:.1f} us more")
                if not verdict.ok:
                    self.decisions.append(Decision(rule.name, rule.subject(self.state, merge), verdict))
                    continue
                self._asked += 1
                heapq.heappush(self._queue, (-saved, self._asked, rule, merge, first, second))


def best_first(
    facts: Facts, state: Kernels, passes: tuple[Pass, ...], choice: Choice, at_once: bool = False
) -> list[Decision]:
    """Make kernels one, the best reward first: within each pass, or of all rules at once."""
    queue = BestFirst(facts, state, choice)
    parts = [tuple(rule for p in passes for rule in p.rules)] if at_once else [p.rules for p in passes]
    for rules in parts:
        queue.run(rules)
    return queue.decisions


def graph_of(model: str, mode: str) -> Graph | None:
    """A model's program when it is rewritten; None of one with recurrences, whose parts are divided each by itself."""
    name, _, batch = model.partition("/")
    outputs, inputs, updates = program(build_model(name, int(batch)), mode)
    graph = rewritten(make_graph(outputs, inputs, updates), Trace(), "fp32", left_out())
    return None if runs_of(graph.order) else graph


def without(name: str, rule: str, facts: Facts, state: Any, candidate: Any) -> str | None:
    return choose.object_to(rule, facts, state, candidate, (name,))


def divided(graph: Graph, divide: Callable[[Graph], Partition]) -> tuple[Partition, float, float]:
    """With its estimate, and the processor seconds that dividing took, what is remembered of definitions known."""
    divide(graph)
    begun = time.process_time()
    found = divide(graph)
    return found, objective(found, STATED), time.process_time() - begun


def differs(one: Partition, other: Partition) -> int:
    """Calls of kernels that the other has not; members in another order are the same."""
    first, second = (Counter(frozenset(t.uid for t in c.outputs) for c in p.calls) for p in (one, other))
    return sum((first - second).values()) + sum((second - first).values())


def row(model: str, mode: str, ablates: bool) -> tuple[str, dict[str, float]] | None:
    """A line of the table, and of each objection the estimate without it over that with it."""
    if (graph := graph_of(model, mode)) is None:
        return None
    usual, seconds, took = divided(graph, partition)
    cells = [f"| {model} {mode} | {len(usual.calls)} | {seconds * 1e3:.2f}"]
    for at_once in (False, True):
        found, mine, time_ = divided(graph, partial(partition, combine=partial(best_first, at_once=at_once)))
        cells.append(f"{len(found.calls)} | {differs(usual, found)} | {mine / seconds:.4f} | {time_ / took:.1f}")
    names = dict.fromkeys(o.name for o in OBJECTIONS) if ablates else ()
    worth = {n: divided(graph, partial(partition, choose=partial(without, n)))[1] / seconds for n in names}
    return " | ".join(cells) + " |", worth


HEAD = (
    "| program | calls | ms, estimated | calls, best first in passes | others | estimate | time to divide "
    "| calls, best first of all | others | estimate | time to divide |",
    "|---" * 11 + "|",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names and batches")
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--ablate", action="store_true", help="also without each objection: some 30 times as long")
    parser.add_argument("--write", action="store_true", help="into RESULTS.md")
    options = parser.parse_args()
    lines, worth = list(HEAD), dict[str, list[float]]()
    print("\n".join(HEAD))
    for model in options.models.split(","):
        for mode in options.modes.split(","):
            if (found := row(model, mode, options.ablate)) is None:
                continue
            lines.append(found[0])
            print(found[0], flush=True)
            for name, ratio in found[1].items():
                worth.setdefault(name, []).append(ratio)
    if worth:
        lines += [
            "",
            "| without the objection | programs that differ | the least, the largest estimate |",
            "|---|---|---|",
        ]
    for name, ratios in worth.items():
        changed = sum(abs(r - 1) > 1e-6 for r in ratios)
        lines.append(f"| {name} | {changed} of {len(ratios)} | {min(ratios):.3f}, {max(ratios):.3f} |")
        print(lines[-1])
    if options.write:
        write("fusion", "The best reward first", "python -m benchmarks.fusion --write", lines)


if __name__ == "__main__":
    main()
