"""Rules that were made wrong are refused; what is not is right after all."""

import pytest

from neoflow.superopt import Proof, hunt, prove, standard
from tests.superopt.sabotage import KINDS, sabotaged

RULES = list(standard().rules)


@pytest.mark.parametrize("count, seed", [(40, 5), pytest.param(1000, 7, marks=pytest.mark.slow)])
def test_sabotaged_rules_are_refused(count, seed):
    accepted = []
    kinds = set()
    for kind, rule in sabotaged(RULES, seed, count):
        kinds.add(kind)
        if isinstance(prove(rule.statement), Proof):
            accepted.append(rule)
            assert hunt(rule.statement, seed, 40) is None, str(rule)
    print(f"{count} sabotaged rules, {len(accepted)} of them accepted, all of which are right")
    assert (count < 100 or kinds == set(KINDS)) and len(accepted) <= count // 100
