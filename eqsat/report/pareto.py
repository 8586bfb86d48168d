"""A front of goals: as a table, a plot in characters, and a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from eqsat.model.deadline import OUT_OF_TIME
from eqsat.model.diag import Diagnostic
from eqsat.model.ops import CONVERSIONS, LEAVES, VIEWS
from eqsat.model.selection import GoalResult, Selection
from eqsat.report.facts import goal_key, scaled
from eqsat.report.finished import Finished, by_figures, finished_stages
from eqsat.report.formatting import (
    bytes_text,
    count_text,
    document,
    goal_text,
    html_table,
    pre,
    section,
    table_text,
    us_text,
)
from eqsat.report.names import generic_word
from eqsat.report.text import rule_check_lines

WHY = {
    "complete": "proven{by}: there is no other",
    "points": "more exist: `--points N` shows more",
    "cut": "there may be others",
    OUT_OF_TIME: "the time ended, there may be others",
    "interrupted": "interrupted, there may be others",
    "infeasible": "nothing is admissible (proven)",
}
_ROWS, _COLUMNS = 14, 56  # of the plot in characters
_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class FrontReport:
    """The facts of a front: runs from the fastest on, and how far the search came."""

    title: str
    runs: tuple[Finished, ...]
    at_least: int  # so many points exist
    complete: bool
    stop: str  # complete | points | time | interrupted
    seconds: float
    baseline: dict[str, float | int] | None  # by the keys of the summary
    goals: tuple[str, ...] = ("time", "memory", "dispatches")

    @property
    def columns(self) -> tuple[str, ...]:
        return ("point", *self.goals, "gap", "what is in it")

    @property
    def axes(self) -> tuple[str, str]:
        """The goals along a plot's axes: time if it is one, and the first other."""
        right = "time" if "time" in self.goals else self.goals[0]
        return right, next(g for g in self.goals if g != right)


def goal_of(run: Finished, goal: str) -> GoalResult:
    return answer_of(run).goal(goal)


def answer_of(run: Finished) -> Selection:
    return finished_stages(run)[1]


def is_proven(front: FrontReport, run: Finished) -> bool:
    """Whether a point is one of the front of every candidate there is."""
    return not answer_of(run).cuts and not any(goal_of(run, g).gap for g in front.goals)


def front_json(front: FrontReport) -> dict[str, Any]:
    """The object that `--output-format json` prints."""
    return {
        "format": 1,
        "title": front.title,
        "goals": list(front.goals),
        "points": [_point_json(i, run, front.goals) for i, run in enumerate(front.runs, 1)],
        "at_least": front.at_least,
        "complete": front.complete,
        "stop": front.stop,
        "among": among(front) or None,
        "baseline": front.baseline,
        "rule_check": front.runs[0].summary()["rule_check"] if front.runs else None,
        "seconds": round(front.seconds, 6),
    }


def _point_json(number: int, run: Finished, goals: Sequence[str]) -> dict[str, Any]:
    point: dict[str, Any] = {"name": f"point-{number}"}
    for goal in goals:
        g = goal_of(run, goal)
        values = {"value": scaled(goal, g.value), "bound": scaled(goal, g.bound)}
        point[goal_key(goal)[0]] = values | {"gap": g.gap}
    return point | {"contents": dict(contents(run))}


def contents(run: Finished) -> Counter[str]:
    """The content of a program where points differ: conversions, tiles, work done again."""
    egraph, selection, schedule = finished_stages(run)
    words = {
        "packs": "pack", "unpacks": "unpack", "transposes": "transpose",
        "fused_conversions": "fused conversion", "weight_packs": "weight pack",
        "interchanged": "interchanged op",
    }  # fmt: skip
    counts = schedule.counts()
    counted = Counter({words[k]: counts[k] for k in words if counts[k]})
    members = Counter(m for g in selection.groups for m in g.members)
    for m, times in members.items():
        node = egraph.nodes[m]
        if node.op in LEAVES | CONVERSIONS | VIEWS:
            continue
        if times > 1:
            counted["recomputed op"] += times - 1
        word = generic_word(node) if node.op == "generic" else ""
        if word.startswith("contraction "):
            counted[word] += 1
    temporaries = sum(b.role == "temporary" for b in schedule.buffers)
    return counted + Counter({"temporary": temporaries})


def telling_contents(runs: Sequence[Finished]) -> list[str]:
    """Per point the contents that are not the same in all of them."""
    every = [contents(r) for r in runs]
    keys = dict.fromkeys(k for c in every for k in c)
    telling = [k for k in keys if len({c[k] for c in every}) > 1]
    return [", ".join(_count(c[k], k) for k in telling) for c in every]


def _count(n: int, what: str) -> str:
    return count_text(n, what, "temporaries" if what == "temporary" else "")


def rows(front: FrontReport) -> list[tuple[str, ...]]:
    """The columns, printed."""
    printed: list[tuple[str, ...]] = []
    for i, (run, what) in enumerate(zip(front.runs, telling_contents(front.runs), strict=True), 1):
        values = (goal_text(g, goal_of(run, g).value) for g in front.goals)
        printed.append((str(i), *values, _gap(run, front.goals), what))
    return printed


def _gap(run: Finished, goals: Sequence[str]) -> str:
    gaps = [(g, goal_of(run, g).gap) for g in goals]
    worst = max(gaps, key=lambda g: g[1])
    return "0.0%" if worst[1] == 0 else f"{worst[1]:.1%} ({worst[0]})"


def count_sentence(front: FrontReport) -> str:
    """`5 points (proven: there is no other)`; `8 of at least 9 points (…)`."""
    n = len(front.runs)
    shown = count_text(n, "point")
    if front.at_least > n:
        shown = f"{n} of at least {count_text(front.at_least, 'point')}"
    over = among(front)
    by = by_figures(front.runs[0].target, front.runs[0].goals) if n else ""
    return f"{shown} ({f'best of {over}: ' if over else ''}{WHY[front.stop].format(by=by)})"


def among(front: FrontReport) -> str:
    """Over which candidates the points are the best, if that is not all there are."""
    return answer_of(front.runs[0]).among if front.runs else ""


def front_text(front: FrontReport) -> str:
    """Title, table, plot, and how complete it is."""
    lines = [front.title, "", table_text(front.columns, rows(front)).rstrip()]
    if front.baseline is not None:
        lines.append(f"the input itself: {_baseline_text(front.baseline)}")
    plot = plot_lines(front)
    end = [count_sentence(front), *_rule_check(front), ""]
    return "\n".join([*lines, "", *plot, *([""] if plot else []), *end])


def _rule_check(front: FrontReport) -> list[str]:
    """The rule check, which is one of all points."""
    return rule_check_lines(front.runs[0]) if front.runs else []


def _baseline_text(b: dict[str, float | int]) -> str:
    number = count_text(int(b["dispatches"]), "dispatch", "dispatches")
    return f"{us_text(b['time_us'])}, {bytes_text(int(b['peak_bytes']))}, {number}"


def front_warnings(front: FrontReport) -> list[Diagnostic]:
    """E401 if the front is not proven."""
    if front.stop in ("complete", "points"):
        return []
    open_points = sum(not is_proven(front, r) for r in front.runs)
    counts = f"{count_text(len(front.runs), 'point')} found, {open_points} of them not proven"
    return [
        Diagnostic(
            "E401",
            f"the search for the front stopped ({front.stop}): {counts}; there may be others",
            help="give it more time: `--time-limit 300s`",
            severity="warning",
        )
    ]


# ---- plots ---------------------------------------------------------------------------------------
def _places(front: FrontReport, columns: float, height: float) -> list[tuple[float, float]]:
    """Per point (x, y), by the axes of the front."""
    right, up = _sides(front)
    return [
        (columns * _share(x, right), height * _share(y, up)) for x, y in zip(right, up, strict=True)
    ]


def _sides(front: FrontReport) -> tuple[list[int], list[int]]:
    """Per point the value to the right and the one upwards."""
    right, up = ([goal_of(r, goal).value for r in front.runs] for goal in front.axes)
    return right, up


def _share(value: int, among: list[int]) -> float:
    low, high = min(among), max(among)
    return (value - low) / (high - low) if high > low else 0.5


def plot_lines(front: FrontReport) -> list[str]:
    """One goal over another in characters; nothing for a single point."""
    if len(front.runs) < 2:
        return []
    grid = [[" "] * (_COLUMNS + 1) for _ in range(_ROWS + 1)]
    for i, (x, y) in reversed(list(enumerate(_places(front, _COLUMNS, _ROWS)))):
        grid[_ROWS - round(y)][round(x)] = _MARKS[i] if i < len(_MARKS) else "*"
    (right, up), (xs, ys) = front.axes, _sides(front)
    labels = {0: goal_text(up, max(ys)), _ROWS: goal_text(up, min(ys))}
    width = max(len(up), *(len(t) for t in labels.values()))
    lines = [up.rjust(width)]
    lines += [
        f"{labels.get(i, '').rjust(width)} |{''.join(row)}".rstrip() for i, row in enumerate(grid)
    ]
    low, high = goal_text(right, min(xs)), goal_text(right, max(xs))
    lines.append(f"{' ' * width} +{'-' * (_COLUMNS + 1)}")
    lines.append(f"{' ' * width}  {low}{high.rjust(_COLUMNS + 1 - len(low))}  {right}")
    return lines


_LEFT, _TOP, _WIDE, _HIGH = 90, 20, 560, 300


def plot_svg(front: FrontReport) -> str:
    """One goal over another, a circle per point, hollow where not proven; no scripts."""
    if not front.runs:
        return ""
    circles = []
    for i, ((x, y), run) in enumerate(zip(_places(front, _WIDE, _HIGH), front.runs, strict=True)):
        proven = is_proven(front, run)
        values = ", ".join(f"{g} {goal_text(g, goal_of(run, g).value)}" for g in front.goals)
        at = f'cx="{_LEFT + x:.1f}" cy="{_TOP + _HIGH - y:.1f}"'
        look = "point" if proven else "point open"
        label = f'x="{_LEFT + x + 9:.1f}" y="{_TOP + _HIGH - y - 7:.1f}"'
        circles.append(
            f"<g><title>point {i + 1}: {escape(values)}</title>"
            f'<circle class="{look}" {at} r="6"/><text {label}>{i + 1}</text></g>'
        )
    return (
        f'<div class="wide"><svg viewBox="0 0 {_LEFT + _WIDE + 90} {_TOP + _HIGH + 50}" '
        'role="img" aria-label="{" over ".join(reversed(front.axes))}">\n'
        + "\n".join([_axes(front), *circles])
        + "\n</svg></div>"
    )


def _axes(front: FrontReport) -> str:
    (right, up), (xs, ys) = front.axes, _sides(front)
    floor, end = _TOP + _HIGH + 14, _LEFT + _WIDE
    return (
        f'<path class="frame" d="M{_LEFT - 14} {_TOP - 10}V{floor}H{end + 10}"/>'
        f'<text x="0" y="{_TOP + 4}">{goal_text(up, max(ys))}</text>'
        f'<text x="0" y="{_TOP + _HIGH + 4}">{goal_text(up, min(ys))}</text>'
        f'<text x="{_LEFT - 8}" y="{floor + 18}">{goal_text(right, min(xs))}</text>'
        f'<text x="{end - 30}" y="{floor + 18}">{goal_text(right, max(xs))}</text>'
        f'<text x="0" y="{_TOP + _HIGH // 2}">{up}</text>'
        f'<text x="{_LEFT + _WIDE // 2}" y="{floor + 18}">{right}</text>'
    )


_STYLE = (
    "<style>svg .frame{fill:none;stroke:var(--soft)}svg .point{fill:var(--mark);"
    "stroke:var(--mark);stroke-width:2}svg .open{fill:var(--paper)}</style>"
)


def front_page(front: FrontReport) -> str:
    """One self-contained page: plot, table, and each point's dispatches."""
    right, up = front.axes
    body = [
        _STYLE,
        f"<h1>{escape(front.title)}</h1>",
        *(f'<p class="soft">{escape(t)}</p>' for t in (count_sentence(front), *_rule_check(front))),
        section(f"{up.capitalize()} over {right}", plot_svg(front)),
        section("Points", html_table(front.columns, rows(front), range(1, len(front.goals) + 2))),
    ]
    if front.baseline is not None:
        body.append(f"<p>the input itself: {escape(_baseline_text(front.baseline))}</p>")
    for i, run in enumerate(front.runs, 1):
        _, _, schedule = finished_stages(run)
        body.append(section(f"Point {i}", pre(schedule.to_text())))
    return document(front.title, "\n".join(body))
