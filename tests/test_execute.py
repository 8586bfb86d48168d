"""The XLA executor equals the float64 reference, op by op and for whole programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from eqsat.execute import weights as packing
from eqsat.execute.calls import Callee, compiled
from eqsat.execute.compare import compare
from eqsat.execute.executable import differentiate_as
from eqsat.execute.expressions import evaluate_body
from eqsat.execute.loops import generic as run_generic
from eqsat.execute.operands import cast_factors
from eqsat.execute.verify import verify
from eqsat.execute.xla import build
from eqsat.frontends.jaxpr import trace
from eqsat.model.affine import affine, dim
from eqsat.model.diag import EqsatError
from eqsat.model.expr import arg, call, cast
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Program
from eqsat.model.schedule import Dispatch, Schedule
from eqsat.model.target import Tile
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.structured import evaluate_generic

RNG = np.random.default_rng(5)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X = real(2, 6, 8)


def whole(program: Program) -> Schedule:
    """Everything that needs an input in one dispatch, the rest ahead of time."""
    ahead: list[int] = []
    for i, n in enumerate(program.nodes):
        if n.op == "weight" or (n.operands and all(o in ahead for o in n.operands)):
            ahead.append(i)
    run = tuple(i for i, n in enumerate(program.nodes) if i not in ahead and n.op != "input")
    dispatch = Dispatch(run, program.inputs, program.results, 0, 0, "all")
    return Schedule(program, (dispatch,), (), tuple(ahead), "test")


def check(function, *args, **options):
    """Trace, build, verify against the reference and against JAX itself."""
    traced = trace(function, args, **options)
    executable = build(whole(traced.program), traced.opaque, traced.weights)
    found = verify(traced.program, executable.flat, traced.weights, traced.opaque, samples=2)
    assert found.ok, found
    call = compiled(Callee(executable, traced, False))
    got, want = jax.tree.leaves(call(*args)), jax.tree.leaves(function(*args))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert compare(np.asarray(g), np.asarray(w).astype(scalar.held_dtype("f64")))[0] < 1e-5
    return executable


INTEGER = scalar.INTEGER_ONLY | {"div", "rem", "add", "sub", "mul", "max", "min", "eq", "lt", "abs"}


@pytest.mark.parametrize("name", sorted(scalar.FUNCTIONS))
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
        np.testing.assert_allclose(evaluate_body(body, x), want, rtol=3e-5, atol=1e-6)
    if name in INTEGER:
        ints = [RNG.integers(-128, 128, 400).astype(np.int8) for _ in range(f.arity)]
        assert np.array_equal(evaluate_body(body, ints), scalar.evaluate_body(body, ints))


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
    assert np.array_equal(evaluate_body(body, [x]), scalar.evaluate_body(body, [x]))


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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("fn", ["mul", "sub"])
@pytest.mark.parametrize("combine", ["add", "max"])
def test_generics_agree_with_the_reference(name, fn, combine):
    g = make(name, call(fn, arg(0), arg(1)), combine=combine)
    g.verify()
    xs = [real(*s) for s in g.shapes]
    (want,) = evaluate_generic(g, [x.astype(np.float64) for x in xs])
    (got,) = run_generic(g, [jnp.asarray(x) for x in xs])
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["matmul", "convolution", "packed convolution", "diagonal"])
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


def layer(x, p):
    h = x - x.mean(-1, keepdims=True)
    q, k = ((h @ p[n]).reshape(2, 6, 2, 4).transpose(0, 2, 1, 3) for n in ("q", "k"))
    a = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k))
    o = jnp.einsum("bhqk,bhkd->bhqd", a, q).transpose(0, 2, 1, 3).reshape(2, 6, 8)
    return x + jax.nn.gelu(o @ p["up"]) @ p["down"]


PARAMS = {"q": real(8, 8), "k": real(8, 8), "up": real(8, 16), "down": real(16, 8)}
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
    "opaque": (lambda x: (jnp.cumsum(x, 1), lax.top_k(x, 3), jnp.argmax(x, 2)), X),
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    check(*FUNCTIONS[name])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(dtype):
    x = jnp.asarray(X, dtype)
    traced = trace(lambda x: jax.nn.gelu(x @ x.swapaxes(1, 2)), (x,))
    executable = build(whole(traced.program), {})
    found = verify(traced.program, executable, {}, {}, samples=2)
    assert found.limit > 1e-3
    assert found.ok, found
    assert executable(x)[0].dtype == dtype


# -- packed programs ------------------------------------------------------------------------------


def packed_matmul(m, n, k, tile, dtype="f32"):
    """x @ w with both operands packed by a tile, and the plain generic."""
    b = Builder("packed")
    x = b.add("input", (), Leaf("x", TensorType(dtype, (m, k)), index=0))
    w = b.add("weight", (), Leaf("w", TensorType(dtype, (k, n)), key="w"))
    maps = ((dim(0), dim(2)), (dim(2), dim(1)))
    body = call("mul", arg(0), arg(1))
    g = Generic(
        (m, n, k), 2, maps, ((m, k), (k, n)), (Yield(body, dtype, "add"),), (), (dtype, dtype)
    )
    found = pack_loops(g, Tile(tuple(zip("mnk", tile, strict=True)), 1.0))
    assert found is not None
    operands = tuple(
        node if layout is None else b.add("pack", (node,), layout)
        for node, layout in zip((x, w), found.operands, strict=True)
    )
    inner = b.add("generic", operands, found.sig)
    return b.build([b.add("unpack", (inner,), found.result)])


@pytest.mark.parametrize("size", [(16, 16, 8), (7, 5, 3), (17, 9, 10)])
@pytest.mark.parametrize("tile", [(8, 4, 2), (16, 16, 1), (1, 8, 4)])
def test_packed_contractions_with_padding(size, tile):
    program = packed_matmul(*size, tile)
    program.verify()
    w = real(size[2], size[1])
    executable = build(whole(program), {}, {"w": w})
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
    assert verify(program, build(whole(program), {}), {}, {}).ok


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
    assert not verify(leaky, build(whole(leaky), {}, {"w": w}), {"w": w}, {}).ok


def test_gather():
    b = Builder("g")
    x = b.add("input", (), Leaf("x", TensorType("f32", (5, 6)), index=0))
    i = b.add("input", (), Leaf("i", TensorType("i32", (2, 3)), index=1))
    move = Move("gather", ((5, 6), (2, 3)), (0,), (2, 3, 6))
    program = b.build([b.add("gather", (x, i), move)])
    assert verify(program, build(whole(program), {}), {}, {}).ok


# -- transformations ------------------------------------------------------------------------------


def built(function, *args, **options):
    traced = trace(function, args, **options)
    return build(whole(traced.program), traced.opaque, traced.weights)


def test_grad_and_vmap_and_jit_go_through():
    f = lambda x: layer(x, PARAMS)  # noqa: E731
    executable = built(f, X)
    want = jax.grad(lambda x: f(x).sum())(X)
    got = jax.grad(lambda x: executable(x)[0].sum())(X)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)
    batch = real(3, 2, 6, 8)
    (many,) = jax.vmap(executable)(batch)
    np.testing.assert_allclose(many, jax.vmap(f)(batch), rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(jax.jit(executable)(X)[0], f(X), rtol=2e-4, atol=2e-5)


def test_first_call_under_jit_leaves_no_tracer_behind():
    executable = built(lambda x: x @ (PARAMS["q"].T + 1.0), X)
    jax.jit(executable)(X)
    assert all(isinstance(a, jax.Array) for a in executable.packed.values())
    np.testing.assert_allclose(executable(X)[0], X @ (PARAMS["q"].T + 1.0), rtol=1e-4, atol=1e-5)


def test_gradients_of_weights():
    shapes = {n: jax.ShapeDtypeStruct(p.shape, p.dtype) for n, p in PARAMS.items()}
    traced = trace(layer, (X, shapes), weights=("p",))
    call = compiled(Callee(build(whole(traced.program), traced.opaque), traced, False))
    want = jax.grad(lambda p: (layer(X, p) ** 2).sum())(PARAMS)
    got = jax.grad(lambda p: (call(X, p) ** 2).sum())(PARAMS)
    for name, g in got.items():
        np.testing.assert_allclose(g, want[name], rtol=5e-3, atol=5e-4)


def test_custom_derivatives_can_be_those_of_the_function():
    def f(x):
        return lax.stop_gradient(jnp.tanh(x)) * x

    executable = built(f, X)
    call = differentiate_as(lambda x: executable(x)[0], f)
    got = jax.grad(lambda x: call(x).sum())(X)
    np.testing.assert_allclose(got, np.tanh(X), rtol=1e-5, atol=1e-6)
    batch = real(3, 2, 6, 8)
    np.testing.assert_allclose(jax.jit(jax.vmap(call))(batch), f(batch), rtol=1e-5, atol=1e-6)


# -- weights --------------------------------------------------------------------------------------


def test_weights_are_packed_once_and_are_arguments():
    program = packed_matmul(8, 9, 10, (4, 4, 2))
    w = real(10, 9)
    executable = build(whole(program), {}, {"w": w})
    ((node, array),) = executable.packed.items()
    assert program.nodes[node].op == "pack"
    assert array.shape == program.nodes[node].type.shape
    assert executable.packed[node] is array
    text = executable.jitted.lower(executable.packed, real(8, 10)).as_text()
    assert "dense<" not in text or w.tobytes().hex().upper()[:32] not in text


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_packed_weights_are_saved_and_loaded(tmp_path, dtype):
    from eqsat.ops.meaning.programs import element_dtype

    schedule = whole(packed_matmul(8, 9, 10, (4, 4, 2), dtype))
    w = RNG.integers(-5, 5, (10, 9)).astype(element_dtype(dtype))
    packed = packing.pack_weights(schedule, {"w": w})
    packing.write_arrays(tmp_path / "w.safetensors", packing.packed_arrays(schedule, packed))
    loaded = packing.load(tmp_path / "w.safetensors", schedule)
    assert loaded is not None
    assert loaded.keys() == packed.keys()
    for i, a in packed.items():
        assert loaded[i].dtype == a.dtype
        assert np.array_equal(loaded[i], a)
        assert packing.content_key(schedule.program, i).startswith("pack(w, pos=[1, 0]")
    other = whole(packed_matmul(8, 9, 10, (4, 3, 2), dtype))
    assert packing.load(tmp_path / "w.safetensors", other) is None
    (tmp_path / "bad").write_bytes(b"no")
    with pytest.raises(EqsatError, match="E504"):
        packing.load(tmp_path / "bad", schedule)


# -- verification ---------------------------------------------------------------------------------


def test_verification_finds_a_wrong_element():
    traced = trace(lambda x: x * 2, (X,))
    right = build(whole(traced.program), {})

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
    assert (compare(np.array(got), np.array(want))[0] <= 1e-5) is ok


def test_integers_must_be_equal_and_shapes_too():
    assert compare(np.array([1, 2]), np.array([1, 2]))[0] == 0
    assert compare(np.array([1, 3]), np.array([1, 2]))[0] == np.inf
    assert compare(np.ones(2), np.ones(3))[0] == np.inf


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [(), (real(3, 3),), (X.astype(np.float16),), (X, X)])
def test_calls_that_do_not_fit(inputs):
    executable = build(whole(trace(lambda x: x + 1, (X,)).program), {})
    with pytest.raises(EqsatError) as e:
        executable(*inputs)
    assert e.value.diagnostics[0].code == "E503"


def test_missing_weights_opaque_calls_and_wide_types():
    program = packed_matmul(4, 4, 4, (4, 4, 1))
    with pytest.raises(EqsatError, match="E503"):
        build(whole(program), {})(real(4, 4))
    traced = trace(lambda x: jnp.cumsum(x, 1), (X,))
    with pytest.raises(EqsatError, match="E501"):
        build(whole(traced.program), {})(X)
    with pytest.raises(EqsatError, match="E505"):
        build(whole(packed_matmul(4, 4, 4, (4, 4, 1), "f64")), {})
