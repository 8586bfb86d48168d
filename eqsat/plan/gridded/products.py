"""Which stages of a nest are sums of products of two values, and what their loops are."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.expr import Expr
from eqsat.model.generic import without_casts
from eqsat.model.nest import Access, Nest, Stage
from eqsat.plan.stages import access_loops


@dataclass(frozen=True)
class ProductStage:
    """A sum of products: its two factors as bodies of one argument each, and loops by role.

    A loop of the stage that neither factor has is in none.
    """

    factors: tuple[Expr, Expr]
    arguments: tuple[int, int]  # places in the stage's arguments
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]


def product_of(nest: Nest, number: int) -> ProductStage | None:
    """The product that a stage sums; None if it is something else, or sums one factor alone."""
    s = nest.stages[number]
    if s.combine != "add" or s.bounds:
        return None
    body = without_casts(s.body)
    if body.fn != "mul" or body is not s.body:
        return None
    inner = [without_casts(a) for a in body.args]
    if any(a.fn != "arg" for a in inner) or inner[0] == inner[1]:
        return None
    places = (int(inner[0].value), int(inner[1].value))
    left, right = (loops_read(nest, s.arguments[p]) for p in places)
    every = {*s.loops, *s.reduced}
    left, right = left & every, right & every
    if not set(s.reduced) <= left & right:
        return None

    def among(loops: set[int]) -> tuple[int, ...]:
        return tuple(sorted(loops))

    own = set(s.loops)
    return ProductStage(
        (body.args[0], body.args[1]),
        places,
        among(left & right & own),
        among((left - right) & own),
        among((right - left) & own),
        among(set(s.reduced)),
    )


def products_of(nest: Nest) -> dict[int, ProductStage]:
    """Number of a stage → the product it sums."""
    found = {i: product_of(nest, i) for i in range(len(nest.stages))}
    return {i: p for i, p in found.items() if p is not None}


def argument_type(nest: Nest, number: int, place: int) -> str:
    """The element type of an argument of a stage."""
    a = nest.stages[number].arguments[place]
    return nest.stages[a].dtype if isinstance(a, int) else a.dtype


def loops_read(nest: Nest, argument: Access | int) -> set[int]:
    """The loops along which an argument of a stage differs."""
    if isinstance(argument, int):
        return set(nest.stages[argument].loops)
    return set(access_loops(argument))


def stage_loops(s: Stage) -> tuple[int, ...]:
    """All loops over which a stage runs."""
    return (*s.loops, *s.reduced)
