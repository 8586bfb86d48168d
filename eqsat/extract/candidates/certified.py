"""Copies of candidates whose options are those of the candidate they are copies of.

What a candidate's options are follows from facts about its nodes, what it reads and what it may
write. Each is compared with its image one block later; where all of a candidate are alike from
block to block, nothing has to be asked of its copies. The others get their options by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.candidates.listed import CandidateTable
from eqsat.extract.candidates.shifted import Shifted
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.chains import FAR
from eqsat.extract.ragged import Ints, Mask
from eqsat.extract.solve.linear import Dispatches, RelayoutBytes, Ties, Time, kernels
from eqsat.model.deadline import tick

OWN = (Time, RelayoutBytes, Ties, Dispatches)  # goals to which a copy adds what its origin does


@dataclass(frozen=True)
class Certified:
    """`is_read`: per buffer, whether some candidate or the caller reads it."""

    variants: Variants
    every: CandidateTable
    is_read: Mask

    @cached_property
    def copies(self) -> Mask:
        """Per candidate: whether its options are the images of its origin's."""
        every = self.every
        found = np.zeros(len(every), dtype=bool)
        if not every.chains or not self._is_asked():
            return found
        back, on = self._reach
        later, origin = every.later, every.origin
        found[:] = (-back[origin] <= later) & (later <= on[origin])
        found[: len(every.direct)] = False
        return found

    def _is_asked(self) -> bool:
        """Not where goals of others ask about each dispatch, or where devices have links."""
        goals, target = self.variants.goals.values(), self.variants.pool.legality.target
        is_one = not target.devices or target.has_parts
        return is_one and all(isinstance(g, OWN) for g in goals)

    @cached_property
    def _reach(self) -> tuple[Ints, Ints]:
        """Per direct candidate: how many blocks back and on all of it looks alike."""
        every, chains = self.every, self.every.chains
        columns = every.columns
        written = columns["writes"].joined(columns["exposable"])
        parts = (
            (columns["members"], chains["node"].reach(self._nodes)),
            (columns["reads"], chains["eclass"].reach(self._read)),
            (written, chains["eclass"].reach(self._read & self._written)),
        )
        found = np.full((2, len(every.direct)), FAR, np.int64)
        for rows, both in parts:
            tick()
            some = np.flatnonzero(rows.counts)
            for known, reach in zip(found, both, strict=True):
                least = np.minimum.reduceat(reach[rows.index], rows.start[:-1][some])
                known[some] = np.minimum(known[some], least)
        return found[0], found[1]

    # ---- one by one ------------------------------------------------------------------------------
    @property
    def _shifted(self) -> Shifted:
        copies = self.every.copies
        assert copies is not None and copies.shifted is not None
        return copies.shifted

    @cached_property
    def _nodes(self) -> Mask:
        """Per node: whether its image is alike in what it computes, owns and adds to the goals."""
        v, space, image = self.variants, self.variants.space, self._shifted.once
        owned = [v.pool.legality.exclusive((n,)) for n in range(len(space.kinds))]
        computed = [space.computes((n,)) for n in range(len(space.kinds))]
        served = [v.pool.served.get(n, frozenset()) for n in range(len(space.kinds))]
        behind, nobody = v.pool.behind, frozenset[int]()
        number, part = self._numbers, self._parts

        def is_alike(n: int, j: int) -> bool:
            return (
                space.kinds[n] == space.kinds[j]
                and part[n] == part[j]
                and v.moved[n] == v.moved[j]
                and v.tied[n] == v.tied[j]
                and {number[x] for x in owned[n]} == owned[j]
                and {image.value[x] for x in computed[n]} == computed[j]
                and {image.value[x] for x in served[n]} == served[j]
                and all(
                    {image.value[u] for u in behind[x]} == behind.get(image.value[x], nobody)
                    for x in served[n]
                )
                and all(self._is_owed_alike(x - len(space.kinds)) for x in owned[n])
                and (not v.has_loops or _kernels(v, n) == _kernels(v, j))
            )

        return np.array([j >= 0 and is_alike(n, j) for n, j in enumerate(image.node[:-1])])

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        """Per node: the part that it belongs to, of several that are searched together."""
        nodes, legality = self.variants.space.egraph.nodes, self.variants.pool.legality
        if not legality.target.devices:
            return ("",) * len(nodes)
        return tuple([legality.devices.classes[n.eclass] for n in nodes])

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """Images of exclusive numbers, of nodes and of values."""
        return images_of_numbers(self.variants, self._shifted)

    def _is_owed_alike(self, value: int) -> bool:
        """Of an owned value (below 0: none): whether the same values can only be made from it."""
        if value < 0:
            return True
        outside, positions = self.variants.outside, self.variants.space.positions
        image = (*self._shifted.once.value[:-1], -1)
        j = image[value]
        nobody = frozenset[int]()
        users = {image[u] if u >= 0 else -1 for u in outside.get(value, nobody)}
        lost = any(u >= 0 and image[u] < 0 for u in outside.get(value, nobody))
        same = (value in positions) == (j in positions)
        return j >= 0 and not lost and same and users == outside.get(j, nobody)

    @cached_property
    def _read(self) -> Mask:
        """Per class: whether its image is read like it."""
        variants, pool, image = self.variants, self.variants.pool, self._shifted.once
        held = [pool.held, pool.optional, pool.resident, frozenset(variants.space.roots)]
        facts = np.stack([self.is_read, *(self._mask(h) for h in held)])
        there = np.array(image.eclass[:-1]) >= 0
        found = there & self._moves_as("buffer") & self._moves_as("value")
        buffer = np.array(variants.space.buffer)
        later = np.where(there, image.eclass[:-1], 0)
        return found & (facts[:, buffer] == facts[:, buffer[later]]).all(axis=0)

    @cached_property
    def _written(self) -> Mask:
        """Per class: whether its image takes as long to write, for users that are its users'."""
        image, space = self._shifted.once, self.variants.space
        used = self._mask(self._shifted.used_alike)[np.array(space.value)]
        later = np.array(image.eclass[:-1])
        class_ps = np.array(self.variants.costs.class_ps)
        return used & (later >= 0) & (class_ps == class_ps[later])

    def _mask(self, classes: frozenset[int]) -> Mask:
        found = np.zeros(len(self.variants.space.buffer), dtype=bool)
        found[list(classes)] = True
        return found

    def _moves_as(self, of: str) -> Mask:
        """Per class: whether the image of its buffer, or value, is that of its image."""
        table: Mapping[str, Sequence[int]] = self._shifted.once._asdict()
        name = np.array(getattr(self.variants.space, of))
        later = np.array(table["eclass"][:-1])
        return np.array(table[of])[name] == name[later]


def images_of_numbers(variants: Variants, shifted: Shifted) -> dict[int, int]:
    """Per exclusive number what it is one block later (see `Legality.exclusive`); -1: nothing."""
    of_value = variants.pool.legality.value_number
    found = dict(enumerate(shifted.once.node[:-1]))
    for v, j in enumerate(shifted.once.value[:-1]):
        found[of_value(v)] = of_value(j) if j >= 0 else -1
    return found


def _kernels(variants: Variants, node: int) -> int:
    return kernels(variants.space.egraph, (node,))
