"""What leaves a loop: ahead of it, behind it, as a sum; right on values, taken where it gains."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.worst import worst_error
from loops import FUNCTIONS, array
from seeds import seeds

import eqsat
from eqsat.frontends.jaxpr import trace
from eqsat.frontends.source import Source
from eqsat.model.control import Control, controls, every_program
from eqsat.model.generic import Generic
from eqsat.model.program import Program
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.meaning.programs import evaluate_control, evaluate_program
from eqsat.ops.meaning.scalar import held_dtype
from eqsat.ops.programs.loopforms import loop_forms
from eqsat.ops.spelling.passes import canonical

WX, WH, V = array(20, 12, 32), array(21, 8, 32), array(22, 8, 6)
XS, YS, ROW = array(30, 5, 3, 12), array(31, 5, 3, 4), array(32, 12)


def lstm(xs: Any) -> Any:
    def step(s: Any, x: Any) -> Any:
        h, c = s
        i, f, g, o = jnp.split(x @ WX + h @ WH, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), jax.nn.softmax(h @ V)

    return jax.lax.scan(step, (jnp.zeros((3, 8)), jnp.zeros((3, 8))), xs)


def products(xs: Any, ys: Any) -> Any:
    """As every gradient of a loop adds up those of its weights."""
    return jax.lax.scan(lambda c, p: (c + (p[1].T @ p[0]).T, None), jnp.ones((12, 4)), (xs, ys))[0]


def loss(xs: Any) -> Any:
    def step(s: Any, x: Any) -> Any:
        h = jnp.tanh(s[0] @ WH[:, :8] + x[:, :8])
        return (h, s[1] + jnp.sum((h @ V) ** 2), s[2] + 3), None

    return jax.lax.scan(step, (jnp.zeros((3, 8)), 0.0, 7), xs)


def invariant(x: Any, w: Any, v: Any, n: Any) -> Any:
    step = lambda s: (s[0] + 1, jnp.tanh(s[1] @ (w @ v)))  # noqa: E731
    return jax.lax.while_loop(lambda s: s[0] < n + jnp.sum(n * 2), step, (0, x))


def largest(xs: Any) -> Any:
    return jax.lax.scan(lambda c, x: (jnp.maximum(c, x.max()), x * 2), -1.0, xs)


def running(xs: Any) -> Any:
    """Every partial maximum is read, so it is no maximum of all steps."""
    return jax.lax.scan(lambda c, x: (jnp.maximum(c, x.max()), c), -1.0, xs)


def indexed(xs: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, c: c + xs[i] @ w, jnp.zeros((3, 4)))


def embedded(ids: Any, table: Any, h: Any) -> Any:
    return jax.lax.scan(lambda h, i: (jnp.tanh(h + table[i] @ WX[:, :8]), h), h, ids)


def taken_away(xs: Any, row: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        more = jnp.concatenate([row, x[0]])
        return (c[0] - x.sum(0), c[1] + row, c[2] + 2.5), (row, x, more)

    return jax.lax.scan(step, (jnp.ones(12), row, 0.0), xs)


def wrapping(n: Any) -> Any:
    step = lambda c, _: (c + jnp.int8(100), None)  # noqa: E731
    return jax.lax.scan(step, n, None, length=7)[0]


def gradient(xs: Any, w: Any, u: Any) -> Any:
    def f(w: Any, u: Any) -> Any:
        step = lambda h, x: (jnp.tanh(x @ w + h @ u), None)  # noqa: E731
        return jnp.sum(jax.lax.scan(step, jnp.zeros((3, 8)), xs)[0] ** 2)

    return jax.grad(f, (0, 1))(w, u)


IDS = np.array([3, 0, 8, 8, 1], np.int32)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lstm": (lstm, (XS,)),
    "products": (products, (XS, YS)),
    "loss": (loss, (XS,)),
    "invariant": (invariant, (array(1, 3, 8), array(2, 8, 4), array(3, 4, 8), np.int32(2))),
    "largest": (largest, (XS,)),
    "running": (running, (XS,)),
    "indexed": (indexed, (XS, array(5, 12, 4))),
    "embedded": (embedded, (IDS, array(7, 9, 12), array(8, 8))),
    "taken_away": (taken_away, (XS, ROW)),
    "wrapping": (wrapping, (np.int8(5),)),
    "gradient": (gradient, (XS, array(2, 12, 8), array(3, 8, 8))),
}
LOOPS = CASES | {name: found[:2] for name, found in FUNCTIONS.items()}


def loops(function: Callable[..., Any], args: Any) -> tuple[Source, list[Control]]:
    source = trace(function, args)
    return source, [a for p in every_program(source.program) for _, a in controls(p)]


def operands(attr: Control) -> list[Any]:
    rng, found = np.random.default_rng(0), []
    for t in attr.operand_types:
        is_float = t.dtype.startswith("f")
        values = rng.standard_normal(t.shape) if is_float else rng.integers(0, 4, t.shape)
        found.append(values.astype(held_dtype(t.dtype)))
    return found


def forms(name: str, inexact: bool = True) -> list[Program]:
    return [p for a in loops(*LOOPS[name])[1] for p in loop_forms(a, inexact)]


def count_products(p: Program) -> int:
    return sum(
        isinstance(n.attr, Generic) and contraction_roles(n.attr) is not None for n in p.nodes
    )


@pytest.mark.parametrize("name", LOOPS)
def test_a_form_gives_what_the_loop_gives(name: str):
    source, found = loops(*LOOPS[name])
    for attr in found:
        given = operands(attr)
        evaluate = partial(evaluate_program, weights=source.weights, opaque=source.opaque)
        want = evaluate_control(attr, given, evaluate)
        for form in loop_forms(attr, True):
            form.verify()
            for program in (form, canonical(form)):
                got = evaluate(program, given)
                for a, b in zip(want, got, strict=True):
                    assert np.shape(a) == np.shape(b)
                    assert np.allclose(a, b, rtol=1e-5, atol=1e-5)


def random_step(seed: int) -> Callable[..., Any]:
    """A scan of random ops over two states, a slice and consts; sums, and results of each step."""
    rng = np.random.default_rng(seed)
    weights = [array(seed + i, 4, 4) for i in range(3)]

    def step(s: Any, x: Any) -> Any:
        h, total, top, n = s
        values = [h, x, weights[0], x @ weights[1]]
        for k in rng.integers(0, 7, 6):
            a, b = (values[i] for i in rng.integers(0, len(values), 2))
            values.append(
                [
                    lambda a, b: a @ b,
                    lambda a, b: a + b,
                    lambda a, b: jnp.tanh(a),
                    lambda a, b: a.T,
                    lambda a, b: jnp.concatenate([a[:2], b[2:]], 1 - 1),
                    lambda a, b: jnp.broadcast_to(a.sum(0) * 0.1, (4, 4)),
                    lambda a, b: a @ weights[2] - b,
                ][k](a, b)
            )
        p, q, r = (values[i] for i in rng.integers(0, len(values), 3))
        h = jnp.tanh(q) if seed % 3 else h
        return (h, total + p if seed % 2 else total - p, jnp.maximum(r, top), n + 1), (p, r, q)

    def loop(xs: Any) -> Any:
        start = (xs[0], xs[1], xs[2], 0)
        return jax.lax.scan(step, start, xs, reverse=bool(seed % 5 == 0))

    return loop


@pytest.mark.parametrize("seed", seeds(8, 24))
def test_forms_of_random_loops_give_what_the_loops_give(seed: int):
    source, (attr,) = loops(random_step(seed), (array(seed, 4, 4, 4),))
    given = operands(attr)
    want = evaluate_control(attr, given, lambda p, x: evaluate_program(p, x, source.weights))
    found = loop_forms(attr, True)
    assert found  # its counter leaves it at least
    for form in found:
        got = evaluate_program(canonical(form), given, source.weights)
        for a, b in zip(want, got, strict=True):
            assert worst_error(b, a.astype(np.float64))[0] < 1e-4


# ---- what leaves ---------------------------------------------------------------------------------
def test_gates_are_one_product_of_all_steps_and_so_is_the_projection():
    form = forms("lstm")[0]
    ((_, loop),) = controls(form)
    assert count_products(loop.bodies[0]) == 1 and count_products(form) == 2


def test_what_is_only_added_needs_no_loop():
    assert [controls(p) for p in forms("products")] == [[]]
    (form,) = forms("products")
    (product,) = [n.attr for n in form.nodes if isinstance(n.attr, Generic) and n.attr.combine]
    assert len(product.reductions) == 2  # the steps, and the rows of each: no stack of products


def test_sums_of_floats_stay_in_their_order_where_rules_are_exact():
    assert forms("products", inexact=False) == []
    ((_, loop),) = controls(forms("loss", inexact=False)[0])
    assert loop.carries == 2  # the counter alone has left
    ((_, loop),) = controls(forms("loss")[0])
    assert loop.carries == 1


def test_a_state_that_somebody_reads_is_no_sum():
    assert forms("running") == []
    assert [controls(p) for p in forms("largest")] == [[]]


def test_an_invariant_product_leaves_a_while_loop():
    (form,) = forms("invariant")
    ((_, loop),) = controls(form)
    assert count_products(form) == 1 and count_products(loop.bodies[1]) == 1
    assert all(n.attr.combine == "" for n in loop.bodies[0].nodes if isinstance(n.attr, Generic))


def test_a_while_loop_that_is_counted_is_a_scan():
    def loop(x: Any) -> Any:
        step = lambda s: (s[0] + 2, jnp.tanh(s[1] @ WH[:, :8]))  # noqa: E731
        return jax.lax.while_loop(lambda s: s[0] < 9, step, (0, x))

    program = canonical(trace(loop, (array(1, 3, 8),)).program)
    ((_, attr),) = controls(program)
    assert attr.op == "while_loop" and attr.trips == 5
    counted, *rest = loop_forms(attr, False)
    assert controls(counted)[0][1].op == "scan" and controls(counted)[0][1].length == 5
    assert rest and all(controls(p)[0][1].carries == 1 for p in rest)  # without its counter


def test_loops_of_no_or_one_step_stay():
    assert forms("no_steps") == []
    assert forms("either") == []


# ---- what is chosen ------------------------------------------------------------------------------
PLAIN = ("algebra/simplify",)


def searched(name: str, **given: Any) -> eqsat.Run:
    options: dict[str, Any] = {"target": "avx512-xla", "time_limit": 60.0} | given
    function, args = LOOPS[name]
    return eqsat.optimize(function, *args, **options)


@cache
def quickest(name: str) -> eqsat.Run:
    # that forms are offered needs no algebra, with which the gates take most of a minute
    return searched(name, rules=PLAIN if name == "lstm" else ("full",), verify=True)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    seeds(1, ["lstm", "products", "loss", "invariant"]),
)
def test_a_form_is_chosen_where_it_gains(name: str):
    function, args = LOOPS[name]
    run = quickest(name)
    assert run.verification is not None and run.verification.ok
    assert run.schedule is not None and run.baseline_schedule is not None
    assert run.schedule.time_ps < run.baseline_schedule.time_ps
    assert list(run.bodies) == [f"{p}/{b}" for p, b in _paths(run)]
    got, want = jax.tree.leaves(run.compile()(*args)), jax.tree.leaves(function(*args))
    for a, b in zip(got, want, strict=True):
        assert worst_error(np.asarray(a), np.asarray(b, np.float64))[0] < 1e-5


def _paths(run: eqsat.Run) -> list[tuple[str, str]]:
    """The bodies of the loop that runs, by the name of the one that it stands for."""
    assert run.schedule is not None
    ((node, _),) = controls(run.canonical)
    name = run.canonical.value_name(node)
    return [(name, label) for loop in run.schedule.held for label in loop.labels]


def test_memory_decides_against_a_stack():
    free = quickest("lstm")
    assert free.schedule is not None and free.baseline_schedule is not None
    least = searched("lstm", rules=PLAIN, goals=("memory",)).schedule
    assert least is not None and least.peak_bytes <= free.baseline_schedule.peak_bytes
    assert least.peak_bytes < free.schedule.peak_bytes


def test_rules_apply_to_what_left_a_loop():
    run = searched("gradient", settings=("tiles_forced=true",))
    assert run.egraph is not None
    names = [r.name for r in run.egraph.rules]
    left = {n.eclass for n in run.egraph.nodes if n.rule == names.index("leave-loop")}
    made = {names[n.rule] for n in run.egraph.nodes if n.eclass in left and n.rule >= 0}
    assert made - {"leave-loop", "body"}
