"""Verification: wrong results are caught, right ones that lost digits pass, no proof is no ok."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz.networks import network
from illconditioned import attention, cases, f32, of
from seeds import one_in
from wrongprograms import change, wrong_programs

import eqsat
from eqsat.execute.compare import Verification, dominated
from eqsat.execute.draw import drawn_weights, index_extents, random_inputs
from eqsat.execute.executors import Witness
from eqsat.execute.rounding import error_limit, product_u
from eqsat.execute.verify import verify
from eqsat.frontends.jaxpr import trace
from eqsat.frontends.source import Traced
from eqsat.model.program import Builder, Program
from eqsat.report.text import verification_problem, verification_text

ABOVE_ROUNDING = 1e-4


def checked(
    program: Program, executed: Program, weights: Any, opaque: Any = None, **options: Any
) -> Verification:
    """`executed` forced into the executor in place of `program`."""
    call = Witness(executed, weights, opaque or {})
    return verify(program, lambda *xs: call(xs), weights, opaque or {}, **options)


def traced(function: Any, *args: Any) -> Traced:
    return trace(function, args)


def own(t: Traced, **options: Any) -> Verification:
    return checked(t.program, t.program, t.weights, t.opaque, **options)


# ---- wrong results -------------------------------------------------------------------------------
def layers(x: Any, w: Any, b: Any) -> Any:
    h = jnp.tanh(x @ w + b)
    y = jnp.pad(h, ((1, 2), (0, 0)))[1:-1]
    y = jnp.maximum(jnp.concatenate([y, h[:3] - 0.5]), 0.1).T
    return y - y.mean(0), jnp.max(h, -1)


FORMS = (f32(9, 16), f32(16, 16), f32(16))


def sources() -> list[tuple[str, Program]]:
    found = [("layers", traced(layers, *FORMS).program)]
    return [*found, *((f"network {s}", network(s)) for s in (4, 7))]


@pytest.mark.parametrize(
    ("name", "program"),
    [pytest.param(n, p, id=n, marks=[pytest.mark.slow] * (n != "layers")) for n, p in sources()],
)
def test_a_program_with_a_fault_is_caught_whoever_is_to_blame(name: str, program: Program):
    weights = drawn_weights(program)
    inputs = random_inputs(program, np.random.default_rng(1))
    caught: set[str] = set()
    right = Witness(program, weights, {})
    for fault, wrong in islice(wrong_programs(program, random.Random(name)), 5):
        call = Witness(wrong, weights, {})
        run = {id(program): right, id(wrong): call}
        if (
            change(program, wrong, inputs, weights, {}, lambda p: run[id(p)](inputs))  # noqa: B023
            < ABOVE_ROUNDING
        ):
            continue
        for chosen in (wrong, None):
            found = verify(program, lambda *xs: call(xs), weights, {}, chosen=chosen)  # noqa: B023
            assert found.outcome == "mismatch", (fault, found, str(wrong))
            assert found.max_error > found.limit
        caught.add(fault)
    assert len(caught) >= 3, caught


def test_a_wrong_element_cannot_hide_behind_one_that_lost_its_digits():
    """Row 0 is noise: (x + 1e7) - 1e7 over a small difference; the other rows are exact to u."""
    shift = np.zeros((8, 1), np.float32)
    shift[0] = 1e7

    def f(x: Any) -> Any:
        return ((x + shift) - shift) * 3.0

    t = traced(f, f32(8, 16))
    right = Witness(t.program, t.weights, {})

    def wrong(*xs: Any) -> Any:
        y = right(xs)[0].copy()
        y[5, 3] += 1e-3
        return [y]

    found = verify(t.program, wrong, t.weights, {}, chosen=t.program)
    assert found.outcome == "mismatch" and "[5, 3]" in found.where
    assert own(t, chosen=t.program).ok
    assert own(t).max_error > 1e-2  # row 0 is far from float64, and excused


def test_float64_sees_a_fault_that_rounding_would_hide():
    """Another epsilon changes attention's layer norm by less than f32 loses there."""
    _, f, args = attention(32, 32, True)
    t = traced(f, *args)
    text = str(t.program)
    assert "9.999999747378752e-06" in text
    from eqsat.lang.programs import parse_program

    other = parse_program(text.replace("9.999999747378752e-06", "3e-05"))
    weights = {k: v for p in (t.program, other) for k, v in _weights_of(p, t).items()}
    hidden = checked(t.program, other, weights, samples=1)
    found = checked(t.program, other, weights, chosen=other, samples=1)
    assert hidden.ok and found.outcome == "mismatch", (hidden, found)
    assert found.reason.startswith("in float64, too, the chosen program computes something else")


def _weights_of(p: Program, t: Traced) -> dict[str, Any]:
    by_name = {t.program.leaf(i).name: t.weights[t.program.leaf(i).key] for i in t.program.weights}
    return {p.leaf(i).key: by_name[p.leaf(i).name] for i in p.weights}


def test_bf16_in_an_f32_program_is_caught():
    t = traced(lambda x, w: x @ w, f32(8, 64), f32(64, 8))
    low = traced(lambda x, w: x.astype("bfloat16").astype("float32") @ w, f32(8, 64), f32(64, 8))
    assert checked(t.program, low.program, {}).outcome == "mismatch"


# ---- right results -------------------------------------------------------------------------------
QUICK = (
    "attention 32 32 constant=True", "variance 1000", "softmax 100", "quotient 1e-06",
    "mixed bfloat16 256", "mixed float16 256", "sum 100000 1", "growth 90", "overflow float16 60",
    "hilbert 8", "difference 1e-06", "flat norm 1e-12 1e-05", "quantised 16", "jumps 10",
    "gram schmidt 6", "tiny 1e-25", "chaos 10", "waves 1000",
)  # fmt: skip
CASES = {name: (f, args) for name, f, args in cases()}


@pytest.mark.parametrize("name", one_in(3, QUICK))
def test_a_right_result_that_lost_digits_is_right(name: str):
    f, args = CASES[name]
    t = traced(f, *args)
    found = own(t, chosen=t.program, samples=2)
    assert found.ok, found


def test_what_is_no_further_off_than_the_input_program_is_right():
    """Constant weights: h - mean(h) loses four digits in any order; jax.jit loses them, too."""
    _, f, args = attention(48, 64, True)
    run = eqsat.optimize(f, *args, rules="layout/transpose", target="reference", verify=True)
    assert run.verification is not None and run.verification.ok
    assert run.verification.max_error > 100 * error_limit(run.program)


def test_errors_excuse_as_many_and_as_large_ones():
    explained = np.zeros(4)
    assert dominated(np.array([1.0, 0, 0, 0]), np.array([0, 0, 0, 0.9]), explained)
    assert not dominated(np.array([1.0, 1.0, 0, 0]), np.array([0, 0, 0, 9.0]), explained)
    assert not dominated(np.array([1.0, 0, 0, 0]), np.array([0, 0, 0, 0.1]), explained)
    big = np.array([0, 0, 0, 10.0])  # what rounding explains excuses nothing elsewhere
    assert not dominated(np.array([1.0, 0, 0, 0]), np.array([0, 0, 0, 9.0]), big)


# ---- the limit -----------------------------------------------------------------------------------
def test_the_limit_follows_from_types_and_lengths():
    def limit(f: Any, *args: Any) -> float:
        return error_limit(traced(f, *args).program)

    moved = limit(lambda x: x.T[::-1], f32(4, 4))
    add = limit(lambda x: x + 1, f32(4))
    short, long = (limit(lambda x: x.sum(), f32(n)) for n in (100, 10_000))
    assert moved == 0 < add < short
    assert long == pytest.approx(10 * short, rel=0.2)
    assert limit(lambda x: x + 1, of("bfloat16", 4)) == pytest.approx(add * 2**16)
    assert limit(lambda x: x.astype("bfloat16").astype("float32"), f32(4)) > 1e-3
    assert limit(lambda x: x * 2, jax.ShapeDtypeStruct((3,), "int32")) == 0


@pytest.mark.parametrize(
    ("precision", "platform", "bits"),
    [
        ("default", "cpu", 0), ("default", "gpu", 11), ("default", "tpu", 8), ("high", "tpu", 16),
        ("highest", "gpu", 0), ("tf32_tf32_f32", "cpu", 0), ("tf32_tf32_f32", "gpu", 11),
        ("bf16_bf16_f32_x3", "gpu", 16), ("f32_f32_f32", "gpu", 0),
    ],
)  # fmt: skip
def test_precision_narrows_the_factors_of_a_product(precision: str, platform: str, bits: int):
    (g,) = [n.attr for n in traced(lambda x, w: x @ w, f32(4, 8), f32(8, 4)).program.nodes[2:]]
    u = 2.0**-bits if bits else 0.0
    assert product_u(replace(g, precision=precision), platform) == u
    t = traced(lambda x, w: jnp.tanh(x @ w), f32(4, 8), f32(8, 4)).program
    b = Builder("p")
    for n in t.nodes:
        at = replace(n.attr, precision=precision) if n.attr == g else n.attr
        b.append(n.op, n.operands, at)
    limit = error_limit(b.build(t.results), platform)
    assert limit > 4 * u and (u == 0 or limit < 40 * u)


# ---- samples that say something ------------------------------------------------------------------
def test_nan_everywhere_is_no_proof():
    t = traced(lambda x: jnp.log(-jnp.abs(x) - 1.0), f32(8))
    found = own(t, chosen=t.program)
    assert (found.ok, found.outcome) == (False, "unproven")
    assert "result 0 is NaN" in found.reason
    assert verification_text(found).startswith("NOT VERIFIED: result 0")
    assert verification_problem(found).code == "E507"


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.sqrt(x) + jnp.log(x),  # wants positive inputs
        lambda x: jnp.exp(jnp.exp(jnp.exp(x * 3))),  # small ones
        lambda x: (x * 300) ** 2,  # beyond f16 in places
    ],
)
def test_a_sample_that_says_nothing_is_drawn_again(f: Any):
    t = traced(f, of("float16", 64))
    assert own(t, chosen=t.program).ok
    call = Witness(t.program, {}, {})
    wrong = verify(t.program, lambda *xs: [y * 1.1 for y in call(xs)], {}, {}, chosen=t.program)
    assert wrong.outcome == "mismatch"


def test_overflow_of_the_type_is_no_mismatch_but_nan_out_of_nowhere_is():
    t = traced(lambda x: (x * 200) * 200, of("float16", 256))
    call = Witness(t.program, {}, {})
    assert own(t).ok

    def holed(*xs: Any) -> Any:
        y = call(xs)[0].copy()
        y[np.argmin(np.abs(y))] = np.nan
        return [y]

    assert verify(t.program, holed, {}, {}).outcome == "mismatch"


def test_indices_stay_within_their_table():
    """`jnp.take` fills with NaN beyond the end: a model fed such ids is NaN all over."""

    def model(ids: Any, types: Any, mask: Any, table: Any, kinds: Any) -> Any:
        x = jnp.take(table, ids, axis=0) + jnp.take(kinds, types.reshape(-1), axis=0)
        x = jnp.where(mask[:, None] != 0, x, -1e9)
        return jax.nn.softmax(x @ table.T, -1) @ table

    ids = jax.ShapeDtypeStruct((12,), "int32")
    t = traced(model, ids, jax.ShapeDtypeStruct((3, 4), "int32"), ids, f32(30, 8), f32(2, 8))
    extents = index_extents(t.program)
    assert sorted(extents.values()) == [2, 30]
    rng = np.random.default_rng(0)
    drawn = [random_inputs(t.program, rng)[:3] for _ in range(20)]
    assert max(d[0].max() for d in drawn) == 29 and min(d[0].min() for d in drawn) == 0
    assert max(d[1].max() for d in drawn) == 1 and max(d[2].max() for d in drawn) == 1
    assert own(t, chosen=t.program).ok


def test_weights_without_values_are_drawn_by_what_they_do():
    def f(x: Any, params: Any) -> Any:
        h = x @ params["w"].T
        h = (h - params["mean"]) * jax.lax.rsqrt(params["moving_variance"] + 1e-5)
        return h @ params["w2"]

    shapes = {"w": f32(400, 100), "mean": f32(400), "moving_variance": f32(400), "w2": f32(400, 9)}
    run = eqsat.optimize(f, f32(4, 100), shapes, weights=("params",), target="reference")
    drawn = {run.program.leaf(i).name: run.program.leaf(i).key for i in run.program.weights}
    found = drawn_weights(run.program)
    by_name = {name: found[key] for name, key in drawn.items()}
    deviation = {n: float(a.std()) for n, a in by_name.items()}
    assert deviation[_named(drawn, "'w'")] == pytest.approx(0.1, rel=0.05)
    assert deviation[_named(drawn, "'w2'")] == pytest.approx(0.05, rel=0.05)
    assert by_name[_named(drawn, "variance")].min() > 0
    assert run.verify(samples=1).ok


def _named(names: Any, part: str) -> str:
    flat = part.strip("'")
    return next(n for n in names if n.rstrip("'\"]_").endswith(flat))


# ---- work ----------------------------------------------------------------------------------------
def test_work_is_counted_and_limited():
    t = traced(lambda x, w: jnp.tanh(x @ w), f32(64, 64), f32(64, 64))
    whole = own(t, samples=3)
    assert own(t, samples=3).operations == whole.operations > 3 * 64**3
    some = own(t, samples=3, work_limit=whole.operations - 1)
    assert (some.ok, some.samples) == (True, 2)
    none = own(t, work_limit=1000)
    assert (none.ok, none.samples, none.outcome) == (False, 0, "unproven")
    assert "the work limit is 1.0e+03" in none.reason
    assert verification_problem(none).help == "`--work-limit` raises it"


def test_a_verification_survives_json():
    t = traced(lambda x: x + 1, f32(3))
    found = own(t)
    assert Verification(**found.to_json()) == found
    assert replace(found, ok=False) != found
