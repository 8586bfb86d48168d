"""Placed program → Equalities: what names no device may be computed on any, and sent over any link.

A value on another device is a value of its own, with a copy over each link that leads there. So one
search decides what is computed where, once or on several devices, what is sent, and in which
layout: whatever a rule makes of a value it may make on each device. What names its device stays: an
argument, a value of the map, what a `transfer` of the program gives. A result that names none comes
out where the program has it, however it got there.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.model.control import CONTROL
from eqsat.model.devices import Transfer
from eqsat.model.equalities import Equalities
from eqsat.model.ops import LEAVES
from eqsat.model.program import Builder, Node, Program
from eqsat.model.target import Target
from eqsat.ops.programs.placement import ANYWHERE, node_devices, reads_weight

RULE = "compute-elsewhere"
_DOC = "a value that names no device may be computed on any, and sent over any link"


def pinned_values(program: Program, target: Target) -> dict[str, str]:
    """Names, as in the canonical program, of values that name a device; and the device.

    program: as it was read, before its values were placed.
    """
    asked, named = dict(target.placed), dict[str, str]()
    for i, name in enumerate(program.numbered().value_names):
        attr = program.nodes[i].attr
        device = attr.device if isinstance(attr, Transfer) else asked.get(program.value_name(i))
        device = device or asked.get(f"%{i}")
        if device is not None:
            named[name] = device
    return named


def placed_facts(
    program: Program, target: Target, named: Mapping[str, str], first: int
) -> Equalities | None:
    """A placed program's values on all devices; numbered from `first` on, None if there are none.

    named: values that stay where they are. Where such a value was merged into another one, all
    that its device computes stays there.
    """
    if not target.links:
        return None
    everywhere = _Everywhere(program, target, named)
    equal = everywhere.equal()
    count, nodes = len(program.nodes), everywhere.b.nodes
    shift = first - count

    def number(i: int) -> int:
        return i if i < count else i + shift

    added = tuple(
        Node(n.op, tuple(map(number, n.operands)), n.attr, n.types) for n in nodes[count:]
    )
    pairs = tuple((number(a), number(b)) for a, b in equal)
    return Equalities(RULE, _DOC, first, added, pairs, (), is_open=True) if pairs else None


class _Everywhere:
    """Writes the values of a placed program on all devices of its target."""

    def __init__(self, program: Program, target: Target, named: Mapping[str, str]):
        self.program = program
        self.devices = [name for name, _ in target.devices]
        self.links = {(k.origin, k.device) for k in target.links}
        self.default = target.default_device
        self.home = node_devices(program, dict(target.placed), target.default_device)
        names = [{n.origin.name, *n.origin.also} for n in program.nodes]
        self.named = {i for i, some in enumerate(names) if not some.isdisjoint(named)}
        merged = named.keys() - set[str]().union(*names)
        self.kept = {named[name] for name in merged}
        self.b = Builder(program.name)
        for n in program.nodes:
            self.b.append(n.op, n.operands, n.attr)
        self.at: dict[tuple[int, str], int] = {}

    def equal(self) -> list[tuple[int, int]]:
        """Nodes that are one value on one device: computed there, or sent from another one."""
        pairs = list[tuple[int, int]]()
        for i, n in enumerate(self.program.nodes):
            (o, *_) = (*n.operands, -1)
            if self.home[i] == ANYWHERE and not reads_weight(self.program, i):
                self.at |= {(i, device): i for device in self.devices}
            elif isinstance(n.attr, Transfer) and i not in self.named:
                self.at |= {(i, d): self.at[o, d] for d in self.devices if (o, d) in self.at}
            else:
                pairs += self._on_all(i, self.home[i] or self._loaded(i))
                if isinstance(n.attr, Transfer) and self.at[o, n.attr.device] != i:
                    pairs.append((self.at[o, n.attr.device], i))
        return pairs

    def _on_all(self, i: int, home: str) -> list[tuple[int, int]]:
        """Puts a value on all devices."""
        computed = {home: i}
        for device in self.devices:
            copy = self._computed(i, device) if device != home else None
            if copy is not None:
                computed[device] = copy
        for device in self.devices:
            node = computed.get(device)
            node = self._sent(i, home, device) if node is None else node
            if node is not None:
                self.at[i, device] = node
        ends = [(a, b) for a in computed for b in self.devices if a != b and (i, b) in self.at]
        sent = [(self._sent(computed[a], a, b), self.at[i, b]) for a, b in ends]
        return [(copy, value) for copy, value in sent if copy is not None and copy != value]

    def _computed(self, i: int, device: str) -> int | None:
        """A value that names no device, computed on this one; None if it cannot be."""
        n = self.program.nodes[i]
        stays = i in self.named or self.home[i] in self.kept or self.home[i] == ANYWHERE
        if stays or n.op in LEAVES or n.op in CONTROL or isinstance(n.attr, Transfer):
            return None
        operands = [self.at.get((o, device)) for o in n.operands]
        if None in operands:
            return None
        return self.b.add(n.op, tuple(o for o in operands if o is not None), n.attr)

    def _sent(self, node: int, origin: str, device: str) -> int | None:
        """The copy of a value over a link; None if there is none, or an op has several results."""
        types = self.b.nodes[node].types
        if (origin, device) not in self.links or len(types) != 1:
            return None
        return self.b.add("transfer", (node,), Transfer(types[0].shape, origin, device))

    def _loaded(self, i: int) -> str:
        """The device that reads a value made of weights alone first; others read copies."""
        for n, device in zip(self.program.nodes, self.home, strict=True):
            if i in n.operands and device != ANYWHERE:
                return n.attr.origin if isinstance(n.attr, Transfer) else device
        return self.default
