"""Variants of one dispatch on the clock: other plans of its nest beside the schedule's own.

Plans are timed in interleaved rounds as `lab.bench` times dispatches, on the same operands; their
results are compared with those of the schedule's plan before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from eqsat.api import Run
from eqsat.execute.kernels.executor import KernelsExecutable, disagreement
from eqsat.lab.bench import (
    Progress,
    Timing,
    medians_us,
    operand_arrays,
    repeated,
    turns_of,
    us_cells,
)
from eqsat.lab.calibrate.fit import Quality, quality
from eqsat.model.diag import fail
from eqsat.model.dispatch import Parts, Plan
from eqsat.model.schedule import Schedule
from eqsat.plan.planner import planner_of
from eqsat.plan.price import first_fetches, priced_parts, rates
from eqsat.plan.storage import unchanged_in_place
from eqsat.plan.updates import nest_in_place
from eqsat.plan.variants import plan_variants
from eqsat.report.formatting import count_text, table_text
from eqsat.run.kernelcode import dispatch_of

LEAST_VARIANTS = 2


class Took(NamedTuple):
    """What one of several plans took. group: all are of one."""

    time_ps: float
    group: str = ""


@dataclass(frozen=True)
class PlanTiming:
    """A plan, the parts of its predicted time, and what it took."""

    plan: Plan
    parts: Parts
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        priced = {"text": self.plan.to_text(), "parts": self.parts.to_json()}
        return {"plan": self.plan.to_json()} | priced | vars(self.timing)


@dataclass(frozen=True)
class PlanBench:
    """Plans of one dispatch, the schedule's own first, the others as they were predicted.

    known: how many plans there are; refused: why kernels of chosen ones could not be run.
    """

    title: str
    known: int
    plans: tuple[PlanTiming, ...]
    refused: tuple[str, ...]

    @property
    def wall_us(self) -> list[float]:
        """What the plans took."""
        return [p.timing.measured_us for p in self.plans]

    @property
    def cpu_us(self) -> list[float]:
        """What they took of the process's own time, which others on the machine disturb less."""
        return [p.timing.cpu_us for p in self.plans]

    def quality(self, took_us: Sequence[float]) -> Quality:
        """How far prices are from these times, and how well they order the plans."""
        took = [Took(1e6 * us) for us in took_us]
        return quality(took, [float(p.parts.time_ps) for p in self.plans])

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "title": self.title,
            "known": self.known,
            "plans": [p.to_json() for p in self.plans],
            "refused": list(self.refused),
            "by_wall": self.quality(self.wall_us).to_json(),
            "by_cpu": self.quality(self.cpu_us).to_json(),
        }

    def to_text(self) -> str:
        """A table, the fastest first, and how well the prices order it."""
        head = ("", "rank", "predicted", "measured", "95 % interval", "CPU", "measured/predicted")
        rows = [
            ("*" if p is self.plans[0] else "", str(p.timing.rank), *us_cells(p.timing),
             f"{p.timing.share:.2f}x", p.parts.bound, p.plan.to_text())
            for p in sorted(self.plans, key=lambda p: p.timing.rank)
        ]  # fmt: skip
        some = f"{len(self.plans)} of {count_text(self.known, 'plan')}; * is the schedule's"
        table = table_text((*head, "bound", "plan"), rows)
        told = [
            self._ordered("on the wall", self.wall_us),
            self._ordered("by CPU time", self.cpu_us),
        ]
        return "\n".join([f"{self.title}: {some}", table + told[0], told[1], *self.refused]) + "\n"

    def _ordered(self, clock: str, took_us: Sequence[float]) -> str:
        q = self.quality(took_us)
        return (
            f"{clock} prices order {q.ordered} of {count_text(q.pairs, 'pair')} that are more than"
            f" 5 % apart (Kendall's tau of all {q.kendall_tau:.2f}); the schedule's plan takes"
            f" {took_us[0] / min(took_us):.2f}x of the fastest"
        )


def bench_plans(
    name: str,
    run: Run,
    number: int,
    count: int,
    *,
    rounds: int = 30,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> PlanBench:
    """Time `count` plans of a dispatch: its own, others evenly from the cheapest to the dearest.

    EqsatError E427 if there is no such dispatch, E428 if it has no plan, or only one.
    """
    schedule = run.need_schedule()
    priced, declined = priced_plans(name, run, number), dict(run.execution.declined)
    if number in declined or run.runs_on.executor != "kernels":
        why = declined.get(number, f"the executor {run.runs_on.executor} follows none")
        raise fail("E428", f"dispatch {number} of `{name}` runs no plan here: {why}")
    some, reads = evenly(priced, count), operand_arrays(run, seed)[number]
    own = run.executable.dispatch(number)
    sides: dict[str, Callable[[], Any]] = {}
    turns: dict[str, int] = {}
    kept: list[tuple[Plan, Parts]] = []
    refused: list[str] = []
    progress(f"compiling {count_text(len(some), 'plan')}")
    for plan, parts in some:
        other = _with_plan(schedule, number, plan)
        executable = KernelsExecutable(other, run.source.opaque, run.weights, run.runs_on)
        executable.packed = run.executable.packed
        why = executable.refused.get(number) or disagreement(
            schedule, number, (executable.dispatch(number), own)
        )
        if why:
            refused.append(f"not timed: {plan.to_text()}: {why}")
            continue
        label = str(len(kept))
        many = repeated(executable.dispatch(number), reads)
        turns[label] = turns_of(many)
        sides[label] = lambda many=many, n=turns[label]: many(n)
        kept.append((plan, parts))
    progress(f"timing {count_text(len(sides), 'plan')}")
    times = {k: tuple(us / turns[k] for us in v) for k, v in medians_us(sides, rounds).items()}
    order = sorted(times, key=lambda k: times[k][0])
    plans = [
        PlanTiming(p, parts, Timing(name, parts.time_ps / 1e6, *times[str(i)],
                                    rank=1 + order.index(str(i)), dispatch=number))
        for i, (p, parts) in enumerate(kept)
    ]  # fmt: skip
    title = f"dispatch {number} of {name}, {schedule.dispatches[number].name}"
    return PlanBench(title, len(priced), tuple(plans), tuple(refused))


def priced_plans(name: str, run: Run, number: int) -> list[tuple[Plan, Parts]]:
    """All plans of a dispatch with their prices: the schedule's own, then the cheapest first."""
    schedule, target, d = run.need_schedule(), run.target, dispatch_of(run, number, name)
    if d.plan is None or d.parts is None or run.egraph is None or not target.is_planned:
        why = d.no_plan or f"{target.name} plans no kernels, or it is a loop"
        raise fail("E428", f"dispatch {number} of `{name}` has no plan: {why}")
    nest = nest_in_place(schedule, d)
    resident = {b.node for b in schedule.buffers if b.role == "weight"}
    weights = {i for i, b in enumerate(nest.buffers) if b in resident}
    given = [i for i, b in enumerate(nest.buffers) if b in {a for _, a in schedule.in_place}]
    nest = nest.anonymous()
    still = unchanged_in_place(nest, given) if given else ()
    working_set = planner_of(run.egraph, target).working_set
    fetches = first_fetches(nest, weights, working_set, still)
    others = [p for p in plan_variants(nest, target.machine) if p != d.plan]
    priced = [(p, priced_parts(p.work, rates(target), fetches)) for p in others]
    return [(d.plan, d.parts), *sorted(priced, key=lambda x: (x[1].time_ps, x[0].to_text()))]


def evenly(priced: Sequence[tuple[Plan, Parts]], count: int) -> list[tuple[Plan, Parts]]:
    """So many of them: the first, and others evenly to the last.

    >>> evenly(list("abcdefg"), 3)
    ['a', 'd', 'g']
    """
    count, last = min(count, len(priced)), len(priced) - 1
    if count < LEAST_VARIANTS:
        raise fail("E428", "there is no other plan to time it beside")
    return [priced[round(i * last / (count - 1))] for i in range(count)]


def _with_plan(schedule: Schedule, number: int, plan: Plan) -> Schedule:
    dispatches = list(schedule.dispatches)
    dispatches[number] = replace(dispatches[number], plan=plan)
    return replace(schedule, dispatches=tuple(dispatches))
