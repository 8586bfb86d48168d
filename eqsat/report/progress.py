"""How a search came to its answer: one line while it runs, a table and a chart of it afterwards."""

from __future__ import annotations

from html import escape

from eqsat.model.progress import Curve, Point, Progress
from eqsat.report.units import goal_text, seconds_text

CURVE_COLUMNS = ("after", "phase", "goal", "value", "bound", "gap")
CURVE_FIGURES = (0, 3, 4, 5)
_WIDTH, _HEIGHT, _LEFT, _BELOW = 720, 160, 90, 34


def progress_line(now: Progress) -> str:
    """`candidates, 3.1 s of 60 s: time 4.5 us, bound 4.1 us, gap 8.9 %`, as far as it is known."""
    limit = "" if now.limit is None else f" of {now.limit:g} s"
    return f"{now.phase}, {now.seconds:.1f} s{limit}: {known_text(now)}"


def known_text(now: Progress) -> str:
    """The best value of the first goal so far, what no answer is below, and the gap."""
    best = now.best
    if best is None:
        return "no answer yet"
    found = f"{now.goal} {goal_text(now.goal, best.value)}"
    if best.bound == 0 < best.value:
        return found
    return f"{found}, bound {goal_text(now.goal, best.bound)}, gap {best.gap:.1%}"


def curve_rows(curve: Curve) -> list[tuple[str, ...]]:
    """Rows of CURVE_COLUMNS, one per point."""
    return [_row(p) for p in curve.points]


def _row(p: Point) -> tuple[str, ...]:
    value, bound = ("" if n is None else goal_text(p.goal, n) for n in (p.value, p.bound))
    gap = "" if p.value is None else f"{_gap(p):.1%}"
    return (seconds_text(p.seconds), p.phase, p.goal, value, bound, gap)


def _gap(p: Point) -> float:
    bound = p.bound or 0
    return (p.value - bound) / p.value if p.value and p.value > bound else 0.0


def curve_chart(curve: Curve, goal: str) -> str:
    """Value and bound of one goal over the seconds of the search, as one SVG; "" for one point."""
    points = [p for p in curve.points if p.goal == goal]
    levels = [n for p in points for n in (p.value, p.bound) if n is not None]
    end = max((p.seconds for p in curve.points), default=0.0)
    if len(points) < 2 or not end:
        return ""
    low, high = min(levels), max(levels)

    def place(seconds: float, level: int) -> tuple[float, float]:
        up = (level - low) / (high - low) if high > low else 0.5
        return _LEFT + (_WIDTH - _LEFT - 10) * seconds / end, 10 + (_HEIGHT - 10) * (1 - up)

    lines = []
    for name, known in (
        ("value", [(p.seconds, p.value) for p in points if p.value is not None]),
        ("bound", [(p.seconds, p.bound) for p in points if p.bound is not None]),
    ):
        if known:
            corners = _steps([place(s, n) for s, n in known], place(end, known[-1][1])[0])
            lines.append(f'<polyline class="{name}" points="{corners}"><title>{name}</title>')
            lines.append("</polyline>")
    shown = [(10, high), (_HEIGHT, low)] if high > low else [(_HEIGHT / 2, low)]
    marks = [f'<text x="0" y="{y + 4:.0f}">{escape(goal_text(goal, n))}</text>' for y, n in shown]
    axis = f'<text x="{_LEFT}" y="{_HEIGHT + 24}">0 s</text>'
    axis += f'<text x="{_WIDTH - 50}" y="{_HEIGHT + 24}">{seconds_text(end)}</text>'
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT + _BELOW}"'
    label = f'aria-label="{escape(goal)} and its bound over the search"'
    return f'<svg {view} role="img" {label}>\n' + "\n".join([*lines, *marks, axis]) + "\n</svg>"


def _steps(corners: list[tuple[float, float]], end: float) -> str:
    """What is known stays so until something better is."""
    found: list[tuple[float, float]] = []
    for x, y in corners:
        found += [(x, found[-1][1])] if found else []
        found.append((x, y))
    found.append((end, found[-1][1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in found)
