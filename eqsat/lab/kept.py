"""A run by its folder, or by the row of an experiment that it is: `results/eqsat@three-readers`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.lab.store.record import is_below
from eqsat.lab.store.tables import FILE, open_to_read, store_problem
from eqsat.model.diag import did_you_mean, fail
from eqsat.run.artefact import FILES

if TYPE_CHECKING:
    from eqsat.run import Run

ROWS = """
SELECT experiment, row, folder FROM rows JOIN runs USING (run) ORDER BY experiment, position
"""


def load(folder: str | Path) -> Run:
    """A saved run: its folder, or `STORE/ROW`, or `STORE/EXPERIMENT/ROW` where rows share a name.

    EqsatError: E309 if the folder is none, E436 if the store has no such row, or several.
    """
    from eqsat.run.saved import load_folder

    return load_folder(run_folder(Path(folder)))


def run_folder(path: Path) -> Path:
    """The folder of a run: this one, or that of the row whose store lies above."""
    if (path / FILES["manifest"]).is_file():
        return path
    for store in path.parents:
        if (store / FILE).is_file():
            return store / _folder_of(store, path.relative_to(store).as_posix())
    return path


def _folder_of(store: Path, name: str) -> str:
    """The folder, below the store, of the run that a row is."""
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
