"""A worker whose requests are faults: `python -m tests.tune.wild PLACE`."""

import ctypes
import os
import signal
import subprocess
import sys
import time

from neoflow.tune import process
from neoflow.tune.serving import serve


def hold_the_lock() -> None:
    ctypes.PyDLL(None).sleep(600)


def loop() -> None:
    while True:
        pass


def eat() -> None:
    held = []
    while True:
        held.append(bytearray(b"x" * (1 << 24)))


HELD = 160 << 20
"""Bytes: of a process that are too many with those of another one, and not by themselves."""


def have_children_eat() -> None:
    """Two of them, and one whose parent is gone."""
    eats = f"import time; held = b'x' * {HELD}; time.sleep(600)"
    for command in ([sys.executable, "-c", eats], ["sh", "-c", '"$0" -c "$1" & exit', sys.executable, eats]):
        subprocess.Popen(command)
    time.sleep(600)


def share(count: int, seconds: float) -> None:
    """Memory with so many children, which write none of it."""
    held = b"x" * HELD
    children = []
    for _ in range(count):
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(seconds)
            os._exit(held[0] - ord("x"))
    for child in children:
        os.waitpid(child, 0)


def ignore_signals() -> None:
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(s, signal.SIG_IGN)
    time.sleep(600)


def scribble() -> None:
    """Write on the channel what is no message."""
    os.write(int(sys.argv[1].split(":")[0]), b"\xff" * 4096)
    time.sleep(600)


def print_much() -> None:
    while True:
        os.write(1, b"nonsense " * 10000)


FAULTS = {
    "hang": lambda: time.sleep(600),
    "lock": hold_the_lock,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "loop": loop,
    "ignore": ignore_signals,
    "print": print_much,
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "exit": lambda: os._exit(3),
    "scribble": scribble,
    "memory": eat,
    "family": have_children_eat,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raise": lambda: [][1],
    "close": lambda: os.close(int(sys.argv[1].split(":")[0])),
}


EXPECTED = {  # of the others only the deadline makes an end
    "segfault": ("crash", "SIGSEGV"),
    "abort": ("crash", "SIGABRT"),
    "exit": ("crash", "exited with status 3"),
    "scribble": ("crash", "no message"),
    "memory": ("memory", "MiB of memory"),
    "family": ("memory", "MiB of memory of its group"),
    "killed": ("crash", "SIGKILL"),
    "print": ("crash", "File too large"),
    "raise": ("crash", "IndexError"),
    "close": ("crash", ""),
}
"""Outcomes, and what is in their reasons."""


remembered: list[str] = []


def handle(message, data):
    if message["do"] == "remember":
        remembered.append("it")
    if message["do"] == "forget":
        remembered.clear()
    if message["do"] == "recall":
        return ({"remembered": len(remembered)} if remembered else {"forgotten": True}), b""
    if message["do"] in FAULTS:
        FAULTS[message["do"]]()
    if message["do"] == "print once":
        print('{"do": "this is no message"}', flush=True)
    if message["do"] == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return {"child": child.pid}, b""
    if message["do"] == "share":
        share(2, 4 * process.GROUP)
    return {"said": message.get("say"), "pid": os.getpid()}, data


if __name__ == "__main__":
    serve(handle, sys.argv[1])
