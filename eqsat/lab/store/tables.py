"""A store on disk: its SQLite tables, files kept once, and locks between processes.

docs/store.md says what the columns mean. Rules, weights and programs are shared by rows; the system
takes locks back however a process ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from eqsat.model.diag import fail
from eqsat.model.files import cache_folder

# ---- files ---------------------------------------------------------------------------------------
POOL = ".files"  # below the folder of the runs
LEAST_BYTES = 1 << 16  # smaller ones cost a block of the disk at most


def share_files(folder: Path) -> None:
    """Make the large files of a run hard links to equal files of the store's other runs.

    folder: the run's, `STORE/runs/NAME`. Where the file system has no hard links, files stay
    copies.
    """
    pool = folder.parent / POOL
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.stat().st_size >= LEAST_BYTES:
            with contextlib.suppress(OSError):
                _share(path, pool)


def _share(path: Path, pool: Path) -> None:
    pool.mkdir(exist_ok=True)
    with path.open("rb") as file:
        shared = pool / hashlib.file_digest(file, "sha256").hexdigest()
    try:
        os.link(path, shared)  # the first of its kind; of two writers one is
    except FileExistsError:
        if not path.samefile(shared):
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            os.link(shared, aside)
            aside.replace(path)


# ---- locks ---------------------------------------------------------------------------------------
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_NAME = re.compile(r"[0-9a-f]{32}")
OWNERS = "runs/.owners"  # folder of the lock files of those who use a store, below the store's


class Owner:
    """One user of a store; `name` tells others whom to ask `lives`."""

    def __init__(self, folder: Path):
        self.name = uuid.uuid4().hex
        self._path = folder / OWNERS / self.name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w")
        self._path.chmod(0o644)  # other users of the store ask whether it is held
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def lives(folder: Path, owner: object) -> bool:
    """Whether a user of the store is still there; what one that is gone left behind is removed.

    A lock that may not even be read is taken for one that is held. Names are read from the store,
    which anybody may have written: one that is no `Owner`'s is nobody's.
    """
    if fcntl is None or not isinstance(owner, str) or not _NAME.fullmatch(owner):
        return False
    path = folder / OWNERS / owner
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except PermissionError:
        return True
    except OSError:  # none, or a link
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    with contextlib.suppress(OSError):  # another user's, or somebody else was here first
        path.unlink()
    return False


def lock_of(folder: Path, owner: str) -> Path:
    """The file that a user of the store holds as long as it is there."""
    return folder / OWNERS / owner


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """While something of this machine's searches: measurements wait, other searches do not."""
    with _machine_lock(shared=True):
        yield


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """While something is timed on this machine: waits until no experiment of this user searches."""
    with _machine_lock(shared=False):
        yield


@contextlib.contextmanager
def _machine_lock(shared: bool) -> Iterator[None]:
    file = None if fcntl is None else _machine_file()
    if fcntl is None or file is None:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def _machine_file() -> IO[str] | None:
    """The file of this machine and user; None where the cache folder cannot be written."""
    path = cache_folder("locks") / "searches"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError:
        return None


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
# ---- rows as one flat table ----------------------------------------------------------------------
VIEW = "results"
_ASKED = ("program", "target", "seed", "extractor")
_LISTS = ("rules", "goals")
_FIGURES = (
    "status", "claim", "stop", "time_us", "peak_bytes", "dispatches", "bytes_moved",
    "egraph_nodes", "verified", "seconds",
)  # fmt: skip
_CLOCK = """
LEFT JOIN (
  SELECT program_hash, median_us, low_us, high_us, cpu_us, max(measured_at)
  FROM measurements GROUP BY program_hash
) AS clock USING (program_hash)
"""


def put_view(db: sqlite3.Connection, temporary: bool = False) -> None:
    """The view `results`: a line per row, a column per factor and per figure.

    A factor is what any experiment of the store varies (`"limits.scratch"`); the view is made anew
    where it lacks one. temporary: of this connection, for a file that may only be read.
    """
    varied = "SELECT DISTINCT key FROM rows, json_each(asked, '$.varied') ORDER BY key"
    keys = [k for (k,) in db.execute(varied) if k not in (*_ASKED, *_LISTS)]
    there = [c for _, c, *_ in db.execute(f"PRAGMA table_info({VIEW})")]
    if there and {*keys} <= {*there}:
        return
    columns = [
        "experiment",
        "row",
        "position",
        *(f"json_extract(asked, '$.{k}') AS {k}" for k in _ASKED),
    ]
    columns += [
        f"(SELECT group_concat(value, '+') FROM json_each(asked, '$.{k}')) AS {k}" for k in _LISTS
    ]
    columns += [
        f"(SELECT value FROM json_each(asked, '$.varied') WHERE key = {_text(k)}) AS {_name(k)}"
        for k in keys
    ]
    columns += [f"runs.{f}" for f in _FIGURES]
    columns += ["median_us AS measured_us", "low_us", "high_us", "cpu_us", "as_expected", "run"]
    db.execute(f"DROP VIEW IF EXISTS {VIEW}")
    db.execute(
        f"CREATE {'TEMP ' if temporary else ''}VIEW {VIEW} AS SELECT {', '.join(columns)}"
        f" FROM rows JOIN runs USING (run) {_CLOCK}"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


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
        if _check(db, file) and not db.execute(f"PRAGMA table_info({VIEW})").fetchall():
            put_view(db, temporary=True)  # an earlier version wrote the file
        db.execute("PRAGMA query_only = ON")
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
