"""Programs that run on whatever lies in a kernel cache, each time in a process of its own that may crash or hang.

`python -m tests.attack.victim` reads a line of JSON for each run, {"folder": path, "check": bool, "programs": [name],
"between": command, "refusing": errno}, forks, and writes what came of it: {"outcome": "right" | "wrong" | "error" |
"raw" | "crash" | "hang", ...}. The command is run after the first program, by nobody where this user is root. What
changes a disk is refused with that number, unless it is 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attack.damage import IS_ROOT, NOBODY

SECONDS = 60
"""of a run that does not end"""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """What came of a run: how it ended, kernels that were compiled, warnings, the message of an error."""

    outcome: str
    built: int = 0
    warnings: tuple[str, ...] = ()
    message: str = ""


class Victim:
    """A server that forks for each run; after a command of the shell that sees to what is mounted for it alone."""

    def __init__(self, mounting: str | None = None, **environment: str) -> None:
        command = [sys.executable, "-m", "tests.attack.victim"]
        if mounting is not None:
            command = ["unshare", "--mount", "sh", "-c", f'{mounting} && exec "$@"', "sh", *command]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self._process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, **pipes)

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()

    def run(
        self,
        folder: Path,
        check: bool = False,
        programs: tuple[str, ...] | None = None,
        between: list[str] | None = None,
        refusing: int = 0,
    ) -> Outcome:
        asked = {"folder": str(folder), "check": check, "programs": programs, "between": between, "refusing": refusing}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        found = json.loads(self._process.stdout.readline())
        return Outcome(**{**found, "warnings": tuple(found.get("warnings", ()))})


def programs() -> dict[str, Any]:
    """By name: how a program is made. They are called alike, so that one in place of another shows in the values."""
    import numpy as np

    import neoflow as nf

    value = np.linspace(0.5, 2.0, 35, dtype=np.float32).reshape(7, 5)

    def of(function):
        x = nf.placeholder((7, 5), name="x")
        y = function(x)
        return y, [x], [value], nf.evaluate([y], {x: value})[0]

    def gather():
        x, ids = nf.placeholder((7, 5), name="x"), nf.placeholder((7,), "int32", name="ids")
        y = nf.compute((7, 5), lambda i, j: x[ids[i], j])
        feeds = {x: value, ids: np.arange(7, dtype=np.int32)[::-1].copy()}
        return y, [x, ids], list(feeds.values()), nf.evaluate([y], feeds)[0]

    return {
        "triple": lambda: of(lambda x: x * 3.0),
        "less": lambda: of(lambda x: x - 1.0),
        "exp": lambda: of(nf.exp),
        "gather": gather,
        "square": lambda: of(lambda x: x * x),
        "root": lambda: of(nf.sqrt),
        "inverse": lambda: of(lambda x: 1.0 / x),
        "scaled": lambda: of(lambda x: x / nf.sum(x, axis=1, keepdims=True)),
    }


def refuse(number: int) -> None:
    """From now on no call of the system changes what is on a disk."""

    def refused(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if real.__name__ != "open" or arguments[1] & os.O_CREAT:
                raise OSError(number, os.strerror(number))
            return real(*arguments, **named)

        return call

    for name in ("open", "utime", "unlink", "rename", "mkdir"):
        setattr(os, name, refused(getattr(os, name)))


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Compile and run the programs as they are asked for."""
    import numpy as np

    import neoflow as nf

    os.environ |= {
        "NEOFLOW_CACHE_DIR": asked["folder"],
        "NEOFLOW_CHECK": str(int(asked["check"])),
        "NEOFLOW_THREADS": "2",
    }
    built, wrong, made = 0, [], programs()
    if asked["refusing"]:
        refuse(asked["refusing"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for number, name in enumerate(asked["programs"] or made):
                if number == 1 and asked["between"]:
                    user = {"user": NOBODY, "group": NOBODY} if IS_ROOT else {}
                    subprocess.run(asked["between"], check=False, capture_output=True, **user)
                y, inputs, arrays, wanted = made[name]()
                f = nf.compile([y], inputs)
                built += f.compiled.built
                if not np.allclose(f(*arrays)[0], wanted, rtol=1e-5):
                    wrong.append(name)
            outcome, message = ("wrong" if wrong else "right"), " ".join(wrong)
        except nf.NeoflowError as error:
            outcome, message = "error", f"{type(error).__name__}: {error}"
        except BaseException as error:
            outcome, message = "raw", f"{type(error).__name__}: {error}"
    return {"outcome": outcome, "built": built, "warnings": [str(w.message) for w in caught], "message": message}


def forked(asked: dict[str, Any]) -> dict[str, Any]:
    """What comes of a run in a child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with os.fdopen(writer, "w") as out:
            json.dump(run(asked), out)
        os._exit(0)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(SECONDS)
    start = time.monotonic()
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    signal.alarm(0)
    if text:
        return json.loads(text)
    return {"outcome": "hang" if time.monotonic() - start > SECONDS - 1 else "crash"}


def main() -> None:
    import neoflow
    from neoflow import codegen

    assert neoflow and codegen.team_key()  # the compiler is loaded, so that no child has to
    for line in sys.stdin:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
