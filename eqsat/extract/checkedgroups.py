"""Whether each dispatch of a selection is legal and has the price it says, for the checker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.fusedaccess import Use
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.dispatch.rules import iterations
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target
from eqsat.ops.programs.placement import ANYWHERE


@dataclass(frozen=True)
class CheckedGroups:
    """The dispatches of one selection."""

    space: Space
    target: Target
    selection: Selection

    @cached_property
    def legality(self) -> Legality:
        return Legality(self.space, self.target)

    @cached_property
    def costs(self) -> Costs:
        return Costs(self.space, self.target)

    def buffers(self, classes: tuple[int, ...]) -> list[int]:
        return [self.space.buffer[c] for c in classes]

    def is_candidate(self, node: int) -> bool:
        n = self.space.egraph.nodes[node]
        return not n.subsumed or n.rule == -1

    def at(self, g: Group) -> Self:
        """The checker of the device that runs a group; this one if there is only one."""
        if not self.target.devices:
            return self
        device = self.legality.devices.of(g.members)
        if device not in self._parts:
            target = dict(self.target.devices)[device]
            self._parts[device] = type(self)(self.space, target, self.selection)
        return self._parts[device]

    @cached_property
    def _parts(self) -> dict[str, Self]:
        return {}

    def place_faults(self, g: Group) -> Iterator[str]:
        """A group is on one device with all it reads; only a transfer reads from another."""
        if not self.target.devices:
            return
        devices, kinds = self.legality.devices, self.space.kinds
        here = devices.of(g.members)
        nodes = self.space.egraph.nodes
        placed = {devices.classes[nodes[m].eclass] for m in self._ops(g)}
        away = placed - {here, ANYWHERE}
        crosses = any(kinds[m] == "transfer" for m in g.members)
        if away or (crosses and len(self._ops(g)) > 1):
            yield f"is on `{here}`, a member is elsewhere"
        there = set(self.space.inputs) | self.ahead_buffers
        for b in self.buffers(g.reads):
            held = devices.classes[b] if b in there else devices.classes[b] or devices.of(())
            if not crosses and held not in (here, ANYWHERE):
                yield f"reads c{b} on `{here}`, it is on `{held}`"
        if not all(devices.may_run(m) for m in self._ops(g)):
            yield f"has a layout that `{here}` does not have"

    def group_faults(self, g: Group) -> Iterator[str]:
        """Whether this is one legal dispatch and has the price it says."""
        if not all(self.is_candidate(m) for m in g.members):
            yield "a member was taken out of the search"
        broken = list(self._flow_faults(g))
        yield from broken
        if broken:  # there is no price of what reads nothing
            return
        yield from self._write_faults(g)
        yield from self._fusion_faults(g)
        for m in self._ops(g):
            limit = self.legality.limit_of(m)
            if limit:
                yield f"{limit.what} breaks the {limit.limit_name} limit"
            if not self.legality.is_admissible(m):
                yield f"{self.space.name(m)} is an unpacked contraction"
        if refusal := self.legality.refusal(g.members):
            yield f"{refusal.what} is {refusal.limit_name}"

    def _ops(self, g: Group) -> list[int]:
        return [m for m in g.members if self.space.kinds[m] not in ("leaf", "view")]

    def _makers(self, g: Group) -> dict[int, int]:
        """Per buffer computed inside: the member that computes it."""
        return {b: m for m in g.members for b in self._made(m)}

    def _made(self, node: int) -> list[int]:
        if self.space.kinds[node] == "view":
            return self.buffers((self.space.egraph.nodes[node].eclass,))
        return self.buffers(self.space.outputs[node])

    def _flow_faults(self, g: Group) -> Iterator[str]:
        """Each operand is read, filled, or computed by an earlier member; no read is idle."""
        reads, used, seen = self.buffers(g.reads), set(), set()
        if len(set(g.members)) < len(g.members) or len(set(reads)) < len(reads):
            yield "a member or a read stands there twice"
        nodes = self.space.egraph.nodes
        for m in g.members:
            if nodes[m].op in ("input", "weight", "reshape"):
                yield f"node {m} `{nodes[m].op}` is no member"
            if nodes[m].op == "result" and self._produces(g, m) is not None:
                seen.add(self.space.buffer[nodes[m].eclass])
                continue
            for o in self.space.operands[m]:
                if o not in seen and o not in reads:
                    yield f"operand c{o} of member {m} comes from nowhere"
                used.add(o)
            buffers = self._made(m)
            if seen & set(buffers) and not self.space.views_of(m):
                yield f"node {m} computes what another member has computed"
            seen |= set(buffers)
        if not set(reads) <= used or set(reads) & seen:
            yield "reads a class that no node inside reads, or that is computed inside"
        if not used >= seen - set(self.buffers(g.writes)):
            yield "a member is neither used nor written"

    def _produces(self, g: Group, result: int) -> int | None:
        """The member with several results that a `result` node belongs to."""
        return next((m for m in g.members if result in self.space.views_of(m)), None)

    def _sinks(self, g: Group) -> list[int]:
        """Written classes that no member reads."""
        used = {o for m in g.members for o in self.space.operands[m]}
        return [w for w in g.writes if self.space.buffer[w] not in used]

    def price_ps(self, g: Group) -> int:
        """Picoseconds the dispatch takes; whatever it writes is traffic."""
        if self.target.devices:
            return self.at(g).price_ps(g)
        return self.costs.group_ps(g.members, g.reads, g.writes, pipeline=g.pipeline)

    def _write_faults(self, g: Group) -> Iterator[str]:
        outputs = {c for m in g.members for c in self.space.outputs[m]}
        fusion = self.legality.fusion
        sinks = self._sinks(g)
        if not g.writes or len(set(self.buffers(g.writes))) < len(g.writes):
            yield "writes nothing, or a class twice"
        if not set(g.writes) <= outputs:
            yield "writes a class that no member computes"
            return
        if not sinks or g.writes[-1] != sinks[-1]:
            yield "the last write is not the group's result"
        units = sum(bool(self.space.views_of(m)) for m in g.members)
        if len(g.writes) > 1 and not (fusion.multi_result or fusion.siblings or units):
            yield "writes several classes, the target allows one"
        if len(g.writes) > len(sinks) and not fusion.multi_result:
            yield "writes a class from inside, the target does not allow it"
        staged = {b for m in self.legality.in_front(g.members) for b in self._made(m)}
        if not staged.isdisjoint(self.buffers(g.writes)):
            yield "writes what a contraction inside has staged in scratch"
        time_ps = self.price_ps(g)
        if time_ps != g.time_ps:
            yield f"takes {time_ps} ps, not {g.time_ps}"

    def _fusion_faults(self, g: Group) -> Iterator[str]:
        fusion, ops = self.legality.fusion, self._ops(g)
        if len(ops) > 1:
            if not self.legality.may_share(ops):
                yield f"has {len(ops)} members, the target allows {fusion.members}"
            if self.legality.count_inside(self._makers(g)) > fusion.roots:
                yield f"has more roots than {fusion.roots}"
            if len(g.reads) + len(g.writes) > fusion.operands:
                yield f"has more operands and results than {fusion.operands}"
        makers = self._makers(g)
        if len(ops) > 1 and fusion.row_block and not self.legality.row_blocks.is_legal(makers):
            yield "a contraction reads what another root computes, and does not keep it by rows"
        for m in self._users(g):
            for i, o in enumerate(self.space.operands[m]):
                yield from self._use_faults(makers, Use(m, i), o)
        yield from self._repeat_faults(g, makers)
        yield from self._scratch_faults(g)
        yield from self._connection_faults(g, makers)

    def _users(self, g: Group) -> list[int]:
        """Ops that compute, and those that nobody inside reads: what a dispatch computes it for."""
        read = {o for m in g.members for o in self.space.operands[m]}
        carries = self.legality.uses.carries
        return [m for m in self._ops(g) if not carries[m] or read.isdisjoint(self._made(m))]

    def _use_faults(self, makers: dict[int, int], use: Use, buffer: int) -> Iterator[str]:
        """Operands of a user; of those that only pass elements on, theirs."""
        maker, uses = self._behind_views(makers, buffer), self.legality.uses
        if maker is None:
            if self._read_buffer(makers, buffer) not in makers and not uses.may_read(use):
                yield f"node {use.node} reads c{buffer} by no identity of its loops"
            return
        if not uses.may_join(maker, use):
            yield f"node {maker} may not be computed inside node {use.node}"
        if uses.carries[maker]:
            for i, o in enumerate(self.space.operands[maker]):
                yield from self._use_faults(makers, use.below(maker, i), o)

    def _repeat_faults(self, g: Group, makers: dict[int, int]) -> Iterator[str]:
        """Whether a root is computed again for a reader that runs more often than it has elements.

        `most` says, per member that is a root or computed from one, how often it may be read.
        """
        most: dict[int, int] = {}
        rows = self.legality.row_blocks.kept_rows(makers)
        for m in g.members:
            if self.legality.is_root(m):
                most[m] = self._row_runs(m, in_blocks=rows is not None)
                if self.legality.row_blocks.keeps(m):
                    continue  # what it reads is kept in scratch
            for i, o in enumerate(self.space.operands[m]):
                if makers.get(o) not in most:
                    continue
                allowed = most[makers[o]]
                is_read = self.space.kinds[m] != "view" and self.legality.repeats(m, i)
                if is_read and iterations(self.space.egraph.nodes[m]) > allowed:
                    yield f"node {m} repeats a contraction or reduction"
                most[m] = min(allowed, most.get(m, allowed))

    def _row_runs(self, root: int, *, in_blocks: bool) -> int:
        """How often an op that reads a root along its rows may run."""
        if in_blocks and self.space.kinds[root] == "contraction":
            return self.space.type(self.space.outputs[root][0]).size
        in_rows = in_blocks or self.legality.fusion.row_reductions > 1
        is_reduction = self.space.kinds[root] == "reduction"
        return iterations(self.space.egraph.nodes[root]) if in_rows and is_reduction else 0

    def _scratch_faults(self, g: Group) -> Iterator[str]:
        """Whether the tiles of the roots, read as they are read here, fit the scratch limit."""
        roots = tuple(self.legality.roots_inside(g.members))
        if g.pipeline not in {w.name for w in self.legality.ways(roots)}:
            yield f"is computed by no pipeline that takes it, `{g.pipeline}`"
        over = self.legality.scratch(roots, g.pipeline)
        if over:
            yield f"{over.what} needs {over.bytes} bytes, the scratch limit is {over.limit}"

    def _behind_views(self, makers: dict[int, int], buffer: int) -> int | None:
        """The op that computes a buffer inside, seen through relaxed views; None for a fill."""
        while buffer in makers:
            maker = makers[buffer]
            if self.space.kinds[maker] == "leaf":
                return None
            if self.space.egraph.nodes[maker].op != "relax":
                return maker
            buffer = self.space.operands[maker][0]
        return None

    def _connection_faults(self, g: Group, makers: dict[int, int]) -> Iterator[str]:
        """Members hang together by def-use, or by a shared operand if siblings are allowed."""
        apart = self._cloned_from_memory(g, makers)
        part = {m: m for m in g.members if m not in apart}
        for m in tuple(part):
            linked = [makers[o] for o in self.space.operands[m] if makers.get(o) in part]
            linked += [r for r in self.space.views_of(m) if r in part]
            for other in linked:
                old, new = part[m], part[other]
                part = {k: new if v == old else v for k, v in part.items()}
        parts = sorted({part[m] for m in self._ops(g) if m in part})
        if len(parts) < 2:
            return
        readers: dict[int, list[tuple[int, int]]] = {}
        for m in (m for m in self._ops(g) if m in part):
            for i, o in enumerate(self.space.operands[m]):
                readers.setdefault(self._read_buffer(makers, o), []).append((m, i))
        shared = [
            (a, b) for rs in readers.values() for a in rs for b in rs if part[a[0]] < part[b[0]]
        ]
        if not self.legality.fusion.siblings or not shared:
            yield "members do not hang together"
        unfused = [self.legality.unfused(*sorted(pair)) for pair in shared]
        if unfused and all(u is not None and u[1] is not None for u in unfused):
            yield "an unfused member is larger than the vector limit"

    def _cloned_from_memory(self, g: Group, makers: dict[int, int]) -> frozenset[int]:
        """Ops that are read inside as if they were in memory: they hold nothing together."""
        legality, operands = self.legality, self.space.operands
        read, apart = {makers.get(o) for m in g.members for o in operands[m]}, set[int]()
        for m in self._ops(g):
            inside = {makers[o] for o in operands[m] if o in makers and self.space.is_op[makers[o]]}
            if m in read and legality.uses.join_kinds[m] in legality.fusion.cloned:
                apart |= {m} if inside <= apart else set()
        return frozenset(apart)

    def _read_buffer(self, makers: dict[int, int], buffer: int) -> int:
        while buffer in makers and self.space.egraph.nodes[makers[buffer]].op == "relax":
            buffer = self.space.operands[makers[buffer]][0]
        return buffer

    @cached_property
    def ahead_buffers(self) -> frozenset[int]:
        """Buffers there before the first step; constants that only help to make them are not.

        Nor is what a group makes again, though something else was made from it ahead of time.
        """
        ahead: set[int] = set()
        for i in self.selection.ahead:
            n = self.space.egraph.nodes[i]
            if n.op == "weight" or ahead & set(self.space.operands[i]):
                ahead.add(self.space.buffer[n.eclass])
        written = {b for g in self.selection.groups for b in self.buffers(g.writes)}
        return frozenset(ahead - written)
