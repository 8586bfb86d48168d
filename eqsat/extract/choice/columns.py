"""The choice as columns: each a dispatch that may be chosen, row by row of a few arrays.

A *buffer* is a number below `span`, and so is the *value* that it is a layout of. An answer is a
set of columns such that every root is written, what is read is written by another one, and no
buffer is written and no exclusive number held twice; `rows.py` states it, `legal.py` checks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.ragged import Ints, Mask, Ragged

GOALS = ("time", "memory", "dispatches")
MEMORY = "memory"  # the goal that depends on the order
KEPT = ("resident", "load_peak")  # bytes of weights: kept, and at the most while they are packed
Forced = tuple[tuple[int, tuple[int, ...]], ...]
Barred = tuple[tuple[int, ...], int]  # columns, and how many of them at most


@dataclass(frozen=True)
class KeptRow:
    """Bytes at one moment of loading: `base`, and those of every term of which a buffer is kept.

    Bytes of weights that stay (`resident`), and the most there is at load, are the largest of some
    such rows. They depend on which weights the chosen dispatches read, and on no order.
    """

    base: int
    terms: tuple[tuple[int, tuple[int, ...]], ...]

    def value(self, resident: Set[int]) -> int:
        """Bytes if these buffers are kept."""
        return self.base + sum(n for n, any_of in self.terms if not resident.isdisjoint(any_of))

    @property
    def most(self) -> int:
        return self.base + sum(n for n, _ in self.terms)


def unit_of(rows: Sequence[KeptRow]) -> int:
    """Bytes that all sizes are multiples of."""
    sizes = (n for r in rows for n, _ in r.terms)
    return math.gcd(*sizes, *(r.base for r in rows)) or 1


@dataclass(frozen=True)
class BlockImages:
    """Which block buffers and values belong to, and what they are one block later; -1: nothing.

    `count`: how often what is in block `TWO` is there in the whole program.
    """

    level: Ints  # per buffer or value
    buffer: Ints
    value: Ints
    number: Ints  # per exclusive number
    count: int


@dataclass(frozen=True)
class ChoiceFacts:
    """Facts of a choice whatever its columns: what an answer owes, what buffers and values are."""

    linear: tuple[str, ...]  # goals that are sums over the chosen columns
    nbytes: Ints  # per buffer, none of what `fixed_bytes` counts
    fixed_bytes: int  # arguments, results, and weights that are there whatever is chosen
    roots: Ints  # buffers that must be written
    needed: Ints  # values every answer computes
    served: Ints  # values that something in every answer serves
    value_of: Ints  # per buffer
    is_source: Mask  # per value: it is there from the start, in some layout
    times: Ints  # per buffer: how many weights of the whole program it stands for
    weight_rows: Mapping[str, tuple[KeptRow, ...]] = field(
        default_factory=dict
    )  # the largest of these
    blocks: BlockImages | None = None  # of the short e-graph of a program of equal blocks

    @property
    def span(self) -> int:
        return len(self.value_of)

    @cached_property
    def is_root(self) -> Mask:
        mask = np.zeros(self.span, dtype=bool)
        mask[self.roots] = True
        return mask

    @cached_property
    def temporary(self) -> Ints:
        """Per buffer: its bytes while it is live; results are counted all the time."""
        return np.where(self.is_root, 0, self.nbytes)

    @cached_property
    def kept_bytes(self) -> Ints:
        """Per weight that stays in memory: its bytes, with those of all it stands for."""
        return self.nbytes * self.times


@dataclass(frozen=True)
class Columns:
    """Columns, each with what it adds to the goals and what it reads, keeps, writes and holds.

    `candidate` numbers what a column was made from, `extras` are buffers that it writes besides;
    `is_asked`: its time is known, or else a floor of it. `forced`: (column, buffers it writes) of
    which one is chosen, and one of its buffers read; then every chosen column serves a root.
    """

    facts: ChoiceFacts
    adds: Ints  # [columns, goals]; Python's own numbers where sums need more than 64 bits
    reads: Ragged  # buffers that another one writes
    resident: Ragged  # weights it keeps in memory
    writes: Ragged
    exclusive: Ragged  # numbers only one chosen column may hold
    computes: Ragged  # values it computes anew
    serves: Ragged
    candidate: Ints
    extras: Ragged
    is_asked: Mask
    last: Ints  # the last block that it touches
    key: Ints  # what it is called, whichever columns are left
    image: Ints  # the key of the same column one block later; -1: none
    forced: Forced | None = None
    barred: tuple[Barred, ...] = ()

    def __len__(self) -> int:
        return len(self.candidate)

    def take(self, rows: Ints) -> Columns:
        """These columns, in this order."""
        place = np.full(len(self) + 1, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))

        def part(name: str) -> Any:
            value = getattr(self, name)
            return value.take(rows) if isinstance(value, Ragged) else value[rows]

        parts = {f.name: part(f.name) for f in fields(self)[1:-2]}
        at = place.tolist()
        barred = [(tuple(at[i] for i in some if at[i] >= 0), most) for some, most in self.barred]
        return replace(
            self,
            **parts,
            forced=self.forced and tuple((at[i], b) for i, b in self.forced if at[i] >= 0),
            barred=tuple(b for b in barred if len(b[0]) > b[1]),
        )

    # ---- per buffer ----------------------------------------------------------------------------
    @cached_property
    def writers(self) -> Ragged:
        return self.writes.turned(self.facts.span)

    @cached_property
    def readers(self) -> Ragged:
        return self.reads.turned(self.facts.span)

    @cached_property
    def keepers(self) -> Ragged:
        return self.resident.turned(self.facts.span)

    @cached_property
    def either(self) -> Ints:
        """Weights that are there from the start or made in the run: one or the other."""
        return np.flatnonzero((self.keepers.counts > 0) & (self.writers.counts > 0))

    @cached_property
    def image_row(self) -> Ints:
        """Per column: where the same one of the next block is; -1: nowhere."""
        order = np.argsort(self.key, kind="stable")
        keys = self.key[order]
        at = np.minimum(np.searchsorted(keys, self.image), max(len(self) - 1, 0))
        has_image = (self.image >= 0) & (keys[at] == self.image) if len(self) else self.image >= 0
        return np.where(has_image, order[at] if len(self) else at, -1)

    @property
    def has_writers(self) -> bool:
        """Whether something writes each root."""
        return bool((self.writers.counts[self.facts.roots] > 0).all())

    # ---- bytes ---------------------------------------------------------------------------------
    @cached_property
    def touched_bytes(self) -> Ints:
        """Per column: temporaries that it reads or writes, which are live when it runs."""
        nbytes, sides = self.facts.temporary, (self.reads, self.writes)
        return sum((s.sums(nbytes[s.index]) for s in sides), start=np.zeros(len(self), np.int64))

    @cached_property
    def weight_bytes(self) -> Ints:
        return self.resident.sums(self.facts.kept_bytes[self.resident.index])

    @cached_property
    def byte_unit(self) -> int:
        """Bytes that all sizes are multiples of."""
        used = [self.facts.nbytes[s.index] for s in (self.reads, self.writes, self.resident)]
        sizes = np.unique(np.concatenate(used)).tolist()
        return math.gcd(*sizes, self.facts.fixed_bytes) or 1

    @cached_property
    def most_bytes(self) -> int:
        """More than any answer needs."""
        used = np.unique(np.concatenate([s.index for s in (self.writes, self.resident)]))
        return self.facts.fixed_bytes + int(self.facts.kept_bytes[used].sum())

    # ---- what answers are worth ----------------------------------------------------------------
    def coefficients(self, goal: str) -> Ints:
        """Per column: what it adds to a goal that is a sum."""
        return self.adds[:, self.facts.linear.index(goal)]

    def total(self, goal: str, columns: Sequence[int]) -> int:
        """A goal that does not depend on the order."""
        if goal in self.facts.weight_rows:
            there = set(self.resident.take(_ints(columns)).index.tolist())
            return max(r.value(there) for r in self.facts.weight_rows[goal])
        return int(sum(self.coefficients(goal)[list(columns)].tolist()))

    def values(self, answer: Answer) -> dict[str, int]:
        """Every goal; what only breaks ties is none."""
        names = dict.fromkeys((*GOALS, *self.facts.linear, *self.facts.weight_rows))
        return {goal: self.value(goal, answer) for goal in names if goal != TIE_BREAK}

    def value(self, goal: str, answer: Answer) -> int:
        """Picoseconds, bytes or a count."""
        return answer.peak_bytes if goal == MEMORY else self.total(goal, answer.columns)

    def worth(self, answer: Answer, weights: Mapping[str, int]) -> int:
        """Σ weight · value."""
        return sum(w * self.value(g, answer) for g, w in weights.items())

    def keeps(self, answer: Answer, caps: Mapping[str, int]) -> bool:
        """Whether no goal is above its cap."""
        return all(self.value(g, answer) <= cap for g, cap in caps.items())

    def floor(self, goal: str) -> int:
        """A bound every answer keeps, without a search."""
        if goal == MEMORY:
            return self.facts.fixed_bytes
        if goal in self.facts.weight_rows:
            return max(r.base for r in self.facts.weight_rows[goal])
        return int(goal == "dispatches" and len(self.facts.roots) > 0)


@dataclass(frozen=True)
class Answer:
    """Chosen columns in the order in which they run, and the bytes of its worst moment.

    `least_bytes`: no order of these columns needs less, as far as that is known.
    """

    columns: tuple[int, ...]
    peak_bytes: int
    least_bytes: int = 0

    def at(self, places: Ints) -> Answer:
        """The answer of a choice that was restricted to these places, in that one's numbers."""
        return replace(self, columns=tuple(places[list(self.columns)].tolist()))

    def among(self, places: Ints) -> Answer | None:
        """The opposite: None if it holds a column that is not among these, which ascend."""
        columns = _ints(self.columns)
        at = np.minimum(np.searchsorted(places, columns), max(len(places) - 1, 0))
        if len(columns) and (not len(places) or (places[at] != columns).any()):
            return None
        return replace(self, columns=tuple(at.tolist()))


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)
