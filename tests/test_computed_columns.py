"""Products of rows and of columns that tiles compute in registers, such as dequantised weights."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from contracted import AVX2, AVX512, matmul
from fuzz import guarded
from runnable import needs

import eqsat
from eqsat.execute.kernels.kernel import generate
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.nest import Access, Nest, Stage, Store
from eqsat.plan.contraction import UNROLL
from eqsat.plan.planner import plan
from eqsat.plan.roles import product_roles_of
from eqsat.plan.stages import CHAINS

MACHINES = {"avx512": AVX512, "avx2": AVX2}
X, W, SCALE, ZERO, RESULT = 0, 1, 2, 3, 9


def dequantised(m, blocks, size, n, per_block=True, own_stage=True):
    """x f32[m, k] times (w i8[k, n] - zero i8[n]) · scale[block, n] (or [n]); k = blocks · size."""
    k = blocks * size
    x = Access(X, "f32", (k, 0, size, 1))
    w = Access(W, "i8", (0, 1, size * n, n))
    scale = Access(SCALE, "f32", (0, 1, n if per_block else 0, 0))
    zero = Access(ZERO, "i8", (0, 1, 0, 0))
    shifted = call("sub", cast(arg(0), "f32"), cast(arg(1), "f32"))
    if own_stage:  # shifted numbers are one stage, scaled ones the next
        first = Stage(4, (1, 2, 3), shifted, (w, zero), "f32")
        second = Stage(5, (1, 2, 3), call("mul", arg(0), arg(1)), (0, scale), "f32")
        root = Stage(6, (0, 1), call("mul", arg(0), arg(1)), (x, 1), "f32", "add", (2, 3))
        stages = (first, second, root)
    else:
        body = call("mul", arg(3), call("mul", shifted, arg(2)))
        stages = (Stage(6, (0, 1), body, (w, zero, scale, x), "f32", "add", (2, 3)),)
    written = Access(RESULT, "f32", (n, 1, 0, 0))
    return Nest((m, n, blocks, size), stages, (Store(written, len(stages) - 1, (0, 1)),))


def halves(m, blocks, half, n):
    """x f32[m, k] times (nibble of u8[k / 2, n] - 8) · scale[block, n]; k = blocks · 2 half.

    Row i of w holds those of rows 2i (low) and 2i + 1; ZERO are the shifts 0 and 4.
    """
    x = Access(X, "f32", (2 * blocks * half, 0, 2 * half, 2, 1))
    w = Access(W, "u8", (0, 1, half * n, n, 0))
    shift, scale = Access(ZERO, "u8", (0, 0, 0, 0, 1)), Access(SCALE, "f32", (0, 1, n, 0, 0))
    nibble = call("and", call("shift_right_logical", arg(0), arg(1)), const(15))
    loops = (1, 2, 3, 4)
    first = Stage(5, loops, call("sub", cast(nibble, "f32"), const(8.0)), (w, shift), "f32")
    second = Stage(6, loops, call("mul", arg(0), arg(1)), (0, scale), "f32")
    root = Stage(7, (0, 1), call("mul", arg(0), arg(1)), (x, 1), "f32", "add", (2, 3, 4))
    written = Access(RESULT, "f32", (n, 1, 0, 0, 0))
    return Nest((m, n, blocks, half, 2), (first, second, root), (Store(written, 2, (0, 1)),))


def run(nest, machine, values, shape):
    needs(machine)
    kernel = generate(nest, plan(nest, machine), machine, "kernel")
    inputs = [values[b] for b in nest.reads]
    (found,) = guarded.run(kernel, machine, inputs, [(shape, np.float32)])
    return found


def drawn(m, blocks, size, n, per_block=True):
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.001, 0.01, (blocks, n) if per_block else (1, n)).astype(np.float32)
    return {
        X: rng.standard_normal((m, blocks * size), np.float32),
        W: rng.integers(-128, 127, (blocks * size, n), np.int8, endpoint=True),
        SCALE: scales,
        ZERO: rng.integers(-8, 8, n, np.int8),
    }


def expected(values, size):
    shifted = values[W].astype(np.float64) - values[ZERO]
    scales = np.repeat(values[SCALE].astype(np.float64), size, axis=0)
    return values[X].astype(np.float64) @ (shifted * scales)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("m", "blocks", "size", "n", "own_stage"),
    [
        (1, 5, 32, 1030, True),  # rows of w side by side
        (1, 3, 7, 45, False),  # tails of the unrolling and of vectors
        (5, 4, 16, 33, True),
        (70, 6, 8, 40, True),  # many rows: copied once, read often
    ],
)
def test_scales_of_blocks_are_applied(machine, m, blocks, size, n, own_stage):
    values = drawn(m, blocks, size, n)
    found = run(
        dequantised(m, blocks, size, n, own_stage=own_stage), MACHINES[machine], values, (m, n)
    )
    want = expected(values, size)
    assert np.abs(found - want).max() <= 4e-7 * (blocks * size) ** 0.5 * np.abs(want).max()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("m", "blocks", "half", "n"), [(1, 5, 16, 1030), (1, 3, 5, 45), (6, 4, 8, 33), (70, 4, 8, 40)]
)
def test_two_numbers_a_byte(machine, m, blocks, half, n):
    values = drawn(m, blocks, 2 * half, n)
    w = np.random.default_rng(1).integers(0, 256, (blocks * half, n)).astype(np.uint8)
    given = values | {W: w, ZERO: np.array([0, 4], np.uint8)}
    found = run(halves(m, blocks, half, n), MACHINES[machine], given, (m, n))
    numbers = np.stack([w & 15, w >> 4], 1).reshape(-1, n).astype(np.int8) - np.int8(8)
    want = expected(values | {W: numbers, ZERO: np.zeros(n, np.int8)}, 2 * half)
    assert np.abs(found - want).max() <= 4e-7 * (2 * blocks * half) ** 0.5 * np.abs(want).max()


@pytest.mark.parametrize(
    ("nest", "rows"), [(dequantised(1, 16, 32, 2048), 32), (halves(1, 16, 16, 2048), 16)]
)
def test_a_block_asks_for_all_rows_of_another(nest, rows):
    chosen = plan(nest, AVX512)
    assert chosen.k_block == 1 < chosen.k_blocks
    points = nest.sizes[chosen.reduced[chosen.asking]]
    assert points == rows and nest.stages[0].arguments[0].strides[chosen.reduced[chosen.asking]]
    is_innermost = chosen.asking == len(chosen.reduced) - 1
    assert chosen.prefetch == (UNROLL if is_innermost else 1)


def test_few_rows_copy_no_columns_and_many_do():
    few, many = (plan(dequantised(m, 16, 32, 2048), AVX512) for m in (1, 256))
    assert few.copied == (False, False) and few.scratch_bytes < 1 << 16
    assert many.copied[1]


def test_what_makes_columns_fills_the_wait_for_a_sum():
    products = 16 * 32 * 2048 // AVX512.lanes(4)
    made = plan(dequantised(1, 16, 32, 2048), AVX512)
    assert made.vectors < CHAINS and made.work.fma == products
    read = plan(matmul(1, 512, 2048), AVX512)
    assert read.vectors < CHAINS and read.work.fma > products


def test_one_scale_a_column():
    values = drawn(2, 1, 150, 70, per_block=False)
    nest = dequantised(2, 1, 150, 70, per_block=False)
    found, want = run(nest, AVX512, values, (2, 70)), expected(values, 150)
    assert np.abs(found - want).max() <= 5e-6 * np.abs(want).max()


@pytest.mark.parametrize("m", [1, 150])  # computed in registers, and copied
def test_eight_threads_make_the_same_bits(m):
    needs(AVX512)
    own = replace(AVX512, cores=8)
    nest, values = dequantised(m, 16, 32, 1030), drawn(m, 16, 32, 1030)
    kernel = generate(nest, plan(nest, own), own, "kernel")
    assert kernel.items > 1
    inputs = [values[b] for b in nest.reads]
    (found,) = guarded.run_on_threads(kernel, own, inputs, [((m, 1030), np.float32)])
    want = expected(values, 32)
    assert np.abs(found - want).max() <= 4e-7 * 512**0.5 * np.abs(want).max()


def test_nan_of_a_scale_stays_in_its_column():
    values = drawn(1, 4, 8, 40)
    values[SCALE][2, 7] = np.nan
    found = run(dequantised(1, 4, 8, 40), AVX512, values, (1, 40))
    assert np.isnan(found[0, 7]) and np.isfinite(np.delete(found, 7)).all()


def test_earlier_stages_are_one_body_over_what_lies_in_memory():
    factor = product_roles_of(dequantised(1, 4, 8, 40)).factors[1]
    assert factor.direct is None and factor.inline is not None
    assert [a.buffer for a in factor.inline.leaves] == [W, SCALE, ZERO]
    assert str(factor.inline.body) == "mul(sub(cast(x0, f32), cast(x2, f32)), x1)"


def _by_shifts(x, w, scale):
    both = (w[:, None] >> np.array([0, 4], np.uint8)[None, :, None]) & np.uint8(15)
    blocks = (both.astype(np.float32) - 8).reshape(len(scale), -1, w.shape[1])
    return x @ (blocks * scale[:, None]).reshape(-1, w.shape[1])


def _of_bytes(x, w, scale):
    blocks = w.astype(np.int8).astype(np.float32).reshape(len(scale), -1, w.shape[1])
    return x @ (blocks * scale[:, None]).reshape(-1, w.shape[1])


@pytest.mark.parametrize("function", [_by_shifts, _of_bytes])
def test_weights_of_four_and_eight_bits_are_dequantised_inside_the_product(function):
    needs(AVX512)
    rng = np.random.default_rng(0)
    k = 512 if function is _by_shifts else 256
    rows = k // 2 if function is _by_shifts else k
    x = rng.standard_normal((1, k), np.float32)
    w = rng.integers(0, 256, (rows, 512)).astype(np.uint8)
    scale = rng.uniform(0.001, 0.01, (8, 512)).astype(np.float32)
    run = eqsat.optimize(function, x, w, scale, target="avx512")  # not known ahead
    assert len(run.schedule.dispatches) == 1
    assert not run.execution.to_json()["declined"]
    found = np.asarray(run.compile()(x, w, scale))
    want = np.asarray(function(jnp.asarray(x), jnp.asarray(w), jnp.asarray(scale)))
    assert np.abs(found - want).max() <= 1e-5 * np.abs(want).max()
