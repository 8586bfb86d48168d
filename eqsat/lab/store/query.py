"""Questions to a store: in SQL, of results of earlier versions, and where a row's run is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from eqsat.lab.store.tables import FILE, TABLES, open_to_read, put_view, store_problem
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.files import read_text

LARGEST_JSON = 1 << 30
TABLES_AND_COLUMNS = """
SELECT m.name AS "table", group_concat(c.name, ', ') AS columns
FROM (SELECT * FROM main.sqlite_master UNION SELECT * FROM temp.sqlite_master) AS m,
  pragma_table_info(m.name) AS c
WHERE m.type IN ('table', 'view') GROUP BY m.name ORDER BY m.name
"""
READING = (
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
)  # fmt: skip
Answer = tuple[tuple[str, ...], list[tuple[Any, ...]]]


def ask(store: Path, sql: str = "") -> Answer:
    """(columns, rows) of one SELECT; without one the tables with their columns.

    store: a folder, its SQLite file, or `NAME.json` of an experiment. EqsatError: E430 if it is no
    store, E435 if SQLite does not take the question, or it would change something.
    """
    with closing(_opened(store)) as db:
        if sql:
            db.set_authorizer(_reads_only)
        try:
            cursor = db.execute(sql or TABLES_AND_COLUMNS)
            rows = cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as e:
            raise fail(
                "E435", f"the question cannot be answered: {e}",
                help=f"one SELECT; `eqsat query {store}` lists tables and columns",
            ) from e  # fmt: skip
        if cursor.description is None:
            raise fail("E435", "this is no question: a SELECT is", help="nothing was changed")
        return tuple(d[0] for d in cursor.description), rows


def _reads_only(action: int, *_: object) -> int:
    """A question reads tables and calls functions; it attaches and changes nothing."""
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _opened(store: Path) -> sqlite3.Connection:
    if store.suffix == ".json":
        return _of_json(store)
    return open_to_read(store / FILE if store.is_dir() else store)


def _of_json(path: Path) -> sqlite3.Connection:
    """Results that were written as JSON, as the tables experiments, rows, runs and goals."""
    try:
        data = json.loads(read_text(path, "E430", LARGEST_JSON))
        name, rows = data["experiment"], data["rows"]
        db = sqlite3.connect(":memory:")
        for statement in filter(str.strip, TABLES.split(";")):
            db.execute(statement)
        db.execute("INSERT INTO machines VALUES (1, '', '', 0, '', '')")
        db.execute("INSERT INTO experiments VALUES (?, ?, ?)", (name, data["doc"], str(path)))
        for i, row in enumerate(rows):
            _put_old_row(db, name, i, row)
        put_view(db)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise fail("E430", f"`{path}` holds no results of an experiment: {e!r}") from e
    db.commit()
    db.execute("PRAGMA query_only = ON")
    return db


def _put_old_row(db: sqlite3.Connection, experiment: str, i: int, row: Mapping[str, Any]) -> None:
    run = row.get("run") or f"{experiment}/{row['name']}"
    verify, seconds = row.get("verify"), row.get("seconds") or {}
    columns = {
        "run": run, "program": row["program"], "target": row["target"], "status": row["status"],
        "message": row.get("message", ""), "ended_at": "", "machine": 1, "record": json.dumps(row),
        "verified": None if verify is None else int(verify["ok"]), "seconds": seconds.get("total"),
        "egraph_nodes": (row.get("egraph") or {}).get("nodes"),
    } | {
        k: row.get(k)
        for k in ("claim", "stop", "time_us", "peak_bytes", "dispatches", "bytes_moved")
    }  # fmt: skip
    marks = ", ".join(f":{c}" for c in columns)
    db.execute(f"INSERT OR IGNORE INTO runs ({', '.join(columns)}) VALUES ({marks})", columns)
    for rank, (key, g) in enumerate((row.get("goals_found") or {}).items(), 1):
        values = (run, key, rank, g["value"], g["bound"], g["gap"])
        db.execute("INSERT OR IGNORE INTO goals VALUES (?, ?, ?, ?, ?, ?, NULL)", values)
    keys = ("program", "target", "rules", "goals", "set", "budget", "seed", "extractor", "varied")
    request = {k: row[k] for k in keys if k in row}
    expected = int(row.get("as_expected", True))
    db.execute(
        "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, '[]')",
        (experiment, row["name"], i, run, json.dumps(request), expected),
    )


ROWS = """
SELECT experiment, row, folder FROM rows JOIN runs USING (run) ORDER BY experiment, position
"""


def folder_of_row(store: Path, name: str) -> str:
    """The folder, below the store, of the run that a row is; EqsatError E436 if there is none."""
    from eqsat.lab.store.record import is_below

    with closing(open_to_read(store / FILE)) as db:
        try:
            rows = db.execute(ROWS).fetchall()
        except sqlite3.Error as e:
            raise store_problem(store / FILE, e) from e
    matching = [(e, r, f) for e, r, f in rows if name in (r, f"{e}/{r}")]
    if not matching:
        names = [r for _, r, _ in rows]
        raise fail("E436", f"`{store}` has no row `{name}`", help=did_you_mean(name, names))
    if len(matching) > 1 and len({f for _, _, f in matching}) > 1:
        names = ", ".join(f"{store}/{e}/{r}" for e, r, _ in matching)
        raise fail("E436", f"several rows are named `{name}`", help=f"one of {names}")
    ((_, row, folder), *_) = matching
    if folder is None:
        raise fail("E436", f"the row `{row}` has no program: nothing was admissible")
    if not isinstance(folder, str) or not is_below(folder):
        raise fail("E436", f"the row `{row}` has its run outside of the store")
    return folder
