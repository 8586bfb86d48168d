"""`eqsat.load`: a saved run or switch by its folder, or a run by its row of a store.

Nothing is imported that a run needs no more once it is only called: a server starts with this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eqsat.run.artefact import FILES, SWITCH


def load(folder: str | Path, *, weights: Any = None) -> Any:
    """A saved run: its folder, or `STORE/ROW`, or `STORE/EXPERIMENT/ROW` where rows share a name.

    Or the switch that a folder of `eqsat switch -o` holds.

    It is called like the function that was saved, without that function's code and without a
    search. weights: arrays in place of those that were saved: the tree that the function takes for
    them (`{"params": params}`, or that tree alone where only one argument has weights), or a flat
    mapping by name. EqsatError: E309 if the folder is none, E436 if the store has no such row, or
    several, E324 if there is no such weight or one is missing, E503 if an array does not fit.
    """
    from eqsat.run.saved import load_folder

    if (Path(folder) / SWITCH).is_file():
        from eqsat.api.switch import load_switch

        return load_switch(Path(folder), weights)
    run = load_folder(run_folder(Path(folder)))
    if weights is not None:
        from eqsat.run.serving import swap_weights

        swap_weights(run, weights)
    return run


def run_folder(path: Path) -> Path:
    """The folder of a run: this one, or that of the row whose store lies above."""
    if (path / FILES["manifest"]).is_file():
        return path
    from eqsat.lab.store.query import FILE, folder_of_row

    for store in path.parents:
        if (store / FILE).is_file():
            return store / folder_of_row(store, path.relative_to(store).as_posix())
    return path
