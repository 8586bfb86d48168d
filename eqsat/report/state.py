"""What it costs to keep a program's state in one layout or another, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.layout import Layout
from eqsat.model.tensor import TensorType
from eqsat.report.facts import goal_key, schedule_figures, schedule_goals
from eqsat.report.finished import Finished, finished_stages
from eqsat.report.proven import by_figures, is_best
from eqsat.report.text import rule_check_lines, table_text
from eqsat.report.units import PS_PER_US, bytes_text, count_text, delta_text, goal_text

GOALS = ("time", "memory", "dispatches")
UNPROVEN = "~"


@dataclass(frozen=True)
class StateRow:
    """One way to keep the state: the layouts of what is not plain, by the input's name."""

    layouts: Mapping[str, Layout]
    run: Finished
    caller_ps: float = 0.0  # per call, what converting costs the caller


@dataclass(frozen=True)
class StateReport:
    """All ways that were tried, the plain one first."""

    program: str
    types: Mapping[str, TensorType]
    rows: tuple[StateRow, ...]
    best: int
    combinations: int  # of layouts that there are


def state_text(kept: StateReport) -> str:
    """A heading, a line per alternative with its price, and what the best asks of the caller."""
    total = sum(t.nbytes for t in kept.types.values())
    head = f"{kept.program}: {count_text(len(kept.types), 'state')}, {bytes_text(total)}"
    lines = [_line(kept, i) for i in range(len(kept.rows))]
    table = table_text(("", *GOALS, "price", "gap", "kept"), lines)
    told = [head, table, *_cut_lines(kept), _advice(kept), *_untried(kept)]
    told += rule_check_lines(kept.rows[0].run)
    return "\n".join([*told, ""])


def row_text(row: StateRow) -> str:
    """One row by itself, for whoever waits for the others."""
    figures = ", ".join(f"{g} {goal_text(g, v)}" for g, v in _values(row).items())
    return f"{_layouts(row)}: {figures} (gap {_gap(row)})"


def _gap(row: StateRow) -> str:
    """That of the first goal, marked where the row is not proven to be the best of its layouts."""
    _, selection, _ = finished_stages(row.run)
    gap = f"{selection.goal(row.run.goals[0].name).gap:.1%}"
    return gap if is_best(selection, row.run.goals) else f"{gap} {UNPROVEN} {_why(row)}"


def _why(row: StateRow) -> str:
    _, selection, _ = finished_stages(row.run)
    return selection.stop if not selection.cuts else f"{selection.claim}; {selection.stop}"


def _is_open(row: StateRow) -> bool:
    _, selection, _ = finished_stages(row.run)
    return not is_best(selection, row.run.goals)


def _cut_lines(kept: StateReport) -> list[str]:
    """What the mark of a search that was cut means, if there is one."""
    if not any(map(_is_open, kept.rows)):
        return []
    return [f"{UNPROVEN} its search was cut: in these layouts a better program may exist."]


def _untried(kept: StateReport) -> list[str]:
    if len(kept.rows) >= kept.combinations:
        return []
    return [
        f"{len(kept.rows)} of {count_text(kept.combinations, 'combination')} were searched: each "
        "layout alone, then one changed at a time; another one may be better."
    ]


def _line(kept: StateReport, i: int) -> tuple[str, ...]:
    plain, own = (_values(kept.rows[at]) for at in (0, i))
    price = "" if not i else delta_text("time", own["time"] - plain["time"])
    texts = (goal_text(g, own[g]) for g in GOALS)
    mark = "*" if i == kept.best else ""
    return mark, *texts, price, _gap(kept.rows[i]), _layouts(kept.rows[i])


def _values(row: StateRow) -> dict[str, int]:
    """With what the caller pays for conversions in the time."""
    _, _, schedule = finished_stages(row.run)
    found = schedule_goals(schedule)
    return found | {"time": found["time"] + round(row.caller_ps)}


def _layouts(row: StateRow) -> str:
    """Each layout once, with the number of states that are in it."""
    count: dict[str, list[str]] = {}
    for name, layout in row.layouts.items():
        count.setdefault(_layout(layout), []).append(name)
    parts = [f"{_names(names)} as {text}" for text, names in count.items()]
    return "; ".join(parts) or "plain"


def _names(names: list[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} like it"


def _layout(layout: Layout) -> str:
    if not layout.tiles:
        return f"transpose(perm={list(layout.outer)})"
    return f"pack({layout.text('pack')})"


def _advice(kept: StateReport) -> str:
    row = kept.rows[kept.best]
    by = by_figures(row.run.target, row.run.goals)
    best = "Best found" if any(map(_is_open, kept.rows)) else f"Best{by}"
    if not row.layouts:
        return f"{best}: plain; no call converts the state."
    moved = sum(kept.types[n].nbytes for n in row.layouts)
    return (
        f"{best}: {_layouts(row)}. The caller packs {bytes_text(moved)} before the first call and "
        "unpacks them after the last."
    )


def state_json(kept: StateReport) -> dict[str, Any]:
    """The object that `--output-format json` prints."""
    return {
        "format": 1,
        "program": kept.program,
        "states": {n: str(t) for n, t in kept.types.items()},
        "alternatives": [_row_json(r) for r in kept.rows],
        "best": kept.best,
        "combinations": kept.combinations,
        "rule_check": kept.rows[0].run.summary()["rule_check"],
    }


def _row_json(row: StateRow) -> dict[str, Any]:
    _, selection, schedule = finished_stages(row.run)
    gaps = {goal_key(name)[0]: g.gap for name, g in selection.goals}
    return {
        "layouts": {n: _layout(layout) for n, layout in row.layouts.items()},
        **schedule_figures(schedule),
        "relayout_bytes": schedule.relayout_bytes,
        "caller_us": row.caller_ps / PS_PER_US,
        "claim": selection.claim,
        "stop": selection.stop,
        "gaps": gaps,
    }
