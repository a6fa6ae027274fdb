"""Rules that are kept: those that come with neoflow, stated and generated, and a rule proved again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from neoflow.errors import ConfigError
from neoflow.superopt.derive import MILLISECONDS, derive
from neoflow.superopt.hunt import hunt
from neoflow.superopt.prove import Proof, prove
from neoflow.superopt.read import read_rules
from neoflow.superopt.rule import Rule, Rules
from neoflow.verdict import Verdict

STANDARD = Path(__file__).with_name("standard.txt")
"""The rules that come with neoflow: first TASO's 44 axioms in their order, then others."""

GENERATED = Path(__file__).with_name("generated.txt")
"""What `neoflow rules generate FILE --count 4 --seconds 1800 --largest 4` wrote, as docs/design.md says."""


def standard() -> Rules:
    """The rules of `STANDARD`, with the proofs that were found when the file was written."""
    return read_rules(STANDARD.read_text(encoding="utf-8"))


def generated() -> Rules:
    """The rules of `GENERATED`, with the proofs that were found then."""
    return read_rules(GENERATED.read_text(encoding="utf-8"))


def rules_in(file: Path) -> Rules:
    """The rules of a file. Raises `ConfigError` where it is none, `TextError`."""
    try:
        return read_rules(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no file of rules: {error}") from error


def proved(rule: Rule, seed: int = 0, count: int = 12, milliseconds: int = MILLISECONDS) -> Rule | Verdict:
    """A rule with a proof found now, which survived a hunt of `count` sizes; why not, otherwise.

    The third tier takes up to so many milliseconds, so it is asked where no counterexample is known.
    """
    found = prove(rule.statement)
    counterexample = hunt(rule.statement, seed, count)
    if counterexample is not None:
        claim = f"it was proved ({found})" if isinstance(found, Proof) else found.reason
        return Verdict(False, f"{claim}; {counterexample}")
    if isinstance(found, Verdict):
        found = prove(rule.statement, partial(derive, milliseconds=milliseconds))
    return found if isinstance(found, Verdict) else replace(rule, proof=found)
