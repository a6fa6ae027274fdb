"""Texts that are broken, by chance or on purpose: each is a value that passes its check, or one error with a place."""

import numpy as np
import pytest

from neoflow.errors import TextError
from tests.chance import Chance
from tests.strategies import random_program
from tests.text.nouns import TARGET, nouns_of

PIECES = [
    *("(", ")", "[", "]", ",", ":", "=", "<", "<=", "-", "+", "*", "/", "//", "%", "&", "|", "~", "@", "#", "$", '"'),
    *(
        "\\",
        "\n",
        "\0",
        "\t",
        "é",
        "0",
        "1",
        "-1",
        "7",
        "64",
        "9223372036854775807",
        "1e400",
        "0.5",
        "1e-05",
        "inf",
        "nan",
    ),
    *(
        "True",
        "None",
        "select",
        "cast",
        "sum",
        "argmax",
        "scatter",
        "exp",
        "maximum",
        "float32",
        "float64",
        "int8",
        "int64",
    ),
    *(
        "bool",
        "at=[",
        "where",
        "e0",
        "e1",
        "in0",
        "in1",
        "v1",
        "v2",
        "v3",
        "x0",
        "t0",
        "i",
        "j",
        "k",
        "r",
        "i<1",
        "i<0",
    ),
    *("#5", "#5<3", "$0", "$1", "reads", "axes", "outputs", "inputs", "update", "rows", "Buffer(", "Call(", "name="),
    *("kind=", "offset=", "neoflow", "placeholder", "parameter"),
]


class Mutation(Chance):
    """A few edits of a text."""

    def of(self, text: str, others: list[str]) -> str:
        for _ in range(self.between(1, 4)):
            text = self.pick((self.cut, self.put, self.moved, self.digits, self.lines))(text)
        if self.chance(0.1):
            other = self.pick(others)
            text = text[: self.between(0, len(text))] + other[self.between(0, len(other)) :]
        return text

    def span(self, text: str) -> tuple[int, int]:
        start = self.between(0, len(text))
        return start, min(len(text), start + self.pick((0, 1, 1, 2, 5, 20)))

    def cut(self, text: str) -> str:
        a, b = self.span(text)
        return text[:a] + text[b:]

    def put(self, text: str) -> str:
        a, b = self.span(text) if self.chance(0.5) else (self.between(0, len(text)),) * 2
        return text[:a] + self.pick(PIECES) + text[b:]

    def moved(self, text: str) -> str:
        (a, b), at = self.span(text), self.between(0, len(text))
        return text[:at] + text[a:b] + text[at:]

    def digits(self, text: str) -> str:
        places = [n for n, c in enumerate(text) if c.isdigit()]
        if not places:
            return text
        n = self.pick(places)
        return text[:n] + str(self.between(0, 9)) + text[n + 1 :]

    def lines(self, text: str) -> str:
        lines = text.split("\n")
        a, b = self.between(0, len(lines) - 1), self.between(0, len(lines) - 1)
        match self.between(0, 2):
            case 0:
                lines[a], lines[b] = lines[b], lines[a]
            case 1:
                del lines[a]
            case 2:
                lines.insert(a, lines[b])
        return "\n".join(lines)


def broken_texts_are_refused(seeds, mutations: int) -> dict[str, int]:
    found = {"read": 0, "refused": 0}
    for seed in seeds:
        program = random_program(seed)
        nouns = nouns_of(program.outputs, list(program.feeds))
        values = [nouns.written, nouns.graph, nouns.plan, TARGET, *nouns.subgraphs, *nouns.subgraphs, *nouns.schedules]
        texts = [v.to_text() for v in values]
        change = Mutation(np.random.default_rng(seed))
        for _ in range(mutations):
            n = change.between(0, len(values) - 1)
            text = change.of(texts[n], texts)
            try:
                value = type(values[n]).from_text(text)
            except TextError as e:
                assert 1 <= e.line <= text.count("\n") + 1 and e.column >= 1
                found["refused"] += 1
            else:
                assert type(value).from_text(value.to_text()).to_text() == value.to_text()
                getattr(value, "check", lambda: None)()
                found["read"] += 1
    return found


def test_broken_texts_are_refused():
    found = broken_texts_are_refused(range(5), 40)
    assert found["refused"] > found["read"] > 0


@pytest.mark.slow
def test_many_broken_texts_are_refused():
    found = broken_texts_are_refused(range(100, 200), 60)
    assert found["refused"] > found["read"] > 0
