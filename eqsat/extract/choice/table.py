"""Rows as arrays, what they are about, and how they are collected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.extract.ragged import Ints, Ragged

NOBODY = -(1 << 40)  # in place of who claims, in rows that are no claims
Key = tuple[str, int, int]


@dataclass(frozen=True)
class RowTable:
    """low <= Σ value · variable <= high, row by row."""

    low: np.ndarray
    high: np.ndarray
    terms: Ragged
    value: np.ndarray  # per term

    def matrix(self, variables: int) -> Any:
        from scipy.sparse import csr_matrix

        parts = (self.value, self.terms.index, self.terms.start)
        found = csr_matrix(parts, shape=(len(self.low), variables), dtype=float, copy=True)
        found.sum_duplicates()  # in place
        return found

    @staticmethod
    def stacked(parts: Sequence[RowTable]) -> RowTable:
        """One below the other."""
        return RowTable(
            np.concatenate([p.low for p in parts]),
            np.concatenate([p.high for p in parts]),
            Ragged.stacked([p.terms for p in parts]),
            np.concatenate([p.value for p in parts]),
        )


@dataclass(frozen=True)
class KeyedRows:
    """Rows, and what each is about: a buffer, value or number, and who claims it."""

    name: str
    about: Ints
    who: Ints
    table: RowTable

    @staticmethod
    def of(name: str, about: Ints, table: RowTable, who: Ints | None = None) -> KeyedRows:
        return KeyedRows(name, about, np.full(len(about), NOBODY) if who is None else who, table)

    def __iter__(self) -> Iterator[Key]:
        for about, who in zip(self.about.tolist(), self.who.tolist(), strict=True):
            yield self.name, about, who


@dataclass
class RowList:
    """low <= Σ coefficient · variable <= high, collected row by row."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    start: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def add(self, low: float, high: float, plus: Iterable[int], minus: Iterable[int] = ()) -> None:
        """low <= Σ plus - Σ minus <= high."""
        self.index += plus
        self.value += [1.0] * (len(self.index) - len(self.value))
        self.index += minus
        self.value += [-1.0] * (len(self.index) - len(self.value))
        self.start.append(len(self.index))
        self.low.append(low)
        self.high.append(high)

    def table(self) -> RowTable:
        terms = Ragged(np.array(self.start), np.array(self.index, dtype=np.int64))
        return RowTable(np.array(self.low), np.array(self.high), terms, np.array(self.value))


def sums(terms: Ragged, low: float, high: float) -> RowTable:
    """low <= Σ terms <= high, row by row."""
    count = len(terms)
    sides = np.full(count, low, dtype=float), np.full(count, high, dtype=float)
    return RowTable(*sides, terms, np.ones(len(terms.index)))


def at_most(plus: Ragged, minus: Ragged) -> RowTable:
    """Σ plus - Σ minus <= 0, row by row."""
    rows = np.concatenate([plus.rows, minus.rows])
    order = np.argsort(rows, kind="stable")
    signs = np.concatenate([np.ones(len(plus.index)), -np.ones(len(minus.index))])
    terms = Ragged(plus.start + minus.start, np.concatenate([plus.index, minus.index])[order])
    sides = np.full(len(plus), -math.inf), np.zeros(len(plus))
    return RowTable(*sides, terms, signs[order])
