"""Loops and branches whose bodies are kernels: right in every form, and one call for all steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from runnable import why_not
from seeds import some

import eqsat
from eqsat.execute.kernels.executor import KernelsExecutable
from eqsat.execute.kernels.loops import planned_loop
from eqsat.model.nest import NoNest
from eqsat.plan.updates import nest_in_place

TARGETS = ("avx512", "avx512-vnni", "avx2")
RUNNABLE = [t for t in TARGETS if not why_not(t)]
RULES = "layout/fill"  # what a loop computes stays as it is written here
pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no kernels run here")


def real(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- functions of arrays, for `jax.numpy` and for float64 ----------------------------------------
def cell(x: Any, w: Any) -> Any:
    """A state that is a stack as well: the next step reads it where it lies there."""

    def step(h: Any, t: Any) -> Any:
        h = jnp.tanh(t + h @ w)
        return h, (h, t * h)

    return lax.scan(step, jnp.zeros((x.shape[1], w.shape[0]), x.dtype), x)


def delayed(x: Any, w: Any) -> Any:
    """States that move from one place to the next, and one that two results share."""

    def step(state: Any, t: Any) -> Any:
        a, b, c, _ = state
        new = t + c @ w
        return (new, a, b, new), (a, c)

    zero = jnp.zeros(x.shape[1:], x.dtype)
    return lax.scan(step, (zero, zero + 1, zero + 2, zero + 3), x)


def backwards(x: Any, w: Any) -> Any:
    def step(h: Any, t: Any) -> Any:
        return jnp.sin(h) @ w + t, (2 * h, t)

    return lax.scan(step, x[0] * 0.5, x, reverse=True)


def in_place(x: Any, w: Any) -> Any:
    """Rows of a state, one after the other; what a later step reads must be there."""

    def step(state: Any, t: Any) -> Any:
        kept, i = state
        kept = lax.dynamic_update_index_in_dim(kept, t @ w, i, 0)
        return (kept, i + 1), kept.sum(0)

    return lax.scan(step, (jnp.ones_like(x), jnp.int32(0)), x)


def nested(x: Any, w: Any) -> Any:
    def outer(h: Any, t: Any) -> Any:
        h = lax.fori_loop(0, 3, lambda i, v: jnp.tanh(v @ w + t * i), h)
        return h, jnp.where(h.sum() > 0, h, -h)

    return lax.scan(outer, jnp.zeros(x.shape[1:], x.dtype), x)


def until(x: Any, w: Any) -> Any:
    """As often as the values say, here several times; what is summed stays in place."""

    def more(state: Any) -> Any:
        return (state[1].sum() < 40) & (state[0] < 50)

    def step(state: Any) -> Any:
        i, a, b = state
        return i + 1, a * 1.25 + 0.125, jnp.tanh(b @ w)

    return lax.while_loop(more, step, (jnp.int32(0), jnp.abs(x[0]), x[0]))


def never(x: Any, w: Any) -> Any:
    start = (jnp.int32(0), x[0], x[-1])
    return lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] @ w, s[1]), start)


def branch(number: int) -> Callable[[Any, Any], Any]:
    def call(x: Any, w: Any) -> Any:
        ways = [lambda x: (x, x @ w), lambda x: (jnp.sin(x), x), lambda x: (x @ w, x @ w)]
        return lax.switch(jnp.int32(number) + (x[0, 0, 0] > 1e9), ways, x[0])

    return call


FORMS = {f.__name__: f for f in (cell, delayed, backwards, in_place, nested, until, never)}
FORMS |= {f"branch {i}": branch(i) for i in (-3, 0, 1, 2, 9)}


def in_float64(f: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    with jax.enable_x64(True):
        wide = [np.asarray(a, np.float64) for a in args]
        return [np.asarray(x, np.float64) for x in jax.tree.leaves(f(*wide))]


def searched(f: Callable[..., Any], *args: Any, target: str = RUNNABLE[0], **more: Any) -> Any:
    return eqsat.optimize(f, *args, target=target, **{"rules": RULES, "goals": ["time"]} | more)


def compare(run: Any, f: Callable[..., Any], args: tuple[Any, ...]) -> None:
    got = jax.tree.leaves(run.compile(check="never")(*args))
    for a, b in zip(got, in_float64(f, args), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(b).max())))


def loops_of(run: Any) -> list[int]:
    s = run.need_schedule()
    return [i for i, d in enumerate(s.dispatches) if s.control(d) is not None]


SIZES = [(name, 2, 17) for name in FORMS]
SIZES += [("until", 1, 1), ("delayed", 3, 16), ("delayed", 1, 1), ("until", 3, 16)]
SIZES += [(name, 5, 33) for name in FORMS if " " not in name]
OFTEN = ("cell", "in_place", "nested", "until", "never", "branch 1")


@pytest.mark.parametrize(
    ("name", "steps", "size"),
    some(lambda name, steps, size: (name in OFTEN and size == 17) or steps == 1, SIZES),
)
def test_every_form_is_right_and_one_call(name: str, steps: int, size: int) -> None:
    f, args = FORMS[name], (real(1, steps, 3, size), real(2, size, size) * size**-0.5)
    run = searched(f, *args, target=RUNNABLE[size % len(RUNNABLE)])
    compare(run, f, args)
    assert loops_of(run) or steps == 1 or name.startswith("branch")
    assert set(loops_of(run)) <= run.executable.calls.keys() and not run.executable.refused
    assert not run.execution.declined


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_recurrent_layer_is_right_with_all_rules(target: str) -> None:
    """Its weights are packed outside, and the states of two cells lie where they were made."""
    u, v = real(3, 48, 4 * 48) * 0.1, real(4, 48, 48) * 0.1

    def layer(x: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            h, c, g = state
            i, f, o, n = jnp.split(t + h @ u, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            g = jnp.tanh(g @ v + h)
            return (h, c, g), g

        zero = jnp.zeros((x.shape[1], 48), x.dtype)
        return lax.scan(step, (zero, zero, zero), x)

    args = (real(5, 7, 5, 4 * 48),)
    run = searched(layer, *args, target=target, rules="default", time_limit=10)
    compare(run, layer, args)
    assert run.verify(samples=1).ok
    assert set(loops_of(run)) <= run.executable.calls.keys()
    text = run.executable.flat.lower(*args).compile().as_text()
    assert "while(" not in text


def test_of_a_cache_in_a_loop_one_row_is_written() -> None:
    """Where it lies: of a state of which a row is new that row, and no more."""

    def remembered(x: Any, cache: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            kept, i = state
            kept = lax.dynamic_update_index_in_dim(kept, t, i, 0)
            return (kept, i + 1), jnp.tanh(kept @ t)

        return lax.scan(step, (cache, jnp.int32(3)), x)

    args = (real(1, 9, 48), real(2, 64, 48))
    run = searched(remembered, *args)
    compare(run, remembered, args)
    schedule, (number,) = run.need_schedule(), loops_of(run)
    (body,) = schedule.control(schedule.dispatches[number]).schedules
    cache = body.program.inputs[-3]
    (new,) = [new for new, old in body.in_place if old == cache]
    (writer,) = [d for d in body.dispatches if new in d.writes]
    assert math.prod(nest_in_place(body, writer).sizes) == 48
    found = planned_loop(schedule, number, run.target.machine)
    assert cache in found.loop.bodies[0].changed
    assert (found.loop.consts, 0) in run.executable.calls[number].aliases


def test_what_xla_loops_over_calls_the_kernels_of_its_bodies() -> None:
    """A body that sorts is XLA's; the summary says which dispatch of it."""

    def f(x: Any, w: Any) -> Any:
        def step(h: Any, t: Any) -> Any:
            return jnp.sort(jnp.tanh(h @ w + t), -1), h

        return lax.scan(step, jnp.zeros(x.shape[1:], x.dtype), x)

    args = (real(1, 3, 4, 17), real(2, 17, 17))
    run = searched(f, *args)
    compare(run, f, args)
    (number,) = loops_of(run)
    assert number not in run.executable.calls
    why = run.executable.refused[number]
    assert why.startswith("XLA runs body, dispatch ") and "no loop nest" in why
    assert dict(run.execution.declined)[number] == why
    text = run.executable.flat.lower(*args).compile().as_text()
    assert "while(" in text and text.count("custom-call(") >= 1


def test_steps_that_are_worth_threads_are_split() -> None:
    """Each step of more than two threads' work; the next one begins when all of it is done."""
    args = (real(1, 6, 192, 128), real(2, 128, 128) * 0.1)
    run = searched(cell, *args)
    (number,) = loops_of(run)
    found = planned_loop(run.need_schedule(), number, run.target.machine)
    assert any(p.workers > 1 and p.plan.items > 1 for p in found.kernels.values())
    for _ in range(3):
        compare(run, cell, args)


@pytest.mark.slow  # 3 s; test_kernels_executor asks it of kernels
def test_derivatives_and_batches_of_a_loop_are_those_of_its_ops() -> None:
    args = (real(1, 3, 3, 17), real(2, 17, 17) * 0.2)
    call = searched(cell, *args).compile(check="never")

    def loss(f: Any, x: Any) -> Any:
        return sum((y**2).sum() for y in jax.tree.leaves(f(x, args[1])))

    got, want = (jax.grad(lambda x, f=f: loss(f, x))(args[0]) for f in (call, cell))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    xs = np.stack([args[0], 2 * args[0]])
    got, want = (jax.vmap(f, (0, None))(xs, args[1]) for f in (call, cell))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)


def test_a_result_that_is_read_by_nobody_leaves_the_loop_to_xla() -> None:
    args = (real(1, 3, 3, 17), real(2, 17, 17))
    run = searched(cell, *args)
    schedule, machine = run.need_schedule(), run.target.machine
    (number,) = loops_of(run)
    d = schedule.dispatches[number]
    cut = replace(d, writes=d.writes[1:])
    changed = replace(
        schedule,
        dispatches=(*schedule.dispatches[:number], cut, *schedule.dispatches[number + 1 :]),
    )
    with pytest.raises(NoNest, match="nobody reads"):
        planned_loop(changed, number, machine)
    assert isinstance(run.executable, KernelsExecutable)
