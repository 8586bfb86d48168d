"""The chosen dispatches by blocks of the program, and the runs of blocks that could be alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from eqsat.extract.blockcopies import BlockCopies, group_work
from eqsat.model.selection import Group

Key = tuple[Fraction, int]


@dataclass(frozen=True)
class BlockRun:
    """Blocks [first, last], all of them to be as block `model` is."""

    first: int
    last: int
    model: int


@dataclass(frozen=True)
class Chosen:
    """The chosen groups by the blocks they are in."""

    groups: tuple[Group, ...]
    copies: BlockCopies
    cut: int  # of `BlockCopies.cuts`

    @cached_property
    def held(self) -> dict[int, tuple[int, ...]]:
        """Per block: the numbers of its groups; a group of two blocks is in the later one."""
        found: dict[int, list[int]] = defaultdict(list)
        for i, place in self.copies.places(self.groups).items():
            found[(place - self.cut) // self.copies.period].append(i)
        return {k: tuple(found[k]) for k in sorted(found)}

    @cached_property
    def variants(self) -> dict[int, int]:
        """Per block: the first one that has the same groups."""
        found: dict[int, int] = {}
        for k in self.held:
            same = (m for m in dict.fromkeys(found.values()) if self._is_copy(m, k))
            found[k] = next(same, k)
        return found

    @property
    def pairs(self) -> int:
        """Blocks that have the same groups as the one before."""
        of = self.variants
        return sum(k + 1 in of and of[k] == of[k + 1] for k in of)

    def runs(self, cost: Callable[[Group], int]) -> list[BlockRun]:
        """Runs of unlike blocks and one of them to repeat: long runs and cheap models first."""
        of = self.variants
        costs = {m: sum(cost(self.groups[i]) for i in self.held[m]) for m in set(of.values())}
        alike = Counter(of.values())

        def rank(run: BlockRun) -> tuple[int, ...]:
            length = run.last - run.first + 1
            return -length, costs[run.model], -alike[run.model], run.first, run.model

        return sorted(self._runs(), key=rank)

    def _runs(self) -> Iterator[BlockRun]:
        """Of blocks that are there, as far as each takes the copy."""
        of = self.variants
        for model in (m for m in sorted(set(of.values())) if self._follows_itself(m)):
            takes = {k for k in of if self._takes(model, k)}
            for first in sorted(takes):
                last, seen = first, {of[first]}
                while last + 1 in takes:
                    last += 1
                    seen.add(of[last])
                    if len(seen) > 1:
                        yield BlockRun(first, last, model)

    def _follows_itself(self, model: int) -> bool:
        """Whether what a block reads from the blocks before is what it would write there."""
        wanted = self._read(self._own(model)) & self._written_in_blocks
        before = [self.copy(model, k) or () for k in self.held if k <= model]
        return wanted <= self._written(g for copied in before for g in copied)

    def _takes(self, model: int, block: int) -> bool:
        """Whether a copy is there, and writes what nobody in a block reads."""
        copied = self.copy(model, block)
        if copied is None:
            return False
        return self._written(self._own(block)) & self._read_elsewhere <= self._written(copied)

    @cached_property
    def _written_in_blocks(self) -> frozenset[int]:
        return self._written(g for k in self.held for g in self._own(k))

    @cached_property
    def _read_elsewhere(self) -> frozenset[int]:
        """Buffers that are results, or that a group reads which is in no block."""
        held = {i for places in self.held.values() for i in places}
        others = (g for i, g in enumerate(self.groups) if i not in held)
        return self._read(others).union(self.copies.space.roots)

    def _read(self, groups: Iterable[Group]) -> frozenset[int]:
        buffer = self.copies.space.buffer
        return frozenset(buffer[c] for g in groups for c in g.reads)

    def _written(self, groups: Iterable[Group]) -> frozenset[int]:
        buffer = self.copies.space.buffer
        return frozenset(buffer[c] for g in groups for c in g.writes)

    def copy(self, model: int, block: int) -> list[Group] | None:
        """The groups of one block in another; None if some are not there."""
        found = [self.copies.copied(self.groups[i], block - model) for i in self.held[model]]
        whole = [g for g in found if g is not None]
        return whole if len(whole) == len(found) else None

    def _is_copy(self, model: int, block: int) -> bool:
        return {group_work(g) for g in self.copy(model, block) or ()} == set(
            map(group_work, self._own(block))
        )

    def _own(self, block: int) -> list[Group]:
        return [self.groups[i] for i in self.held[block]]

    def is_alike(self, run: BlockRun) -> bool:
        """Whether there is nothing to do for a run."""
        return len({self.variants[k] for k in range(run.first, run.last + 1)}) == 1

    def repeated(self, run: BlockRun) -> list[tuple[Key, Group]] | None:
        """All groups with the run alike, each with its place; None if it cannot be copied so far.

        A copy's place is that of its model, as far into the block it is in.
        """
        found: list[tuple[Key, Group]] = []
        gone: set[int] = set()
        for block in range(run.first, run.last + 1):
            copied = self.copy(run.model, block)
            if copied is None:
                return None
            gone.update(self.held[block])
            found += zip(self._places(run.model, block), copied, strict=True)
        kept = ((i, g) for i, g in enumerate(self.groups) if i not in gone)
        return [*found, *(((Fraction(i), -1), g) for i, g in kept)]

    def _places(self, model: int, block: int) -> list[Key]:
        (begin, span), (to, length) = self._span(model), self._span(block)
        return [(to + Fraction((i - begin) * length, span), i) for i in self.held[model]]

    def _span(self, block: int) -> tuple[int, int]:
        """Where a block begins among the groups, and how far it goes."""
        first, last = self.held[block][0], self.held[block][-1]
        return first, last - first + 1
