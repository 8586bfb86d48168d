"""What stages and accesses of a nest depend on, and what their bodies cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.model.plan import Work
from eqsat.plan import expressions

Loops = frozenset[int]
Strides = tuple[int, ...]


def access_loops(a: Access | Bound) -> Loops:
    """Loops that an access or bound depends on, by its lookups and bounds too."""
    return a.depends_on


def value_loops(nest: Nest, argument: Access | int) -> Loops:
    """Loops that a value depends on: by what is read for it, and by what chooses it."""
    if isinstance(argument, Access):
        return access_loops(argument)
    s = nest.stages[argument]
    below = (value_loops(nest, a) for a in s.arguments)
    return frozenset().union(*below, *map(access_loops, s.bounds)) - frozenset(s.reduced)


def stages_read(arguments: Iterable[Access | int]) -> list[int]:
    """The stages among arguments."""
    return [a for a in arguments if isinstance(a, int)]


def accesses_read(arguments: Iterable[Access | int]) -> list[Access]:
    """The accesses among arguments."""
    return [a for a in arguments if isinstance(a, Access)]


def needed(
    nest: Nest, stages: Iterable[int], outside: Callable[[int], bool] | None = None
) -> list[int]:
    """These stages and all that they read, ascending; not through those that are outside."""
    found, left = set[int](), list(stages)
    while left:
        i = left.pop()
        if i in found or (outside is not None and outside(i)):
            continue
        found.add(i)
        left += stages_read(nest.stages[i].arguments)
    return sorted(found)


def additions(nest: Nest, stages: Iterable[int]) -> float:
    """Additions of vectors that one evaluation of these stages takes."""
    return sum(expressions.additions_of(nest.stages[i].body) for i in stages)


def combining(nest: Nest, stages: Iterable[int]) -> float:
    """Additions of vectors that it takes to combine one more point of each of these reductions."""
    own = [nest.stages[i] for i in stages]
    return sum(expressions.additions_of_combining(s.combine, s.dtype) for s in own)


def summed(works: Iterable[Work]) -> Work:
    """What several pieces of work are together."""

    total = Work(items=0)
    for w in works:
        total = Work(
            total.fma + w.fma,
            total.loads + w.loads,
            total.scalar + w.scalar,
            total.strided + w.strided,
            total.pages + w.pages,
            total.tiles + w.tiles,
            total.items + w.items,
            total.copied + w.copied,
            total.streams + w.streams,
            total.loops + w.loops,
        )
    return total


def row_stride(nest: Nest, row_loops: tuple[int, ...], access: Access) -> int | None:
    """Elements from row to row, if that is one number for all rows of `row_loops`."""
    step, found = 1, None
    for i in reversed(row_loops):
        if nest.sizes[i] > 1:
            if found is None:
                found = access.strides[i]
            elif access.strides[i] != found * step:
                return None
            step *= nest.sizes[i]
    return found or 0


@dataclass(frozen=True)
class Moved:
    """Parts of a nest over other loops; `stages`: new numbers, where they change."""

    strides: Callable[[Strides], Strides]
    loops: Callable[[tuple[int, ...]], tuple[int, ...]]
    stages: dict[int, int]

    def bound(self, b: Bound) -> Bound:
        return replace(b, strides=self.strides(b.strides))

    def access(self, a: Access) -> Access:
        bounds = tuple(map(self.bound, a.bounds))
        return replace(a.with_indices(self.access), strides=self.strides(a.strides), bounds=bounds)

    def stage(self, s: Stage) -> Stage:
        return replace(
            s,
            loops=self.loops(s.loops),
            reduced=self.loops(s.reduced),
            bounds=tuple(map(self.bound, s.bounds)),
            arguments=tuple(
                self.stages.get(a, a) if isinstance(a, int) else self.access(a) for a in s.arguments
            ),
        )

    def store(self, s: Store) -> Store:
        return replace(
            s,
            access=self.access(s.access),
            stage=self.stages.get(s.stage, s.stage),
            loops=self.loops(s.loops),
            bounds=tuple(map(self.bound, s.bounds)),
        )
