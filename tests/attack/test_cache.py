"""The kernel cache under attack: whatever befalls its files, its disk and its folder, programs are right.

A run is right, compiles what it cannot use, warns once at most for each thing it does without, and the next one is
right without a word. Nothing outside of the folder changes.
"""

import errno
import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from neoflow.runtime.cache import CacheWarning, KernelCache
from neoflow.runtime.records import packed, sealed, unpacked, unsealed
from tests.attack import damage
from tests.attack.publisher import KEYS, look, publish
from tests.attack.victim import Victim

FEW = ("triple", "less", "gather")
"""programs of a run that need not be many"""
CAN_MOUNT = damage.IS_ROOT and not subprocess.run(["sh", "-c", "unshare --mount true"], capture_output=True).returncode
"""Else disks are not what they are said to be, but calls of the system fail as if they were."""


@pytest.fixture(scope="module")
def victim():
    with Victim() as server:
        yield server


@pytest.fixture(scope="module")
def good(victim, tmp_path_factory):
    """A cache with all programs and their certificates."""
    folder = tmp_path_factory.mktemp("attack") / "good"
    assert victim.run(folder, check=True).outcome == "right"
    assert len(list(folder.glob("*.certificate"))) == 8
    return folder


@pytest.fixture
def outside(tmp_path):
    """What lies where a path with `..` would lead from a cache in `tmp_path / "work"`, and has to stay."""
    names = ["main", "main.o", "main.module", "main.kernel"]
    (tmp_path / "project").mkdir()
    for name in names:
        (tmp_path / "project" / name).write_text(name)
    yield
    assert {p.name: p.read_text() for p in (tmp_path / "project").iterdir()} == {name: name for name in names}


def survives(victim, folder, what, check=True, programs=None):
    """A run is right whatever was done, with one warning at most, and so is the next, with none."""
    first = victim.run(folder, check, programs)
    assert first.outcome == "right" and len(first.warnings) <= 1, f"{what}: {first}"
    again = victim.run(folder, check, programs)
    assert (again.outcome, again.built, again.warnings) == ("right", 0, ()), f"{what}: {again}"
    return first


def exchange(victim, good, work, pairs):
    for a, b in pairs:
        copy = damage.copied(good, work)
        (copy / b.name).write_bytes(a.read_bytes())
        found = survives(victim, copy, f"{a.name} over {b.name}")
        assert found.warnings and "is damaged" in found.warnings[0]
    return len(pairs)


@pytest.mark.tvm
def test_some_files_in_place_of_others(victim, good, tmp_path):
    assert exchange(victim, good, tmp_path / "work", damage.drawn(damage.exchanges(good), 1, 1)) == 1


@pytest.mark.slow
@pytest.mark.tvm
def test_220_files_in_place_of_others(victim, good, tmp_path):
    assert exchange(victim, good, tmp_path / "work", damage.drawn(damage.exchanges(good), 220, 0)) == 220


def befallen(victim, good, work, cases):
    for path, what in cases:
        copy = damage.copied(good, work)
        damage.befall(copy / path.name, what)
        survives(victim, copy, f"{what} in place of {path.name}", programs=FEW)
    return len(cases)


def hostile(folder):
    return [(path, what) for path in damage.files(folder) for what in damage.HOSTILE]


@pytest.mark.tvm
def test_some_foreign_things_in_place_of_files(victim, good, tmp_path, outside):
    assert befallen(victim, good, tmp_path / "work", damage.drawn(hostile(good), 1, 0)) == 1


@pytest.mark.slow
@pytest.mark.tvm
def test_300_foreign_things_in_place_of_files(victim, good, tmp_path, outside):
    assert befallen(victim, good, tmp_path / "work", damage.drawn(hostile(good), 300, 1)) == 300


@pytest.mark.slow
@pytest.mark.tvm
def test_200_bits_under_programs(victim, good, tmp_path):
    for path, bit in damage.drawn(bits(good), 200, 0):
        copy = damage.copied(good, tmp_path / "work")
        damage.flip(copy / path.name, bit)
        survives(victim, copy, f"bit {bit} of {path.name}", programs=FEW)


def bits(folder):
    """Every bit of the records, and as many of the modules."""
    records = [(p, b) for p in damage.files(folder) if p.suffix != ".module" for b in range(8 * p.stat().st_size)]
    modules = [(p, b) for p in folder.glob("*.module") for b in range(8 * p.stat().st_size)]
    return records + damage.drawn(modules, len(records), 0)


@pytest.fixture
def small(tmp_path):
    """A cache of a dozen kernels in four modules, at its own level: no program runs."""
    cache = KernelCache(tmp_path / "small")
    for first in range(0, KEYS, 3):
        publish(cache, (first, first + 1, first + 2), first)
    assert look(KernelCache(tmp_path / "small")) == KEYS
    return tmp_path / "small"


def reads(folder, path, what):
    """What is found is right, with one warning at most; that file alone and what leads to it is lost."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = look(KernelCache(folder))
    assert len(caught) <= 1 and all(w.category is CacheWarning for w in caught), f"{what}: {caught}"
    assert found >= KEYS - (3 if path.suffix == ".module" else 1), what
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look(KernelCache(folder))
    for name in (path, *folder.glob(".old-*")):
        subprocess.run(["rm", "-r", str(name)]) if name.is_dir() and not name.is_symlink() else name.unlink(True)
    return len(caught)


def restored(folder, kept):
    """Put back what was there."""
    for name, data in kept.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o600)


def contents(folder):
    return {p.name: p.read_bytes() for p in damage.files(folder)}


def flips(folder, cases):
    kept, noticed = contents(folder), 0
    for path, bit in cases:
        damage.flip(path, bit)
        noticed += reads(folder, path, f"bit {bit} of {path.name}")
        restored(folder, kept)
    assert noticed == len(cases)


def test_bits(small):
    flips(small, damage.drawn(bits(small), 60, 0))


@pytest.mark.slow
def test_4000_bits(small):
    flips(small, damage.drawn(bits(small), 4000, 1))


def exchanges(folder):
    """Every file in place of every other."""
    names = contents(folder)
    return [(a, b) for a in names for b in names if a != b]


def exchanged(folder, cases):
    kept = contents(folder)
    for a, b in cases:
        (folder / b).write_bytes(kept[a])
        assert reads(folder, folder / b, f"{a} over {b}") == 1
        restored(folder, kept)


def test_files_in_place_of_others(small):
    exchanged(small, damage.drawn(exchanges(small), 40, 0))


@pytest.mark.slow
def test_every_file_in_place_of_every_other(small):
    assert len(exchanges(small)) == 1560
    exchanged(small, exchanges(small))


def endure(folder, cases):
    kept = contents(folder)
    for path, what in cases:
        damage.befall(path, what)
        reads(folder, path, f"{what} in place of {path.name}")
        restored(folder, kept)


def test_foreign_things(small, outside, tmp_path):
    endure(small, damage.drawn(hostile(small), 40, 0))


@pytest.mark.slow
def test_every_foreign_thing_in_place_of_every_file_twice(small, outside, tmp_path):
    cases, under_seals = hostile(small), sealed_bodies(small)
    assert 2 * len(cases) + len(under_seals) > 3400
    for _ in range(2):
        endure(small, cases)
    under_seal(small, under_seals)


def sealed_bodies(folder):
    """Whoever knows how records are sealed can say anything."""
    records = [p for p in damage.files(folder) if p.suffix != ".module"]
    return [(path, what) for path in records for what in damage.BODIES if what != "another hash"]


def under_seal(folder, cases):
    kept = contents(folder)
    for path, what in cases:
        path.write_bytes(under_a_seal(path.name, damage.BODIES[what]))
        reads(folder, path, f"{what} under the seal of {path.name}")
        restored(folder, kept)


def test_foreign_things_under_a_seal(small, outside):
    under_seal(small, damage.drawn(sealed_bodies(small), 60, 0))


def published(kind, folder, seed, count):
    command = [sys.executable, "-m", "tests.attack.publisher", kind, str(folder), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_killed_before_each_of_its_system_calls(tmp_path):
    assert 30 < published("stopped", tmp_path, 0, 500) < 500


def test_killed_while_it_publishes(tmp_path):
    assert published("killed", tmp_path, 0, 8) == 8


def test_a_crowd(tmp_path):
    assert published("crowd", tmp_path, 0, 3) == 18


@pytest.mark.slow
def test_killed_182_times_while_it_publishes(tmp_path):
    assert published("killed", tmp_path, 1, 182) == 182


@pytest.mark.slow
def test_a_large_crowd(tmp_path):
    assert published("crowd", tmp_path, 1, 200) == 1200


@pytest.fixture(scope="module")
def disks(good, tmp_path_factory):
    """A victim with a cache that can only be read, one of those that lacks a request, and a full disk in `folder`; its
    temporary files would go to another, which holds no programs."""
    folder = tmp_path_factory.mktemp("disks")
    mounting = []
    for name in ("whole", "lacking"):
        copy = damage.copied(good, folder / name)
        for path in damage.files(copy):
            os.utime(path, (1e9, 1e9))  # used long ago: it cannot be marked
        mounting += [f"mount --bind {copy} {copy}", f"mount -o remount,bind,ro {copy}"]
    next((folder / "lacking").glob("*.request")).unlink()
    for name, options in (("full", "size=120k,mode=700"), ("tmp", "size=4k,noexec")):
        (folder / name).mkdir()
        mounting.append(f"mount -t tmpfs -o {options} none {folder / name}")
    mounting.append(f"head -c 4096 /dev/zero > {folder / 'tmp' / 'x'}")
    tmp = folder / "tmp" if CAN_MOUNT else folder / "nowhere"
    with Victim(" && ".join(mounting) if CAN_MOUNT else None, TMPDIR=str(tmp)) as server:
        yield server, folder


@pytest.mark.tvm
def test_a_disk_that_can_only_be_read(disks):
    """What is there is used without a word; what is not is compiled, and run from memory."""
    (victim, folder), refusing = disks, 0 if CAN_MOUNT else errno.EROFS
    for check in (False, True):
        found = victim.run(folder / "whole", check, refusing=refusing)
        assert (found.outcome, found.built, found.warnings) == ("right", 0, ())
    found = victim.run(folder / "lacking", refusing=refusing)
    assert found.outcome == "right" and len(found.warnings) == 1
    assert "cannot be written: Read-only file system; every process compiles what is not there" in found.warnings[0]


@pytest.mark.tvm
def test_a_disk_that_is_full(disks):
    (victim, folder), refusing = disks, 0 if CAN_MOUNT else errno.ENOSPC
    (folder / "full").chmod(0o700)
    for _ in range(2):
        found = victim.run(folder / "full", check=True, refusing=refusing)
        assert found.outcome == "right" and len(found.warnings) == 1
        assert "cannot be written: No space left on device" in found.warnings[0]
    assert 0 < found.built < 9 + (not CAN_MOUNT)  # what found room is used


@pytest.mark.tvm
def test_nothing_needs_temporary_files(disks):
    victim, folder = disks
    for built in (len(FEW), 0):
        found = victim.run(folder / "new", programs=FEW)
        assert (found.outcome, found.built, found.warnings) == ("right", built, ())


NUMBERS = [pytest.param(n, marks=pytest.mark.slow) for n in (errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, *NUMBERS])
@pytest.mark.parametrize("name", ["open", "write", "rename", "utime", "unlink", "fstat", "read"])
def test_any_call_that_fails_from_some_moment_on(small, monkeypatch, number, name):
    """It may say so once for reading and once for writing, and whatever it gives is right."""
    real, left = getattr(os, name), [0]

    def failing(*arguments, **named):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))
        return real(*arguments, **named)

    monkeypatch.setattr(os, name, failing)
    for start in (0, 1, 2, 5, 20):
        left[0] = 10_000
        cache = KernelCache(small)
        left[0] = start
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            look(cache)
            publish(cache, (1, 2, 3), 7)
        assert len(caught) <= 2 and len({str(w.message) for w in caught}) == len(caught)
    left[0] = 10_000
    look(KernelCache(small))


def under_a_seal(name, body):
    """As `sealed`, of any bytes."""
    return hashlib.sha256(name.encode() + b"\n" + body).hexdigest().encode() + b"\n" + body


def forged(good, to):
    """A cache that is in order, but for what is in its modules."""
    to.mkdir(mode=0o755)
    for path in damage.files(good):
        (to / path.name).write_bytes(path.read_bytes())
    for path in good.glob("*.kernel"):
        name = unsealed(path.name, path.read_bytes())["module"]
        codes = unpacked(name, (good / f"{name}.module").read_bytes()).codes
        module, data = packed(b"what another user would have run", codes)
        (to / f"{module.name}.module").write_bytes(data)
        (to / path.name).write_bytes(sealed(path.name, {"module": module.name}))
    return to


def reachable(folder):
    """A folder that other users can come to, through those of this run that only we can enter."""
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o111)
    return folder


@pytest.mark.tvm
@pytest.mark.parametrize("shared", [0o777, 0o1777])
def test_another_user_puts_a_cache_in_place_of_one(victim, good, tmp_path_factory, shared):
    """In the middle of a process: where that can be done, nothing is kept or taken from there."""
    top = reachable(tmp_path_factory.mktemp("shared"))
    (top / "open").mkdir()
    (top / "open").chmod(shared)
    theirs, folder = forged(good, top / "open" / "theirs"), top / "open" / "kernels"
    for path in (theirs, *theirs.iterdir()) if damage.IS_ROOT else ():
        os.chown(path, damage.NOBODY, damage.NOBODY)
    between = ["sh", "-c", f"mkdir -p {folder}; mv {folder} {folder}.old; mv {theirs} {folder}"]
    found = victim.run(folder, programs=FEW, between=between)
    assert (found.outcome, found.built) == ("right", len(FEW)), found
    assert len(found.warnings) == (shared == 0o777)
    can_be_done = shared == 0o777 or not damage.IS_ROOT
    assert theirs.exists() != can_be_done and folder.exists()


def test_files_of_another_user_are_not_believed(small):
    said = rf"can be written by others \(mode 600, owner {damage.NOBODY}\)"
    with damage.given_away(*damage.files(small)), pytest.warns(CacheWarning, match=said) as found:
        assert look(KernelCache(small)) == 0
    assert len(found) == 1


def test_a_cache_that_root_has_filled_serves_other_users(tmp_path_factory):
    """As in an image of a container: they read it, and cannot write there."""
    top = reachable(tmp_path_factory.mktemp("image"))
    publish(KernelCache(top / "kernels"), tuple(range(KEYS)), 0)
    (top / "kernels").chmod(0o755)
    for path in damage.files(top / "kernels"):
        path.chmod(0o644)
        os.utime(path, (1e9, 1e9))
    with damage.only_reading(top / "kernels"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert look(KernelCache(top / "kernels")) == KEYS
        with pytest.warns(CacheWarning, match="cannot be written: Permission denied") as found:
            publish(KernelCache(top / "kernels"), (1, 2, 3), 1)
        assert len(found) == 1
        with pytest.warns(CacheWarning, match="cannot be used: Permission denied"):
            publish(KernelCache(top / "kernels" / "inner"), (1, 2, 3), 1)
