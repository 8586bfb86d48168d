"""Products of rows and of columns that tiles compute in registers, such as dequantised weights."""

from dataclasses import replace

import guarded
import numpy as np
import pytest
from contracted import AVX2, AVX512

from eqsat.execute.kernels import jit
from eqsat.execute.kernels.kernel import generate
from eqsat.model.expr import arg, call, cast
from eqsat.model.nest import Access, Nest, Stage, Store
from eqsat.plan.planner import plan
from eqsat.plan.roles import product_roles_of

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


def run(nest, machine, values, shape):
    if jit.why_not(machine):
        pytest.skip(jit.why_not(machine))
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


def test_few_rows_copy_no_columns_and_many_do():
    few, many = (plan(dequantised(m, 16, 32, 2048), AVX512) for m in (1, 256))
    assert few.copied == (False, False) and few.scratch_bytes < 1 << 16
    assert many.copied[1]


def test_one_scale_a_column():
    values = drawn(2, 1, 150, 70, per_block=False)
    nest = dequantised(2, 1, 150, 70, per_block=False)
    found, want = run(nest, AVX512, values, (2, 70)), expected(values, 150)
    assert np.abs(found - want).max() <= 5e-6 * np.abs(want).max()


@pytest.mark.parametrize("m", [1, 150])  # computed in registers, and copied
def test_eight_threads_make_the_same_bits(m):
    if jit.why_not(AVX512):
        pytest.skip(jit.why_not(AVX512))
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
