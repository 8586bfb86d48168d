"""Respelled programs whose optima are equal by algebra that is exact, or sums factors apart."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.ops.spelling.passes import canonical

A, B, C = (24, 40), (24, 56), (40, 56)
Shapes = tuple[tuple[int, ...], ...]


def shapes_of(shapes: Shapes) -> list[Any]:
    return [jax.ShapeDtypeStruct(s, "float32") for s in shapes]


def best(function: Any, shapes: Shapes, rules: str) -> float:
    run = eqsat.optimize(
        function, *shapes_of(shapes), target="avx512-xla", rules=rules, goals=["time"], verify=True
    )
    assert run.summary()["verify"]["ok"]
    return run.summary()["goals"]["time_us"]["value"]


SPELLINGS = {
    "factor of a product": (
        lambda a, b, c: jnp.sum(a[:, :, None] * b[:, None, :] * c[None], axis=2),
        lambda a, b, c: a * (b @ c.T),
        (A, B, C),
    ),
    "divided by what a sum does not run over": (
        lambda a, b, c: jnp.sum(b[:, None, :] * c[None] / (1 + a * a)[:, :, None], axis=2),
        lambda a, b, c: (b @ c.T) / (1 + a * a),
        (A, B, C),
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_factors_leave_a_sum_they_do_not_depend_on(name: str) -> None:
    inside, outside, shapes = SPELLINGS[name]
    assert best(inside, shapes, "full") == pytest.approx(best(outside, shapes, "full"))


def test_a_largest_of_equals_is_computed_once_by_default() -> None:
    def spread(x: Any) -> Any:
        y = lax.broadcast_in_dim(jnp.exp(x), (5, 48, 40, 6), (1, 2))
        return lax.reduce(y, jnp.inf, lax.min, (2, 3))

    def once(x: Any) -> Any:
        return jnp.broadcast_to(jnp.min(jnp.exp(x), axis=1), (5, 48))

    assert best(spread, ((48, 40),), "default") <= best(once, ((48, 40),), "default")


def test_a_concat_of_equal_parts_is_a_broadcast() -> None:
    def stacked(x: Any, w: Any) -> Any:
        return jnp.einsum("ik,ikn->in", x, jnp.stack([w] * 5))

    shapes = ((5, 64), (64, 96))
    plain = best(lambda x, w: x @ w, shapes, "full")
    assert best(stacked, shapes, "full") == pytest.approx(plain)


@pytest.mark.parametrize(("parts", "shape"), [(2, (4, 1)), (3, (4, 8)), (4, (1, 8))])
def test_equal_parts_become_one_loop(parts: int, shape: tuple[int, int]) -> None:
    program = trace(
        lambda x: jnp.concatenate([x] * parts, axis=1), tuple(shapes_of((shape,)))
    ).program
    assert {n.op for n in canonical(program).nodes} <= {"input", "generic", "reshape"}


def test_two_parts_along_a_dim_they_have_stay_for_the_rules() -> None:
    program = trace(lambda x: jnp.concatenate([x, x]), tuple(shapes_of(((4, 8),)))).program
    assert "concat" in {n.op for n in canonical(program).nodes}
