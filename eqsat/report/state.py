"""The costs of keeping a program's state in different layouts, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.layout import Layout
from eqsat.model.tensor import TensorType
from eqsat.report.facts import goal_key, schedule_figures, schedule_goals
from eqsat.report.finished import Finished, by_figures, finished_stages, is_best
from eqsat.report.formatting import (
    PS_PER_US,
    bytes_text,
    count_text,
    delta_text,
    goal_text,
    table_text,
)
from eqsat.report.text import rule_check_lines

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


def state_text(state: StateReport) -> str:
    """A heading, a line per alternative with its price, and what the best asks of the caller."""
    total = sum(t.nbytes for t in state.types.values())
    head = f"{state.program}: {count_text(len(state.types), 'state')}, {bytes_text(total)}"
    lines = [_line(state, i) for i in range(len(state.rows))]
    table = table_text(("", *GOALS, "price", "gap", "kept"), lines)
    lines_of_state = [head, table, *_cut_lines(state), _advice(state), *_untried(state)]
    lines_of_state += rule_check_lines(state.rows[0].run)
    return "\n".join([*lines_of_state, ""])


def row_text(row: StateRow) -> str:
    """One row by itself, for whoever waits for the others."""
    figures = ", ".join(f"{g} {goal_text(g, v)}" for g, v in _values(row).items())
    return f"{_layouts(row)}: {figures} (gap {_gap(row)})"


def _gap(row: StateRow) -> str:
    """The first goal's gap, marked where the row is not proven to be the best of its layouts."""
    _, selection, _ = finished_stages(row.run)
    gap = f"{selection.goal(row.run.goals[0].name).gap:.1%}"
    return gap if is_best(selection, row.run.goals) else f"{gap} {UNPROVEN} {_why(row)}"


def _why(row: StateRow) -> str:
    _, selection, _ = finished_stages(row.run)
    return selection.stop if not selection.cuts else f"{selection.claim}; {selection.stop}"


def _is_open(row: StateRow) -> bool:
    _, selection, _ = finished_stages(row.run)
    return not is_best(selection, row.run.goals)


def _cut_lines(state: StateReport) -> list[str]:
    """The meaning of the mark of a search that was cut, if there is one."""
    if not any(map(_is_open, state.rows)):
        return []
    return [f"{UNPROVEN} its search was cut: in these layouts a better program may exist."]


def _untried(state: StateReport) -> list[str]:
    if len(state.rows) >= state.combinations:
        return []
    return [
        f"{len(state.rows)} of {count_text(state.combinations, 'combination')} were searched: each "
        "layout alone, then one changed at a time; another one may be better."
    ]


def _line(state: StateReport, i: int) -> tuple[str, ...]:
    plain, goals = (_values(state.rows[at]) for at in (0, i))
    price = "" if not i else delta_text("time", goals["time"] - plain["time"])
    texts = (goal_text(g, goals[g]) for g in GOALS)
    mark = "*" if i == state.best else ""
    return mark, *texts, price, _gap(state.rows[i]), _layouts(state.rows[i])


def _values(row: StateRow) -> dict[str, int]:
    """The goals' values, with the caller's conversions counted in the time."""
    _, _, schedule = finished_stages(row.run)
    goals = schedule_goals(schedule)
    return goals | {"time": goals["time"] + round(row.caller_ps)}


def _layouts(row: StateRow) -> str:
    """Each layout once, with the number of states that are in it."""
    count: dict[str, list[str]] = {}
    for name, layout in row.layouts.items():
        count.setdefault(layout_word(layout), []).append(name)
    parts = [f"{_names(names)} as {text}" for text, names in count.items()]
    return "; ".join(parts) or "plain"


def _names(names: list[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} like it"


def layout_word(layout: Layout) -> str:
    """`pack(pos=[0], …)`, or `transpose(perm=[1, 0])`."""
    if not layout.tiles:
        return f"transpose(perm={list(layout.outer)})"
    return f"pack({layout.text('pack')})"


def _advice(state: StateReport) -> str:
    row = state.rows[state.best]
    by = by_figures(row.run.target, row.run.goals)
    best = "Best found" if any(map(_is_open, state.rows)) else f"Best{by}"
    if not row.layouts:
        return f"{best}: plain; no call converts the state."
    moved = sum(state.types[n].nbytes for n in row.layouts)
    return (
        f"{best}: {_layouts(row)}. The caller packs {bytes_text(moved)} before the first call and "
        "unpacks them after the last."
    )


def state_json(state: StateReport) -> dict[str, Any]:
    """The object that `--output-format json` prints."""
    return {
        "format": 1,
        "program": state.program,
        "states": {n: str(t) for n, t in state.types.items()},
        "alternatives": [_row_json(r) for r in state.rows],
        "best": state.best,
        "combinations": state.combinations,
        "rule_check": state.rows[0].run.summary()["rule_check"],
    }


def _row_json(row: StateRow) -> dict[str, Any]:
    _, selection, schedule = finished_stages(row.run)
    gaps = {goal_key(name)[0]: g.gap for name, g in selection.goals}
    return {
        "layouts": {n: layout_word(layout) for n, layout in row.layouts.items()},
        **schedule_figures(schedule),
        "relayout_bytes": schedule.relayout_bytes,
        "caller_us": row.caller_ps / PS_PER_US,
        "claim": selection.claim,
        "stop": selection.stop,
        "gaps": gaps,
    }
