"""What groups behind a value may ask about: a few ops deep, and what templates may absorb."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import MOVING
from eqsat.model.target import Fusion

_NOBODY = frozenset[int]()


@dataclass(frozen=True)
class Reach:
    """Values that groups behind one value may ask about, and those of them they may compute."""

    asked: frozenset[int]
    computed: frozenset[int]


@dataclass
class _Derivation:
    """How a value is computed at run time, by some of the ops that may do so."""

    ops: list[int] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)  # values
    roots: bool = False  # every op is one
    contractions: bool = False  # every op is one
    clones: bool = False  # some op may be computed in several dispatches


_NONE = _Derivation()  # of leaves


@dataclass(frozen=True)
class Views:
    """The views of one pool, rather too large than too small.

    So many ops deep as a dispatch may have members; and behind these what templates may absorb:
    what nobody else needs, or what may be computed twice. No way to a value has more contractions
    and reductions than one dispatch may have.
    """

    pool: Pool

    @cached_property
    def _fusions(self) -> tuple[Fusion, ...]:
        """Those of all devices: a view is large enough for any of them."""
        target = self.pool.legality.target
        return tuple(t.fusion for _, t in target.devices) or (target.fusion,)

    @cached_property
    def _members(self) -> int:
        return max(1, *(f.members for f in self._fusions))

    @cached_property
    def _roots(self) -> int:
        """Contractions and reductions of one dispatch at the most."""
        return max(
            max(
                max(1, f.roots) * max(1, f.row_reductions) + f.output_reductions,
                bool(f.row_block) * (2 + f.row_reductions),
            )
            for f in self._fusions
        )

    @cached_property
    def _contractions(self) -> int:
        return max(max(1, f.roots, bool(f.row_block) * 2) for f in self._fusions)

    @cached_property
    def _ops(self) -> dict[int, list[int]]:
        """Per value: the ops that compute it anew at run time."""
        kinds, found = self.pool.space.kinds, dict[int, list[int]]()
        for b, nodes in self.pool.producers.items():
            computing = [n for n in nodes if kinds[n] not in MOVING]
            found.setdefault(self.pool.space.value[b], []).extend(computing)
        return found

    def _way(self, value: int, ops: list[int]) -> _Derivation:
        space, legality = self.pool.space, self.pool.legality
        children = {space.value[c] for n in ops for c in space.egraph.nodes[n].children}
        return _Derivation(
            ops,
            children - {value},
            all(map(legality.is_root, ops)),
            all(map(legality.is_contraction, ops)),
            any(legality.of((n,)).is_cloneable(n) for n in ops),
        )

    @cached_property
    def _near(self) -> dict[int, _Derivation]:
        return {v: self._way(v, ops) for v, ops in self._ops.items() if ops}

    @cached_property
    def _far(self) -> dict[int, _Derivation]:
        """By ops that templates absorb."""
        if not any(f.members > 1 and f.template > f.members for f in self._fusions):
            return {}
        joins = self.pool.legality.is_template_kind
        found = ((v, [n for n in ops if joins(n)]) for v, ops in self._ops.items())
        return {v: self._way(v, ops) for v, ops in found if ops}

    def way(self, value: int, depth: int) -> _Derivation:
        """How a value so deep in a dispatch may be computed."""
        by = self._near if depth <= self._members else self._far
        return by.get(value, _NONE)

    def is_near(self, depth: int) -> bool:
        return depth <= self._members

    def of(self, value: int) -> Reach:
        """What decides how groups behind a value are grown."""
        seen = _ViewSearch(self, value)
        return Reach(frozenset(seen.depth), frozenset(seen.needs))

    def fits(self, roots: int) -> bool:
        """Whether one dispatch may compute all of these values, as bits, each by a root."""
        if not roots & (roots - 1):
            return True
        contractions = (roots & self.contractions).bit_count()
        return roots.bit_count() <= self._roots and contractions <= self._contractions

    @cached_property
    def contractions(self) -> int:
        """Values that only contractions compute, as bits."""
        return sum(1 << v for v, way in (self._far | self._near).items() if way.contractions)


class _ViewSearch:
    """One view in the making: looked at again until nothing new is reached."""

    def __init__(self, views: Views, value: int):
        self.views, self.first = views, value
        self.depth = {value: 1}  # of what is asked about
        self.readers: dict[int, set[int]] = {}
        self.needs: dict[int, int] = {}  # value that may be computed -> roots that come with it
        self.near: dict[int, int] = {}  # value that may be computed -> how deep
        waiting = [value]
        while waiting:
            v = waiting.pop()
            if not self._is_news(v):
                continue
            for read in views.way(v, self.depth[v]).reads:
                self.depth[read] = min(self.depth[v] + 1, self.depth.get(read, 1 << 30))
                self.readers.setdefault(read, set()).add(v)
                waiting.append(read)

    def _is_news(self, value: int) -> bool:
        """Whether a value may be computed, and nearer or with fewer roots than was known."""
        needs, depth = self._needed(value), self.depth[value]
        if needs is None or not self.views.fits(needs):
            return False
        known = self.needs.get(value), self.near.get(value)
        self.needs[value], self.near[value] = needs, depth
        return known != (needs, depth)

    def _needed(self, value: int) -> int | None:
        """Roots that every dispatch has which computes a value, as bits; None if none may.

        It may if it is near, or may be computed in several dispatches, inside of any reader; and
        if nobody outside needs it, inside of all of them.
        """
        views, depth = self.views, self.depth[value]
        way = views.way(value, depth)
        own = way.roots << value
        if value == self.first:
            return own
        if not way.ops:
            return None
        if views.is_near(depth) or way.clones:
            needed = -1
            for r in self.readers[value]:
                needed &= self.needs[r]
            return needed | own
        users = views.pool.space.consumers.get(value, _NOBODY)
        if not users <= self.needs.keys():
            return None
        for u in users:
            own |= self.needs[u]
        return own
