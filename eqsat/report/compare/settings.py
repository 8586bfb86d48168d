"""What two runs were asked for differently: rules, keys of the target, budgets, goals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from eqsat.model.target import Tile
from eqsat.report.finished import Finished
from eqsat.report.units import goal_text

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
        yield f"target key {key}", setting_text(x), setting_text(y)
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


def setting_text(value: Any) -> str:
    """A value of a target in few words."""
    text = _words(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Tile):
        return f"{'x'.join(str(size) for _, size in value.sizes)} at {value.rate:g}"
    if isinstance(value, tuple):
        return ", ".join(map(_words, value)) or "none"
    return "none" if value is None else str(value)


def _goals(run: Finished) -> str:
    return ", ".join(g.name if g.weight is None else f"{g.name}:{g.weight:g}" for g in run.goals)
