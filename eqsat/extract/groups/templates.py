"""Templates: a contraction or reduction with its whole elementwise prologue and epilogue.

Groups of at most `members` ops are enumerated in every way. What is longer is one candidate per
large group: the group with everything that joins it and serves no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.extract.candidates.space import order
from eqsat.extract.groups.feasibility import EMPTY, PartialGroup
from eqsat.extract.groups.grow import Grower
from eqsat.model.deadline import tick

Reached = set[frozenset[int]]  # nodes of groups
# the root of a group, what it reads, and which results of the program it may write
Key = tuple[int, frozenset[int], frozenset[int]]


@dataclass
class _Progress:
    """The progress behind one op: what was looked at.

    Groups that read the same and compute the same differ in their layouts inside. From one that may
    compute no more of its operands than another, the way leads to the same ones.
    """

    reached: tuple[Reached, Reached] = field(default_factory=lambda: (set(), set()))
    # per buffers read, values computed and results made: what it reads that it was not legal to
    # compute inside
    done: dict[tuple[frozenset[int], ...], tuple[int, ...]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)  # the same of the last group
    # per nodes by the buffers they make: the group that they are, if it is one
    parts: dict[frozenset[tuple[int, int]], PartialGroup | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Templates:
    """Widens the groups of one grower."""

    grower: Grower

    def of(self, states: list[PartialGroup], sink: int) -> list[PartialGroup]:
        """Templates: the groups that are as large as `members` allows, widened.

        And once more with what may be cloned: whether to compute that twice is a choice. Of those
        with one root and the same operands: the one of fewest ops.
        """
        legality = self.grower.legality
        widest: dict[Key, PartialGroup] = {}
        if not legality.has_templates:
            return []
        computes, seen = self.grower.space.computes, _Progress()
        cloned: set[tuple[frozenset[int], ...]] = set()
        for state in states:
            tick()
            if state.members < legality.fusion.members or not self._takes(state):
                continue
            what = frozenset(state.reads), computes(state.inside.values()), self._results(state)
            refused = seen.done.get(what)
            if refused is not None and not self._may_hold_any(state, sink, refused, what[1]):
                continue
            wide = self._widened(state, sink, seen, cloning=False)
            seen.done.setdefault(what, tuple(b for b in state.reads if b in seen.refused))
            if wide.roots != 1:
                continue  # a root behind something cloned would have to be computed again as well
            if wide is not state:
                self._keep(widest, wide)
                for core in self._cores(wide, sink, seen):
                    self._keep(widest, core)
            sides = frozenset(wide.reads), self._results(wide)
            if sides not in cloned:  # of groups that read and write the same, the first
                cloned.add(sides)
                wider = self._widened(wide, sink, seen, cloning=True)
                if wider is not wide:
                    self._keep(widest, wider)
        return list(widest.values())

    def _keep(self, widest: dict[Key, PartialGroup], state: PartialGroup) -> None:
        is_root = self.grower.legality.is_root
        root = next(n for n in state.inside.values() if is_root(n))
        key = root, frozenset(state.reads), self._results(state)
        if key not in widest or state.members < widest[key].members:
            widest[key] = state

    def _results(self, state: PartialGroup) -> frozenset[int]:
        """Buffers made inside that are results of the program: no other layout stands for them."""
        return self._roots.intersection(state.inside)

    @cached_property
    def _roots(self) -> frozenset[int]:
        return frozenset(self.grower.space.roots)

    def _cores(self, state: PartialGroup, sink: int, seen: _Progress) -> list[PartialGroup]:
        """A group of several roots without what it computes in front of all of them.

        That may be another dispatch's epilogue, and several roots may need it again: a norm that
        also adds reads each row twice. Once with conversions in front, once without.
        """
        space, is_root = self.grower.space, self.grower.legality.is_root
        if sum(map(is_root, state.inside.values())) < 2:
            return []
        behind: set[int] = set()  # roots, and what is computed from them
        nodes = order(space, {*state.inside.values(), *state.views})
        for n in nodes:
            reads = {state.inside[b] for b in space.operands[n] if b in state.inside}
            if is_root(n) or (not behind.isdisjoint(reads)):
                behind.add(n)
        turned = behind | {n for n in nodes if space.kinds[n] == "conversion"}
        kinds, cores = space.kinds, list[PartialGroup]()
        for only in (behind, turned):
            part = {b: n for b, n in state.inside.items() if n in only or kinds[n] == "view"}
            key = frozenset(part.items())
            if key not in seen.parts:
                seen.parts[key] = self._grown(part, sink)
            core = seen.parts[key]
            cores += [core] if core is not None and core.members < state.members else []
        return cores

    def _grown(self, part: Mapping[int, int], sink: int) -> PartialGroup | None:
        """The group that these nodes make of these buffers; None if that is no dispatch."""
        grower = self.grower
        state = grower.add(EMPTY, None, sink)
        while state is not None and state.at < len(state.queue):
            b = state.queue[state.at]
            node = part.get(b)
            if node is not None:
                state = grower.add(state, b, node)
            elif b in self.grower.pool.producers and grower.may_read(state, b):
                state = grower.read(state, b)
            else:
                return None
        return state if state is not None and grower.fits(state, sink) else None

    def _takes(self, state: PartialGroup) -> bool:
        may_hold = self.grower.in_templates
        return all([may_hold[n] for n in state.inside.values()])

    def _widened(
        self, state: PartialGroup, sink: int, seen: _Progress, *, cloning: bool
    ) -> PartialGroup:
        """With every operand computed inside that may be; as it is if that adds conversions only.

        A pack more or less in front of a large group is not worth its candidates. It stays as it
        is too if it comes by a group that was `reached` before: the way from there is the same.
        """
        seen.refused = set()
        if not self._may_widen(state, cloning):
            return state
        space, kinds, reached = self.grower.space, self.grower.space.kinds, seen.reached[cloning]
        start, grown, computed = state, True, space.computes(state.inside.values())
        while grown:
            grown = False
            for b in [b for b in state.reads if b in self._joining]:
                ways = self._ways(state, b, computed, cloning=cloning)
                wider = self._absorbed(state, sink, b, ways) if ways else None
                if wider is None:
                    if ways:
                        seen.refused.add(b)
                    continue
                state, grown = wider, True
                computed = space.computes(state.inside.values())
                nodes = frozenset((*state.inside.values(), *state.views))
                if nodes in reached:
                    return start
                reached.add(nodes)
        old = start.inside.values()
        added = [n for n in state.inside.values() if n not in old]
        if self.grower.pool.has_free_conversions:  # idle layouts may need them (`idle`)
            return state if added else start
        return state if any(kinds[n] not in ("conversion", "view") for n in added) else start

    def _may_hold_any(
        self, state: PartialGroup, sink: int, buffers: tuple[int, ...], computed: frozenset[int]
    ) -> bool:
        """Whether one of these reads may be computed inside."""
        ways = ((b, self._ways(state, b, computed, cloning=False)) for b in buffers)
        return any(w and self._absorbed(state, sink, b, w) is not None for b, w in ways)

    def _may_widen(self, state: PartialGroup, cloning: bool) -> bool:
        """Whether it reads a value that is its own (or cheap) and that it could compute itself.

        Or a layout of one, where conversions inside are free.
        """
        if self.grower.pool.has_free_conversions and not self._turned.isdisjoint(state.reads):
            return True
        space, deep = self.grower.space, self._deep[state.roots > 0]
        values = [v for v in {space.value[b] for b in state.reads} if v in deep]
        if cloning or not values:
            return any(deep[v] for v in values)
        computed, nobody = space.computes(state.inside.values()), frozenset[int]()
        return any(space.consumers.get(v, nobody) <= computed for v in values)

    @cached_property
    def _deep(self) -> tuple[dict[int, bool], dict[int, bool]]:
        """Values an op of a template computes anew, and whether one may do so twice.

        For groups without a root yet, and for those that have one.
        """
        space, legality = self.grower.space, self.grower.legality
        deep: tuple[dict[int, bool], dict[int, bool]] = ({}, {})
        for b, producers in self._joining.items():
            v = space.value[b]
            for p in producers:
                if space.kinds[p] == "conversion":
                    continue
                for n in (0, 1) if self._follows_a_root[p] else (0,):
                    deep[n][v] = deep[n].get(v, False) or legality.is_cloneable(p)
        return deep

    @cached_property
    def _turned(self) -> frozenset[int]:
        """Buffers that only conversions make, for all that a template knows."""
        kinds = self.grower.space.kinds
        return frozenset(
            b for b, ps in self._joining.items() if all(kinds[p] == "conversion" for p in ps)
        )

    def _adds_no_root(self, state: PartialGroup, node: int) -> bool:
        """Whether a group has as many roots with an op as without it."""
        legality = self.grower.legality
        if not legality.roots[node]:
            return True
        if not self._follows_a_root[node]:
            return False
        if legality.count_roots((node, *state.inside.values())) != state.roots:
            return False
        return not self._is_apart(state, node)

    def _is_apart(self, state: PartialGroup, node: int) -> bool:
        """Whether an op is a root of its own for sure, as no contraction would read a root's rows.

        That is a first contraction which reads nothing inside. `fits` finds it, too, but late.
        """
        space, legality = self.grower.space, self.grower.legality
        inside, relaxed = state.inside, self.grower.pool.relaxed
        if not legality.is_contraction(node):
            return False
        if any(b in inside or b in relaxed for b in space.operands[node]):
            return False
        roots = [n for n in inside.values() if legality.is_root(n)]
        if any(legality.is_contraction(n) for n in roots):
            return False
        return legality.count_apart((node, *roots)) > legality.fusion.roots

    @cached_property
    def _follows_a_root(self) -> tuple[bool, ...]:
        """Per node: whether a group with a root may compute it too: another root of the rows."""
        legality, kinds = self.grower.legality, self.grower.space.kinds
        in_rows = legality.fusion.row_reductions > 1
        behind = legality.fusion.output_reductions > 0
        return tuple(
            not is_root
            or legality.row_blocks.is_on
            or (in_rows and kind == "reduction")
            or (behind and kind == "contraction")
            for is_root, kind in zip(legality.roots, kinds, strict=True)
        )

    @cached_property
    def _joining(self) -> dict[int, tuple[int, ...]]:
        """Per buffer: producers a template may absorb.

        Those that compute it; if there are none, conversions of what is computed or held: chains
        of conversions lead nowhere.
        """
        kinds, legality = self.grower.space.kinds, self.grower.legality
        there = self.grower.held | self.grower.pool.resident
        open_ = {b: p for b, p in self.grower.pool.producers.items() if b not in there}
        computing = {
            b: [p for p in ps if kinds[p] != "conversion" and legality.is_template_kind(p)]
            for b, ps in open_.items()
        }
        joining = {b: tuple(ps) for b, ps in computing.items() if ps}
        there |= joining.keys()
        for b in open_.keys() - joining.keys():
            turned = [p for p in open_[b] if there.issuperset(self.grower.space.operands[p])]
            joining[b] = tuple(p for p in turned if kinds[p] == "conversion")
        return {b: ps for b, ps in joining.items() if ps}

    def _absorbed(
        self, state: PartialGroup, sink: int, buffer: int, ways: tuple[int, ...]
    ) -> PartialGroup | None:
        """The state that computes one of its reads inside, in the first way that is legal."""
        grower = self.grower
        joined, above = grower.joined(state, buffer), grower.above(state, buffer)
        for p in ways:
            if p not in joined or grower.recomputes(state, p, above):
                continue
            reads = {b: c for b, c in state.reads.items() if b != buffer}
            base = state.reading(reads, -1)
            wider = self._closed(grower.put(base, buffer, p, above))
            if wider is None:
                continue
            if self._ends_at(state, wider, p):
                is_legal = grower.still_fits(wider, sink)
            else:
                is_legal = grower.fits(wider, sink)
            if is_legal:
                return wider
        return None

    def _ends_at(self, state: PartialGroup, wider: PartialGroup, node: int) -> bool:
        """Whether all that is new in a group is one op which reads nothing inside: no root reads
        another one by it, and nothing runs more often."""
        if self.grower.legality.roots[node] or wider.met != state.met:
            return False
        if len(wider.inside) != len(state.inside) + 1:
            return False
        return state.inside.keys().isdisjoint(self.grower.space.operands[node])

    def _ways(
        self, state: PartialGroup, buffer: int, computed: frozenset[int], *, cloning: bool
    ) -> tuple[int, ...]:
        """Producers that may be computed inside, by who else reads them and by roots."""
        legality, space = self.grower.legality, self.grower.space
        if state.members >= legality.fusion.template:
            return ()
        ways = self._joining[buffer]
        users = space.consumers.get(space.value[buffer], _NOBODY)
        if not users <= computed:
            ways = tuple([p for p in ways if legality.is_cloneable(p)]) if cloning else ()
        if state.roots:
            ways = tuple([p for p in ways if self._adds_no_root(state, p)])
        return ways

    def _closed(self, state: PartialGroup | None) -> PartialGroup | None:
        """With all open operands read, through a relaxed view where nothing computes them."""
        while state is not None and state.at < len(state.queue):
            b = state.queue[state.at]
            if b in self.grower.pool.producers and self.grower.may_read(state, b):
                state = self.grower.read(state, b)
            else:
                views = self.grower.pool.relaxed.get(b, ())
                state = self.grower.add(state, b, views[0]) if views else None
        return state


_NOBODY = frozenset[int]()
