"""Which device runs each dispatch of a schedule, and whether each reads what is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eqsat.model.devices import Transfer
from eqsat.model.generic import Generic
from eqsat.model.ops import VIEWS
from eqsat.model.program import Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Target
from eqsat.ops.programs.placement import ANYWHERE, node_devices


def devices_of(program: Program, target: Target) -> tuple[str, ...]:
    """Per node: the device that holds it; ANYWHERE for weights and constants."""
    return node_devices(program, dict(target.placed), target.default_device)


def with_devices(
    dispatches: Iterable[Dispatch], program: Program, target: Target
) -> tuple[Dispatch, ...]:
    """The dispatches with the device of each; as they are if there is only one."""
    if not target.devices:
        return tuple(dispatches)
    held = devices_of(program, target)
    return tuple(replace(d, device=_device(d, held, program, target)) for d in dispatches)


def _device(d: Dispatch, held: tuple[str, ...], program: Program, target: Target) -> str:
    nodes = program.nodes
    placed = (held[m] for m in d.members if nodes[m].op not in VIEWS)
    return next((p for p in placed if p != ANYWHERE), target.default_device)


def by_device(schedule: Schedule, target: Target) -> list[tuple[Schedule, Target]]:
    """Per device: its dispatches and its target; the whole if there is only one."""
    if not target.devices:
        return [(schedule, target)]
    return [
        (replace(schedule, dispatches=tuple(d for d in schedule.dispatches if d.device == name)), t)
        for name, t in target.devices
    ]


def device_faults(schedule: Schedule, target: Target, written: Iterable[object]) -> list[str]:
    """Faults of devices: what of a schedule is on the wrong one; nothing if there is only one."""
    if not target.devices:
        return []
    nodes, held = schedule.program.nodes, devices_of(schedule.program, target)
    loaded, given = set(schedule.ahead) | set(schedule.program.weights), set(written)
    faults = []
    for i, d in enumerate(schedule.dispatches):
        ops = [m for m in d.members if nodes[m].op not in VIEWS]  # a view is where its bytes are
        moved = [m for m in ops if isinstance(nodes[m].attr, Transfer)]
        away = {held[m] for m in ops} - {ANYWHERE, d.device}
        if away or (moved and len(ops) > 1):
            faults.append(f"dispatch {i} is on {d.device} and on {', '.join(sorted(away))} as well")
        for r in d.reads:
            home = held[r] or (ANYWHERE if r in loaded else target.default_device)
            if not moved and home not in (ANYWHERE, d.device):
                faults.append(f"dispatch {i} on {d.device} reads %{r}, which is on {home}")
        part = dict(target.devices)[d.device]
        for m in d.members:
            attr = nodes[m].attr
            if attr not in given and isinstance(attr, Generic) and attr.tile:
                faults += _tile_faults(i, m, attr.tile, part, d.device)
    return faults


def _tile_faults(i: int, m: int, tile: tuple[int, ...], part: Target, device: str) -> list[str]:
    """A packed contraction has a tile that its device's file names; plug-ins are not asked."""
    listed = {t.extents for kind, _ in part.tiles for t in part.vocabulary(kind)}
    m_n_swapped = (tile[1], tile[0], *tile[2:])
    if part.strategies or tile in listed or m_n_swapped in listed:
        return []
    text = "x".join(map(str, tile))
    return [f"dispatch {i}: %{m} is packed by {text}, which is no tile of {device} ({part.name})"]
