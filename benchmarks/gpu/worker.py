"""Tasks in a process of their own: a kernel that never ends, or breaks the GPU for its process, costs one row.

    python -m benchmarks.gpu.worker

Questions are keys and settings, answers outcomes, a line of JSON each, on standard input and output.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu.rows import Outcome, Setting
from benchmarks.gpu.turns import Turns, taking

ROOT = Path(__file__).resolve().parents[2]
LATE = "its preparing took more than"
BROKEN = ("nothing runs on the GPU any more", "CUDA error", LATE)
"""In what a failure says: the process can do no more."""


class Failed(Exception):
    """A task that came to no end, in one sentence."""


class Worker:
    """A process that performs tasks, begun anew after one that ended it."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "benchmarks.gpu.worker")):
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def perform(self, key: str, setting: Setting, limit: float) -> Outcome:
        """One task, in so many seconds at most. Raises `Failed`."""
        if self._process is None or self._process.poll() is not None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=pipe, stdout=pipe)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"key": key, "setting": asdict(setting)}).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], limit)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise Failed(f"took more than {limit:.0f} s" if not ready else f"its process ended: {process.returncode}")
        answer = json.loads(line)
        if "failure" in answer:
            if any(words in answer["failure"] for words in BROKEN):
                self.close()
            raise Failed(answer["failure"])
        return Outcome(**answer)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def failure(error: Exception) -> str:
    """What went wrong, in a line."""
    said = f"{type(error).__name__}: {error}".strip()
    return " ".join(said.split())[:400]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    from benchmarks.gpu.tasks import TASKS

    tasks = {task.key: task for task in TASKS}

    def late() -> None:
        print(json.dumps({"failure": f"{LATE} {setting.limit:.0f} s"}), file=answers, flush=True)
        os._exit(1)

    for line in sys.stdin:
        question = json.loads(line)
        setting = Setting(**question["setting"])
        turns = taking(Turns(Path(setting.lock), setting.limit, late)) if setting.lock else nullcontext()
        try:
            with turns:
                answer = asdict(tasks[question["key"]].run(setting))
        except Exception as error:  # the row says so, and the others go on
            answer = {"failure": failure(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
