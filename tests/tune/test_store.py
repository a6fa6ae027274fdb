"""The file of records: what befalls files, folders, locks and disks, and how one goes without."""

import errno
import fcntl
import os
import sqlite3
import threading
import warnings
from contextlib import closing

import pytest

from neoflow import ConfigError
from neoflow.runtime.folder import Folder
from neoflow.tune import store, tables
from neoflow.tune.records import Records, RecordWarning
from tests.tune.candidates import TARGET, product, trials

WITHOUT = "what is measured lasts as long as this process"


def first(name):
    return f"first {name}"


def records_at(path, judge=lambda folder: None):
    return Records(path, first, judge)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.sqlite"


@pytest.fixture
def some(path):
    """Twenty trials, in a file that nobody has open."""
    found = trials(product(), 20)
    records = records_at(path)
    records.add(product(), TARGET, found)
    records.close()
    return found


def works_without(records, message, known=()):
    """With one warning, and from then on without a word."""
    with pytest.warns(RecordWarning, match=message) as caught:
        assert records.trials(product(), TARGET) == list(known)
    assert len(caught) == 1 and WITHOUT in str(caught[0].message)
    more = trials(product(), 30)[20:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.add(product(), TARGET, more) is False
        assert records.trials(product(), TARGET) == [*known, *more]


def test_only_this_user_can_read_and_write_it(path, some):
    assert {oct(p.stat().st_mode & 0o777) for p in path.parent.iterdir()} == {"0o600"}


def test_who_only_asks_leaves_no_file_behind(path):
    records = records_at(path)
    assert records.best(product(), TARGET) is None and records.relatives(product(), TARGET) == []
    assert (
        records.count() == {"trials": 0, "texts": 0, "verdicts": 0, "damaged": 0} and list(path.parent.iterdir()) == []
    )
    assert records.add(product(), TARGET, trials(product(), 1)) and len(records.trials(product(), TARGET)) == 1


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    records, some = records_at(tmp_path / "file" / "records.sqlite"), trials(product(), 2)
    assert records.trials(product(), TARGET) == []
    with pytest.warns(RecordWarning, match="Not a directory"):
        assert records.add(product(), TARGET, some) is False
    assert records.trials(product(), TARGET) == some


def test_a_folder_that_others_can_write_to_is_refused(path):
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        records_at(path, Folder).add(product(), TARGET, [])


def test_a_folder_that_the_judge_finds_unusable(path, some):
    def judge(folder):
        raise PermissionError(f"{folder} belongs to somebody else")

    works_without(records_at(path, judge), "belongs to somebody else")


def test_an_unwritable_disk(path, some, monkeypatch):
    """Root may write anywhere: the system says that it is read-only."""
    real = os.open

    def refused(name, flags, *rest, **named):
        if flags & (os.O_WRONLY | os.O_RDWR) and str(name).startswith(str(path.parent)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(name, flags, *rest, **named)

    monkeypatch.setattr(os, "open", refused)
    records, more = records_at(path), trials(product(), 21)[20:]
    assert records.trials(product(), TARGET) == some  # as in a container: no word, until something is to be kept
    with pytest.warns(RecordWarning, match=f"Read-only file system; {WITHOUT}") as caught:
        assert records.add(product(), TARGET, more) is False
        assert records.add(product(), TARGET, more) is False
    assert len(caught) == 1 and records.trials(product(), TARGET) == [*some, *more]


def test_a_full_disk(path, some):
    records = records_at(path)
    records.trials(product(), TARGET)
    records._store._connection.execute("PRAGMA max_page_count = 1")
    with pytest.warns(RecordWarning, match="disk is full; what is measured lasts as long as this process"):
        assert records.add(product(), TARGET, trials(product(), 400)[20:]) is False
    assert len(records.trials(product(), TARGET)) == 400
    assert len(records_at(path).trials(product(), TARGET)) == 20


def test_a_lock_that_nobody_lets_go_of(path, some, monkeypatch):
    monkeypatch.setattr(store, "SECONDS", 0.05)
    lock = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    works_without(records_at(path), r"another process has held it for 0 seconds", some)
    os.close(lock)
    assert records_at(path).trials(product(), TARGET) == some


@pytest.mark.parametrize("what", ["folder", "link", "fifo", "shared"])
def test_what_is_no_file_of_ours(path, what, tmp_path):
    if what == "folder":
        path.mkdir()
    elif what == "link":
        (tmp_path / "elsewhere").write_text("")
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("")
        path.chmod(0o666)
    works_without(records_at(path), "others can write to it" if what == "shared" else "it is no file")
    assert what != "link" or not (tmp_path / "elsewhere").read_text()


def test_a_later_version_is_left_alone(path, some):
    with closing(sqlite3.connect(path)) as connection:
        said = ("schema", tables.SCHEMA + 1)
        connection.execute("UPDATE about SET value = ?, seal = ?", (said[1], tables.seal("about", said)))
        connection.commit()
    before = path.read_bytes()
    works_without(records_at(path), r"a later version of neoflow has written it \(schema 2, this one knows 1\)")
    assert path.read_bytes() == before and not list(path.parent.glob("*damaged*"))


# --- damage


def test_a_row_that_is_damaged_is_set_aside(path, some):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET value = replace(value, 'schema', 'schemo') WHERE id = 3")
        connection.execute("UPDATE trials SET seconds = 1e-9 WHERE id = 4")
        connection.commit()
    records = records_at(path)
    with pytest.warns(RecordWarning, match="2 rows of .* are damaged, and set aside in it") as caught:
        assert records.trials(product(), TARGET) == [*some[:2], *some[4:]]
    assert len(caught) == 1
    assert records.count() == {"trials": 18, "texts": 2, "verdicts": 0, "damaged": 2}
    with closing(sqlite3.connect(path)) as connection:
        assert all("schem" in content for _, _, content in connection.execute("SELECT * FROM damaged"))
    assert records.best(product(), TARGET).seconds >= 1e-3


def test_a_damaged_best_is_not_the_best(path, some):
    best = min((t for t in some if t.seconds), key=lambda t: t.seconds)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE trials SET value = 'x' WHERE seconds = ?", (best.seconds,))
        connection.commit()
    rest = [t for t in some if t.seconds and t != best]
    with pytest.warns(RecordWarning, match="1 rows"):
        assert records_at(path).best(product(), TARGET) == min(rest, key=lambda t: t.seconds)


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 9000, b"poem" * 2000])
def test_a_destroyed_file_is_moved_aside_and_begun_anew(path, some, content):
    path.write_bytes(content)
    records = records_at(path)
    with pytest.warns(
        RecordWarning, match=r"is damaged .*0 trials of it are kept.*records.sqlite.damaged-1 now"
    ) as caught:
        assert records.trials(product(), TARGET) == []
    assert len(caught) == 1
    if content:
        assert path.with_name("records.sqlite.damaged-1").read_bytes() == content
    assert records.add(product(), TARGET, some) is True
    records.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records_at(path).trials(product(), TARGET) == some


def test_the_database_of_another_program_is_moved_aside(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE poems (text)")
    with pytest.warns(RecordWarning, match="no such table: about"):
        assert records_at(path).trials(product(), TARGET) == []
    with closing(sqlite3.connect(path.with_name("records.sqlite.damaged-1"))) as connection:
        assert connection.execute("SELECT * FROM poems").fetchall() == []


def test_what_can_be_read_of_a_damaged_file_is_kept(path):
    """Its index is of other rows: SQLite would not find them, and says nothing."""
    many = trials(product(), 60)
    with closing(records_at(path)) as records:
        records.add(product(), TARGET, many)
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'relatives'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    data[page * size - 60] ^= 0x41
    path.write_bytes(data)
    with pytest.warns(RecordWarning, match="60 trials of it are kept, 0 rows set aside") as caught:
        assert records_at(path).trials(product(), TARGET) == many
    assert len(caught) == 1


def test_trials_that_a_file_has_lost_are_missed(path, some):
    early = path.read_bytes()
    with closing(records_at(path)) as records:
        records.add(product(), TARGET, trials(product(), 25)[20:])
    path.write_bytes(early)
    with pytest.warns(RecordWarning, match="it has lost 5 trials"):
        assert records_at(path).trials(product(), TARGET) == some


def test_a_count_that_is_damaged_says_nothing(path, some):
    for content in (b"", b"99999999999999999999 0123456789abcdef\n", b"\xff" * 80):
        path.with_name("records.sqlite.lock").write_bytes(content)
        with closing(records_at(path)) as records:
            assert records.trials(product(), TARGET) == some


def test_others_see_that_a_file_was_mended(path, some):
    other = records_at(path)
    assert other.trials(product(), TARGET) == some
    path.rename(path.with_name("moved"))
    path.write_bytes(b"poem" * 2000)
    with pytest.warns(RecordWarning, match="is damaged"):
        assert records_at(path).trials(product(), TARGET) == []
    new = trials(product(), 21)[20:]
    assert other.add(product(), TARGET, new) is True
    assert records_at(path).trials(product(), TARGET) == other.trials(product(), TARGET) == new


def test_one_that_is_cleared(path, some):
    records, other = records_at(path), records_at(path)
    assert other.trials(product(), TARGET) == some
    records.clear()
    assert {p.name for p in path.parent.iterdir()} == {"records.sqlite.lock"}
    assert records.trials(product(), TARGET) == other.trials(product(), TARGET) == []
    assert other.add(product(), TARGET, some[:1]) is True and records.trials(product(), TARGET) == some[:1]
    records_at(path.parent / "absent" / "records.sqlite").clear()


# --- several at once


def test_threads_share_it(path):
    records, many = records_at(path), trials(product(), 40)
    threads = [threading.Thread(target=records.add, args=(product(), TARGET, [t])) for t in many]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {t.schedule for t in records.trials(product(), TARGET)} == {t.schedule for t in many}


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where another test has imported it
def test_a_child_of_fork_opens_its_own(path, some):
    records = records_at(path)
    records.add(product(), TARGET, trials(product(), 21)[20:])
    child = os.fork()
    if not child:
        done = records.add(product(), TARGET, trials(product(), 22)[21:])
        os._exit(0 if done and len(records.trials(product(), TARGET)) == 22 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(records.trials(product(), TARGET)) == 22
