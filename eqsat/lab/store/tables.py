"""The tables of a store, as SQLite reads them; docs/store.md says what the columns mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from eqsat.model.diag import fail

APPLICATION = 0x65715361  # `eqSa` in the file's header: whose database this is
VERSION = 1  # of the tables; an older file is brought up step by step by MIGRATIONS
FILE = "eqsat.sqlite"
BUSY_SECONDS = 60.0  # how long a writer waits for another one; each writes for milliseconds

TABLES = """
CREATE TABLE machines (
  machine INTEGER PRIMARY KEY,
  host TEXT NOT NULL, processor TEXT NOT NULL, cores INTEGER NOT NULL,
  system TEXT NOT NULL, python TEXT NOT NULL,
  UNIQUE (host, processor, cores, system, python)
);
CREATE TABLE runs (
  run TEXT PRIMARY KEY,
  program TEXT NOT NULL, target TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL,
  claim TEXT, stop TEXT, time_us REAL, peak_bytes INTEGER, dispatches INTEGER, bytes_moved INTEGER,
  egraph_nodes INTEGER, verified INTEGER, seconds REAL,
  program_hash TEXT, folder TEXT, ended_at TEXT NOT NULL,
  machine INTEGER NOT NULL REFERENCES machines, record TEXT NOT NULL
);
CREATE TABLE versions (
  run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, package TEXT NOT NULL, version TEXT NOT NULL,
  PRIMARY KEY (run, package)
) WITHOUT ROWID;
CREATE TABLE goals (
  run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, goal TEXT NOT NULL, rank INTEGER NOT NULL,
  value REAL, bound REAL, gap REAL, input REAL,
  PRIMARY KEY (run, goal)
) WITHOUT ROWID;
CREATE TABLE dispatches (
  run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, dispatch INTEGER NOT NULL,
  name TEXT NOT NULL, time_us REAL NOT NULL, bound TEXT, plan TEXT, reads TEXT, writes TEXT,
  PRIMARY KEY (run, dispatch)
) WITHOUT ROWID;
CREATE TABLE choices (
  run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, number INTEGER NOT NULL,
  dispatch INTEGER, op TEXT NOT NULL, type TEXT NOT NULL, rules TEXT NOT NULL,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE rules (
  run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, rule TEXT NOT NULL,
  matches INTEGER NOT NULL, nodes INTEGER NOT NULL, seconds REAL NOT NULL,
  in_result INTEGER NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (run, rule)
) WITHOUT ROWID;
CREATE TABLE experiments (
  experiment TEXT PRIMARY KEY, doc TEXT NOT NULL, file TEXT NOT NULL
);
CREATE TABLE rows (
  experiment TEXT NOT NULL REFERENCES experiments, row TEXT NOT NULL, position INTEGER NOT NULL,
  run TEXT NOT NULL REFERENCES runs, asked TEXT NOT NULL, as_expected INTEGER NOT NULL,
  problems TEXT NOT NULL,
  PRIMARY KEY (experiment, row)
);
CREATE TABLE measurements (
  measurement INTEGER PRIMARY KEY,
  program_hash TEXT NOT NULL, beside TEXT NOT NULL,
  machine INTEGER NOT NULL REFERENCES machines, measured_at TEXT NOT NULL,
  calls INTEGER NOT NULL, median_us REAL NOT NULL, low_us REAL NOT NULL, high_us REAL NOT NULL,
  cpu_us REAL NOT NULL,
  UNIQUE (program_hash, beside, machine)
);
CREATE TABLE samples (
  measurement INTEGER NOT NULL REFERENCES measurements ON DELETE CASCADE, round INTEGER NOT NULL,
  wall_us REAL NOT NULL, cpu_us REAL NOT NULL,
  PRIMARY KEY (measurement, round)
) WITHOUT ROWID;
CREATE TABLE attempts (
  attempt INTEGER PRIMARY KEY,
  run TEXT NOT NULL, owner TEXT NOT NULL, began_at TEXT NOT NULL,
  ended_at TEXT, outcome TEXT
);
CREATE INDEX open_attempts ON attempts (run) WHERE ended_at IS NULL;
"""
# version it comes from -> how the tables get to the next one; none was ever released before 1
MIGRATIONS: Mapping[int, Callable[[sqlite3.Connection], None]] = {}


def open_tables(file: Path) -> sqlite3.Connection:
    """The database for writing, made or brought up to date; EqsatError (E430, E431, E407)."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as e:
        raise fail("E407", f"cannot write `{file}`: {e}") from e
    try:
        _prepare(db, file)
    except sqlite3.DatabaseError as e:
        db.close()
        raise store_problem(file, e) from e
    except BaseException:
        db.close()
        raise
    return db


def open_to_read(file: Path) -> sqlite3.Connection:
    """The database for questions only; EqsatError (E430) if it is not one of eqsat's."""
    if not file.is_file():
        raise fail("E430", f"no store at `{file}`", help="`eqsat experiment FILE` makes one")
    try:
        db = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        db.execute("PRAGMA query_only = ON")
        _check(db, file)
    except sqlite3.Error as e:
        raise store_problem(file, e) from e
    return db


def _prepare(db: sqlite3.Connection, file: Path) -> None:
    version = _check(db, file)  # before anything is changed
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # whole after any end of the process
    db.execute("PRAGMA foreign_keys = ON")
    if version == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")  # one of several processes that find a new file makes the tables
    try:
        version = _check(db, file)
        if version == 0:
            for statement in filter(str.strip, TABLES.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            version = VERSION
        while version < VERSION:
            MIGRATIONS[version](db)
            version += 1
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _check(db: sqlite3.Connection, file: Path) -> int:
    """The version of the tables, 0 of an empty file; EqsatError for others' and for newer files."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        return 0
    if application != APPLICATION:
        raise fail("E430", f"`{file}` is not a store of eqsat", help="name another folder")
    if version > VERSION:
        raise fail(
            "E431", f"`{file}` is a store of version {version}; this eqsat knows {VERSION}",
            help="use the eqsat that wrote it, or another folder",
        )  # fmt: skip
    return int(version)


def store_problem(file: Path, e: sqlite3.Error) -> Exception:
    """SQLite's error as a message of ours: a full disk, a read-only folder, no database."""
    if "not a database" in str(e) or "malformed" in str(e):
        return fail("E430", f"`{file}` is not a store of eqsat: {e}", help="name another folder")
    return fail("E407", f"cannot write `{file}`: {e}")
