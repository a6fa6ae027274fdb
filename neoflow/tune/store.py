"""The file that records of tuning are in, which damage, kills, full disks and other processes leave usable.

    PATH                the database, in WAL mode (with PATH-wal and PATH-shm)
    PATH.lock           held by who writes or mends; says how many trials were ever acknowledged
    PATH.damaged-1      a database that could not be read any more, as it was found

A row that does not fit its seal is put into the table `damaged`. A file that SQLite finds damaged, or that has lost
trials, as one does whose WAL is damaged, is moved aside; every row of it that can still be read begins the next one.
Other processes see that the file is another one by now, and open it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
import stat
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from neoflow.errors import shown
from neoflow.tune import tables
from neoflow.tune.tables import Damage, Found, Newer, Row

SECONDS = 10.0
"""How long another process may hold the file before this one goes on without it."""
MENDED = 2
"""How often a file is mended for one question, before it is given up."""

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WITHOUT = "what is measured lasts as long as this process"
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
"""What may be read all the same, as the cache of a container."""
_INHERITED: list[sqlite3.Connection] = []
"""Kept, as SQLite must not close in a child what its parent has opened."""

T = TypeVar("T")


class RecordWarning(UserWarning):
    """The records of tuning are damaged, or cannot be used; tuning works all the same."""


class Store:
    """The rows of a file; of this process's memory, with one warning, where the file cannot be used.

    judge: asked about the folder before the file is opened; raises `OSError` when it cannot be used. functions: that
    conditions may call, by name.
    """

    def __init__(self, path: Path, judge: Callable[[Path], object], functions: Mapping[str, Callable[..., Any]]):
        self.path = path
        self.is_kept = True
        """whether rows last longer than this process"""
        self._judge, self._functions = judge, functions
        self._said: set[str] = set()
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process, self._file = 0, (0, 0)
        self._unsaid = ""
        """why the file cannot be used"""
        self._doubt: tuple[tuple[int, int], str] | None = None
        """a file that was found damaged, and how"""

    # --- what it is asked

    def rows(
        self,
        table: str,
        parse: Callable[[Row], T],
        where: str = "1",
        values: Sequence[Any] = (),
        order: str = "id",
        most: int = -1,
    ) -> list[T]:
        """What the rows of a table say that satisfy a condition; those that do not fit are set aside.

        parse: raises `ValueError`, `LookupError` or `TypeError` for a row that means nothing.
        """
        asked = f"SELECT {tables.columns(table)} FROM {table} WHERE {where} ORDER BY {order} LIMIT {most}"
        while True:
            found, bad = [], []
            for row in self._use(lambda c: c.execute(asked, values).fetchall()):
                content = tables.checked(table, row)
                try:
                    if content is None:
                        raise ValueError
                    found.append(parse(content))
                except (ValueError, LookupError, TypeError):
                    bad.append(row)
            if bad:
                self._set_aside(table, bad)
            if most < 0 or not bad:
                return found

    def add(self, texts: Sequence[Row], trials: Sequence[Row], instead: bool = True) -> tuple[int, bool]:
        """Put rows there: a trial in place of one of the same schedule, or where there is none. How many, and whether
        they are in the file: then no kill of any process takes them away."""

        def put(connection: sqlite3.Connection) -> int:
            tables.insert(connection, "texts", texts, instead=False)
            return tables.insert(connection, "trials", trials, instead)

        return self._use(put, writes=True), self.is_kept

    def put(self, table: str, row: Row) -> bool:
        """Put a row in place of the one of its key; whether it is in the file."""
        self._use(lambda c: tables.insert(c, table, [row], instead=True), writes=True)
        return self.is_kept

    def count(self) -> dict[str, int]:
        """Rows of each table."""
        names = (*tables.COLUMNS, "damaged")
        return self._use(lambda c: {n: c.execute(f"SELECT COUNT(*) FROM {n}").fetchone()[0] for n in names})

    def files(self) -> list[Path]:
        """The file and what belongs to it."""
        return sorted(p for p in self.path.parent.glob(f"{self.path.name}*") if p.is_file())

    def clear(self) -> None:
        """Remove the file, what was moved aside, and what is in memory. Raises `OSError`."""
        with self._mutex:
            self.close()
            if self.path.parent.is_dir():
                with self._locked() as lock:
                    for path in self.files():
                        if path != self._lock_path:
                            path.unlink(missing_ok=True)
                    _write_count(lock, 0)

    def close(self) -> None:
        """Until it is asked again."""
        with self._mutex:
            if self._connection is not None:
                _close(self._connection, self._process)
            self._connection = None

    # --- how

    def _use(self, work: Callable[[sqlite3.Connection], T], writes: bool = False) -> T:
        """What comes of work, on a file that is whole; or on memory."""
        with self._mutex:
            if not writes and self.is_kept and not (os.path.exists(self.path) or os.path.exists(self._lock_path)):
                with closing(tables.connect(":memory:")) as nothing:  # as who only asks leaves no file behind
                    tables.prepare(nothing)
                    return work(self._with_functions(nothing))
            left = MENDED
            while self.is_kept:
                try:
                    with self._ready(writes) as connection:
                        return work(connection)
                except sqlite3.Error as error:
                    if tables.is_damage(error) and left:
                        left -= 1
                        self._doubt = (self._file, str(error))
                        self.close()
                    else:
                        self._go_without(str(error))
                except Newer as error:
                    self._go_without(str(error), is_known=False)
                except Damage as error:
                    self._go_without(str(error))
                except OSError as error:
                    self._go_without(error.strerror or str(error), is_quiet=error.errno in _UNWRITABLE and not writes)
            if self._connection is None:
                self._remember(Found())
            if writes and self._unsaid:
                self._complain("used", self._unsaid)
            return work(self._opened)

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    @contextmanager
    def _ready(self, writes: bool) -> Iterator[sqlite3.Connection]:
        """The connection to the file that is there now; in a transaction which is acknowledged at its end."""
        is_open = self._connection is not None and self._process == os.getpid() and _identity(self.path) == self._file
        if is_open and not writes:
            yield self._opened
            return
        if not is_open:
            self._judge(self.path.parent)
        with self._locked() as lock:
            if not is_open or _identity(self.path) != self._file:
                self._open(lock)
            connection = self._opened
            if not writes:
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise
            _write_count(lock, tables.acknowledged(connection))

    def _open(self, lock: int) -> None:
        """Open the file, made anew where it is not there, mended where it is damaged."""
        self.close()
        _refuse(self.path)
        if self._doubt is not None and self._doubt[0] == _identity(self.path):
            self._mend(self._doubt[1], lock)
        self._doubt = None
        try:
            self._connect(lock)
        except (sqlite3.Error, Damage) as error:
            if isinstance(error, sqlite3.Error) and not tables.is_damage(error):
                raise
            self._mend(str(error), lock)
            self._connect(lock)

    def _connect(self, lock: int) -> None:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        connection = self._made(self.path.absolute().as_uri())
        try:
            tables.prepare(connection)
            lost = _read_count(lock) - tables.acknowledged(connection)
            if lost > 0:
                raise Damage(f"it has lost {lost} trials")
        except BaseException:
            connection.close()
            raise
        self._connection, self._process, self._file = connection, os.getpid(), _identity(self.path)
        weakref.finalize(self, _close, connection, os.getpid())

    def _made(self, place: str) -> sqlite3.Connection:
        return self._with_functions(tables.connect(place, SECONDS))

    def _with_functions(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        for name, function in self._functions.items():
            connection.create_function(name, -1, function)
        return connection

    def _mend(self, reason: str, lock: int) -> None:
        """Move the file aside, and begin the next one with what can be read of all that lie aside."""
        asides = [self.path.with_name(f"{self.path.name}.damaged-{n}") for n in range(1, 1000)]
        there = [p for p in asides if p.exists()]
        aside = next((p for p in asides if not p.exists()), asides[-1])
        with suppress(FileNotFoundError):
            os.rename(f"{self.path}-wal", f"{aside}-wal")
        with suppress(FileNotFoundError):
            os.unlink(f"{self.path}-shm")
        os.rename(self.path, aside)
        found = tables.salvage([aside, *reversed(there)])
        fresh = self.path.with_name(f"{self.path.name}.new")
        for end in ("", "-wal", "-shm"):
            Path(f"{fresh}{end}").unlink(missing_ok=True)
        connection = self._made(fresh.absolute().as_uri())
        try:
            os.chmod(fresh, 0o600)
            tables.prepare(connection)
            tables.refill(connection, found)
            count = tables.acknowledged(connection)
        finally:
            connection.close()
        os.replace(fresh, self.path)
        _write_count(lock, count)
        kept = f"{len(found.good['trials'])} trials of it are kept, {len(found.bad)} rows set aside"
        self._complain("damaged", f"{self.path} is damaged ({shown(reason)}); {kept}, the file is {aside.name} now")

    def _set_aside(self, table: str, rows: Sequence[Row]) -> None:
        numbers = ", ".join(str(int(row[0])) for row in rows)

        def move(connection: sqlite3.Connection) -> None:
            tables.set_aside(connection, [(table, repr(row)) for row in rows])
            connection.execute(f"DELETE FROM {table} WHERE id IN ({numbers})")

        self._use(move, writes=True)
        self._complain(
            "damaged", f"{len(rows)} rows of {self.path} are damaged, and set aside in it; they are measured again"
        )

    def _go_without(self, reason: str, is_known: bool = True, is_quiet: bool = False) -> None:
        """Go on with what can be read of the file, in memory; quietly, until something is to be written."""
        self.close()
        self.is_kept = False
        can_be_read = is_known and _is_readable(self.path, self._judge)
        self._remember(tables.salvage([self.path]) if can_be_read else Found())
        self._unsaid = f"the records of tuning {self.path} cannot be used: {reason}; {_WITHOUT}"
        if not is_quiet:
            self._complain("used", self._unsaid)

    def _remember(self, found: Found) -> None:
        self._connection, self._process = self._made(":memory:"), os.getpid()
        weakref.finalize(self, _close, self._connection, os.getpid())
        tables.prepare(self._connection)
        tables.refill(self._connection, found)

    def _complain(self, kind: str, what: str) -> None:
        """Warn once of damage, and once that the file cannot be used."""
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(what, RecordWarning, stacklevel=2)

    # --- the lock

    @property
    def _lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Alone with the file. Raises `OSError` when another process does not let go of it."""
        lock = os.open(self._lock_path, _LOCK, 0o600)
        try:
            last = time.monotonic() + SECONDS
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > last:
                        raise TimeoutError(f"another process has held it for {SECONDS:.0f} seconds") from None
                    time.sleep(0.002)
                except OSError:  # a file system without locks: SQLite's own have to do
                    break
            yield lock
        finally:
            os.close(lock)


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _refuse(path: Path) -> None:
    """Raise `OSError` unless there is nothing, or a file of this user's that nobody else can write to."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is no file")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS:
        raise OSError(f"others can write to it (mode {stat.S_IMODE(status.st_mode):o}, owner {status.st_uid})")


def _is_readable(path: Path, judge: Callable[[Path], object]) -> bool:
    try:
        judge(path.parent)
        _refuse(path)
    except OSError:
        return False
    return path.exists()


def _write_count(lock: int, count: int) -> None:
    with suppress(OSError):  # a full disk: what is lost without a count is lost without a word
        os.pwrite(lock, f"{count:020d} {_mark(count)}\n".encode(), 0)


def _read_count(lock: int) -> int:
    """0 where nothing is said, or what is said is damaged."""
    count, _, mark = os.pread(lock, 64, 0).decode(errors="replace").strip().partition(" ")
    return int(count) if count.isdecimal() and mark == _mark(int(count)) else 0


def _mark(count: int) -> str:
    return hashlib.sha256(str(count).encode()).hexdigest()[:16]


def _close(connection: sqlite3.Connection, process: int) -> None:
    """Close a connection; one that came here by `fork` is the parent's."""
    if process == os.getpid():
        connection.close()
    else:
        _INHERITED.append(connection)
