"""What is too deep, too large or no text at all: a result or an error of neoflow's own, within a second."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import CodegenError, NeoflowError, TextError
from tests.attack import hostile
from tests.chance import Chance


def endings(cases) -> dict[str, int]:
    found = {name: hostile.ended(case) for name, case in cases.items()}
    wrong = {name: end for name, end in found.items() if end not in ("right", "refused")}
    assert not wrong
    return {end: list(found.values()).count(end) for end in ("right", "refused")}


def test_some_hostile_cases():
    every = list(hostile.cases().items())
    found = endings(dict(every[::9]))
    assert found["refused"] > found["right"] > 0


@pytest.mark.slow
def test_every_hostile_case():
    found = endings(hostile.cases())
    assert sum(found.values()) > 600 and found["refused"] > found["right"] > 100


@pytest.mark.tvm
def test_what_cannot_be_addressed_is_refused():
    for case in hostile.compiled().values():
        with pytest.raises(CodegenError, match=r"at most 2\^31 - 1"):
            case()


class Mutated(Chance):
    """A few characters of a text cut out, put in or doubled."""

    pieces = (
        *"()[]<>=+-*/%,;:.#\\'\"",
        "\n",
        "\0",
        "\ud800",
        "é",
        "9",
        "10**9",
        " if ",
        " else ",
        " and ",
        "not ",
        "sum(",
        "s",
    )

    def of(self, text: str) -> str:
        for _ in range(self.between(1, 5)):
            a = self.between(0, len(text))
            b = min(len(text), a + self.pick((0, 1, 1, 3, 10)))
            text = text[:a] + self.pick((*self.pieces, text[a:b] * 2, "")) + text[b:]
        return text


def mutations(seed: int, count: int) -> dict[str, hostile.Case]:
    change = Mutated(np.random.default_rng(seed))
    short = [t for t in hostile.TEXTS if len(t) < 3000]
    texts = [change.of(change.pick(short)) for _ in range(count)]
    given = {"x": hostile.x, "v": hostile.v, "ids": hostile.ids, "s": hostile.s}
    return {f"{n}: {t[:80]!r}": lambda t=t: nf.expr(t, **given) for n, t in enumerate(texts)}


def test_some_mutated_texts():
    endings(mutations(0, 150))


@pytest.mark.slow
def test_many_mutated_texts():
    found = endings(mutations(1, 10_000))
    assert found["refused"] > found["right"] > 0


@pytest.mark.slow
def test_mutated_nouns():
    change, ends = Mutated(np.random.default_rng(2)), {"read": 0, "refused": 0}
    for value in hostile.nouns():
        for _ in range(300):
            try:
                type(value).from_text(change.of(value.to_text()))
                ends["read"] += 1
            except TextError:
                ends["refused"] += 1
    assert ends["refused"] > ends["read"]


def test_an_error_can_be_printed():
    error = NeoflowError("half a pair: \ud800", ("\udfff.py", 3))
    assert str(error).encode() and "\\ud800" in str(error)
