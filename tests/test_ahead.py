"""Algebra in whole programs: merged and folded weights, computed ahead where that is cheaper."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import seeds

import eqsat
from eqsat.api import Run
from eqsat.model.program import Node
from eqsat.ops.meaning.programs import element_dtype

# ---- whole programs ------------------------------------------------------------------------------
RULES = ["layout/transpose", *(f"algebra/{s}" for s in ("merge", "scale", "defer", "hoist"))]


def optimised(function, args: tuple, weights: tuple[str, ...], rules: list[str] = RULES):
    return eqsat.optimize(
        function, *args, rules=rules, target="reference", weights=weights, goals=["time"],
        verify=True,
    )  # fmt: skip


def normal(*shape: int, dtype="f4") -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def ahead_of(run: Run) -> list[Node]:
    """What the schedule computes from weights, once."""
    assert run.schedule is not None
    return [run.schedule.program.nodes[i] for i in run.schedule.ahead]


def projections(x, query, key, value):
    """Grouped queries: keys and values are narrower."""
    return x @ query, x @ key, x @ value


def test_queries_keys_and_values_are_one_contraction_where_that_is_cheaper():
    tokens, width, n = 64, 256, (16, 4, 4)
    run = optimised(
        projections,
        (normal(tokens, width), *(normal(width, k) for k in n)),
        ("query", "key", "value"),
    )
    summary = run.summary()
    x, w, y = (4 * k for k in (tokens * width, width * sum(n), tokens * sum(n)))
    # x once instead of three times; the price is the merged result: written, then cut in three
    assert summary["baseline"]["time_us"] * 1000 == 3 * x + w + y
    assert summary["goals"]["time_us"]["value"] * 1000 == x + w + y + 3 * y + y
    assert summary["bytes"]["resident_bytes"] == w
    assert summary["bytes"]["load_peak_bytes"] == 2 * w
    assert summary["verify"]["ok"]
    assert summary["counts"]["weight_packs"] == 0
    (merged,) = [n for n in ahead_of(run) if n.op == "concat"]
    assert merged.type.shape == (width, sum(n))


def test_wide_projections_stay_apart_on_this_target():
    """Cutting the merged result costs more than reading x again."""
    args = (normal(16, 16), *(normal(16, 32) for _ in range(3)))
    summary = optimised(projections, args, ("query", "key", "value")).summary()
    assert summary["goals"]["time_us"]["value"] == summary["baseline"]["time_us"]
    assert summary["bytes"]["resident_bytes"] == 3 * 4 * 16 * 32


def attention(x, query, key, value, out, bias):
    def heads(y):
        return y.reshape(16, 4, 2).transpose(1, 0, 2)

    q, k, v = heads(x @ query + bias), heads(x @ key), heads(x @ value)
    p = jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(2.0).astype("f4"), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", p, v).transpose(1, 0, 2).reshape(16, 8) @ out


@pytest.mark.slow  # 2 s; the sample of test_never_worse is of any program
def test_an_attention_block_is_right_and_never_worse():
    args = (normal(16, 256), *(normal(256, 8) for _ in range(3)), normal(8, 12), normal(8))
    names = ("query", "key", "value", "out", "bias")
    summary = optimised(attention, args, names, [*RULES, "layout/reshape"]).summary()
    assert summary["verify"]["ok"]
    assert summary["goals"]["time_us"]["value"] < summary["baseline"]["time_us"]


def block(x, w, mean, variance, gamma, beta):
    y = jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu((y - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta)


NORM = ("mean", "variance", "gamma", "beta")


def test_batch_norm_is_folded_into_the_convolution():
    channels = 16
    vectors = [normal(channels), np.abs(normal(channels)) + 1, normal(channels), normal(channels)]
    args = (normal(1, 8, 8, 4), normal(3, 3, 4, channels), *vectors)
    run = optimised(block, args, ("w", *NORM))
    summary = run.summary()
    w, vector = 4 * 3 * 3 * 4 * channels, 4 * channels
    # one scaled weight and one shift are left of a weight and four vectors
    assert summary["bytes"]["resident_bytes"] == w + vector
    saved = summary["baseline"]["time_us"] - summary["goals"]["time_us"]["value"]
    assert round(saved * 1000) == 3 * vector
    assert summary["verify"]["ok"]
    assert summary["baseline"]["dispatches"] == summary["goals"]["dispatches"]["value"]
    # vectors of a call are no weights: nothing can be folded ahead of time
    late = optimised(block, args, ("w",)).summary()
    assert late["verify"]["ok"]
    assert late["bytes"]["resident_bytes"] <= w


@pytest.mark.parametrize("dtype", seeds(1, ["bfloat16", "float32", "float16"]))
def test_a_scale_is_rounded_into_the_weight_once(dtype: str):
    def layer(x, w, s):
        return jnp.tanh((x @ w) * s)

    args = tuple(jnp.asarray(normal(*shape), dtype) for shape in ((4, 8), (8, 16), (16,)))
    run = optimised(layer, args, ("w", "s"))
    summary = run.summary()
    itemsize = args[0].dtype.itemsize
    assert summary["verify"]["ok"]
    assert summary["bytes"]["resident_bytes"] == 8 * 16 * itemsize
    assert summary["goals"]["time_us"]["value"] < summary["baseline"]["time_us"]
    (weight,) = [n for n in ahead_of(run) if n.type.shape == (8, 16)]
    assert element_dtype(weight.type.dtype) == args[1].dtype


def test_constants_beside_weights_are_computed_ahead_too(tmp_path):
    """exp of a fill beside a weight: nothing of it is left at run time, if it has to be read.

    Where the product may compute it, it reads the weight alone: those are fewer bytes.
    """
    path = tmp_path / "widened.eqs"
    path.write_text(
        "program widened\ninput x: f32[4, 6]\nweight w: f32[6, 3]\n"
        "z = fill(value=0.5) : f32[6, 2]\n"
        "return matmul(x, concat(w, exp(z), axis=1))\n"
    )
    source = eqsat.read(str(path))
    for settings, kept in ((("fusion.members=1",), 4 * 6 * 5), ((), 4 * 6 * 3)):
        run = eqsat.optimize(
            source, rules=RULES, target="reference", goals=["time"], verify=True, settings=settings
        )
        summary = run.summary()
        assert summary["goals"]["dispatches"]["value"] == 1
        assert summary["bytes"]["resident_bytes"] == kept
        assert summary["verify"]["ok"]


def test_saved_runs_keep_folded_weights(tmp_path):
    args = (normal(64, 256), *(normal(256, k) for k in (16, 4, 4)))
    run = optimised(projections, args, ("query", "key", "value"))
    run.save(tmp_path / "run")
    again = eqsat.load(tmp_path / "run")
    assert again.summary()["bytes"]["resident_bytes"] == 4 * 256 * 24
