"""The executor `kernels`: kernels inside `jax.jit`, their derivatives and batches, fallbacks."""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handwritten import MACHINE, rows, sum_kernel
from runnable import needs_kernels
from test_execute import whole
from test_kernel_runtime import registered

import eqsat
from eqsat.api import target as read_target
from eqsat.execute import executable
from eqsat.execute.kernels import executor, jit, runtime
from eqsat.execute.kernels.executor import KernelsExecutable
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatWarning

TARGET = read_target("avx2")
pytestmark = needs_kernels(MACHINE)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> KernelsExecutable:
    """x + y by the handwritten kernel."""
    x, y = rows(6)
    program = trace(lambda x, y: x + y, (x, y)).program
    name = registered(sum_kernel(6, "executed"))
    call = runtime.KernelCall(name, program.inputs, program.results)
    monkeypatch.setattr(executor, "calls", lambda *_: ({0: call}, {}))
    return KernelsExecutable(whole(program), {}, {}, TARGET)


def test_a_dispatch_is_one_call_on_its_buffers(summed: KernelsExecutable) -> None:
    x, y = rows(6)
    np.testing.assert_array_equal(summed(x, y)[0], x + y)
    text = summed.flat.lower(x, y).compile().as_text()
    assert text.count("custom-call(") == 1
    assert "fusion" not in text


def test_derivatives_and_batches_are_those_of_the_ops(summed: KernelsExecutable) -> None:
    x, y = map(jnp.asarray, rows(6))
    run = summed.flat

    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        return (run(x, y)[0] ** 2).sum()

    np.testing.assert_allclose(jax.grad(loss)(x, y), 2 * (x + y))
    np.testing.assert_allclose(jax.jit(jax.grad(loss, 1))(x, y), 2 * (x + y))
    xs = jnp.stack([x, 2 * x, y])
    want = jax.vmap(lambda x: x + y)(xs)
    np.testing.assert_array_equal(jax.vmap(lambda x: run(x, y)[0])(xs), want)
    np.testing.assert_allclose(jax.vmap(jax.grad(loss), (0, None))(xs, y), 2 * want)
    np.testing.assert_allclose(jax.grad(lambda y: jax.vmap(loss, (0, None))(xs, y).sum())(y),
                               2 * want.sum(0), rtol=1e-6)  # fmt: skip
    tangent = jax.jvp(lambda x: run(x, y)[0], (x,), (x,))[1]
    np.testing.assert_array_equal(tangent, x)


def test_without_the_instructions_every_dispatch_runs_as_ops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jit, "host", lambda: ("pentium", frozenset({"sse2"}), "x86_64"))
    x, y = rows(6)
    program = trace(lambda x, y: x + y, (x, y)).program
    schedule = whole(program)
    assert executor.declined(schedule, TARGET)[0].startswith("this CPU has no avx2, fma")
    executor._warn.cache_clear()
    with pytest.warns(
        EqsatWarning, match=r"^warning\[E510\]: no kernels run here: this CPU has no avx2"
    ):
        np.testing.assert_array_equal(KernelsExecutable(schedule, {}, {}, TARGET)(x, y)[0], x + y)
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        KernelsExecutable(schedule, {}, {}, TARGET)(x, y)


# ---- a searched program --------------------------------------------------------------------------
W = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)


@pytest.fixture(scope="module")
def searched() -> eqsat.Run:
    return eqsat.optimize(
        lambda x: jax.nn.relu(x @ W), np.zeros((16, 32), "f4"), target="avx2", rules=()
    )


def test_large_weights_are_arguments_of_what_xla_compiles(
    searched: eqsat.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).standard_normal((16, 32)).astype(np.float32)
    want = np.maximum(x @ W, 0)
    assert "constant(" in searched.executable.flat.lower(x).compile().as_text()
    monkeypatch.setattr(executable, "LARGEST_CONSTANTS", 0)
    run = eqsat.optimize(lambda x: jax.nn.relu(x @ W), x, target="avx2", goals=["time"], rules=())
    text = run.executable.flat.lower(x).compile().as_text()
    assert text.count("custom-call(") == 1
    assert "constant(" not in text
    assert run.executable.refused == {}
    for call in (run.compile(), run.executable.compile(), run.executable):
        (found,) = jax.tree.leaves(call(x))
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_arrays_that_lie_anywhere_are_taken(searched: eqsat.Run) -> None:
    call, x = searched.compile(), np.random.default_rng(2).standard_normal((16, 32))
    room = np.zeros(16 * 32 + 1, "f4")
    moved = room[1:].reshape(16, 32)
    assert {room.ctypes.data % 8, moved.ctypes.data % 8} == {0, 4}
    moved[...] = x
    np.testing.assert_array_equal(call(moved), call(moved.copy()))
    turned = np.asfortranarray(moved)
    np.testing.assert_array_equal(call(turned), call(moved.copy()))


def test_nan_and_infinity_come_through(searched: eqsat.Run) -> None:
    x = np.ones((16, 32), "f4")
    x[1, 0], x[2, 3], x[3, 3] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = jax.nn.relu(x @ W)
    np.testing.assert_allclose(searched.compile()(x), want, rtol=1e-4, atol=1e-5)


def test_empty_and_single_dims_run() -> None:
    def f(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x @ y, jnp.exp(y).sum(0)

    x, y = np.ones((1, 1), "f4"), np.full((1, 1), 2, "f4")
    for a, b in ((x, y), (np.ones((3, 0), "f4"), np.ones((0, 2), "f4"))):
        run = eqsat.optimize(f, a, b, target="avx2", goals=["time"], rules=())
        for found, want in zip(run.compile()(a, b), f(a, b), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6)


def test_on_another_platform_every_dispatch_runs_as_ops(
    searched: eqsat.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    executor._warn.cache_clear()
    assert searched.schedule is not None
    made = KernelsExecutable(searched.schedule, {}, {}, searched.target)
    with pytest.warns(EqsatWarning, match="JAX runs on a gpu here"):
        assert set(made.refused.values()) == {"JAX runs on a gpu here, kernels on a CPU"}


def test_sums_of_rows_that_are_looked_up_are_one_kernel() -> None:
    """As the embeddings of BERT; the ids of both signs, some out of range."""
    draw = np.random.default_rng(3)
    word, at, kind = (draw.standard_normal((n, 24)).astype("f4") for n in (50, 16, 2))
    ids, kinds = (draw.integers(-2 * n, 2 * n, 16).astype("i4") for n in (50, 2))

    def f(word: jax.Array, ids: jax.Array, kinds: jax.Array) -> jax.Array:
        return word[ids] + jnp.asarray(at)[jnp.arange(16)] + jnp.asarray(kind)[kinds]

    target = replace(TARGET, fusion=replace(TARGET.fusion, members=8))
    run = eqsat.optimize(f, word, ids, kinds, target=target)
    assert run.schedule is not None
    assert [len(run.schedule.dispatches), len(run.executable.calls)] == [1, 1]
    want = jax.jit(f)(word, ids, kinds)
    np.testing.assert_array_equal(run.compile()(word, ids, kinds), want)


def test_running_sums_and_places_of_extremes_are_kernels() -> None:
    x = np.random.default_rng(2).standard_normal((70, 37)).astype(np.float32)
    x[33, 5], x[40, 5] = np.nan, np.nan

    def function(x: jax.Array) -> tuple[jax.Array, ...]:
        return jnp.cumsum(x, 0), jnp.argmax(x, 0), jnp.argmin(x, 1)

    run = eqsat.optimize(function, x, target="avx2", goals=["time"], rules=())
    assert not run.execution.to_json()["declined"]
    got, want = run.compile()(x), function(x)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(got[2], want[2])
