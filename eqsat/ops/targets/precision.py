"""What a program asks of its contractions, against what the machine's target knows."""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.control import Control
from eqsat.model.diag import fail
from eqsat.model.generic import Generic
from eqsat.model.precision import NONE
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.ops.programs.placement import node_devices


def check_precisions(program: Program, target: Target) -> None:
    """EqsatError E215 if a contraction asks for a precision that its device does not know.

    program: placed on the devices of the target, if it has several.
    """
    for i, g, machine in _contractions(program, target):
        if machine.precisions and g.precision not in machine.precisions:
            shapes = f"{list(g.shapes[0])} and {list(g.shapes[1])}"
            asked = f"{program.value_name(i)}, a contraction of {shapes},"
            raise fail(
                "E215",
                f"{asked} asks for the precision `{g.precision}`, "
                f"which target `{machine.name}` does not know",
                help=f"it knows {', '.join(machine.precisions)} ({machine.place('precisions')})",
            )


def _contractions(program: Program, target: Target) -> Iterator[tuple[int, Generic, Target]]:
    """Contractions with their nodes and devices; those of bodies with the node of the loop."""
    machines = dict(target.devices)
    devices = node_devices(program, dict(target.inputs), target.default_device)
    for i, (n, device) in enumerate(zip(program.nodes, devices, strict=True)):
        machine = machines.get(device or target.default_device, target)
        if isinstance(n.attr, Control):
            for body in n.attr.bodies:
                yield from ((i, g, m) for _, g, m in _contractions(body, machine))
        if isinstance(n.attr, Generic) and n.attr.precision != NONE:
            yield i, n.attr, machine
