"""The executor `pallas` in Pallas's interpreter: right at borders of blocks, NaN kept apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executed import RNG, whole
from fuzz.griddedkernels import hunt
from seeds import some

from eqsat.api import target as read_target
from eqsat.execute.executors import execution
from eqsat.execute.pallas import executor
from eqsat.execute.pallas.executor import PallasExecutable, without_kernels
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatWarning
from eqsat.model.pipelines import Padding
from eqsat.plan.gridded import blocks, flat

TARGETS = {name: read_target(name) for name in ("avx512", "sm_90")}  # blocks; by address


@pytest.fixture(params=list(TARGETS))
def target(request: pytest.FixtureRequest) -> Any:
    return TARGETS[request.param]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few points, so that small programs have many, and ragged ones."""
    limits = blocks.BlockLimits(Padding(2, 4), 2**20)
    monkeypatch.setattr("eqsat.execute.pallas.executor.block_limits", lambda _: limits)
    monkeypatch.setattr(blocks, "WIDEST", 4)
    monkeypatch.setattr(flat, "SIDE", 16)
    monkeypatch.setattr(flat, "STEP", 16)
    monkeypatch.setattr(flat, "SIMPLE", 16)


def executable(function: Any, args: Any, target: Any) -> PallasExecutable:
    """A function as one kernel."""
    traced = trace(function, args)
    schedule = whole(traced.program)
    assert without_kernels(schedule, target) == {}
    return PallasExecutable(schedule, traced.opaque, traced.weights, target)


def check(function: Any, args: Any, target: Any) -> None:
    """Within f32's or bf16's rounding of what JAX computes in f32."""
    (found,) = executable(function, args, target)(*args)
    want = jax.jit(function)(*(jnp.asarray(a, np.float32) for a in args))
    assert found.shape == want.shape
    close = 1e-5 if found.dtype == jnp.float32 else 1e-2
    np.testing.assert_allclose(np.asarray(found, np.float32), want, close, close)


def real(*shape: int, dtype: Any = np.float32) -> Any:
    return jnp.asarray(RNG.standard_normal(shape), dtype)


def norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


PROGRAMS = {
    "layer": (lambda x, w, b: jax.nn.relu(x @ w + b), real(5, 19), real(19, 7), real(7)),
    "softmax": (lambda x: jax.nn.softmax(x, -1), real(2, 5, 9)),
    "batches": (lambda q, k: jnp.einsum("qhd,khd->hqk", q, k), real(5, 3, 6), real(7, 3, 6)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=2.0).T * 2, real(5, 6)),
    "joined": (lambda x, y: jnp.concatenate([x, y], 1), real(3, 1, 2, 2), real(3, 2, 2, 2)),
    "bf16": (lambda x, w: x @ w, real(5, 19, dtype=jnp.bfloat16), real(19, 7, dtype=jnp.bfloat16)),
    "gelu": (lambda x: jnp.round(jax.nn.gelu(x, approximate=False) * 8), real(5, 7)),
    "window": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        real(2, 5, 6, 3),
        real(3, 3, 3, 4),
    ),
    "steps": (
        lambda x, w: jax.lax.conv_general_dilated(
            x, w, (2, 3), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW")
        ),
        real(2, 5, 6, 8),
        real(4, 5, 1, 1),
    ),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", some(["window"], PROGRAMS))
def test_small_blocks_are_right_at_their_borders(name: str, target: Any) -> None:
    function, *args = PROGRAMS[name]
    check(function, args, target)


@pytest.mark.usefixtures("small")
def test_bytes_are_summed_in_i32(target: Any) -> None:
    x, w = (jnp.asarray(RNG.integers(-128, 128, s), jnp.int8) for s in ((3, 37), (37, 5)))

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.matmul(x, w, preferred_element_type=jnp.int32)

    found = executable(product, (x, w), target)(x, w)[0]
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, np.asarray(x, np.int32) @ np.asarray(w, np.int32))


@pytest.mark.usefixtures("small")
def test_a_nan_stays_in_its_row(target: Any) -> None:
    x, w = np.array(real(5, 19)), real(19, 7)
    x[2, 3] = np.nan
    for function, args in ((lambda x, w: x @ w, (x, w)), (norm, (x,))):
        found = np.asarray(executable(function, args, target)(*args)[0])
        assert np.isnan(found).any(-1).tolist() == [False, False, True, False, False]


def test_what_is_no_kernel_runs_as_ops_and_says_why() -> None:
    x, i = real(6, 4), jnp.array([1, 3])
    traced = trace(lambda x, i: jnp.take(x, i, axis=0, mode="clip") * 2, (x, i))
    schedule = whole(traced.program)
    found = PallasExecutable(schedule, {}, {}, TARGETS["avx512"])
    assert list(without_kernels(schedule, TARGETS["avx512"])) == list(found.refused) == [0]
    told = execution(schedule, replace(TARGETS["avx512"], executor="pallas"))
    assert (told.executor, told.declined) == ("pallas", ((0, found.refused[0]),))
    assert "gather" in found.refused[0] and "Pallas kernel" in told.plan
    np.testing.assert_array_equal(found(x, i)[0], x[i] * 2)
    by_address = PallasExecutable(schedule, {}, {}, TARGETS["sm_90"])
    assert by_address.refused == {}
    np.testing.assert_array_equal(by_address(x, i)[0], x[i] * 2)


def test_an_empty_buffer_and_a_loop_are_left_to_xla() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, y: y * 2, x)

    for function, args, why in (
        (lambda x: x + 1, (jnp.zeros((0, 3)),), "empty"),
        (loop, (real(3),), "loops and branches"),
    ):
        traced = trace(function, args)
        found = PallasExecutable(whole(traced.program), traced.opaque, {}, TARGETS["sm_90"])
        assert why in found.refused[0]
        np.testing.assert_allclose(found(*args)[0], function(*args))


def test_what_a_compiler_refuses_runs_as_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(lambda x: x + 1, (real(3, 4),))
    monkeypatch.setattr(executor, "backend", lambda: "tpu")
    monkeypatch.setattr(
        executor, "why_not_compiled", lambda *_: "the compiler refuses its kernel: no"
    )
    executor._warn.cache_clear()
    found = PallasExecutable(whole(traced.program), {}, {}, TARGETS["avx512"])
    with pytest.warns(
        EqsatWarning, match=r"^warning\[E510\]: 1 of 1 dispatches are no Pallas kernels.*refuses"
    ):
        found(real(3, 4))
    assert found.kernels == {}


@pytest.mark.slow  # 3 s; test_kernels_executor asks it of kernels
def test_derivatives_and_batches_are_those_of_the_ops() -> None:
    x, w = real(4, 6), real(6, 3)
    run = executable(lambda x, w: jnp.tanh(x @ w), (x, w), TARGETS["avx512"]).flat
    grad = jax.grad(lambda x: run(x, w)[0].sum())(x)
    wanted = jax.grad(lambda x: jnp.tanh(x @ w).sum())(x)
    np.testing.assert_allclose(grad, wanted, rtol=1e-5, atol=1e-6)
    batch = jax.vmap(lambda x: run(x, w)[0])(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(batch[1], jnp.tanh(2 * x @ w), rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # the gate `gridded` draws many; ops, borders and derivatives are asked above
def test_random_programs_mean_the_same() -> None:
    """A small share of the gate `gridded`."""
    rows = hunt((5,))
    assert [r for r in rows if r["outcome"] not in ("ok", "unproven")] == []
    assert sum(len(r["declined"]) for r in rows) < sum(r["dispatches"] for r in rows)
