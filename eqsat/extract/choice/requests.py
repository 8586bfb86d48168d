"""What is asked for: goals that make sense together, their tolerances and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from eqsat.extract.choice.columns import GOALS, KEPT
from eqsat.extract.choice.linear import ASKED
from eqsat.model.diag import fail
from eqsat.model.selection import GoalRequest
from eqsat.plugins import plugged_in

SCALE = 10_000  # steps a weighted goal of the size of its baseline is divided into


def check_requests(requests: tuple[GoalRequest, ...]) -> None:
    """EqsatError (E404) for unknown or repeated goals, or if only some have weights."""
    names = [r.name for r in requests]
    known = (*GOALS, *KEPT, *ASKED, *plugged_in("goals"))
    for n in names:
        if n not in known:
            raise fail("E404", f"no goal named `{n}`", help=f"known: {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise fail("E404", "name at least one goal, and each goal once")
    weighted = [r.weight is not None for r in requests]
    if any(weighted) and not all(weighted):
        raise fail(
            "E404",
            "some goals have a weight and some have none",
            help="give all goals a weight (`time:2 memory:1`), or none (in order of priority)",
        )
    if any(r.within < 0 or (r.weight is not None and r.weight <= 0) for r in requests):
        raise fail("E404", "weights are positive and `within` is not negative")


def limit(request: GoalRequest, value: int, reference: Mapping[str, int]) -> int:
    """What a goal is held to behind a search that found this value: within its tolerance.

    A tolerance never makes it worse than the baseline.
    """
    loose = value + int(value * Fraction(str(request.within)))
    return max(value, min(loose, reference.get(request.name, loose)))


def weigh(requests: tuple[GoalRequest, ...], reference: dict[str, int]) -> dict[str, int]:
    """Integer coefficients of Σ weight · goal / reference, to one part in `SCALE` or better."""
    shares = {r.name: Fraction(str(r.weight)) / max(reference.get(r.name, 1), 1) for r in requests}
    unit = min(shares.values())
    return {n: max(round(s / unit * SCALE), 1) for n, s in shares.items()}
