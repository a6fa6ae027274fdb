"""Processes that keep records of tuning while they are killed, and files of records that damage has come to.

`python -m tests.attack.recorder killed FOLDER SEED COUNT` and `flipped ...` print what they count as JSON.
A child is one of `fork`, so this is for a process without other threads of Python.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from neoflow.tune import Trial
from neoflow.tune.records import Records, RecordWarning
from tests.tune.candidates import TARGET, product, softmax, trials

WRITERS = 2


def records_of(folder: Path) -> Records:
    return Records(folder / "records.sqlite", lambda name: f"first {name}")


def candidates(writer: int, count: int) -> list[Trial]:
    """What a writer measures, in its order."""
    return trials(product(16 + writer, 24, 32), count, seed=writer)


def write(folder: Path, writer: int, some: Sequence[Trial], said: Path) -> None:
    """Keep trials in batches, what is there already left out; a line is written to a file for what was acknowledged."""
    records, subgraph = records_of(folder), product(16 + writer, 24, 32)
    known = {t.schedule for t in records.trials(subgraph, TARGET)}
    left = [(n, t) for n, t in enumerate(some) if t.schedule not in known]
    log = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    rng = random.Random(writer)
    while left:
        size = rng.randint(1, 8)
        batch, left = left[:size], left[size:]
        os.write(log, "".join(f"measured {n}\n" for n, _ in batch).encode())
        if not records.add(subgraph, TARGET, [t for _, t in batch]):
            os._exit(3)
        os.write(log, "".join(f"kept {n}\n" for n, _ in batch).encode())
    os._exit(0)


def killed(folder: Path, seed: int, count: int) -> Counter[str]:
    """Two writers, killed at any moment, one or both, so many times; then let run to their end."""
    rng, found = random.Random(seed), Counter[str]()
    many = [candidates(w, 10 * count) for w in range(WRITERS)]
    kills = 0
    while kills < count:
        children, sizes = {}, said_bytes(folder)
        for writer in range(WRITERS):
            child = os.fork()
            if not child:
                warnings.simplefilter("error")
                try:
                    write(folder, writer, many[writer], folder / f"said-{writer}")
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    os._exit(2)
            children[writer] = child
        begun, after = time.monotonic(), rng.choice((0.0, 1.0)) * rng.uniform(0, 0.05)
        while said_bytes(folder) == sizes and time.monotonic() < begun + (2.0 if after else rng.uniform(0, 0.2)):
            time.sleep(1e-3)
        time.sleep(after)
        for writer in rng.sample(sorted(children), rng.randint(1, WRITERS)):
            os.kill(children[writer], signal.SIGKILL)
            kills += 1
            time.sleep(rng.uniform(0, 0.01))
        time.sleep(rng.uniform(0, 0.02))
        for child in children.values():
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            found["failed"] += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
            found["had ended"] += os.WIFEXITED(status)
        found += judged(folder, many)
    found["kills"] = kills
    measured = [line for w in range(WRITERS) for line in (folder / f"said-{w}").read_text().splitlines()]
    found["acknowledged"] = sum(line.startswith("kept") for line in measured)
    return found


def said_bytes(folder: Path) -> int:
    """How much the writers have said."""
    return sum(p.stat().st_size for p in folder.glob("said-*"))


def judged(folder: Path, many: Sequence[Sequence[Trial]]) -> Counter[str]:
    """Of what was acknowledged so far: what is lost, what is other than it was, and what was measured again."""
    found = Counter[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = records_of(folder)
        for writer, some in enumerate(many):
            there = {t.schedule: t for t in records.trials(product(16 + writer, 24, 32), TARGET)}
            said = folder / f"said-{writer}"
            lines = [line.split() for line in said.read_text().splitlines()] if said.exists() else []
            kept = [int(n) for what, n in lines if what == "kept"]
            found["lost"] += sum(some[n].schedule not in there for n in kept)
            found["other"] += sum(there.get(some[n].schedule, some[n]) != some[n] for n in kept)
            first = {n: at for at, (what, n) in reversed(list(enumerate(lines))) if what == "kept"}
            found["measured again"] += sum(
                what == "measured" and n in first and first[n] < at for at, (what, n) in enumerate(lines)
            )
        records.close()
    found["warnings"] += len(caught)
    return found


# --- damage


def whole(folder: Path) -> dict[str, bytes]:
    """A file of records whose last trials are in its WAL, as a process that was killed leaves it."""
    here = folder / "good"
    here.mkdir()
    records = records_of(here)
    records.add(product(), TARGET, trials(product(), 60))
    records.add_foreign(softmax(), TARGET, trials(softmax(), 10))
    records.close()
    records.add(product(16, 24, 8), TARGET, trials(product(16, 24, 8), 20))
    files = {p.name: p.read_bytes() for p in here.iterdir() if not p.name.endswith("-shm")}
    records.close()
    assert set(files) == {"records.sqlite", "records.sqlite-wal", "records.sqlite.lock"}
    return files


def asked(records: Records) -> list[object]:
    """All that can be asked; and what is kept afterwards."""
    said: list[object] = []
    for subgraph in (product(), product(16, 24, 8), softmax()):
        said += [*records.trials(subgraph, TARGET), records.best(subgraph, TARGET)]
        said += [*records.to_measure(subgraph, TARGET), *records.relatives(subgraph, TARGET)]
    said += list(records.entries())
    return said


def flipped(folder: Path, seed: int, count: int) -> Counter[str]:
    """Bytes changed, one at a time: what is read is what was written, or is missed with a word, and all goes on."""
    rng, found, files = random.Random(seed), Counter[str](), whole(folder)
    wanted = {repr(said) for said in asked_of(folder / "straight", files)[0]}
    places = [(name, at) for name in files for at in range(len(files[name]))]
    more = trials(product(), 61)[60:]
    for name, at in rng.sample(places, count):
        data = bytearray(files[name])
        data[at] ^= rng.randint(1, 255)
        here = folder / "work"
        shutil.rmtree(here, ignore_errors=True)
        try:
            said, complaints, records = asked_of(here, {**files, name: bytes(data)})
            is_kept = records.add(product(), TARGET, more)
            there = more[0] in records_of(here).trials(product(), TARGET)
            again = asked_of(here, {})[1]
        except Exception as error:
            found[f"raw {type(error).__name__}: {error} at {at} of {name}"] += 1
            continue
        trials_said = {repr(s) for s in said if isinstance(s, Trial)}
        found["false"] += bool(trials_said - wanted)
        missed = {w for w in wanted if w.startswith("Trial(")} - trials_said
        found["with something missing"] += bool(missed)
        found["missing without a word"] += bool(missed) and not complaints
        found["more than one warning"] += len(complaints) > 1
        found["warned"] += len(complaints) == 1
        found["not usable afterwards"] += not (is_kept and there)
        found["warned again"] += len(again) > 0
        found[f"of {name}"] += 1
    return found


def asked_of(folder: Path, files: dict[str, bytes]) -> tuple[list[object], list[str], Records]:
    """What records say over these files, and the warnings."""
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = records_of(folder)
        said = asked(records)
        records.count()
    assert all(w.category is RecordWarning for w in caught), [str(w.message) for w in caught]
    return said, [str(w.message) for w in caught], records


if __name__ == "__main__":
    kind, where, seed, count = sys.argv[1:]
    print(json.dumps({"killed": killed, "flipped": flipped}[kind](Path(where), int(seed), int(count))))
