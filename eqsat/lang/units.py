"""Quantities with units, as YAML files and command lines write them: `32 KiB`, `25 GB/s`, `60s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from eqsat.model.diag import check_known, did_you_mean, fail
from eqsat.plugins import plugged_in

_QUANTITY = re.compile(
    r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)\s*(\S.*?)?\s*$"
)
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BYTES = {f"{p}B": Decimal(f) for p, f in (_DECIMAL | _BINARY).items()} | {"KB": Decimal(1000)}
_SECONDS = {
    "ps": "1e-12", "ns": "1e-9", "us": "1e-6", "µs": "1e-6", "μs": "1e-6", "ms": "1e-3", "s": "1",
    "min": "60", "h": "3600",
}  # fmt: skip


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity: its units (unit → factor to the base unit) and a sample of it."""

    name: str
    units: dict[str, Decimal]
    usual: str  # the unit proposed to who wrote none
    whole: bool  # the value is an integer of the base unit


BYTES_FROM = 4096  # a number without a unit from here on is one of bytes
DIMENSIONS: dict[str, Dimension] = {
    "size": Dimension("a size", _BYTES, "KiB", True),  # bytes
    "bandwidth": Dimension(
        "a bandwidth", {f"{u}/s": f for u, f in _BYTES.items()}, "GB/s", False
    ),  # bytes per second
    "time": Dimension(
        "a time", {u: Decimal(f) * 10**12 for u, f in _SECONDS.items()}, "us", True
    ),  # picoseconds
    "interval": Dimension(
        "a time", {u: Decimal(f) * 10**12 for u, f in _SECONDS.items()}, "ns", False
    ),  # picoseconds and parts of them
    "duration": Dimension(
        "a duration", {u: Decimal(f) for u, f in _SECONDS.items()}, "s", False
    ),  # seconds
    "rate": Dimension(
        "a rate",
        {f"{p}{op}/s": Decimal(f) for op in ("FLOP", "OP") for p, f in _DECIMAL.items()},
        "GFLOP/s",
        False,
    ),  # operations per second
}


class QuantityError(ValueError):
    """A quantity cannot be read; `code` is E201, E203 or E204, `help` a fix."""

    def __init__(self, code: str, message: str, help: str = ""):
        self.code, self.message, self.help = code, message, help
        super().__init__(message)


def quantity(value: Any, dimension: str) -> int | float:
    """The value in base units: bytes, bytes/s, ps (`time`), seconds (`duration`), operations/s.

    QuantityError if there is no number, no unit, or a unit of something else.

    >>> quantity("32 KiB", "size")
    32768
    """
    d = DIMENSIONS[dimension]
    match = _QUANTITY.match(str(value)) if not isinstance(value, bool) else None
    if match is None:
        sample = f"write for example `1 {d.usual}`"
        raise QuantityError("E201", f"`{value}` is not {d.name}", sample)
    number, unit = Decimal(match[1].replace("_", "")), match[2]
    if not unit:
        meant = _bytes_meant(number) if dimension == "size" else f"{value} {d.usual}"
        raise QuantityError("E203", f"`{value}` has no unit", f"write `{meant}`")
    if unit not in d.units:
        message = f"`{unit}` is not a unit of {d.name.removeprefix('a ')}"
        near = next((u for u in d.units if u.lower() == unit.lower()), unit)
        raise QuantityError("E204", message, did_you_mean(near, d.units))
    base = number * d.units[unit]
    return round(base) if d.whole else float(base)


def _bytes_meant(number: Decimal) -> str:
    """The likely bytes of a size without a unit: large numbers are bytes, small ones KiB.

    >>> _bytes_meant(Decimal(1048576)), _bytes_meant(Decimal(32))
    ('1 MiB', '32 KiB')
    """
    if number < BYTES_FROM:
        return f"{number} KiB"
    for unit in ("GiB", "MiB", "KiB"):
        if number % _BYTES[unit] == 0:
            return f"{number // _BYTES[unit]} {unit}"
    return f"{number} B"


def read_quantity(value: Any, dimension: str, option: str) -> int | float:
    """`quantity` for a command line; EqsatError names the option (`--budget memory`)."""
    try:
        return quantity(value, dimension)
    except QuantityError as error:
        raise fail(error.code, f"{option}: {error.message}", help=error.help) from None


def read_budget(option: str) -> tuple[str, int]:
    """`memory=64MiB`, `time=2ms` or `dispatches=3` → goal and bound (bytes, ps, a count)."""
    goal, equals, value = option.partition("=")
    goal = goal.strip()
    if not equals:
        raise fail("E205", f"`--budget {option}` is not a budget", help="write `memory=64MiB`")
    return goal, budget_of(goal, value.strip(), f"`--budget {option}`")


def budget_of(goal: str, value: Any, where: str) -> int:
    """The bound of a goal: a text with its unit, or a number of bytes, ps or a count."""
    check_budget(goal, where)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return budget(goal, value)
    except QuantityError as error:
        raise fail(error.code, f"{where}: {error.message}", help=error.help) from None


# goal → what its bound is; those of plug-ins are whole numbers
BUDGETS = {
    "memory": "size", "time": "time", "dispatches": "", "relayout": "size", "permutes": "",
    "resident": "size",
    "load_peak": "size",
}  # fmt: skip


def check_budget(goal: str, where: str) -> None:
    """EqsatError (E205) if there is no such goal."""
    goals = (*BUDGETS, *plugged_in("goals"))
    check_known(goal, goals, "E205", f"{where}: no goal named `{goal}`")


def budget(goal: str, value: Any) -> int:
    """The bound of one goal: bytes, picoseconds, or a count; QuantityError if it cannot be."""
    if BUDGETS.get(goal):
        return int(quantity(value, BUDGETS[goal]))
    if isinstance(value, bool) or not str(value).strip().isdigit():
        raise QuantityError("E201", f"`{value}` is not a number of {goal}", "write a whole number")
    return int(value)
