"""Columns that are one kernel: of each kind one is planned.

Behind one op `Borders` leaves one group of each kind. But a buffer has as many ops that make it as
layouts lead to it, and merges join what is behind several ops. So columns are compared as well: of
those that read and write the same buffers and compute the same values by the same bodies, that of
fewest conversions stands for its kernel (`borders.py` says what is not claimed).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from eqsat.extract.candidates.dominance import OTHERS
from eqsat.extract.candidates.sources import CandidateTable
from eqsat.extract.candidates.space import MOVING, Space
from eqsat.extract.choice.columns import Columns
from eqsat.extract.ragged import Ints, Ragged, numbered_sets
from eqsat.model.generic import Generic

SETS = ("reads", "resident", "writes", "exclusive", "computes")


def one_of_each_kernel(space: Space, table: Columns, candidates: CandidateTable) -> Ints:
    """Rows to keep, ascending.

    Columns of the input program stay, and so do those that have a time.
    """
    members = candidates.columns["members"].take(table.candidate)
    bodies = _counted_bodies(space, members)
    sides = [*(getattr(table, name) for name in SETS), bodies]
    sides += [_single(column) for column in table.adds[:, OTHERS:].T]
    kernel = numbered_sets(_joined(sides))
    is_own = np.array(space.is_own)[members.index]
    stays = members.all(is_own) | table.is_asked
    kernel = np.where(stays, len(table) + np.arange(len(table)), kernel)
    is_conversion = np.array([k == "conversion" for k in space.kinds])
    conversions = members.sums(is_conversion[members.index].astype(np.int64))
    order = np.lexsort((members.counts, conversions, kernel))
    first = np.concatenate([[True], kernel[order][1:] != kernel[order][:-1]])
    return np.sort(order[first[: len(order)]])


def _counted_bodies(space: Space, members: Ragged) -> Ragged:
    """Per column: what its members compute, with how often it has computed that before."""
    numbers: dict[Hashable, int] = {}
    of = np.array(
        [
            -1 if kind in MOVING else numbers.setdefault(_body(n.op, n.attr), len(numbers))
            for n, kind in zip(space.egraph.nodes, space.kinds, strict=True)
        ],
        dtype=np.int64,
    )
    computing = members.where(of[members.index] >= 0)
    rows, body = computing.rows, of[computing.index]
    order = np.lexsort((body, rows))
    rows, body = rows[order], body[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (body[1:] != body[:-1])
    first = np.flatnonzero(begins)
    before = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    span = int(before.max(initial=0)) + 1
    return Ragged.sets(rows, body * span + before, len(members))


def _body(op: str, attr: object) -> Hashable:
    return op, attr.yields if isinstance(attr, Generic) else None


def _single(column: Ints) -> Ragged:
    """A row of one number per column: equal for equal values."""
    _, number = np.unique(column, return_inverse=True)
    return Ragged(np.arange(len(column) + 1), number.astype(np.int64))


def _joined(sides: list[Ragged]) -> Ragged:
    """Row by row the numbers of all, apart from each other."""
    span = 1 + max(int(s.index.max(initial=0)) for s in sides)
    rows = np.concatenate([s.rows for s in sides])
    index = np.concatenate([s.index + k * span for k, s in enumerate(sides)])
    return Ragged.sets(rows, index, len(sides[0]))
