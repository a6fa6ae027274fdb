"""Processes that use one kernel cache, and are killed or crowd each other, where forks cost little.

`python -m tests.attack.publisher stopped | killed | crowd FOLDER SEED COUNT` prints how many trials there were; a wrong
answer, an exception and a warning end it with a traceback.
"""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from neoflow.code import Code, Entry, Fault, Workspace, kernel_symbol
from neoflow.runtime.cache import KernelCache

KEYS = 12
"""kernels that anybody publishes"""
CALLS = ("open", "write", "close", "rename", "unlink", "fstat", "utime", "mkdir")


def hashed(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def code(n: int) -> Code:
    """What the kernel of this number has to be called by."""
    return Code((Entry(f"{kernel_symbol(hashed(n))}_0", n + 1, False),), (Workspace(64 * n, True),), (Fault(n, 7),))


def library(numbers: tuple[int, ...], variant: int) -> bytes:
    """What stands for a shared library with these kernels; every process has its own."""
    return f"{variant}: {numbers}".encode() * 100


def some(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    return tuple(sorted(int(n) for n in rng.permutation(KEYS)[:count]))


def publish(cache: KernelCache, numbers: tuple[int, ...], variant: int) -> None:
    module = cache.publish(library(numbers, variant), {hashed(n): code(n) for n in numbers})
    for n in numbers:
        cache.remember(hashed(f"request {n}"), hashed(n))
        cache.certify(hashed(n), hashed(f"subgraph {n}"), module, {"verifier": str(n)})


def look(cache: KernelCache) -> int:
    """How many kernels are there, each of which has to be right."""
    found = 0
    for n in range(KEYS):
        key = cache.kernel_of(hashed(f"request {n}"))
        assert key in (None, hashed(n))
        module = cache.find(hashed(n))
        if module is not None:
            found += 1
            variant, _, _ = module.library.decode().partition(": ")
            numbers = tuple(k for k in range(KEYS) if hashed(k) in module.codes)
            assert n in numbers and module.codes[hashed(n)] == code(n)
            assert module.library == library(numbers, int(variant))
            certificate = cache.certificate(hashed(n), hashed(f"subgraph {n}"), module)
            assert certificate is None or (certificate["verifier"], certificate["module"]) == (str(n), module.name)
    return found


def stop_at(count: int) -> None:
    """End this process, as if it were killed, before its system call of this number."""
    left = [count]

    def counted(real):
        def call(*arguments, **named):
            left[0] -= 1
            if left[0] < 0:
                os._exit(1)
            return real(*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def recovered(folder: Path) -> None:
    """What is there is right, whatever is not can be published, and then all is there."""
    look(KernelCache(folder))
    cache = KernelCache(folder)
    publish(cache, tuple(range(KEYS)), 0)
    del cache
    assert look(KernelCache(folder)) == KEYS


def stopped(folder: Path, seed: int, count: int) -> int:
    """Killed before each of its system calls in turn, up to so many, or until there are no more."""
    for n in range(count):
        here = folder / str(n)
        child = os.fork()
        if not child:
            stop_at(n)
            publish(KernelCache(here), (1, 2, 3), seed)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        recovered(here)
        if status == 0:
            return n + 1
    return count


def killed(folder: Path, seed: int, count: int) -> int:
    """Killed at any moment while they publish, one after the other."""
    rng = np.random.default_rng(seed)
    for n in range(count):
        child = os.fork()
        if not child:
            cache = KernelCache(folder, 20_000)
            for m in range(10_000):
                publish(cache, some(rng, 3), 1000 * n + m)
        time.sleep(float(rng.uniform(0, 0.02)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        look(KernelCache(folder))
    recovered(folder)
    return count


def crowd(folder: Path, seed: int, count: int) -> int:
    """Six at once that publish, look, forget, make room and clear."""
    children = []
    for member in range(6):
        child = os.fork()
        if not child:
            rng, cache = np.random.default_rng((seed, member)), KernelCache(folder, 20_000 * (1 + member))
            try:
                for m in range(count):
                    numbers = some(rng, int(rng.integers(1, 4)))
                    publish(cache, numbers, 1000 * member + m)
                    gc.collect()
                    look(KernelCache(folder) if m % 2 else cache)
                    if m % 7 == 3:
                        cache.drop(hashed(numbers[0]))
                    if m % 50 == 49:
                        cache.clear()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    recovered(folder)
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    return count * len(children)


if __name__ == "__main__":
    warnings.simplefilter("error")
    kind, where, seed, count = sys.argv[1:]
    print({"stopped": stopped, "killed": killed, "crowd": crowd}[kind](Path(where), int(seed), int(count)))
