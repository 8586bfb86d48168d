"""The one file that knows the order of the phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.alone import extract_egraph, place_buffers
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, GoalResult
from eqsat.model.target import Target
from eqsat.run import Run, Source, load, timed

if TYPE_CHECKING:
    from eqsat.model.stopping import Stop

PLACING_SECONDS = 3.0  # at most; ordinary schedules need milliseconds, whatever the clock says
DEFAULT_GOALS = ("time", "memory", "dispatches")
PHASES = ("program", "egraph", "selection", "schedule")
Progress = Callable[[str, float], None]


def optimize(
    function_or_program: Callable[..., Any] | Program | Source,
    *example_args: Any,
    rules: Sequence[str] | str | RuleSet = ("default",),
    target: str | Path | Target = "reference",
    goals: Sequence[str | GoalRequest] = DEFAULT_GOALS,
    keywords: Mapping[str, Any] | None = None,
    weights: Sequence[str] = (),
    without: Sequence[str] = (),
    budget: Mapping[str, int] | None = None,
    settings: Sequence[str] = (),
    limits: Any = None,
    time_limit: float = 60.0,
    seed: int = 0,
    threads: int = 2,
    verify: bool = False,
    stop_after: str | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Run:
    """Find the best program the rules can reach, under the target's cost model.

    example_args, keywords: arrays or `jax.ShapeDtypeStruct`. weights: names of arguments that are
    packed once, ahead of time; arrays the function closes over always are. goals: by priority
    (`"time"`, `"memory"`, `"dispatches"`), or all with weights (`"time:0.5"`). budget: hard upper
    bounds (time in ps, memory in bytes). settings: `key=value` as for `--set`. limits: a
    `saturate.Limits`. stop: ends the extraction early, with the best answer so far. Raises
    EqsatError; exit_code 3 if nothing is admissible.
    """
    seconds: dict[str, float | None] = dict.fromkeys(
        ("read", "saturate", "extract", "schedule", "compile", "verify")
    )
    if stop_after is not None and stop_after not in PHASES:
        raise fail("E406", f"no phase `{stop_after}`", help=f"one of {', '.join(PHASES)}")
    with timed(seconds, "read"):
        from eqsat.ops.merge import merge_elementwise

        source = _source(function_or_program, example_args, keywords or {}, weights)
        machine = _target(target, settings, budget or {})
        ruleset = _rules(rules)
        ruleset = ruleset.without(*_known(without, ruleset))
        wanted = _goals(goals)
        canonical = merge_elementwise(source.program)
    search = {"time_limit": time_limit, "seed": seed, "threads": threads}
    run = Run(source, canonical, machine, ruleset, wanted, seconds, search)
    _search(run, limits, stop_after, progress or (lambda *_: None), stop)
    if verify and run.schedule is not None:
        run.verify(seed=seed)
    return run


def _search(
    run: Run, limits: Any, stop_after: str | None, progress: Progress, stop: Stop | None
) -> None:
    progress("read", run.seconds["read"] or 0.0)
    if stop_after == "program":
        return
    with timed(run.seconds, "saturate"):
        from eqsat.saturate import saturate

        run.egraph = saturate(run.canonical, run.rules, run.target, limits)
    progress("saturate", run.seconds["saturate"] or 0.0)
    if stop_after == "egraph":
        return
    with timed(run.seconds, "extract"):
        from eqsat.extract import extract

        run.selection, run.baseline = extract(
            run.egraph, run.target, run.goals, **run.search, stop=stop
        )
    progress("extract", run.seconds["extract"] or 0.0)
    if stop_after == "selection":
        return
    with timed(run.seconds, "schedule"):
        make_schedules(run)
    progress("schedule", run.seconds["schedule"] or 0.0)


def make_schedules(run: Run) -> None:
    """The schedules of a run's selection and baseline."""
    from eqsat.schedule import build

    assert run.egraph is not None
    assert run.selection is not None
    run.schedule = place_temporaries(build(run.egraph, run.selection, run.target))
    _check_legality(run.schedule, run)
    if run.baseline is not None:
        run.baseline_schedule = place_temporaries(build(run.egraph, run.baseline, run.target))


def place_temporaries(schedule: Schedule) -> Schedule:
    """The schedule with an offset in one arena for every temporary."""
    from eqsat.extract.place import place
    from eqsat.model.placement import Lifetime

    buffers = [Lifetime(f"%{b.node}", b.first, b.last + 1, b.nbytes) for b in schedule.temporaries]
    return schedule.placed(place(buffers, quick=True, seconds=PLACING_SECONDS).offsets)


def _check_legality(schedule: Schedule, run: Run) -> None:
    """EqsatError E905 (our bug) if a schedule breaks what the target's file says."""
    from eqsat.schedule import faults

    found = faults(schedule, run.target, run.canonical)
    if found:
        message = f"the schedule is not legal on `{run.target.name}`: {'; '.join(found)}"
        raise fail("E905", message, exit_code=4)


def _goals(what: Sequence[str | GoalRequest]) -> tuple[GoalRequest, ...]:
    from eqsat.lang.goals import parse_goals

    read = iter(parse_goals([g for g in what if isinstance(g, str)]))
    return tuple(g if isinstance(g, GoalRequest) else next(read) for g in what)


def _source(
    what: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], weights: Sequence[str]
) -> Source:
    if isinstance(what, Source):
        return what
    if isinstance(what, Program):
        return Source(what)
    from eqsat.reading import trace_function

    return Source(*trace_function(what, args, keywords, tuple(weights)))


def _target(
    what: str | Path | Target, settings: Sequence[str], budget: Mapping[str, int]
) -> Target:
    machine = what if isinstance(what, Target) else target(what)
    if settings:
        from eqsat.lang.targets import override

        machine = override(machine, list(settings))
    from eqsat.lang.units import check_budget

    for goal in budget:
        check_budget(goal, "the budget")
    merged = dict(machine.budget) | dict(budget)
    asked = {f"budget.{goal}": f"--budget {goal}" for goal in budget}
    places = tuple((dict(machine.places) | asked).items())
    return replace(machine, budget=tuple(sorted(merged.items())), places=places)


def _rules(what: Sequence[str] | str | RuleSet) -> RuleSet:
    if isinstance(what, RuleSet):
        return what
    return rules(*([what] if isinstance(what, str) else what))


def _known(names: Sequence[str], ruleset: RuleSet) -> Sequence[str]:
    known = {r.name for r in ruleset.rules} | {t for r in ruleset.rules for t in r.tags}
    for n in names:
        if n not in known:
            raise fail("E007", f"no rule or tag `{n}` to leave out", help=did_you_mean(n, known))
    return names


def rules(*names: str) -> RuleSet:
    """Rule sets by name (`default`, `layout/pack`) or path, merged in this order."""
    from eqsat.lang.rulesets import load_rulesets

    return load_rulesets(list(names))


def target(name_or_file: str | Path) -> Target:
    """A target by name (`avx512`) or file."""
    from eqsat.lang.targets import load_target

    return load_target(str(name_or_file))


def read(spec: str) -> Source:
    """`x.eqs`, `x.py:function`, or a name under experiments/programs → Source."""
    from eqsat.reading import read_spec

    return Source(*read_spec(spec))


def compare(a: Run, b: Run) -> Any:
    """What differs between two extracted programs, and the rules behind each difference."""
    from eqsat.report.compare import compare_runs

    return compare_runs(a, b)


__all__ = [
    "DEFAULT_GOALS",
    "GoalRequest",
    "GoalResult",
    "Run",
    "Source",
    "compare",
    "extract_egraph",
    "load",
    "optimize",
    "place_buffers",
    "read",
    "rules",
    "target",
]
