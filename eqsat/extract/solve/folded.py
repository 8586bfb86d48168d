"""The relaxation without an order once per block class: equal blocks share their multipliers.

Rows of the linear relaxation that are images of each other are added up, and so are the options:
a column stands for one option in all blocks where it has the same part in these sums. The least
value is a bound whatever is added up: fewer rows allow more. The first and the last of each chain
of images are kept apart, so on equal blocks nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from eqsat.extract.ragged import (
    Ints,
    Mask,
    Ragged,
    contains,
    counted,
    distinct,
    numbered_sets,
)
from eqsat.extract.solve.classes import Classes, FoldedTable
from eqsat.extract.solve.foldedneeds import FoldedNeeds, folded_needs
from eqsat.extract.solve.foldedpairs import PairClasses
from eqsat.extract.solve.freerows import largest_claims
from eqsat.extract.solve.freetable import useful
from eqsat.extract.solve.lp import LinearProgram, RowTable, solve_linear
from eqsat.extract.solve.relax import Relaxation, relaxation_of
from eqsat.model.cycles import give_back
from eqsat.model.deadline import tick

PAIRS = 1 << 18  # of options and pairs that are looked at at once


def presolved_rows(folded: FoldedTable) -> tuple[Ints, FoldedNeeds]:
    """Rows of which some answer may need one, ascending, and what those must have before them."""
    kept = useful(folded.coarse, np.ones(len(folded), dtype=bool))
    while True:
        small = folded.take(kept)
        known = folded_needs(small)
        found = useful(small.coarse, ~known.impossible)
        if len(found) == len(kept):
            return kept, known
        kept = kept[found]


def folded_relaxation(folded: FoldedTable, costs: Ints, known: FoldedNeeds) -> Relaxation | None:
    """Minimise the sum of costs, one per row; None if there is no solution."""
    rows, upper = _rows(folded, known)
    unit = int(np.gcd.reduce(costs, initial=0)) or 1
    goal = np.zeros(len(upper))
    goal[: len(folded)] = costs // unit
    give_back()
    solved = solve_linear(
        LinearProgram(goal, rows, np.zeros(len(upper)), upper.astype(float), is_plain=True)
    )
    return relaxation_of(solved, len(folded), unit)


# ---- rows ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Level:
    """Whether buffers (or values) are there: a variable per class, and per `apart` element.

    An element that is apart is of a class of several, but has a row to itself.
    """

    classes: Classes
    elements: Ints  # classes that have a variable, ascending
    write: tuple[Ints, Ints]  # (row, element)
    read: tuple[Ints, Ints]
    first: int  # of the variables
    upper: Ints  # per class that has one
    apart: Ints

    def variable(self, classes: Ints) -> Ints:
        """Of classes that have one."""
        return self.first + np.searchsorted(self.elements, classes)

    @cached_property
    def variables(self) -> Ints:
        """Of all elements that are apart."""
        return self.first + len(self.elements) + np.arange(len(self.apart))

    @cached_property
    def end(self) -> int:
        return self.first + len(self.elements) + len(self.apart)

    @cached_property
    def most(self) -> Ints:
        """Per variable: how large it may be; one element has no more than its class."""
        more = np.searchsorted(self.elements, self.classes.of[self.apart])
        return np.concatenate([self.upper, self.upper[more]])


def _rows(folded: FoldedTable, known: FoldedNeeds) -> tuple[RowTable, Ints]:
    """Rows over the columns and one more variable per level; how large each may be."""
    of_buffers = _of_buffers(folded)
    of_values = _of_values(folded, of_buffers.end)
    found = _sums(folded)
    for level in (of_buffers, of_values):
        tick()
        found.append(_supply(level))
        found.append(_claims(folded, known, level))
    upper = np.concatenate([folded.count, of_buffers.most, of_values.most])
    return RowTable.stacked(found), upper


def _sums(folded: FoldedTable) -> list[RowTable]:
    """What is written once at most, results once; what is computed; what only one may hold."""
    table = folded.table
    coarse, buffers, values = folded.coarse, folded.buffers, folded.values
    roots = np.bincount(buffers.of[table.roots], minlength=len(buffers.sizes))
    writers = coarse.writes.turned(len(buffers.sizes))
    holders = coarse.exclusive.turned(len(folded.numbers.sizes))
    made = (coarse.computes, table.needed), (coarse.serves, table.served)
    return [
        _between(writers, roots, buffers.sizes, (writers.counts > 1) | (roots > 0)),
        *(_needed(values, *pair) for pair in made),
        _between(holders, 0 * holders.counts, folded.numbers.sizes, holders.counts > 1),
    ]


def _needed(values: Classes, of: Ragged, asked: Ints) -> RowTable:
    """Per value that is asked for: an option that has it."""
    count = np.bincount(values.of[asked], minlength=len(values.sizes))
    most = np.full(len(count), np.inf)
    return _between(of.turned(len(count)), count, most, count > 0)


def _between(terms: Ragged, low: Ints, high: Ints, asked: Mask) -> RowTable:
    rows = np.flatnonzero(asked)
    low = np.where(low == 0, -np.inf, low)
    found = terms.take(rows)
    return RowTable(low[rows], high[rows].astype(float), found, np.ones(len(found.index)))


def _of_buffers(folded: FoldedTable) -> _Level:
    table, classes = folded.table, folded.buffers
    read = table.reads.rows, table.reads.index
    elements = distinct(classes.of[read[1]])
    written = table.writes.where(contains(elements, classes.of[table.writes.index]))
    upper = classes.sizes[elements]
    write = written.rows, written.index
    apart = _apart(folded, classes, *read)
    return _Level(classes, elements, write, read, len(folded), upper, apart)


def _of_values(folded: FoldedTable, first: int) -> _Level:
    """Whether some layout of a value is there: its first one is written by who computes it.

    Without values of which the rows would say no more than those of their only layout.
    """
    table, classes, span = folded.table, folded.values, folded.table.span
    read = table.reads.mapped(table.value_of).distinct()
    written = table.writes.mapped(table.value_of).distinct()
    is_first = ~contains(read.pairs(span), written.pairs(span))
    is_made = contains(table.computes.pairs(span), written.pairs(span))
    written = written.where(is_first & (is_made | table.is_source[written.index]))
    elements = distinct(classes.of[read.index])
    alone = _with_one_layout(folded, written)
    elements = elements[~contains(alone, elements)]
    sides = [r.where(contains(elements, classes.of[r.index])) for r in (written, read)]
    (write, is_read), count = sides, len(classes.sizes)
    most = np.bincount(classes.of[write.index], folded.count[write.rows], minlength=count)
    upper = np.maximum(most[elements], 1).astype(np.int64)
    (write_of, read_of) = ((r.rows, r.index) for r in (write, is_read))
    apart = _apart(folded, classes, *read_of)
    return _Level(classes, elements, write_of, read_of, first, upper, apart)


def _apart(folded: FoldedTable, classes: Classes, row: Ints, element: Ints) -> Ints:
    """Inner elements of chains whose readers hold a number that is at an end of its own."""
    held = folded.table.exclusive.take(row)
    read, number, numbers = element[held.rows], held.index, folded.numbers
    at_end = numbers.moves[number] & ~numbers.is_inner[numbers.of[number]]
    return distinct(read[at_end & classes.moves[read] & classes.is_inner[classes.of[read]]])


def _with_one_layout(folded: FoldedTable, first: Ragged) -> Ints:
    """Classes of values of one layout, all writers of which may be the first."""
    table, buffers = folded.table, folded.buffers
    used = distinct(np.concatenate([table.reads.index, table.writes.index]))
    value = folded.values.of[table.value_of[used]]
    span = len(buffers.sizes)
    layouts = distinct(value * span + buffers.of[used])
    values, counts = counted(layouts // span)
    only = values[counts == 1]
    count = len(folded.values.sizes)
    every = np.bincount(folded.values.of[table.value_of[table.writes.index]], minlength=count)
    may_be = np.bincount(folded.values.of[first.index], minlength=count)
    return only[every[only] == may_be[only]]


def _supply(level: _Level) -> RowTable:
    """A level is not more than its writers."""
    row, element = level.write
    classes, count = level.classes, len(level.elements)
    own = np.arange(count)
    more = level.variable(classes.of[level.apart]) - level.first
    at = level.variable(classes.of[element]) - level.first
    index = np.concatenate([level.first + own, level.variables, row])
    terms = Ragged.grouped(np.concatenate([own, more, at]), index, count)
    signs = np.where(terms.index >= level.first, 1.0, -1.0)
    return RowTable(np.full(count, -np.inf), np.zeros(count), terms, signs)


def _claims(folded: FoldedTable, known: FoldedNeeds, level: _Level) -> RowTable:
    """Who reads and holds a number is not chosen unless it is there; see `freerows._levels`.

    One row per class of pairs (element, number), and per option that holds no number.
    """
    row, element = level.read
    held = folded.table.exclusive.take(row)
    pairs = PairClasses.of(level.classes, folded.numbers, element[held.rows], held.index)
    reader, pair = row[held.rows], pairs.of_entry
    writer, needed, entry = _needing(folded, known, level, pairs)
    claims = Ragged.sets(
        np.concatenate([pair, needed]), np.concatenate([reader, writer]), len(pairs)
    )
    there = _there(folded, level, pairs, writer, needed, entry)
    alone = np.flatnonzero(folded.table.exclusive.counts[row] == 0)
    singles = Ragged(np.arange(len(alone) + 1), row[alone])
    claims = Ragged.stacked([claims, singles])
    there = Ragged.stacked([there, _every(level, level.classes.of[element[alone]])])
    times = np.concatenate([pairs.times, np.ones(len(alone), dtype=np.int64)])
    owner = numbered_sets(there) * 2 + (times > 1)
    left = largest_claims(claims, owner, len(folded))
    claims, there, times = claims.take(left), there.take(left), times[left]
    both = claims.joined(there)
    value = np.where(both.index < len(folded), 1.0, -times[both.rows])
    return RowTable(np.full(len(left), -np.inf), np.zeros(len(left)), both, value)


def _every(level: _Level, classes: Ints) -> Ragged:
    """Per class all variables of its elements, ascending."""
    of_apart = level.classes.of[level.apart]
    rows = np.searchsorted(level.elements, of_apart)
    own = Ragged(np.arange(len(level.elements) + 1), level.first + np.arange(len(level.elements)))
    more = Ragged.grouped(rows, level.variables, len(level.elements))
    return own.joined(more).take(np.searchsorted(level.elements, classes))


def _there(
    folded: FoldedTable, level: _Level, pairs: PairClasses, writer: Ints, needed: Ints, entry: Ints
) -> Ragged:
    """Per pair: variables of the elements that are in pairs of its class, or which a writer has.

    Of an end of a chain of numbers, that is one element.
    """
    every = _every(level, pairs.element_class)
    pair, variable = every.rows, every.index
    is_there = ~pairs.is_single[pair]
    own = np.flatnonzero(variable >= level.first + len(level.elements))
    apart = level.apart[variable[own] - level.first - len(level.elements)]
    is_there[own] = pairs.has(pair[own], apart)
    # options in several blocks write elements of pairs that are of another class, too
    several = np.flatnonzero(folded.count[writer] > 1)
    asked = Ragged.grouped(pair[own], np.arange(len(own)), len(pairs)).take(needed[several])
    at, by = asked.index, several[asked.rows]
    blocks = level.classes.place[apart[at]] - level.classes.place[entry[by]]
    is_there[own[at[folded.is_there(writer[by], blocks)]]] = True
    return every.where(is_there)


def _needing(
    folded: FoldedTable, known: FoldedNeeds, level: _Level, pairs: PairClasses
) -> tuple[Ints, Ints, Ints]:
    """(row, pair, element): who writes the element, and needs somebody to hold the number."""
    row, element = level.write
    asked, own = pairs.element_class, level.classes.of[element]
    begin, end = np.searchsorted(asked, own), np.searchsorted(asked, own, side="right")
    found = []
    for some in _parts(end - begin):
        tick()
        entry = some[0] + np.repeat(np.arange(some[1] - some[0]), (end - begin)[slice(*some)])
        first = np.cumsum((end - begin)[slice(*some)]) - (end - begin)[slice(*some)]
        which = np.arange(len(entry)) - (first - begin[slice(*some)])[entry - some[0]]
        place = level.classes.place[element[entry]] + pairs.blocks[which]
        holds = known.ask(row[entry], pairs.number_class[which], place, pairs.both_move[which])
        entry, which = entry[holds], which[holds]
        is_asked = pairs.has(which, element[entry])
        is_asked &= ~(pairs.is_single[which] & (folded.count[row[entry]] > 1))
        found.append((entry[is_asked], which[is_asked]))
    entry, which = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return row[entry], which, element[entry]


def _parts(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of rows of about so many pairs each; one at least."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    cuts = distinct(np.searchsorted(ends, np.arange(PAIRS, total, PAIRS))).tolist()
    yield from pairwise([0, *(c for c in cuts if c), len(sizes)])
