"""Another compiler's program beside the best one, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eqsat.model.price import EXACT, NOT_ADMISSIBLE, Price
from eqsat.model.selection import Group, Selection
from eqsat.report.alternatives import price_text
from eqsat.report.units import count_text, delta_text, goal_text, table_text, time_text

GOALS = ("time", "memory", "dispatches")
COLUMNS = ("", "judged", "best", "bound", "difference")
SHOWN = 12  # lines of one kind before "and n more"


class OneDecision(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def price(self) -> Price | None: ...


def figure_rows(foreign: Selection, best: Selection) -> list[tuple[str, ...]]:
    """A row of COLUMNS per goal."""
    rows: list[tuple[str, ...]] = []
    for name in [g for g in GOALS if g in dict(best.goals)]:
        a, b = foreign.goal(name).value, best.goal(name).value
        share = f" ({(a - b) / b:+.1%})" if b and a != b else ""
        delta = f"{delta_text(name, a - b)}{share}" if a != b else "equal"
        bound = goal_text(name, best.goal(name).bound)
        rows.append((name, goal_text(name, a), goal_text(name, b), bound, delta))
    return rows


def judged_lines(
    head: str,
    claim: str,
    foreign: Selection,
    best: Selection,
    labels: Sequence[str],
    decisions: Sequence[OneDecision],
    sections: Sequence[tuple[str, Sequence[str]]],
) -> str:
    """Figures, dispatches, decisions by price, and lists of sentences under their titles.

    claim: how far the best is proven.
    """
    lines = [head, "", *table_text(COLUMNS, figure_rows(foreign, best)).splitlines()]
    lines.append(_difference(foreign, best, claim))
    lines += ["", "dispatches", *_dispatch_lines(foreign.groups, labels)]
    lines += ["", *_decision_lines(decisions)] if decisions else []
    for title, sentences in sections:
        if sentences:
            lines += ["", title, *_shown([f"  {s}" for s in sentences])]
    return "\n".join(lines) + "\n"


def _difference(foreign: Selection, best: Selection, claim: str) -> str:
    """The gap in words, and over which programs it is proven."""
    goal = best.goals[0][0]
    value, bound = foreign.goal(goal).value, best.goal(goal).bound
    if value < bound:
        return (
            f"its {goal} is below what any program of this e-graph takes: it uses what is not in it"
        )
    gap = (value - bound) / value if value else 0.0
    if gap == 0:
        return f"no program of this e-graph has less {goal} (the best: {claim})"
    return f"gap to the optimum: at most {gap:.1%} of its {goal} (the best: {claim})"


def _dispatch_lines(groups: Sequence[Group], labels: Sequence[str]) -> list[str]:
    both = zip(groups, labels, strict=True)
    return _shown([f"  {time_text(g.time_ps):>8}  {label}" for g, label in both])


def _decision_lines(decisions: Sequence[OneDecision]) -> list[str]:
    """Decisions that cost something, the dearest first; those that cost nothing in one line."""
    free = [d for d in decisions if _is_free(d.price)]
    rest = [d for d in decisions if not _is_free(d.price)]
    dear = sorted(rest, key=lambda d: (_key(d.price), d.text))
    lines = [f"decisions: {count_text(len(decisions), 'choice')}, what the best program that makes"]
    lines[0] += " this one costs more"
    lines += _shown([f"  {_words(d.price)}: {d.text}" for d in dear])
    same = "as the best program does, or it ties"
    return [*lines, *([f"  nothing: {count_text(len(free), 'choice')}, {same}"] if free else [])]


def _is_free(price: Price | None) -> bool:
    return price is not None and price.status == EXACT and price.delta == 0


def _key(price: Price | None) -> tuple[bool, int]:
    if price is None:
        return True, 0
    least = price.bound if price.delta is None else price.delta
    return price.status != NOT_ADMISSIBLE, -least


def _words(price: Price | None) -> str:
    if price is None:
        return "not asked"
    if price.status == NOT_ADMISSIBLE:
        return "no program of this e-graph does so"
    return price_text(price)


def _shown(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"  and {more} more"] if more > 0 else [])]
