"""Which device computes what, in an e-graph that is searched for several at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from eqsat.extract.candidates.space import Space
from eqsat.model.devices import Transfer
from eqsat.model.egraph import ENode
from eqsat.model.generic import Generic
from eqsat.model.ops import TILINGS
from eqsat.model.target import Target
from eqsat.ops.programs.placement import ANYWHERE, device_of
from eqsat.ops.targets.tiles import tiles_of


@dataclass(frozen=True)
class Devices:
    """Devices of the classes and nodes of one e-graph; only transfers lead from one to another."""

    space: Space
    target: Target

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Per class: the device that holds it; ANYWHERE for weights and constants."""
        nodes, found = self.space.egraph.nodes, dict[int, str]()
        waiting = sorted(range(len(nodes)), key=lambda i: (bool(nodes[i].children), i))
        while waiting:
            left = []
            for i in waiting:
                n = nodes[i]
                if all(c in found for c in n.children):
                    found.setdefault(n.eclass, self._device(n, found))
                else:
                    left.append(i)
            if len(left) == len(waiting):
                break
            waiting = left
        return tuple(found.get(c, ANYWHERE) for c in range(len(self.space.egraph.types)))

    def _device(self, n: ENode, known: dict[int, str]) -> str:
        inputs, operands = dict(self.target.inputs), (known[c] for c in n.children)
        return device_of(n.op, n.attr, operands, inputs, self.target.default_device)

    def of(self, members: Iterable[int]) -> str:
        """The device that runs a dispatch; one of constants alone runs on the default device.

        A view is where its bytes are: what a transfer reads may be seen through one.
        """
        nodes, classes, is_op = self.space.egraph.nodes, self.classes, self.space.is_op
        placed = (classes[nodes[m].eclass] for m in members if is_op[m])
        return next((d for d in placed if d != ANYWHERE), self.target.default_device)

    def may_read(self, device: str, buffer: int) -> bool:
        """Whether a dispatch there may read what another one computed.

        Constants that are computed at run time are on the default device, or inside of readers.
        """
        held = self.classes[buffer] or self.target.default_device
        return held == device

    def may_run(self, node: int) -> bool:
        """Whether a node that a rule made fits its device: its tiles, or data tiling at all.

        And whether all that it reads is on that one.
        """
        n = self.space.egraph.nodes[node]
        device = self.of((node,))
        if n.rule == -1 or isinstance(n.attr, Transfer):
            return True
        if len({self.classes[c] for c in n.children} - {ANYWHERE}) > 1:
            return False
        if n.op in TILINGS and not dict(self.target.devices)[device].data_tiling:
            return False
        tile = n.attr.tile if isinstance(n.attr, Generic) else ()
        return not tile or tile in self._tiles[device]

    @cached_property
    def _tiles(self) -> dict[str, frozenset[tuple[int, ...]]]:
        """Per device: (m, n, k) of its tiles, also with m and n exchanged."""
        generics = {n.attr for n in self.space.egraph.nodes if isinstance(n.attr, Generic)}
        found = {}
        for device, target in self.target.devices:
            tiles = {t.extents for g in generics for t in tiles_of(target, g)}
            found[device] = frozenset(tiles | {(n, m, k) for m, n, k in tiles})
        return found


@dataclass(frozen=True)
class PerDevice:
    """What is known of one e-graph on a target, or on each of the devices that it is made of."""

    space: Space
    target: Target

    @cached_property
    def devices(self) -> Devices:
        """The device that computes a node, if the target is made of several devices."""
        return Devices(self.space, self.target)

    @cached_property
    def _parts(self) -> dict[str, Self]:
        return {device: type(self)(self.space, target) for device, target in self.target.devices}

    def part(self, device: str) -> Self:
        """The same of one device; this if there is only one."""
        return self._parts[device] if self._parts else self

    def of(self, members: Iterable[int]) -> Self:
        """The same of the device that runs these nodes."""
        return self._parts[self.devices.of(members)] if self._parts else self
