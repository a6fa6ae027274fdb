"""The tables that records of tuning are in: sealed rows, and what is read of a file whatever has befallen it.

A row ends with a seal, the hash of all that is in it and of its table: nothing is believed for lying where it lies.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = tuple[Any, ...]

SCHEMA = 1
"""Of the tables and of what is in their values; the table `about` says it in every version."""
COLUMNS = {
    "texts": ("digest", "kind", "text"),
    "trials": (
        *("family", "sizes", "subgraph", "target", "template", "version", "schedule"),
        *("seconds", "is_own", "value"),
    ),
    "verdicts": ("program", "target", "value"),
}
"""texts: what trials are of. trials: the family, the subgraph and the schedule are hashes; seconds are of one that is
ok, else NULL; is_own: measured here, and not imported. verdicts: what is best of a whole program, whose hash it is."""
FAILURES = 200
"""Rows in a row that cannot be read, after which no more are looked for one by one."""

_TABLES = f"""
BEGIN;
CREATE TABLE about (name, value, seal);
CREATE TABLE texts (id INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(COLUMNS["texts"])}, seal, UNIQUE (digest));
CREATE TABLE trials (id INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(COLUMNS["trials"])}, seal,
                     UNIQUE (subgraph, target, schedule));
CREATE INDEX relatives ON trials (family, target, seconds);
CREATE TABLE damaged (id INTEGER PRIMARY KEY, place, content);
INSERT INTO about VALUES ('schema', {{schema}}, '{{seal}}');
COMMIT;
"""
_VERDICTS = f"""
CREATE TABLE IF NOT EXISTS verdicts (id INTEGER PRIMARY KEY AUTOINCREMENT, {", ".join(COLUMNS["verdicts"])}, seal,
                                     UNIQUE (program, target))
"""
"""A later table than the others: files that are older get it when they are opened."""
_ELSEWHERE = ("locked", "readonly", "unable to open", "full", "disk I/O", "interrupted", "busy")
"""In what SQLite says when it is not the file that is at fault."""


class Damage(Exception):
    """A file that is not what was written."""


class Newer(Exception):
    """A file that a later version of neoflow has written."""


@dataclass
class Found:
    """What could be read of damaged files: rows that fit their seals, the newest first, and others, by table."""

    good: dict[str, dict[Row, None]] = field(default_factory=lambda: {name: {} for name in COLUMNS})
    bad: dict[tuple[str, str], None] = field(default_factory=dict)


def seal(table: str, row: Sequence[Any]) -> str:
    """The hash of a row."""
    return hashlib.sha256(json.dumps([table, *row]).encode()).hexdigest()


def checked(table: str, row: Sequence[Any]) -> Row | None:
    """What a row says, without its number and its seal; None when it does not fit its seal."""
    try:
        *content, last = (c.decode() if isinstance(c, bytes) else c for c in row[1:])
        return tuple(content) if last == seal(table, content) else None
    except (TypeError, ValueError):
        return None


def columns(table: str) -> str:
    """What `checked` takes."""
    return ", ".join(("id", *COLUMNS[table], "seal"))


def connect(place: str, seconds: float = 5.0) -> sqlite3.Connection:
    """A connection to a file (its URI) or to memory, whose texts are bytes, as they lie there."""
    connection = sqlite3.connect(place, timeout=seconds, isolation_level=None, check_same_thread=False, uri=True)
    connection.text_factory = bytes
    return connection


def prepare(connection: sqlite3.Connection) -> None:
    """Make a database ready, with tables where it has none. Raises `Newer`, `Damage`, `sqlite3.Error`.

    `synchronous` is NORMAL: what was committed is with the system, so that no kill loses it, and no measurement waits
    for a disk. A power cut may take the last seconds of trials, which are measured again; it damages nothing.
    """
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        connection.executescript(_TABLES.format(schema=SCHEMA, seal=seal("about", ("schema", SCHEMA))))
    about = connection.execute("SELECT 0, name, value, seal FROM about WHERE name = 'schema'").fetchone()
    said = checked("about", about or (0, b""))
    if said is None:
        raise Damage("it does not say of which version it is")
    if said[1] > SCHEMA:
        raise Newer(f"a later version of neoflow has written it (schema {said[1]}, this one knows {SCHEMA})")
    connection.execute(_VERDICTS)
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if state != b"ok":
        raise Damage(state.decode(errors="replace"))


def insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row], instead: bool) -> int:
    """Put rows into a table, sealed, in place of those of the same key, or where there is none; how many."""
    marks = ", ".join("?" * (len(COLUMNS[table]) + 1))
    command = f"INSERT OR {'REPLACE' if instead else 'IGNORE'} INTO {table} ({columns(table)[4:]}) VALUES ({marks})"
    return sum(connection.execute(command, (*row, seal(table, row))).rowcount for row in rows)


def set_aside(connection: sqlite3.Connection, rows: Iterable[tuple[str, str]]) -> None:
    """Keep rows that are damaged: where they were, and what was there."""
    connection.executemany("INSERT INTO damaged (place, content) VALUES (?, ?)", rows)


def acknowledged(connection: sqlite3.Connection) -> int:
    """How many trials were ever put there."""
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'trials'").fetchone()
    return int(found[0]) if found else 0


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is at fault, and not the disk, another process or this program."""
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return False
    return not (isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _ELSEWHERE))


# --- what is left of a file


def salvage(paths: Sequence[Path]) -> Found:
    """All rows that can be read of these files: with their WAL, and as they are without it."""
    found = Found()
    for path in paths:
        for how in ("mode=ro", "immutable=1"):
            with suppress(sqlite3.Error), closing(connect(f"{path.absolute().as_uri()}?{how}")) as connection:
                for table in COLUMNS:
                    _sort(table, _readable(connection, table), found)
    return found


def refill(connection: sqlite3.Connection, found: Found) -> None:
    """Put what was found into a new database."""
    connection.execute("BEGIN IMMEDIATE")
    for table, rows in found.good.items():
        insert(connection, table, reversed(rows), instead=True)
    set_aside(connection, found.bad)
    connection.execute("COMMIT")


def _sort(table: str, rows: Mapping[int, Row], found: Found) -> None:
    for number in sorted(rows, reverse=True):
        row = checked(table, rows[number])
        if row is not None:
            found.good[table][row] = None
        else:
            found.bad[table, repr(rows[number])] = None


def _readable(connection: sqlite3.Connection, table: str) -> dict[int, Row]:
    """The rows of a table, by number: from its beginning, from its end, one by one between where that breaks off."""
    found: dict[int, Row] = {}
    ends = []
    for order in ("ASC", "DESC"):
        number = None
        try:
            for row in connection.execute(f"SELECT {columns(table)} FROM {table} NOT INDEXED ORDER BY id {order}"):
                found[number := row[0]] = row
            return found
        except sqlite3.Error:
            ends.append(number)
    number, last, failures = (ends[0] or 0) + 1, ends[1], 0
    while failures < FAILURES and (last is None or number < last):
        failures += 1
        with suppress(sqlite3.Error):
            row = connection.execute(f"SELECT {columns(table)} FROM {table} WHERE id = ?", (number,)).fetchone()
            if row is not None:
                found[number], failures = row, 0
        number += 1
    return found
