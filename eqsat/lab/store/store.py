"""A store: what every run of the experiments in one folder found, and the machine it ran on."""

from __future__ import annotations

import json
import platform
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from eqsat import host
from eqsat.lab.store.record import RunRecord
from eqsat.lab.store.tables import (
    FILE,
    Owner,
    lives,
    lock_of,
    open_tables,
    put_view,
    store_problem,
)
from eqsat.run.content import used_versions


@dataclass(frozen=True)
class StoreMachine:
    """host: its name in the network. cores: all of the system's."""

    host: str
    processor: str
    cores: int
    system: str
    python: str


@lru_cache(maxsize=1)
def this_machine() -> StoreMachine:
    """The machine of this process."""
    system = f"{platform.system()} {platform.machine()}"
    processor = host.processor() or platform.machine()
    return StoreMachine(
        socket.gethostname(), processor, host.cores(), system, platform.python_version()
    )


RUNS = "runs"  # folder of the runs' artefacts, below the store's


@dataclass(frozen=True)
class Measurement:
    """A program on the clock, microseconds of one call; `samples` are (wall, process time)."""

    calls: int  # of each sample
    median_us: float
    low_us: float  # of the 95 % interval of the median
    high_us: float
    cpu_us: float
    samples: tuple[tuple[float, float], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The measurement as rows of results have it; `runs` is the number of samples."""
        return {
            "runs": len(self.samples),
            "median_us": round(self.median_us, 2),
            "low_us": round(self.low_us, 2),
            "high_us": round(self.high_us, 2),
            "cpu_us": round(self.cpu_us, 2),
        }


class RunStore:
    """The store in a folder, made if there is none; EqsatError (E430, E431, E407).

    Every method raises E407 where the disk is full or the folder may not be written to; nothing
    that was kept before is lost then.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.file = self.folder / FILE
        self._db = open_tables(self.file)
        self._owner = Owner(self.folder)
        self.damage: dict[str, str] = {}  # key of a run -> what is wrong with its record

    def close(self) -> None:
        self._owner.close()
        self._db.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- runs --------------------------------------------------------------------------------
    def find(self, key: str) -> RunRecord | None:
        """The finished run of this key; one whose artefacts are gone is not finished.

        Nor is one whose record cannot be read (`damage` says why): what is damaged runs again.
        """
        row = self._one("SELECT record FROM runs WHERE run = ?", key)
        if row is None:
            return None
        try:
            record = RunRecord.from_text(row[0])
            if record.run != key:
                raise ValueError(f"it is of the run {record.run}")
        except ValueError as error:
            self.damage[key] = str(error)
            return None
        if record.folder and not (self.folder / record.folder / "manifest.json").is_file():
            return None
        return record

    def run_folder(self, key: str, program: str) -> str:
        """Where the artefacts of a run go, below the store's folder: told apart by its key."""
        plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in program)[:40]
        return f"{RUNS}/{plain.strip('.-') or 'run'}-{key[:12]}"

    def claim(self, key: str) -> int | None:
        """The number of a new attempt at a run; None if another living process has one."""
        with self._writing():
            if self._claimed(key):
                return None
            cursor = self._db.execute(
                "INSERT INTO attempts (run, owner, began_at) VALUES (?, ?, ?)",
                (key, self._owner.name, now_text()),
            )
            return cursor.lastrowid

    def _claimed(self, key: str) -> bool:
        """Whether a process works on it; attempts of processes that are gone are closed."""
        rows = self._db.execute(
            "SELECT attempt, owner FROM attempts WHERE run = ? AND ended_at IS NULL", (key,)
        ).fetchall()
        for attempt, owner in rows:
            if lives(self.folder, owner):
                return True
            self._end(attempt, "lost")
        return False

    def holder(self, key: str) -> str:
        """The owner of a run in progress, for a person that waits for it."""
        attempt = self._one(
            "SELECT began_at, owner FROM attempts WHERE run = ? AND ended_at IS NULL", key
        )
        if attempt is None:
            return "another process"
        began, owner = attempt
        return f"the process that began at {began} and holds `{lock_of(self.folder, owner)}`"

    def release(self, attempt: int, outcome: str) -> None:
        """End an attempt that gave nothing to keep."""
        with self._writing():
            self._end(attempt, outcome)

    def finish(self, attempt: int, record: RunRecord) -> RunRecord:
        """Keep the result of an attempt; the record as it was kept."""
        finished = replace(record, ended_at=now_text(), versions=used_versions())
        with self._writing():
            if finished.is_final:
                self._put_run(finished)
            self._end(attempt, finished.status)
        return finished

    def _end(self, attempt: int, outcome: str) -> None:
        self._db.execute(
            "UPDATE attempts SET ended_at = ?, outcome = ? WHERE attempt = ?",
            (now_text(), outcome, attempt),
        )

    def _put_run(self, r: RunRecord) -> None:
        values: dict[str, Any] = {"run": r.run} | r.figures() | {
            "message": r.message, "program_hash": r.program_hash or None,
            "folder": r.folder or None, "ended_at": r.ended_at, "machine": self._machine(),
            "record": json.dumps(r.to_json()),
        }  # fmt: skip
        self._insert("runs", [values], "ON CONFLICT (run) DO UPDATE SET " + _excluded(values))
        for table in ("versions", "goals", "dispatches", "choices", "rules"):
            self._db.execute(f"DELETE FROM {table} WHERE run = ?", (r.run,))
        packages = [{"package": p, "version": v} for p, v in r.versions.items()]
        tables = {"versions": packages, "goals": r.goals, "dispatches": r.dispatches}
        for table, rows in (tables | {"choices": r.choices, "rules": r.rules}).items():
            self._insert(table, [{"run": r.run} | row for row in rows])

    # ---- experiments -------------------------------------------------------------------------
    def put_row(
        self, experiment: tuple[str, str, str], row: str, position: int, run: str,
        asked: Mapping[str, Any], problems: Sequence[str],
    ) -> None:  # fmt: skip
        """Which run a row of an experiment (name, doc and file) is, and what is not as expected.

        Other rows of the experiment stay as they are.
        """
        name, doc, file = experiment
        with self._writing():
            self._insert(
                "experiments", [{"experiment": name, "doc": doc, "file": file}],
                "ON CONFLICT (experiment) DO UPDATE SET doc = excluded.doc, file = excluded.file",
            )  # fmt: skip
            values = {
                "experiment": name, "row": row, "position": position, "run": run,
                "asked": json.dumps(dict(asked)), "as_expected": int(not problems),
                "problems": json.dumps(list(problems)),
            }  # fmt: skip
            conflict = f"ON CONFLICT (experiment, row) DO UPDATE SET {_excluded(values)}"
            self._insert("rows", [values], conflict)
            put_view(self._db)

    def row_record(self, experiment: str, row: str, asked: Mapping[str, Any]) -> RunRecord | None:
        """The record of a row that was asked for just so."""
        key = self._one(
            "SELECT run FROM rows WHERE experiment = ? AND row = ? AND asked = ?",
            experiment, row, json.dumps(dict(asked)),
        )  # fmt: skip
        return None if key is None else self.find(key[0])

    # ---- measurements ------------------------------------------------------------------------
    def measurement(self, program_hash: str, beside: str) -> Measurement | None:
        """This machine's measurement of a program beside the others of a group."""
        row = self._one(
            "SELECT measurement, calls, median_us, low_us, high_us, cpu_us FROM measurements"
            " WHERE program_hash = ? AND beside = ? AND machine ="
            " (SELECT machine FROM machines WHERE (host, processor, cores, system, python)"
            " = (?, ?, ?, ?, ?))",
            program_hash, beside, *astuple(this_machine()),
        )  # fmt: skip
        if row is None:
            return None
        number, *figures = row
        samples = self._db.execute(
            "SELECT wall_us, cpu_us FROM samples WHERE measurement = ? ORDER BY round", (number,)
        )
        return Measurement(*figures, samples=tuple(samples))

    def put_measurements(self, beside: str, measurements: Mapping[str, Measurement]) -> None:
        """Stores measurements of programs, by hash, of one group of rounds; all or nothing."""
        with self._writing():
            machine = self._machine()
            for program, m in measurements.items():
                self._db.execute(
                    "DELETE FROM measurements WHERE (program_hash, beside, machine) = (?, ?, ?)",
                    (program, beside, machine),
                )
                cursor = self._db.execute(
                    "INSERT INTO measurements (program_hash, beside, machine, measured_at, calls,"
                    " median_us, low_us, high_us, cpu_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (program, beside, machine, now_text(), *astuple(m)[:-1]),
                )
                self._db.executemany(
                    "INSERT INTO samples VALUES (?, ?, ?, ?)",
                    [(cursor.lastrowid, i, w, c) for i, (w, c) in enumerate(m.samples)],
                )

    # ---- SQL ---------------------------------------------------------------------------------
    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction: all of it is kept or nothing."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk may have rolled it back already
                    self._db.execute("ROLLBACK")
                raise
        except sqlite3.Error as e:
            raise store_problem(self.file, e) from e

    def _one(self, sql: str, *values: Any) -> Any:
        try:
            return self._db.execute(sql, values).fetchone()
        except sqlite3.Error as e:
            raise store_problem(self.file, e) from e

    def _machine(self) -> int:
        here = astuple(this_machine())
        self._db.execute(
            "INSERT OR IGNORE INTO machines (host, processor, cores, system, python)"
            " VALUES (?, ?, ?, ?, ?)",
            here,
        )
        (number,) = self._db.execute(
            "SELECT machine FROM machines WHERE (host, processor, cores, system, python)"
            " = (?, ?, ?, ?, ?)",
            here,
        ).fetchone()
        return int(number)

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
        """Rows by column; names of tables and columns are ours, values are bound."""
        if rows:
            columns = list(rows[0])
            marks = ", ".join(f":{c}" for c in columns)
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {conflict}"
            self._db.executemany(sql, rows)


def _excluded(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{c} = excluded.{c}" for c in values)


def now_text() -> str:
    """The time in UTC, as ISO 8601 writes it, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
