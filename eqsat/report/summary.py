"""A finished run as the one JSON object of `optimize` and `run` (format 1)."""

from __future__ import annotations

import math
from typing import Any

from eqsat.model.control import COND, controls
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.selection import GoalResult
from eqsat.model.text import layout_text
from eqsat.ops.programs.border_layouts import packed_borders
from eqsat.ops.targets.occupancy import device_figures
from eqsat.report.finished import Finished
from eqsat.report.mesh import plan_summary
from eqsat.report.orders import packed_alone
from eqsat.report.proven import is_measured_here
from eqsat.report.weights import weights_json

PS_PER_US = 1e6
# goal -> (key of the object, divisor from the solver's integers)
KEYS = {
    "time": ("time_us", PS_PER_US),
    "memory": ("peak_bytes", 1),
    "dispatches": ("dispatches", 1),
    "relayout": ("relayout_bytes", 1),
    "resident": ("resident_bytes", 1),
    "load_peak": ("load_peak_bytes", 1),
}


def goal_key(goal: str) -> tuple[str, float]:
    """The key a goal has in the object, and the divisor from the solver's integers."""
    return KEYS.get(goal, (goal, 1))


def summary(run: Finished) -> dict[str, Any]:
    """All figures of a run; what was not reached is null."""
    return {
        "format": 1,
        "program": {
            "name": run.program.name,
            "ops": run.program.op_count,
            "weight_bytes": run.program.weight_bytes,
            "symbols": _symbols(run),
            "layouts": packed_alone(border_layouts(run.program), run.orders),
            "orders": None if run.orders is None else run.orders.to_json(),
        },
        "target": run.target.name,
        "target_reason": run.target.chosen or None,
        "figures_measured_here": is_measured_here(run.target),
        "executor": run.execution.to_json(),
        "rules": [r.name for r in run.rules.rules],
        "rule_check": None if run.rule_check is None else run.rule_check.to_json(),
        "egraph": _egraph(run),
        "goals": _goals(run),
        "stop": run.selection.stop if run.selection else None,
        "claim": run.selection.claim if run.selection else None,
        "candidates": run.selection.candidates if run.selection else None,
        "cuts": [dict(vars(c)) for c in run.selection.cuts] if run.selection else None,
        "baseline": _baseline(run.baseline_schedule),
        "counts": _counts(run),
        "dispatches": _dispatches(run.schedule),
        "bytes": _bytes(run.schedule),
        "weights": weights_json(run.schedule),
        "loops": _loops(run),
        "devices": _devices(run),
        "mesh": _mesh(run),
        "measured": None if run.measured is None else run.measured.to_json(),
        "checked": None if run.checked is None else run.checked.to_json(),
        "compiled": _compiled(run),
        "verify": _verify(run.verification),
        "seconds": _seconds(run.seconds),
    }


def _compiled(run: Finished) -> dict[str, Any]:
    """Per device the object that `eqsat compile` prints; empty where none was asked about."""
    return {} if run.compiled is None else {t.device: t.summary() for t in run.compiled.told}


def _symbols(run: Finished) -> dict[str, Any]:
    """Dims that are not known: what divides them, and what they are priced at."""
    family = run.family
    if family is None:
        return {}
    return {s.name: {"divisor": s.divisor, "size": s.size} for s in family.symbols}


def border_layouts(program: Program) -> dict[str, str]:
    """The layouts of arguments, by name, and of results, `result0`, that cross packed."""
    return {
        program.leaf(program.inputs[b.number]).name if b.kind == "input" else f"result{b.number}":
        layout_text(layout)
        for b, layout in packed_borders(program).items()
    }  # fmt: skip


def _egraph(run: Finished) -> dict[str, Any] | None:
    g = run.egraph
    if g is None:
        return None
    return {
        "nodes": len(g.nodes),
        "classes": len(g.types),
        "rounds": g.rounds,
        "stop": g.stop,
        "limits": run.limits.resolved(run.canonical.op_count).to_json(),
        "left_out": list(g.left_out),
        "blocks": vars(g.blocks) if g.blocks else None,
    }


def scaled_figures(goal: str, figure: GoalResult) -> tuple[str, float, float]:
    """The key of a goal's result, its value and its bound, as the object has them."""
    key, scale = goal_key(goal)
    value, bound = (x / scale if scale != 1 else x for x in (figure.value, figure.bound))
    return key, value, bound


def figures(schedule: Schedule) -> dict[str, float | int]:
    """A schedule's three goals by the keys of the object."""
    return {
        "time_us": schedule.time_ps / PS_PER_US,
        "peak_bytes": schedule.peak_bytes,
        "dispatches": schedule.kernels,
    }


def _goals(run: Finished) -> dict[str, Any] | None:
    """Per goal its value, bound, gap and proof; only requested goals are proven."""
    if run.selection is None:
        return None
    asked = {g.name for g in run.goals}
    found: dict[str, Any] = {}
    if run.schedule is not None:
        found = {k: _goal(v) for k, v in figures(run.schedule).items()}
    for name, goal in run.selection.goals:
        key, value, bound = scaled_figures(name, goal)
        is_asked = name in asked
        found[key] = _goal(value, bound, goal.gap, goal.proof) if is_asked else _goal(value)
    return found


def _goal(
    value: float, bound: float | None = None, gap: float | None = None, proof: str = ""
) -> dict[str, float | str | None]:
    """`proof` is null where the gap is not 0, or the goal was not requested."""
    return {"value": value, "bound": bound, "gap": gap, "proof": proof or None}


def _baseline(schedule: Schedule | None) -> dict[str, Any]:
    nothing = dict.fromkeys(("time_us", "peak_bytes", "dispatches"))
    return {"admissible": schedule is not None} | (figures(schedule) if schedule else nothing)


def _counts(run: Finished) -> dict[str, int] | None:
    return None if run.schedule is None else run.schedule.counts()


def _dispatches(schedule: Schedule | None) -> list[dict[str, Any]] | None:
    """Per dispatch its predicted time and, where it has a plan, what bounds that."""
    if schedule is None:
        return None
    return [
        {
            "name": d.name,
            "ops": d.ops,
            "time_us": d.time_ps / PS_PER_US,
            "plan": d.plan and d.plan.kind,
            "bound": d.parts and d.parts.bound,
            "peak_share": d.parts and d.parts.peak_share,
            "no_plan": d.no_plan or None,
        }
        for d in schedule.dispatches
    ]


def _bytes(schedule: Schedule | None) -> dict[str, int | str | None] | None:
    if schedule is None:
        return None
    return {
        "originals": schedule.originals,
        "bytes_moved": schedule.bytes_moved,
        "relayout_bytes": schedule.relayout_bytes,
        "resident_bytes": schedule.resident_bytes,
        "load_peak_bytes": schedule.load_peak_bytes,
        "load_peak_held_bytes": schedule.load_peak_held_bytes,
        "load_peak_embedded_bytes": schedule.load_peak_embedded_bytes,
        "arena_bytes": schedule.arena_bytes,
        "arena_bound": schedule.arena_bound,
    }


def _loops(run: Finished) -> dict[str, Any]:
    """Per loop of the canonical program how often it runs, null where that is unknown.

    bounded: its price is less than its time, as a solver could not add that to others.
    """
    return {
        run.canonical.value_name(i): {"trips": a.runs, "bounded": a.is_bounded}
        for i, a in controls(run.canonical)
        if a.op != COND
    }


def _devices(run: Finished) -> dict[str, Any]:
    """Per device its dispatches, their time and its peak bytes; empty if there is only one."""
    if run.schedule is None:
        return {}
    found = device_figures(run.schedule, run.target)
    return {
        name: {k: v for k, v in f.items() if k != "time_ps"}
        | {"time_us": float(f["time_ps"]) / PS_PER_US}
        for name, f in found.items()
    }


def _mesh(run: Finished) -> dict[str, Any] | None:
    """The plan for the mesh of the target; null if there is none."""
    if run.mesh_plan is None:
        return None
    return plan_summary(run.mesh_plan, run.cut_schedule.program)


def _verify(verification: Any) -> dict[str, Any] | None:
    if verification is None:
        return None
    keys = (
        "ok",
        "max_error",
        "limit",
        "samples",
        "outcome",
        "reason",
        "operations",
        "arena",
        "arena_reason",
        "input_error",
        "drawn",
        "how",
        "elements",
        "checked",
    )
    found = {k: getattr(verification, k) for k in keys}
    for key in ("max_error", "input_error"):  # a NaN or another shape has no distance
        if found[key] is not None and not math.isfinite(found[key]):
            found[key] = None  # JSON has no infinity
    return found


def _seconds(seconds: dict[str, float | None]) -> dict[str, float | None]:
    search = ("read", "hunt", "saturate", "extract", "schedule", "mesh")
    rounded = {k: None if v is None else round(v, 6) for k, v in seconds.items()}
    return rounded | {"total": round(sum(seconds.get(k) or 0.0 for k in search), 6)}
