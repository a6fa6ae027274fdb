"""Rules for graphs, proved from the expressions themselves: any operator takes part from the moment it is defined.

A `Family` is a definition with its extents erased; its `properties` are derived from its body and proved. A rule is a
pair of terms over families; `prove` inlines both to nested sums of products and matches these by bijections of their
axes, for all extents that meet the rule's guards. `hunt` looks for counterexamples by `evaluate`. Rules are text; a
proved one is a rewrite of graphs (`substitution`).

forms (whole numbers over symbols), places (sets of their values) · body (the grammar of families), erase (`family`),
concrete (back) · term · sums (inlined), text (of these), agree (compared) · prove, derive (the third tier), hunt ·
properties, known (rules that follow from them) · rule, read, stored · rewrite, same (x + x) · sites (where rules
apply), pieces of graphs and how they are split, search · found by themselves: alphabet, prints, graphs, making (of
one more operator), runs (on disk), levels, candidates, congruence, pruning, general, implied, judge, generate
"""

from neoflow.superopt.alphabet import Alphabet, alphabet_of, standard_alphabet
from neoflow.superopt.body import Family
from neoflow.superopt.derive import derive
from neoflow.superopt.erase import family, family_with_conditions
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.generate import Generated, generate
from neoflow.superopt.hunt import Counterexample, hunt
from neoflow.superopt.known import rules_about
from neoflow.superopt.properties import Property, properties
from neoflow.superopt.prove import Proof, Statement, prove, weakest
from neoflow.superopt.read import read_rules
from neoflow.superopt.rewrite import Substitution, rewritten, substitution
from neoflow.superopt.rule import Rule, Rules, rules_of
from neoflow.superopt.search import Cost, Limits, Move, Optimized, Replayed, Search
from neoflow.superopt.sites import Sites
from neoflow.superopt.stored import generated, proved, rules_in, standard
from neoflow.superopt.term import Application, Term, Variable, apply, variables

__all__ = [
    "Alphabet",
    "Application",
    "Cost",
    "Counterexample",
    "Family",
    "Form",
    "Generated",
    "Limits",
    "Move",
    "Optimized",
    "Proof",
    "Property",
    "Replayed",
    "Rule",
    "Rules",
    "Search",
    "Sites",
    "Statement",
    "Substitution",
    "Term",
    "Variable",
    "alphabet_of",
    "apply",
    "derive",
    "family",
    "family_with_conditions",
    "form",
    "generate",
    "generated",
    "hunt",
    "name",
    "properties",
    "prove",
    "proved",
    "read_rules",
    "rewritten",
    "rules_about",
    "rules_in",
    "rules_of",
    "standard",
    "standard_alphabet",
    "substitution",
    "variables",
    "weakest",
]
