"""A program of kernels as one call: the same numbers, and no temporaries of XLA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from runnable import why_not
from seeds import one_in

import eqsat
from eqsat.api import target as read_target
from eqsat.execute.executable import CustomCallExecutable
from eqsat.execute.kernels import executor
from eqsat.execute.kernels.executor import KernelsExecutable
from eqsat.model.nest import NoNest

TARGETS = ("avx512", "avx512-vnni", "avx2")
RUNNABLE = [t for t in TARGETS if not why_not(t)]
RULES = "layout/fill"  # what is computed stays as it is written here
pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no kernels run here")
SIZES = (1, 15, 16, 17, 40)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LEAST_BYTES", 0)


def real(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def found(f: Callable[..., Any], *xs: Any, target: str = RUNNABLE[0] if RUNNABLE else "") -> Any:
    run = eqsat.optimize(f, *xs, target=target, rules=RULES, goals=["time"])
    assert isinstance(run.executable, KernelsExecutable)
    return run


def chain(x: Any, w: Any, lib: Any = jnp) -> Any:
    """Neighbours, products and sums of rows: temporaries that die, one after the other."""
    for i in range(4):
        y = lib.pad(x, ((1, 1), (0, 0)), constant_values=i)
        x = (y[:-2] - y[2:]) @ w
        x = x / (1 + abs(x).sum(1, keepdims=True))
    return x, x @ w


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("size", one_in(3, SIZES))
def test_one_call_gives_what_the_dispatches_give(target: str, size: int) -> None:
    x, w = real(0, size, size), real(1, size, size)
    run = found(chain, x, w, target=target)
    executable = run.executable
    call = executable.whole
    assert call is not None and call.target.startswith("eqsat_whole")
    one = jax.jit(executable.run).lower(executable.packed, x, w).compile()
    said = one.memory_analysis()
    assert said is not None and said.temp_size_in_bytes == 0
    got = one(executable.packed, x, w)
    want = CustomCallExecutable.as_kernels(executable, dict(executable.packed), [x, w])
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    for a, b in zip(got, chain(x.astype(float), w.astype(float), np), strict=True):
        assert np.abs(a - b).max() < 1e-5 * (1 + np.abs(b).max())


def test_results_that_are_arguments_constants_and_each_other() -> None:
    def f(x: Any) -> Any:
        y = jnp.tanh(x) @ jnp.full((8, 8), 0.5)
        z = jnp.exp(y - y.max(0))
        return z, x, z, jnp.full((3,), 2.0, x.dtype), y

    x = real(2, 8, 8)
    run = found(f, x)
    assert run.executable.whole is not None
    for a, b in zip(run.compile()(x), f(x), strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_weights_are_packed_and_given() -> None:
    w, v = real(3, 24, 48), real(4, 48, 24)
    x = real(5, 9, 24)
    run = eqsat.optimize(lambda x: jax.nn.relu(x @ w) @ v, x, target=RUNNABLE[0], rules=())
    executable = run.executable
    assert isinstance(executable, KernelsExecutable)
    call = executable.whole
    assert call is not None and len(call.reads) == 3
    want = np.maximum(x.astype(float) @ w, 0) @ v
    assert np.abs(run.compile()(x) - want).max() < 1e-4
    batch = jax.vmap(executable.run, (None, 0))(executable.packed, x[None])
    assert np.abs(batch[0][0] - want).max() < 1e-4


def test_a_loop_is_part_of_the_call() -> None:
    def f(x: Any, w: Any) -> Any:
        y = jnp.cos(x) @ w
        h, ys = lax.scan(lambda h, t: (jnp.sin(h @ w + t), h), y[0] * 0, y)
        return ys @ w, h

    x, w = real(6, 5, 17), real(7, 17, 17)
    run = found(f, x, w)
    assert run.executable.whole is not None
    for a, b in zip(run.compile()(x, w), f(x, w), strict=True):
        assert np.abs(a - b).max() < 1e-4


@pytest.mark.parametrize(
    ("f", "donate"),
    [
        (lambda x: jnp.tanh(jnp.sort(jnp.exp(x), 0) * 2), ()),
        (lambda x: x * 2 + 1, ("x",)),
    ],
)
def test_what_is_no_kernel_or_written_over_runs_by_dispatches(f: Any, donate: Any) -> None:
    x = real(8, 16, 16)
    run = eqsat.optimize(f, x, target=RUNNABLE[0], rules=RULES, donate=donate)
    executable = run.executable
    assert isinstance(executable, KernelsExecutable)
    if donate:
        assert run.schedule is not None and run.schedule.in_place
    assert executable.whole is None
    got, want = run.compile()(x), f(x)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-5), got, want))


def test_little_and_much_is_left_to_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    x = real(9, 16, 16)
    run = found(chain, x, x)
    schedule, machine = run.schedule, read_target(RUNNABLE[0]).machine
    assert schedule is not None
    executor.whole_call(schedule, machine)
    for name, value in (("LEAST_BYTES", schedule.arena_bound + 1), ("MOST_BYTES", 1)):
        with monkeypatch.context() as other:
            other.setattr(executor, name, value)
            with pytest.raises(NoNest, match="not of a size"):
                executor.whole_call(schedule, machine)
