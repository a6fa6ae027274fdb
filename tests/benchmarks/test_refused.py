"""What the commands that measure row by row do not take, before they begin."""

import pytest

from benchmarks import operators
from benchmarks.recurrences import __main__ as recurrences


@pytest.mark.parametrize("command", [operators, recurrences])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dry", "--write"], "a dry run measures nothing that could be written"),
        (["--rows", "("], "--rows '(' is no regular expression"),
    ],
)
def test_what_it_does_not_take(command, arguments, said, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err
