"""Indexing maps: an affine expression over the loops for every dim of an operand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from eqsat.model.extents import Symbols, extent_from_json, extent_to_json


class Affine(NamedTuple):
    """One result of an indexing map: `constant + Σ stride · dim`, dims ascending.

    A named tuple, as maps are looked up by value wherever generics are made.
    """

    terms: tuple[tuple[int, int], ...]  # (loop, stride), stride ≠ 0
    constant: int = 0

    @property
    def dim(self) -> int | None:
        """The loop if this is a bare dim expression, else None."""
        terms, constant = self
        if constant == 0 and len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        return None

    def rename(self, loops: dict[int, int] | list[int]) -> Affine:
        """The expression over renumbered loops."""
        return Affine(tuple(sorted((loops[d], s) for d, s in self.terms)), self.constant)

    def to_json(self) -> Any:
        terms = [[d, extent_to_json(s)] for d, s in self.terms]
        return {"terms": terms, "constant": extent_to_json(self.constant)}

    @classmethod
    def from_json(cls, data: Any, symbols: Symbols) -> Affine:
        terms = tuple((d, extent_from_json(s, symbols)) for d, s in data["terms"])
        return cls(terms, extent_from_json(data["constant"], symbols))

    def __str__(self) -> str:
        parts = [f"d{d}" if s == 1 else f"{s}*d{d}" for d, s in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


@lru_cache(maxsize=1_000)
def dim(d: int) -> Affine:
    """The loop as it is."""
    return Affine(((d, 1),))


def affine(terms: list[tuple[int, int]], constant: int = 0) -> Affine:
    """Sum up strides per loop and drop zeros."""
    total: dict[int, int] = {}
    for d, s in terms:
        total[d] = total.get(d, 0) + s
    return Affine(tuple(sorted((d, s) for d, s in total.items() if s)), constant)


Map = tuple[Affine, ...]


def maps_from_json(data: Any, symbols: Symbols) -> tuple[Map, ...]:
    """Indexing maps as `Attr.to_json` writes them."""
    return tuple(tuple(Affine.from_json(e, symbols) for e in m) for m in data)


def map_loops(m: Iterable[Affine]) -> set[int]:
    """The loops that a map, or other indices, name."""
    return {d for e in m for d, _ in e.terms}
