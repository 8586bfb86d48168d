"""With `rules: [exact]` every sum of floats is the same sum of the same terms as in the program.

Programs are evaluated on terms in place of numbers: a lane is a hash of what it was computed from,
and a sum the hash of what it adds, in whatever order. So two programs come to the same hashes only
if each rounding of the one is a rounding of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import one_in

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.model.control import Control
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic, Result
from eqsat.model.leaves import Fill
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_control, evaluate_node
from eqsat.ops.meaning.scalar import FUNCTIONS
from eqsat.ops.meaning.structured import strided_view
from eqsat.report.facts import inexact_rules
from eqsat.report.text import summary_text

Array = np.ndarray[Any, Any]


# ---- programs on terms ---------------------------------------------------------------------------
def mixed(*parts: Any) -> Array:
    """A hash of parts in their order; after splitmix64 (Steele et al., OOPSLA 2014)."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for part in parts:
            total = (total ^ np.asarray(part, np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            total = total ^ (total >> np.uint64(31))
    return np.asarray(total)


def named(text: str) -> Array:
    return mixed(int.from_bytes(text.encode()[:8].ljust(8), "little"), len(text))


def body(e: Expr, views: Sequence[Array]) -> Array:
    if e.fn == "arg":
        return views[e.value]
    if e.fn == "const":
        return named(repr(float(e.value)))
    args = [body(a, views) for a in e.args]
    if e.fn == "cast":
        return mixed(named(str(e.value)), *args)
    if FUNCTIONS[e.fn].commutative:
        with np.errstate(over="ignore"):
            return mixed(named(e.fn), np.add(*map(mixed, args)))
    return mixed(named(e.fn), *args)


def reduced(g: Generic, operands: Sequence[Array]) -> list[Array]:
    views = [strided_view(x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]
    found = []
    for y in g.yields:
        terms = np.broadcast_to(body(y.body, views), g.sizes)
        if y.combine:
            terms = mixed(named(y.combine), mixed(terms).sum(tuple(g.reductions), np.uint64))
        found.append(np.ascontiguousarray(terms))
    return found


def terms(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The results as terms over those of the inputs."""
    values: dict[int, list[Array]] = {i: [x] for i, x in zip(program.inputs, inputs, strict=True)}
    for i, n in enumerate(program.nodes):
        if i in values:
            continue
        operands = [values[o][0] for o in n.operands]
        if isinstance(n.attr, Generic):
            values[i] = reduced(n.attr, operands)
        elif isinstance(n.attr, Fill):
            values[i] = [np.broadcast_to(named(repr(float(n.attr.value))), n.type.shape)]
        elif isinstance(n.attr, Control):
            values[i] = evaluate_control(n.attr, operands, terms)
        elif isinstance(n.attr, Result):  # of a loop also its scratch space, which has no value
            values[i] = values[n.operands[0]][n.attr.index :][:1]
        else:
            values[i] = evaluate_node(n.op, n.attr, operands)
    return [values[r][0] for r in program.results]


def test_terms_tell_orders_of_steps_apart_and_no_order_within_a_sum() -> None:
    def hashes(f: Callable[..., Any], *shapes: tuple[int, ...]) -> list[Array]:
        p = trace(f, [jax.ShapeDtypeStruct(s, "float32") for s in shapes]).program
        return terms(p, drawn(p))

    product = hashes(lambda a, b: a @ b, (3, 4), (4, 5))
    turned = hashes(lambda a, b: (b.T @ a.T).T, (3, 4), (4, 5))
    assert np.array_equal(product, turned)
    one, two = hashes(lambda x: x.sum(), (3, 4)), hashes(lambda x: x.sum(1).sum(), (3, 4))
    assert not np.array_equal(one, two)


# ---- answers -------------------------------------------------------------------------------------
def drawn(program: Program) -> list[Array]:
    rng = np.random.default_rng(7)
    shapes = [program.nodes[i].type.shape for i in program.inputs]
    return [rng.integers(0, 2**63, s, np.uint64) for s in shapes]


def pooled(x: Any, w: Any) -> Any:
    return (x @ w).sum(0)


def chain(a: Any, b: Any, c: Any) -> Any:
    return (a @ b) @ c


def common_factor(x: Any, y: Any, w: Any) -> Any:
    return x @ w + y @ w


def heads(x: Any, w: Any) -> Any:
    return sum(x[:, 4 * i : 4 * i + 4] @ w[i] for i in range(4))


def gradient(x: Any, y: Any) -> Any:
    def step(total: Any, xy: tuple[Any, Any]) -> tuple[Any, None]:
        return total + jnp.outer(*xy), None

    return jax.lax.scan(step, jnp.zeros((16, 8), "float32"), (x, y))[0]


def twice(a: Any, b: Any) -> Any:
    return jnp.exp(a @ b) + jnp.tanh((b.T @ a.T).T)


def steps(x: Any) -> Any:
    return jnp.abs(x).sum(2).sum(1)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], bool]] = {
    # the program, shapes of what it takes, whether `full` adds up otherwise
    "sum-ahead-of-a-product": (pooled, ((64, 16), (16, 32)), True),
    "chain": (chain, ((64, 8), (8, 64), (64, 8)), True),
    "common-factor": (common_factor, ((32, 16), (32, 16), (16, 24)), True),
    "sum-of-alike-parts": (heads, ((32, 16), (4, 4, 24)), True),
    "sum-in-a-loop": (gradient, ((12, 16), (12, 8)), True),
    "sum-of-sums": (steps, ((8, 8, 8),), True),
    "equal-sums": (twice, ((16, 8), (8, 12)), False),
}


def answer(name: str, rules: str) -> tuple[eqsat.Run, bool]:
    """The answer, and whether its sums are those of the program."""
    function, shapes, _ = PROGRAMS[name]
    args = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
    run = eqsat.optimize(function, *args, rules=rules, target="reference", time_limit=60)
    assert run.schedule is not None
    given = drawn(run.program)
    pairs = zip(terms(run.schedule.program, given), terms(run.program, given), strict=True)
    return run, all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", one_in(4, PROGRAMS))
def test_exact_answers_have_the_sums_of_the_program(name: str) -> None:
    run, same = answer(name, "exact")
    assert same
    assert not any("inexact" in r.tags for r in run.rules.rules)
    assert inexact_rules(run) == {} and "rounds otherwise" not in summary_text(run)


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
def test_full_ones_may_not(name: str) -> None:
    run, same = answer(name, "full")
    adds_otherwise = PROGRAMS[name][2]
    assert same != adds_otherwise
    assert bool(inexact_rules(run)) == adds_otherwise


def test_what_rounds_otherwise_is_verified_beside_the_input() -> None:
    run, _ = answer("chain", "full")
    found = run.verify(samples=2)
    assert found.ok and found.input_error is not None
    assert 0 < found.input_error < 1e-5 and 0 < found.max_error < 1e-5
    text = summary_text(run)
    assert f"(of the input {found.input_error:.1e})" in text
    assert "rounds otherwise by reassociate-to-the-right (roundings)" in text
    assert run.summary()["verify"]["input_error"] == found.input_error
    run, _ = answer("chain", "exact")
    assert run.verify(samples=1).input_error is None
