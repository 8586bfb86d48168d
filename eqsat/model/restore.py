"""Records from plain data, by the declared types of their fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
# what JSON may have for a plain type: a float with no fraction is written as a whole number
_PLAIN: dict[Any, Any] = {int: int, float: (int, float), str: str, bool: bool}


def restored(kind: type[T], data: Mapping[str, Any] | Sequence[Any]) -> T:
    """A dataclass or named tuple from its fields by name, or from the first of them in order.

    What is left out keeps its default. Fields are restored as their types say: tuples of what they
    name, records by their own `from_json` where they have one. TypeError for a value that its field
    cannot have.
    """
    names = _fields(kind)
    values = data if isinstance(data, Mapping) else dict(zip(names, data, strict=False))
    return kind(**{k: _value(names[k], v) for k, v in values.items()})


def _value(hint: Any, data: Any) -> Any:
    """Data as a field of this type has it."""
    if data is None:
        if not _may_be_none(hint):
            raise TypeError("a value is missing")
        return None
    hint = _without_none(hint)
    if hint in _PLAIN:
        return as_plain(hint, data)
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    if isinstance(hint, type) and _fields(hint):
        return restored(hint, data)
    if isinstance(data, Mapping) and get_origin(hint) is tuple:  # pairs, written as a mapping
        data = list(data.items())
    if not isinstance(data, list | tuple):
        if get_origin(hint) is tuple:
            raise TypeError(f"{data!s:.60} is no list")
        return data
    if get_origin(hint) is dict:
        raise TypeError("a list, and no keys with values")
    inner = get_args(hint)
    if ... in inner or not inner:
        inner = (inner[0] if inner else None,) * len(data)
    if len(inner) != len(data):
        raise TypeError(f"{len(data)} values for {len(inner)}")
    return tuple(map(_value, inner, data))


def as_plain(hint: type[T], data: Any) -> Any:
    """Text, a truth or a number of this type; TypeError if it is something else."""
    if not isinstance(data, _PLAIN[hint]) or (isinstance(data, bool) and hint is not bool):
        raise TypeError(f"{data!s:.60} is no {hint.__name__}")
    return data


def _may_be_none(hint: Any) -> bool:
    return hint in (Any, None, object) or NoneType in get_args(hint)


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
