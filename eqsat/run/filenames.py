"""The files of a run's folder, by what they hold."""

from __future__ import annotations

FILES = {
    "program": "1-program.json",
    "canonical": "1-canonical.json",
    "family": "2-family.json",
    "egraph": "2-egraph.json",
    "selection": "3-selection.json",
    "baseline": "3-baseline.json",
    "schedule": "4-schedule.json",
    "baseline_schedule": "4-baseline.json",
    "mesh_plan": "4-mesh.json",
    "bodies": "5-bodies.json",
    "curve": "3-curve.json",
    "orders": "1-orders.json",
    "measured": "6-measured.json",
    "checked": "6-checked.json",
    "compiled": "7-compiled.json",
    "target": "target.json",
    "rules": "rules.json",
    "summary": "summary.json",
    "manifest": "manifest.json",
}
WEIGHTS = "5-executable/weights.safetensors"  # as they came
PACKED = "5-executable/packed.safetensors"  # as the schedule reads them, if it was executed
OPAQUE = "5-executable/opaque"
