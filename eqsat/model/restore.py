"""Records from plain data, by the declared types of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def restored(kind: type[T], data: Mapping[str, Any] | Sequence[Any]) -> T:
    """A dataclass or named tuple from its fields by name, or from the first of them in order.

    What is left out keeps its default. Fields are restored as their types say: tuples of what they
    name, records by their own `from_json` where they have one.
    """
    names = _fields(kind)
    values = data if isinstance(data, Mapping) else dict(zip(names, data, strict=False))
    return kind(**{k: _value(names[k], v) for k, v in values.items()})


def _value(hint: Any, data: Any) -> Any:
    hint = _without_none(hint)
    if data is None:
        return None
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    if isinstance(hint, type) and _fields(hint):
        return restored(hint, data)
    if isinstance(data, Mapping) and get_origin(hint) is tuple:  # pairs, written as a mapping
        data = list(data.items())
    if not isinstance(data, list | tuple):
        return data
    inner = get_args(hint)
    if len(inner) != len(data) or ... in inner:
        inner = (inner[0] if inner else None,) * len(data)
    return tuple(map(_value, inner, data))


def _without_none(hint: Any) -> Any:
    """Of `X | None`, X."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [k for k in get_args(hint) if k is not NoneType]
        return kinds[0] if len(kinds) == 1 else None
    return hint


@cache
def _fields(kind: type) -> dict[str, Any]:
    """Names and types of the fields of a dataclass or named tuple; none of other types."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {f.name: hints[f.name] for f in fields(kind)}
    return get_type_hints(kind) if hasattr(kind, "_fields") else {}
