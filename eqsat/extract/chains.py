"""Classes, nodes and values in chains: each is the one before it, one block later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.ragged import Ints, Mask, starts

FAR = 1 << 20  # blocks: more than there are
PARTS = 3  # of a chain: the first of it, all between, and the last
FIRST, INNER, LAST = range(PARTS)


@dataclass(frozen=True)
class Chains:
    """Of the elements of one kind, which chain each is in, and how many blocks from its begin.

    What is its own image has a chain of its own, in which nothing moves.
    """

    image: Ints  # per element: one block later; -1 where that is nothing
    chain: Ints
    place: Ints
    start: Ints  # per chain: where it begins in `order`, and where the last one ends
    order: Ints

    @staticmethod
    def of(table: Sequence[int]) -> Chains:
        """From images one block later, of which no two are alike."""
        image = np.array(table, dtype=np.int64)
        count = len(image)
        later = np.zeros(count, dtype=bool)
        moved = image[(image >= 0) & (image != np.arange(count))]
        later[moved] = True
        chain, place = np.empty(count, np.int64), np.empty(count, np.int64)
        order: list[int] = []
        lengths: list[int] = []
        for head in np.flatnonzero(~later).tolist():
            first, at = len(order), head
            while True:
                chain[at], place[at] = len(lengths), len(order) - first
                order.append(at)
                following = table[at]
                if following < 0 or following == at:
                    break
                at = following
            lengths.append(len(order) - first)
        circle = np.setdiff1d(np.arange(count), order)  # nobody can say who is first there
        image[circle], place[circle] = -1, 0
        chain[circle] = len(lengths) + np.arange(len(circle))
        order += circle.tolist()
        lengths += [1] * len(circle)
        ends = starts(np.array(lengths, dtype=np.int64))
        return Chains(image, chain, place, ends, np.array(order, dtype=np.int64))

    @cached_property
    def length(self) -> Ints:
        """Per element: how many its chain has."""
        return np.diff(self.start)[self.chain]

    @cached_property
    def is_fixed(self) -> Mask:
        """Per element: whether it is its own image."""
        return self.image == np.arange(len(self.image))

    @cached_property
    def moves(self) -> Mask:
        """Per element: whether it is one of several."""
        return self.length > 1

    @cached_property
    def parts(self) -> Ints:
        """Per element: its chain and which part of that, as one number."""
        is_last = self.moves & (self.place == self.length - 1)
        part = np.where(self.place == 0, FIRST, np.where(is_last, LAST, INNER))
        return PARTS * self.chain + part

    def at(self, elements: Ints, blocks: Ints | int) -> Ints:
        """These so many blocks later; -1 where there is nothing."""
        place = self.place[elements] + blocks
        there = (place >= 0) & (place < self.length[elements])
        found = self.order[np.where(there, self.start[self.chain[elements]] + place, 0)]
        return np.where(self.is_fixed[elements], elements, np.where(there, found, -1))

    def reach(self, alike: Mask) -> tuple[Ints, Ints]:
        """Per element: how many blocks back and on there are images, each alike the one before.

        alike: per element, whether its image looks like it.
        """
        goes_on = (alike & (self.image >= 0) & ~self.is_fixed)[self.order]
        at = np.arange(len(self.order))
        breaks = np.flatnonzero(~goes_on)  # the last of a chain is one
        nearest = np.searchsorted(breaks, at)
        on = breaks[nearest] - at
        before = np.where(nearest > 0, breaks[np.maximum(nearest - 1, 0)] + 1, 0)
        back = at - before
        found = np.empty((2, len(self.order)), np.int64)
        found[:, self.order] = back, on
        found[:, self.is_fixed & alike] = FAR
        return found[0], found[1]
