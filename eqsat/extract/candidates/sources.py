"""What columns are made from: candidates in arrays, their prices, and what every answer owes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eqsat.extract.blocks import ONE, TWO, own_key
from eqsat.extract.candidates.cover import Lost
from eqsat.extract.candidates.life import kept_rows, originals_held
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.choice.columns import BlockImages, ChoiceFacts, Columns
from eqsat.extract.choice.linear import Time, moved_bytes, tie
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.grow import Candidate
from eqsat.extract.ragged import Ints, Ragged
from eqsat.model.control import Control
from eqsat.model.deadline import tick
from eqsat.model.goal import Goal
from eqsat.model.selection import Group

EXTRAS = 2  # inner values a group may write beside its results, the program's results apart


def group_of(
    costs: Costs, c: Candidate, buffers: Iterable[int], time_ps: int, step: int = 0
) -> Group:
    """A candidate that writes these buffers as a group of a selection."""
    space, pipeline = costs.space, costs.of(c.members).pipeline_of(c.members)
    written = frozenset(buffers)
    extra = tuple(w for w in c.exposable if space.buffer[w] in written)
    return Group(c.members, c.reads, (*extra, *c.writes), time_ps, step, pipeline)


@dataclass(frozen=True)
class Sources:
    """Candidates of one pool, with their prices and the goals that their columns add to."""

    pool: Pool
    costs: Costs
    candidates: CandidateTable
    goals: Mapping[str, Goal]

    @cached_property
    def space(self) -> Space:
        return self.pool.space

    @cached_property
    def lost(self) -> Lost:
        return Lost(self.pool)

    @cached_property
    def moved(self) -> tuple[int, ...]:
        """Per node: bytes a conversion moves."""
        egraph = self.space.egraph
        return tuple(moved_bytes(egraph, n) for n in range(len(egraph.nodes)))

    @cached_property
    def tied(self) -> tuple[int, ...]:
        """Per node: what it adds to the tie-break."""
        return tuple(tie(n, m) for n, m in zip(self.space.egraph.nodes, self.moved, strict=True))

    @cached_property
    def has_loops(self) -> bool:
        return any(isinstance(n.attr, Control) for n in self.space.egraph.nodes)


# ---- candidates column by column -----------------------------------------------------------------
PARTS = ("members", "reads", "writes", "exposable")  # what candidates are, as numbers


@dataclass(frozen=True)
class CandidateTable:
    """What candidates are, row by row."""

    candidates: Sequence[Candidate]
    prices: type = np.int64  # of arrays: `object` where sums of prices may need more bits

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, number: int) -> Candidate:
        return self.candidates[number]

    @property
    def of_any_size(self) -> CandidateTable:
        """With Python's own numbers as prices."""
        return CandidateTable(self.candidates, object)

    @cached_property
    def columns(self) -> dict[str, Ragged]:
        """By name (`PARTS`)."""
        tick()
        return {name: Ragged.of([getattr(c, name) for c in self.candidates]) for name in PARTS}

    @cached_property
    def time_ps(self) -> Ints:
        return np.array([c.time_ps for c in self.candidates], dtype=self.prices)

    @cached_property
    def slack_ps(self) -> Ints:
        return np.array([c.slack_ps for c in self.candidates], dtype=self.prices)

    def part(self, numbers: Ints) -> Listed:
        """These of them."""
        return Listed(self, numbers)


@dataclass(frozen=True)
class Listed:
    """Some candidates of a table, numbered from 0."""

    whole: CandidateTable
    numbers: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Candidate:
        return self.whole[int(self.numbers[number])]

    @property
    def prices(self) -> type:
        return self.whole.prices

    def column(self, name: str) -> Ragged:
        """Of each of them, by name (`PARTS`)."""
        return self.whole.columns[name].take(self.numbers)

    @property
    def time_ps(self) -> Ints:
        return self.whole.time_ps[self.numbers]

    @property
    def slack_ps(self) -> Ints:
        return self.whole.slack_ps[self.numbers]


# ---- times that need a plan ----------------------------------------------------------------------
def with_plan_times(sources: Sources, choice: Columns, rows: Ints) -> Columns:
    """The same columns with the times of these.

    OverflowError if sums of them are too large for arrays.
    """
    rows = rows[~choice.is_asked[rows]]
    owners, extras = choice.candidate[rows], choice.extras.take(rows)
    time_ps = asked_ps(sources.costs, sources.candidates, owners, extras)
    time_ps = time_ps * sources.space.times_in(choice.last[rows])
    is_short = choice.adds.dtype != object
    # sums in arrays of 64 bits, with some room
    if is_short and int(time_ps.max(initial=0)) * len(sources.space.buffer) >= 2**62:
        raise OverflowError("times of dispatches")
    adds, is_asked = choice.adds.copy(), choice.is_asked.copy()
    is_asked[rows] = True
    for at in (i for i, g in enumerate(sources.goals.values()) if isinstance(g, Time)):
        adds[rows, at] = time_ps
    return replace(choice, adds=adds, is_asked=is_asked)


def asked_ps(
    costs: Costs, candidates: CandidateTable | Listed, owners: Ints, extras: Ragged
) -> Ints:
    """Picoseconds of each candidate's dispatch that also writes `extras`, by its plan."""
    time_ps = np.empty(len(owners), dtype=candidates.prices)
    ps_of: dict[tuple[int, ...], int] = {}
    for i, number in enumerate(owners.tolist()):
        tick()
        key = (number, *extras[i].tolist())
        if key not in ps_of:
            c = candidates[number]
            ps_of[key] = costs.of(c.members).wider_ps(c, key[1:])
        time_ps[i] = ps_of[key]
    return time_ps


# ---- what every answer owes ----------------------------------------------------------------------
def choice_facts(pool: Pool, linear: tuple[str, ...]) -> ChoiceFacts:
    """What every answer owes, whatever the candidates."""
    space = pool.space
    computed = [r for r in space.roots if r not in pool.held]
    held = [r for r in space.roots if r in pool.resident]
    originals = originals_held(pool)
    always = (*held, *computed, *(b for b in originals if b not in held))
    nbytes = np.array(space.sizes, dtype=np.int64)
    nbytes[[*originals, *held]] = 0
    source = np.zeros(len(space.buffer), dtype=bool)
    source[[v for v in set(space.value) if space.is_source(v)]] = True
    source[[space.value[b] for b in pool.held | pool.resident]] = True
    return ChoiceFacts(
        linear,
        nbytes,
        space.input_bytes + sum(space.nbytes(b) * space.times(b) for b in always),
        roots=np.array(computed, dtype=np.int64),
        needed=np.array(pool.needed, dtype=np.int64),
        served=np.array(sorted(frozenset().union(*pool.served.values())), dtype=np.int64),
        value_of=np.array(space.value, dtype=np.int64),
        is_source=source,
        times=np.array([space.times(c) for c in range(len(space.buffer))], dtype=np.int64),
        weight_rows=kept_rows(pool),
        blocks=_blocks(pool),
    )


def _blocks(pool: Pool) -> BlockImages | None:
    """Where buffers and values are among equal blocks; None: the e-graph stands for itself."""
    rolled = pool.space.rolled
    if rolled is None:
        return None
    later = pool.space.later
    numbers = [later.number(n) for n in range(len(later.node) + len(later.value))]
    return BlockImages(
        level=np.array(rolled.level, dtype=np.int64),
        buffer=np.array(later.buffer, dtype=np.int64),
        value=np.array(later.value, dtype=np.int64),
        number=np.array(numbers, dtype=np.int64),
        count=rolled.count,
    )


def column_images(space: Space, members: Ragged, buffers: Sequence[Ragged], last: Ints) -> Ints:
    """Per column the row of the same column one block later; -1 if there is none.

    buffers: those that a column reads, keeps and writes. last: the last block that it touches.
    """
    images = np.full(len(last), -1, dtype=np.int64)
    inner = np.flatnonzero((last == ONE) | (last == TWO))
    sides = (of.take(inner).tuples for of in (members, *buffers))
    parts = list(zip(*sides, strict=True))
    place = {own_key(*p): i for p, i in zip(parts, inner.tolist(), strict=True)}
    for p, i in zip(parts, inner.tolist(), strict=True):
        if last[i] == ONE:
            images[i] = place.get(space.later.key(*p), -1)
    return images
