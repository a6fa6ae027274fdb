"""How an expression is refused: the message, at the line of whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neoflow.errors import ExpressionError


def check_refusal(call: Callable[[], object], message: str, file: str) -> None:
    """`call`, which is written in `file`, raises an `ExpressionError` that says `message` and where it is written."""
    with pytest.raises(ExpressionError) as caught:
        call()
    assert message in str(caught.value)
    assert f"{Path(file).name}:" in str(caught.value)
