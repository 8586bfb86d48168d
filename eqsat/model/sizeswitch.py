"""Size switch: which of several programs runs at which sizes of a symbol, and what proves it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from eqsat.model.diag import fail
from eqsat.model.files import restored
from eqsat.model.symbols import LARGEST

Values = tuple[int, ...]  # of the goals, in their order; () of a program that is not legal there
_SIZES = re.compile(r"\s*([^=]+?)\s*=\s*(\d{1,13})\s*\.\.\s*(\d{1,13})\s*(?::\s*(\d{1,13})\s*)?")


def read_sizes(text: str) -> tuple[str, range]:
    """`m=1..1024`, or `m=16..1024:16` for multiples of 16; EqsatError E429."""
    match = _SIZES.fullmatch(text)
    if match is None:
        why = f"`{text}` is no range of sizes"
        raise fail("E429", why, help="write `m=1..1024`, or `m=16..1024:16` for multiples of 16")
    first, last, step = (int(x or 1) for x in match.groups()[1:])
    return match[1], multiples(text, range(first, last + 1), step)


def multiples(text: str, sizes: range, step: int) -> range:
    """The multiples of `step` among sizes; EqsatError E429 if there is none, or one is too large.

    text: the range as it was asked for.
    """
    step = math.lcm(step, sizes.step)
    first = -(-max(sizes.start, 1) // step) * step if step else 0
    found = range(first, sizes.stop, step) if step else range(0)
    if not found or found[-1] > LARGEST:
        of = "" if step == 1 else f" that is a multiple of {step}"
        why = f"`{text}` holds no size{of}" if not found else f"`{text}` ends above {LARGEST}"
        raise fail("E429", why, help="the first size comes first: `m=1..1024`")
    return found


@dataclass(frozen=True)
class SizeRange:
    """Sizes from first to last at which this program (its number) runs."""

    first: int
    last: int
    program: int


@dataclass(frozen=True)
class SizeSearch:
    """A search at one size: the values of its answer, and whether its first goal has no better."""

    size: int
    values: Values
    is_proven: bool


@dataclass(frozen=True)
class BreakEven:
    """Two neighbouring sizes and the programs on both sides, each priced at both sizes.

    values: per size those of (before, after). proven: per size whether a search there proves that
    no program is better than the one that runs by more than `within`.
    """

    sizes: tuple[int, int]
    programs: tuple[int, int]
    values: tuple[tuple[Values, ...], ...]
    proven: tuple[bool, ...]


@dataclass(frozen=True)
class SizeSwitch:
    """The programs of all sizes of a symbol.

    within: by how much, at most, a program that runs is worse than the best known (0.01 = 1 %).
    prices: at each size that was priced, the values of every program. searches: ascending sizes.
    """

    symbol: str
    sizes: tuple[int, int, int]  # first, last, step
    goals: tuple[str, ...]
    within: float
    ranges: tuple[SizeRange, ...]
    searches: tuple[SizeSearch, ...]
    prices: tuple[tuple[int, tuple[Values, ...]], ...]

    def program_at(self, size: int) -> int:
        """The number of the program of a size; EqsatError E386 if it is none of these sizes."""
        first, last, step = self.sizes
        if size not in range(first, last + 1, step):
            every = f", multiples of {step}" if step > 1 else ""
            why = f"`{self.symbol}` = {size} is not one of the sizes {first}..{last}{every}"
            raise fail("E386", why, help="search a switch for it: `eqsat switch … --sizes`")
        return self.ranges[bisect_right(self.ranges, size, key=lambda r: r.first) - 1].program

    def break_evens(self) -> Iterator[BreakEven]:
        """Where another program begins to run."""
        prices = dict(self.prices)
        for a, b in pairwise(self.ranges):
            ends, pair = (a.last, b.first), (a.program, b.program)
            values = tuple(tuple(prices[size][p] for p in pair) for size in ends)
            proven = tuple(self._is_proven(ends[i], values[i][i]) for i in range(2))
            yield BreakEven(ends, pair, values, proven)

    def _is_proven(self, size: int, values: Values) -> bool:
        """Whether a search at this size proves that nothing is better by more than `within`."""
        searched = next((s for s in self.searches if s.size == size), None)
        if searched is None or not searched.is_proven:
            return False
        return values[0] <= searched.values[0] * (1 + self.within)

    def to_json(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self), "break_evens": [asdict(b) for b in self.break_evens()]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SizeSwitch:
        return restored(cls, {k: v for k, v in data.items() if k not in ("format", "break_evens")})


def chosen_programs(prices: Sequence[Sequence[Values]], within: float) -> list[int]:
    """Per size the number of a program: with the fewest changes, and of those the best ones.

    prices: per size the values of every program, at least one of which is legal.
    """
    costs: list[tuple[float, float]] = [(0, 0)] * len(prices[0])  # changes, what is lost in all
    came: list[list[int]] = []  # per size and program: the one before it
    for row in prices:
        best = min(v for v in row if v)
        first = min(range(len(costs)), key=costs.__getitem__)
        changed = costs[first][0] + 1, costs[first][1]
        came.append([p if c <= changed else first for p, c in enumerate(costs)])
        costs = [
            _with_loss(min(c, changed), values, best, within)
            for c, values in zip(costs, row, strict=True)
        ]
    chosen = [min(range(len(costs)), key=costs.__getitem__)]
    for before in reversed(came[1:]):
        chosen.append(before[chosen[-1]])
    return chosen[::-1]


def _with_loss(
    cost: tuple[float, float], values: Values, best: Values, within: float
) -> tuple[float, float]:
    """The cost of running this program at one more size; infinite where it is not good enough."""
    if not values or (values[0] > best[0] * (1 + within) if within else values != best):
        return math.inf, 0.0
    return cost[0], cost[1] + values[0] / max(best[0], 1)
