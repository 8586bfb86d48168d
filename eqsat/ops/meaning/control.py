"""NumPy meaning of loops and branches, with a bound on how often a body runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from eqsat.model.control import COND, SCAN, Control
from eqsat.model.diag import fail
from eqsat.model.program import Program

Array = np.ndarray[Any, Any]
Evaluate = Callable[[Program, Sequence[Array]], list[Array]]
MOST_STEPS = 100_000  # of one loop; the reference is for checking, and ends


def evaluate_control(
    attr: Control,
    operands: Sequence[Array],
    evaluate: Evaluate,
    most_steps: int | None = MOST_STEPS,
) -> list[Array]:
    """The results of a loop or branch; `evaluate` runs one body.

    EqsatError E331 if a loop runs more than `most_steps` times; None: whoever evaluates ends it.
    """
    if attr.op == COND:
        index = int(np.clip(operands[0], 0, len(attr.bodies) - 1))
        return evaluate(attr.bodies[index], operands[1:])
    consts, rest = list(operands[: attr.consts]), list(operands[attr.consts :])
    if attr.op == SCAN:
        _check(attr.length, most_steps)
        return _scan(attr, consts, rest[: attr.carries], rest[attr.carries :], evaluate)
    return _while(attr, consts, rest, evaluate, most_steps)


def _scan(
    attr: Control,
    consts: list[Array],
    state: list[Array],
    stacked: list[Array],
    evaluate: Evaluate,
) -> list[Array]:
    slices: list[list[Array]] = []
    steps = range(attr.length)
    for step in reversed(steps) if attr.reverse else steps:
        found = evaluate(attr.bodies[0], [*consts, *state, *(x[step] for x in stacked)])
        state = found[: attr.carries]
        slices.append(found[attr.carries :])
    if attr.reverse:
        slices.reverse()
    if not slices:
        return state + _nothing(attr)
    return state + [np.stack(column) for column in zip(*slices, strict=True)]


def _nothing(attr: Control) -> list[Array]:
    """What a scan of no steps stacks."""
    from eqsat.ops.meaning.scalar import held_dtype

    return [np.zeros(t.shape, held_dtype(t.dtype)) for t in attr.result_types[attr.carries :]]


def _while(
    attr: Control,
    consts: list[Array],
    state: list[Array],
    evaluate: Evaluate,
    most_steps: int | None,
) -> list[Array]:
    condition, body = attr.bodies
    for step in count():
        if not bool(evaluate(condition, [*consts, *state])[0]):
            break
        _check(step, most_steps)
        state = evaluate(body, [*consts, *state])
    return state


def _check(steps: int, most: int | None) -> None:
    if most is not None and steps > most:
        raise fail(
            "E331",
            f"a loop runs more than {most:,} steps, too many for the float64 reference",
            help="evaluate the same program with fewer steps",
        )
