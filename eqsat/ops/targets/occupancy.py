"""What a schedule keeps on each of several devices, and how long each is busy."""

from __future__ import annotations

from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.ops.programs.placement import node_devices


def device_peaks(schedule: Schedule, target: Target) -> dict[str, int]:
    """Peak bytes per device: its arguments, results, weights and temporaries at the worst step.

    A weight is on the device that reads it; what crosses a border is on both while it does.
    """
    held = node_devices(schedule.program, dict(target.inputs), target.default_device)
    readers: dict[int, str] = {}
    for d in schedule.dispatches:
        for r in d.reads:
            readers.setdefault(r, d.device)
    last = max((d.step for d in schedule.dispatches), default=0)
    live = {name: [0] * (last + 1) for name, _ in target.devices}
    for b in schedule.buffers:
        home = held[b.node] or readers.get(b.node, target.default_device)
        for step in range(b.first, min(b.last, last) + 1):
            live[home][step] += b.nbytes
    return {name: max(steps) for name, steps in live.items()}


def device_figures(schedule: Schedule, target: Target) -> dict[str, dict[str, int | str]]:
    """Per device: its target, its dispatches, their picoseconds, and its peak bytes.

    Nothing if there is only one device.
    """
    if not target.devices:
        return {}
    peaks = device_peaks(schedule, target)
    found: dict[str, dict[str, int | str]] = {}
    for name, part in target.devices:
        own = [d for d in schedule.dispatches if d.device == name]
        found[name] = {
            "target": part.name,
            "dispatches": len(own),
            "time_ps": sum(d.time_ps for d in own),
            "peak_bytes": peaks[name],
        }
    return found
