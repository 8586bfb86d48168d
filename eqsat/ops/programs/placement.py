"""Placement of every value of a program on devices, the transfers that takes, and what each holds.

Inputs and what a map names are placed; any other value is computed where the first of its placed
operands is. An operand that lives elsewhere is transferred, once per value and device. Constants
are free on any device; a weight is kept where it is read first, and transferred to other readers
while the weights are loaded. A schedule keeps bytes on each device and has each busy for a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.model.attr import Attr
from eqsat.model.control import CONTROL
from eqsat.model.devices import DeviceMap, Transfer
from eqsat.model.diag import did_you_mean, fail
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Schedule
from eqsat.model.symbols import Origin
from eqsat.model.target import Target

ANYWHERE = ""  # the device of constants, and of weights until somebody reads them


def device_of(
    op: str, attr: Attr, operands: Iterable[str], inputs: Mapping[str, str], default: str
) -> str:
    """The device of what an op computes, from those of its operands.

    inputs: argument name -> device, for those that are not on the default one.
    """
    if isinstance(attr, Transfer):
        return attr.device
    if op == "input":
        assert isinstance(attr, Leaf)
        return inputs.get(attr.name, default)
    return next((d for d in operands if d != ANYWHERE), ANYWHERE)


def node_devices(program: Program, inputs: Mapping[str, str], default: str) -> tuple[str, ...]:
    """Per node of a placed program: its device, or ANYWHERE."""
    devices: list[str] = []
    for n in program.nodes:
        operands = (devices[o] for o in n.operands)
        devices.append(device_of(n.op, n.attr, operands, inputs, default))
    return tuple(devices)


def put_on_devices(program: Program, devices: DeviceMap) -> Program:
    """The program with a transfer wherever a value is read on another device.

    EqsatError E391 if the map, or a transfer of the program, names what is not there; E392 if two
    devices have no link, or a loop would run on another device than the default one.
    """
    _check(program, devices)
    return _Placing(program, devices).placed()


class _Placing:
    def __init__(self, program: Program, devices: DeviceMap):
        self.program, self.devices = program.numbered(), devices
        self.asked = dict(devices.values)
        self.builder = Builder(program.name)
        self.new: dict[int, int] = {}
        self.at: list[str] = []  # per node of the program
        self.copies: dict[tuple[int, str], int] = {}
        self.loaded: dict[int, str] = {}  # weight or constant -> where it was read first

    def placed(self) -> Program:
        for i, n in self.builder.following(self.program, self.new):
            device = self._device(i)
            self._check_loop(i, device)
            attr, operands = n.attr, n.operands
            if isinstance(attr, Transfer):
                (o,) = operands
                attr = Transfer(attr.source, self._home(o), attr.device)
                if attr.origin == attr.device:  # it is there already
                    self.new[i] = self.new[o]
                    self.at.append(device)
                    continue
                read = (self.new[o],)
            else:
                read = tuple(self._on(o, device) for o in operands)
            self.new[i] = self.builder.add(n.op, read, attr)
            self.at.append(device)
        results = [self.new[r] for r in self.program.results]
        program = self.builder.build(results, self.program.symbols)
        _check_borders(program, self.devices)
        return program

    def _device(self, i: int) -> str:
        n = self.program.nodes[i]
        name = self.program.value_name(i)
        named = self.asked.get(name, self.asked.get(f"%{i}"))
        if named is not None and n.op == "result":
            whole = self.program.value_name(n.operands[0])
            message = f"{name} is one of several results of {whole}, which share a device"
            raise fail("E391", message, help=f"place {whole} instead")
        if named is not None and not isinstance(n.attr, Transfer):
            return named
        operands = (self.at[o] for o in n.operands)
        return device_of(n.op, n.attr, operands, {}, self.devices.default)

    def _check_loop(self, i: int, device: str) -> None:
        op = self.program.nodes[i].op
        if op in CONTROL and device not in (ANYWHERE, self.devices.default):
            name = self.program.value_name(i)
            message = f"{name} (`{op}`) would run on `{device}`: loops and branches stay on"
            hint = "place what it reads there, or make its device the default one"
            raise fail("E392", f"{message} `{self.devices.default}`", help=hint)

    def _home(self, o: int) -> str:
        return self.at[o] or self.loaded.get(o, self.devices.default)

    def _on(self, o: int, device: str) -> int:
        """The operand as a node on this device."""
        if self.at[o] == ANYWHERE and not reads_weight(self.program, o):
            return self.new[o]
        if self.at[o] == ANYWHERE:
            self.loaded.setdefault(o, device)
        origin = self._home(o)
        if device in (origin, ANYWHERE):
            return self.new[o]
        if (o, device) not in self.copies:
            shape = self.program.nodes[o].type.shape
            attr, before = Transfer(shape, origin, device), len(self.builder.nodes)
            copy = self.builder.add("transfer", (self.new[o],), attr)
            if copy == before:
                name = self.program.value_names[o]
                self.builder.rename(copy, Origin(f"{name}.{device}", self.builder.origin.at))
            self.copies[o, device] = copy
        return self.copies[o, device]


def reads_weight(program: Program, node: int) -> bool:
    """Whether a value without a device is computed from weights, not from constants alone."""
    waiting = [node]
    while waiting:
        n = program.nodes[waiting.pop()]
        if n.op == "weight":
            return True
        waiting += n.operands
    return False


def _check(program: Program, devices: DeviceMap) -> None:
    numbers = range(len(program.nodes))
    names = [program.value_name(i) for i in numbers]
    values = {*names, *(f"%{i}" for i in numbers)}
    for value, _ in devices.values:
        if value not in values:
            message = f"`{devices.name}` places `{value}`, the program has no such value"
            raise fail("E391", message, help=did_you_mean(value, names))
    for n in program.nodes:
        if isinstance(n.attr, Transfer) and n.attr.device not in devices.names:
            message = f"the program has a transfer to `{n.attr.device}`, no device is called so"
            raise fail("E391", message, help=did_you_mean(n.attr.device, devices.names))


def _check_borders(program: Program, devices: DeviceMap) -> None:
    """EqsatError E392 if a transfer has no link to go over."""
    links = {(k.origin, k.device) for k in devices.links}
    for n in program.nodes:
        if isinstance(n.attr, Transfer) and (n.attr.origin, n.attr.device) not in links:
            ends = f"from `{n.attr.origin}` to `{n.attr.device}`"
            message = f"the program needs a link {ends}, `{devices.name}` has none"
            hint = "write one under `links:`, or place its values elsewhere"
            raise fail("E392", message, help=hint)


def refuse_transfers(program: Program) -> None:
    """EqsatError E391: a program that names devices is searched under a map of them."""
    named = sorted({n.attr.device for n in program.nodes if isinstance(n.attr, Transfer)})
    if named:
        shown = ", ".join(f"`{d}`" for d in named)
        message = f"the program has transfers to {shown}, and no map of devices is given"
        raise fail("E391", message, help="give a map: `--devices FILE`")


# ---- occupancy -----------------------------------------------------------------------------------
def device_peaks(schedule: Schedule, target: Target) -> dict[str, int]:
    """Peak bytes per device: its arguments, results, weights and temporaries at the worst step.

    A weight is on the device that reads it; what crosses a border is on both while it does.
    """
    held = node_devices(schedule.program, dict(target.placed), target.default_device)
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
    figures: dict[str, dict[str, int | str]] = {}
    for name, part in target.devices:
        dispatches = [d for d in schedule.dispatches if d.device == name]
        figures[name] = {
            "target": part.name,
            "dispatches": len(dispatches),
            "time_ps": sum(d.time_ps for d in dispatches),
            "peak_bytes": peaks[name],
        }
    return figures
