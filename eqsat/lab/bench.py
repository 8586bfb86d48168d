"""Saved runs on the clock: variants ranked, and every dispatch's predicted time beside its own.

All sides are timed in interleaved rounds, so that a slow moment of the machine touches all alike;
figures are medians with their 95 % intervals by order statistics. A dispatch alone runs many times
inside one call of XLA.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.api import Run
from eqsat.execute.draw import drawn_weights, random_inputs
from eqsat.execute.timing import interleave, interval
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.report.formatting import count_text, table_text, us_text
from eqsat.run.kernelcode import dispatch_of


def repeated(
    dispatch: Callable[..., tuple[Any, ...]], inputs: Sequence[Any], every: bool = False
) -> Any:
    """A compiled function of (number of runs, inputs) that gives the last run's results.

    dispatch: a function of these arrays, to be traced. XLA takes out of a loop what is the same in
    every turn, so each turn writes one element of an input again, in place, with the value that is
    there. every: of all inputs, as several ops of XLA need, of which some read others only.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    first = next((i for i, x in enumerate(inputs) if x.dtype.kind == "f" and x.size), 0)
    filled = [i for i, x in enumerate(inputs) if x.size]

    def turn(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        xs = list(state[0])
        for changed in filled if every else filled and [first]:
            x = xs[changed]
            at = (jnp.minimum(i, 0),) * x.ndim
            element = lax.dynamic_slice(x, at, (1,) * x.ndim)
            xs[changed] = lax.dynamic_update_slice(x, element, at)
        return tuple(xs), dispatch(*xs)

    def run(count: Any, xs: tuple[Any, ...]) -> Any:
        types = jax.eval_shape(dispatch, *xs)
        none = jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), types)
        return lax.fori_loop(0, count, turn, (xs, none))[1]

    given = tuple(inputs)
    compiled = jax.jit(run).lower(0, given).compile()
    return lambda count: jax.block_until_ready(compiled(count, given))


def operand_arrays(run: Run, seed: int = 0) -> list[list[Any]]:
    """Per dispatch the buffers it reads, on the device: values that come of random inputs.

    Weights whose values are not known are drawn as well. EqsatError as executing raises it.
    """
    import jax

    from eqsat.execute.executable import held_view

    executable, schedule = run.executable, run.schedule
    assert schedule is not None, "a run with an executable has a schedule"
    if lacking := drawn_weights(run.program, run.weights):
        executable.take_weights(lacking)
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(seed)))
    buffers = dict(executable.packed) | dict(zip(schedule.program.inputs, inputs, strict=True))
    operands = []
    for i, d in enumerate(schedule.dispatches):
        reads = [held_view(schedule, buffers, r) for r in d.reads]
        operands.append(reads)
        buffers.update(zip(d.writes, jax.jit(executable.dispatch(i))(*reads), strict=True))
    return operands


ROUNDS = 30
TURN_SECONDS = 1e-3  # a dispatch runs so often inside of one call that it takes at least this long
MOST_TURNS = 10_000
Progress = Callable[[str], None]
Side = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Predicted and measured time, in microseconds of the wall.

    low_us, high_us: the 95 % interval of the median. cpu_us: median of the process's own time. of:
    name of the run. dispatch: its number, None for a whole program. bound: what the plan says most
    of the time is, if there is a plan. rank: from 1 on among the sides that compare; 0 if none do.
    """

    of: str
    predicted_us: float
    measured_us: float
    low_us: float
    high_us: float
    cpu_us: float
    rank: int
    dispatch: int | None = None
    name: str = ""
    bound: str = ""

    @property
    def share(self) -> float:
        """Measured over predicted."""
        return self.measured_us / self.predicted_us if self.predicted_us else float("inf")


@dataclass(frozen=True)
class Bench:
    """Whole programs in the order they were given, and their dispatches."""

    programs: tuple[Timing, ...]
    dispatches: tuple[Timing, ...]

    def to_json(self) -> dict[str, Any]:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        return {
            "format": 1,
            "machine": machine,
            "programs": [dict(vars(t)) for t in self.programs],
            "dispatches": [dict(vars(t)) for t in self.dispatches],
        }

    def measured_us(self, of: str) -> dict[int, float]:
        """Microseconds of the dispatches of a run, by number."""
        timed = (t for t in self.dispatches if t.of == of)
        return {t.dispatch: t.measured_us for t in timed if t.dispatch is not None}

    def to_text(self) -> str:
        """A table of the programs, the fastest first, and one of the dispatches of each run."""
        texts = [self._programs()] if self.programs else []
        for of in dict.fromkeys(t.of for t in self.dispatches):
            texts.append(self._dispatches([t for t in self.dispatches if t.of == of], of))
        return "\n".join(texts)

    def _programs(self) -> str:
        columns = ("rank", "predicted", "measured", "95 % interval", "CPU", "of the fastest", "run")
        ranked = sorted(self.programs, key=lambda t: t.rank)
        best = ranked[0].measured_us
        rows = [(str(t.rank), *us_cells(t), f"{t.measured_us / best:.2f}x", t.of) for t in ranked]
        return table_text(columns, rows)

    def _dispatches(self, timings: Sequence[Timing], of: str) -> str:
        head = ("", "rank", "predicted", "measured", "95 % interval", "CPU", "measured/predicted")
        rows = [
            (str(t.dispatch), str(t.rank or ""), *us_cells(t), f"{t.share:.2f}x", t.bound, t.name)
            for t in timings
        ]
        if len(timings) > 1:
            predicted = sum(t.predicted_us for t in timings)
            measured = sum(t.measured_us for t in timings)
            share = f"{measured / predicted:.2f}x" if predicted else ""
            texts = (us_text(us) for us in (predicted, measured))
            rows.append(("sum", "", *texts, "", "", share, "", ""))
        return f"{of}\n{table_text((*head, 'bound', 'dispatch'), rows)}"


def us_cells(t: Timing) -> tuple[str, ...]:
    low, high = us_text(t.low_us), us_text(t.high_us)
    shown = (us_text(us) for us in (t.predicted_us, t.measured_us))
    return (*shown, f"{low} – {high}", us_text(t.cpu_us))


def bench(
    runs: Mapping[str, Run],
    dispatches: Sequence[int] = (),
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Bench:
    """Time runs by name against each other, and all of their dispatches alone.

    dispatches: numbers of those to time, and no whole programs; the ranks are then among the
    dispatches of one number. A dispatch is run on values that come of random inputs, many times
    inside one call of XLA; equal ones of a run are timed once. EqsatError E427 if a run has no such
    dispatch, others as executing raises them.
    """
    for name, run in runs.items():
        for number in dispatches:
            dispatch_of(run, number, name)
    programs = () if dispatches else _programs(runs, rounds, seed, progress)
    return Bench(programs, _of_dispatches(runs, dispatches, rounds, seed, progress))


# ---- whole programs ------------------------------------------------------------------------------
def _programs(
    runs: Mapping[str, Run], rounds: int, seed: int, progress: Progress
) -> tuple[Timing, ...]:
    sides: dict[str, Side] = {}
    for name, run in runs.items():
        progress(f"compiling {name}")
        sides[name] = _whole(run, seed)
    progress(f"timing {count_text(len(sides), 'program')}")
    timings = medians_us(sides, rounds)
    ranks = _ranks(timings)
    return tuple(
        Timing(name, runs[name].need_schedule().time_ps / 1e6, *timings[name], rank=ranks[name])
        for name in runs
    )


def _whole(run: Run, seed: int) -> Side:
    import jax

    if lacking := drawn_weights(run.program, run.weights):
        run.executable.take_weights(lacking)  # any values take the same time
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(seed)))
    call = run.executable.flat
    return lambda: call(*inputs)


# ---- dispatches ----------------------------------------------------------------------------------
def _of_dispatches(
    runs: Mapping[str, Run], numbers: Sequence[int], rounds: int, seed: int, progress: Progress
) -> tuple[Timing, ...]:
    """Timings of one dispatch number of all runs beside each other, or of all of one run."""
    if numbers:
        sets: Iterable[list[tuple[str, int]]] = ([(name, i) for name in runs] for i in numbers)
    else:
        sets = ([(n, i) for i in range(len(r.need_schedule().dispatches))] for n, r in runs.items())
    reads = {name: operand_arrays(run, seed) for name, run in runs.items()}
    timings: list[Timing] = []
    for wanted in sets:
        some = _set(runs, reads, wanted, rounds, progress)
        timings += some if numbers else (replace(t, rank=0) for t in some)
    return tuple(sorted(timings, key=lambda t: (list(runs).index(t.of), t.dispatch)))


def _set(
    runs: Mapping[str, Run],
    reads: Mapping[str, list[list[Any]]],
    wanted: Sequence[tuple[str, int]],
    rounds: int,
    progress: Progress,
) -> Iterator[Timing]:
    """Timings of dispatches that are timed beside each other, equal ones of a run once."""
    same: dict[tuple[str, int], str] = {}
    turns: dict[str, int] = {}
    sides: dict[str, Side] = {}
    first: dict[object, str] = {}
    for name, i in wanted:
        schedule = runs[name].need_schedule()
        key = (name, work_key(schedule, schedule.dispatches[i]))
        label = same[name, i] = first.setdefault(key, f"{name} {i}")
        if label not in sides:
            progress(f"compiling dispatch {i} of {name}")
            run = runs[name]
            declined = {number for number, _ in run.execution.declined}
            one_call = run.target.executor == "kernels" and i not in declined
            many = repeated(run.executable.dispatch(i), reads[name][i], every=not one_call)
            turns[label] = turns_of(many)
            sides[label] = _repeating(many, turns[label])
    if not sides:
        return
    progress(f"timing {count_text(len(sides), 'dispatch', 'dispatches')}")
    times = {k: tuple(us / turns[k] for us in v) for k, v in medians_us(sides, rounds).items()}
    ranks = _ranks(times)
    for name, i in wanted:
        d, label = runs[name].need_schedule().dispatches[i], same[name, i]
        figures = times[label]
        yield Timing(
            name, d.time_ps / 1e6, *figures, rank=ranks[label], dispatch=i, name=d.name,
            bound=d.bound_text,
        )  # fmt: skip


def work_key(schedule: Schedule, d: Dispatch) -> object:
    """The key of a dispatch's work, equal for dispatches that differ in buffers only."""
    nodes = schedule.program.nodes
    inside = schedule.inside(d)
    used = (o for i in inside for o in (*nodes[i].operands, i))
    number = {n: i for i, n in enumerate(dict.fromkeys(used))}
    terms = ((nodes[i].attr, *(number[o] for o in nodes[i].operands)) for i in inside)
    ops = tuple(nodes[i].op for i in inside)
    return (
        ops,
        tuple(terms),
        tuple(nodes[n].types for n in number),
        tuple(map(number.get, d.writes)),
    )


def turns_of(many: Callable[[int], Any]) -> int:
    """How many runs inside one call take `TURN_SECONDS` at least."""
    turns = 1
    while turns < MOST_TURNS:
        many(turns)
        begin = time.perf_counter()
        many(turns)
        if (taken := time.perf_counter() - begin) >= TURN_SECONDS:
            break
        turns = min(MOST_TURNS, max(2 * turns, round(turns * TURN_SECONDS / max(taken, 1e-6))))
    return turns


def _repeating(many: Callable[[int], Any], turns: int) -> Side:
    return lambda: many(turns)


# ---- the clock -----------------------------------------------------------------------------------
def medians_us(sides: Mapping[str, Side], rounds: int) -> dict[str, tuple[float, ...]]:
    """Per side: median, lower and upper end of a call's microseconds, and those of the process."""
    calls, seconds = interleave(sides, rounds)
    intervals: dict[str, tuple[float, ...]] = {}
    for name, batches in seconds.items():
        wall = interval([1e6 * w / calls for w, _ in batches])
        intervals[name] = (*wall, statistics.median(1e6 * c / calls for _, c in batches))
    return intervals


def _ranks(times: Mapping[str, tuple[float, ...]]) -> dict[str, int]:
    order = sorted(times, key=lambda name: times[name][0])
    return {name: i for i, name in enumerate(order, 1)}
