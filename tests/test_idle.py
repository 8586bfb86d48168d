"""Layouts that cannot matter: without them answers are as good, and a price inside keeps them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import pytest

import eqsat
from eqsat.extract import search
from eqsat.extract.candidates import pool as pools
from eqsat.extract.check import check
from eqsat.model.selection import GoalRequest

GOALS = ("time", "memory", "dispatches")


def function(seed: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Sums, products, contractions and transposes over two squares, with two results."""
    rng = random.Random(seed)
    steps = [
        (rng.choice(("add", "mul", "turn", "dot")), rng.randrange(i + 2), rng.randrange(i + 2))
        for i in range(rng.randint(2, 5))
    ]

    def run(a: Any, b: Any) -> tuple[Any, Any]:
        found = [a, b]
        for op, i, j in steps:
            x, y = found[i], found[j]
            ops = {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "dot": lambda x, y: x @ y}
            found.append(x.T if op == "turn" else ops[op](x, y))
        return found[-1], found[-2]

    return run


def shared(a: Any, b: Any) -> tuple[Any, Any]:
    """Two readers of one operand and of its transpose."""
    return a.T * a, a @ a.T


def beside(x: Any, b: Any) -> tuple[Any, Any]:
    """A result that is another layout of what the other one reads."""
    return jax.numpy.exp(x.T @ b), b.T


def sliced(x: Any, b: Any) -> tuple[Any, Any]:
    """Parts of what is computed: a slice of a packed buffer has other starts than a plain one."""
    y = jax.numpy.exp(x @ b)
    return y[:16] @ b, y[16:32] * y[32:]


PROGRAMS = [shared, beside, sliced, *map(function, range(4))]


@pytest.mark.parametrize("target", ["avx512-xla", "reference", "no-data-tiling"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_answers_without_idle_layouts_are_as_good(
    monkeypatch: pytest.MonkeyPatch, target: str, program: Callable[..., Any]
) -> None:
    square = jax.ShapeDtypeStruct((48, 48), "float32")
    run = eqsat.optimize(program, square, square, target=target, stop_after="egraph")
    values = []
    for is_free in (pools.converts_for_free, lambda *_: False):
        monkeypatch.setattr(pools, "converts_for_free", is_free)
        found, _ = search.extract(run.egraph, run.target, tuple(map(GoalRequest, GOALS)))
        assert not list(check(run.egraph, run.target, found))
        values.append([(name, goal.value) for name, goal in found.goals])
    assert values[0] == values[1]


@pytest.mark.parametrize(
    "setting",
    ["relayout=1 GB/s", "fusion.siblings=false", "limits.vector=32 KiB"],
)
def test_all_layouts_stay_where_a_conversion_inside_has_a_price_or_decides(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    asked = []

    def told(*sides: Any) -> bool:
        asked.append(is_free(*sides))
        return asked[-1]

    is_free = pools.converts_for_free
    monkeypatch.setattr(pools, "converts_for_free", told)
    square = jax.ShapeDtypeStruct((48, 48), "float32")
    for settings in ((), (setting,)):
        eqsat.optimize(shared, square, square, target="avx512-xla", settings=settings)
    assert asked[0]
    assert not asked[-1]
