"""An experiment: every row searched (and executed), as a table, a JSON file and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.api import DEFAULT_GOALS, DEFAULT_TARGET, Run, Source, optimize, read
from eqsat.lab.results import CellResult, Results
from eqsat.model.diag import Diagnostic, EqsatError, did_you_mean, fail
from eqsat.model.symbols import read_size
from eqsat.report.text import verification_problem

if TYPE_CHECKING:
    from eqsat.lang.experiments import Cell
    from eqsat.lang.experiments import ExperimentFile as Plan

Progress = Callable[[str, str], None]
Reader = Callable[[str, tuple[str, ...], tuple[str, ...]], Source]  # program, `m=128`, weights
NOTHING = 3  # exit code of an EqsatError that says that nothing is admissible


@dataclass
class Experiment:
    """A plan and, once it ran, its results.

    >>> experiment = Experiment.read("experiments/quickstart.yaml")
    >>> experiment.run()
    >>> experiment.rows()[0]["dispatches"]
    """

    plan: Plan
    results: Results | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: str | Path) -> Experiment:
        """An experiment by file or name; EqsatError holds all problems of its file."""
        from eqsat.lang.experiments import load_experiment

        return cls(load_experiment(path))

    def run(
        self, *, rows: Sequence[str] = (), threads: int = 2, progress: Progress | None = None
    ) -> Results:
        """Every row, or those named, one after another in this process.

        A row that fails keeps its message and does not stop the others. progress: called with a
        row's name and what was found. Raises EqsatError (E269) for a row that does not exist.
        """
        say = progress or (lambda name, text: None)
        source = cache(_read)  # rows share programs; tracing one takes longer than a search
        outcomes = []
        for cell in _wanted(self.plan, rows):
            outcome = _outcome(self.plan, cell, source, threads)
            outcomes.append(outcome)
            say(cell.name, outcome.status_text())
        outcomes = _measured(self.plan, outcomes)
        found = {o.cell.name: o for o in outcomes}
        checked = tuple(_covered(o, found) for o in outcomes)
        self.results = Results(self.plan.name, self.plan.doc, checked)
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


def _read(program: str, sizes: tuple[str, ...], weights: tuple[str, ...]) -> Source:
    return read(program, dict(read_size(text) for text in sizes), weights)


def _wanted(plan: Plan, names: Sequence[str]) -> list[Cell]:
    known = [c.name for c in plan.cells]
    for name in names:
        if name not in known:
            raise fail("E269", f"no row `{name}`", help=did_you_mean(name, known))
    return [c for c in plan.cells if not names or c.name in names]


def _outcome(plan: Plan, cell: Cell, source: Reader, threads: int) -> CellResult:
    try:
        run, totals = _search(plan, cell, source, threads)
    except EqsatError as error:
        missing = error.exit_code == NOTHING
        expected = missing and cell.expect == "no_program"
        return CellResult(
            cell, None, "no program" if missing else "error",
            diagnostics=error.diagnostics, problems=() if expected else error.diagnostics,
        )  # fmt: skip
    problems = tuple(_problems(cell, run))
    return CellResult(cell, run, "found", problems=problems, totals_s=tuple(totals))


def _measured(plan: Plan, outcomes: Sequence[CellResult]) -> list[CellResult]:
    """The outcomes with their times; rows of one program take turns, so that they compare."""
    if not plan.runs:
        return list(outcomes)
    from eqsat.lab.timing import measure

    found = {o.cell.name: o for o in outcomes}
    alike: dict[Any, list[tuple[str, Run]]] = {}
    for o in outcomes:
        if o.run is not None:
            key = o.cell.program, o.cell.sizes
            alike.setdefault(key, []).append((o.cell.name, o.run))
    for rows in alike.values():
        times = measure([run for _, run in rows], plan.runs, plan.warmup)
        for (name, _), measured in zip(rows, times, strict=True):
            found[name] = replace(found[name], measured=measured)
    return list(found.values())


def _covered(o: CellResult, found: dict[str, CellResult]) -> CellResult:
    """The outcome with what its `covers:` finds wrong."""
    others = [found[name] for name in o.cell.covers if name in found]
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


def _search(plan: Plan, cell: Cell, source: Reader, threads: int) -> tuple[Run, list[float]]:
    """The last of `repeat` equal searches, and the seconds each took."""
    run: Run | None = None
    totals = []
    for _ in range(plan.repeat):
        run = optimize(
            source(cell.program, cell.sizes, cell.weights),
            rules=cell.rules,
            target=DEFAULT_TARGET if cell.on_devices else cell.target,
            devices=cell.target if cell.on_devices else None,
            goals=(*cell.goals, *_further(cell)),
            without=cell.without,
            unchecked=cell.unchecked,
            budget=dict(cell.budget),
            settings=cell.set,
            limits=cell.limits,
            seed=cell.seed,
            threads=threads,
            time_limit=plan.time_limit_s or 60.0,
        )
        totals.append(run.summary()["seconds"]["total"])
    assert run is not None
    if plan.verify:
        run.verify(seed=cell.seed, work_limit=plan.work_limit)
    return run, totals


def _further(cell: Cell) -> list[str]:
    """Goals nobody named break ties, in the usual order, unless goals are weighted."""
    if any(g.weight is not None for g in cell.goals):
        return []
    named = {g.name for g in cell.goals}
    return [g for g in DEFAULT_GOALS if g not in named]


def _problems(cell: Cell, run: Run) -> list[Diagnostic]:
    found = []
    if cell.expect == "no_program":
        found.append(Diagnostic("E411", f"row `{cell.name}`: a program was found, none expected"))
    v = run.verification
    if v is not None and not v.ok:
        problem = verification_problem(v)
        found.append(replace(problem, message=f"row `{cell.name}`: {problem.message}"))
    return found
