"""A cell of an experiment as a request to search: its key, its run, its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.api import DEFAULT_GOALS, DEFAULT_TARGET, Run, Source, optimize, read
from eqsat.api.judge import (
    Foreign,
    check_results,
    foreign_content,
    read_foreign,
    with_foreign,
)
from eqsat.lab.store.record import RunRecord, failed_record, record_of, run_key
from eqsat.lab.store.tables import searching, share_files
from eqsat.model.diag import EqsatError, fail
from eqsat.model.progress import Progress
from eqsat.model.symbols import read_size
from eqsat.report.text import progress_line
from eqsat.run.saved import load_folder

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell
    from eqsat.lang.experiments import ExperimentFile as Plan

Heard = Callable[[str, str], None]  # a row, and how far its search is
DEFAULT_SECONDS = 60.0  # of a row whose experiment names no limit


@dataclass(frozen=True)
class CellRequest:
    """A cell with all that decides how it is run; a worker is called with it.

    key: what the caller found it to be, "" before. folder: where the artefacts go, as a path, None
    if they are not kept. below: the same from the store on.
    """

    cell: Cell
    repeat: int
    time_limit_s: float
    verify: bool
    work_limit: float
    threads: int
    key: str = ""
    folder: str | None = None
    below: str = ""
    searched_s: tuple[float, ...] = ()  # of the answer that the folder holds, if it is there


def request_of(plan: Plan, cell: Cell, threads: int) -> CellRequest:
    """How this plan runs a cell."""
    limit = plan.time_limit_s or DEFAULT_SECONDS
    return CellRequest(cell, plan.repeat, limit, plan.verify, plan.work_limit, threads)


def asked(request: CellRequest) -> Run:
    """The run up to its program: everything that it refers to is read and checked."""
    run = _optimized(request, stop_after="program")
    if request.cell.judge:
        check_results(_foreign(request, run), run)
    return run


def key_of(request: CellRequest) -> str:
    """The key of a cell's run; EqsatError as `optimize` has them for what cannot be read."""
    run = asked(request)
    judged = foreign_content(_foreign(request, run)) if request.cell.judge else ""
    return run_key(run, request.cell.unchecked, request.repeat, judged)


def _foreign(request: CellRequest, run: Run) -> Foreign:
    """The foreign program of a row that is judged; paths are those of the file."""
    named = request.cell.judge
    beside = Path(request.cell.base, named)
    return read_foreign(beside if beside.exists() else Path(named), run)


def run_cell(request: CellRequest, heard: Heard | None = None) -> RunRecord:
    """Searches (and verifies) one cell and keeps its artefacts; the record says how it ended.

    What was searched before and is only to be verified is not searched again. heard: told of the
    search's progress. EqsatError (E434) if this process reads something else than the caller did.
    """
    return run_and_record(request, heard)[0]


def run_and_record(
    request: CellRequest, heard: Heard | None = None
) -> tuple[RunRecord, Run | None]:
    """`run_cell`, and the run itself where there is an answer."""
    cell, key = request.cell, request.key
    try:
        with searching():
            _check_same(request)
            run, totals = _searched(request, heard)
            if request.verify and run.verification is None:
                run.verify(seed=cell.seed, work_limit=request.work_limit)
            if request.folder is not None:
                share_files(run.save(request.folder, packed=False))
    except EqsatError as e:
        return failed_record(key, cell.program, cell.target, e.diagnostics, e.exit_code), None
    return replace(record_of(key, run, totals), folder=request.below), run


def _check_same(request: CellRequest) -> None:
    key = key_of(request)
    if request.key and key != request.key:
        raise fail(
            "E434", f"a worker reads another `{request.cell.program}` than this process",
            help="workers need the same files, packages and versions",
        )  # fmt: skip


def _searched(request: CellRequest, heard: Heard | None) -> tuple[Run, Sequence[float]]:
    """The last of `repeat` equal searches, and the seconds each took."""

    def tell(now: Progress) -> None:
        if heard is not None:
            heard(request.cell.name, progress_line(now))

    run: Run | None = None
    totals: list[float] = []
    if request.searched_s and request.folder is not None:
        return load_folder(request.folder), request.searched_s
    for _ in range(request.repeat):
        run = _optimized(request, progress=tell)
        totals.append(run.summary()["seconds"]["total"])
    assert run is not None
    if request.cell.judge:
        run = with_foreign(run, _foreign(request, run))
    return run, totals


def _optimized(request: CellRequest, **more: Any) -> Run:
    cell = request.cell
    program, target = cell.from_folder(cell.program), cell.from_folder(cell.target)
    return optimize(
        _source(program, cell.sizes, cell.weights, _written(program)),
        rules=tuple(map(cell.from_folder, cell.rules)),
        target=DEFAULT_TARGET if cell.on_devices else target,
        devices=target if cell.on_devices else None,
        goals=(*cell.goals, *_further(cell)),
        without=cell.without,
        unchecked=cell.unchecked,
        budget=dict(cell.budget),
        settings=cell.set,
        limits=cell.limits,
        seed=cell.seed,
        extractor=cell.extractor,
        threads=request.threads,
        time_limit=request.time_limit_s,
        cache=False,  # a store keeps what it has searched, with the seconds that it took
        **more,
    )


def _written(program: str) -> int:
    """When the program's file was last written: a worker outlives many an edit."""
    path = Path(program.partition(":")[0])
    return path.stat().st_mtime_ns if path.is_file() else 0


@lru_cache(maxsize=16)
def _source(program: str, sizes: tuple[str, ...], weights: tuple[str, ...], _at: int) -> Source:
    """Rows share programs; tracing one takes longer than many a search."""
    return read(program, dict(read_size(text) for text in sizes), weights)


def _further(cell: Cell) -> list[str]:
    """Goals that are not requested break ties, in the usual order, unless goals are weighted."""
    if any(g.weight is not None for g in cell.goals):
        return []
    named = {g.name for g in cell.goals}
    return [g for g in DEFAULT_GOALS if g not in named]
