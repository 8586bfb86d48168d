"""How a schedule is run, as lines: by which executor, and what XLA runs in its place and why."""

from __future__ import annotations

from eqsat.model.executor import Execution

SHOWN = 12  # numbers of dispatches that a line names


def execution_lines(found: Execution) -> list[str]:
    """What the plan is to the executor, and a line per reason not to follow it."""
    lines = [f"executor {found.executor}{found.plan and ': '}{found.sentence}"]
    by_reason: dict[str, list[int]] = {}
    for number, why in found.declined:
        by_reason.setdefault(why, []).append(number)
    return lines + [f"{_named(n)} not run as planned: {why}" for why, n in by_reason.items()]


def _named(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"dispatch {numbers[0]} is"
    named = ", ".join(map(str, numbers[:SHOWN]))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"{len(numbers)} dispatches ({named}{more}) are"
