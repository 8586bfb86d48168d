"""A finished run as the one JSON object of `optimize` and `run` (format 1)."""

from __future__ import annotations

import math
from typing import Any

from eqsat.model.control import COND, controls
from eqsat.model.schedule import Schedule
from eqsat.ops.programs.sharedmoves import shared_moves
from eqsat.report.facts import RunFacts, goal_key, scaled, schedule_figures
from eqsat.report.finished import Finished, is_measured_here
from eqsat.report.formatting import PS_PER_US
from eqsat.report.mesh import plan_summary
from eqsat.report.weights import weights_json


def summary(run: Finished) -> dict[str, Any]:
    """All figures of a run; what was not reached is null.

    searched_at: of an answer that was kept on this machine, whose phases took their seconds then.
    """
    facts = RunFacts(run)
    return {
        "format": 1,
        "program": {
            "name": run.program.name,
            "ops": run.program.op_count,
            "weight_bytes": run.program.weight_bytes,
            "shared_moves": len(shared_moves(run.canonical)),
            "symbols": _symbols(run),
            "layouts": facts.packed_borders,
            "orders": None if run.orders is None else run.orders.to_json(),
        },
        "target": run.target.name,
        "target_reason": run.target.chosen or None,
        "figures_measured_here": is_measured_here(run.target),
        "executor": run.execution.to_json(),
        "rules": [r.name for r in run.rules.rules],
        "rule_check": None if run.rule_check is None else run.rule_check.to_json(),
        "egraph": _egraph(run),
        "goals": _goals(facts),
        "stop": run.selection.stop if run.selection else None,
        "claim": run.selection.claim if run.selection else None,
        "candidates": run.selection.candidates if run.selection else None,
        "cuts": [dict(vars(c)) for c in run.selection.cuts] if run.selection else None,
        "baseline": _baseline(run.baseline_schedule),
        "counts": _counts(run),
        "dispatches": _dispatches(run.schedule),
        "bytes": _bytes(run.schedule),
        "weights": weights_json(facts.weights),
        "loops": _loops(run),
        "devices": _devices(facts),
        "mesh": _mesh(run),
        "measured": None if run.measured is None else run.measured.to_json(),
        "checked": None if run.checked is None else run.checked.to_json(),
        "compiled": _compiled(run),
        "verify": _verify(run.verification),
        "searched_at": run.searched_at or None,
        "seconds": _seconds(facts),
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


def _goals(facts: RunFacts) -> dict[str, Any] | None:
    """Per goal its value, bound, gap and proof; only requested goals are proven.

    `proof` is null where the gap is not 0, or the goal was not requested.
    """
    if facts.run.selection is None:
        return None
    return {
        goal_key(n)[0]: {
            "value": scaled(n, g.chosen),
            "bound": None if g.bound is None else scaled(n, g.bound),
            "gap": g.gap,
            "proof": g.proof or None,
        }
        for n, g in facts.goals.items()
    }


def _baseline(schedule: Schedule | None) -> dict[str, Any]:
    nothing = dict.fromkeys(("time_us", "peak_bytes", "dispatches"))
    return {"admissible": schedule is not None} | (
        schedule_figures(schedule) if schedule else nothing
    )


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


def _devices(facts: RunFacts) -> dict[str, Any]:
    """Per device its dispatches, their time and its peak bytes; empty if there is only one."""
    return {
        name: {k: v for k, v in f.items() if k != "time_ps"}
        | {"time_us": float(f["time_ps"]) / PS_PER_US}
        for name, f in facts.devices.items()
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
    values = {k: getattr(verification, k) for k in keys}
    for key in ("max_error", "input_error"):  # a NaN or another shape has no distance
        if values[key] is not None and not math.isfinite(values[key]):
            values[key] = None  # JSON has no infinity
    return values


def _seconds(facts: RunFacts) -> dict[str, float | None]:
    rounded = {k: None if v is None else round(v, 6) for k, v in facts.run.seconds.items()}
    return rounded | {"total": round(facts.search_seconds, 6)}
