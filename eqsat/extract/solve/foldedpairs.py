"""Pairs of what is read and a number that its reader holds, added up over blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eqsat.extract.ragged import Ints, Mask
from eqsat.extract.solve.classes import Classes


@dataclass(frozen=True)
class PairClasses:
    """Classes of pairs (element, number), those of one class of elements side by side.

    Where both move, they are as many blocks apart in all pairs of a class. An element that does
    not move is in a pair with every number of the class. `element` and `number` are one pair of
    each; `of_entry` says of each pair that it was made from which class it is in.
    """

    elements: Classes
    numbers: Classes
    element: Ints
    number: Ints
    of_entry: Ints

    @staticmethod
    def of(elements: Classes, numbers: Classes, element: Ints, number: Ints) -> PairClasses:
        """Of these pairs."""
        most = max(int(c.place.max(initial=0)) for c in (elements, numbers)) + 1
        both = elements.moves[element] & numbers.moves[number]
        blocks = np.where(both, numbers.place[number] - elements.place[element] + most, 0)
        keys = elements.of[element] * len(numbers.sizes) + numbers.of[number]
        keys = keys * 2 * most + blocks
        _, first, of_entry = np.unique(keys, return_index=True, return_inverse=True)
        return PairClasses(elements, numbers, element[first], number[first], of_entry)

    def __len__(self) -> int:
        return len(self.element)

    @cached_property
    def element_class(self) -> Ints:
        """Per class of pairs: the class of the elements; ascending."""
        return self.elements.of[self.element]

    @cached_property
    def number_class(self) -> Ints:
        return self.numbers.of[self.number]

    @cached_property
    def both_move(self) -> Mask:
        return self.elements.moves[self.element] & self.numbers.moves[self.number]

    @cached_property
    def blocks(self) -> Ints:
        """How many blocks after the element the number is, where both move."""
        return self.numbers.place[self.number] - self.elements.place[self.element]

    @cached_property
    def is_single(self) -> Mask:
        """Whether it is one pair of an inner element, as the number is at an end of its chain."""
        inner = self.elements.is_inner[self.element_class]
        return inner & self.both_move & ~self.numbers.is_inner[self.number_class]

    @cached_property
    def times(self) -> Ints:
        """In how many pairs of the class an element is, at most."""
        return np.where(self.both_move, 1, self.numbers.sizes[self.number_class])

    def has(self, pair: Ints, element: Ints) -> Mask:
        """Whether elements of its class are in a pair of the class."""
        blocks = self.elements.place[element] - self.elements.place[self.element[pair]]
        number = self.numbers.chains.at(self.number[pair], blocks)
        same = (number >= 0) & (self.numbers.of[number] == self.number_class[pair])
        return same | ~self.both_move[pair]
