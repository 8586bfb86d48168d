"""JAX primitives in all their forms: the float64 reference and the XLA executor equal JAX."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from seeds import one_in, seeds

from eqsat.execute.lowering import evaluate
from eqsat.frontends.jaxpr import trace
from eqsat.model.diag import EqsatError
from eqsat.ops.meaning.programs import evaluate_program

RNG = np.random.default_rng(11)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def check(function, *args, opaque=(), tolerance=2e-5):
    """Trace; the reference and the executor both equal JAX. Returns a count of ops."""
    traced = trace(function, args)
    traced.program.verify()
    inputs, weights = traced.flat_inputs(args), traced.flat_weights(args)
    want = jax.tree.leaves(jax.jit(function)(*args))
    exact = evaluate_program(traced.program, inputs, weights, traced.opaque)
    for got in (exact, run(traced, inputs, weights)):
        for g, w in zip(got, want, strict=True):
            equal(np.asarray(g), np.asarray(w), tolerance)
    kept = {n.attr.primitive for n in traced.program.nodes if n.op == "opaque"}
    assert kept == set(opaque)
    return Counter(n.op for n in traced.program.nodes)


def run(traced, inputs, weights):
    program = traced.program
    known = {i: jnp.asarray(x) for i, x in zip(program.inputs, inputs, strict=True)}
    known |= {i: jnp.asarray(weights[program.leaf(i).key]) for i in program.weights}

    @jax.jit
    def execute(known):
        values = evaluate(program, range(len(program.nodes)), known, traced.opaque)
        return [values[r][0] for r in program.results]

    return execute(known)


def equal(got, want, tolerance):
    assert got.shape == want.shape
    if want.dtype.kind in "iub":
        assert np.array_equal(got, want)
        return
    want = want.astype(np.float64)
    scale = np.max(np.abs(want), initial=1.0, where=np.isfinite(want))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tolerance, atol=tolerance * scale)


# ---- indices -----------------------------------------------------------------------------------

TABLE = real(7, 5)
CUBE = real(4, 5, 6)
IDS = np.array([[0, 6, 2], [3, 3, 1]], np.int32)
WILD = np.array([[0, -1, 7], [-8, 6, 100]], np.int32)  # negative ones and some out of range
MODES = ["fill", "clip", "promise_in_bounds"]

LOOKUPS = {
    "embedding": (lambda t, i: jnp.take(t, i, axis=0), TABLE, IDS),
    "last dim": (lambda t, i: jnp.take(t, i, axis=1, mode="clip"), TABLE, IDS),
    "middle dim": (lambda t, i: jnp.take(t, i, axis=1), CUBE, IDS),
    "wild fill": (lambda t, i: jnp.take(t, i, axis=0, mode="fill"), TABLE, WILD),
    "wild clip": (lambda t, i: jnp.take(t, i, axis=0, mode="clip"), TABLE, WILD),
    "wild wrap": (lambda t, i: jnp.take(t, i, axis=0, mode="wrap"), TABLE, WILD),
    "own fill": (lambda t, i: t.at[i].get(mode="fill", fill_value=7), TABLE, WILD),
    "integers": (lambda t, i: jnp.take(t, i, axis=0), (TABLE * 9).astype(np.int8), WILD),
    "unsigned": (lambda t, i: jnp.take(t, i, axis=0), np.abs(TABLE * 9).astype(np.uint16), WILD),
    "bools": (lambda t, i: jnp.take(t, i, axis=0, mode="clip"), TABLE > 0, WILD),
    "narrow indices": (lambda t, i: jnp.take(t, i, axis=0), TABLE, WILD.astype(np.int8)),
    "unsigned indices": (lambda t, i: jnp.take(t, i, axis=0), TABLE, IDS.astype(np.uint8)),
    "numpy style": (lambda t, i: t[i], TABLE, WILD),
    "two indices": (lambda t, i: t[i[0], i[1]], TABLE, np.array([[1, -2, 9], [4, 0, 1]], np.int32)),
    "two apart": (lambda t, i: t[i[0], :, i[1]], CUBE, np.array([[1, -2], [4, 0]], np.int32)),
    "two of three": (lambda t, i: t[:, i[0], i[1]], CUBE, np.array([[1, 9], [4, 0]], np.int32)),
    "one row": (lambda t, i: t[i], TABLE, np.int32(-3)),
    "one element": (lambda t, i: t[i, 2], TABLE, np.int32(3)),
    "rows of a batch": (lambda t, i: jax.vmap(lambda j: t[j])(i), TABLE, IDS[0]),
    "along an axis": (
        lambda t, i: jnp.take_along_axis(t, i, axis=1),
        TABLE,
        RNG.integers(-7, 7, (7, 3)).astype(np.int32),
    ),
    "along a middle axis": (
        lambda t, i: jnp.take_along_axis(t, i, axis=1),
        CUBE,
        RNG.integers(0, 5, (4, 2, 6)).astype(np.int32),
    ),
    "windows": (
        lambda t, i: jax.vmap(lambda s: lax.dynamic_slice(t, (s, 1), (3, 2)))(i),
        TABLE,
        np.array([0, 6, -3, 2], np.int32),
    ),
    "windows of a batch": (
        jax.vmap(lambda x, s: lax.dynamic_slice(x, (s, 0), (2, 6))),
        CUBE,
        np.array([0, 9, -3, 2], np.int32),
    ),
    "scalar of a batch": (
        jax.vmap(lambda x, j: x[j]),
        CUBE,
        np.array([0, 4, -1, 7], np.int32),
    ),
}


@pytest.mark.parametrize("name", one_in(3, LOOKUPS))
def test_lookups_are_the_op_gather(name):
    function, table, index = LOOKUPS[name]
    assert check(function, table, index)["gather"] == 1


def random_gather(rng):
    """Dimension numbers, slice sizes, operand and indices of a random valid `lax.gather`."""
    rank, batch = int(rng.integers(1, 5)), [int(v) for v in rng.integers(1, 4, rng.integers(0, 3))]
    shape = [int(v) for v in rng.integers(1, 5, rank)]
    dims = [int(d) for d in rng.permutation(rank)]
    pairs = int(rng.integers(0, min(rank, len(batch)) + 1)) if rng.random() < 0.4 else 0
    own, theirs = dims[:pairs], [int(b) for b in rng.permutation(len(batch))[:pairs]]
    for d, b in zip(own, theirs, strict=True):
        shape[d] = batch[b]
    rest = dims[pairs:]
    mapped = rest[: int(rng.integers(0, len(rest) + 1))]
    sizes = [1 if d in own else int(rng.integers(1, shape[d] + 1)) for d in range(rank)]
    collapsed = sorted(d for d in rest if rng.random() < 0.5)
    for d in collapsed:
        sizes[d] = 1
    kept = rank - len(collapsed) - len(own)
    offsets = sorted(int(d) for d in rng.permutation(kept + len(batch))[:kept])
    order = np.argsort(own)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(offsets),
        collapsed_slice_dims=tuple(collapsed),
        start_index_map=tuple(mapped),
        operand_batching_dims=tuple(own[i] for i in order),
        start_indices_batching_dims=tuple(theirs[i] for i in order),
    )
    indices = rng.integers(-2, 6, (*batch, len(mapped))).astype(np.int32)
    return numbers, tuple(sizes), rng.standard_normal(shape).astype(np.float32), indices


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_any_gather(seed):
    """Five at a time, so that fewer functions are compiled."""
    rng = np.random.default_rng(seed)
    drawn = [random_gather(rng) for _ in range(5)]

    def function(pairs):
        return [
            lax.gather(
                x, i, numbers, sizes, mode=MODES[at % 2], fill_value=-3.0, unique_indices=False
            )
            for at, ((numbers, sizes, *_), (x, i)) in enumerate(zip(drawn, pairs, strict=True))
        ]

    plain = [not d[0].start_index_map and not d[0].operand_batching_dims for d in drawn]
    kept = ("gather",) if any(plain) else ()  # a slice in disguise
    assert check(function, [(x, i) for _, _, x, i in drawn], opaque=kept)["gather"] > 0


def test_a_promise_is_taken_at_its_word():
    ops = check(lambda t, i: t.at[i].get(mode="promise_in_bounds"), TABLE, IDS)
    assert ops["gather"] == 1
    ops = check(lambda t, i: t.at[i].get(mode="clip"), TABLE, IDS)
    assert ops["generic"] == 3  # no mask, only: less than 0, add the size, select


KNOWN = {
    "evenly spaced": (lambda t: t[:, np.array([0, 2, 4])], {"slice": 1}),
    "one place": (lambda t: t[np.array([2, 2, 2])], {"slice": 1}),
    "from the end": (lambda t: jnp.take(t, jnp.arange(-3, 0), axis=0), {"slice": 1}),
    "anywhere": (lambda t: t[np.array([4, 0, -1])], {"gather": 1}),
    "reversed": (lambda t: t[jnp.arange(6, -1, -1)], {"gather": 1}),
    "scalar": (lambda t: lax.dynamic_slice(t, (2, 99), (1, 2)), {"slice": 1}),
}


def test_known_indices_need_no_mask():
    check(lambda t: {name: f(t) for name, (f, _) in KNOWN.items()}, TABLE)
    for name, (function, want) in KNOWN.items():
        found = Counter(n.op for n in trace(function, (TABLE,)).program.nodes)
        assert {k: found[k] for k in ("slice", "gather") if found[k]} == want
        assert found["generic"] == (name == "one place")  # a broadcast


def test_dynamic_slices_clamp_their_start():
    function = lambda x, i, j: lax.dynamic_slice(x, (i, 1, j), (2, 3, 6))  # noqa: E731
    for start in (-4, 0, 1, 3, 100):
        found = check(function, CUBE, np.int32(start), np.int32(start))
        assert (found["slice"], found["gather"]) == (1, 1)  # the third start can only be 0


UPDATES = [(2, 5, 6), (1, 1, 6), (1, 5, 1), (2, 3, 4), (4, 5, 6), (0, 5, 6)]


@pytest.mark.parametrize("start", seeds(1, [50, -2, 1]))
def test_updates_at_a_computed_place(start):
    at = np.array([start, 1, start], np.int32)
    updates = [real(*shape) for shape in UPDATES]
    check(
        lambda x, us, s: [lax.dynamic_update_slice(x, u, tuple(s)) for u in us], CUBE, updates, at
    )


def test_updates_at_a_known_place_move_only():
    updates = [real(*shape) for shape in UPDATES]
    found = check(
        lambda x, us: [lax.dynamic_update_slice(x, u, (3, 0, 2)) for u in us], CUBE, updates
    )
    assert found["generic"] == 0


def test_one_token_into_a_cache_is_one_elementwise_op():
    found = check(
        lambda cache, k, at: lax.dynamic_update_slice(cache, k, (0, at, 0)),
        real(2, 16, 8),
        real(2, 1, 8),
        np.int32(5),
    )
    assert found["opaque"] == found["gather"] == 0
    assert found["generic"] == 5  # the place made positive and clamped, the choice per element


# ---- padding, pooling, reductions --------------------------------------------------------------


def random_edges(rng, shape):
    """Low, high and interior per dim; JAX refuses a negative extent."""
    found = []
    for s in shape:
        low, high, inner = (int(rng.integers(*r)) for r in ((-6, 4), (-6, 7), (0, 3)))
        found.append((low, max(high, -(s + (s - 1) * inner + low)), inner))
    return found


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_any_padding(seed):
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(v) for v in rng.integers(1, 5, rng.integers(1, 4))) for _ in range(6)]
    edges = [random_edges(rng, s) for s in shapes]
    found = check(
        lambda xs: [lax.pad(x, np.float32(2.5), e) for x, e in zip(xs, edges, strict=True)],
        [real(*s) for s in shapes],
    )
    assert set(found) <= {"input", "fill", "pad", "slice", "reshape"}


def test_padding_with_a_computed_value():
    x = real(3, 4)
    assert check(lambda x: lax.pad(x, x[0, 0], ((1, 2, 0), (0, 3, 0))), x)["pad"] == 0
    check(lambda x: lax.pad(x, x[0, 0], ((1, 2, 1), (0, 3, 0))), x, opaque=("pad",))


def window(function, start, **options):
    shape = {"window_dimensions": (2, 3), "window_strides": (2, 1), "padding": ((1, 0), (0, 2))}
    return lambda x: lax.reduce_window(x, start, function, **(shape | options))


WINDOWS = {
    "max": window(lax.max, -np.inf),
    "min": window(lax.min, np.inf),
    "sum": window(lax.add, np.float32(0)),
    "from one": window(lax.max, np.float32(0.5)),
    "product": window(lax.mul, np.float32(2)),
    "dilated": window(lax.max, -np.inf, window_dilation=(2, 2)),
    "spread": window(lax.add, np.float32(0), base_dilation=(2, 3)),
    "cut": window(lax.max, -np.inf, padding=((-1, 2), (-1, -1))),
}


def test_windows():
    found = check(lambda x: {name: f(x) for name, f in WINDOWS.items()}, real(5, 6))
    assert found["generic"] >= len(WINDOWS)


def test_windows_of_other_functions_are_kept_whole():
    check(window(lambda a, b: a + b * b, np.float32(0)), real(5, 6), opaque=("reduce_window",))


def test_reductions_from_any_start():
    x = real(3, 4, 5)
    check(lambda x: lax.reduce(x, np.float32(3), lax.add, (0, 2)), x)
    check(lambda x: lax.reduce(x, np.float32(1), lax.mul, (1,)), x)
    check(lambda x: lax.reduce(x > 0, np.bool_(True), lax.bitwise_and, (1,)), x)
    check(lambda x: lax.reduce(x, np.float32(1), lax.sub, (1,)), x, opaque=("reduce",))


# ---- elementwise -------------------------------------------------------------------------------

X = real(3, 4)
NEAR = np.array([0.0, -0.0, 0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 1e-4, 3.25], np.float32)
SCALARS = {
    "x^0": lambda x: lax.integer_pow(x, 0),
    "x^-3": lambda x: lax.integer_pow(x + 4, -3),
    "three cases": lambda x: lax.select_n(jnp.int32(x * 1.2 + 1) % 3, x, x + 1, x * 2),
    "scalar case": lambda x: lax.select_n(x[0] > 0, x, -x),
    "to f16 and back": lambda x: lax.reduce_precision(x, 5, 10) * 0 + x,
    "exact precision": lambda x: lax.reduce_precision(x, 8, 23),
    "is finite": lambda x: jnp.isfinite(x / jnp.where(x > 0, x, 0)),
    "nan to num": lambda x: jnp.nan_to_num(x / jnp.where(x > 0, x, 0)),
    "log1p, expm1": lambda x: (jnp.log1p(x * x), jnp.expm1(x)),
    "cbrt, rsqrt": lambda x: (lax.cbrt(x), lax.rsqrt(x * x + 1)),
    "clamps": lambda x: (lax.clamp(-1.0, x, 1.0), lax.clamp(x[0], x, x[0] + 1)),
    "round both ways": lambda x: (
        lax.round(x * 2, lax.RoundingMethod.TO_NEAREST_EVEN),
        lax.round(x * 2, lax.RoundingMethod.AWAY_FROM_ZERO),
    ),
    "floor, ceil, sign": lambda x: (jnp.floor(x), jnp.ceil(x), jnp.sign(x)),
    "exp2, log2": lambda x: (jnp.exp2(x), jnp.log2(x * x + 1)),
    "erf and its inverse": lambda x: (lax.erf(x), lax.erf_inv(jnp.tanh(x))),
    "remainders": lambda x: (x % 0.7, lax.rem(x, jnp.float32(0.7)), jnp.fmod(x, 0.3)),
    "logaddexp": lambda x: jnp.logaddexp(x, 2 * x),
    "atan2, hypot": lambda x: (jnp.arctan2(x, x + 1), jnp.hypot(x, x + 1)),
    "sinc": jnp.sinc,
}


def test_elementwise():
    check(lambda x: {name: f(x) for name, f in SCALARS.items()}, NEAR)


def test_reduced_precision_rounds_as_the_narrow_type_does():
    function = lambda x: lax.reduce_precision(x, 8, 7)  # noqa: E731
    traced = trace(function, (X,))
    assert not traced.opaque
    (got,) = run(traced, [X], {})
    assert np.array_equal(got, function(X))
    check(lambda x: lax.reduce_precision(x, 8, 3), X, opaque=("reduce_precision",))


WIDE = real(3, 70, 5)
RUNNING = {
    "short": lambda x: jnp.cumsum(x, 2),
    "blocks, the last one short": lambda x: jnp.cumsum(x, 1),
    "from behind": lambda x: lax.cumsum(x, 1, reverse=True),
    "blocks of blocks": jnp.cumsum,
    "products": lambda x: (lax.cumprod(x, 1), lax.cumprod(x, 2, reverse=True)),
    "whole numbers wrap": lambda x: jnp.cumsum((x * 50).astype(np.int8), 1, dtype=np.int8),
}


@pytest.mark.parametrize("name", one_in(3, RUNNING))
def test_running_sums_are_loop_nests(name):
    check(RUNNING[name], WIDE)


def test_what_is_no_number_reaches_later_sums_alone():
    x = WIDE.copy()
    x[1, 33], x[2, 5, 3], x[2, 40, 3] = np.nan, np.inf, -np.inf
    check(lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 1, reverse=True)), x)


TIES = np.round(WIDE * 2)
EXTREMES = {
    "of all": lambda x: (jnp.argmax(x), jnp.argmin(x)),
    "of each dim": lambda x: [f(x, d) for f in (jnp.argmax, jnp.argmin) for d in (0, 1, -1)],
    "of integers": lambda x: (jnp.argmax(x.astype(np.int32), 1), jnp.argmin(x.astype(np.int8), 1)),
    "in eight bits": lambda x: lax.argmax(x, 1, np.int8),
    "of halves": lambda x: jnp.argmax(x.astype(jnp.bfloat16), 1),
}


@pytest.mark.parametrize("name", one_in(2, EXTREMES))
def test_the_first_of_equal_extremes_is_found(name):
    check(EXTREMES[name], TIES)


def test_the_first_value_that_is_no_number_is_the_extreme():
    x = TIES.copy()
    x[0, 7:9], x[1, 69, 2], x[2, 3, 0], x[2, 4, 0] = np.nan, np.nan, np.inf, np.nan
    check(lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.argmax(x)), x)


KEPT = {
    "cummax, cummin": (lambda x: (lax.cummax(x), lax.cummin(x)), ["cummax", "cummin"]),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), ["cumlogsumexp"]),
    "which bool": (lambda x: jnp.argmax(x > 0, 1), ["argmax"]),
    "sort": (jnp.sort, ["sort"]),
    "two sorted": (lambda x: lax.sort((x, -x), num_keys=1), ["sort"]),
    "top k": (lambda x: lax.top_k(x, 2), ["top_k"]),
    "scatter": (lambda x: x.at[np.array([0, 0])].set(x[:2]), ["scatter"]),
    "added": (lambda x: x.at[np.array([0, 0])].add(x[:2]), ["scatter-add"]),
    "bits": (lambda x: lax.bitcast_convert_type(x, np.int32), ["bitcast_convert_type"]),
    "lgamma": (lambda x: lax.lgamma(x * x + 1), ["lgamma"]),
    "counted bits": (
        lambda x: lax.population_count(lax.bitcast_convert_type(x, np.int32)),
        ["bitcast_convert_type", "population_count"],
    ),
    "random bits": (
        lambda x: x + lax.rng_bit_generator(np.zeros(4, np.uint32), x.shape)[1].astype(x.dtype),
        ["rng_bit_generator"],
    ),
    "ragged": (
        lambda x: lax.ragged_dot(x, jnp.ones((2, 4, 5)), jnp.array([1, 2], np.int32)),
        ["ragged_dot_general"],
    ),
}


@pytest.mark.parametrize("name", one_in(3, KEPT))
def test_the_rest_is_kept_whole(name):
    function, primitives = KEPT[name]
    check(function, X, opaque=primitives)


# ---- keys --------------------------------------------------------------------------------------


def test_a_key_may_be_an_argument():
    function = lambda x, key: x + jax.random.uniform(key, x.shape)  # noqa: E731
    key = jax.random.key(3)
    traced = trace(function, (X, key))
    data = traced.flat_inputs((X, key))[1]
    assert str(traced.program.nodes[traced.program.inputs[1]].type) == "u32[2]"
    (got,) = evaluate_program(traced.program, [X, data], {}, traced.opaque)
    np.testing.assert_allclose(got, function(X, key), rtol=1e-6)
    abstract = jax.ShapeDtypeStruct((), key.dtype)
    assert trace(function, (X, abstract)).program.to_text() == traced.program.to_text()


def test_keys_nobody_reads_are_inputs_nobody_reads():
    found = trace(lambda x, keys: x + 1, (X, {"params": jax.random.key(0)}))
    assert "opaque" not in {n.op for n in found.program.nodes}


def test_a_key_is_no_result():
    with pytest.raises(EqsatError) as e:
        trace(lambda x, key: (x, key), (X, jax.random.key(0)))
    assert e.value.diagnostics[0].code == "E302"
