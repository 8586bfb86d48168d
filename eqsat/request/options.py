"""What a caller asks of a search, read: rules, target, devices, mesh, budget and goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eqsat.model.devices import DeviceMap
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.program import Program
from eqsat.model.rules import RuleSet
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target

DEFAULT_TARGET = "auto"


def goals_asked(what: Sequence[str | GoalRequest]) -> tuple[GoalRequest, ...]:
    from eqsat.lang.goals import parse_goals

    read = iter(parse_goals([g for g in what if isinstance(g, str)]))
    return tuple(g if isinstance(g, GoalRequest) else next(read) for g in what)


def machine_asked(
    what: str | Path | Target,
    devices: str | Path | DeviceMap | None,
    settings: Sequence[str],
) -> Target:
    """The target, or the targets of a map of devices as one, with the settings applied."""
    from eqsat.lang.owntarget import warn_if_elsewhere

    found = device_map(devices)
    if found is not None:
        from eqsat.lang.devices import machine

        if what != DEFAULT_TARGET:
            raise fail("E214", "give a target or a map of devices, not both")
        return machine(found, settings)
    one = what if isinstance(what, Target) else target(what)
    warn_if_elsewhere(one)
    if settings:
        from eqsat.lang.settings import override

        one = override(one, list(settings))
    return one


def device_map(devices: str | Path | DeviceMap | None) -> DeviceMap | None:
    if devices is None or isinstance(devices, DeviceMap):
        return devices
    from eqsat.lang.devices import load_devices

    return load_devices(devices)


def placed_on(program: Program, devices: DeviceMap | None) -> Program:
    """The program with a transfer at every border between devices."""
    from eqsat.ops.programs.placement import put_on_devices, refuse_transfers

    if devices is None:
        refuse_transfers(program)
        return program
    return put_on_devices(program, devices)


def budgeted(machine: Target, budget: Mapping[str, int | str]) -> Target:
    from eqsat.lang.units import budget_of

    asked_for = {g: budget_of(g, v, f"the budget of {g}") for g, v in budget.items()}
    merged = dict(machine.budget) | asked_for
    asked = {f"budget.{goal}": f"--budget {goal}" for goal in budget}
    places = tuple((dict(machine.places) | asked).items())
    return replace(machine, budget=tuple(sorted(merged.items())), places=places)


def meshed(
    machine: Target, mesh: str | None, shards: Mapping[str, str], stop_after: str | None
) -> Target:
    """With this mesh and these spreads; what a device may hold is a limit of the mesh alone.

    The search before it is for one device, which holds the whole program; one that ends there has
    no mesh.
    """
    from eqsat.lang.meshes import with_mesh, with_shards

    if mesh is not None:
        machine = with_mesh(machine, mesh)
    machine = with_shards(machine, shards)
    if machine.mesh is None or stop_after not in (None, "schedule"):
        return replace(machine, mesh=None)
    bounds = dict(machine.budget)
    limit = bounds.pop("memory", machine.mesh.memory_bytes)
    cut = replace(machine.mesh, memory_bytes=limit)
    return replace(machine, mesh=cut, budget=tuple(bounds.items()))


def rules_asked(what: Sequence[str] | str | RuleSet) -> RuleSet:
    if isinstance(what, RuleSet):
        return what
    return rules(*([what] if isinstance(what, str) else what))


def known_names(names: Sequence[str], ruleset: RuleSet) -> Sequence[str]:
    known = {n for r in ruleset.everything for n in (r.name, *r.tags)}
    for n in names:
        if n not in known:
            raise fail("E007", f"no rule or tag `{n}` to leave out", help=did_you_mean(n, known))
    return names


def rules(*names: str) -> RuleSet:
    """Rule sets by name (`default`, `layout/pack`) or path, merged in this order."""
    from eqsat.lang.rulesets import load_rulesets

    return load_rulesets(list(names))


def target(name_or_file: str | Path) -> Target:
    """A target by name (`avx512-xla`) or file; `auto` is this machine's."""
    from eqsat.lang.targets import load_target

    return load_target(str(name_or_file))
