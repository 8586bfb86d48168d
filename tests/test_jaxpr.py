"""JAX functions as programs: the NumPy reference of the program equals the function."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from seeds import one_in

from eqsat.frontends.jaxpr import trace
from eqsat.frontends.opaque import OpaqueCall
from eqsat.model.diag import EqsatError
from eqsat.model.program import Program
from eqsat.ops.meaning.programs import evaluate_program

RNG = np.random.default_rng(3)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(function, *args, tolerance=2e-5, **options):
    """Trace, evaluate in float64, compare with JAX; returns the trace."""
    traced = trace(function, args, **options)
    traced.program.verify()
    assert Program.from_json(traced.program.to_json()) == traced.program
    got = evaluate_program(
        traced.program, traced.flat_inputs(args), traced.flat_weights(args), traced.opaque
    )
    want = jax.tree.leaves(function(*args))
    assert jax.tree.structure(traced.unflatten(got)) == jax.tree.structure(function(*args))
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        if g.dtype.kind == "f":
            exact = np.asarray(w).astype(np.float64)
            scale = np.max(np.abs(exact), initial=1.0, where=np.isfinite(exact))
            np.testing.assert_allclose(g, exact, rtol=tolerance, atol=tolerance * scale)
        else:
            assert np.array_equal(g, w)
    return traced


def ops(traced):
    return Counter(n.op for n in traced.program.nodes)


X = real(2, 6, 8)
POSITIVE = np.abs(X) + 0.1
INTS = RNG.integers(-100, 100, (4, 6)).astype(np.int8)

MODELLED = {
    "relu, silu, tanh": (lambda x: (jax.nn.relu(x), jax.nn.silu(x), jnp.tanh(x)), X),
    "gelu both ways": (lambda x: [jax.nn.gelu(x, approximate=a) for a in (True, False)], X),
    "softmax": (lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, axis=1)), X),
    "activations": (
        lambda x: [f(x) for f in (jax.nn.elu, jax.nn.softplus, jax.nn.leaky_relu, jax.nn.relu6)],
        X,
    ),
    "where, clip": (lambda x: (jnp.where(x > 0, x, -2.0), jnp.clip(x, -0.5, 0.5)), X),
    "where with arrays": (lambda x: jnp.where(x > 0, x, x.T.reshape(x.shape)), X),
    "powers": (lambda x: (x**2, x**5, x**-3, x**1.5), POSITIVE),
    "unary": (
        lambda x: [
            f(x)
            for f in (
                jnp.exp,
                jnp.log,
                jnp.sqrt,
                lax.rsqrt,
                jnp.sin,
                jnp.cos,
                jnp.expm1,
                jnp.log1p,
                jnp.abs,
                jnp.sign,
                jnp.floor,
                jnp.ceil,
                jnp.round,
                jnp.cbrt,
                jnp.exp2,
                lax.erf,
                lax.erfc,
                jax.nn.sigmoid,
                jnp.arctan,
                jnp.sinh,
                jnp.arcsinh,
                jnp.isfinite,
                jnp.square,
                jnp.reciprocal,
            )
        ],
        POSITIVE,
    ),
    "round away": (lambda x: lax.round(x * 4, lax.RoundingMethod.AWAY_FROM_ZERO), X),
    "binary": (
        lambda x: [
            f(x, x[::-1]) for f in (jnp.minimum, jnp.maximum, jnp.arctan2, jnp.fmod, jnp.power)
        ],
        POSITIVE,
    ),
    "reductions": (
        lambda x: (x.sum(), x.max(1), x.min((0, 2)), x.prod(-1), x.mean(1, keepdims=True)),
        X,
    ),
    "logic": (lambda x: ((x > 0).all(1), (x > 1).any(), ~(x > 0) & (x < 1) | (x != 1)), X),
    "variance": (lambda x: jnp.var(x, axis=-1), X),
    "views": (
        lambda x: (x[None, ..., None] + 1, x[:, ::-1], jnp.broadcast_to(x[:, :1], x.shape), x[0]),
        X,
    ),
    "a view is the result": (lambda x: (x[:, None], x[:, :, ::-1], jnp.ones((2, 3))), X),
    "movement": (
        lambda x: (
            x.reshape(12, 8),
            x.transpose(2, 0, 1),
            jnp.concatenate([x, x[:, 1:3]], 1),
            jnp.pad(x, ((0, 0), (1, 2), (0, 0)), constant_values=3.0),
            x[:, 1:6:2],
            jnp.split(x, [3], axis=2),
            jnp.stack([x, x[::-1]], 2),
            jnp.unstack(x, axis=1)[2],
            jnp.tile(x, (1, 2, 3)),
        ),
        X,
    ),
    "transposed unit dims": (lambda x: x[:, None].transpose(1, 0, 3, 2), X),
    "iota": (lambda x: x * jnp.arange(8.0) + jnp.arange(6)[:, None], X),
    "integers": (
        lambda i: (i // 3, i % 5, i << 2, i >> 1, i & 7, ~i, i * i, -i, jnp.abs(i), lax.div(i, i)),
        np.where(INTS == 0, 1, INTS).astype(np.int8),
    ),
    "casts": (
        lambda x: (x.astype(jnp.int8), (x > 0).astype(jnp.float32), x.astype(jnp.uint8)),
        np.abs(X) * 20,
    ),
    "composite": (lax.composite(lambda y: y * 2, "twice"), X),
    "checkpoint and jit": (lambda x: jax.checkpoint(jax.jit(jnp.tanh))(x) * 2, X),
    "grad inside": (jax.grad(lambda y: (jnp.tanh(y) ** 2).sum()), X),
    "vmap inside": (jax.vmap(lambda y: y @ y.T), X),
    "scalar argument": (lambda x: x * 2 + x, np.float32(3)),
    "nothing to do": (lambda x: x, X),
}


@pytest.mark.parametrize("name", one_in(2, MODELLED))
def test_constructs(name):
    function, x = MODELLED[name]
    assert ops(check(function, x))["opaque"] == 0


OPAQUE = {
    "cummax": (lambda x: lax.cummax(x, 1), 1, 0),
    "sort": (jnp.sort, 1, 0),
    "scatter": (lambda x: jnp.asarray(x).at[:, np.array([0, 3])].add(1.0), 1, 0),
    "two results": (lambda x: lax.top_k(x, 3), 1, 2),
    "equal calls are one": (lambda x: (lax.cummax(x, 1), lax.cummax(x, 1)), 1, 0),
    "different parameters": (lambda x: (lax.cummax(x, 1), lax.cummax(x, 2)), 2, 0),
    "complex numbers inside": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2.0).real + x, 1, 0),
    "random numbers": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), 1, 0),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_the_rest_is_kept_whole(name):
    function, calls, results = OPAQUE[name]
    found = ops(check(function, X))
    assert found["opaque"] == calls
    assert found["result"] == results


def test_a_region_of_foreign_values_takes_in_only_what_it_must():
    def dropout(x, w, seed):
        key = jax.random.wrap_key_data(seed)
        a, b = jax.random.split(key)
        x = jnp.where(jax.random.bernoulli(a, 0.5, x.shape), x, 0.0) @ w
        return jnp.where(jax.random.bernoulli(b, 0.5, x.shape), jnp.tanh(x), 0.0)

    traced = check(dropout, X, real(8, 8), np.asarray([1, 2], np.uint32))
    found = ops(traced)
    assert found["opaque"] <= 2  # the matmul lies between them in the jaxpr, and stays modelled
    assert any("combine=add" in line for line in traced.program.to_text().splitlines())


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def encoder(x, params):
    def heads(name, h):
        return (h @ params[name]).reshape(2, 6, 2, 4).transpose(0, 2, 1, 3)

    h = layer_norm(x, params["scale"], params["bias"])
    q, k, v = (heads(n, h) for n in ("q", "k", "v"))
    weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2.0)
    mixed = jnp.einsum("bhqk,bhkd->bhqd", weights, v).transpose(0, 2, 1, 3).reshape(2, 6, 8)
    x = x + mixed @ params["o"]
    h = layer_norm(x, params["scale"], params["bias"])
    return x + jax.nn.gelu(h @ params["up"], approximate=False) @ params["down"]


PARAMS = {n: real(8, 8) for n in "qkvo"} | {
    "up": real(8, 16), "down": real(16, 8), "scale": real(8), "bias": real(8),
}  # fmt: skip


def test_encoder_layer_is_modelled_completely():
    traced = check(encoder, X, PARAMS, weights=("params",))
    found = ops(traced)
    assert found["opaque"] == 0
    assert found["input"] == 1
    assert found["weight"] == len(PARAMS)
    assert found["transpose"] == 4
    assert traced.input_paths[:2] == ("x", "params['bias']")


def test_mlp_with_closed_over_weights():
    w1, b1, w2 = real(8, 16), real(16), real(16, 4)
    traced = check(lambda x: jax.nn.relu(x @ w1 + b1) @ w2, X)
    assert ops(traced) == Counter(input=1, weight=3, generic=4)
    assert sorted(a.shape for a in traced.weights.values()) == [(8, 16), (16,), (16, 4)]


def test_equal_weights_are_one_leaf_and_scalars_sit_in_bodies():
    w, again, factor = real(8, 8), None, jnp.float32(2.5)
    again = w.copy()
    traced = check(lambda x: (x @ w) * factor + x @ again, X)
    assert ops(traced)["weight"] == 1
    assert "2.5" in traced.program.to_text()


@st.composite
def dots(draw):
    """Dimension numbers and shapes of an arbitrary dot_general."""
    batch, k = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    free = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    sizes = draw(st.lists(st.integers(1, 3), min_size=8, max_size=8))
    shared, own = sizes[: batch + k], (sizes[4 : 4 + free[0]], sizes[6 : 6 + free[1]])
    shapes, contract, batched = [], [], []
    for side in (0, 1):
        dims = [*shared, *own[side]]
        order = draw(st.permutations(range(len(dims))))
        where = [order.index(i) for i in range(batch + k)]
        shapes.append(tuple(dims[i] for i in order))
        batched.append(tuple(where[:batch]))
        contract.append(tuple(where[batch:]))
    return shapes, (tuple(contract), tuple(batched))


@settings(max_examples=10, deadline=None)
@given(dots())
def test_dot_general_in_all_its_forms(drawn):
    (lhs, rhs), numbers = drawn
    check(lambda a, b: lax.dot_general(a, b, numbers), real(*lhs), real(*rhs))


@pytest.mark.parametrize(
    ("dtype", "preferred", "body", "nodes"),
    [
        ("bfloat16", jnp.float32, "mul(cast(x0, f32), cast(x1, f32))", 1),
        ("bfloat16", None, "mul(cast(x0, f32), cast(x1, f32))", 2),
        ("float16", None, "mul(cast(x0, f32), cast(x1, f32))", 2),
        ("int8", jnp.int32, "mul(cast(x0, i32), cast(x1, i32))", 1),
        ("int8", None, "mul(x0, x1)", 1),
        ("float32", None, "mul(x0, x1)", 1),
    ],
)
def test_accumulation_types(dtype, preferred, body, nodes):
    a, b = (jnp.asarray(RNG.integers(-3, 4, (4, 5)), dtype) for _ in range(2))
    traced = check(lambda a, b: lax.dot(a, b.T, preferred_element_type=preferred), a, b)
    generics = [n for n in traced.program.nodes if n.op == "generic"]
    assert len(generics) == nodes
    assert str(generics[0].attr.body) == body


CONVOLUTIONS = {
    "NHWC, strides, dilation, padding": dict(
        dimension_numbers=("NHWC", "HWIO", "NHWC"), window_strides=(2, 1),
        padding=[(1, 1), (0, 2)], rhs_dilation=(1, 2),
    ),
    "NHWC to NCHW": dict(
        dimension_numbers=("NHWC", "HWIO", "NCHW"), window_strides=(1, 1), padding="SAME"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    kernel = real(3, 3, 2, 4)
    traced = check(
        lambda x: lax.conv_general_dilated(x, kernel, **CONVOLUTIONS[name]), real(2, 9, 10, 2)
    )
    assert ops(traced)["opaque"] == 0


def test_one_by_one_convolution_is_a_contraction():
    from eqsat.ops.contractions.roles import contraction_roles

    kernel = real(1, 1, 2, 4)
    numbers = ("NHWC", "HWIO", "NHWC")
    traced = check(
        lambda x: lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers),
        real(2, 5, 5, 2),
    )
    found = contraction_roles(traced.program.nodes[-1].attr)
    assert found is not None
    assert (found.m, found.n, found.k) == ((0, 1, 2), (3,), (4,))


def test_depthwise_and_grouped_convolutions():
    numbers = ("NHWC", "HWIO", "NHWC")

    def conv(kernel, groups):
        return lambda x: lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    x = real(1, 5, 6, 4)
    assert ops(check(conv(real(3, 3, 1, 4), 4), x))["opaque"] == 0
    assert ops(check(conv(real(3, 3, 2, 6), 2), x))["opaque"] == 0


def test_pooling():
    def pools(x):
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        return (
            lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME"),
            lax.reduce_window(x, jnp.inf, lax.min, window, strides, "VALID"),
            lax.reduce_window(x, 0.0, lax.add, window, (1, 1, 1, 1), "SAME"),
        )

    assert ops(check(pools, real(1, 7, 8, 2)))["opaque"] == 0


def test_custom_derivatives_are_inlined_and_noted():
    @jax.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 3,))
    assert check(double, X).custom_derivatives
    assert check(jax.nn.relu, X).custom_derivatives
    assert not check(jnp.tanh, X).custom_derivatives


def test_equal_functions_written_differently_share_nodes():
    traced = check(lambda x, y: (x * y + 1.0, 1.0 + y * x), X, X + 1)
    assert traced.program.results[0] == traced.program.results[1]


def test_shapes_suffice_and_kwargs_work():
    shape = jax.ShapeDtypeStruct((2, 6, 8), jnp.float32)
    a = trace(encoder, (shape,), {"params": PARAMS}, weights=("params",), name="layer")
    assert a.program.name == "layer"
    bare = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), PARAMS)
    b = trace(encoder, (shape, bare), weights=("params",))
    assert b.weights == {}
    assert len(b.program.weights) == len(PARAMS)  # equal shapes, different arguments
    got = evaluate_program(b.program, [X], b.flat_weights((X, PARAMS)))
    np.testing.assert_allclose(got[0], encoder(X, PARAMS), rtol=1e-4, atol=1e-4)


def test_captured_tracers_become_inputs():
    seen = []

    @jax.jit
    def outer(w):
        traced = trace(lambda x: x @ w, (jax.ShapeDtypeStruct((2, 3), jnp.float32),))
        seen.append(traced)
        return w

    outer(real(3, 4))
    assert len(seen[0].captured) == 1
    assert len(seen[0].program.inputs) == 2
    assert seen[0].weights == {}


def test_tracers_as_weights_have_keys_of_their_own():
    @jax.grad
    def loss(params):
        traced = trace(lambda x, p: x @ p["a"] + x @ p["b"], (X, params), weights=("p",))
        assert traced.weights == {}
        assert len(traced.program.weights) == 2
        assert set(traced.flat_weights((X, params))) == {
            traced.program.leaf(i).key for i in traced.program.weights
        }
        return (params["a"] ** 2).sum()

    loss({"a": real(8, 4), "b": real(8, 4)})


def test_results_do_not_depend_on_the_trace():
    one, two = (trace(encoder, (X, PARAMS), weights=("params",)) for _ in range(2))
    assert one.program.to_json() == two.program.to_json()
    keys = [list(trace(OPAQUE["two results"][0], (X,)).opaque) for _ in range(2)]
    assert keys[0] == keys[1]


def test_opaque_calls_travel_as_bytes():
    traced = trace(lambda x: lax.top_k(x, 3), (X,))
    (call,) = traced.opaque.values()
    loaded = OpaqueCall.load(call.export())
    assert (loaded.key, loaded.primitive) == (call.key, call.primitive)
    assert (loaded.operands, loaded.results) == (call.operands, call.results)
    for a, b in zip(loaded.call(X), call.call(X), strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(OpaqueCall.load(loaded.export()).call(X)[0], call.call(X)[0])
    with pytest.raises(EqsatError, match="E325"):
        OpaqueCall.load(b"nonsense")


def shows(x):
    jax.debug.print("{}", x.sum())
    return x


@pytest.mark.parametrize(
    ("function", "args", "options", "code"),
    [
        (lambda x: x + 1, (np.ones(2, np.complex64),), {}, "E302"),
        (jnp.fft.fft, (X,), {}, "E302"),
        (lambda x: float(x.sum()), (X,), {}, "E301"),
        (lambda x: x, ("text",), {}, "E301"),
        (shows, (X,), {}, "E323"),
        (lambda x, w: x @ w, (X, real(8, 8)), {"weights": ("v",)}, "E324"),
    ],
)
def test_bad_input_is_told_in_one_sentence(function, args, options, code):
    with pytest.raises(EqsatError) as e:
        trace(function, args, **options)
    assert e.value.diagnostics[0].code == code


def test_calls_with_another_tree_are_refused():
    traced = trace(encoder, (X, PARAMS))
    with pytest.raises(EqsatError, match="E306"):
        traced.flat_inputs((X,))
