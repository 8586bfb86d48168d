"""Is a schedule legal on a target? Read from the target's keys (docs/dispatches.md) alone.

Nothing here knows the e-graph or how the search enumerates dispatches; a fault is one sentence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from eqsat.model.control import every_program
from eqsat.model.generic import Generic
from eqsat.model.nest import NoNest
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.text import with_names
from eqsat.ops.contractions.roles import kind
from eqsat.ops.generics.access import is_cheap, widens
from eqsat.plan.plancheck import plan_faults
from eqsat.plan.updates import nest_in_place
from eqsat.schedule.devices import by_device, device_faults
from eqsat.schedule.fused import OneDispatch
from eqsat.schedule.lives import life_faults, number_faults
from eqsat.schedule.replanned import replanned_faults
from eqsat.schedule.sizes import size_faults

_ENCODINGS = frozenset({"set_encoding", "unset_encoding"})


def faults(schedule: Schedule, target: Target, given: Program | None = None) -> list[str]:
    """What of a schedule breaks the target, and by which key; nothing if it is legal.

    given: the program as its author wrote it, whose own tiles and encodings are no fault.
    """
    return [with_names(schedule.program, fault) for fault in _faults(schedule, target, given)]


def _faults(schedule: Schedule, target: Target, given: Program | None) -> list[str]:
    """The same, with values by their numbers."""
    try:
        schedule.program.verify()
        if unknown := number_faults(schedule):
            return unknown
        schedule.verify()
    except ValueError as error:
        return [str(error)]
    if broken := list(life_faults(schedule)):
        return broken
    found = [*_flow_faults(schedule), *size_faults(schedule, target), *_plan_faults(schedule)]
    if schedule.target == target.name:
        found += replanned_faults(schedule, target)
    machines = dict(target.devices)
    for i, d in enumerate(schedule.dispatches):
        own = schedule.target == target.name
        one = OneDispatch(i, d, schedule.program, machines.get(d.device, target), own)
        found += [f"dispatch {i} ({d.ops}): {fault}" for fault in one.faults()]
        found += _body_faults(schedule, i, target, given)
    programs = () if given is None else every_program(given)
    written = tuple(n.attr for p in programs for n in p.nodes)
    found += device_faults(schedule, target, written)
    for part, machine in by_device(schedule, target):
        found += _tiling_faults(part, machine, written) + _clone_faults(part, machine)
    return found + _budget_faults(schedule, target)


# ---- the whole schedule --------------------------------------------------------------------------
def _flow_faults(schedule: Schedule) -> list[str]:
    """Every dispatch reads what is written to memory, and every result is there in the end."""
    program = schedule.program
    there = {*program.inputs, *program.weights, *schedule.ahead}
    found = []
    for i, d in enumerate(schedule.dispatches):
        found += [
            f"dispatch {i} reads %{r}, which was not written" for r in d.reads if r not in there
        ]
        there |= set(d.writes)
    bases = [program.behind_views(r) for r in program.results]
    return found + [f"result %{b} is never written" for b in bases if b not in there]


def _plan_faults(schedule: Schedule) -> list[str]:
    """Every plan computes what its dispatch does: each element once, of all products."""
    found = []
    for i, d in enumerate(schedule.dispatches):
        try:
            plan = d.plan
            faults = [] if plan is None else plan_faults(nest_in_place(schedule, d), plan)
            found += [f"dispatch {i} ({d.ops}) has a plan, and {fault}" for fault in faults]
        except NoNest as why:
            found.append(f"dispatch {i} ({d.ops}) has a plan and no nest: {why}")
    return found


def _body_faults(
    schedule: Schedule, dispatch: int, target: Target, given: Program | None
) -> list[str]:
    """The bodies of a loop or branch are schedules of their own; budgets are those of the whole."""
    control = schedule.control(schedule.dispatches[dispatch])
    if control is None:
        return []
    found = [
        f"dispatch {dispatch}, {label}: {fault}"
        for label, body in zip(control.labels, control.schedules, strict=True)
        for fault in faults(body, replace(target, budget=()), given)
    ]
    if any(s.program.weights or s.ahead for s in control.schedules):
        found.append(f"dispatch {dispatch} computes something from weights in every step")
    return found


def _clone_faults(schedule: Schedule, target: Target) -> list[str]:
    nodes = schedule.program.nodes
    count = Counter(m for d in schedule.dispatches for m in dict.fromkeys(d.members))
    where = target.place("fusion.clone")
    return [
        f"%{m} ({nodes[m].op}) is computed in {n} dispatches and may not be cloned ({where})"
        for m, n in count.items()
        if n > 1 and not _is_cloneable(nodes[m], target.fusion.clone)
    ]


def _is_cloneable(node: Node, clone: tuple[str, ...]) -> bool:
    what = kind(node.op, node.attr)
    if what in ("leaf", "view"):
        return True
    if what in ("elementwise", "conversion") and ("all" in clone or what in clone):
        return True
    if ("dequantise" in clone and widens(node.attr)) or ("cheap" in clone and is_cheap(node.attr)):
        return True
    if what != "elementwise" or not isinstance(node.attr, Generic):
        return False
    bodies = [y.body for y in node.attr.yields]
    if any(b.count() for b in bodies):
        return False
    casts = any(e.fn == "cast" for b in bodies for e in b.walk())
    return ("cast" if casts else "broadcast") in clone


def _budget_faults(schedule: Schedule, target: Target) -> list[str]:
    needs = {
        "time": (schedule.time_ps, "ps"),
        "memory": (schedule.peak_bytes, "bytes"),
        "dispatches": (schedule.kernels, "dispatches"),
        "relayout": (schedule.relayout_bytes, "bytes"),
        "resident": (schedule.resident_bytes, "bytes"),
        "load_peak": (schedule.load_peak_bytes, "bytes"),
    }
    return [
        f"needs {needs[goal][0]:,} {needs[goal][1]}, the budget is {bound:,}"
        f" ({target.place(f'budget.{goal}')})"
        for goal, bound in target.budget
        if goal in needs and needs[goal][0] > bound  # goals of plug-ins are not known here
    ]


def _tiling_faults(schedule: Schedule, target: Target, written: tuple[object, ...]) -> list[str]:
    """Tiles where there must be some, none where there is no data tiling."""
    nodes, found = schedule.program.nodes, []
    for m in dict.fromkeys(m for d in schedule.dispatches for m in d.members):
        attr, op = nodes[m].attr, nodes[m].op
        tile = attr.tile if isinstance(attr, Generic) else ()
        if kind(op, attr) == "contraction" and target.tiles_forced and not tile:
            where = target.place("tiles_forced")
            found.append(f"%{m} is an unpacked contraction, tiles are forced ({where})")
        if target.data_tiling or attr in written:
            continue
        where = target.place("data_tiling")
        if op in _ENCODINGS:
            found.append(f"%{m} ({op}) is left, the target does no data tiling ({where})")
        if tile:
            text = "x".join(map(str, tile))
            found.append(f"%{m} is packed by {text}, the target does no data tiling ({where})")
    return found
