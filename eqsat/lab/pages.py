"""Pages behind the rows of an experiment: of each run, alone and beside the best of its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eqsat.report.compare import compare_runs
from eqsat.report.compare.page import write_comparison
from eqsat.report.units import delta_text
from eqsat.run.saved import load_folder

if TYPE_CHECKING:
    from eqsat.lab.results import CellResult

MOST = 60  # rows that get pages if nobody asks for more: a page is a megabyte
PAGE = "report.html"
BESIDE = "compare"  # the folder of comparisons, below that of the results


@dataclass(frozen=True)
class RowPages:
    """Addresses below the folder of the results; the best row has no comparison.

    difference: by how much the first goal is more than that of the best row.
    """

    page: str
    comparison: str = ""
    difference: str = ""


def write_row_pages(outcomes: Sequence[CellResult], folder: Path) -> dict[str, RowPages]:
    """By row: the page of its run, and beside the best row of the same program and goal.

    Pages that are there stay: runs are kept by their content. Rows that are one run share theirs.
    """
    found: dict[str, RowPages] = {}
    for o, best in _paired([o for o in outcomes if o.has_answer and o.folder is not None]):
        page = _page(o)
        address = page.relative_to(folder).as_posix()
        if best is None:
            found[o.cell.name] = RowPages(address)
            continue
        beside = folder / BESIDE / f"{o.record.run[:16]}-{best.record.run[:16]}.html"
        if not beside.is_file():
            _compare(o, best, beside)
        goal = o.record.goals[0]["goal"]
        found[o.cell.name] = RowPages(
            address, beside.relative_to(folder).as_posix(),
            delta_text(goal, o.first_goal - best.first_goal),
        )  # fmt: skip
    return found


def _paired(rows: Sequence[CellResult]) -> Iterator[tuple[CellResult, CellResult | None]]:
    """Each row with the best one of its program; None for the best, and for the same program."""
    groups: dict[object, list[CellResult]] = {}
    for o in rows:
        key = o.cell.program, o.cell.sizes, o.record.goals[0]["goal"]
        groups.setdefault(key, []).append(o)
    for group in groups.values():
        best = min(group, key=lambda o: o.first_goal)
        for o in group:
            is_same = o.record.program_hash == best.record.program_hash
            yield o, None if is_same else best


def _page(o: CellResult) -> Path:
    assert o.folder is not None
    page = o.folder / PAGE
    if not page.is_file():
        load_folder(o.folder).report(page)
    return page


def _compare(o: CellResult, best: CellResult, path: Path) -> None:
    assert o.folder is not None
    assert best.folder is not None
    names = (o.cell.name, best.cell.name)
    found = compare_runs(load_folder(o.folder), load_folder(best.folder), names)
    path.parent.mkdir(exist_ok=True)
    pages = {r.cell.name: _from(path.parent, _page(r)) for r in (o, best)}
    write_comparison(found, path, pages)


def _from(folder: Path, page: Path) -> str:
    """The address of a page, seen from a folder beside that of the runs."""
    return Path("..", page.relative_to(folder.parent)).as_posix()
