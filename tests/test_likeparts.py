"""Products on parts of a value, put together or added up, are one product on the whole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from loops import array
from stated import hold_equal

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.ops.programs.horizontal_fusion import like_parts
from eqsat.ops.spelling.passes import canonical

X, W, G = array(1, 6, 8), array(2, 4, 8, 5), array(3, 6, 4)
OWN = [array(4 + i, 8, 5) for i in range(3)]  # a weight for each part


def heads(x: Any, w: Any) -> Any:
    return jnp.concatenate([x @ w[i] for i in range(4)], axis=1)


def heads_in_front(x: Any, w: Any) -> Any:
    return jnp.stack([jnp.tanh(x @ w[i]) for i in range(4)])


def weights_of_their_own(x: Any) -> Any:
    return jnp.concatenate([jax.nn.relu(x @ w) for w in OWN], axis=1)


def attention(x: Any, w: Any) -> Any:
    def head(i: int) -> Any:
        q = x @ w[i]
        return jax.nn.softmax(q @ q.T) @ q

    return jnp.concatenate([head(i) for i in range(4)], axis=1)


def groups(x: Any, w: Any) -> Any:
    """A grouped product: each group of columns has a weight."""
    return jnp.concatenate([x[:, 2 * i : 2 * i + 2] @ w[i, :2] for i in range(4)], axis=1)


def summed(x: Any, w: Any) -> Any:
    """A sum over heads, in another order, with a residual and an activation."""
    parts = [x[:, 2 * i : 2 * i + 2] @ w[i, 2:4] for i in (2, 0, 3, 1)]
    return jnp.tanh(parts[0] + parts[1] + (parts[2] + x[:, :5]) + parts[3])


def experts(x: Any, w: Any, g: Any) -> Any:
    return sum((g[:, i, None] * jax.nn.relu(x @ w[i]) for i in range(4)), x[:, :5])


def gated(x: Any, w: Any, g: Any) -> Any:
    return sum(g[:, i, None] * (x @ w[i]) for i in range(4))


def adapters(x: Any) -> Any:
    return sum(x @ w for w in OWN)


CASES: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    "heads": (heads, (X, W), 1),
    "heads_in_front": (heads_in_front, (X, W), 1),
    "weights_of_their_own": (weights_of_their_own, (X,), 1),
    "attention": (attention, (X, W), 1),
    "groups": (groups, (X, W), 1),
    "summed": (summed, (X, W), 1),
    "experts": (experts, (X, W, G), 1),
    "gated": (gated, (X, W, G), 1),
    "gated_rows": (gated, (X[:, :3], W[:, :3], G), 2),
    "adapters": (adapters, (X,), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_whole_is_what_its_parts_are(name: str):
    function, args, forms = CASES[name]
    source = trace(function, args)
    program = canonical(source.program)
    known = like_parts(program, len(program.nodes), inexact=True)
    assert known is not None
    assert len(known.equal) == forms
    hold_equal(source, program, known, args)


def test_sums_stay_where_nothing_inexact_is_asked_for():
    for name in ("summed", "experts", "gated", "adapters"):
        function, args, _ = CASES[name]
        program = canonical(trace(function, args).program)
        assert like_parts(program, len(program.nodes), inexact=False) is None


def other_functions(x: Any, w: Any) -> Any:
    return jnp.concatenate([jnp.tanh(x @ w[0]), jnp.exp(x @ w[1])], axis=1)


def no_progression(x: Any, w: Any) -> Any:
    return jnp.concatenate([x @ w[i] for i in (0, 1, 3)], axis=1)


def no_product(x: Any) -> Any:
    return jnp.concatenate([jnp.tanh(x[:3]), jnp.tanh(x[3:])])


@pytest.mark.parametrize(
    ("function", "count"), [(other_functions, 2), (no_progression, 2), (no_product, 1)]
)
def test_what_is_unlike_stays(function: Any, count: int):
    program = canonical(trace(function, (X, W)[:count]).program)
    assert like_parts(program, len(program.nodes), inexact=True) is None


def test_heads_in_a_loop_are_searched_as_one_product():
    x, w = jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((4, 64, 32), "float32")
    run = eqsat.optimize(heads, x, w, target="avx512-xla", goals=("time",), weights=("w",))
    assert run.schedule is not None and run.egraph is not None
    assert len(run.schedule.dispatches) == 1
    assert "parts-at-once" in {r.name for r in run.egraph.rules}
