"""`eqsat.assert_permutes`: the least number of permutes that a program needs, in a user's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eqsat.api.optimization import optimize
from eqsat.frontends.source import Source
from eqsat.model.ops import CONVERSIONS, permutes
from eqsat.model.program import Program
from eqsat.model.target import Target
from eqsat.run import Run


def assert_permutes(
    function_or_program: Callable[..., Any] | Program | Source | str,
    minimum: int,
    *example_args: Any,
    target: str | Path | Target = "cortex-m-like",
    **how: Any,
) -> Run:
    """The run, if `minimum` permutes are enough for the program on the target and fewer are not.

    A permute is a transpose, pack or unpack of a run that changes the order of elements; those of
    weights are done ahead. Of the programs that the rules reach the least number is proven.
    AssertionError if another number is, with the permutes that are left, or if none is in time.

    * example_args, how: those of `eqsat.optimize`, such as `weights=`, `layouts=`, `time_limit=`.
    """
    how.setdefault("rules", "permutes")
    run = optimize(
        function_or_program, *example_args, target=target, goals=("permutes", "time"), **how
    )
    selection, schedule = run.selection, run.schedule
    if selection is None or schedule is None:
        raise AssertionError("a search with `stop_after` counts no permutes")
    found, nodes = dict(selection.goals)["permutes"], schedule.program.nodes
    left = [i for _, i in schedule.ops(CONVERSIONS) if permutes(nodes[i].op, nodes[i].attr)]
    named = schedule.program.value_name
    text = "; ".join(
        f"{n.op}({named(n.operands[0])}, {n.attr.text(n.op)})" for n in (nodes[i] for i in left)
    )
    least, where = found.value, f"permutes on {schedule.target}"
    if least != found.bound or selection.is_capped:
        what = f"the search ended by `{selection.stop}`; give it a longer `time_limit`"
        raise AssertionError(f"{found.bound} to {least} {where}, nothing is proven: {what}")
    if least != minimum:
        what = f"the least number of {where} is {least} (proven), not {minimum}"
        raise AssertionError(f"{what}: {text}" if left else what)
    return run
