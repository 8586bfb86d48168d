"""The executor `kernels`: kernels inside `jax.jit`, their derivatives and batches, fallbacks."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from handwritten import MACHINE, rows, sum_kernel
from test_execute import whole
from test_kernel_runtime import registered

from eqsat.api import target as read_target
from eqsat.execute.kernels import executor, jit, runtime
from eqsat.execute.kernels.executor import KernelsExecutable
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatWarning

TARGET = read_target("avx2")
pytestmark = pytest.mark.skipif(bool(jit.why_not(MACHINE)), reason=jit.why_not(MACHINE))


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> KernelsExecutable:
    """x + y by the handwritten kernel."""
    x, y = rows(6)
    program = trace(lambda x, y: x + y, (x, y)).program
    name = registered(sum_kernel(6, "executed"))
    call = runtime.Call(name, program.inputs, program.results)
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
    with pytest.warns(EqsatWarning, match="no kernels run here: this CPU has no avx2"):
        np.testing.assert_array_equal(KernelsExecutable(schedule, {}, {}, TARGET)(x, y)[0], x + y)
    with warnings.catch_warnings():  # once
        warnings.simplefilter("error")
        KernelsExecutable(schedule, {}, {}, TARGET)(x, y)
