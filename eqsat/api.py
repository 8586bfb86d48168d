"""The one file that knows the order of the phases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalRequest, GoalResult, Selection
from eqsat.model.target import Target

if TYPE_CHECKING:
    import numpy as np

    from eqsat.execute.verify import Verification
    from eqsat.execute.xla import Executable
    from eqsat.frontends.jaxpr import Traced
    from eqsat.model.price import Price, Question
    from eqsat.model.stopping import Stop
    from eqsat.report.explain import Explanation

PLACING_SECONDS = 3.0  # at most; ordinary schedules need milliseconds, whatever the clock says
DEFAULT_GOALS = ("time", "memory", "dispatches")
STAGES = (
    "program", "canonical", "target", "rules", "egraph", "selection", "baseline", "schedule",
    "baseline_schedule",
)  # fmt: skip
PHASES = ("program", "egraph", "selection", "schedule")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Source:
    """A program with what travels beside it: weights by content hash, opaque calls by key."""

    program: Program
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    opaque: Mapping[str, Any] = field(default_factory=dict)
    traced: Traced | None = None


@dataclass
class Run:
    """One optimization and everything it made; each stage is plain data."""

    source: Source
    canonical: Program  # what was searched: elementwise chains merged
    target: Target
    rules: RuleSet
    goals: tuple[GoalRequest, ...]
    seconds: dict[str, float | None]
    search: dict[str, Any]  # time_limit, seed, threads: what to repeat the search with
    egraph: EGraph | None = None
    selection: Selection | None = None
    schedule: Schedule | None = None
    baseline: Selection | None = None
    baseline_schedule: Schedule | None = None
    verification: Verification | None = None
    packed_file: Path | None = None  # packed weights of a saved run

    @property
    def program(self) -> Program:
        return self.source.program

    def summary(self) -> dict[str, Any]:
        """The object that `--output-format json` prints."""
        from eqsat.report.summary import summary

        return summary(self)

    def explain(
        self, value: str | None = None, *, price: bool | None = None, time_limit: float = 30.0
    ) -> Explanation:
        """Which rules made a choice, what else there was at what price, what limits removed.

        price: search again for every alternative, within `time_limit` seconds for all; None does
        if a value is named. Raises EqsatError (E303) if the program has no such value.
        """
        from eqsat.report.explain import explain

        wanted = value is not None if price is None else price
        return explain(self, value, partial(self._prices, time_limit) if wanted else None)

    def _prices(self, seconds: float, questions: Sequence[Question]) -> list[Price]:
        from eqsat.extract.ask.counterfactual import counterfactuals

        begin = time.monotonic()
        assert self.egraph is not None
        assert self.selection is not None
        found = counterfactuals(
            self.egraph, self.target, self.goals, self.selection, self.baseline,
            self.search["seed"],
        )  # fmt: skip
        return found.prices(questions, seconds - (time.monotonic() - begin))

    def compile(self) -> Executable:
        """A plain JAX callable with the calling convention of the traced function.

        Programs read from text take flat inputs and return a tuple.
        """
        return self._executable

    @cached_property
    def _executable(self) -> Executable:
        from eqsat.execute.xla import build

        source = self.source
        schedule = self._need_schedule()
        executable = build(schedule, source.opaque, source.weights, source.traced)
        if self.packed_file is not None:
            from eqsat.execute.weights import load as load_packed

            packed = load_packed(self.packed_file, schedule)
            if packed is not None:
                executable.packed = packed
        return executable

    def verify(self, samples: int = 4, seed: int = 0) -> Verification:
        """Random inputs through the schedule and through the float64 reference."""
        from eqsat.execute.verify import verify

        with _timed(self.seconds, "compile"):
            call = self._executable.compile()
        with _timed(self.seconds, "verify"):
            self.verification = verify(
                self.program, call, self.source.weights, self.source.opaque,
                samples=samples, seed=seed,
            )  # fmt: skip
        return self.verification

    def _need_schedule(self) -> Schedule:
        if self.schedule is None:
            raise fail("E405", "this run stopped before a schedule was made")
        return self.schedule

    def save(self, folder: str | Path) -> Path:
        """The artefact folder, written aside and renamed, so it is whole or not there."""
        from eqsat import artefact
        from eqsat.execute.weights import packed_arrays

        stages = {k: getattr(self, k) for k in STAGES}
        values: dict[str, Any] = {k: v.to_json() for k, v in stages.items() if v is not None}
        values["summary"] = self.summary()
        options = {
            "goals": [vars(g) for g in self.goals],
            "verification": None if self.verification is None else vars(self.verification),
            "seconds": self.seconds,
        } | self.search
        values["manifest"] = artefact.manifest(options)
        texts = {"1-program.eqs": self.program.to_text()}
        if self.schedule is not None:
            texts["4-schedule.txt"] = self.schedule.to_text()
        exported = {k: call.export() for k, call in self.source.opaque.items()}
        arrays: dict[str, Mapping[str, Any]] = {artefact.WEIGHTS: self.source.weights}
        if "_executable" in vars(self):  # it ran, so its weights are packed
            arrays[artefact.PACKED] = packed_arrays(self._need_schedule(), self._executable.packed)
        return artefact.write(Path(folder), values, texts, arrays, exported)

    def report(self, path: str | Path) -> Path:
        """One self-contained HTML page."""
        from eqsat.report.html import write_page

        return write_page(self, Path(path))


@contextmanager
def _timed(seconds: dict[str, float | None], phase: str) -> Iterator[None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = (seconds.get(phase) or 0.0) + time.perf_counter() - begin


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
    with _timed(seconds, "read"):
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
    with _timed(run.seconds, "saturate"):
        from eqsat.saturate import saturate

        run.egraph = saturate(run.canonical, run.rules, run.target, limits)
    progress("saturate", run.seconds["saturate"] or 0.0)
    if stop_after == "egraph":
        return
    with _timed(run.seconds, "extract"):
        from eqsat.extract import extract

        run.selection, run.baseline = extract(
            run.egraph, run.target, run.goals, **run.search, stop=stop
        )
    progress("extract", run.seconds["extract"] or 0.0)
    if stop_after == "selection":
        return
    with _timed(run.seconds, "schedule"):
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
    from eqsat.lang.experiments import parse_goals

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
    from eqsat.model.diag import did_you_mean

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


def extract_egraph(
    path: str | Path, time_limit: float = 30.0, seed: int = 0, stop: Stop | None = None
) -> dict[str, Any]:
    """The cheapest DAG of an egraph-serialize JSON file, as `eqsat extract` prints it.

    time_limit: seconds, reading included. The keys: `status` (optimal, feasible or infeasible),
    `stop`, `dag_cost`, `bound`, `gap`, `seconds`, `choices` (class → node). Raises EqsatError.
    """
    start = time.monotonic()
    from eqsat.extract.dag.search import extract_dag
    from eqsat.frontends.serialized import read_serialized

    egraph = read_serialized(Path(path))
    found = extract_dag(egraph, deadline=start + time_limit, seed=seed, stop=stop).to_json()
    return found | {"seconds": time.monotonic() - start}


def place_buffers(
    path: str | Path,
    capacity: int | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """The lowest placement of a CSV file's buffers in one arena, as `eqsat place` prints it.

    capacity: bytes; the first placement that fits ends the search. The keys: `status` (optimal,
    feasible, infeasible: proven, or unknown: nothing found that fits), `stop`, `height`, `bound`,
    `seconds`, `rows` (id, lower, upper, size, offset of each buffer). Raises EqsatError.
    """
    start = time.monotonic()
    from eqsat.extract.place import place
    from eqsat.frontends.buffers import read_buffers

    buffers = read_buffers(path)
    left = time_limit - (time.monotonic() - start)
    found = place(buffers, capacity=capacity, seconds=left, seed=seed, stop=stop).to_json()
    placed = zip(buffers, found.pop("offsets"), strict=True)
    rows = [[b.name, b.lower, b.upper, b.size, o] for b, o in placed]
    return found | {"seconds": time.monotonic() - start, "rows": rows}


def load(folder: str | Path) -> Run:
    """A saved run; EqsatError (E309) if the folder is not one."""
    from eqsat import artefact
    from eqsat.frontends.opaque import OpaqueCall

    values, weights, exported = artefact.read(Path(folder))
    try:
        stages = {k: READERS[k](values[k]) for k in STAGES if k in values}
        options = values["manifest"]["options"]
        goals = tuple(GoalRequest(**g) for g in options["goals"])
        search = {k: options[k] for k in ("time_limit", "seed", "threads")}
        seconds = options["seconds"]
    except (KeyError, TypeError, ValueError) as e:
        raise fail("E309", f"`{folder}` cannot be read: {type(e).__name__}: {e}") from e
    opaque = {k: OpaqueCall.load(data) for k, data in exported.items()}
    first = ("program", "canonical", "target", "rules")
    program, canonical, machine, ruleset = (stages.pop(k) for k in first)
    source = Source(program, weights, opaque)
    run = Run(source, canonical, machine, ruleset, goals, seconds, search, **stages)
    packed = Path(folder) / artefact.PACKED
    run.packed_file = packed if packed.is_file() else None
    if options["verification"] is not None:
        from eqsat.execute.verify import Verification

        run.verification = Verification(**options["verification"])
    return run


READERS: dict[str, Callable[[Any], Any]] = {
    "program": Program.from_json,
    "canonical": Program.from_json,
    "target": Target.from_json,
    "rules": RuleSet.from_json,
    "egraph": EGraph.from_json,
    "selection": Selection.from_json,
    "baseline": Selection.from_json,
    "schedule": Schedule.from_json,
    "baseline_schedule": Schedule.from_json,
}


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
    "load",
    "optimize",
    "place_buffers",
    "read",
    "rules",
    "target",
]
