"""Why nothing is admissible: the budgets, what they would need, and the groups limits removed."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from eqsat.extract.candidates.assemble import Assembly
from eqsat.extract.solve.goals import Search
from eqsat.model.deadline import OutOfTime, until
from eqsat.model.diag import EqsatError, fail
from eqsat.model.selection import CAP, RESULT_RELATION, TIME_LIMIT, Removed
from eqsat.model.target import Target

SHOWN = 5  # removed groups named in a message
MANY = 10_000  # options: more are not searched for the sake of a message
SECONDS = 10.0  # for all "smallest possible" figures, at most
UNITS = {
    "time": "ps", "memory": "bytes", "dispatches": "dispatches", "resident": "bytes",
    "load_peak": "bytes",
}  # fmt: skip


def _amount(goal: str, value: int) -> str:
    if goal == "time":
        return f"{value / 1e6:,.3f} us"
    return f"{value:,} {UNITS.get(goal, '')}".rstrip()


def removed_sentence(r: Removed) -> str:
    """`the unfused transpose %1 needs 524,288 bytes, the vector limit is 8,192 (place)`."""
    place = f" ({r.place})" if r.place else ""
    if r.limit_name == RESULT_RELATION:
        return f"the {r.what} writes permuted, {RESULT_RELATION} is identity{place}"
    what = r.what if r.what.startswith("a ") else f"the unfused {r.what}"
    return f"{what} needs {r.bytes:,} bytes, the {r.limit_name} limit is {r.limit:,}{place}"


def _reasons(assembly: Assembly, target: Target) -> list[str]:
    limits = [r for r in assembly.removed if r.limit_name not in (CAP, TIME_LIMIT)]
    found = [removed_sentence(r) for r in sorted(limits, key=lambda r: -r.bytes)[:SHOWN]]
    untiled = assembly.pool.untiled
    if untiled:
        names = ", ".join(assembly.pool.space.name(i) for i in untiled[:SHOWN])
        if target.tiles_forced:
            found.append(f"`tiles: forced` ({target.place('tiles')}) rules out unpacked {names}")
        else:
            found.append(f"none of the `pipelines` ({target.place('pipelines')}) takes {names}")
    return found


def inadmissible(
    assembly: Assembly, target: Target, search: Search, proven: bool, seconds: float = SECONDS
) -> EqsatError:
    """The E410 error; it says whether this is proven or unknown at the time limit.

    seconds: how long it may look for what the budgets would have to be.
    """
    lines = [
        f"the budget {goal} <= {_amount(goal, limit)} ({target.place(f'budget.{goal}')})"
        for goal, limit in search.budget.items()
    ]
    free = replace(search, budget={}, deadline=time.monotonic() + min(seconds, SECONDS))
    needs: list[str] = []
    with suppress(OutOfTime), until(free.deadline):
        for goal in search.budget:
            asked = _any_order(assembly, free) if goal == "memory" else free
            needs.append(_need(asked, goal))
    causes = [*lines, *(n for n in needs if n), *_reasons(assembly, target)]
    head = "no choice is admissible (proven)" if proven else "nothing admissible found in time"
    short_of_time = any(c.by == TIME_LIMIT for c in assembly.cuts)
    if short_of_time:
        head += ": candidates were left out for want of time"
    elif not search.budget:
        head += ": some result cannot be computed on this target"
    elif len(needs) == len(search.budget) and not any(needs):
        head += ": some result cannot be computed on this target, whatever the budgets"
    message = "; ".join([head, *causes])
    advice = "raise a budget or a limit, or add rules that reach other forms"
    if short_of_time:
        advice = "give the search more time (`--time-limit`)"
    return fail("E410", message, help=advice, exit_code=3)


def _any_order(assembly: Assembly, search: Search) -> Search:
    """The same questions without an order: what memory needs has to hold in every one."""
    return replace(search, problem=assembly.unordered().problem, hints=(), relaxed={})


def _need(search: Search, goal: str) -> str:
    """What a goal needs at least; nothing if there is no choice without the budgets either."""
    relaxed = search.relaxation(goal)
    if relaxed is None:
        return ""
    least = max(relaxed.bound, search.least_bytes if goal == "memory" else 0)
    at_least = f"any choice needs a {goal} of at least {_amount(goal, least)}"
    if len(search.problem.options) > MANY:
        return at_least
    found = search.minimise({goal: 1}, {}, None, SECONDS)
    if found.status == "infeasible":
        return ""
    if found.status == "optimal":
        return f"the least {goal} any choice needs is {_amount(goal, found.bound)}"
    return at_least
