"""Sums of two products in one op, as in a KAN's layer; and the windows that stay behind an op."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import eqsat
from eqsat.model.affine import dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import DEFAULT, HIGH, HIGHEST, NONE, finer
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.movement.moved_generics import slice_generic
from eqsat.ops.movement.moves import slice_of

ALGORITHM = "bf16_bf16_f32"


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (DEFAULT, HIGHEST, HIGHEST),
        (HIGH, DEFAULT, HIGH),
        (NONE, DEFAULT, DEFAULT),
        (ALGORITHM, ALGORITHM, ALGORITHM),
        (ALGORITHM, HIGHEST, None),
    ],
)
def test_the_more_accurate_precision_is_kept(a: str, b: str, both: str | None):
    assert finer(a, b) == finer(b, a) == both


def op(operands: int) -> Generic:
    """An op over f32[8, 10] whose operands all vary along both dims."""
    body = call("mul", arg(0), arg(1)) if operands == 2 else call("tanh", arg(0))
    return canonical_generic(
        (8, 10), range(2), [(dim(0), dim(1))] * operands, [(8, 10)] * operands,
        [Yield(body, "f32")], (), ("f32",) * operands, precision=NONE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("operands", "low", "high", "moves"),
    [
        (2, 1, 10, False),  # a window of nearly everything
        (2, 0, 9, True),  # as padding is taken off again
        (2, 5, 10, True),  # half of the work
        (1, 1, 10, True),
    ],
)
def test_windows_of_nearly_everything_stay_behind(operands: int, low: int, high: int, moves: bool):
    cut = slice_of((8, 10), (0, low), (8, high), (1, 1))
    assert (slice_generic(op(operands), cut) is not None) == moves


def test_a_layer_of_edges_is_two_products():
    def layer(x: Any, s: Any, base: Any, scale: Any, coef: Any) -> Any:
        edges = base * x[..., None] + scale * jnp.einsum("nik,iok->nio", s, coef)
        return edges.sum(1)

    shapes = [(16, 24), (16, 24, 4), (24, 32), (24, 32), (24, 32, 4)]
    run = eqsat.optimize(
        layer, *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes), rules=["full"],
        weights=("base", "scale", "coef"), target="avx512-xla", stop_after="egraph",
    )  # fmt: skip
    assert run.egraph is not None
    # rows x columns, summed over the inputs, and over the inputs and the splines of each
    wanted = {(16, 32, 24): False, (16, 32, 24, 4): False}
    for n in run.egraph.nodes:
        if isinstance(n.attr, Generic) and contraction_roles(n.attr) is not None:
            wanted |= {k: True for k in wanted if k == n.attr.sizes and n.attr.rank == 2}
    assert all(wanted.values())
