"""Layouts that cannot matter: without them answers are as good, and a price inside keeps them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from fuzz.searches import FAST, FORCED, SEVERAL
from seeds import one_in, seeds

import eqsat
from eqsat.extract import search
from eqsat.extract.candidates import pool as pools
from eqsat.extract.check import check
from eqsat.model.selection import GoalRequest

GOALS = ("time", "memory", "dispatches")


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "turn": lambda x, _: x.T,
    "dot": lambda x, y: x @ y,
    "exp": lambda x, _: jnp.exp(x),
    "pad": lambda x, _: jnp.pad(x[:40, :40], 4),
    "halves": lambda x, y: jnp.concatenate([x[24:], y[:24]]),
    "rows": lambda x, y: x + jnp.max(y, axis=1)[:, None],
}


def function(seed: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """A few of these ops over two squares, with two results."""
    rng = random.Random(seed)
    steps = [
        (rng.choice((*OPS, "dot")), rng.randrange(i + 2), rng.randrange(i + 2))
        for i in range(rng.randint(2, 6))
    ]

    def run(a: Any, b: Any) -> tuple[Any, Any]:
        found = [a, b]
        for op, i, j in steps:
            found.append(OPS[op](found[i], found[j]))
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


def rolled(x: Any, _: Any) -> tuple[Any, Any]:
    """Four ops in the layout of `x`, the last of which turns its result: with a transpose, five."""
    y = jnp.concatenate([x.T[16:], x.T[:16]])
    return jax.nn.relu(x), y + y


PROGRAMS = [rolled, shared, beside, sliced, *map(function, range(4))]
SQUARE = jax.ShapeDtypeStruct((48, 48), "float32")


def values_without_and_with(monkeypatch: pytest.MonkeyPatch, run: eqsat.Run) -> list[Any]:
    """Of the goals, where idle layouts are left out and where all are there."""
    assert run.egraph is not None
    values = []
    for is_free in (pools.converts_for_free, lambda *_: False):
        monkeypatch.setattr(pools, "converts_for_free", is_free)
        found, _ = search.extract(run.egraph, run.target, tuple(map(GoalRequest, GOALS)))
        assert found is not None and found.stop == "optimal"
        assert not list(check(run.egraph, run.target, found))
        values.append([(name, goal.value) for name, goal in found.goals])
    return values


@pytest.mark.parametrize("target", ["avx512-xla", "reference", "no-data-tiling"])
@pytest.mark.parametrize("program", one_in(4, PROGRAMS))
def test_answers_without_idle_layouts_are_as_good(
    monkeypatch: pytest.MonkeyPatch, target: str, program: Callable[..., Any]
) -> None:
    run = eqsat.optimize(program, SQUARE, SQUARE, target=target, stop_after="egraph")
    idle, every = values_without_and_with(monkeypatch, run)
    assert idle == every


@pytest.mark.parametrize("members", seeds(1, [4, 2]))
@pytest.mark.parametrize("settings", [(SEVERAL, *FAST), FORCED, ("untiled_rate=0.2",)])
@pytest.mark.parametrize("seed", seeds(1, (40, 48, 58, *range(20, 24))))
def test_so_they_are_where_packed_ops_are_quicker_or_the_only_ones(
    monkeypatch: pytest.MonkeyPatch, seed: int, settings: tuple[str, ...], members: int
) -> None:
    """Their conversions are members: where a dispatch has no room for these, no layout is idle.

    Answers may be better: where layouts are idle, groups with all their conversions are there, too.
    """
    said = (*settings, f"fusion.members={members}")
    how = {"target": "avx512-xla", "settings": said, "stop_after": "egraph"}
    idle, every = values_without_and_with(
        monkeypatch, eqsat.optimize(function(seed), SQUARE, SQUARE, **how)
    )
    assert idle <= every


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
    for settings in ((), (setting,)):
        eqsat.optimize(shared, SQUARE, SQUARE, target="avx512-xla", settings=settings)
    assert asked[0]
    assert not asked[-1]
