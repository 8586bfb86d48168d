"""How a search came to its answer: a line while it runs, a log of it, a table of it afterwards."""

from __future__ import annotations

import logging

from eqsat.model.progress import Curve, Point, Progress
from eqsat.report.finished import Finished
from eqsat.report.text import phase_facts
from eqsat.report.units import goal_text, seconds_text

CURVE_COLUMNS = ("after", "phase", "goal", "value", "bound", "gap")
CURVE_FIGURES = (0, 3, 4, 5)


def progress_line(now: Progress) -> str:
    """`candidates, 3.1 s of 60 s: time 4.5 us, bound 4.1 us, gap 8.9 %`, as far as it is known."""
    limit = "" if now.limit is None else f" of {now.limit:g} s"
    return f"{now.phase}, {now.seconds:.1f} s{limit}: {known_text(now)}"


def known_text(now: Progress) -> str:
    """The best value of the first goal so far, its proven lower bound, and the gap."""
    best = now.best
    if best is None:
        return "no answer yet"
    text = f"{now.goal} {goal_text(now.goal, best.value)}"
    if best.bound == 0 < best.value:
        return text
    return f"{text}, bound {goal_text(now.goal, best.bound)}, gap {best.gap:.1%}"


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


# ---- Python's logging ----------------------------------------------------------------------------
def log_phase(run: Finished, phase: str) -> None:
    """The result of a phase, as `optimize` prints it.

    Each phase has a logger of its own (`eqsat.saturate`, `eqsat.extract`), so that
    `logging.getLogger("eqsat").setLevel("INFO")` hears all of them and one can be silenced.
    """
    logger = _logger(phase)
    if not logger.isEnabledFor(logging.INFO):
        return
    for name, what, text in phase_facts(run):
        if name == phase:
            logger.info("%s", "  ".join(filter(None, (what, text))))


def log_progress(now: Progress) -> None:
    """The newest of what a search knows: a phase begins, or value and bound of the first goal."""
    if not now.points or now.points[-1].goal not in ("", now.goal):
        return
    point = now.points[-1]
    logger = _logger(point.phase)
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", known_text(now) if point.goal else "begins")


def _logger(phase: str) -> logging.Logger:
    return logging.getLogger(f"eqsat.{phase.replace(' ', '-')}")
