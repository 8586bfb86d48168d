"""The request of a search, read and checked: rules, target, devices, mesh, budget, goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eqsat.frontends.source import Source
from eqsat.model.devices import DeviceMap
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.oracle import parse_oracle
from eqsat.model.program import Program
from eqsat.model.progress import timed
from eqsat.model.rules import RuleCheck, RuleSet
from eqsat.model.selection import EXTRACTORS, GoalRequest
from eqsat.model.target import Target

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
    from eqsat.lang.owntarget import warn_if_elsewhere

    if devices is not None:
        from eqsat.lang.devices import machine

        if what != DEFAULT_TARGET:
            raise fail("E214", "give a target or a map of devices, not both")
        return machine(devices, settings)
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


def rules_asked(what: Sequence[str] | str | RuleSet) -> RuleSet:
    if isinstance(what, RuleSet):
        return what
    return rules(*([what] if isinstance(what, str) else what))


def known_names(names: Sequence[str], ruleset: RuleSet) -> Sequence[str]:
    defined = {n for r in ruleset.everything for n in (r.name, *r.tags)}
    for n in names:
        if n not in defined:
            raise fail("E007", f"no rule or tag `{n}` to leave out", help=did_you_mean(n, defined))
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
    from eqsat.hunt.firstuse import check_rules

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
    from eqsat.execute.compilers.ask import need_compiler

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
