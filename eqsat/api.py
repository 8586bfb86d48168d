"""The one file that knows the order of the phases."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.alone import extract_egraph, place_buffers, shard_graph
from eqsat.askedorders import Asks, fixed_orders, read_orders
from eqsat.borders import labels_of, with_layouts
from eqsat.checked import check_oracle, checked
from eqsat.measured import check_measure, measured, slower_in_orders
from eqsat.model.control import controls
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.devices import DeviceMap
from eqsat.model.diag import fail
from eqsat.model.egraph import EGraph
from eqsat.model.equalities import Equalities
from eqsat.model.family import Family
from eqsat.model.limits import Limits
from eqsat.model.orders import AskedOrders
from eqsat.model.program import Program
from eqsat.model.progress import Progress, heard, phase, settle
from eqsat.model.rulecheck import RuleCheck
from eqsat.model.rules import RuleSet
from eqsat.model.selection import EXTRACTORS, GREEDY, GoalRequest, GoalResult
from eqsat.model.symbols import sizes_of
from eqsat.model.target import Target
from eqsat.ops.programs.border_layouts import with_open_results
from eqsat.orders import PLAIN_SHARE, in_best_orders
from eqsat.reading import name_donated, read_spec, source_of
from eqsat.report.log import log_phase, log_progress
from eqsat.requests import (
    DEFAULT_TARGET,
    budgeted,
    device_map,
    goals_asked,
    known_names,
    machine_asked,
    meshed,
    placed_on,
    rules,
    rules_asked,
    target,
)
from eqsat.run import Run, timed
from eqsat.scheduling import PLACING_SECONDS, with_schedules
from eqsat.source import Source

if TYPE_CHECKING:
    from eqsat.bodies import Bodies
    from eqsat.model.stopping import Stop

SATURATING = 0.4  # of the time that is left, at most, for saturation
MEASURING = 0.5  # of the time limit, on top of it, to look for programs to measure
MESHING = 0.5  # of the time limit, kept for spreading values over a mesh
SCHEDULING = 0.05  # of the time limit, kept for making the schedules
DEFAULT_GOALS = ("time", "memory", "dispatches")
BYTES = ("memory", "resident", "load_peak")  # goals that a body is searched for, if it is a budget
PHASES = ("program", "egraph", "selection", "schedule")
Listener = Callable[[Progress], None]  # called whenever a search has something new to tell


def optimize(
    function_or_program: Callable[..., Any] | Program | Source | str,
    *example_args: Any,
    rules: Sequence[str] | str | RuleSet = ("default",),
    target: str | Path | Target = DEFAULT_TARGET,
    goals: Sequence[str | GoalRequest] = DEFAULT_GOALS,
    keywords: Mapping[str, Any] | None = None,
    weights: Sequence[str] = (),
    donate: Sequence[str] = (),
    without: Sequence[str] = (),
    layouts: Asks = None,
    budget: Mapping[str, int | str] | None = None,
    settings: Sequence[str] = (),
    devices: str | Path | DeviceMap | None = None,
    mesh: str | None = None,
    shards: Mapping[str, str] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    time_limit: float = 60.0,
    seed: int = 0,
    extractor: str = "cpsat",
    threads: int = 2,
    verify: bool = False,
    work_limit: float | None = None,
    unchecked: bool = False,
    stop_after: str | None = None,
    measure: int = 0,
    check_compile: bool = False,
    compile_limit: float = 300.0,
    progress: Listener | None = None,
    stop: Stop | None = None,
) -> Run:
    """Find the best program the rules can reach, under the target's cost model.

    * function_or_program: a function with example arguments, a program, or a text that names one
      as on the command line (`"mlp.py:mlp_784"`, `"model.onnx"`).
    * example_args, keywords: arrays or `jax.ShapeDtypeStruct`.
    * rules, without: rule sets by name or file, and rules, sets or tags that are left out.
    * target: by name, file or value. `auto` is the target of this machine: the one that `eqsat
      calibrate` wrote, otherwise a shipped one for the features of its CPU.
    * devices: a map of several devices, by name, file or value, instead of a target.
    * mesh: devices along axes, in place of those of the target's mesh (`"data=4,model=2"`); the
      target knows their links. On a mesh `memory` in `budget` is of each device.
    * shards: how an argument, weight or result is spread over the mesh, by its name or `result0`:
      one axis or `-` per dim, `"[data, -]"`, or `"free"`. Without it arguments and weights are
      free, and a result leaves as the first argument of its type came in.
    * settings: `key=value` as for `--set`.
    * goals: by priority (`"time"`, `"memory"`, `"dispatches"`), or all with weights (`"time:0.5"`).
    * budget: hard upper bounds (`"64 MiB"`; a number is bytes, ps or a count).
    * weights: names of arguments that are packed once, ahead of time, also of a program that was
      read. Arrays that a function closes over always are weights.
    * donate: names of arguments that a call uses up, as with `eqsat.jit(donate=…)`: a state of
      which a few elements are new is then priced as written in place.
    * layouts: the layout of an argument or result, by its name or `result0`:
      `"pack(pos=[0], tiles=[16])"`, `"transpose(perm=[1, 0])"`, `"set_encoding(…)"` for the target
      to decide, `"plain"`, or a `Layout`. Or the order in which its dims lie in memory, its shape
      as it was: `[1, 0]`, `"auto"` for the search to choose (`layouts="auto"`: of all of them), or
      `"compiler"` for the back end. A donated argument has the order of the result in its place.
      `run.orders` says what was chosen and why; a search with plain arguments comes first, in
      0.4 of the time, and its answer is kept unless another order is better (with `measure`, by
      the clock as well).
    * limits: when saturation stops, `{"nodes": 20_000}` or `model.limits.Limits`.
    * time_limit: seconds from the end of reading to the end of the schedule.
      `run.selection.cuts` says what was left out for want of time.
    * stop_after: the last phase to run: `program`, `egraph`, `selection` or `schedule`.
    * seed, threads: of the solver; the number of threads does not change the answer.
    * extractor: `cpsat`, or `greedy`: the cheapest way to write each buffer that one pass finds,
      which proves nothing and may be worse than the input.
    * unchecked: use unknown rules without hunting for counterexamples, and refuted ones too.
    * verify, work_limit: execute and check against a float64 reference, which may take so many
      scalar operations.
    * measure: how many programs are timed on this machine after the search (the best one, nearly
      as good ones and the input); the fastest is kept (`run.measured`).
    * check_compile: ask the compiler that the target names as its oracle about the answer, a few
      nearly as good ones and the input; the one that it counts best is kept, and none that is worse
      than the input (`run.checked`). compile_limit: seconds for each of them.
    * progress: called with the search's `model.progress.Progress` whenever its phase, best value
      or bound changes; the whole course is in `run.curve`.
    * stop: ends everything after the first answer early, with the best one so far.

    Raises EqsatError; its exit_code is 3 if nothing is admissible, 1 if a rule is refuted (E100).
    """
    seconds: dict[str, float | None] = dict.fromkeys(
        ("read", "saturate", "extract", "schedule", "compile", "verify")
    )
    _check_words(stop_after, measure, check_compile)
    bounds = Limits.of(limits)
    with timed(seconds, "read"), uncollected():
        from eqsat.meshing import refuse_on_mesh
        from eqsat.ops.spelling.chains import canonical as searched
        from eqsat.ops.targets.precision import check_precisions

        source = source_of(function_or_program, example_args, keywords or {}, weights)
        machine, places = machine_asked(target, devices, settings), device_map(devices)
        machine = meshed(budgeted(machine, budget or {}), mesh, shards or {}, stop_after)
        source = name_donated(source, donate, labels_of(source) if donate else ())
        asked = read_orders(source, layouts, donate)
        refuse_on_mesh(machine, source, bool(measure), check_compile, asked.is_any)
        source = with_layouts(source, machine, asked.layouts)
        source, orders = fixed_orders(source, asked)
        ruleset = rules_asked(rules)
        ruleset = ruleset.without(*known_names(without, ruleset))
        wanted = goals_asked(goals)
        placed = placed_on(source.program, places)
        check_precisions(placed, machine)
        if check_compile:
            check_oracle(machine)
        canonical = searched(placed)
    checked = _checked(ruleset, unchecked, seconds)
    if extractor not in EXTRACTORS:
        raise fail("E450", f"no extractor `{extractor}`", help=f"one of {', '.join(EXTRACTORS)}")
    search = {"time_limit": time_limit, "seed": seed, "threads": threads, "extractor": extractor}
    run = Run(
        source, canonical, machine, ruleset, wanted, seconds, search, bounds, checked, orders=orders
    )  # fmt: skip
    if source.program.symbols:
        run = at_sizes(run, Family(source.program, canonical))
    log_phase(run, "read")
    told = progress_of(run, time_limit, progress)
    with heard(told):
        with uncollected():
            whole = stop_after in (None, "schedule")
            asked = asked if whole else AskedOrders()
            run = _searched_in_orders(run, asked, stop_after, stop, told, measure)
        with suppress(OutOfTime), until(math.inf, stop):
            if measure and run.schedule is not None:
                run = _measured(run, measure)
            if check_compile and run.schedule is not None:
                run = _checked_by_compiler(run, compile_limit)
            if verify and run.schedule is not None:
                phase("verify")
                run = replace(run, curve=told.curve)  # what verifying makes is of this run
                run.verify(seed=seed, work_limit=work_limit)
    return run if run.curve is not None else replace(run, curve=told.curve)


def _searched_in_orders(
    run: Run,
    asked: AskedOrders,
    stop_after: str | None,
    stop: Stop | None,
    told: Progress,
    measure: int,
) -> Run:
    """Every stage, with plain arguments, then in the orders that are free where that is better."""
    assert told.limit is not None
    end = told.begin + told.limit
    if not asked.free:
        return _searched(run, stop_after, stop, end)
    plain = _searched(run, stop_after, stop, told.begin + PLAIN_SHARE * told.limit)
    with timed(plain.seconds, "orders"), heard(None):
        found = in_best_orders(plain, asked, _Phases(plain, stop), end)
    if not measure or found.selection is plain.selection or found.orders is None:
        return found
    with timed(plain.seconds, "measure"), heard(None):
        ratio = slower_in_orders(found, plain)
    if ratio <= 1:
        return found
    why = f"what the model chose takes {ratio:.2f} times as long as plain orders by the clock"
    return replace(plain, orders=replace(plain.orders or found.orders, why=why))


@dataclass(frozen=True)
class _Phases:
    """The phases, for a search of orders."""

    plain: Run
    stop: Stop | None

    def search(self, source: Source, deadline: float) -> Run:
        """A run of the whole program in these layouts; its seconds are those of the plain one."""
        from eqsat.ops.spelling.chains import canonical as searched

        plain, none = self.plain, dict.fromkeys(self.plain.seconds)
        again = Run(
            source, searched(source.program), plain.target, plain.rules, plain.goals, none,
            plain.search, plain.limits, plain.rule_check,
        )  # fmt: skip
        return replace(_searched(again, None, self.stop, deadline), seconds=plain.seconds)

    def graph(self, known: Equalities, deadline: float) -> EGraph:
        """The e-graph of the plain program with these equalities."""
        graph = _saturated(self.plain, None, deadline, (known,)).egraph
        assert graph is not None
        return graph


def searched_again(
    run: Run,
    *,
    rules: RuleSet | None = None,
    target: Target | None = None,
    goals: tuple[GoalRequest, ...] | None = None,
    time_limit: float | None = None,
) -> Run:
    """The program of a finished run searched again, with what is given here in place of its own.

    Values stay on their devices; the rest is as requested before. Raises EqsatError as `optimize`
    does, exit_code 3 if nothing is admissible.
    """
    from eqsat.ops.spelling.chains import canonical as searched

    source, program = run.source, run.program
    if run.family is not None:
        program = run.family.program
        source = replace(source, program=program)
    if run.target.devices:  # with transfers, which only a map of devices tells
        canonical = run.canonical if run.family is None else run.family.canonical
    else:
        canonical = searched(program)
    seconds: dict[str, float | None] = dict.fromkeys(run.seconds)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    rest = (seconds, run.search | limit, run.limits, run.rule_check)
    asked = (target or run.target, rules or run.rules, goals or run.goals)
    again = Run(source, canonical, *asked, *rest)
    if program.symbols:
        again = at_sizes(again, Family(program, canonical))
    deadline = time.monotonic() + again.search["time_limit"]
    with heard(None), uncollected():
        return _searched(again, None, None, deadline)


def progress_of(run: Run, time_limit: float, listen: Listener | None) -> Progress:
    """The progress of a search; goals with weights have no first goal to report."""
    first = run.goals[0]
    told = Progress("" if first.weight is not None else first.name, dict(run.target.budget))
    told.limit = time_limit

    def tell(now: Progress) -> None:
        log_progress(now)
        if listen is not None:
            listen(now)

    told.listen = tell
    return told


def _measured(run: Run, count: int) -> Run:
    """Programs of the search timed beside each other; the fastest is the run's."""
    phase("measure")
    with timed(run.seconds, "measure"), heard(None):
        return measured(run, count, MEASURING * run.search["time_limit"])


def _checked_by_compiler(run: Run, limit: float) -> Run:
    """Programs of the search as the oracle counts them; the best is the run's."""
    phase("check")
    with timed(run.seconds, "check"), heard(None):
        return checked(run, MEASURING * run.search["time_limit"], limit)


def _checked(ruleset: RuleSet, unchecked: bool, seconds: dict[str, float | None]) -> RuleCheck:
    """Which rules are known; a hunt is a phase of its own, as it happens once per machine."""
    from eqsat.hunt.firstuse import check_rules

    with timed(took := {}, "hunt"):
        found = check_rules(ruleset, unchecked)
    if found.hunted or found.no_instance:
        seconds["hunt"] = took["hunt"]
    return found


def _searched(run: Run, stop_after: str | None, stop: Stop | None, deadline: float) -> Run:
    """Every stage up to `stop_after`; all together end at the deadline (of time.monotonic())."""
    if stop_after == "program":
        return run
    run, bodies = _with_bodies(run, deadline)
    phase("saturate")
    with timed(run.seconds, "saturate"):
        run = _saturated(run, bodies, deadline)
    log_phase(run, "saturate")
    if stop_after == "egraph":
        return run
    with timed(run.seconds, "extract"):
        run = _extracted(run, bodies, stop, deadline)
    log_phase(run, "extract")
    assert run.selection is not None
    settle({g.name: run.selection.goal(g.name) for g in run.goals})
    if stop_after == "selection":
        return run
    phase("schedule")
    with timed(run.seconds, "schedule"):
        run = with_schedules(run, min(PLACING_SECONDS, (deadline - time.monotonic()) / 2))
    log_phase(run, "schedule")
    return run if run.target.mesh is None else _cut(run, deadline)


def _cut(run: Run, deadline: float) -> Run:
    """The schedule cut over the mesh of the target."""
    from eqsat.meshing import with_mesh_plan

    phase("mesh")
    with timed(run.seconds, "mesh"):
        return with_mesh_plan(run, max(deadline - time.monotonic(), 1.0))


def _saturated(
    run: Run, bodies: Bodies | None, deadline: float, own: tuple[Equalities, ...] = ()
) -> Run:
    """With its e-graph; that of a family is searched once for all sizes, then taken at these.

    own: what is known beside the rules, of this search alone.
    """
    from eqsat.ops.programs.sharedweights import RULE as STACKING
    from eqsat.saturate import saturate

    now = time.monotonic()
    until = now + SATURATING * max(deadline - now, 0.0)
    family = run.family
    program = run.canonical if family is None else family.canonical
    known = _facts(program, run.rules, own if bodies is None else bodies.known)
    graph = saturate(
        program, run.rules, run.target, run.limits, deadline=until, known=known,
        reuse_blocks=not own and all(facts.rule != STACKING for facts in known),
    )  # fmt: skip
    if family is not None:
        from eqsat.ops.programs.binding import bind_graph

        family = replace(family, egraph=graph)
        graph = bind_graph(graph, sizes_of(family.symbols)).egraph
    if bodies is not None:
        graph = bodies.counted_in(graph)
    return replace(run, egraph=with_open_results(graph), family=family)


def _facts(
    program: Program, rules: RuleSet, loops: tuple[Equalities, ...]
) -> tuple[Equalities, ...]:
    """Equalities of a program that no rule states: of loops, of parts that are alike, of weights.

    Those of weights are stated only where no blocks repeat, or none of them needs another one, and
    all blocks are then searched: otherwise the equalities of one block would be copied to the
    others, although several may read one weight.
    """
    from eqsat.ops.programs.likeparts import like_parts
    from eqsat.ops.programs.sharedweights import shared_weights
    from eqsat.ops.programs.weightsofone import weights_of_one
    from eqsat.saturate.blocks import find_blocks

    if program.symbols:
        return loops

    def first() -> int:
        return len(program.nodes) + sum(len(facts.nodes) for facts in known)

    known = list(loops)
    alike = like_parts(program, first(), _is_inexact(rules))
    known += [] if alike is None else [alike]
    many, shared = weights_of_one(program, first()), shared_weights(program, first())
    blocks = find_blocks(program) if many is not None or shared is not None else None
    if blocks is not None:
        many = weights_of_one(program, first(), blocks.place)
    known += [] if many is None else [many]
    if shared is not None and many is not None:
        shared = shared_weights(program, first())  # numbered on from these
    if shared is not None and (blocks is None or not blocks.carried):
        known.append(shared)
    return tuple(known)


def _is_inexact(rules: RuleSet) -> bool:
    """Whether sums of floats may be taken in another order."""
    return any("inexact" in r.tags for r in rules.rules)


def _extracted(run: Run, bodies: Bodies | None, stop: Stop | None, deadline: float) -> Run:
    from eqsat.extract import extract, extract_greedily

    assert run.egraph is not None
    kept = SCHEDULING if run.target.mesh is None else SCHEDULING + MESHING
    left = deadline - time.monotonic() - kept * run.search["time_limit"]
    options = {"time_limit": max(left, 0.0), "seed": run.search["seed"], "stop": stop}
    extractor = extract_greedily if run.search["extractor"] == GREEDY else extract
    selection, baseline = extractor(run.egraph, run.target, run.goals, **options)
    if bodies is None:
        return replace(run, selection=selection, baseline=baseline)
    chosen = bodies.chosen(run.egraph, selection)
    base = baseline if bodies.has_baseline else None
    return replace(run, selection=selection, baseline=base, bodies=chosen)


def at_sizes(run: Run, family: Family) -> Run:
    """The run with its programs at the sizes at which its family is priced, before any search."""
    from eqsat.ops.programs.binding import bind_program

    sizes = sizes_of(family.symbols)
    source = replace(run.source, program=bind_program(family.program, sizes))
    canonical = bind_program(family.canonical, sizes)
    return replace(run, source=source, canonical=canonical, family=family)


def _with_bodies(run: Run, deadline: float) -> tuple[Run, Bodies | None]:
    """With the bodies of the program's loops and branches searched; None if it has none.

    Searches of bodies, a few for each, may take about half of the time limit; budgets are those
    of the whole program, so a body has none.
    """
    found = controls(run.canonical)
    if not found:
        return run, None
    from eqsat.bodies import search_bodies

    phase("bodies")
    count = len({body for _, attr in found for body in attr.bodies})  # equal ones are one
    seconds = run.search["time_limit"] / 4 / count
    half = time.monotonic() + (deadline - time.monotonic()) / 2
    free = replace(run.target, budget=(), mesh=None)
    orders = [run.goals]
    for name in [n for n in BYTES if n in dict(run.target.budget)]:
        orders.append((GoalRequest(name), *(g for g in run.goals if g.name != name)))

    def search(body: Program) -> list[Run]:
        left = max(half - time.monotonic(), 0.0)
        options = run.search | {"time_limit": min(seconds, left)}
        runs = [_search_body(body, run, free, goals, options) for goals in orders]
        for name, took in ((k, v) for r in runs for k, v in r.seconds.items() if v):
            run.seconds[name] = (run.seconds.get(name) or 0.0) + took
        return runs

    bodies = search_bodies(run.canonical, search, _is_inexact(run.rules))
    # a family's bodies are searched at the sizes it is priced at, so the whole is, too
    return replace(run, canonical=bodies.canonical, bodies=bodies.runs, family=None), bodies


def _search_body(
    body: Program,
    run: Run,
    machine: Target,
    goals: tuple[GoalRequest, ...],
    options: dict[str, Any],
) -> Run:
    from eqsat.ops.spelling.chains import canonical as searched

    source = Source(body, {}, run.source.opaque)
    none: dict[str, float | None] = dict.fromkeys(run.seconds)
    rest = (goals, none, dict(options), run.limits)
    own = Run(source, searched(body), machine, run.rules, *rest)
    deadline = time.monotonic() + options["time_limit"]
    with heard(None):
        return _searched(own, None, None, deadline)


def _check_words(stop_after: str | None, measure: int, check_compile: bool) -> None:
    """EqsatError E400 or E406 for requests that make no sense, or none together."""
    if stop_after is not None and stop_after not in PHASES:
        raise fail("E406", f"no phase `{stop_after}`", help=f"one of {', '.join(PHASES)}")
    check_measure(measure)
    if measure and check_compile:
        raise fail("E400", "the answer is measured or checked by a compiler, not both")


def read(spec: str, sizes: Mapping[str, int] | None = None, weights: Sequence[str] = ()) -> Source:
    """`x.eqs`, `x.mlir`, `x.onnx`, `x.py:function`, or a name under experiments/programs → Source.

    sizes: the sizes at which open dims are priced, by name. weights: names of arguments that are
    packed once, ahead of time, and stay resident; `run.use_weights` sets their values. EqsatError
    (E324) if one is no argument.
    """
    return read_spec(spec, sizes, weights)


__all__ = [
    "DEFAULT_GOALS",
    "GoalRequest",
    "GoalResult",
    "Limits",
    "Run",
    "Source",
    "extract_egraph",
    "optimize",
    "place_buffers",
    "read",
    "rules",
    "shard_graph",
    "target",
]
