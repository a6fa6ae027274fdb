"""`neoflow rules`: the rules for graphs that are proved, listed, shown and proved again."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neoflow.commands.options import AsJson, print_json

if TYPE_CHECKING:
    from neoflow.superopt import Rule, Rules

app = typer.Typer(help="List rules for graphs, show them, and prove them again.", no_args_is_help=True)
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="A file of rules, in place of those that come with neoflow; `generated`: those that were found.",
    ),
]
GENERATED = "generated"
"""In place of a file: the rules that come along and that nobody stated."""
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Rules by name; all without.")]


def _rules(file: Path | None) -> Rules:
    from neoflow.superopt import generated, rules_in, standard

    if file is None:
        return standard()
    return generated() if str(file) == GENERATED else rules_in(file)


def _chosen(rules: Rules, names: list[str] | None) -> list[Rule]:
    from neoflow.errors import ConfigError

    for name in names or ():
        if name not in rules.by_name:
            raise ConfigError(f"there is no rule {name}; `neoflow rules list` has their names")
    return [rules.by_name[name] for name in names] if names else list(rules.rules)


def _entry(rule: Rule) -> dict[str, Any]:
    proof = None if rule.proof is None else rule.proof.tier
    sides = {"source": str(rule.source), "target": str(rule.target)}
    return {"name": rule.name, **sides, "guards": rule.guards, "proof": proof, "exact": rule.is_exact}


@app.command("list")
def list_rules(file: RulesFile = None, as_json: AsJson = False) -> None:
    """List rules: source, target, guards, how each was proved, and whether it keeps bits."""
    found = _rules(file).rules
    if as_json:
        print_json([_entry(rule) for rule in found])
        return
    for rule in found:
        guards = f"  where {rule.guards}" if rule.guards else ""
        print(f"{rule.name}: {rule.source} = {rule.target}{guards}  ({rule.proof or 'not proved'})")


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A rule by name.")],
    file: RulesFile = None,
    as_json: AsJson = False,
) -> None:
    """Show a rule with the operators it speaks of, as `--file` reads it."""
    from neoflow.superopt import rules_of

    (rule,) = _chosen(_rules(file), [name])
    if as_json:
        operators = {label: str(f) for label, f in rule.families.items()}
        print_json({**_entry(rule), "operators": operators})
    else:
        print(rules_of([rule]).to_text(), end="")


@app.command()
def generate(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="Where the rules are written.")],
    count: Annotated[int, typer.Option("--count", min=1, max=4, help="Operators of a graph, at most.")] = 2,
    names: Annotated[
        list[str] | None, typer.Option("--operator", metavar="NAME", help="Of these; several times. Default: all.")
    ] = None,
    file: RulesFile = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Of all; then what is proved is written.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the values that fingerprints are taken of.")] = 0,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="Where work is kept, to go on if it is stopped.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="That work side by side.")] = 2,
    largest: Annotated[
        int | None,
        typer.Option("--largest", min=1, help="Write rules of so many operators a side, each as often as read."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Generate rules: of all graphs of a few operators those that are equal, proved. Without a file the operators are
    the standard alphabet."""
    from neoflow.errors import ConfigError
    from neoflow.superopt import alphabet_of, generate, rules_of, standard_alphabet

    alphabet = standard_alphabet() if file is None else alphabet_of(_rules(file).operators)
    for name in names or ():
        if name not in alphabet.names:
            raise ConfigError(f"there is no operator {name}; there are {', '.join(alphabet.names)}")
    begun = time.process_time()
    found = generate(
        alphabet.only(names) if names else alphabet, count, seconds, seed, folder=folder, processes=processes
    )
    written = [r for r in found.rules if largest is None or r.size <= largest]
    output.write_text(rules_of(written).to_text(), encoding="utf-8")
    if as_json:
        used = {
            "cpu_seconds": time.process_time() - begun,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "memory_of_one_more": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
        }
        counts = {k: v for k, v in vars(found).items() if k not in ("rules", "stages")}
        print_json(
            counts
            | {"proved": len(found.rules), "written": len(written), "stages": [vars(s) for s in found.stages]}
            | used
        )
    else:
        print(found, *found.stages, f"{len(written)} rules written", sep="\n")


@app.command()
def prove(
    names: Names = None,
    file: RulesFile = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the rules that are proved there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prove rules again, and hunt for counterexamples at small sizes. Exit status 1 where one is refused."""
    from neoflow.superopt import Rule, proved, rules_of

    kept: list[Rule] = []
    entries = []
    for rule in _chosen(_rules(file), names):
        found = proved(rule)
        is_proved = isinstance(found, Rule)
        entries.append({**_entry(found if isinstance(found, Rule) else rule), "proved": is_proved})
        if isinstance(found, Rule):
            kept.append(found)
        else:
            entries[-1] |= {"proof": None, "exact": False, "reason": found.reason}
        if not as_json:
            print(f"{rule.name}: {found.proof if isinstance(found, Rule) else found}")
    if as_json:
        print_json(entries)
    if output is not None:
        output.write_text(rules_of(kept).to_text(), encoding="utf-8")
    if len(kept) < len(entries):
        raise typer.Exit(1)
