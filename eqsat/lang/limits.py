"""`--limit nodes=20000` and `limits:` of experiments → `model.limits.Limits`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eqsat.lang.units import read_quantity
from eqsat.model.diag import fail
from eqsat.model.limits import KEYS, Limits, check_key


def read_limits(texts: Iterable[str]) -> Limits:
    """`nodes=20000`, `rounds=10`, `matches=5000`, `seconds=2`; later ones count.

    EqsatError: E408 for what is no limit, E2xx for a time that cannot be read.
    """
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            help = f"write `nodes=20000`; there are {', '.join(KEYS)}"
            raise fail("E408", f"`--limit {text}` is no limit", help=help)
        found[key.strip()] = value.strip()
    return limits_of(found, "--limit")


def limits_of(given: Mapping[str, Any], where: str = "limits") -> Limits:
    """Limits by key; values as YAML or a command line has them. EqsatError (E408, E2xx)."""
    for key in given:
        check_key(key, where)
    return Limits(**{key: _value(key, value, where) for key, value in given.items()})


def _value(key: str, value: Any, where: str) -> Any:
    text = str(value).strip()
    if key != "seconds":
        digits = text.replace("_", "").replace(",", "").removeprefix("-")
        if isinstance(value, bool) or not digits.isdecimal():
            raise fail("E408", f"{where}: `{key}` is {text}", help="a whole number, without a unit")
        return int(text.replace("_", "").replace(",", ""))
    try:
        return float(text)
    except ValueError:
        return float(read_quantity(text, "duration", f"{where} seconds"))
