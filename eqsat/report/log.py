"""What a search says through Python's `logging`, phase by phase.

Each phase has a logger of its own (`eqsat.saturate`, `eqsat.extract`), so that
`logging.getLogger("eqsat").setLevel("INFO")` hears all of them and one can be silenced.
"""

from __future__ import annotations

import logging

from eqsat.model.progress import Progress
from eqsat.report.finished import Finished
from eqsat.report.progress import known_text
from eqsat.report.text import phase_facts


def log_phase(run: Finished, phase: str) -> None:
    """What a phase made, as `optimize` prints it."""
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
