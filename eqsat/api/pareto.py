"""`eqsat.pareto`: all best trade-offs of a program between time, peak memory and others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.api.optimization import DEFAULT_GOALS, optimize
from eqsat.model.deadline import Stop, elapsed
from eqsat.model.diag import fail
from eqsat.model.files import write_text
from eqsat.model.printed import Printed
from eqsat.model.program import Program
from eqsat.model.progress import heard, phase
from eqsat.model.selection import Selection
from eqsat.report.facts import schedule_figures
from eqsat.run import Run, RunUse
from eqsat.run.artefact import check_place, written_whole
from eqsat.run.phases import Listener, progress_of, with_schedules

if TYPE_CHECKING:
    from eqsat.report.pareto import FrontReport

FILE, PAGE = "pareto.json", "pareto.html"


@dataclass(frozen=True)
class Front(Printed):
    """The points found, best by the first goal first; the budget of each is its own values.

    `at_least` points exist; `complete` says that these are all, proven. stop: complete | points
    (more exist than requested) | wall | interrupted.
    """

    points: tuple[Run, ...]
    at_least: int
    complete: bool
    stop: str
    seconds: float
    whole: Run  # what all points share, with the input program's own schedule
    goals: tuple[str, ...] = DEFAULT_GOALS

    def to_text(self) -> str:
        """The table, a plot in characters, and how complete the front is."""
        from eqsat.report.pareto import front_text

        return front_text(self.told())

    def to_json(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        from eqsat.report.pareto import front_json

        return front_json(self.told())

    def page(self, links: Sequence[str] = ()) -> str:
        """One self-contained HTML page; links: of the points' pages, below its folder."""
        from eqsat.report.pareto import front_page

        return front_page(self.told(), links)

    def told(self) -> FrontReport:
        """The plain values that the reports read."""
        from eqsat.report.pareto import FrontReport

        before = self.whole.baseline_schedule
        return FrontReport(
            f"{self.whole.program.name} on {self.whole.target.name}",
            self.points, self.at_least, self.complete, self.stop, self.seconds,
            None if before is None else schedule_figures(before), self.goals,
        )  # fmt: skip

    def save(self, folder: str | Path) -> Path:
        """pareto.json, pareto.html and a run per point (`point-1` …), written aside and renamed.

        EqsatError: E309 if something else is in the way, E407 if it cannot be written.
        """
        folder = Path(folder)
        check_place(folder, FILE, "a front")
        with written_whole(folder) as aside:
            links = [f"point-{i}/report.html" for i, _ in enumerate(self.points, 1)]
            for link, run in zip(links, self.points, strict=True):
                run.save((aside / link).parent)
                run.report(aside / link)
            write_text(aside / FILE, f"{json.dumps(self.to_json(), indent=1)}\n")
            write_text(aside / PAGE, self.page(links))
        return folder


def pareto(
    function_or_program: Callable[..., Any] | Program | Any,
    *example_args: Any,
    goals: Sequence[str] = DEFAULT_GOALS,
    points: int = 12,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
    progress: Listener | None = None,
    **request: Any,
) -> Front:
    """The front of some goals that the rules can reach: time × peak memory × dispatches if none.

    goals: two or more, without weights. points: the most to find; if more exist, they are spread
    over the range. time_limit: seconds for everything. request: further arguments of `optimize`
    (rules, target, settings, budget, weights …). Every point is proven or has a gap. Raises
    EqsatError; exit_code 3 if nothing is admissible.
    """
    start = elapsed()
    if points < 1:
        raise fail("E400", f"`points` is {points}", help="ask for at least one point")
    if len(goals) < 2 or any(":" in g for g in goals):
        what = " ".join(goals)
        raise fail("E404", f"no front of `{what}`", help="name two goals or more, without weights")
    run = optimize(
        function_or_program, *example_args, goals=goals, time_limit=time_limit,
        seed=seed, stop_after="egraph", progress=progress, **request,
    )  # fmt: skip
    from eqsat.extract.ask.front import front_of as search
    from eqsat.extract.session import prepare

    assert run.egraph is not None
    left = max(start + time_limit - elapsed(), 1.0)
    listener = progress_of(run, time_limit, progress)
    listener.begin, listener.points = start, list(run.curve.points if run.curve else ())
    with heard(listener):
        asked = run.egraph, run.target, run.goals
        session = prepare(*asked, time_limit=left, seed=seed, stop=stop, whole=True)
        left = start + time_limit - elapsed()
        phase("front")
        front, selections = search(session, tuple(goals), points=points, seconds=left)
    if not selections:
        raise _nothing(session, front.stop == "infeasible" and not session.assembly.cuts)
    run = replace(run, baseline=session.baseline, curve=listener.curve)
    runs = tuple(_point(run, s, i, tuple(goals[1:])) for i, s in enumerate(selections, 1))
    whole = with_schedules(replace(run, selection=selections[0]))
    seconds = elapsed() - start
    return Front(runs, front.at_least, front.complete, front.stop, seconds, whole, tuple(goals))


def _nothing(session: Any, proven: bool) -> Exception:
    from eqsat.extract.diagnose import inadmissible

    return inadmissible(session, proven)


def _point(run: Run, selection: Selection, number: int, others: tuple[str, ...]) -> Run:
    """A run whose optimum this point is: its other goals are its budget."""
    budget = dict(run.target.budget)
    places = dict(run.target.places)
    for goal in others:
        budget[goal] = selection.goal(goal).value
        places[f"budget.{goal}"] = f"point {number} of the front"
    target = replace(run.target, budget=tuple(sorted(budget.items())), places=tuple(places.items()))
    baseline = run.baseline
    if baseline and any(baseline.goal(g).value > budget[g] for g in others):
        baseline = None  # not admissible where this point is
    seconds = dict(run.seconds) | {"extract": selection.seconds}
    stages = {"target": target, "selection": selection, "baseline": baseline, "seconds": seconds}
    return with_schedules(replace(run, **stages, use=RunUse(dict(run.use.weights))))
