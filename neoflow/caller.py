"""Where the user is: the line that an error is about."""

from __future__ import annotations

import os
import sys
from types import FrameType

from neoflow.errors import Location

_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep
_COMMANDS = os.path.join(_ROOT, "commands") + os.sep


def caller() -> Location | None:
    """File and line of the innermost frame outside the package: where the user wrote it; None where a command did."""
    frame: FrameType | None = sys._getframe(1)
    inside: FrameType | None = None
    while frame is not None and frame.f_code.co_filename.startswith(_ROOT):
        frame, inside = frame.f_back, frame
    if frame is None or (inside is not None and inside.f_code.co_filename.startswith(_COMMANDS)):
        return None
    return frame.f_code.co_filename, frame.f_lineno
