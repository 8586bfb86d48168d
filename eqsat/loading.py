"""A saved run, read back from its artefact folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eqsat import artefact
from eqsat.model.diag import fail
from eqsat.model.limits import Limits
from eqsat.model.program import Program
from eqsat.model.rulecheck import RuleCheck
from eqsat.model.selection import GoalRequest
from eqsat.run import READERS, Run, RunUse
from eqsat.source import Source


def load_folder(folder: str | Path) -> Run:
    """A saved run; EqsatError (E309) if the folder is not one."""
    import eqsat.plan.planner  # noqa: F401 - its modules make the kinds of plans known
    from eqsat.execute.verify import Verification
    from eqsat.frontends.opaque import OpaqueCall

    values, weights, exported = artefact.read_folder(Path(folder))
    try:
        stages = {k: READERS[k](values[k]) for k in READERS if k in values}
        options = values["manifest"]["options"]
        goals = tuple(GoalRequest(**g) for g in options["goals"])
        search = {k: options[k] for k in ("time_limit", "seed", "threads")}
        search["extractor"] = options.get("extractor", "cpsat")  # runs of before have none
        seconds, limits = options["seconds"], Limits.of(options.get("limits"))
        checked = options.get("rule_check")
        rule_check = None if checked is None else RuleCheck.from_json(checked)
    except (KeyError, TypeError, ValueError) as e:
        raise fail("E309", f"`{folder}` cannot be read: {type(e).__name__}: {e}") from e
    opaque = {k: OpaqueCall.load(data) for k, data in exported.items()}
    first = ("program", "canonical", "target", "rules")
    program, canonical, machine, ruleset = (stages.pop(k) for k in first)
    source = Source(program, weights, opaque)
    stages = _named(stages, canonical)
    first_stages = (source, canonical, machine, ruleset, goals, seconds, search, limits)
    verified = options["verification"]
    use = RunUse({}, None if verified is None else Verification(**verified))
    packed = Path(folder) / artefact.PACKED
    file = packed if packed.is_file() else None
    run = Run(*first_stages, rule_check, **stages, packed_file=file, use=use)
    try:
        return replace(run, bodies=_bodies_from_json(values.get("bodies", []), run))
    except (KeyError, TypeError, ValueError) as e:
        raise fail("E309", f"`{folder}` cannot be read: {type(e).__name__}: {e}") from e


def _named(stages: dict[str, Any], canonical: Program) -> dict[str, Any]:
    """With the names of values in the e-graph, which older runs did not keep there."""
    egraph = stages.get("egraph")
    if egraph is None or egraph.names:
        return stages
    return stages | {"egraph": replace(egraph, names=canonical.value_names)}


def _bodies_from_json(data: Sequence[dict[str, Any]], whole: Run) -> dict[str, Run]:
    """What `Run.save` wrote of bodies."""
    found: dict[str, Run] = {}
    free = replace(whole.target, budget=())
    for d in data:
        stages = {k: READERS[k](v) for k, v in d["stages"].items()}
        source = Source(stages.pop("program"), {}, whole.source.opaque)
        goals = tuple(GoalRequest(**g) for g in d["goals"])
        rest = (free, whole.rules, goals, d["seconds"], d["search"], whole.limits)
        bodies = _bodies_from_json(d["bodies"], whole)
        canonical = stages.pop("canonical")
        run = Run(source, canonical, *rest, **_named(stages, canonical), bodies=bodies)
        found |= dict.fromkeys(d["paths"], run)
    return found
