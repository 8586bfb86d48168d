"""Vector code of scalar functions: error bounds, special values as XLA's, integers, casts."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import jax
import jax.numpy as jnp
import scipy.special
from fuzz import guarded
from handwritten import Written
from jax import lax
from runnable import needs_kernels

from eqsat.execute.kernels import jit
from eqsat.execute.kernels import lanes as vector_lanes
from eqsat.execute.kernels import math as vectors
from eqsat.execute.kernels.ir import Code, new_module
from eqsat.execute.kernels.kernel import handler
from eqsat.execute.kernels.kinds import I64, POINTER
from eqsat.model.dispatch import Machine
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.nest import NoNest
from eqsat.ops.meaning.programs import element_dtype
from eqsat.ops.meaning.scalar import hold

AVX2 = Machine(32, 16, (32 << 10, 1 << 20), 1, ("avx2", "fma"))
WIDE = ("avx512f", "avx512vl", "avx512bw", "avx512dq")
AVX512 = Machine(64, 32, (32 << 10, 1 << 20), 1, WIDE)
MACHINE = AVX2 if jit.why_not(AVX512) else AVX512
pytestmark = needs_kernels(MACHINE)

F32 = np.float32
LARGEST = float(np.finfo(F32).max)
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1e-40, -1e-40, 1.2e-38, -1.2e-38, np.inf, -np.inf, np.nan, 88.5, 88.73, -87.2),
        *(-87.5, -88.5, -100, 1, -1, 0.5, -0.5, 1e30, -1e30, 1e-30, 1e10, 2, -2, 3, 104, 127.9),
        *(128, -126, -127, LARGEST, -LARGEST),
    ],
    F32,
)


def machine_kernel(name, bodies, dtypes, results, count, machine=MACHINE, lanes=0):
    """Evaluates bodies at every of `count` points (a multiple of the lanes), a result each."""
    lanes = lanes or machine.lanes()
    pointers = [POINTER] * (len(dtypes) + len(bodies) + 1)
    code, (lo, hi, *buffers) = Code.begin(new_module(name), name, [I64, I64, *pointers])

    def step(i, *_):
        at = code.mul(i, lanes)
        leaves = []
        for p, dtype in zip(buffers, dtypes, strict=False):
            memory = vector_lanes.memory(dtype)
            x = code.load(code.at(p, memory, at), memory, lanes)
            leaves.append(vectors.Typed(vector_lanes.loaded(code, x, dtype), dtype))
        found = vectors.lower_bodies(code, lanes, bodies, leaves)
        for p, x, dtype in zip(buffers[len(dtypes) :], found, results, strict=False):
            y = vectors.lane_cast(code, lanes, x, dtype).value
            memory = vector_lanes.memory(dtype)
            code.store(vector_lanes.stored(code, y, dtype), code.at(p, memory, at), memory)
        return []

    code.loop(lo, hi, 1, [], step)
    code.end()
    assert count % lanes == 0
    reads = tuple(range(len(dtypes)))
    writes = tuple(range(len(dtypes), len(dtypes) + len(bodies)))
    return Written(name, str(code.module), count // lanes, 0, reads, writes)


def evaluated(name, bodies, inputs, results=None, machine=MACHINE, lanes=0, run=None):
    dtypes = [vectors_name(x.dtype) for x in inputs]
    results = results or ["f32"] * len(bodies)
    count = len(inputs[0])
    padded = -count % 16
    inputs = [np.concatenate([x, x[:1].repeat(padded)]) for x in inputs]
    kernel = machine_kernel(name, bodies, dtypes, results, count + padded, machine, lanes)
    shapes = [((count + padded,), element_dtype(t)) for t in results]
    found = (run or guarded.run)(kernel, machine, inputs, shapes)
    return [y[:count] for y in found]


def vectors_name(dtype):
    from eqsat.ops.meaning.elements import DTYPE_NAMES

    return DTYPE_NAMES[np.dtype(dtype).name]


def inside_jax(kernel, machine, inputs, shapes):
    """Called by XLA, which flushes denormals."""
    jit.start_runtime()
    text = kernel.ir + handler(kernel.name, len(inputs), len(shapes), kernel.items, 0, 1)
    entry = f"{kernel.name}_ffi"
    address = jit.load_kernels({entry: text}, machine)[entry]
    assert isinstance(address, int), address
    jax.ffi.register_ffi_target(entry, jax.ffi.pycapsule(address), platform="cpu", api_version=1)
    kinds = [jax.ShapeDtypeStruct(s, t) for s, t in shapes]
    return [np.asarray(y) for y in jax.jit(jax.ffi.ffi_call(entry, kinds))(*inputs)]


def ulps(got, want):
    """Largest error in units in the last place of `want`, where that is a normal number."""
    normal = (np.abs(want) >= 2.0**-126) & (np.abs(want) < LARGEST) & np.isfinite(want)
    unit = np.spacing(np.abs(want[normal]).astype(F32)).astype(np.float64)
    error = np.abs(got[normal].astype(np.float64) - want[normal]) / unit
    return float(error.max()), float(np.flatnonzero(normal)[error.argmax()])


EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": scipy.special.expit,
    "tanh": np.tanh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erf_inv": scipy.special.erfinv,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "cbrt": np.cbrt,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "atan2": np.arctan2,
}


def test_every_function_keeps_its_bound():
    assert set(EXACT) == set(vectors.ULPS)
    draw = np.random.default_rng(0)
    size = 20_000
    x = np.concatenate(
        [
            np.linspace(-11, 11, 2 * size),
            draw.uniform(-1, 1, size),
            draw.uniform(-120, 120, size),
            np.exp2(draw.uniform(-126, 127, size)) * draw.choice([-1, 1], size),
        ]
    ).astype(F32)
    y = draw.permutation(x)
    two = ("pow", "atan2")
    bodies = [call(f, arg(0), arg(1)) if f in two else call(f, arg(0)) for f in EXACT]
    found = evaluated("bounds", bodies, [x, y])
    for (name, exact), got in zip(EXACT.items(), found, strict=True):
        wide = [x.astype(np.float64), y.astype(np.float64)][: 2 if name in two else 1]
        with np.errstate(all="ignore"):
            want = exact(*wide)
        worst, where = ulps(got, want)
        assert worst <= vectors.ULPS[name], (name, worst, x[int(where)])


def same(got, want, within=0.0):
    """Equal with NaN in the same places and signs of zeros, or close where a bound is given."""
    with np.errstate(invalid="ignore"):
        near = np.abs(got.astype(np.float64) - want) <= within * np.abs(want)
    equal = ((got == want) | near) & (np.signbit(got) == np.signbit(want))
    return equal | (np.isnan(got) & np.isnan(want))


# of these, XLA flushes a denormal operand or result now and then, or has worse bounds than ours
DENORMAL = np.abs(SPECIAL) < 2.0**-125
LOOSE = {"exp2", "pow"}


def test_special_values_are_those_of_xla():
    two = {"pow", "atan2", "max", "min", "add", "mul", "div", "eq", "lt", "ne", "ge"}
    exact = ["sqrt", "floor", "ceil", "abs", "sign", "neg", "is_finite"]
    names = [*(set(EXACT) - two), *exact, *two]
    names.sort()
    x, y = (q.ravel() for q in np.meshgrid(SPECIAL, SPECIAL))
    bodies = [call(n, arg(0), arg(1)) if n in two else call(n, arg(0)) for n in names]
    kinds = ["bool" if n in ("is_finite", "eq", "lt", "ne", "ge") else "f32" for n in names]
    found = evaluated("special", bodies, [x, y], kinds, run=inside_jax)
    denormal = np.isin(x, SPECIAL[DENORMAL]) & (x != 0)
    also = denormal | (np.isin(y, SPECIAL[DENORMAL]) & (y != 0))
    xla = jax.jit(lambda a, b: [getattr(lax, n)(*(a, b)[: 2 if n in two else 1]) for n in names])
    for name, got, want in zip(names, found, map(np.asarray, xla(x, y)), strict=True):
        fine = same(got, want, 1e-5 if name in LOOSE else 2e-6 if name in EXACT else 0)
        if name in EXACT:
            fine |= also if name in two else denormal
            fine |= (name == "exp2") & (x == -126)  # XLA's is 0, though 2⁻¹²⁶ is normal
        assert fine.all(), (name, x[~fine][:4], y[~fine][:4], got[~fine][:4], want[~fine][:4])


def test_where_the_limit_is_a_constant():
    cases = [(n, c) for n in ("max", "min") for c in (0.0, -0.0, 1.0)]
    found = evaluated(
        "limits", [call(n, arg(0), const(c)) for n, c in cases], [SPECIAL], run=inside_jax
    )
    xla = jax.jit(lambda x: [getattr(lax, n)(x, F32(c)) for n, c in cases])
    for case, got, want in zip(cases, found, xla(SPECIAL), strict=True):
        assert (same(got, np.asarray(want)) | DENORMAL).all(), case


def test_quotients_by_a_constant_are_those_of_a_division():
    divisors = [3.0, 32**0.5, 384.0, -7.0, 0.1, 1e-27, 0.25, 1e35]
    draw = np.random.default_rng(3)
    x = np.concatenate([SPECIAL[~DENORMAL], draw.normal(scale=1e3, size=4096).astype(F32)])
    bodies = [call("div", arg(0), const(c)) for c in divisors]
    for c, got in zip(divisors, evaluated("quotients", bodies, [x]), strict=True):
        with np.errstate(all="ignore"):
            want = x / F32(c)
            worst, _ = ulps(got[-4096:], x[-4096:].astype(np.float64) / np.float64(F32(c)))
        tiny = np.abs(want) < 2.0**-100  # their second products are denormal
        assert (same(got, want, 1e-6) | tiny & (np.abs(got) < 2.0**-99)).all(), c
        assert worst < 0.5001, (c, worst)


def test_integers_and_bools_are_those_of_xla():
    ends = np.array([0, 1, -1, 2, 5, -7, 31, 32, 40, 2**31 - 1, -(2**31)], np.int64)
    two = "add sub mul div rem max min shift_left shift_right_arithmetic shift_right_logical"
    two += " and or xor eq lt ge"
    for dtype in (np.int32, np.uint8, np.int8, np.int16):
        x, y = (q.ravel().astype(dtype) for q in np.meshgrid(ends, ends))
        names = [*two.split(), "sign", "not", "abs"]
        names = [n for n in names if n != "abs" or dtype != np.uint8]
        own = vectors_name(dtype)
        kinds = ["bool" if n in ("eq", "lt", "ge") else own for n in names]
        bodies = [call(n, arg(0), *[arg(1)] * (n in two.split())) for n in names]
        found = evaluated(f"integers{own}", bodies, [x, y], kinds)
        bitwise = ("and", "or", "xor", "not")
        functions = [getattr(lax, f"bitwise_{n}" if n in bitwise else n) for n in names]
        arity = [1 + (n in two.split()) for n in names]
        xla = jax.jit(
            lambda *xs, f=functions, a=arity: [g(*xs[:k]) for g, k in zip(f, a, strict=True)]
        )
        for n, got, want in zip(names, found, map(np.asarray, xla(x, y)), strict=True):
            assert (got == want).all(), (own, n, x[got != want][:4], y[got != want][:4])


def test_conversions_are_those_of_xla():
    numbers = np.concatenate([SPECIAL, np.linspace(-300, 300, 99, dtype=F32), F32([2e9, 3e9])])
    kinds = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "f16", "bf16", "f32"]
    types = [element_dtype(k) for k in kinds]
    with np.errstate(invalid="ignore", over="ignore"):
        inputs = [np.asarray(jnp.asarray(numbers).astype(t)) for t in types]
    pairs = [(a, b) for a in range(len(kinds)) for b in range(len(kinds)) if a != b]
    bodies = [cast(arg(a), kinds[b]) for a, b in pairs]
    found = evaluated("conversions", bodies, inputs, [kinds[b] for _, b in pairs], AVX2, 4)
    xla = jax.jit(lambda *xs: [xs[a].astype(types[b]) for a, b in pairs])
    for (a, b), got, want in zip(pairs, found, map(np.asarray, xla(*inputs)), strict=True):
        x = inputs[a]
        flushed = np.isin(x.astype(F32), SPECIAL[DENORMAL])  # XLA's pass through f32
        fine = same(got.astype(F32), want.astype(F32)) | flushed
        assert fine.all(), (kinds[a], kinds[b], x[~fine][:4], got[~fine][:4], want[~fine][:4])


@pytest.mark.parametrize(("target", "low", "high"), [("u8", 0.0, 255.0), ("i8", -128.0, 127.0)])
def test_what_is_clipped_to_the_ends_of_a_type_is_what_the_cast_gives(target, low, high):
    x = np.concatenate([SPECIAL, np.linspace(-300, 300, 99, dtype=F32)])
    limits = [(low, high), (low - 1, high + 1), (low + 3, high), (low, high - 3), (-0.0, high)]
    bodies = [cast(call("min", call("max", arg(0), const(a)), const(b)), target) for a, b in limits]
    found = evaluated(f"clipped{target}", bodies, [x], [target] * len(bodies))
    for (a, b), got in zip(limits, found, strict=True):
        with np.errstate(invalid="ignore"):
            assert (got == hold(np.minimum(np.maximum(x, F32(a)), F32(b)), target)).all(), (a, b)


@pytest.mark.parametrize("machine", [MACHINE, AVX2])
@pytest.mark.parametrize("target", ["i8", "u8", "i16", "u16"])
def test_what_is_rounded_and_stored_short_is_rounded_to_even(target, machine):
    """As QuantizeLinear: ties, zero points that are odd, ends, what is no number."""
    ends = np.iinfo(element_dtype(target))
    x = np.concatenate([SPECIAL, np.arange(-300, 300, 0.25, F32), F32([-65600.5, 65500.5, 70001])])
    with np.errstate(over="ignore"):
        x = np.concatenate([x, np.nextafter(x, F32(np.inf)), np.nextafter(x, F32(-np.inf))])
    zeros = [0, 1, -3, 128, 127, ends.max, ends.min]
    whole = [call("add", call("round_even", arg(0)), const(float(z))) for z in zeros]
    clip = lambda e: call("min", call("max", e, const(float(ends.min))), const(float(ends.max)))  # noqa: E731
    bodies = [cast(clip(e) if i % 2 else e, target) for i, e in enumerate(whole)]
    name = f"nearest{target}{machine.vector_bytes}"
    found = evaluated(name, bodies, [x], [target] * len(bodies), machine)
    for z, got in zip(zeros, found, strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            want = hold(np.round(x) + F32(z), target)
        assert (got == want).all(), (z, x[got != want][:4], got[got != want][:4])


@pytest.mark.parametrize("target", ["i8", "u16", "i32", "u32", "i64", "u64"])
def test_numbers_of_f64_become_the_nearest_end_of_integers(target):
    ends = [float(np.iinfo(element_dtype(target)).max), float(np.iinfo(element_dtype(target)).min)]
    near = [np.nextafter(x, to) for x in ends for to in (-np.inf, np.inf)]
    x = np.array([*ends, *near, np.nan, np.inf, -np.inf, -0.5, 0.99, 1e300, -7.9, 255.5])
    (got,) = evaluated(f"ends{target}", [cast(arg(0), target)], [x], [target], AVX2, 4)
    assert (got == hold(x, target)).all()


def test_halves_are_rounded_after_every_function():
    import ml_dtypes

    draw = np.random.default_rng(1)
    x, y = draw.normal(size=(2, 512)).astype(F32)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        a, b = x.astype(dtype), y.astype(dtype)
        body = call("add", call("mul", arg(0), arg(1)), call("sqrt", call("abs", arg(0))))
        (got,) = evaluated(f"half{vectors_name(dtype)}", [body], [a, b], [vectors_name(dtype)])
        want = (a * b).astype(dtype) + np.sqrt(np.abs(a)).astype(dtype)
        assert (got == want).all()


def test_what_is_missing_is_named():
    code, _ = Code.begin(new_module("m"), "k", [I64])
    x = vectors.Typed(code.constant(vector_lanes.lane_type("f32"), 1.0, 4), "f32")
    with pytest.raises(NoNest, match="`rem` of f32 has no vector code"):
        vectors.lower_bodies(code, 4, [call("rem", arg(0), arg(0))], [x])
    with pytest.raises(NoNest, match="kernels compute no f8e5m2"):
        vectors.lower_bodies(code, 4, [cast(arg(0), "f8e5m2")], [x])


def test_constants_take_the_type_beside_them_and_parts_are_computed_once():
    square = call("mul", arg(0), arg(0))
    body = call("add", call("max", square, const(2)), call("sub", square, call("neg", const(1.5))))
    x = np.linspace(-3, 3, 64, dtype=F32)
    (got,) = evaluated("once", [body], [x])
    np.testing.assert_array_equal(got, np.maximum(x * x, F32(2)) + (x * x + F32(1.5)))
    ir = machine_kernel("count", [body], ["f32"], ["f32"], 64).ir
    assert ir.count("fmul") == 1


def test_narrow_vectors_and_single_lanes():
    x = np.linspace(-4, 4, 64, dtype=F32)
    body = call("mul", call("erfc", arg(0)), call("sin", arg(0)))
    want = scipy.special.erfc(x.astype(np.float64)) * np.sin(x.astype(np.float64))
    for lanes in (1, 4, 8):
        (got,) = evaluated(f"lanes{lanes}", [body], [x], machine=AVX2, lanes=lanes)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-12)


def test_a_choice_between_constants_has_the_type_of_the_result():
    which = call("select", call("lt", arg(0), const(0.0)), const(1.0), const(2.0))
    body = call(
        "div", which, call("select", call("gt", arg(0), const(1.0)), const(4.0), const(8.0))
    )
    x = np.linspace(-2, 2, 64, dtype=F32)
    (got,) = evaluated("choice", [body], [x])
    np.testing.assert_array_equal(got, np.where(x < 0, 1, 2) / np.where(x > 1, 4, 8))


def test_every_approximation_has_a_cost():
    from eqsat.plan import stages

    assert set(vectors.ULPS) <= set(stages.COSTS)
    square = call("tanh", arg(0))
    assert stages.additions_of(call("mul", square, square)) == 1 + stages.COSTS["tanh"]


def test_planners_know_which_functions_have_vector_code():
    from eqsat.plan import stages

    assert stages.functions("f32") == set(vectors.FLOATS)
    assert stages.functions("f64") == set(vectors.EXACT)
    assert stages.functions("i32") == set(vector_lanes.SIGNED) == set(vector_lanes.UNSIGNED)
    assert stages.functions("bool") == set(vector_lanes.BOOLS)
    assert set(vector_lanes.ELEMENTS) == stages.ELEMENTS
