"""Keys and values of a target in the words and units of its YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from eqsat.model.target import Tile
from eqsat.report.formatting import bytes_text, elided, time_text

LONGEST = 60  # characters of a value
_WORDS = {"copy_rate": "copy", "mesh_links": "links"}
_GIGA = 1e9
_PER_SECOND = ("bandwidth", "copy", "relayout")  # bytes


def key_word(key: str) -> str:
    """A field of a target as the key of its file: `limits.scratch_bytes` is `limits.scratch`."""
    parts = [p.removesuffix("_ps").removesuffix("_bytes") for p in key.split(".")]
    return ".".join(_WORDS.get(p, p) for p in parts)


def setting_text(key: str, value: Any) -> str:
    """A value of a target as its file has it: `500 ns`, `108 GFLOP/s`, `[fill, broadcast]`."""
    return elided(_text(key, value), LONGEST)


def in_yaml_words(key: str, a: Any, b: Any) -> Iterator[tuple[str, str, str]]:
    """(key, value in a, value in b) of what differs; of memory levels and the like one by one."""
    named = [_by_name(side) for side in (a, b)]
    if not all(named):
        yield key_word(key), setting_text(key, a), setting_text(key, b)
        return
    before, after = named
    for name in dict.fromkeys((*before, *after)):
        x, y = before.get(name), after.get(name)
        if x is None or y is None:
            a_has, b_has = ("–" if side is None else _record_text(side) for side in (x, y))
            yield f"{key_word(key)}.{name}", a_has, b_has
            continue
        for f in fields(x):
            old, new = getattr(x, f.name), getattr(y, f.name)
            if old != new:
                yield (
                    f"{key_word(key)}.{name}.{key_word(f.name)}",
                    setting_text(f.name, old), setting_text(f.name, new),
                )  # fmt: skip


def _by_name(value: Any) -> dict[str, Any]:
    """The records of a list that have a name each; empty if it is none of these."""
    if not isinstance(value, tuple) or not all(
        is_dataclass(v) and hasattr(v, "name") for v in value
    ):
        return {}
    return {v.name: v for v in value}


def _record_text(record: Any) -> str:
    """`size 1 MiB, bandwidth 90 GB/s`."""
    told = [(f.name, getattr(record, f.name)) for f in fields(record) if f.name != "name"]
    texts = [f"{key_word(k)} {_text(k, v)}" for k, v in told if v not in (None, False, ())]
    return elided(", ".join(texts), LONGEST)


def _text(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number_text(key, last, value)
    if isinstance(value, Tile):
        return f"{'x'.join(str(size) for _, size in value.sizes)} at {value.rate:g}"
    if isinstance(value, tuple):
        return _list_text(key, value)
    return str(value)


def _number_text(key: str, last: str, value: float) -> str:
    if last.endswith("_ps"):
        return time_text(value)
    if last.endswith("_bytes"):
        return bytes_text(round(value))
    if key.startswith("rates."):
        unit = "GOP/s" if last.startswith(("i", "u")) else "GFLOP/s"
        return f"{value / _GIGA:g} {unit}"
    if key_word(last) in _PER_SECOND:
        return f"{value / _GIGA:g} GB/s"
    return f"{value:g}"


def _list_text(key: str, values: Sequence[Any]) -> str:
    """A list, or the pairs of a mapping, as YAML in one line."""
    pairs = [v for v in values if isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str)]
    if values and len(pairs) == len(values):
        return "{" + ", ".join(f"{k}: {_text(k, v)}" for k, v in pairs) + "}"
    return "[" + ", ".join(_text(key, v) for v in values) + "]"
