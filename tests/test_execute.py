"""The XLA executor equals the float64 reference, op by op and for whole programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from executed import PARAMS, RNG, X, check, layer, packed_matmul, real, whole
from fuzz.worst import worst_error
from jax import lax
from seeds import one_in

from eqsat.execute.executable import xla_executable
from eqsat.execute.expressions import cast_factors, evaluate_body_in_jax
from eqsat.execute.loops import generic as run_generic
from eqsat.execute.verify import verify
from eqsat.frontends.jaxpr import trace
from eqsat.model.affine import affine, dim
from eqsat.model.expr import arg, call, cast
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.structured import evaluate_generic

INTEGER = scalar.INTEGER_ONLY | {"div", "rem", "add", "sub", "mul", "max", "min", "eq", "lt", "abs"}


@pytest.mark.parametrize("name", one_in(3, sorted(scalar.FUNCTIONS)))
def test_scalar_functions_agree_with_the_reference(name):
    f = scalar.FUNCTIONS[name]
    x = [RNG.uniform(0.1, 0.9, 50).astype(np.float32) for _ in range(f.arity)]
    if name == "select":
        x[0] = x[0] > 0.5
    if name == "clamp":
        x[0], x[2] = np.minimum(x[0], x[2]), np.maximum(x[0], x[2])
    if name == "acosh":
        x[0] = x[0] + 1
    body = call(name, *(arg(i) for i in range(f.arity)))
    if name not in scalar.INTEGER_ONLY:
        want = scalar.evaluate_body(
            body, [v if v.dtype == bool else v.astype(np.float64) for v in x]
        )
        np.testing.assert_allclose(evaluate_body_in_jax(body, x), want, rtol=3e-5, atol=1e-6)
    if name in INTEGER:
        ints = [RNG.integers(-128, 128, 400).astype(np.int8) for _ in range(f.arity)]
        assert np.array_equal(evaluate_body_in_jax(body, ints), scalar.evaluate_body(body, ints))


@pytest.mark.parametrize(
    ("of", "to"), [("f32", "i8"), ("f32", "u8"), ("f32", "bool"), ("i32", "i8"), ("i8", "f32")]
)
def test_casts_agree_with_the_reference(of, to):
    values = np.array([0.0, -0.5, 2.9, -2.9, 300.0, -300.0, 7.0])
    x = (
        values.astype({"f32": np.float32, "i32": np.int32, "i8": np.int8}[of], casting="unsafe")
        if of != "i8"
        else np.array([-128, -1, 0, 127], np.int8)
    )
    body = cast(arg(0), to)
    assert np.array_equal(evaluate_body_in_jax(body, [x]), scalar.evaluate_body(body, [x]))


CASES = {
    "matmul": ([4, 5, 3], 2, [((dim(0), dim(2)), (4, 3)), ((dim(2), dim(1)), (3, 5))]),
    "result transposed": ([4, 5, 3], 2, [((dim(2), dim(1)), (3, 5)), ((dim(0), dim(2)), (4, 3))]),
    "batch inside": (
        [4, 2, 5, 3],
        3,
        [((dim(0), dim(3), dim(1)), (4, 3, 2)), ((dim(1), dim(3), dim(2)), (2, 3, 5))],
    ),
    "two k": (
        [4, 5, 3, 2],
        2,
        [((dim(0), dim(2), dim(3)), (4, 3, 2)), ((dim(3), dim(1), dim(2)), (2, 5, 3))],
    ),
    "result loop nobody reads": ([4, 5, 3], 2, [((dim(0), dim(2)), (4, 3)), ((dim(2),), (3,))]),
    "k in one factor": ([4, 3, 2], 1, [((dim(0), dim(1)), (4, 3)), ((dim(1), dim(2)), (3, 2))]),
    "constant index": (
        [4, 3],
        1,
        [((dim(0), affine([], 1), dim(1)), (4, 2, 3)), ((dim(1),), (3,))],
    ),
    "stride and reversal": (
        [3, 4],
        1,
        [((affine([(0, 2)], 1), affine([(1, -1)], 3)), (6, 4)), ((dim(1),), (4,))],
    ),
    "part of an operand": ([3, 2], 1, [((dim(0), dim(1)), (4, 4)), ((affine([(1, 1)], 1),), (5,))]),
    "diagonal": ([4, 3], 1, [((dim(0), dim(0), dim(1)), (4, 4, 3)), ((dim(1),), (3,))]),
    "convolution": (
        [2, 3, 4, 5, 3, 2],
        4,
        [
            ((dim(0), affine([(1, 2), (4, 1)]), affine([(2, 1), (5, 3)]), dim(3)), (2, 7, 7, 5)),
            ((dim(4), dim(5), dim(3)), (3, 2, 5)),
        ],
    ),
    "packed convolution": (
        [1, 2, 4, 3, 2, 3, 5],
        4,
        [
            ((dim(0), dim(4), affine([(2, 1), (5, 1)]), dim(6)), (1, 2, 6, 5)),
            ((dim(1), dim(4), dim(5), dim(6), dim(3)), (2, 2, 3, 5, 3)),
        ],
    ),
    "window split in two result loops": (
        [3, 2, 2],
        2,
        [((affine([(0, 2), (1, 1)]), dim(2)), (6, 2)), ((dim(2),), (2,))],
    ),
    "wide window": ([2, 200], 1, [((affine([(0, 1), (1, 1)]),), (201,)), ((dim(1),), (200,))]),
}


def make(name, body, dtype="f32", combine="add", dtypes=("f32", "f32")):
    sizes, rank, operands = CASES[name]
    return Generic(
        tuple(sizes), rank, tuple(m for m, _ in operands), tuple(s for _, s in operands),
        (Yield(body, dtype, combine),), (), dtypes,
    )  # fmt: skip


FURTHER = [pytest.param(*pair, marks=pytest.mark.slow) for pair in (("mul", "max"), ("sub", "add"))]


@pytest.mark.parametrize("name", one_in(4, CASES))
@pytest.mark.parametrize(("fn", "combine"), [("mul", "add"), ("sub", "max"), *FURTHER])
def test_generics_agree_with_the_reference(name, fn, combine):
    g = make(name, call(fn, arg(0), arg(1)), combine=combine)
    g.verify()
    xs = [real(*s) for s in g.shapes]
    (want,) = evaluate_generic(g, [x.astype(np.float64) for x in xs])
    (got,) = run_generic(g, [jnp.asarray(x) for x in xs])
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "name", one_in(2, ("matmul", "convolution", "packed convolution", "diagonal"))
)
def test_integer_products_are_exact_where_they_wrap(name):
    narrow = make(name, cast(call("mul", arg(0), arg(1)), "i32"), "i32", dtypes=("i8", "i8"))
    wide = make(
        name, call("mul", cast(arg(0), "i32"), cast(arg(1), "i32")), "i32", dtypes=("i8", "i8")
    )
    xs = [RNG.integers(-128, 128, s).astype(np.int8) for s in narrow.shapes]
    for g in (narrow, wide):
        (got,) = run_generic(g, [jnp.asarray(x) for x in xs])
        assert np.array_equal(got, evaluate_generic(g, xs)[0])
    assert cast_factors(narrow) is None
    assert cast_factors(wide) is not None


def jaxpr_of(g):
    xs = [jnp.zeros(s, jnp.float32) for s in g.shapes]
    return {e.primitive.name for e in jax.make_jaxpr(lambda *a: run_generic(g, a))(*xs).eqns}


def test_contractions_and_convolutions_use_xlas_own_ops():
    body = call("mul", arg(0), arg(1))
    assert "dot_general" in jaxpr_of(make("two k", body))
    assert "conv_general_dilated" in jaxpr_of(make("packed convolution", body))
    assert "dot_general" not in jaxpr_of(make("packed convolution", body))


@pytest.mark.parametrize("dtype", ["i8", "bool"])
@pytest.mark.parametrize("combine", ["and", "or"])
def test_logical_reductions(dtype, combine):
    g = Generic(
        (3, 4), 1, ((dim(0), dim(1)),), ((3, 4),), (Yield(arg(0), dtype, combine),), (), (dtype,)
    )
    x = RNG.integers(0, 2 if dtype == "bool" else 100, (3, 4)).astype(scalar.held_dtype(dtype))
    assert np.array_equal(run_generic(g, [jnp.asarray(x)])[0], evaluate_generic(g, [x])[0])


def test_several_results():
    yields = (Yield(arg(0), "f32", "add"), Yield(call("neg", arg(0)), "f32", "max"))
    g = Generic((3, 4), 1, ((dim(0), dim(1)),), ((3, 4),), yields, (), ("f32",))
    x = real(3, 4)
    total, largest = run_generic(g, [jnp.asarray(x)])
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(largest, (-x).max(1))


KERNEL, DEPTHWISE = real(3, 3, 2, 4), real(3, 3, 1, 2)
NUMBERS = ("NHWC", "HWIO", "NHWC")
IMAGE = real(2, 9, 8, 2)
FUNCTIONS = {
    "attention": (lambda x: layer(x, PARAMS), X),
    "moves": (
        lambda x: (jnp.pad(x, 1, constant_values=2.0), x[:, ::-2], jnp.concatenate([x, x], 2)),
        X,
    ),
    "views": (lambda x: (x[:, None] + 1, jnp.broadcast_to(x[:, :1], x.shape), x[0, 0, 0]), X),
    "opaque": (lambda x: (lax.cummax(x, axis=1), lax.top_k(x, 3), jnp.sort(x, 2)), X),
    "conv": (
        lambda x: lax.conv_general_dilated(
            x, KERNEL, (2, 1), [(1, 1), (0, 2)], rhs_dilation=(1, 2), dimension_numbers=NUMBERS
        ),
        IMAGE,
    ),
    "depthwise": (
        lambda x: lax.conv_general_dilated(
            x, DEPTHWISE, (1, 1), "SAME", dimension_numbers=NUMBERS, feature_group_count=2
        ),
        IMAGE,
    ),
    "pooling": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        IMAGE,
    ),
    "integers": (lambda i: (lax.dot(i, i.T, preferred_element_type=jnp.int32), i // 3, i.sum(0)),
                 jnp.asarray(RNG.integers(-9, 9, (3, 4)), jnp.int32)),
    "a constant": (lambda x: (jnp.ones((2, 3)), x.sum()), X),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, FUNCTIONS))
def test_functions(name):
    check(*FUNCTIONS[name])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(dtype):
    x = jnp.asarray(X, dtype)
    traced = trace(lambda x: jax.nn.gelu(x @ x.swapaxes(1, 2)), (x,))
    executable = xla_executable(whole(traced.program), {})
    found = verify(traced.program, executable, {}, {}, samples=2)
    assert found.limit > 1e-3
    assert found.ok, found
    assert executable(x)[0].dtype == dtype


# -- packed programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(16, 16, 8), (7, 5, 3), (17, 9, 10)])
@pytest.mark.parametrize("tile", [(8, 4, 2), (16, 16, 1), (1, 8, 4)])
def test_packed_contractions_with_padding(size, tile):
    program = packed_matmul(*size, tile)
    program.verify()
    w = real(size[2], size[1])
    executable = xla_executable(whole(program), {}, {"w": w})
    found = verify(program, executable, {"w": w}, {}, samples=2)
    assert found.ok, found
    x = real(size[0], size[2])
    np.testing.assert_allclose(executable(x)[0], x @ w, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pad", ["?", "0", "-inf"])
def test_pack_unpack_retype_relax(pad):
    b = Builder("p")
    x = b.add("input", (), Leaf("x", TensorType("f32", (5, 6)), index=0))
    layout = Layout((5, 6), (1, 0), (4, 3), (1, 0), (pad, pad))
    zeros = Layout((5, 6), (1, 0), (4, 3), (1, 0), ("0", "0"))
    packed = b.add("pack", (x,), layout)
    masked = b.add("retype", (packed,), zeros)
    back = b.add("unpack", (packed,), layout)
    program = b.build([masked, back] + ([packed] if pad != "?" else []))
    program.verify()
    assert verify(program, xla_executable(whole(program), {}), {}, {}).ok


def test_leaks_of_arbitrary_padding_are_found():
    """A K tile padded with anything: the executor's zeros hide it, the reference's NaN does not."""
    program = packed_matmul(4, 4, 3, (4, 4, 2))
    b = Builder("leak")
    for n in program.nodes:
        attr = n.attr
        if n.op == "pack":
            assert isinstance(attr, Layout)
            pads = tuple("?" if p == "0" else p for p in attr.pads)
            attr = Layout(attr.source, attr.pos, attr.tiles, attr.outer, pads)
        b.append(n.op, n.operands, attr)
    leaky = b.build(program.results)
    w = real(3, 4)
    assert not verify(leaky, xla_executable(whole(leaky), {}, {"w": w}), {"w": w}, {}).ok


def test_gather():
    b = Builder("g")
    x = b.add("input", (), Leaf("x", TensorType("f32", (5, 6)), index=0))
    i = b.add("input", (), Leaf("i", TensorType("i32", (2, 3)), index=1))
    move = Move("gather", ((5, 6), (2, 3)), (0,), (2, 3, 6))
    program = b.build([b.add("gather", (x, i), move)])
    assert verify(program, xla_executable(whole(program), {}), {}, {}).ok


# -- verification ---------------------------------------------------------------------------------


def test_verification_finds_a_wrong_element():
    traced = trace(lambda x: x * 2, (X,))
    right = xla_executable(whole(traced.program), {})

    def wrong(x):
        return [np.asarray(right(x)[0]) + np.eye(6, 8, dtype=np.float32) * 1e-3]

    found = verify(traced.program, wrong, {}, {})
    assert not found.ok
    assert found.outcome == "mismatch"
    assert found.max_error > 100 * found.limit > 0
    assert "result 0 [" in found.where
    assert verify(traced.program, right, {}, {}, seed=3).ok


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, 0.0], [1.0, np.nan], False),
        ([1.0, np.nan], [1.0, 0.0], False),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([-np.inf, 1.0], [np.inf, 1.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([1e-3, 0.0], [0.0, 0.0], False),
    ],
)
def test_comparison(got, want, ok):
    assert (worst_error(np.array(got), np.array(want))[0] <= 1e-5) is ok


def test_integers_must_be_equal_and_shapes_too():
    assert worst_error(np.array([1, 2]), np.array([1, 2]))[0] == 0
    assert worst_error(np.array([1, 3]), np.array([1, 2]))[0] == np.inf
    assert worst_error(np.ones(2), np.ones(3))[0] == np.inf
