"""An experiment: every row searched (and executed), as a table, a JSON file and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.lab.cells import CellRequest, key_of, request_of, run_and_record
from eqsat.lab.onclock import Rounds, measure_groups
from eqsat.lab.results import CellResult, Results
from eqsat.lab.store.record import (
    FOUND,
    NO_PROGRAM,
    NOT_RUN,
    RunRecord,
    failed_record,
)
from eqsat.lab.store.store import RunStore
from eqsat.lab.sweep import (
    Crew,
    NoWatcher,
    RowTask,
    Watcher,
    dask_crew,
    local_crew,
    run_and_tell,
    sweep,
)
from eqsat.model.diag import Diagnostic, EqsatError, check_known, fail
from eqsat.run import Run

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell
    from eqsat.lang.experiments import ExperimentFile as Plan

REFUTED = 1  # exit code of an EqsatError about a rule with a counterexample


@dataclass
class Experiment:
    """A plan and, once it ran, its results.

    >>> experiment = Experiment.read("experiments/quickstart.yaml")
    >>> experiment.run("results")
    >>> experiment.rows()[0]["dispatches"]
    """

    plan: Plan
    results: Results | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | Path) -> Experiment:
        """An experiment by file or name; EqsatError holds all problems of its file."""
        from eqsat.lang.experiments import load_experiment

        return cls(load_experiment(path))

    def on(self, target: str) -> Experiment:
        """The experiment on another target, in place of its only one. EqsatError E200, E263."""
        from eqsat.lang.targets import find_target

        find_target(target)
        old = {c.target for c in self.plan.cells}
        if len(old) > 1:
            what = f"on `{target}` alone rows of {len(old)} targets would be the same"
            raise fail("E263", what, help="write an experiment with one target")
        cells = [
            replace(
                c,
                target=target,
                on_devices=False,
                name=c.name.replace(f"@{c.target}", f"@{target}"),
            )
            for c in self.plan.cells
        ]
        return Experiment(replace(self.plan, cells=tuple(cells)))

    def run(
        self,
        store: str | Path | None = None,
        *,
        rows: Sequence[str] = (),
        jobs: int = 1,
        dask: str = "",
        force: bool = False,
        screen: bool = False,
        threads: int = 2,
        watcher: Watcher | None = None,
    ) -> Results:
        """Every row, or those named; of a store only what it does not have yet.

        store: the folder that keeps each row as it ends, with its artefacts; without one results
        are in this process only. jobs: rows at a time, each in a process of its own if there are
        several. dask: address of a Dask scheduler whose workers run the rows instead. force: run
        also what the store has. screen: rows of `ablate:` only where a rule that they leave out
        matched in the row they are compared with; the others are not run. threads: of each search.
        watcher: told of every row.
        What rows refer to is read and checked first: EqsatError with all problems, before the first
        row runs; E269 for a row that does not exist. A row that fails keeps its message and does
        not stop the others.
        """
        cells = _wanted(self.plan, rows)
        first = [c for c in cells if not (screen and c.whole)]
        keyed = _keyed([request_of(self.plan, c, threads) for c in first])
        with ExitStack() as stack:
            run_store = None if store is None else stack.enter_context(RunStore(store))
            watch = watcher or NoWatcher()
            crew = _crew(jobs, dask, stack, watch)
            work = _Rows(self.plan, run_store, force, watch)
            results = work.searched(first, *keyed, crew)
            if screen:
                loud, silent = _screened(cells, results)
                more = _keyed([request_of(self.plan, c, threads) for c in loud])
                results += [*work.searched(loud, *more, crew), *silent]
            order = [c.name for c in cells]
            outcomes = work.finished(sorted(results, key=lambda o: order.index(o.cell.name)))
            self.results = Results(
                self.plan.name, self.plan.doc, outcomes, work.others(outcomes), self.plan.figure
            )
        return self.results

    def rows(self) -> list[dict[str, Any]]:
        """One plain dict per row; EqsatError (E405) before `run`."""
        return self._need_results().rows()

    def table(self) -> str:
        """The results as text."""
        return self._need_results().to_text()

    def _need_results(self) -> Results:
        if self.results is None:
            raise fail("E405", f"the experiment `{self.plan.name}` did not run yet")
        return self.results


def _crew(jobs: int, dask: str, stack: ExitStack, watch: Watcher) -> Crew | None:
    """Where rows run; None: in this process."""
    if dask:
        return stack.enter_context(dask_crew(dask))
    if jobs > 1:
        return stack.enter_context(local_crew(jobs, watch.heard))
    return None


def _wanted(plan: Plan, names: Sequence[str]) -> list[Cell]:
    names_of_rows = [c.name for c in plan.cells]
    for name in names:
        check_known(name, names_of_rows, "E269", f"no row `{name}`")
    return [c for c in plan.cells if not names or c.name in names]


def _keyed(
    requests: Sequence[CellRequest],
) -> tuple[list[CellRequest], dict[str, RunRecord]]:
    """The requests with their keys, and the records of rows with a refuted rule, by name.

    All of what they refer to is read: EqsatError with every problem.
    """
    keyed, refused, problems = [], {}, []
    for r in requests:
        try:
            keyed.append(replace(r, key=key_of(r)))
        except EqsatError as e:
            if e.exit_code == REFUTED:
                c = r.cell
                refused[c.name] = failed_record("", c.program, c.target, e.diagnostics, REFUTED)
            else:
                problems += [d for d in e.diagnostics if d not in problems]
    if problems:
        raise EqsatError(*problems)
    return keyed, refused


@dataclass
class _Rows:
    """One use of an experiment: its rows as tasks of a sweep, and what came of them."""

    plan: Plan
    store: RunStore | None
    force: bool
    watcher: Watcher
    runs: dict[str, Run] = field(default_factory=dict)  # of this process, where nothing keeps them

    def searched(
        self,
        cells: Sequence[Cell],
        requests: Sequence[CellRequest],
        refused: Mapping[str, RunRecord],
        crew: Crew | None,
    ) -> list[CellResult]:
        """The cells' results: of the refused ones what is given, of the others what is found."""
        placed = {r.cell.name: self._placed(r) for r in requests}
        work: Callable[[CellRequest], RunRecord] = self._run_here if crew is None else run_and_tell
        records = sweep(
            self.store, [self._task(r) for r in placed.values()], work,
            crew=crew, serves=self._serves, watcher=_Rowed(self),
        )  # fmt: skip
        for name, record in refused.items():
            self.watcher.ended(name, record, is_new=True)
        return [self._result(c, refused.get(c.name) or records[placed[c.name].key]) for c in cells]

    def finished(self, results: Sequence[CellResult]) -> tuple[CellResult, ...]:
        """The results with their times and with what makes the experiment fail, in the store."""
        if self.plan.runs:
            processes = min(self.plan.processes, self.plan.runs)
            rounds = Rounds(self.plan.runs, self.plan.warmup, processes)
            results = measure_groups(results, rounds, self.store)
        named = {o.cell.name: o for o in results}
        results = [_covered(o, named) for o in results]
        for o in results:
            self.keep_row(o)
        return tuple(results)

    def _placed(self, r: CellRequest) -> CellRequest:
        """The request with the folder of its artefacts, and the totals of a kept search."""
        if self.store is None:
            return r
        record = None if self.force else self.store.find(r.key)
        searched = record.totals_s if record is not None and record.status == FOUND else ()
        below = self.store.run_folder(r.key, Path(r.cell.program.split(":")[-1]).stem)
        folder = str((self.store.folder / below).absolute())
        return replace(r, folder=folder, below=below, searched_s=searched)

    def _task(self, r: CellRequest) -> RowTask:
        return RowTask(r.cell.name, r.key, r.cell.program, r.cell.target, r)

    def _serves(self, record: RunRecord) -> bool:
        """Whether a kept record has all that the plan asks for."""
        if self.force:
            return False
        verified = (record.summary or {}).get("verify") is not None
        return verified or not self.plan.verify or record.status == NO_PROGRAM

    def _run_here(self, request: CellRequest) -> RunRecord:
        record, run = run_and_record(request, self.watcher.heard)
        if run is not None and self.store is None:
            self.runs[request.key] = run
        return record

    def _result(self, cell: Cell, record: RunRecord) -> CellResult:
        folder = self.store.folder / record.folder if self.store and record.folder else None
        result = CellResult(cell, record, self.runs.get(record.run), folder)
        return replace(result, problems=tuple(_problems(result)))

    def keep_row(self, o: CellResult) -> None:
        """Which run the row is, in the store; rows without an answer for now have none."""
        if self.store is None or not o.record.is_final:
            return
        position = [c.name for c in self.plan.cells].index(o.cell.name)
        named = self.plan.name, self.plan.doc, self.plan.file
        problems = [d.message for d in o.problems]
        self.store.put_row(
            named, o.cell.name, position, o.record.run, self._asked(o.cell), problems
        )

    def _asked(self, cell: Cell) -> dict[str, Any]:
        """The row's request; a row kept from earlier times is this one if that is equal."""
        limits = cell.limits.to_json() | {"time_s": self.plan.time_limit_s}
        more = {"sizes": list(cell.sizes), "weights": list(cell.weights), "limits": limits}
        return CellResult.asked_of(cell) | more | {"repeat": self.plan.repeat}

    def others(self, outcomes: Sequence[CellResult]) -> tuple[CellResult, ...]:
        """Rows of the plan that did not run now, as the store has them from earlier times."""
        if self.store is None:
            return ()
        done = {o.cell.name for o in outcomes}
        results = []
        for cell in (c for c in self.plan.cells if c.name not in done):
            record = self.store.row_record(self.plan.name, cell.name, self._asked(cell))
            if record is not None:
                results.append(CellResult(cell, record, None, self.store.folder / record.folder))
        return tuple(replace(o, problems=tuple(_problems(o))) for o in results)


@dataclass
class _Rowed(NoWatcher):
    """Links each row to its run as soon as that ends; a process may be killed at any time."""

    rows: _Rows

    def began(self, name: str) -> None:
        self.rows.watcher.began(name)

    def noted(self, name: str, line: str) -> None:
        self.rows.watcher.noted(name, line)

    def ended(self, name: str, record: RunRecord, is_new: bool) -> None:
        for cell in self.rows.plan.cells:
            if cell.name == name:
                self.rows.keep_row(CellResult(cell, record))
        self.rows.watcher.ended(name, record, is_new)


def _problems(o: CellResult) -> Iterator[Diagnostic]:
    """Failures of the experiment: no program, one against what is expected, a mismatch."""
    record, here = o.record, f"row `{o.cell.name}`"
    expects_none = o.cell.expect == "no_program"
    may_be_none = o.cell.expect in ("no_program", "any")
    if record.status == NOT_RUN:
        return
    if record.status != FOUND:
        yield from () if may_be_none and record.status == NO_PROGRAM else record.diagnostics
        return
    if expects_none:
        yield Diagnostic("E411", f"{here}: a program was found, none expected")
    for p in record.problems:
        yield replace(p, message=f"{here}: {p.message}")


# ---- ablation ------------------------------------------------------------------------------------
def _screened(
    cells: Sequence[Cell], results: Sequence[CellResult]
) -> tuple[list[Cell], list[CellResult]]:
    """Rows of `ablate:` whose rules matched in their whole row, and the results of the others."""
    fired = {o.cell.name: set(o.record.fired) for o in results if o.has_answer}
    loud, silent = [], []
    for c in (c for c in cells if c.whole):
        if c.whole not in fired or fired[c.whole] & set(c.left_out):
            loud.append(c)
            continue
        why = Diagnostic("E437", f"nothing that it leaves out matched in `{c.whole}`")
        record = RunRecord("", c.program, c.target, NOT_RUN, (why,))
        silent.append(CellResult(c, record))
    return loud, silent


# ---- covers --------------------------------------------------------------------------------------
def _covered(o: CellResult, by_name: dict[str, CellResult]) -> CellResult:
    """The outcome with what its `covers:` finds wrong."""
    others = [by_name[name] for name in o.cell.covers if name in by_name]
    problems = [p for other in others for p in _uncovered(o, other)]
    return replace(o, problems=(*o.problems, *problems)) if problems else o


def _uncovered(o: CellResult, other: CellResult) -> Iterator[Diagnostic]:
    """The other's program must be among those this row chose from, and must not be better."""
    if o.run is None or other.run is None:
        return
    assert o.run.egraph is not None and other.run.schedule is not None
    assert o.run.selection is not None and other.run.selection is not None
    here, there = f"row `{o.cell.name}`", f"row `{other.cell.name}`"
    if not o.run.egraph.holds(other.run.schedule.program):
        yield Diagnostic("E412", f"{here} has not the program of {there} in its e-graph")
    goal = o.run.goals[0].name
    mine, theirs = (x.selection.goal(goal).value for x in (o.run, other.run) if x.selection)
    if mine > theirs:
        yield Diagnostic("E412", f"{here} is worse than {there}: {goal} {mine}, not {theirs}")
