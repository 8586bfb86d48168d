"""Sums of i32 of 8-bit products as kernels: exact at the ends of their types, whatever the size."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracted import AVX2, AVX512, convolution, matmul
from fuzz import guarded
from runnable import needs

import eqsat
from eqsat.execute.kernels.kernel import generate
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.nest import Access, Bound, Nest, Stage, Store
from eqsat.ops.meaning.scalar import evaluate_body
from eqsat.plan import tiling
from eqsat.plan.contraction import Blocking
from eqsat.plan.planner import plan
from eqsat.plan.roles import narrowest, product_roles_of, range_of
from eqsat.plan.tilecheck import tiling_faults

VNNI = replace(AVX512, features=(*AVX512.features, "avx512vnni"))
MACHINES = {"vnni": VNNI, "avx512": AVX512, "avx2": AVX2}
TYPES = {"i8": np.int8, "u8": np.uint8, "i32": np.int32, "i16": np.int16, "f32": np.float32}


def drawn(rng, shape, dtype):
    """Every number of the type, its ends more often than the others."""
    held = np.iinfo(TYPES[dtype])
    x = rng.integers(held.min, held.max, shape, TYPES[dtype], endpoint=True)
    ends = rng.integers(0, 4, shape)
    return np.where(ends == 0, held.min, np.where(ends == 1, held.max, x)).astype(TYPES[dtype])


def run(nest, machine, inputs, shape, dtype="i32", chosen=None):
    needs(machine)
    kernel = generate(nest, chosen or plan(nest, machine), machine, "kernel")
    (found,) = guarded.run(kernel, machine, inputs, [(shape, TYPES[dtype])])
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_eight_threads_make_the_same_bits(machine):
    needs(MACHINES[machine])
    own = replace(MACHINES[machine], cores=8)  # so that there are items for all
    nest = matmul(150, 130, 75, dtypes=("i8", "i8", "i32"))
    kernel = generate(nest, plan(nest, own), own, "kernel")
    assert kernel.items > 1
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (150, 130), "i8"), drawn(rng, (130, 75), "i8")
    (found,) = guarded.run_on_threads(kernel, own, [x, y], [((150, 75), np.int32)])
    assert (found == product(x, y)).all()


def product(x, y):
    """In i32, which wraps."""
    return x.astype(np.int32) @ y.astype(np.int32)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("m", "k", "n", "form", "dtypes"),
    [
        (37, 70, 43, {}, ("i8", "i8")),  # tails of groups, of rows and of vectors
        (30, 801, 33, {}, ("u8", "i8")),
        (14, 6, 70, {"a": "km"}, ("i8", "u8")),  # unsigned columns, rows that lie apart
        (9, 64, 18, {"b": "nk"}, ("u8", "u8")),
        (1, 50, 1030, {}, ("i8", "i8")),  # rows of B side by side
        (5, 3, 3, {"result": "nm"}, ("i8", "i8")),
        (20, 2500, 40, {}, ("i8", "i8")),  # several blocks of the reduction
    ],
)
def test_products_of_bytes_are_exact(machine, m, k, n, form, dtypes):
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (m, k), dtypes[0]), drawn(rng, (k, n), dtypes[1])
    nest = matmul(m, k, n, dtypes=(*dtypes, "i32"), **form)
    given = [
        np.ascontiguousarray(x.T if form.get("a") == "km" else x),
        np.ascontiguousarray(y.T if form.get("b") == "nk" else y),
    ]
    shape = (n, m) if form.get("result") == "nm" else (m, n)
    found = run(nest, MACHINES[machine], given, shape)
    assert (found == (product(x, y).T if shape != (m, n) else product(x, y))).all()


@pytest.mark.parametrize(("m", "k", "dtypes"), [(37, 66, ("u8", "i8")), (16, 129, ("i8", "i8"))])
def test_panels_ask_for_the_next_one(m, k, dtypes):
    """Columns [n / 32, k, 32], as weights are packed: a panel is one run, asked for in pieces."""
    body = call("mul", cast(arg(0), "i32"), cast(arg(1), "i32"))
    rows = Access(0, dtypes[0], (k, 0, 0, 1))
    columns = Access(1, dtypes[1], (0, 32 * k, 1, 32))
    stage = Stage(3, (0, 1, 2), body, (rows, columns), "i32", "add", (3,))
    nest = matmul(m, k, 96, dtypes=(*dtypes, "i32"))
    written = replace(nest.stores[0].access, strides=(96, 32, 1, 0))
    stores = (replace(nest.stores[0], access=written, loops=(0, 1, 2)),)
    nest = Nest((m, 3, 32, k), (stage,), stores)
    chosen = plan(nest, VNNI)
    assert chosen.fused == 4 and chosen.prefetch
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (m, k), dtypes[0]), drawn(rng, (k, 96), dtypes[1])
    packed = np.ascontiguousarray(y.reshape(k, 3, 32).transpose(1, 0, 2))
    assert (run(nest, VNNI, [x, packed], (m, 96)) == product(x, y)).all()


@pytest.mark.parametrize(("channels", "stride", "dtypes"), [
    (8, 1, ("u8", "i8")), (6, 2, ("i8", "i8")), (3, 1, ("u8", "i8"))
])  # fmt: skip
def test_windows_ask_for_the_next_panel(channels, stride, dtypes):
    """Filters [f / 32, 3, 3, channels, 32], as they are packed, in groups that may be short."""
    nest = convolution_of_bytes(9, channels, 96, stride, dtypes)
    (stage,), (store,) = nest.stages, nest.stores
    x, w = stage.arguments
    steps = (9 * channels * 32, 1, 3 * channels * 32, channels * 32, 32)
    apart = lambda s: (*s[:2], 0, *s[2:])  # noqa: E731
    bounds = tuple(replace(b, strides=apart(b.strides)) for b in x.bounds)
    x = replace(x, strides=apart(x.strides), bounds=bounds)
    stage = replace(stage, arguments=(x, replace(w, strides=(0, 0, *steps))), loops=(0, 1, 2, 3))
    out = nest.sizes[0]
    written = replace(store.access, strides=(out * 96, 96, 32, 1, 0, 0, 0))
    nest = Nest(
        (out, out, 3, 32, *nest.sizes[3:]), (replace(stage, reduced=(4, 5, 6)),),
        (replace(store, access=written, loops=(0, 1, 2, 3)),),
    )  # fmt: skip
    chosen = plan(nest, VNNI)
    assert chosen.windows and chosen.fused == 4 and chosen.prefetch
    rng = np.random.default_rng(0)
    x, w = drawn(rng, (9, 9, channels), dtypes[0]), drawn(rng, (3, 3, channels, 96), dtypes[1])
    packed = np.ascontiguousarray(w.reshape(3, 3, channels, 3, 32).transpose(3, 0, 1, 2, 4))
    found = run(nest, VNNI, [x, packed], (out, out, 96))
    assert (found == convolved_integers(x, w, stride)).all()


def test_groups_are_as_large_as_the_machine_and_the_types_permit():
    def together(machine, *dtypes):
        return plan(matmul(64, 128, 96, dtypes=(*dtypes, "i32")), machine).fused

    assert together(VNNI, "i8", "i8") == together(VNNI, "u8", "i8") == 4
    assert together(VNNI, "i8", "u8") == 4  # either factor may be the unsigned one
    assert together(VNNI, "u8", "u8") == together(AVX512, "i8", "i8") == 2
    assert together(AVX2, "i8", "u8") == 2
    assert together(VNNI, "i8", "i16") == together(AVX2, "i16", "i16") == 2
    assert together(VNNI, "i8", "u16") == together(VNNI, "i32", "i32") == 1


@pytest.mark.parametrize(
    ("machine", "dtypes"),
    [("vnni", ("i16", "i8")), ("avx2", ("i16", "i16")), ("avx2", ("i32", "i32"))],
)
def test_other_integers_wrap(machine, dtypes):
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (13, 45), dtypes[0]), drawn(rng, (45, 21), dtypes[1])
    found = run(matmul(13, 45, 21, dtypes=(*dtypes, "i32")), MACHINES[machine], [x, y], (13, 21))
    assert (found == product(x, y)).all()


def convolution_of_bytes(size, channels, features, stride, dtypes, zero=None):
    """NHWC, 3 x 3, pads of zeros; zero: taken off the image as i32 before it is padded."""
    nest = convolution(size, channels, features, 3, stride=stride)
    (stage,) = nest.stages
    x, w = (replace(a, dtype=t) for a, t in zip(stage.arguments, dtypes, strict=True))
    body = call("mul", cast(arg(0), "i32"), cast(arg(1), "i32"))
    given, before = (replace(x, fill=0), w), ()
    if zero is not None:
        every = tuple(range(6))
        less = call("sub", cast(arg(0), "i32"), const(zero))
        before = (Stage(4, every, less, (replace(x, fill=None),), "i32"),)
        before += (Stage(5, every, arg(0), (0,), "i32", bounds=x.bounds),)
        given, body = (1, w), call("mul", arg(0), cast(arg(1), "i32"))
    stage = replace(stage, body=body, arguments=given, dtype="i32")
    (store,) = nest.stores
    store = replace(store, access=replace(store.access, dtype="i32"), stage=len(before))
    return replace(nest, stages=(*before, stage), stores=(store,))


def convolved_integers(x, w, stride):
    padded = np.pad(x.astype(np.int32), ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    return np.einsum("hwckl,klcf->hwf", windows[::stride, ::stride], w.astype(np.int32))


@pytest.mark.parametrize("channels", [8, 6])  # in whole groups, and not
def test_convolution_of_bytes_pads_with_zeros(channels):
    nest = convolution_of_bytes(7, channels, 20, 2, ("i8", "i8"))
    assert plan(nest, VNNI).fused == 4
    rng = np.random.default_rng(0)
    x, w = drawn(rng, (7, 7, channels), "i8"), drawn(rng, (3, 3, channels, 20), "i8")
    assert (run(nest, VNNI, [x, w], (4, 4, 20)) == convolved_integers(x, w, 2)).all()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("size", "channels", "features", "stride", "dtypes", "zero"),
    [
        (14, 32, 40, 1, ("i8", "i8"), None),  # pads are 128 in the copy
        (15, 20, 33, 2, ("u8", "i8"), None),
        (14, 16, 40, 1, ("i8", "u8"), None),  # the columns are the unsigned ones
        (15, 20, 33, 1, ("i8", "i8"), None),  # rows of pads are too short to be left out
        (13, 32, 48, 1, ("u8", "i8"), 128),  # pads are of the numbers less their zero point
        (11, 24, 35, 1, ("i8", "i8"), -5),
    ],
)
def test_windows_of_bytes(machine, size, channels, features, stride, dtypes, zero):
    own = MACHINES[machine]
    nest = convolution_of_bytes(size, channels, features, stride, dtypes, zero)
    chosen = plan(nest, own)
    assert chosen.windows and chosen.fused > 1
    copied = Blocking(nest, chosen, product_roles_of(nest)).window
    assert copied.elements < 2 * size * size * channels  # not nine times
    rng = np.random.default_rng(0)
    x = drawn(rng, (size, size, channels), dtypes[0])
    w = drawn(rng, (3, 3, channels, features), dtypes[1])
    out = (size - 1) // stride + 1
    expected = convolved_integers(x.astype(np.int32) - (zero or 0), w, stride)
    assert (run(nest, own, [x, w], (out, out, features)) == expected).all()


def image_of_planes(size, channels, features, window, stride, dtypes):
    """The convolution of an image [c, h, w] with filters [f, c, kh, kw] to [f, h, w]."""
    nest = convolution(size, channels, features, window, stride=stride)
    (stage,), (store,) = nest.stages, nest.stores
    x, w = stage.arguments
    out, taps = nest.sizes[0], window * window
    along = (stride * size, stride, 0, size, 1, size * size)
    start = -(window // 2) * (size + 1)
    x = replace(x, dtype=dtypes[0], strides=along, base=start, fill=0)
    w = replace(w, dtype=dtypes[1], strides=(0, 0, channels * taps, window, 1, taps))
    body = call("mul", cast(arg(0), "i32"), cast(arg(1), "i32"))
    stage = replace(stage, body=body, arguments=(x, w), dtype="i32")
    written = replace(store.access, dtype="i32", strides=(out, 1, out * out, 0, 0, 0))
    return replace(nest, stages=(stage,), stores=(replace(store, access=written),))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("size", "channels", "features", "window", "stride", "dtypes"),
    [
        (30, 3, 40, 7, 2, ("u8", "i8")),  # a stem: groups of four taps, of seven
        (24, 3, 40, 7, 1, ("i8", "i8")),  # pads are 128 in the copy
        (17, 4, 16, 3, 1, ("i8", "u8")),  # three taps, and columns that are unsigned
        (16, 1, 20, 3, 2, ("u8", "i8")),
    ],
)
def test_runs_of_taps_end_within_a_group(machine, size, channels, features, window, stride, dtypes):
    """What follows a run in the window is multiplied by 0."""
    own = MACHINES[machine]
    nest = image_of_planes(size, channels, features, window, stride, dtypes)
    roles = product_roles_of(nest)
    every = tiling._candidates(nest, roles, own)  # of small images others may be quicker
    chosen = next(c for c in every if c.windows and c.fused > 1 and window % c.fused)
    chosen = tiling._finished(nest, roles, chosen, own)
    assert not list(tiling_faults(nest, chosen))
    rng = np.random.default_rng(0)
    x = drawn(rng, (channels, size, size), dtypes[0])
    w = drawn(rng, (features, channels, window, window), dtypes[1])
    half, out = window // 2, nest.sizes[0]
    padded = np.pad(x.astype(np.int32), ((0, 0), (half, half), (half, half)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (window, window), axis=(1, 2))
    expected = np.einsum("chwkl,fckl->fhw", views[:, ::stride, ::stride], w.astype(np.int32))
    assert (run(nest, own, [x, w], (features, out, out), chosen=chosen) == expected).all()


def depthwise_of_bytes(size, channels, stride, is_padded):
    """An image [h, w, c] of u8 with filters [3, 3, c] of i8, one per channel."""
    nest = convolution(size, 1, channels, 3, stride=stride)
    (stage,), (store,) = nest.stages, nest.stores
    x, w = stage.arguments
    row = (size + 2 * (not is_padded)) * channels
    along = (stride * row, stride * channels, 1, row, channels, 0)
    x = replace(x, dtype="u8", strides=along, base=-(row + channels), fill=0)
    x = x if is_padded else replace(x, base=0, bounds=(), fill=None)
    w = replace(w, dtype="i8", strides=(0, 0, 1, 3 * channels, channels, 0))
    body = call("mul", cast(arg(0), "i32"), cast(arg(1), "i32"))
    stage = replace(stage, body=body, arguments=(x, w), dtype="i32")
    written = replace(store.access, dtype="i32")
    return replace(nest, stages=(stage,), stores=(replace(store, access=written),))


@pytest.mark.parametrize("machine", ["vnni", "avx2"])
@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize(("size", "channels", "stride"), [(9, 21, 1), (11, 33, 2), (6, 16, 1)])
def test_depthwise_of_bytes_is_read_where_it_lies(machine, is_padded, size, channels, stride):
    """Pads of zeros are left out; bytes that are there are widened as they are read."""
    own = MACHINES[machine]
    nest = depthwise_of_bytes(size, channels, stride, is_padded)
    chosen = plan(nest, own)
    assert chosen.vector_rows and not chosen.copied[0] and not chosen.windows
    assert chosen.strips or not is_padded  # without pads plain tiles may be as quick
    rng = np.random.default_rng(0)
    given = size if is_padded else size + 2
    x, w = drawn(rng, (given, given, channels), "u8"), drawn(rng, (3, 3, channels), "i8")
    padded = np.pad(x.astype(np.int32), [(1, 1), (1, 1), (0, 0)] if is_padded else [(0, 0)] * 3)
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    expected = np.einsum("hwckl,klc->hwc", views[::stride, ::stride], w.astype(np.int32))
    assert (run(nest, own, [x, w], expected.shape) == expected).all()


def test_a_run_that_ends_within_a_group_is_none_of_copied_rows():
    nest = image_of_planes(30, 3, 40, 7, 2, ("u8", "i8"))
    assert plan(nest, VNNI).windows  # which is quicker for a stem
    wrong = replace(plan(nest, VNNI), windows=False, copied=(True, True))
    assert any("do not divide" in fault for fault in tiling_faults(nest, wrong))


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_bytes_without_pads_are_copied_once(stride):
    """Each element of the image once, as where there are pads."""
    size, channels, features = 13, 16, 40
    nest = convolution_of_bytes(size, channels, features, stride, ("u8", "i8"))
    (stage,), (store,) = nest.stages, nest.stores
    out = (size - 3) // stride + 1
    image = replace(stage.arguments[0], bounds=(), fill=None, base=0)
    stage = replace(stage, arguments=(image, stage.arguments[1]))
    written = replace(store.access, strides=(out * features, features, 1, 0, 0, 0))
    stores = (replace(store, access=written),)
    nest = replace(nest, sizes=(out, out, *nest.sizes[2:]), stages=(stage,), stores=stores)
    assert plan(nest, VNNI).windows
    rng = np.random.default_rng(0)
    x = drawn(rng, (size, size, channels), "u8")
    w = drawn(rng, (3, 3, channels, features), "i8")
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), (3, 3), axis=(0, 1))
    expected = np.einsum("hwckl,klcf->hwf", windows[::stride, ::stride], w.astype(np.int32))
    assert (run(nest, VNNI, [x, w], (out, out, features)) == expected).all()


def test_eight_threads_convolve_bytes():
    needs(VNNI)
    own = replace(VNNI, cores=8)
    nest = convolution_of_bytes(28, 64, 160, 1, ("i8", "i8"))
    kernel = generate(nest, plan(nest, own), own, "kernel")
    assert kernel.items > 1
    rng = np.random.default_rng(0)
    x, w = drawn(rng, (28, 28, 64), "i8"), drawn(rng, (3, 3, 64, 160), "i8")
    (found,) = guarded.run_on_threads(kernel, own, [x, w], [((28, 28, 160), np.int32)])
    assert (found == convolved_integers(x, w, 1)).all()


def test_a_scaled_sum_is_converted_in_registers():
    """f32(sum) * scale[n] is short enough for the register tile; the sum is no f32 there."""
    nest = matmul(21, 40, 33, dtypes=("u8", "i8", "i32"))
    body = call("mul", cast(arg(0), "f32"), arg(1))
    written = replace(nest.stores[0].access, dtype="f32")
    stages = (*nest.stages, Stage(4, (0, 1), body, (0, Access(2, "f32", (0, 1, 0))), "f32"))
    nest = replace(nest, stages=stages, stores=(Store(written, 1, (0, 1)),))
    assert plan(nest, VNNI).in_registers
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (21, 40), "u8"), drawn(rng, (40, 33), "i8")
    scales = rng.uniform(0.5, 2, 33).astype(np.float32)
    expected = product(x, y).astype(np.float32) * scales
    assert (run(nest, VNNI, [x, y, scales], (21, 33), "f32") == expected).all()


def test_requantised_result_is_that_of_numpy():
    """i8 = clamp(round(f32(sum) * scale[n]) + zero): scales in the epilogue, ties to even."""
    nest = matmul(21, 40, 33, dtypes=("u8", "i8", "i32"))
    scaled = call("round_even", call("mul", cast(arg(0), "f32"), arg(1)))
    body = cast(call("clamp", const(-128.0), call("add", scaled, const(3.0)), const(127.0)), "i8")
    scale = Access(2, "f32", (0, 1, 0))
    written = replace(nest.stores[0].access, dtype="i8")
    stages = (*nest.stages, Stage(4, (0, 1), body, (0, scale), "i8"))
    nest = replace(nest, stages=stages, stores=(Store(written, 1, (0, 1)),))
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (21, 40), "u8"), drawn(rng, (40, 33), "i8")
    scales = (2.0 ** -rng.integers(9, 14, 33)).astype(np.float32)  # so that there are ties
    expected = np.clip(np.round(product(x, y).astype(np.float32) * scales) + 3, -128, 127)
    assert (run(nest, VNNI, [x, y, scales], (21, 33), "i8") == expected.astype(np.int8)).all()


ZERO_POINTS = {  # of rows and of columns: the products of a group, by what the types can hold
    ("i8", 3, "i8", 0): 2,
    ("u8", 128, "i8", 0): 4,
    ("u8", 7, "u8", 128): 2,
}


def with_zero_points(m, k, n, dtypes, zero):
    """(rows - zero[0]) times (columns - zero[1]), as i32 before they are multiplied."""
    nest = matmul(m, k, n, dtypes=(*dtypes, "i32"))
    (root,) = nest.stages
    shifted = [call("sub", cast(arg(i), "i32"), const(zero[i])) for i in (0, 1)]
    root = replace(root, body=call("mul", *shifted))
    return replace(nest, stages=(root,))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", ZERO_POINTS)
def test_numbers_less_their_zero_points_stay_short(machine, case):
    a, za, b, zb = case
    nest = with_zero_points(21, 70, 43, (a, b), (za, zb))
    chosen = plan(nest, MACHINES[machine])
    assert chosen.fused == (ZERO_POINTS[case] if machine == "vnni" else 2)
    rng = np.random.default_rng(0)
    x, y = drawn(rng, (21, 70), a), drawn(rng, (70, 43), b)
    found = run(nest, MACHINES[machine], [x, y], (21, 43))
    assert (found == product(x.astype(np.int32) - za, y.astype(np.int32) - zb)).all()


def test_ranges_are_those_of_all_values():
    """Of every number of the types, beside the ends that are told."""
    every = {"i8": np.arange(-128, 128), "u8": np.arange(256)}
    x, y = arg(0), arg(1)
    wide = cast(x, "i32"), cast(y, "i32")
    bodies = [
        call("sub", cast(x, "i32"), const(5)),
        call("sub", *wide),
        call("mul", *wide),
        call("neg", wide[0]),
        call("max", call("add", *wide), const(-3)),
        call("min", wide[0], const(90)),
        cast(call("add", x, x), "i32"),  # wraps
        cast(call("sub", wide[0], const(100)), "u8"),  # wraps
        call("and", wide[1], const(15)),
    ]
    a, b = (g.ravel() for g in np.meshgrid(every["i8"], every["u8"]))
    given = Access(0, "i8", (1,)), Access(1, "u8", (1,))
    nest = Nest((4,), (), ())
    for body in bodies:
        low, high = range_of(nest, body, given)
        arrays = [a.astype(np.int8), b.astype(np.uint8)]
        values = evaluate_body(body, arrays).astype(np.int64)
        assert low <= values.min() and values.max() <= high
        assert (low, high) == (values.min(), values.max()) or body.fn == "cast", str(body)
    padded = replace(given[0], bounds=(Bound((1,), 0, 3),), fill=-128)
    assert range_of(nest, call("sub", cast(x, "i32"), const(-1)), (padded,)) == (-127, 128)
    outside = replace(padded, dtype="u8", fill=0)
    assert narrowest(nest, call("sub", cast(x, "i32"), const(1)), (outside,)) == "i16"
    assert narrowest(nest, cast(x, "f32"), given) == ""


def test_a_quantised_convolution_is_one_dispatch():
    """Pads, sums of bytes, bias and requantising; exactly what XLA computes."""
    needs(VNNI)
    rng = np.random.default_rng(0)
    x, w = drawn(rng, (1, 14, 14, 32), "i8"), drawn(rng, (3, 3, 32, 48), "i8")
    bias = rng.integers(-100, 100, 48).astype(np.int32)
    scale = rng.uniform(1e-5, 2e-5, 48).astype(np.float32)

    def function(x, w, bias, scale):
        sums = jax.lax.conv_general_dilated(
            x, w, (1, 1), [(1, 1)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=jnp.int32,
        )  # fmt: skip
        scaled = (sums + bias).astype(jnp.float32) * scale
        return jnp.clip(jnp.round(scaled), -128, 127).astype(jnp.int8)

    given = (x, w, bias, scale)
    run = eqsat.optimize(function, *given, weights=["w"], target="avx512-vnni")
    assert len(run.schedule.dispatches) == 1
    assert not run.execution.to_json()["declined"]
    found = np.asarray(run.compile()(*given))
    assert len(np.unique(found)) > 20
    assert (found == np.asarray(jax.jit(function)(*given))).all()
