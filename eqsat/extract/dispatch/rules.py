"""Which nodes a dispatch may hold together: an e-graph and a target in, its fusion rules out.

Where the target is several devices, those of the device that computes the nodes; only
transfers lead from one to another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.fusedaccess import Uses
from eqsat.extract.groups.rowblocks import RowBlockRules
from eqsat.model.affine import map_loops
from eqsat.model.devices import Transfer
from eqsat.model.egraph import ENode
from eqsat.model.generic import Generic
from eqsat.model.leaves import Custom
from eqsat.model.movement import Move
from eqsat.model.ops import TILINGS
from eqsat.model.target import Fusion, Target
from eqsat.model.tensor import cdiv
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
        nodes, devices = self.space.egraph.nodes, dict[int, str]()
        waiting = sorted(range(len(nodes)), key=lambda i: (bool(nodes[i].children), i))
        while waiting:
            left = []
            for i in waiting:
                n = nodes[i]
                if all(c in devices for c in n.children):
                    devices.setdefault(n.eclass, self._device(n, devices))
                else:
                    left.append(i)
            if len(left) == len(waiting):
                break
            waiting = left
        return tuple(devices.get(c, ANYWHERE) for c in range(len(self.space.egraph.types)))

    def _device(self, n: ENode, devices: dict[int, str]) -> str:
        inputs, operands = dict(self.target.placed), (devices[c] for c in n.children)
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
        extents: dict[str, frozenset[tuple[int, ...]]] = {}
        for device, target in self.target.devices:
            tiles = {t.extents for g in generics for t in tiles_of(target, g)}
            extents[device] = frozenset(tiles | {(n, m, k) for m, n, k in tiles})
        return extents


@dataclass(frozen=True)
class PerDevice:
    """The rules of one e-graph on a target, or on each of the devices that it is made of."""

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
        """The rules of one device; these if there is only one."""
        return self._parts[device] if self._parts else self

    def of(self, members: Iterable[int]) -> Self:
        """The rules of the device that runs these nodes."""
        return self._parts[self.devices.of(members)] if self._parts else self


@lru_cache(maxsize=200_000)
def iterations(node: ENode) -> int:
    """How often the body of a generic or of a plug-in's op runs, or a gather looks up; else 0."""
    match node.attr:
        case Generic():
            return math.prod(node.attr.sizes)
        case Custom():
            return math.prod(node.attr.shape)
        case Move(op="gather"):
            return math.prod(node.attr.shape)
    return 0


@dataclass(frozen=True)
class FusionRules(PerDevice):
    """The target's rules of fusion for the nodes of one e-graph."""

    @property
    def fusion(self) -> Fusion:
        return self.target.fusion

    @cached_property
    def uses(self) -> Uses:
        """The readers of a value, and their maps."""
        return Uses(self.space, self.fusion)

    @cached_property
    def roots(self) -> tuple[bool, ...]:
        """Per node: whether it is a contraction or a reduction."""
        return tuple(k in ("contraction", "reduction") for k in self.space.kinds)

    def is_root(self, node: int) -> bool:
        return self.roots[node]

    def is_contraction(self, node: int) -> bool:
        return self.space.kinds[node] == "contraction"

    def generic(self, node: int) -> Generic:
        """The attribute of a contraction or reduction."""
        attr = self.space.egraph.nodes[node].attr
        assert isinstance(attr, Generic), "roots are generics"
        return attr

    def stages(self, reader: int) -> bool:
        """Whether a reader has what it reads inside computed by blocks."""
        return self.fusion.staged > 0 and self.is_contraction(reader)

    def staged_runs(self, reader: int, operand: int) -> int:
        """How often elements of an operand are computed for blocks of a contraction's result.

        Each once for every `staged` columns, or rows, that only the other operand has.
        """
        key = (reader, operand)
        if key not in self._staged_runs:
            g = self.generic(reader)
            other = g.maps[1 - operand] if operand < len(g.maps) == 2 else g.maps[operand]
            mine = map_loops(g.maps[operand])
            blocks = math.prod(g.sizes[d] for d in map_loops(other) if d < g.rank and d not in mine)
            size = self.space.type(self.space.egraph.nodes[reader].children[operand]).size
            self._staged_runs[key] = size * cdiv(blocks, self.fusion.staged)
        return self._staged_runs[key]

    @cached_property
    def _staged_runs(self) -> dict[tuple[int, int], int]:
        return {}

    def in_front(self, members: Sequence[int]) -> frozenset[int]:
        """Members that a contraction inside has staged: they are in scratch and no results.

        members: in topological order.
        """
        if not self.fusion.staged or len(members) < 2:
            return frozenset()
        space, read, staged = self.space, set[int](), set[int]()
        for m in reversed(members):
            buffers = space.output_buffers[m]
            if not read.isdisjoint(buffers):
                staged.add(m)
            if m in staged or self.is_contraction(m):
                read.update(space.operands[m])
        return frozenset(staged)

    @cached_property
    def row_blocks(self) -> RowBlockRules:
        """The kinds of operands a contraction may read from roots inside."""
        return RowBlockRules(self)

    def count_roots(self, nodes: Iterable[int]) -> int:
        """Roots among these ops, at the least: those that may be one by row blocks are one."""
        is_root = self.roots
        roots = tuple([n for n in nodes if is_root[n]])
        if len(roots) < 2:
            return len(roots)
        if roots not in self._counted:
            is_one = self.row_blocks.may_be(roots)
            self._counted[roots] = 1 if is_one else self.count_apart(roots)
        return self._counted[roots]

    @cached_property
    def _counted(self) -> dict[tuple[int, ...], int]:
        return {}

    def count_apart(self, roots: Collection[int]) -> int:
        """How many roots these are at the least; some reductions count once.

        `row_reductions` over the same rows, as those of a softmax or a layer norm: equal result
        extents, equally many iterations. And `output_reductions` of what a contraction computes.
        """
        fusion = self.fusion
        if len(roots) < 2 or (fusion.row_reductions < 2 and not fusion.output_reductions):
            return len(roots)
        reductions = sum(not self.is_contraction(r) for r in roots)
        behind = reductions if reductions < len(roots) else 0
        return self._count(roots) - min(behind, fusion.output_reductions)

    def _count(self, roots: Collection[int]) -> int:
        """How many roots these are, wherever they stand."""
        most = self.fusion.row_reductions
        return sum(cdiv(count, most) for count in Counter(map(self.rows, roots)).values())

    def count_inside(self, makers: Mapping[int, int]) -> int:
        """How many roots a dispatch has; makers: per buffer computed inside, by which node."""
        roots = tuple(n for n in dict.fromkeys(makers.values()) if self.roots[n])
        least = self.count_roots(roots)
        if not self.fusion.output_reductions or least == len(roots):
            return least
        behind = sum(self._is_behind(makers, r) for r in roots)
        return self._count(roots) - min(behind, self.fusion.output_reductions)

    def _is_behind(self, makers: Mapping[int, int], root: int) -> bool:
        """Whether a reduction reads what a contraction computes in the same dispatch."""
        if self.is_contraction(root):
            return False
        seen, work = {root}, [root]
        while work:
            for b in self.space.operands[work.pop()]:
                maker = makers.get(b)
                if maker is not None and self.is_contraction(maker):
                    return True
                if maker is not None and maker not in seen:
                    seen.add(maker)
                    work.append(maker)
        return False

    def rows(self, root: int) -> tuple[object, ...]:
        """A key that reductions over the same rows share, and nothing else does."""
        if root not in self._rows:
            self._rows[root] = self._rows_of(root)
        return self._rows[root]

    @cached_property
    def _rows(self) -> dict[int, tuple[object, ...]]:
        return {}

    def _rows_of(self, root: int) -> tuple[object, ...]:
        space = self.space
        if space.kinds[root] != "reduction":
            return ("alone", root)
        shape = space.type(space.outputs[root][0]).shape
        return tuple(s for s in shape if s > 1), iterations(space.egraph.nodes[root])

    def recomputes_root(self, root: int, runs: int) -> bool:
        """Whether a reader below a broadcast, which runs so often, would compute a root again.

        Not a reduction that is read along its rows: one row is reduced, and used all along.
        """
        in_rows = self.fusion.row_reductions > 1 and self.space.kinds[root] == "reduction"
        return not in_rows or runs > iterations(self.space.egraph.nodes[root])

    def is_template_kind(self, node: int) -> bool:
        """Whether a template may hold an op: its root, or a part of prologue or epilogue."""
        return self.is_root(node) or self.space.kinds[node] in self.fusion.around

    @property
    def has_templates(self) -> bool:
        """Where nothing fuses (`members: 1`), templates do not either."""
        fusion = self.fusion
        return fusion.members > 1 and fusion.roots > 0 and fusion.template > fusion.members

    def may_share(self, ops: Collection[int]) -> bool:
        """Whether one dispatch may hold so many ops: the checker's side of `groups/grow.py`.

        At most `members`; or a template: one contraction or reduction with its elementwise and
        conversion prologue and epilogue, at most `template` ops.
        """
        if len(ops) <= self.fusion.members:
            return True
        return (
            self.has_templates
            and len(ops) <= self.fusion.template
            and self.count_roots(ops) == 1
            and all(map(self.is_template_kind, ops))
        )

    @property
    def writes_permuted(self) -> bool:
        """Whether an op may write its results in another order than it executes its loops in."""
        return self.fusion.result_relation != "identity"

    def repeats(self, consumer: int, operand: int) -> bool:
        """Whether a consumer runs more often than its operand has elements (a broadcast)."""
        key = (consumer, operand)
        if key not in self._repeats:
            node = self.space.egraph.nodes[consumer]
            size = self.space.type(node.children[operand]).size
            self._repeats[key] = iterations(node) > size
        return self._repeats[key]

    @cached_property
    def _repeats(self) -> dict[tuple[int, int], bool]:
        return {}
