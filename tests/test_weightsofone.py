"""Products of one value with many weights: one product with the weights side by side."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from loops import array
from stated import hold_equal

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.model.program import Program
from eqsat.ops.programs.sharedproducts import MOST_AT_ONCE, weights_of_one
from eqsat.ops.spelling.passes import canonical

N, M = 20, 12
ROWS = [array(i, M, N) for i in range(9)]
WIDE = [array(i, 4 + i, N) for i in range(4)]


def gates(x: Any) -> Any:
    """All are read by ops without a sum, with what they add to."""
    i, f, g, o = (x @ w.T for w in ROWS[:4])
    return jax.nn.sigmoid(f) * x[:, :M] + jax.nn.sigmoid(i) * jnp.tanh(g), jnp.tanh(o)


def left(x: Any) -> Any:
    """The weights stand on the left, so parts are rows; two of them are results."""
    a, b, c, d = (w @ x.T for w in ROWS[:4])
    return a, jnp.tanh(b) * c.sum(0), d


def unlike(x: Any) -> Any:
    """Each has a width of its own; reshapes read them."""
    return [jnp.tanh((x @ w.T).reshape(2, -1)) for w in WIDE if w.shape[0] % 2 == 0] + [
        jnp.tanh(x @ w.T) for w in WIDE if w.shape[0] % 2
    ]


def row(x: Any) -> Any:
    """A row that was sliced, so the product does not name it; transposed where it is read."""
    return [jnp.tanh(w @ x[0]) for w in ROWS[:4]]


def nine(x: Any) -> Any:
    return [jnp.tanh(x @ w.T) for w in ROWS]


CASES = {"gates": (gates, 1), "left": (left, 1), "unlike": (unlike, 1), "row": (row, 1),
         "nine": (nine, 2)}  # fmt: skip


def spelled(function: Any, rows: int = 1) -> tuple[Any, Program, Any]:
    args = (array(20, rows, N),)
    source = trace(function, args)
    return source, canonical(source.program), args


@pytest.mark.parametrize("name", CASES)
def test_parts_are_what_the_products_are(name: str):
    source, program, args = spelled(CASES[name][0])
    known = weights_of_one(program, len(program.nodes))
    assert known is not None
    hold_equal(source, program, known, args)
    stacks = [n for n in known.nodes if n.op == "concat"]
    assert len(stacks) == CASES[name][1]
    assert all(len(n.operands) <= MOST_AT_ONCE for n in stacks)


def test_ops_without_a_sum_read_the_whole_in_place():
    program = spelled(gates)[1]
    known = weights_of_one(program, len(program.nodes))
    assert known is not None
    assert "slice" not in {n.op for n in known.nodes}


def test_three_weights_are_for_rules():
    program = spelled(lambda x: [x @ w.T for w in ROWS[:3]])[1]
    assert weights_of_one(program, len(program.nodes)) is None


def test_weights_not_much_larger_than_their_products_are_left_alone():
    program = spelled(gates, rows=2)[1]
    assert weights_of_one(program, len(program.nodes)) is None


def test_products_of_two_places_are_not_put_together():
    program = spelled(nine)[1]
    first = len(program.nodes)
    assert weights_of_one(program, first, place=lambda node: node) is None


def test_a_search_puts_eight_gates_together_and_proves_it():
    big = [array(i, 64, 64) for i in range(8)]
    shape = jax.ShapeDtypeStruct((1, 64), jnp.float32)

    def cell(x: Any) -> Any:
        t = [x @ w for w in big]
        return jnp.tanh(t[0] + t[1]) * jnp.tanh(t[2] * t[3]) + t[4] * t[5] - t[6] / (2 + t[7])

    run = eqsat.optimize(cell, shape, target="avx512-xla", verify=True, time_limit=600.0)
    assert run.verification is not None and run.verification.ok
    assert run.selection is not None and run.selection.claim == "optimal"
    assert run.summary()["counts"]["dispatches"] <= 2
