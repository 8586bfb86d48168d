"""`optimize` and its companions: a request is read, searched, timed or checked, and verified."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.api.borders import Asks, fixed_orders, name_donated, read_orders, with_layouts
from eqsat.api.reading import read_spec, source_of
from eqsat.api.request import (
    DEFAULT_GOALS,
    DEFAULT_TARGET,
    budgeted,
    check_oracle,
    check_words,
    device_map,
    goals_asked,
    known_names,
    machine_asked,
    meshed,
    placed_on,
    refuse_on_mesh,
    rules_asked,
    rules_checked,
)
from eqsat.frontends.source import Source
from eqsat.model.cycles import uncollected
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.devices import DeviceMap
from eqsat.model.family import Family
from eqsat.model.limits import Limits
from eqsat.model.orders import AskedOrders
from eqsat.model.program import Program
from eqsat.model.progress import heard, phase, timed
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.report.progress import log_phase
from eqsat.run import Run
from eqsat.run.checked import checked
from eqsat.run.measured import measured, slower_in_orders
from eqsat.run.orders import searched_in_orders
from eqsat.run.phases import Listener, at_sizes, progress_of

if TYPE_CHECKING:
    from eqsat.model.deadline import Stop

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
) -> Run:
    """Find the best program the rules can reach, under the target's cost model.

    * function_or_program: a function with example arguments, a program, or a text that names one
      as on the command line (`"mlp.py:mlp_784"`, `"model.onnx"`).
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
    * on_answer: called with the run before its answer is timed, checked or verified, any of which
      can fail.

    Raises EqsatError; its exit_code is 3 if nothing is admissible, 1 if a rule is refuted (E100).
    """
    seconds: dict[str, float | None] = dict.fromkeys(
        ("read", "saturate", "extract", "schedule", "compile", "verify")
    )
    check_words(stop_after, extractor, measure, check_compile)
    bounds = Limits.of(limits)
    with timed(seconds, "read"), uncollected():
        from eqsat.ops.spelling.passes import canonical as searched
        from eqsat.ops.targets.kernels import check_precisions

        source = source_of(function_or_program, example_args, keywords or {}, weights)
        places = device_map(devices)
        machine = machine_asked(target, places, settings)
        machine = meshed(budgeted(machine, budget or {}), mesh, shards or {}, stop_after)
        source = name_donated(source, donate)
        order_requests = read_orders(source, layouts, donate)
        refuse_on_mesh(machine, source, bool(measure), check_compile, order_requests.is_any)
        source = with_layouts(source, machine, order_requests.layouts)
        source, orders = fixed_orders(source, order_requests)
        ruleset = rules_asked(rules)
        ruleset = ruleset.without(*known_names(without, ruleset))
        wanted = goals_asked(goals)
        placed = placed_on(source.program, places)
        check_precisions(placed, machine)
        if check_compile:
            check_oracle(machine)
        canonical = searched(placed)
    rule_check = rules_checked(ruleset, unchecked, seconds)
    search = {"time_limit": time_limit, "seed": seed, "threads": threads, "extractor": extractor}
    run = Run(
        source, canonical, machine, ruleset, wanted, seconds, search, bounds, rule_check,
        orders=orders,
    )  # fmt: skip
    if source.program.symbols:
        run = at_sizes(run, Family(source.program, canonical))
    log_phase(run, "read")
    listener = progress_of(run, time_limit, progress)
    with heard(listener):
        with uncollected():
            is_complete = stop_after in (None, "schedule")
            order_requests = order_requests if is_complete else AskedOrders()
            run, plain = searched_in_orders(run, order_requests, stop_after, stop, listener)
        if on_answer is not None:
            on_answer(replace(run, curve=listener.curve))
        if measure and run.selection is not plain.selection and run.orders is not None:
            with uncollected():
                run = _quicker_by_clock(run, plain)
        with suppress(OutOfTime), until(math.inf, stop):
            if measure and run.schedule is not None:
                run = _measured(run, measure)
            if check_compile and run.schedule is not None:
                run = _checked_by_compiler(run, compile_limit)
            if verify and run.schedule is not None:
                phase("verify")
                run = replace(run, curve=listener.curve)  # what verifying makes is of this run
                run.verify(seed=seed, work_limit=work_limit)
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
