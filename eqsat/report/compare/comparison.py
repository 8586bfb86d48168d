"""Comparison: rows of dispatches, layouts per value, figures with their differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from eqsat.model.printed import Printed
from eqsat.model.schedule import Schedule
from eqsat.report.compare.rows import AlignedRow, ComparedWork, Held, Place, aligned, works_of
from eqsat.report.compare.targetwords import in_yaml_words
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.formatting import bytes_text, delta_text, goal_text, table_text

_COLUMNS = ("", "", "", "difference")
_UNITS = {"time_ps": "time", "bytes_moved": "memory"}  # a figure → the goal whose unit it has


@dataclass(frozen=True)
class Flip:
    """One change of what a was asked for: what it makes of a, and the rows that are then as in b.

    change: `with rule x`, `fusion.siblings: true`, `budget memory: 64 MiB`. value: of its first
    goal.
    """

    change: str
    rows: tuple[tuple[str, ...], ...]
    goal: str
    value: int | None  # None: nothing is admissible then
    is_all: bool = False  # the answer is b's


@dataclass(frozen=True)
class Comparison(Printed):
    """facts: (name, a, b) in raw integers. rows: dispatches in the order of b.

    flips: single changes that were searched, None if nobody asked for them.
    """

    names: tuple[str, str]
    same_input: bool
    facts: tuple[tuple[str, int, int], ...]
    rows: tuple[AlignedRow, ...]
    settings: tuple[Setting, ...] = ()
    flips: tuple[Flip, ...] | None = None

    @property
    def same(self) -> int:
        """Dispatches that are equal on both sides."""
        return sum(r.is_same for r in self.rows)

    @property
    def differences(self) -> tuple[AlignedRow, ...]:
        """The other rows, the one that differs most in time first."""
        unlike = [r for r in self.rows if not r.is_same]
        return tuple(sorted(unlike, key=lambda r: (-abs(r.time_ps), -abs(r.nbytes))))

    @property
    def kinds(self) -> tuple[tuple[AlignedRow, ...], ...]:
        """The rows that differ, those that differ alike together; most time in all comes first."""
        by_kind: dict[object, list[AlignedRow]] = {}
        for row in self.rows:
            if not row.is_same:
                by_kind.setdefault(row.kind, []).append(row)
        by_size = sorted(
            by_kind.values(),
            key=lambda rows: (-abs(_total(rows, "time_ps")), -abs(_total(rows, "nbytes"))),
        )
        return tuple(tuple(rows) for rows in by_size)

    def flipped_by(self, row: AlignedRow) -> str:
        """The single change that makes this row of a that of b; "" if none is known.

        Of several the one that makes most rows so.
        """
        able = [f for f in self.flips or () if row.key in f.rows]
        return max(able, key=lambda f: (f.is_all, len(f.rows))).change if able else ""

    def with_flips(self, flips: Iterable[Flip]) -> Comparison:
        return replace(self, flips=tuple(flips))

    def to_text(self) -> str:
        """Plain text for a terminal."""
        lines = [*_heading(self), *self.difference_lines()]
        if not self.differences:
            lines += ["", "the two programs do the same work in the same layouts"]
        return "\n".join([*lines, *_flip_lines(self)]) + "\n"

    def difference_lines(self) -> list[str]:
        """The differences as lines, an empty one in front of each kind."""
        return [line for rows in self.kinds for line in ("", *_kind_lines(self, rows))]

    def to_json(self) -> dict[str, Any]:
        """A plain dict for `--output-format json`."""
        return {
            "format": 2,
            "names": list(self.names),
            "same_input": self.same_input,
            "settings": {k: [a, b] for k, a, b in self.settings},
            "facts": {k: [a, b] for k, a, b in self.facts},
            "same_dispatches": self.same,
            "rows": [_row_json(self, r) for r in self.rows],
            "flips": None if self.flips is None else [vars(f) for f in self.flips],
        }


def compare_runs(a: Finished, b: Finished, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Two runs of equal or different inputs; EqsatError (E405) if one stopped early.

    Dispatches of equal inputs are matched by the values they write, of different ones by the kinds
    and shapes of what they compute.
    """
    same_input = a.canonical == b.canonical
    rows = aligned(works_of(a), works_of(b), same_input)
    x, y = (_facts(finished_stages(run)[2]) for run in (a, b))
    facts = tuple((name, x[name], y[name]) for name in x)
    return Comparison(names, same_input, facts, rows, settings_of(a, b))


def _facts(s: Schedule) -> dict[str, int]:
    return {
        "time_ps": s.time_ps,
        "peak_bytes": s.peak_bytes,
        "bytes_moved": s.bytes_moved,
        "relayout_bytes": s.relayout_bytes,
        "resident_bytes": s.resident_bytes,
        **dict(sorted(s.counts().items())),
    }


# ---- text ----------------------------------------------------------------------------------------
def _heading(c: Comparison) -> list[str]:
    a, b = c.names
    lines = [f"comparing {a} and {b}"]
    lines += [f"  {what}: {x} → {y}" for what, x, y in c.settings]
    if not c.same_input:
        lines.append("  the inputs differ: dispatches are matched by what they compute")
    table = [
        (label(k), fact_text(k, x), fact_text(k, y), difference(k, x, y)) for k, x, y in c.facts
    ]
    lines += ["", *table_text(("", a, b, "difference"), table).splitlines()]
    return [*lines, "", f"{c.same} of {len(c.rows)} dispatches are the same"]


def label(name: str) -> str:
    """A figure in words."""
    return "time" if name == "time_ps" else name.replace("_", " ")


def _unit(name: str) -> str:
    return "memory" if name.endswith("_bytes") else _UNITS.get(name, "")


def fact_text(name: str, value: int) -> str:
    """A figure in its unit."""
    return goal_text(_unit(name), value)


def difference(name: str, a: int, b: int) -> str:
    """By how much b is more than a: `-655 us (-22.4%)`; "" if they are equal."""
    if a == b:
        return ""
    share = f" ({(b - a) / a:+.1%})" if a else ""
    return delta_text(_unit(name), b - a) + share


def _total(rows: Sequence[AlignedRow], figure: str) -> int:
    return sum(getattr(row, figure) for row in rows)


def _kind_lines(c: Comparison, rows: Sequence[AlignedRow]) -> list[str]:
    """One of the rows that differ alike, and the names of the others."""
    row = rows[0]
    head = f"{row.name}: {deltas(row)}"
    if len(rows) > 1:
        head += f"; {len(rows)} times, {delta_text('time', _total(rows, 'time_ps'))} in all"
    lines = [head]
    if len(rows) > 1:
        others = ", ".join(r.name for r in rows[1:4]) + (", …" if len(rows) > 4 else "")
        lines.append(f"  so do {others}")
    if row.a is None or row.b is None:
        lines += _one_sided(c, row)
    else:
        lines += [
            f"  {name}: {work_text(w)}" for name, w in zip(c.names, (row.a, row.b), strict=True)
        ]
    lines += [f"  {change}" for change in row.changes_text]
    for name, rules in zip(c.names, row.rules, strict=True):
        lines += [f"  by {rule} in {name}  {at}" for rule, at in rules]
    flip = c.flipped_by(row)
    return [*lines, f"  flips {flip}"] if flip else lines


def _one_sided(c: Comparison, row: AlignedRow) -> list[str]:
    with_work, other = c.names if row.a is not None else c.names[::-1]
    work = row.a or row.b
    assert work is not None
    where = "no dispatch of its own"
    where += f": computed inside of {row.inside.name}" if row.inside else ", not computed at all"
    return [f"  {with_work}: {work_text(work)}", f"  {other}: {where}"]


def work_text(w: ComparedWork) -> str:
    """Its ops, time and bytes in a line."""
    return f"{w.text}  ({goal_text('time', w.time_ps)}, {bytes_text(w.nbytes)})"


def deltas(row: AlignedRow) -> str:
    """By how much b takes longer and moves more: `-205 us, equal bytes`."""
    time = delta_text("time", row.time_ps) if row.time_ps else "equal time"
    moved = f"{delta_text('memory', row.nbytes)} moved" if row.nbytes else "equal bytes"
    return f"{time}, {moved}"


def _flip_lines(c: Comparison) -> list[str]:
    if c.flips is None or not c.differences:
        return []
    if not c.flips:
        return ["", f"{c.names[0]} and {c.names[1]} were asked for the same: nothing to change"]
    a, b = c.names
    lines = ["", f"one change of {a} alone"]
    for f in c.flips:
        value = (
            "nothing is admissible" if f.value is None else f"{f.goal} {goal_text(f.goal, f.value)}"
        )
        then = (
            f"the program of {b}"
            if f.is_all
            else f"{len(f.rows)} of {len(c.differences)} rows as in {b}"
        )
        lines.append(f"  {f.change}: {value}, {then if f.value is not None else ''}".rstrip(", "))
    return lines


# ---- JSON ----------------------------------------------------------------------------------------
def _row_json(c: Comparison, row: AlignedRow) -> dict[str, Any]:
    rules_a, rules_b = row.rules
    return {
        "writes": list(row.key),
        "a": _work_json(row.a),
        "b": _work_json(row.b),
        "same": row.is_same,
        "changes": list(row.changes_text),
        "time_ps": row.time_ps,
        "bytes": row.nbytes,
        "inside": row.inside and row.inside.name,
        "rules_a": _places(rules_a),
        "rules_b": _places(rules_b),
        "flip": c.flipped_by(row) or None,
    }


def _work_json(w: ComparedWork | None) -> dict[str, Any] | None:
    if w is None:
        return None
    return {
        "dispatch": w.number,
        "name": w.name,
        "ops": list(w.ops),
        "conversions": list(w.conversions),
        "reads": [_held_json(h) for h in w.reads],
        "writes": [_held_json(h) for h in w.writes],
        "time_ps": w.time_ps,
        "bytes": w.nbytes,
        "bound": w.bound,
    }


def _held_json(h: Held) -> dict[str, Any]:
    return {"value": h.value, "name": h.name, "layout": h.layout, "type": h.type, "bytes": h.nbytes}


def _places(rules: Iterable[Place]) -> list[dict[str, str]]:
    return [{"rule": rule, "at": at} for rule, at in rules]


# ---- what was asked for differently --------------------------------------------------------------
# of a target: what says nothing of the machine, or is told by itself
_ASIDE = frozenset({"name", "doc", "source", "file", "places", "budget", "chosen", "measured_on"})
BY_KIND = ("tiles", "untiled", "strategies", "rates")  # pairs of a key and its value
Setting = tuple[str, str, str]  # what, in a, in b


def settings_of(a: Finished, b: Finished) -> tuple[Setting, ...]:
    """Everything that differs, the program first."""
    return tuple(_settings(a, b))


def _settings(a: Finished, b: Finished) -> Iterator[Setting]:
    for what, x, y in (
        ("program", a.program.name, b.program.name),
        ("rules", a.rules.name, b.rules.name),
        ("target", a.target.name, b.target.name),
    ):
        if x != y:
            yield what, x, y
    yield from _rules(a, b)
    for key, x, y in target_differences(a.target, b.target):
        for word, before, after in in_yaml_words(key, x, y):
            yield f"target key {word}", before, after
    x, y = dict(a.target.budget), dict(b.target.budget)
    for goal in sorted(x.keys() | y.keys()):
        if x.get(goal) != y.get(goal):
            before, after = (goal_text(goal, s[goal]) if goal in s else "none" for s in (x, y))
            yield f"budget {goal}", before, after
    if a.goals != b.goals:
        yield "goals", _goals(a), _goals(b)


def _rules(a: Finished, b: Finished) -> Iterator[Setting]:
    """Rules that only one side has, by name, where the sets are otherwise much the same."""
    meshed = a.mesh_plan is not None or b.mesh_plan is not None
    x, y = ({r.name for r in (r.everything if meshed else r.rules)} for r in (a.rules, b.rules))
    if x != y:
        yield "rules of one side", _named(sorted(x - y)), _named(sorted(y - x))


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:6]) or "none"
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown


def target_differences(a: Any, b: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Keys of two targets that differ, one level deep: `fusion.siblings`, and both values."""
    for f in fields(a):
        x, y = getattr(a, f.name), getattr(b, f.name)
        if x == y or (not prefix and f.name in _ASIDE):
            continue
        if f.name in BY_KIND:
            before, after = dict(x), dict(y)
            for kind in sorted(before.keys() | after.keys()):
                if before.get(kind) != after.get(kind):
                    yield f"{f.name}.{kind}", before.get(kind), after.get(kind)
        elif is_dataclass(x) and type(x) is type(y) and not prefix:
            yield from target_differences(x, y, f"{f.name}.")
        else:
            yield prefix + f.name, x, y


def _goals(run: Finished) -> str:
    return ", ".join(g.name if g.weight is None else f"{g.name}:{g.weight:g}" for g in run.goals)
