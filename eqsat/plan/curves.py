"""Orders of the blocks of a grid: row by row, or along a curve that fills the plane.

Along a curve (Morton 1966; Hilbert 1891) blocks that follow each other share rows or columns at
every scale, so whatever a cache holds, part of what it fetched is used again. What lies between
two uses is counted, as by a cache that drops what was used least recently.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

ROWS, MORTON, HILBERT = "rows", "morton", "hilbert"
ORDERS = (ROWS, MORTON, HILBERT)


class Reuse(NamedTuple):
    """So many uses of a row (or column), between which others lay since the one before."""

    uses: int
    rows: float
    columns: float


@lru_cache(maxsize=100)
def visits(order: str, rows: int, columns: int) -> Sequence[int]:
    """The blocks of a grid, numbered row by row, in an order.

    >>> visits("morton", 2, 3), visits("hilbert", 2, 3)
    ((0, 1, 3, 4, 2, 5), (0, 3, 4, 5, 2, 1))
    """
    if order == MORTON:
        grid = ((r, c) for r in range(rows) for c in range(columns))
        cells: Iterator[tuple[int, int]] = iter(sorted(grid, key=lambda x: _interleaved(*x)))
    elif order == HILBERT:
        wide = columns > rows
        cells = _hilbert(
            (0, 0), (0, columns) if wide else (rows, 0), (rows, 0) if wide else (0, columns)
        )
    else:
        return range(rows * columns)
    return tuple(r * columns + c for r, c in cells)


def _interleaved(row: int, column: int) -> int:
    """The bits of both numbers by turns."""
    bits = range(max(row, column).bit_length())
    return sum((row >> i & 1) << 2 * i + 1 | (column >> i & 1) << 2 * i for i in bits)


Step = tuple[int, int]


def _hilbert(at: Step, along: Step, across: Step) -> Iterator[Step]:
    """Blocks of a rectangle of any sides, from a corner to the other end of `along`.

    Each is next to the one before, but where an odd side forces a diagonal.
    """
    length, width = (abs(x + y) for x, y in (along, across))
    step, aside = ((_sign(x), _sign(y)) for x, y in (along, across))
    if width == 1 or length == 1:
        line = step if width == 1 else aside
        yield from (_moved(at, line, i) for i in range(max(length, width)))
        return
    half, part = ((x // 2, y // 2) for x, y in (along, across))
    if 2 * length > 3 * width:  # two, one behind the other
        if abs(sum(half)) % 2 and length > 2:
            half = _moved(half, step)
        yield from _hilbert(at, half, across)
        yield from _hilbert(_moved(at, half), _moved(along, half, -1), across)
        return
    if abs(sum(part)) % 2 and width > 2:
        part = _moved(part, aside)
    yield from _hilbert(at, part, half)
    yield from _hilbert(_moved(at, part), along, _moved(across, part, -1))
    last = _moved(_moved(_moved(at, along), step, -1), _moved(part, aside, -1))
    yield from _hilbert(last, _moved((0, 0), part, -1), _moved(half, along, -1))


def _sign(n: int) -> int:
    return (n > 0) - (n < 0)


def _moved(at: Step, by: Step, times: int = 1) -> Step:
    return at[0] + times * by[0], at[1] + times * by[1]


@lru_cache(maxsize=100)
def reuses(order: str, rows: int, columns: int) -> tuple[tuple[Reuse, ...], tuple[Reuse, ...]]:
    """Uses of rows and of columns after the first ones; those of one power of two together.

    >>> reuses("rows", 2, 3)
    ((Reuse(uses=4, rows=1.0, columns=1.0),), (Reuse(uses=3, rows=1.0, columns=3.0),))
    """
    recent: tuple[list[int], list[int]] = ([], [])  # times of last uses, ascending
    last: tuple[dict[int, int], dict[int, int]] = ({}, {})
    found: tuple[dict[int, list[Step]], ...] = (defaultdict(list), defaultdict(list))
    for time, cell in enumerate(visits(order, rows, columns)):
        lines = divmod(cell, columns)
        before = [last[side].get(line) for side, line in enumerate(lines)]
        for side, since in enumerate(before):
            if since is not None:
                between = [len(x) - bisect_left(x, since) for x in recent]
                found[side][sum(between).bit_length()].append((between[0], between[1]))
        for side, (line, since) in enumerate(zip(lines, before, strict=True)):
            if since is not None:
                del recent[side][bisect_left(recent[side], since)]
            last[side][line] = time
            recent[side].append(time)
    of_rows, of_columns = (tuple(_together(some) for _, some in sorted(x.items())) for x in found)
    return of_rows, of_columns


def _together(some: list[Step]) -> Reuse:
    n = len(some)
    return Reuse(n, sum(r for r, _ in some) / n, sum(c for _, c in some) / n)
