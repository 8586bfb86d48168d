"""What of a pool looks alike one block later, so that candidates may be copied along the shift.

The shift of the e-graph is a hint. What grows groups behind a value asks about that value and about
those it may be computed from inside of one dispatch: its *view*. If a view has the same properties
one block later, its groups are the same there, up to the numbers of nodes and classes. That is
certified here, value by value; what is not certified is enumerated by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eqsat.extract.candidates.groups import Candidate
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.views import Views
from eqsat.extract.chains import Chains
from eqsat.model.deadline import tick
from eqsat.model.shift import Shift, chained

_NOBODY = frozenset[int]()


class Images(NamedTuple):
    """What everything is so many blocks later (or earlier), by number; -1 where that is nothing.

    Buffers and values are numbered by their classes, as everywhere. The last entry is -1, so the
    image of -1 is -1.
    """

    node: tuple[int, ...]
    eclass: tuple[int, ...]
    buffer: tuple[int, ...]
    value: tuple[int, ...]

    def candidate(self, c: Candidate) -> Candidate:
        """The image of a candidate, all parts of which have one."""
        classes = self.eclass
        return Candidate(
            tuple([self.node[m] for m in c.members]),
            tuple([classes[r] for r in c.reads]),
            tuple([classes[w] for w in c.writes]),
            tuple([classes[e] for e in c.exposable]),
            c.time_ps,
            c.slack_ps,
        )


class BlockPlace(NamedTuple):
    """Where a node or value is among those that look alike: the first of them, and how far on."""

    first: int
    block: int


@dataclass(frozen=True)
class Shifted:
    """The shift as one pool sees it."""

    pool: Pool
    shift: Shift

    @property
    def space(self) -> Space:
        return self.pool.space

    # ---- images --------------------------------------------------------------------------------
    @cached_property
    def once(self) -> Images:
        """One block later; of buffers and values those of which every class has its image."""
        space, shift = self.space, self.shift
        sides = (_grouped(space.buffer, shift.eclass), _grouped(space.value, shift.eclass))
        return Images((*shift.node, -1), (*shift.eclass, -1), *((*s, -1) for s in sides))

    @cached_property
    def _images(self) -> dict[int, Images]:
        return {}

    def images(self, blocks: int) -> Images:
        """So many blocks later; earlier if negative."""
        if blocks not in self._images:
            tables = (c.at(np.arange(len(c.place)), blocks) for c in self.chains.values())
            self._images[blocks] = Images(*((*t.tolist(), -1) for t in tables))
        return self._images[blocks]

    @cached_property
    def chains(self) -> dict[str, Chains]:
        """The same as arrays, by the names of the fields."""
        return {name: Chains.of(table[:-1]) for name, table in self.once._asdict().items()}

    # ---- who looks alike -------------------------------------------------------------------------
    @cached_property
    def sinks(self) -> dict[int, BlockPlace]:
        """Per node that a group may end at: its place among those with the same groups."""
        made = {n for nodes in self.pool.producers.values() for n in nodes}
        image = self.once.node
        links = [
            j if j not in (-1, n) and n in made and self._is_sink_alike(n) else -1
            for n, j in enumerate(image[:-1])
        ]
        chains = chained(links)
        return {n: BlockPlace(*chains[n]) for n in made}

    def _is_sink_alike(self, node: int) -> bool:
        return all(self.space.value[c] in self.alike for c in self.space.outputs[node])

    @cached_property
    def alike(self) -> frozenset[int]:
        """Values behind which the groups one block later are the images of the groups here."""
        image = self.once.value
        values = sorted({self.space.value[b] for b in self.pool.producers})
        return frozenset(v for v in values if image[v] not in (-1, v) and self._is_alike(v))

    @cached_property
    def used_alike(self) -> frozenset[int]:
        """Values that others use one block later as they are used here, and the caller, too."""
        image, consumers, wanted = self.once.value, self.space.consumers, self.space.wanted
        return frozenset(
            v
            for v in self._buffers
            if image[v] >= 0
            and {u if u < 0 else image[u] for u in consumers.get(v, _NOBODY)}
            == consumers.get(image[v], _NOBODY)
            and wanted[v] == wanted[image[v]]
        )

    @cached_property
    def uses(self) -> np.ndarray:
        """Per value a number that values of one chain share which are used alike, -1 of none."""
        links = [j if v in self.used_alike else -1 for v, j in enumerate(self.once.value[:-1])]
        found = np.full(len(links) + 1, -1, np.int64)
        own = list(self._buffers)
        found[own] = [head for head, _ in map(chained(links).__getitem__, own)]
        return found

    def _is_alike(self, value: int) -> bool:
        """Whether everything in a value's view looks alike one block later.

        Where a value has other users there, it has users outside of all its readers' groups both
        here and there: nobody can have it to himself, whoever asks.
        """
        tick()
        view, image = self.views.of(value), self.once.value
        if not all(map(self._looks_same, view.asked)):
            return False
        inside = frozenset(image[u] for u in view.computed)
        consumers = self.space.consumers
        return all(
            u in self.used_alike
            or not (
                consumers.get(u, _NOBODY) <= view.computed
                or consumers.get(image[u], _NOBODY) <= inside
            )
            for u in view.asked
        )

    @cached_property
    def views(self) -> Views:
        return Views(self.pool)

    # ---- one value -------------------------------------------------------------------------------
    @cached_property
    def _buffers(self) -> dict[int, tuple[int, ...]]:
        """Per value: its buffers."""
        found: dict[int, dict[int, None]] = {}
        for b, v in zip(self.space.buffer, self.space.value, strict=True):
            found.setdefault(v, {})[b] = None
        return {v: tuple(bs) for v, bs in found.items()}

    @cached_property
    def _same(self) -> dict[int, bool]:
        return {}

    def _looks_same(self, value: int) -> bool:
        """Whether a value, its producers and how they make it are the same one block later."""
        if value not in self._same:
            image, space = self.once.value[value], self.space
            self._same[value] = (
                image >= 0
                and space.is_source(value) == space.is_source(image)
                and len(space.positions.get(value, ())) == len(space.positions.get(image, ()))
                and all(map(self._is_buffer_same, self._buffers[value]))
            )
        return self._same[value]

    def _is_buffer_same(self, buffer: int) -> bool:
        pool, image, node = self.pool, self.once.buffer[buffer], self.once.node
        if image < 0 or self._facts(buffer) != self._facts(image):
            return False
        if (buffer in pool.fills) and node[pool.fills[buffer]] != pool.fills[image]:
            return False
        return all(
            tuple([node[n] for n in by.get(buffer, ())]) == by.get(image, ())
            for by in (pool.producers, pool.relaxed)
        ) and all(map(self._is_producer_same, pool.producers.get(buffer, ())))

    def _facts(self, buffer: int) -> tuple[object, ...]:
        """The properties of a buffer besides its producers; types are those of its image."""
        pool, target = self.pool, self.pool.legality.target
        held = (pool.held, pool.fills, pool.resident, pool.optional)
        held += (self._from_weights, self.space.donated, self.space.dying, self.space.lines)
        device = pool.legality.devices.classes[buffer] if target.devices else ""
        return (*[buffer in h for h in held], device, self.space.sizes[buffer])

    @cached_property
    def _from_weights(self) -> frozenset[int]:
        """Buffers that prices take for weights; none where all memory is one level."""
        target = self.pool.legality.target
        levels = [t.memory for t in (target, *dict(target.devices).values())]
        return self.space.from_weights if any(len(m) > 1 for m in levels) else frozenset()

    def _is_producer_same(self, node: int) -> bool:
        """Whether a node is as free to be computed in several dispatches, and has the same results.

        The op and its attribute are those of its image.
        """
        space, image, classes = self.space, self.once.node[node], self.once.eclass
        clones = [self.pool.legality.of((n,)).is_cloneable(n) for n in (node, image)]
        return (
            clones[0] == clones[1]
            and tuple([classes[c] for c in space.outputs[node]]) == space.outputs[image]
            and tuple([self.once.node[n] for n in space.views_of(node)]) == space.views_of(image)
        )


def _grouped(name: Sequence[int], image: Sequence[int]) -> tuple[int, ...]:
    """Images of sets of classes, which are named by one of theirs; -1 unless all of a set moves.

    That is, each class to a class of one other set, and to all of that.
    """
    size = [0] * len(name)
    images: list[set[int]] = [set() for _ in name]
    for n, j in zip(name, image, strict=True):
        size[n] += 1
        images[n].add(name[j] if j >= 0 else -1)
    found = (min(i) if len(i) == 1 else -1 for i in images)
    return tuple(j if j >= 0 and size[j] == size[n] else -1 for n, j in enumerate(found))
