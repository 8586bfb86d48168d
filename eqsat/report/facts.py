"""The figures of a finished run, each in one place: terminal, JSON and page print this record.

Times are picoseconds, sizes bytes, as solver and schedule have them; `scaled` gives the units of
JSON, `formatting.goal_text` those of people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.model.generic import Generic
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalResult
from eqsat.model.text import layout_text
from eqsat.ops.programs.border_layouts import packed_borders
from eqsat.ops.programs.placement import device_figures
from eqsat.report.finished import Finished
from eqsat.report.formatting import PS_PER_US
from eqsat.report.mesh import rule_uses
from eqsat.report.names import rules_in_result
from eqsat.report.weights import WeightLives

# goal -> (key of the JSON object, divisor from the solver's integers)
KEYS = {
    "time": ("time_us", PS_PER_US),
    "memory": ("peak_bytes", 1),
    "dispatches": ("dispatches", 1),
    "relayout": ("relayout_bytes", 1),
    "resident": ("resident_bytes", 1),
    "load_peak": ("load_peak_bytes", 1),
}
SEARCH_PHASES = ("read", "hunt", "saturate", "extract", "schedule", "mesh")
# equalities that are found before the search and may add in another order if any rule may
ADDED_OTHERWISE = ("parts-at-once", "leave-loop")
BEFORE_SEARCH = "multiply-integers"  # is applied to the program, too (`ops.spelling`)


def goal_key(goal: str) -> tuple[str, float]:
    """The key a goal has in JSON, and the divisor from the solver's integers."""
    return KEYS.get(goal, (goal, 1))


def scaled(goal: str, value: int) -> float:
    """A goal's value in the unit of its key: microseconds, bytes, or a count."""
    scale = goal_key(goal)[1]
    return value if scale == 1 else value / scale


def schedule_goals(schedule: Schedule) -> dict[str, int]:
    """A schedule's values of the goals that every report has."""
    return {
        "time": schedule.time_ps,
        "memory": schedule.peak_bytes,
        "dispatches": schedule.kernels,
    }


def schedule_figures(schedule: Schedule) -> dict[str, float]:
    """`schedule_goals` by the keys of JSON, in its units."""
    return {goal_key(k)[0]: scaled(k, v) for k, v in schedule_goals(schedule).items()}


@dataclass(frozen=True)
class GoalFact:
    """A goal of the answer beside the input's; None where there is nothing to say.

    kind: the goal whose unit it has. bound, gap, proof (relaxation | search): of requested goals.
    """

    name: str
    kind: str
    baseline: int | None
    chosen: int
    bound: int | None = None
    gap: float | None = None
    proof: str = ""


@dataclass(frozen=True, eq=False)
class RunFacts:
    """Everything that is told of a run in figures; what was not reached is None or empty."""

    run: Finished

    @cached_property
    def goals(self) -> dict[str, GoalFact]:
        """By name: time, memory and dispatches, then what else the search counted."""
        run = self.run
        if run.selection is None:
            return {}
        goals = {g.name for g in run.goals}
        before = {} if run.baseline is None else {n: g.value for n, g in run.baseline.goals}
        after = {} if run.schedule is None else schedule_goals(run.schedule)
        if run.schedule is not None and run.baseline_schedule is not None:
            before |= schedule_goals(run.baseline_schedule)
        facts = {n: GoalFact(n, n, before.get(n), value) for n, value in after.items()}
        for name, goal in run.selection.goals:
            fact = facts.get(name, GoalFact(name, name, before.get(name), goal.value))
            facts[name] = _bounded(fact, goal) if name in goals else fact
        return facts

    @cached_property
    def table(self) -> list[GoalFact]:
        """Figures compared with the input: time, memory, dispatches, bytes moved, other goals."""
        after, before = self.run.schedule, self.run.baseline_schedule
        if after is None or self.run.selection is None:
            return []
        always = list(schedule_goals(after))
        moved_before = None if before is None else before.bytes_moved
        moved = GoalFact("bytes moved", "memory", moved_before, after.bytes_moved)
        others = [g for n, g in self.goals.items() if n not in always and g.gap is not None]
        return [*(self.goals[n] for n in always), moved, *others]

    @cached_property
    def devices(self) -> dict[str, dict[str, int | str]]:
        """Per device its target, dispatches, `time_ps` and `peak_bytes`; empty if there is one."""
        return (
            {} if self.run.schedule is None else device_figures(self.run.schedule, self.run.target)
        )

    @cached_property
    def packed_borders(self) -> dict[str, str]:
        """Layouts of arguments by name, and of results (`result0`), that cross packed.

        Without those of which only the order of dims in memory was chosen.
        """
        orders = self.run.orders
        names = () if orders is None else [o.name for o in orders.chosen]
        layouts = border_layouts(self.run.program)
        return {name: text for name, text in layouts.items() if name not in names}

    @cached_property
    def weights(self) -> WeightLives | None:
        """How each weight of the schedule lives."""
        return None if self.run.schedule is None else WeightLives(self.run.schedule)

    @cached_property
    def rules(self) -> list[dict[str, Any]]:
        """Per rule: matches, e-nodes made, seconds, chosen e-nodes it led to, and its place.

        Of a spread rule `matches` are the choices that it permits on the mesh, and `in_result`
        those of the plan.
        """
        if self.run.egraph is None:
            return []
        used = _used(self.run)
        rows = [
            {
                "rule": r.name,
                "matches": r.matches,
                "nodes": r.nodes,
                "seconds": r.seconds,
                "in_result": used.get(r.name, 0),
                "at": r.at,
            }
            for r in self.run.egraph.rules
        ]
        return rows + ([] if self.run.mesh_plan is None else rule_uses(self.run.mesh_plan))

    def rules_by(self, sort: str) -> list[dict[str, Any]]:
        """The rules, the most of a figure first: rule | matches | nodes | time | result."""
        return sorted(self.rules, key=_SORTS[sort])

    @cached_property
    def inexact(self) -> dict[str, str]:
        """Rules that the answer needed and that may round otherwise; by how much at most."""
        return inexact_rules(self.run)

    @property
    def search_seconds(self) -> float:
        """Of all phases of the search."""
        return sum(self.run.seconds.get(k) or 0.0 for k in SEARCH_PHASES)


def rule_facts(run: Finished, sort: str = "nodes") -> list[dict[str, Any]]:
    """The rules of a run as plain data, the most of `sort` first."""
    return RunFacts(run).rules_by(sort)


_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rule": lambda f: f["rule"],
    "matches": lambda f: (-f["matches"], f["rule"]),
    "nodes": lambda f: (-f["nodes"], f["rule"]),
    "time": lambda f: (-f["seconds"], f["rule"]),
    "result": lambda f: (-f["in_result"], f["rule"]),
}


def _bounded(fact: GoalFact, goal: GoalResult) -> GoalFact:
    return replace(fact, bound=goal.bound, gap=goal.gap, proof=goal.proof)


def _used(run: Finished) -> Counter[str]:
    """Chosen nodes each rule led to, those of bodies included."""
    if run.egraph is None or run.selection is None:
        return Counter()
    bodies = {id(b): b for b in run.bodies.values()}.values()
    inner = (_used(b) for b in bodies)
    return sum(inner, rules_in_result(run.egraph, run.selection))


def border_layouts(program: Program) -> dict[str, str]:
    """The layouts of arguments, by name, and of results, `result0`, that cross packed."""
    return {
        program.leaf(program.inputs[b.number]).name if b.kind == "input" else f"result{b.number}":
        layout_text(layout)
        for b, layout in packed_borders(program).items()
    }  # fmt: skip


# ---- rounding ------------------------------------------------------------------------------------
def inexact_rules(run: Finished) -> dict[str, str]:
    """Names of rules that the answer needed and that are tagged `inexact`; their bounds."""
    if run.egraph is None or run.selection is None:
        return {}
    bounds = {r.name: r.bound for r in run.rules.rules if r.bound}
    if run.rules.reorders_sums:
        bounds |= dict.fromkeys(ADDED_OTHERWISE, "roundings")
    used = rules_in_result(run.egraph, run.selection)
    used[BEFORE_SEARCH] += _integer_sums(run.canonical) > _integer_sums(run.program)
    inexact = {name: bound for name, bound in bounds.items() if used.get(name)}
    for body in {id(b): b for b in run.bodies.values()}.values():
        inexact |= inexact_rules(body)
    return inexact


def _integer_sums(program: Program) -> int:
    """How many sums of i32 there are."""
    generics = (n.attr for n in program.nodes if isinstance(n.attr, Generic))
    return sum(y.combine == "add" and y.dtype == "i32" for g in generics for y in g.yields)
