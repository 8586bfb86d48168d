"""When values may be computed and converted, in the order of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.extract.candidates.space import Moment, Space
from eqsat.extract.groups.grow import Candidate
from eqsat.model.selection import Group

BEGIN: Moment = (-1, 0, 0, -(1 << 30))  # before every moment of a program
NEVER: Moment = (1 << 60, 0, 0, 0)  # behind every one
ROOM = 1 << 20  # depths between two values of one dispatch: others may come between them
Key = tuple[tuple[int, ...], frozenset[int]]  # members, buffers written


@dataclass(frozen=True)
class Timetable:
    """Moments per value, earliest first: `computed` anew, or `converted` to another layout.

    `named` are dispatches that an order names: they may run there, whatever they write.
    """

    space: Space
    held: frozenset[int]  # buffers that are there before the first dispatch
    computed: Mapping[int, tuple[Moment, ...]]
    converted: Mapping[int, tuple[Moment, ...]]
    named: Mapping[Key, Moment] = field(default_factory=dict)

    def moments(
        self,
        candidate: Candidate,
        reads: frozenset[int],
        writes: tuple[int, ...],
        convert: bool,
    ) -> tuple[Moment, ...]:
        """When a group runs: conversions whenever their value is converted.

        Others at the first moment of a value they write that comes after all they read; `reads`
        are those of their reads that are made at run time.
        """
        found = self._moments(reads, writes, convert)
        named = self.named.get((candidate.members, frozenset(writes))) if self.named else None
        return found if named is None or named in found else tuple(sorted((*found, named)))

    def _moments(
        self, reads: frozenset[int], writes: tuple[int, ...], convert: bool
    ) -> tuple[Moment, ...]:
        value = self.space.value
        if convert:
            return self.converted.get(value[writes[0]], ())
        earliest = self._earliest
        after = max([earliest[r] for r in reads], default=BEGIN)
        options = [m for b in writes for m in self.computed.get(value[b], ()) if m > after]
        return (min(options),) if options else ()

    @cached_property
    def _earliest(self) -> dict[int, Moment]:
        """Per buffer: the first moment something may have written it."""
        return {b: self._first(b) for b in dict.fromkeys(self.space.buffer)}

    def _first(self, buffer: int) -> Moment:
        if buffer in self.held:
            return BEGIN
        value = self.space.value[buffer]
        ways = (*self.computed.get(value, ())[:1], *self.converted.get(value, ())[:1])
        return min(ways, default=NEVER)


def _timetable(
    space: Space, held: frozenset[int], positions: Mapping[int, tuple[Moment, ...]]
) -> Timetable:
    computed, converted = {}, {}
    for value, at in positions.items():
        count, is_source = space.levels(value), space.is_source(value)
        levels = range(-count, 0) if is_source else range(1, count + 1)
        computed[value] = tuple((p, d, t, -1 if is_source else 0) for p, d, t, _ in at)
        converted[value] = tuple((p, d, t, s) for p, d, t, _ in at for s in levels)
    return Timetable(space, held, computed, converted)


def answer_timetable(space: Space, held: frozenset[int], groups: Sequence[Group]) -> Timetable:
    """The places of an answer's dispatches, in the order they are listed.

    What the answer does not compute comes just before the first value that can be computed from
    it, and after all that itself needs (by its shortest derivation).
    """
    known: dict[int, list[Moment]] = {}
    extra: dict[int, list[Moment]] = {}
    named: dict[Key, Moment] = {}
    for k, g in enumerate(groups):
        anew = _values(space, g.members)
        for n, value in enumerate(anew):
            known.setdefault(value, []).append((k, ROOM * (n + 1), 0, 0))
        written = frozenset(space.buffer[w] for w in g.writes)
        moment = (k, ROOM * max(len(anew), 1), 0, 0)
        if not anew:
            for value in sorted({space.value[b] for b in written}):
                first = -space.levels(value) if space.is_source(value) else 1
                moment = (k, 0, 0, first)
                extra.setdefault(value, []).append(moment)
        named[g.members, written] = moment
    positions = _positions(space, {v: tuple(m) for v, m in known.items()})
    places = _timetable(space, held, positions)
    converted = dict(places.converted)
    for value, moments in extra.items():
        converted[value] = tuple(sorted({*converted.get(value, ()), *moments}))
    return Timetable(space, held, places.computed, converted, named)


def _values(space: Space, members: Sequence[int]) -> list[int]:
    """Values a dispatch computes anew, operands first."""
    return list(dict.fromkeys(v for m in members for v in sorted(space.computes((m,)))))


def _positions(space: Space, known: dict[int, tuple[Moment, ...]]) -> dict[int, tuple[Moment, ...]]:
    """Timetable of all values, given those an answer computes."""
    at = {v: m for v, m in known.items() if not space.is_source(v)}
    first = {v: m[0][:2] for v, m in at.items()}
    soon = space.soonest(first)
    late: dict[int, tuple[int, int]] = dict(first)
    for v in sorted(soon.keys() - first.keys(), key=lambda v: (soon[v], v), reverse=True):
        users = [late[w] for w in space.consumers.get(v, ()) if soon.get(w, (-2, 0)) > soon[v]]
        position, depth = min(users, default=soon[v])
        late[v] = max((position, depth - 1), soon[v]) if users else soon[v]
    at |= {v: ((*late[v], v, 0),) for v in sorted(soon.keys() - first.keys())}
    return at | space.source_positions(at)
