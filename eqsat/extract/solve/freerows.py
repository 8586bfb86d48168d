"""The linear relaxation of the problem without an order: its rows as arrays (see `supply`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.extract.blocks import TWO
from eqsat.extract.ragged import Ints, Ragged, distinct
from eqsat.extract.solve.blockrows import KeyedRows, summed_over_blocks
from eqsat.extract.solve.freeentries import of_values
from eqsat.extract.solve.freetable import FreeTable, NeedTable, needed_numbers
from eqsat.extract.solve.lp import LinearProgram, RowTable, solve_linear
from eqsat.extract.solve.relax import Relaxation, relaxation_of
from eqsat.model.deadline import tick


def free_relaxation(
    table: FreeTable,
    linear: Sequence[str],
    weights: Mapping[str, int],
    caps: Mapping[str, int] | None = None,
) -> Relaxation | None:
    """Minimise Σ weight · goal over the linear goals, under caps on such; None: no solution.

    If the deadline it is under ends the LP solver, the bound is the trivial one; OutOfTime if there
    is no time to state it.
    """
    caps = caps or {}
    costs = sum((table.adds[:, linear.index(g)] * w for g, w in weights.items()), start=0)
    costs = np.broadcast_to(np.asarray(costs, dtype=np.int64), (len(table),))
    known = needed_numbers(table)
    rows, upper = _rows(table, known)
    limits = [(table.adds[:, linear.index(g)], cap) for g, cap in caps.items()]
    blocks = [rows, *(_limit(_each(table, of), cap) for of, cap in limits)]
    costs = _each(table, costs)
    unit = math.gcd(*np.unique(costs).tolist()) or 1
    goal = np.zeros(len(upper))
    goal[: len(table)] = costs / unit
    low = np.zeros(len(upper))
    solved = solve_linear(LinearProgram(goal, RowTable.stacked(blocks), low, upper, not caps))
    return relaxation_of(solved, len(table), unit)


def _each(table: FreeTable, adds: Ints) -> Ints:
    """What an option adds in one of the blocks in which it is there."""
    blocks = table.blocks
    return adds if blocks is None else adds // np.where(blocks.last == TWO, blocks.count, 1)


def _limit(of: Ints, cap: int) -> RowTable:
    """Σ of · option <= cap, scaled to the size of the other rows."""
    size = float(of.max(initial=0)) or 1.0
    used = np.flatnonzero(of)
    terms = Ragged(np.array([0, len(used)]), used)
    return RowTable(np.array([-math.inf]), np.array([cap / size]), terms, of[used] / size)


def _rows(table: FreeTable, known: NeedTable) -> tuple[RowTable, np.ndarray]:
    """Rows over options and one more variable per level (see `supply`); how large each may be.

    A level is how many of its writers are chosen: of a buffer one at most.
    """
    found = [KeyedRows.of("root", table.roots, _sums(table.writers.take(table.roots), 1, 1))]
    for name, of, values in (
        ("needed", table.computes, table.needed),
        ("served", table.serves, table.served),
    ):
        rows = _sums(of.turned(table.span).take(values), 1, math.inf)
        found.append(KeyedRows.of(name, values, rows))
    found += _exclusions(table)
    tick()
    count, upper, owned = len(table), [np.ones(len(table))], []
    for name, of in (("buffer", _of_buffers), ("value", of_values)):
        tick()
        owners, *sides = of(table)
        writers, claims, owner, who = _levels(table, known, *sides)
        level = count + np.arange(len(writers))
        rows = _at_most(Ragged(np.arange(len(level) + 1), level), writers)
        found.append(KeyedRows.of(f"{name} level", owners, rows))
        rows = _at_most(claims, Ragged(np.arange(len(claims) + 1), level[owner]))
        found.append(KeyedRows.of(f"{name} claim", owners[owner], rows, who))
        upper.append(np.maximum(writers.counts, 1) if of is of_values else np.ones(len(level)))
        owned.append(owners)
        count += len(level)
    most = np.concatenate(upper)
    if table.blocks is None:
        return RowTable.stacked([rows.table for rows in found]), most
    return summed_over_blocks(table.blocks, found, np.concatenate(owned), most)


def _sums(terms: Ragged, low: float, high: float) -> RowTable:
    count = len(terms)
    sides = np.full(count, low, dtype=float), np.full(count, high, dtype=float)
    return RowTable(*sides, terms, np.ones(len(terms.index)))


def _at_most(plus: Ragged, minus: Ragged) -> RowTable:
    """Σ plus - Σ minus <= 0, row by row."""
    rows = np.concatenate([plus.rows, minus.rows])
    order = np.argsort(rows, kind="stable")
    signs = np.concatenate([np.ones(len(plus.index)), -np.ones(len(minus.index))])
    terms = Ragged(plus.start + minus.start, np.concatenate([plus.index, minus.index])[order])
    sides = np.full(len(plus), -math.inf), np.zeros(len(plus))
    return RowTable(*sides, terms, signs[order])


def _exclusions(table: FreeTable) -> list[KeyedRows]:
    """Sets of options of which at most one is chosen."""
    numbers = distinct(table.exclusive.index)
    dense = Ragged(table.exclusive.start, np.searchsorted(numbers, table.exclusive.index))
    holders = dense.turned(len(numbers))
    is_root = np.zeros(table.span, dtype=bool)
    is_root[table.roots] = True
    least = 1 if table.blocks is None else 0  # rows of one option have partners of several
    several = np.flatnonzero(holders.counts > least)
    buffers = np.flatnonzero((table.writers.counts > least) & ~is_root)
    return [
        KeyedRows.of("number", numbers[several], _sums(holders.take(several), -math.inf, 1)),
        KeyedRows.of("written", buffers, _sums(table.writers.take(buffers), -math.inf, 1)),
    ]


# ---- levels: (writers, claims, whose claims they are, who claims) --------------------------------
Levels = tuple[Ragged, Ragged, Ints, Ints]


def _of_buffers(table: FreeTable) -> tuple[Ints, Ragged, Ragged]:
    """Buffers somebody reads: who writes each, one of them at most, and who reads it."""
    is_read = table.readers.counts > 0
    if table.blocks is not None:  # the level of the same buffer one block later as well
        later = table.blocks.buffer[is_read]
        is_read[later[later >= 0]] = True
    buffers = np.flatnonzero(is_read)
    return buffers, table.writers.take(buffers), table.readers.take(buffers)


def _levels(table: FreeTable, known: NeedTable, writers: Ragged, readers: Ragged) -> Levels:
    """Whether something is there that some write and others read.

    Of readers that hold one number at most one is chosen.

    None of them is chosen together with a writer that needs somebody else to hold it. Who claims is
    a number, or an option, as -1 - option.
    """
    owner, number, option = _holding(table, readers)
    span = int(table.exclusive.index.max(initial=0)) + 1
    pairs = distinct(owner * span + number)
    of, held = pairs // span, pairs % span
    others = writers.take(of)
    more = others.where(known.ask(others.index, held[others.rows]))
    keys = np.concatenate([owner * span + number, pairs[more.rows]])
    claim = np.searchsorted(pairs, keys)
    claims = Ragged.grouped(claim, np.concatenate([option, more.index]), len(pairs))
    claims, owners, who = _with_singles(table, readers, claims, of, held)
    left = largest_claims(claims, owners, len(table))
    return writers, claims.take(left), owners[left], who[left]


def _holding(table: FreeTable, readers: Ragged) -> tuple[Ints, Ints, Ints]:
    """(row, exclusive number, option) of all readers of these rows."""
    held = table.exclusive.take(readers.index)
    return readers.rows[held.rows], held.index, readers.index[held.rows]


def _with_singles(
    table: FreeTable, readers: Ragged, claims: Ragged, owners: Ints, numbers: Ints
) -> tuple[Ragged, Ints, Ints]:
    """And every reader that holds no number, alone."""
    alone = np.flatnonzero(table.exclusive.counts[readers.index] == 0)
    options = readers.index[alone]
    singles = Ragged(np.arange(len(alone) + 1), options)
    owners = np.concatenate([owners, readers.rows[alone]])
    return Ragged.stacked([claims, singles]), owners, np.concatenate([numbers, -1 - options])


def largest_claims(claims: Ragged, owners: Ints, options: int) -> Ints:
    """Claims that no other one of the same owner contains, ascending."""
    from scipy.sparse import csr_matrix

    if not len(claims):
        return np.arange(0)
    keys = owners[claims.rows] * options + claims.index
    columns = distinct(keys)
    parts = np.ones(len(keys), dtype=np.int32), np.searchsorted(columns, keys), claims.start
    matrix = csr_matrix(parts, shape=(len(claims), len(columns)))
    tick()
    common = (matrix @ matrix.T).tocoo()
    i, j, sizes = common.row, common.col, claims.counts
    larger = (sizes[j] > sizes[i]) | ((sizes[j] == sizes[i]) & (j < i))
    gone = i[(common.data == sizes[i]) & larger]
    kept = np.ones(len(claims), dtype=bool)
    kept[gone] = False
    return np.flatnonzero(kept)
