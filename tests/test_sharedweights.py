"""Products of several values with one weight: one product with the values side by side."""

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
from eqsat.ops.programs.sharedproducts import MOST_AT_ONCE, shared_weights
from eqsat.ops.spelling.passes import canonical

W, V = array(1, 8, 6), array(2, 6, 8)


def two(x: Any, y: Any) -> Any:
    return jnp.tanh(x @ W), y @ W


def left(x: Any, y: Any) -> Any:
    return jnp.tanh(W.T @ x), W.T @ y


def towers(x: Any, y: Any) -> Any:
    """Two towers of two layers: each layer has its own pair."""
    f = lambda x: jnp.tanh(x @ W) @ V  # noqa: E731
    return f(x), f(y)


def chain(x: Any, y: Any) -> Any:
    """The second product needs the first; the third one needs neither."""
    z = (x @ W) @ V
    return z @ W, y @ W


def ten(x: Any, y: Any) -> Any:
    return [jnp.tanh((x + i) @ W) + (y * i)[:, :6] for i in range(10)]


CASES = {
    "two": (two, 1), "left": (left, 1), "towers": (towers, 2), "chain": (chain, 1), "ten": (ten, 2)
}  # fmt: skip


def facts(name: str) -> tuple[Any, Program, Any]:
    args = (array(3, 8, 4), array(4, 8, 5)) if name == "left" else (array(3, 4, 8), array(4, 5, 8))
    args = (args[0], args[1][:4]) if name == "ten" else args
    source = trace(CASES[name][0], args)
    return source, canonical(source.program), args


@pytest.mark.parametrize("name", CASES)
def test_parts_are_what_the_products_are(name: str):
    source, program, args = facts(name)
    known = shared_weights(program, len(program.nodes))
    assert known is not None
    hold_equal(source, program, known, args)
    products = [n for n in known.nodes if n.op == "generic"]
    assert len(products) == CASES[name][1]
    assert all(len(n.operands) <= MOST_AT_ONCE for n in known.nodes)


def test_what_needs_each_other_is_not_put_together():
    def twice(x: Any) -> Any:
        return ((x @ W) @ V) @ W

    program = canonical(trace(twice, (array(3, 4, 8),)).program)
    assert shared_weights(program, len(program.nodes)) is None


def test_parts_of_one_value_are_not_put_together():
    def heads(x: Any, w: Any) -> Any:
        return [x @ w[i] for i in range(4)]

    program = canonical(trace(heads, (array(6, 16, 8), array(7, 4, 8, 3))).program)
    assert shared_weights(program, len(program.nodes)) is None


def test_a_search_reads_a_large_weight_once():
    big = array(5, 512, 512)
    shape = jax.ShapeDtypeStruct((4, 512), jnp.float32)
    run = eqsat.optimize(
        lambda x, y: (x @ big, jnp.tanh(y @ big)), shape, shape, target="avx512-xla", verify=True,
        time_limit=600.0,
    )  # fmt: skip
    assert run.verification is not None and run.verification.ok
    assert run.egraph is not None and run.schedule is not None
    names = {r.name for r in run.egraph.rules}
    assert "stack-inputs" in names
    assert run.baseline_schedule is not None
    assert run.schedule.time_ps < run.baseline_schedule.time_ps
