"""One timing at a time, whatever becomes of who has the turn."""

import subprocess
import sys
import tempfile
import time

from neoflow.measure.turn import turn

HOLDER = """
import time
from neoflow.measure.turn import turn
with turn() as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_turns_are_taken_one_after_the_other():
    with turn() as mine:
        assert mine
        with turn(patience=0.05) as second:
            assert not second
    with turn(patience=0.0) as again:
        assert again


def test_a_killed_process_gives_its_turn_back():
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with turn(patience=0.05) as mine:
        assert not mine
    holder.kill()
    holder.wait()
    holder.stdout.close()
    start = time.monotonic()
    with turn() as mine:
        assert mine and time.monotonic() - start < 1.0


def test_a_machine_without_a_folder_for_it(monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/no/such/folder")
    with turn() as mine:
        assert not mine
