"""A page over a folder of results: its experiments, their rows, saved runs and fronts, as links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from os.path import relpath
from pathlib import Path
from typing import Any

from eqsat.lab.resultpage import PAGE, ROW_SCRIPTS, TOOLS
from eqsat.lab.results import page_name
from eqsat.lab.store.query import ask
from eqsat.lab.store.tables import FILE
from eqsat.model.files import write_text
from eqsat.report.formatting import html_table, ratio_text, section, us_text
from eqsat.report.page.onefile import scripted_document
from eqsat.run.artefact import FILES

INDEX = "index.html"
FRONT, FRONT_PAGE = "pareto.json", "pareto.html"
EXPERIMENTS = """
SELECT experiment, doc, count(*), sum(1 - as_expected), max(ended_at)
FROM experiments JOIN rows USING (experiment) JOIN runs USING (run)
GROUP BY experiment ORDER BY max(ended_at) DESC
"""
ROWS = """
SELECT experiment, row, results.time_us, results.stop, folder, goals.input, goals.value
FROM results JOIN runs USING (run) LEFT JOIN goals ON goals.run = results.run AND rank = 1
ORDER BY experiment, position
"""
Cells = tuple[str, ...]
Links = dict[tuple[int, int], str]


def holds_results(folder: Path) -> bool:
    """Whether a folder is no run itself, but has a store, saved runs or fronts in it."""
    if (folder / FILES["manifest"]).is_file() or not folder.is_dir():
        return False
    return (folder / FILE).is_file() or any(True for _ in _saved(folder))


def write_index(folder: Path, path: Path) -> Path:
    """The page that links everything in the folder; EqsatError (E430, E407)."""
    place = path.parent
    parts = [*_stored(folder, place)] if (folder / FILE).is_file() else []
    parts.append(_runs(folder, place))
    title = f"results in {folder.resolve().name}"
    body = [f"<h1>{escape(title)}</h1>", *parts]
    data = {"lines": [], "figure": None}
    page = scripted_document(title, "\n".join(body), data, ROW_SCRIPTS, charts=True)
    return write_text(path, page)


def _stored(folder: Path, place: Path) -> Iterator[str]:
    """The experiments of the store, and all their rows, which can be sorted and filtered."""
    _, experiments = ask(folder, EXPERIMENTS)
    rows: list[Cells] = []
    links: Links = {}
    for i, (name, doc, count, odd, ended) in enumerate(experiments):
        rows.append((name, doc, str(count), str(odd or ""), ended[:16].replace("T", " ")))
        _link(links, (i, 0), folder / f"{page_name(name)}.html", place)
    columns = ("experiment", "question", "rows", "unexpected", "last run (UTC)")
    yield section("Experiments", html_table(columns, rows, (2, 3, 4), links))
    yield section("Rows", TOOLS + _rows(folder, place))


def _rows(folder: Path, place: Path) -> str:
    _, stored = ask(folder, ROWS)
    rows: list[Cells] = []
    links: Links = {}
    for i, (experiment, row, time_us, stop, below, before, after) in enumerate(stored):
        figure = "–" if time_us is None else us_text(time_us)
        share = "–" if before is None or after is None else ratio_text(before, after)
        rows.append((row, experiment, figure, share, stop or "no program"))
        if below:
            _link(links, (i, 0), folder / below / PAGE, place)
    columns = ("row", "experiment", "predicted", "vs input", "stop")
    table = html_table(columns, rows, (2, 3), links)
    return table.replace("<table>", '<table id="rows">', 1)


def _runs(folder: Path, place: Path) -> str:
    """Runs and fronts that were saved here by themselves."""
    rows: list[Cells] = []
    links: Links = {}
    for i, path in enumerate(_saved(folder)):
        if (path / FRONT).is_file():
            front = _read(path / FRONT)
            rows.append((path.name, "front", f"{len(front.get('points', ()))} points", ""))
            _link(links, (i, 0), path / FRONT_PAGE, place)
            continue
        summary = _read(path / FILES["summary"])
        time = ((summary.get("goals") or {}).get("time_us") or {}).get("value")
        before = (summary.get("baseline") or {}).get("time_us")
        figure = "–" if time is None else us_text(time)
        share = "" if time is None or before is None else ratio_text(before, time)
        what = f"{(summary.get('program') or {}).get('name', '')} on {summary.get('target', '')}"
        rows.append((path.name, what, figure, share))
        _link(links, (i, 0), path / PAGE, place)
    columns = ("folder", "what", "predicted", "vs input")
    return section("Saved by themselves", html_table(columns, rows, (2, 3), links) if rows else "")


def _saved(folder: Path) -> Iterator[Path]:
    """Folders of runs and fronts right below this one, by name."""
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        if (path / FILES["manifest"]).is_file() or (path / FRONT).is_file():
            yield path


def _read(path: Path) -> dict[str, Any]:
    """A JSON object that a run or front keeps; empty if it cannot be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _link(links: Links, at: tuple[int, int], page: Path, place: Path) -> None:
    """A link to a page, where that was written."""
    if page.is_file():
        links[at] = Path(relpath(page, place)).as_posix()
