"""The table of an experiment's rows: columns that tell rows apart, cut to the width there is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.report.formatting import (
    PS_PER_US,
    bytes_text,
    elided,
    goal_text,
    ratio_text,
    table_text,
    us_text,
)

if TYPE_CHECKING:
    from eqsat.lab.results import CellResult
    from eqsat.lab.store.store import Measurement

BEST, UNPROVEN = "*", "~"
NOT_PROVEN = f"{UNPROVEN} not proven to be the best"
FIGURES = (
    "dispatches", "conversions", "moved", "peak", "predicted", "vs input", "gap", "stop", "verify",
    "measured", "CPU",
)  # fmt: skip
# said once for all rows where it is the same in all of them
OFTEN_EQUAL = ("program", "target", "first goal", "vs input", "gap", "stop", "verify")
# what goes first where the terminal is narrow
DROPPED = ("conversions", "peak", "moved", "gap", "verify", "dispatches", "stop", "vs input", "CPU")
LEAST_NAME = 10  # characters that a name keeps
GAP = 2  # between columns
MOST_NAMED = 4  # rows in a line that names some that are alike


@dataclass(frozen=True)
class CellTable:
    """columns: names first. names: how many of them name the row. equal: of all rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int
    equal: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()

    def to_text(self) -> str:
        lines = [table_text(self.columns, self.rows).rstrip("\n")] if self.rows else []
        if self.equal:
            lines.append("all rows: " + ", ".join(f"{k} {v}" for k, v in self.equal))
        if self.dropped:
            lines.append(f"left out for want of width: {', '.join(self.dropped)}")
        return "\n".join(lines) + "\n"

    def within(self, width: int) -> CellTable:
        """The table in so many characters: columns of less interest go, then names get shorter."""
        natural = [max(len(r[i]) for r in (self.columns, *self.rows)) for i in range(self.names)]
        least = sum(min(n, LEAST_NAME) + GAP for n in natural)
        table = self
        for column in DROPPED:
            if table.figures_width + least <= width:
                break
            if column in table.columns:
                table = table.without(column)
        most = _caps(natural, width - table.figures_width - GAP * table.names)
        rows = tuple(
            (*(elided(c, m) for c, m in zip(r, most, strict=False)), *r[table.names :])
            for r in table.rows
        )
        heads = tuple(elided(c, m) for c, m in zip(table.columns, most, strict=False))
        columns = (*heads, *table.columns[table.names :])
        return CellTable(columns, rows, table.names, table.equal, table.dropped)

    @property
    def figures_width(self) -> int:
        """Characters of a line behind its names."""
        figures = range(self.names, len(self.columns))
        return sum(GAP + max(len(r[i]) for r in (self.columns, *self.rows)) for i in figures)

    def without(self, column: str) -> CellTable:
        at = self.columns.index(column)
        rows = tuple((*r[:at], *r[at + 1 :]) for r in self.rows)
        columns = (*self.columns[:at], *self.columns[at + 1 :])
        return CellTable(columns, rows, self.names, self.equal, (*self.dropped, column))


def _caps(natural: Sequence[int], room: int) -> list[int]:
    """Characters of each name so that all have room: the longest get shorter first."""
    caps = list(natural)
    while sum(caps) > room and max(caps) > LEAST_NAME:
        caps[caps.index(max(caps))] -= 1
    return caps


def row_table(outcomes: Sequence[CellResult]) -> CellTable:
    """The rows that ran, a column for each thing in which their requests differ."""
    keys = name_keys(outcomes)
    table = [
        {k: key_text(o, k) for k in dict.fromkeys((*keys, "program", "target"))}
        | {"first goal": o.cell.goals[0].name} | figures(o)
        for o in outcomes
    ]  # fmt: skip
    timed = any(o.measured for o in outcomes)
    shown = [f for f in FIGURES if timed or f not in ("measured", "CPU")]
    order = list(dict.fromkeys((*keys, "program", "target", "first goal", *shown)))
    equal = [] if len(table) < 2 else [
        k for k in order if k in OFTEN_EQUAL and len({row[k] for row in table}) == 1
    ]  # fmt: skip
    columns = [k for k in order if k not in equal]
    names = sum(k not in FIGURES for k in columns)
    return CellTable(
        tuple(columns),
        tuple(tuple(row[k] for k in columns) for row in table),
        names,
        tuple((k, table[0][k]) for k in equal if table[0][k] not in ("", "–")),
    )


def name_keys(outcomes: Sequence[CellResult]) -> tuple[str, ...]:
    """What tells the rows apart: their names, or of a grid the keys in which they differ."""
    cells = [o.cell for o in outcomes]
    if not all(c.name.startswith(f"{c.program}@{c.target}") for c in cells):
        return ("row",)
    values: dict[str, set[str]] = {}
    for c in cells:
        for k, v in (("program", c.program), ("target", c.target), *c.varied):
            values.setdefault(k, set()).add(v)
    differ = [k for k, v in values.items() if len(v) > 1]
    return tuple(differ) or ("program",)


def key_text(o: CellResult, key: str) -> str:
    """A row's key as it is read: programs and targets without their folders."""
    c = o.cell
    if key in ("program", "target"):
        return Path(getattr(c, key)).name.removesuffix(".yaml")
    return c.name if key == "row" else dict(c.varied).get(key, "")


def described(rows: Sequence[CellResult], among: Sequence[CellResult], keys: Sequence[str]) -> str:
    """Some of these rows in few words: `rules=default|policy/keep`, for any value of other keys."""
    if keys == ("row",):
        return first_few([o.cell.name for o in rows])
    own = [k for k in keys if len({key_text(o, k) for o in among}) > 1]
    values = {k: list(dict.fromkeys(key_text(o, k) for o in rows)) for k in own}
    if math.prod(map(len, values.values())) != len(rows):
        return first_few([" ".join(f"{k}={key_text(o, k)}" for k in own) for o in rows])
    told = [f"{k}={'|'.join(v)}" for k, v in values.items()
            if len(v) < len({key_text(o, k) for o in among})]  # fmt: skip
    return " ".join(told) or "all alike"


def first_few(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def figures(o: CellResult) -> dict[str, str]:
    """The figures of a row by column; of one without an answer its status."""
    if not o.has_answer:
        return dict.fromkeys(FIGURES, "") | {"dispatches": o.record.status}
    r = o.to_json()
    moves = sum(r[k] for k in ("packs", "unpacks", "transposes"))
    first = o.record.goals[0]
    mark = "" if o.is_proven else f" {UNPROVEN}"
    return {
        "dispatches": str(r["dispatches"]),
        "conversions": f"{moves} + {r['fused_conversions']} fused",
        "moved": bytes_text(r["bytes_moved"]),
        "peak": bytes_text(r["peak_bytes"]),
        "predicted": goal_text("time", round(r["time_us"] * PS_PER_US)) + mark,
        "vs input": "–" if first["input"] is None else ratio_text(first["input"], first["value"]),
        "gap": "–" if r["gap"] is None else f"{r['gap']:.1%}",
        "stop": r["stop"],
        "verify": _verified(r["verify"]),
        "measured": measured_text(o.measured),
        "CPU": "–" if o.measured is None else us_text(o.measured.cpu_us),
    }


def _verified(verify: dict[str, Any] | None) -> str:
    if verify is None:
        return "–"
    if verify["outcome"] == "unproven":
        return "NOT VERIFIED"
    error = verify["max_error"]
    text = "" if error is None else f" {error:.0e}"
    how = " sampled" if verify.get("how") == "sampled" else ""  # rows of before do not say
    return f"{'ok' if verify['ok'] else 'MISMATCH'}{text}{how}"


def measured_text(measured: Measurement | None) -> str:
    """The median with half the width of its interval."""
    if measured is None:
        return "–"
    half = (measured.high_us - measured.low_us) / 2
    return f"{us_text(measured.median_us)} ± {half / measured.median_us:.0%}"
