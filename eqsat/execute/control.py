"""Loops and branches as `lax.scan`, `lax.while_loop` and `lax.switch` over their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eqsat.model.control import COND, SCAN, Control
from eqsat.model.program import Program

Evaluate = Callable[[Program, Sequence[Any]], list[Any]]


def control(attr: Control, operands: Sequence[Any], evaluate: Evaluate) -> list[Any]:
    """The results of a loop or branch on JAX arrays; `evaluate` traces one body."""
    from jax import lax

    if attr.op == COND:
        branches = [lambda *xs, p=p: evaluate(p, xs) for p in attr.bodies]
        return list(lax.switch(operands[0], branches, *operands[1:]))
    consts, rest = list(operands[: attr.consts]), list(operands[attr.consts :])
    if attr.op == SCAN:
        return _scan(attr, consts, rest[: attr.carries], rest[attr.carries :], evaluate)
    condition, body = attr.bodies
    return lax.while_loop(
        lambda state: evaluate(condition, [*consts, *state])[0],
        lambda state: evaluate(body, [*consts, *state]),
        rest,
    )


def _scan(
    attr: Control, consts: list[Any], state: list[Any], stacked: list[Any], evaluate: Evaluate
) -> list[Any]:
    from jax import lax

    def step(carried: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        found = evaluate(attr.bodies[0], [*consts, *carried, *slices])
        return found[: attr.carries], found[attr.carries :]

    last, made = lax.scan(step, state, stacked, attr.length, attr.reverse)
    return [*last, *made]
