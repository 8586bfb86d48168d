"""Extents in older files, which have no type for them: large numbers, explained by a table."""

from __future__ import annotations

import re
from typing import Any

from eqsat.model.extents import Atom, Floor, Terms, Unit, extent, extent_to_json

LEAST = 1 << 48  # no size in such a file was as large, every extent was larger
_TYPE = re.compile(r"\s*[a-z]\w*\s*\[[^\]]*\]\s*")  # of a tensor
_LARGE = re.compile(r"-?\d{15,}")


def of_today(data: Any, table: list[Any] | None) -> Any:
    """The data with the text of each extent in its place; the table lists them by their numbers.

    ValueError if it does not list all of them.
    """
    if not table:
        return data
    numbers = sorted(_large(data))
    if len(numbers) != len(table):
        raise ValueError(f"{len(numbers)} large numbers, of which {len(table)} are explained")
    found = [extent_to_json(extent(_terms(t))) for t in table]
    return _replaced(data, dict(zip(numbers, found, strict=True)))


def _large(data: Any) -> set[int]:
    if isinstance(data, dict):
        return _large(list(data.values()))
    if isinstance(data, list):
        return set().union(*map(_large, data))
    if isinstance(data, str):
        found = map(int, _LARGE.findall(data)) if _TYPE.fullmatch(data) else ()
        return {n for n in found if abs(n) >= LEAST}
    return {data} if isinstance(data, int) and abs(data) >= LEAST else set()


def _replaced(data: Any, known: dict[int, Any]) -> Any:
    if isinstance(data, dict):
        return {k: _replaced(v, known) for k, v in data.items()}
    if isinstance(data, list):
        return [_replaced(v, known) for v in data]
    if isinstance(data, str):
        is_type = _TYPE.fullmatch(data) is not None
        return _LARGE.sub(lambda m: _word(m[0], known), data) if is_type else data
    return known.get(data, data) if isinstance(data, int) else data


def _word(number: str, known: dict[int, Any]) -> str:
    found = known.get(int(number))
    return number if found is None else found["extent"]


def _terms(data: Any) -> Terms:
    return tuple((tuple(_atom(a) for a in atoms), factor) for atoms, factor in data)


def _atom(data: Any) -> Atom:
    first, second = data
    return Unit(first, second) if isinstance(first, str) else Floor(_terms(first), (((), second),))
