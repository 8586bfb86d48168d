"""A search from its request to its run.

Rules, target, mesh, budget and goals are read and checked; the program is read, searched, timed or
checked, and verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from eqsat.api.borders import Asks, fixed_orders, name_donated, read_orders, with_layouts
from eqsat.api.reading import read_spec, source_of
from eqsat.execute.compilers.ask import need_compiler
from eqsat.frontends.source import Source
from eqsat.hunt.findings import check_rules
from eqsat.lang.owntarget import warn_if_elsewhere
from eqsat.lang.units import budget_of
from eqsat.model.deadline import OutOfTime, Stop, gc_paused, until
from eqsat.model.devices import DeviceMap
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.equalities import Family
from eqsat.model.layout import AskedOrders
from eqsat.model.limits import Limits
from eqsat.model.oracle import parse_oracle
from eqsat.model.program import Program
from eqsat.model.progress import Progress, heard, phase, timed
from eqsat.model.rules import RuleCheck, RuleSet
from eqsat.model.selection import EXTRACTORS, GoalRequest
from eqsat.model.target import Target
from eqsat.ops.programs.placement import put_on_devices, refuse_transfers
from eqsat.ops.targets.kernels import check_precisions
from eqsat.ops.targets.rows import PADDED_ROWS, concerns_rows
from eqsat.report.text import log_phase
from eqsat.run import Run, answers
from eqsat.run.checked import checked
from eqsat.run.contenders import measured, slower_in_orders
from eqsat.run.orders import searched_in_orders
from eqsat.run.phases import Listener, at_sizes, progress_of, sized_source

DEFAULT_TARGET = "auto"
DEFAULT_GOALS = ("time", "memory", "dispatches")
PHASES = ("program", "egraph", "selection", "schedule")


def goals_asked(what: Sequence[str | GoalRequest]) -> tuple[GoalRequest, ...]:
    from eqsat.lang.requests import parse_goals

    read = iter(parse_goals([g for g in what if isinstance(g, str)]))
    return tuple(g if isinstance(g, GoalRequest) else next(read) for g in what)


def machine_asked(
    what: str | Path | Target, devices: DeviceMap | None, settings: Sequence[str]
) -> Target:
    """The target, or the targets of a map of devices as one, with the settings applied."""
    if devices is not None:
        from eqsat.lang.devices import machine

        if what != DEFAULT_TARGET:
            raise fail("E214", "give a target or a map of devices, not both")
        return machine(devices, settings)
    one = what if isinstance(what, Target) else target(what)
    warn_if_elsewhere(one)
    if settings:
        from eqsat.lang.requests import override

        one = override(one, list(settings))
    return one


def device_map(devices: str | Path | DeviceMap | None) -> DeviceMap | None:
    if devices is None or isinstance(devices, DeviceMap):
        return devices
    from eqsat.lang.devices import load_devices

    return load_devices(devices)


def placed_on(program: Program, devices: DeviceMap | None) -> Program:
    """The program with a transfer at every border between devices."""
    if devices is None:
        refuse_transfers(program)
        return program
    return put_on_devices(program, devices)


def budgeted(machine: Target, budget: Mapping[str, int | str]) -> Target:
    asked_for = {g: budget_of(g, v, f"the budget of {g}") for g, v in budget.items()}
    merged = dict(machine.budget) | asked_for
    options = {f"budget.{goal}": f"--budget {goal}" for goal in budget}
    places = tuple((dict(machine.places) | options).items())
    return replace(machine, budget=tuple(sorted(merged.items())), places=places)


def meshed(
    machine: Target, mesh: str | None, shards: Mapping[str, str], stop_after: str | None
) -> Target:
    """The target with a mesh and its spreads; a device's memory limit is one of the mesh alone.

    The search before it is for one device, which holds the whole program; one that ends there has
    no mesh.
    """
    from eqsat.lang.requests import with_mesh, with_shards

    if mesh is not None:
        machine = with_mesh(machine, mesh)
    machine = with_shards(machine, shards)
    if machine.mesh is None or stop_after not in (None, "schedule"):
        return replace(machine, mesh=None)
    bounds = dict(machine.budget)
    limit = bounds.pop("memory", machine.mesh.memory_bytes)
    cut = replace(machine.mesh, memory_bytes=limit)
    return replace(machine, mesh=cut, budget=tuple(bounds.items()))


def rules_asked(what: Sequence[str] | str | RuleSet, program: Program, machine: Target) -> RuleSet:
    """The rules; where rows are padded, or have to be, `default` has the set for them beside it."""
    if isinstance(what, RuleSet):
        return what
    names = [what] if isinstance(what, str) else [*what]
    if "default" in names and PADDED_ROWS not in names and concerns_rows(program, machine):
        names.append(PADDED_ROWS)
    return rules(*names)


def known_names(names: Sequence[str], ruleset: RuleSet) -> Sequence[str]:
    defined = {n for r in ruleset.everything for n in (r.name, *r.tags)}
    for n in names:
        if n not in defined:
            hint = did_you_mean(n, defined, "eqsat list rules")
            raise fail("E007", f"no rule or tag `{n}` to leave out", help=hint)
    return names


def rules(*names: str) -> RuleSet:
    """Rule sets by name (`default`, `layout/pack`) or path, merged in this order."""
    from eqsat.lang.rulesets import load_rulesets

    return load_rulesets(list(names))


def target(name_or_file: str | Path) -> Target:
    """A target by name (`avx512-xla`) or file; `auto` is this machine's."""
    from eqsat.lang.targets import load_target

    return load_target(str(name_or_file))


def rules_checked(ruleset: RuleSet, unchecked: bool, seconds: dict[str, float | None]) -> RuleCheck:
    """Which rules are known; a hunt is a phase of its own, as it happens once per machine."""
    with timed(took := {}, "hunt"):
        check = check_rules(ruleset, unchecked)
    if check.hunted or check.no_instance:
        seconds["hunt"] = took["hunt"]
    return check


# ---- what makes no sense, or not together --------------------------------------------------------
def check_words(stop_after: str | None, extractor: str, measure: int, check_compile: bool) -> None:
    """EqsatError E400, E406 or E450 for requests that make no sense, or none together."""
    if stop_after is not None and stop_after not in PHASES:
        raise fail("E406", f"no phase `{stop_after}`", help=f"one of {', '.join(PHASES)}")
    if extractor not in EXTRACTORS:
        raise fail("E450", f"no extractor `{extractor}`", help=f"one of {', '.join(EXTRACTORS)}")
    if measure == 1 or measure < 0:
        message = f"`measure` takes the number of programs to time, at least 2, not {measure}"
        raise fail("E400", message)
    if measure and check_compile:
        raise fail("E400", "the answer is measured or checked by a compiler, not both")


def check_oracle(target: Target) -> None:
    """EqsatError E465 if the target names no compiler, E461 if what it needs is not installed."""
    if target.oracle is None:
        raise fail(
            "E465", f"target {target.name} names no compiler to ask",
            help="add `oracle: libtpu v5e` to the target, or `--set oracle='libtpu v5e'`",
        )  # fmt: skip
    need_compiler(parse_oracle(target.oracle))


def refuse_on_mesh(
    target: Target, source: Source, measure: bool, check_compile: bool, orders: bool
) -> None:
    """EqsatError E232 on a mesh for requests that are of one device, and for open sizes."""
    if target.mesh is None:
        return
    words = {"measure": measure, "check-compile": check_compile, "layouts": orders}
    one = [word for word, is_given in words.items() if is_given]
    if one:
        help = "leave it out, or search for one device: `--set mesh={}`"
        raise fail(
            "E232", f"`--{one[0]}` looks at programs of one device, not of a mesh", help=help
        )
    if source.program.symbols:
        message = "a program with unknown sizes is not cut over a mesh"
        raise fail("E232", message, help="give its arguments fixed shapes")


MEASURING = 0.5  # of the time limit, on top of it, to look for programs to measure


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
    on_answer: Callable[[Run], None] | None = None,
    cache: bool = True,
) -> Run:
    """Find the best program the rules can reach, under the target's cost model.

    * function_or_program: a function with example arguments, a program, a text that names one as on
      the command line (`"mlp.py:mlp_784"`, `"model.onnx"`), or a `torch.export.ExportedProgram`.
    * example_args, keywords: arrays or `jax.ShapeDtypeStruct`.
    * rules, without: rule sets by name or file, and rules, sets or tags that are left out.
    * target: by name, file or value. `auto` is the target of this machine: the one that `eqsat
      calibrate` wrote, otherwise a shipped one for its CPU, scaled by what is measured here once.
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
    * time_limit: CPU seconds from the end of reading to the end of the schedule, of all threads of
      this process; a second in which it waits for a busy machine counts a fifth.
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
    * on_answer: called with the run before its answer is timed, checked or verified, any of which
      can fail.
    * cache: an answer to the same request that is kept on this machine is taken (`run.searched_at`
      says when it was searched), and a new one is kept.

    Raises EqsatError; its exit_code is 3 if nothing is admissible, 1 if a rule is refuted (E100).
    """
    seconds: dict[str, float | None] = dict.fromkeys(
        ("read", "saturate", "extract", "schedule", "compile", "verify")
    )
    check_words(stop_after, extractor, measure, check_compile)
    bounds = Limits.of(limits)
    with timed(seconds, "read"), gc_paused():
        source = source_of(function_or_program, example_args, keywords or {}, weights)
        places = device_map(devices)
        machine = machine_asked(target, places, settings)
        machine = meshed(budgeted(machine, budget or {}), mesh, shards or {}, stop_after)
        source = name_donated(source, donate)
        order_requests = read_orders(source, layouts, donate)
        refuse_on_mesh(machine, source, bool(measure), check_compile, order_requests.is_any)
        source = with_layouts(source, machine, order_requests.layouts)
        source, orders = fixed_orders(source, order_requests)
        ruleset = rules_asked(rules, source.program, machine)
        ruleset = ruleset.without(*known_names(without, ruleset))
        wanted = goals_asked(goals)
        placed = placed_on(source.program, places)
        check_precisions(placed, machine)
        if check_compile:
            check_oracle(machine)
    rule_check = rules_checked(ruleset, unchecked, seconds)
    search = {"time_limit": time_limit, "seed": seed, "threads": threads, "extractor": extractor}
    request = Run(
        source, placed, machine, ruleset, wanted, seconds, search, bounds, rule_check,
        orders=orders,
    )  # fmt: skip
    is_complete = stop_after in (None, "schedule")
    order_requests = order_requests if is_complete else AskedOrders()
    may_keep = cache and is_complete and not order_requests.is_any and answers.is_on()
    key = answers.answer_key(request) if may_keep else ""
    run = plain = _recalled(key, request, stop) or _canonical(request)
    listener = progress_of(run, time_limit, progress)
    with heard(listener):
        log_phase(run, "read")
        if not run.searched_at:
            run, plain = _searched(run, key, order_requests, stop_after, stop, listener)
        if on_answer is not None:
            on_answer(_with_curve(run, listener))
        if measure and run.selection is not plain.selection and run.orders is not None:
            with gc_paused():
                run = _quicker_by_clock(run, plain)
        with suppress(OutOfTime), until(math.inf, stop):
            if measure and run.schedule is not None:
                run = _measured(run, measure)
            if check_compile and run.schedule is not None:
                run = _checked_by_compiler(run, compile_limit)
            if verify and run.schedule is not None:
                phase("verify")
                run = _with_curve(run, listener)  # what verifying makes is of this run
                run.verify(seed=seed, work_limit=work_limit)
    return _with_curve(run, listener)


def _canonical(request: Run) -> Run:
    """The request with its program as it is searched, at the sizes at which it is priced."""
    from eqsat.ops.spelling.passes import canonical

    with timed(request.seconds, "read"), gc_paused():
        run = replace(request, canonical=canonical(request.canonical))
        program = request.program
        return at_sizes(run, Family(program, run.canonical)) if program.symbols else run


def _searched(
    run: Run, key: str, asked: AskedOrders, stop_after: str | None, stop: Stop | None,
    listener: Progress,
) -> tuple[Run, Run]:  # fmt: skip
    """Every stage, also with plain arguments; key: of the answer to keep, "" to keep none."""
    with gc_paused():
        run, plain = searched_in_orders(run, asked, stop_after, stop, listener)
    if key and not (stop is not None and stop.is_requested):
        run = plain = answers.keep_answer(key, run, listener.curve)
    return run, plain


def _recalled(key: str, request: Run, stop: Stop | None) -> Run | None:
    """The finished run of a request, if its answer is kept on this machine."""
    if not key:
        return None
    if request.program.symbols:
        request = replace(request, source=sized_source(request.source))
    run = answers.recalled(key, request)
    if run is not None and stop is not None:
        stop.has_answer = True
    return run


def _with_curve(run: Run, listener: Progress) -> Run:
    return run if run.curve is not None else replace(run, curve=listener.curve)


def _quicker_by_clock(ordered: Run, plain: Run) -> Run:
    """The answer in other orders, unless the plain one is quicker by the clock."""
    with timed(plain.seconds, "measure"), heard(None):
        ratio = slower_in_orders(ordered, plain)
    if ratio <= 1:
        return ordered
    why = f"what the model chose takes {ratio:.2f} times as long as plain orders by the clock"
    orders = plain.orders or ordered.orders
    assert orders is not None
    return replace(plain, orders=replace(orders, why=why))


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


def read(spec: str, sizes: Mapping[str, int] | None = None, weights: Sequence[str] = ()) -> Source:
    """`x.eqs`, `x.mlir`, `x.onnx`, `x.py:function`, or a name under experiments/programs → Source.

    sizes: the sizes at which open dims are priced, by name. weights: names of arguments that are
    packed once, ahead of time, and stay resident; `run.use_weights` sets their values. EqsatError
    (E324) if one is no argument.
    """
    return read_spec(spec, sizes, weights)
