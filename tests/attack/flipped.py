"""Checkpoints with one bit flipped, with other content, and runs that are killed while they write one."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import neoflow as nf
from neoflow.errors import CheckpointError
from neoflow.runtime.parameters import get_value, set_value
from neoflow.train.checkpoint import Position, load_checkpoint, save_checkpoint
from tests.runtime.programs import Softmax, batches

WRITTEN = Position(712, 3, 17, {"seed": 1, "epoch": 3, "step": 17}, {"loss": 1.5, "accuracy": 0.25})


def flips(folder: Path, suffix: str, share: float = 1.0) -> Counter[str]:
    """Of the bits of a checkpoint's file, flipped one by one: how many load as it was or otherwise, are refused, fail.

    share: of the bits, taken evenly.
    """
    w = nf.parameter((5,), name="w", init=np.arange(5, dtype=np.float32))
    path = save_checkpoint(folder, [w], WRITTEN)
    file = path.with_suffix(suffix)
    good, found = file.read_bytes(), Counter[str]()
    every = round(1 / share)
    for bit in range(0, 8 * len(good), every):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        file.write_bytes(bad)
        found[_loaded(path, w)] += 1
    file.write_bytes(good)
    assert _loaded(path, w) == "as written"
    return found


def _loaded(path: Path, w: nf.Parameter) -> str:
    set_value(w, np.full(5, 9, np.float32))
    try:
        position = load_checkpoint(path, [w])
    except CheckpointError:
        return "refused" if (get_value(w) == 9).all() else "half loaded"
    except Exception as error:
        return f"raw {type(error).__name__}"
    return "as written" if position == WRITTEN and (get_value(w) == np.arange(5)).all() else "silently other"


def bits(trainer: nf.Trainer) -> str:
    digest = hashlib.sha256(repr(trainer.position).encode())
    for p in trainer.all_parameters:
        digest.update(get_value(p).tobytes())
    return digest.hexdigest()


def killed_runs(trials: int, seed: int) -> Counter[str]:
    """Runs killed at random, most of them while they save, then resumed: equal to the bit, other, or not resumed.

    Each run is a child of `fork`, so this is for a process without other threads of Python.
    """
    rng, found = random.Random(seed), Counter[str]()
    straight = Softmax().trainer(nf.Trainer)
    straight.fit(batches(), 3)
    wanted = bits(straight)
    for _ in range(trials):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            child = os.fork()
            if not child:
                Softmax().trainer(nf.Trainer, checkpoint=folder, checkpoint_every=1).fit(batches(), 3)
                os._exit(0)
            begun = time.monotonic()
            while not list(folder.iterdir()) and time.monotonic() < begun + 20:
                time.sleep(1e-4)
            time.sleep(rng.uniform(0, 0.15))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            left = [p.name for p in folder.iterdir() if p.name.startswith(".")]
            found["temporary files left"] += len(left)
            resumed = Softmax().trainer(nf.Trainer, checkpoint=folder, checkpoint_every=1)
            if any(p.suffix == ".json" and not p.name.startswith(".") for p in folder.iterdir()):
                resumed.resume()
                found["resumed"] += 1
            resumed.fit(batches(), 3)
            found["equal to the bit" if bits(resumed) == wanted else "other"] += 1
            names = sorted(p.name for p in folder.iterdir())
            found["tidy"] += len(names) == 4 and not any(n.startswith(".") for n in names)
    return found


if __name__ == "__main__":
    print(dict(killed_runs(int(sys.argv[1]), int(sys.argv[2]))))
