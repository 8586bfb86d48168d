"""`eqsat.compare`: what differs between two answers, by how much, and what makes one the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat.report.compare import compare_runs

if TYPE_CHECKING:
    from eqsat.api import Run
    from eqsat.report.compare import Comparison


def compare(
    a: Run,
    b: Run,
    *,
    names: tuple[str, str] = ("A", "B"),
    flip: bool = False,
    time_limit: float = 60.0,
) -> Comparison:
    """Dispatches of both side by side, each difference with its bytes and time and its rules.

    flip: search `a` again with one thing changed at a time towards `b` (a rule, a key of the
    target, a budget, the goals) within `time_limit` seconds for all, and name for each difference
    the change after which `a` is as `b` there. Raises EqsatError (E405) if a run stopped early.
    """
    found = compare_runs(a, b, names)
    if not flip:
        return found
    from eqsat.entry.flips import with_flips

    return with_flips(found, a, b, time_limit)
