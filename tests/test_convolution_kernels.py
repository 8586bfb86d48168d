"""Convolutions as kernels: pads inside, any stride, dilation and groups, between guard pages."""

import re

import jax
import numpy as np
import pytest
from contracted import AVX2, AVX512
from convolutions import Convolution
from fuzz import guarded
from runnable import needs
from seeds import one_in

from eqsat.execute.kernels.kernel import generate
from eqsat.model.dispatch import Plan
from eqsat.plan.contraction import Blocking
from eqsat.plan.planner import plan
from eqsat.plan.roles import product_roles_of

MACHINES = {"avx512": AVX512, "avx2": AVX2}

SHAPES = {
    "odd sizes": Convolution(h=11, w=7, channels=5, features=19),
    "one channel": Convolution(h=8, w=33, channels=1, features=40, k=5, low=2, high=2),
    "three channels": Convolution(
        h=30, w=30, channels=3, features=32, k=7, stride=2, low=3, high=3
    ),
    "strided": Convolution(h=15, w=16, channels=6, features=20, stride=2),
    "only one side": Convolution(h=12, w=12, channels=8, features=16, stride=2, low=0, high=1),
    "dilated": Convolution(h=13, w=13, channels=7, features=16, dilation=3, low=3, high=3),
    "batch": Convolution(n=3, h=6, w=5, channels=9, features=17),
    "long": Convolution(h=1, w=90, channels=12, features=24, k=1, low=1, high=2),
    "many channels": Convolution(h=7, w=7, channels=130, features=33),
    "grouped": Convolution(h=9, w=10, channels=24, features=48, groups=3),
    "channels first": Convolution(h=9, w=19, channels=6, features=20, images="NCHW", taps="hwcgf"),
    "channels first, strided": Convolution(
        n=2, h=10, w=17, channels=5, features=16, stride=2, images="NCHW", taps="gfchw"
    ),
    "groups of 16": Convolution(h=14, w=14, channels=64, features=64, groups=4),
    "groups of 4": Convolution(h=14, w=14, channels=64, features=64, groups=16),
    "rows of 14 beside features": Convolution(
        n=2, h=7, w=27, channels=9, features=37, stride=2, images="NCHW"
    ),
    "rows of 31 beside features": Convolution(
        h=6, w=61, channels=8, features=32, stride=2, images="NCHW"
    ),
    "grouped, channels first": Convolution(
        h=9, w=18, channels=8, features=12, groups=2, images="NCHW", taps="gfchw"
    ),
    "depthwise": Convolution(h=10, w=9, channels=21, features=21, groups=21),
    "depthwise, strided": Convolution(
        n=2, h=11, w=14, channels=40, features=40, groups=40, k=5, stride=2, low=1, high=2
    ),
    "depthwise, dilated": Convolution(
        h=14, w=15, channels=32, features=32, groups=32, dilation=2, low=2, high=2
    ),
    "depthwise, wide": Convolution(n=2, h=5, w=45, channels=72, features=72, groups=72),
    "depthwise, one row": Convolution(
        h=1, w=70, channels=19, features=19, groups=19, k=1, low=0, high=0
    ),
    "depthwise, no pads": Convolution(
        h=9, w=38, channels=33, features=33, groups=33, stride=2, low=0, high=0
    ),
    "depthwise, one side": Convolution(
        h=9, w=33, channels=48, features=48, groups=48, stride=2, low=0, high=1
    ),
    "depthwise, pads alone": Convolution(
        h=4, w=20, channels=34, features=34, groups=34, low=4, high=5
    ),
    "depthwise, channels first": Convolution(
        h=9, w=20, channels=6, features=6, groups=6, images="NCHW", taps="gfchw"
    ),
    "many channels, strided": Convolution(
        n=2, h=13, w=14, channels=70, features=40, stride=2, low=1, high=0
    ),
    "many channels, dilated": Convolution(
        h=12, w=9, channels=65, features=16, k=5, dilation=2, low=4, high=3
    ),
    "dilated far": Convolution(
        h=13, w=14, channels=20, features=40, dilation=6, low=6, high=6
    ),
    "dilated beyond": Convolution(
        n=2, h=9, w=23, channels=33, features=17, dilation=12, low=12, high=12
    ),
    "dilated, one side": Convolution(
        h=10, w=30, channels=18, features=24, dilation=10, low=20, high=0
    ),
    "dilated, channels first": Convolution(
        h=12, w=26, channels=17, features=33, dilation=7, low=7, high=7, images="NCHW"
    ),
    "dilated, sums in blocks": Convolution(
        h=8, w=14, channels=300, features=33, dilation=5, low=5, high=5
    ),
    "sums in blocks": Convolution(h=3, w=5, channels=1000, features=17),
    "sums in blocks, uneven rows": Convolution(h=2, w=17, channels=700, features=33),
    "two tiles": Convolution(h=5, w=28, channels=65, features=33),
    "two uneven tiles": Convolution(n=2, h=3, w=27, channels=70, features=24),
    "four tiles": Convolution(h=3, w=55, channels=64, features=48),
    "four tiles, strided": Convolution(h=5, w=89, channels=66, features=20, k=5, stride=2, low=2,
        high=2),
    "five tiles": Convolution(h=3, w=57, channels=64, features=33),
    "two tiles, one side": Convolution(h=4, w=27, channels=64, features=32, low=2, high=0),
        "three tiles, channels first": Convolution(
        h=5, w=19, channels=66, features=35, images="NCHW", taps="hwcgf"
    ),
    "many channels, first": Convolution(
        h=7, w=7, channels=130, features=33, images="NCHW", taps="hwcgf"
    ),
    "many channels, first, in no order": Convolution(
        h=6, w=15, channels=130, features=18, images="NCHW", taps="gfchw"
    ),
    "pads alone": Convolution(h=4, w=5, channels=68, features=33, low=4, high=5),
    "many channels, relu": Convolution(h=6, w=30, channels=64, features=24, k=5, low=2, high=2,
        relu=True),
    "relu before pads": Convolution(h=9, w=10, channels=20, features=24, relu=True),
    "relu before depthwise": Convolution(
        h=9, w=10, channels=20, features=20, groups=20, relu=True
    ),
}  # fmt: skip


def run(shape, machine, x, w):
    needs(machine)
    nest = shape.nest()
    kernel = generate(nest, plan(nest, machine), machine, "kernel")
    (found,) = guarded.run(kernel, machine, [x, w], [(shape.shape, np.float32)])
    return found


def products(shape):
    return shape.channels // shape.groups * shape.k**2


@pytest.mark.parametrize("machine", one_in(2, MACHINES))
@pytest.mark.parametrize("name", one_in(2, SHAPES))
def test_any_convolution(name, machine):
    shape = SHAPES[name]
    x, w = shape.operands(np.random.default_rng(0))
    found, expected = run(shape, MACHINES[machine], x, w), shape.expected(x, w)
    bound = 4 * np.finfo(np.float32).eps * max(products(shape), 4) ** 0.5
    assert np.abs(found - expected).max() <= bound * max(np.abs(expected).max(), 1)


@pytest.mark.parametrize("name", [n for n in SHAPES if n.startswith("dilated ")])
def test_far_taps_beyond_the_image_are_left_out(name):
    shape = SHAPES[name]
    chosen = plan(shape.nest(), AVX512)
    assert chosen.strips and not chosen.windows and chosen.copied == (False, False)
    x, w = shape.operands(np.random.default_rng(0))
    expected = shape.expected(x, w)
    w[0, 0] = np.inf  # a tap that is beyond the image for the first pixel
    found = run(shape, AVX512, x, w)
    assert np.isfinite(found[0, 0, 0]).all()
    assert np.abs(found[0, 0, 0] - expected[0, 0, 0]).max() < 1e-4 * np.abs(expected).max()


STRIPS = [
    n for n in SHAPES if n.startswith("depthwise") and n[11:] not in ("channels first", "one row")
]


@pytest.mark.parametrize("name", STRIPS)
def test_depthwise_copies_nothing_and_multiplies_no_pads(name):
    shape = SHAPES[name]
    chosen = plan(shape.nest(), AVX512)
    assert chosen.strips and not chosen.windows and not chosen.scratch_bytes
    assert "strips beside pads" in chosen.to_text()
    assert Plan.from_json(chosen.to_json()) == chosen
    x, w = shape.operands(np.random.default_rng(0))
    expected = shape.expected(x, w)
    w[0, 0] = np.inf  # a tap that is a pad for the first pixel, if there are pads before it
    found = run(shape, AVX512, x, w)
    assert np.isfinite(found[0, 0, 0]).all() == (shape.low > 0)
    if shape.low > 0:
        assert np.allclose(found[0, 0, 0], expected[0, 0, 0], rtol=1e-4, atol=1e-4)


COPIED = ["relu before depthwise", "three channels", "many channels", "grouped"]


@pytest.mark.parametrize("name", COPIED)
def test_each_element_is_copied_once(name):
    chosen = plan(SHAPES[name].nest(), AVX512)
    assert chosen.kind == "contraction" and chosen.windows and not chosen.copied[0]
    assert "copied windows" in chosen.to_text()
    assert Plan.from_json(chosen.to_json()) == chosen


@pytest.mark.parametrize("name", [x for x in SHAPES if x.startswith("sums in")])
def test_long_sums_are_finished_behind_their_blocks(name):
    assert plan(SHAPES[name].nest(), AVX512).k_blocks > 1


@pytest.mark.parametrize("name", ["two tiles", "many channels", "many channels, first"])
def test_panels_beside_windows_are_whole_and_read_in_order(name):
    """Sums of few points are not parts by themselves: the weights' channels are innermost."""
    nest = SHAPES[name].nest()
    chosen = plan(nest, AVX512)
    assert chosen.windows and chosen.k_blocks == 1 and not chosen.copied[1]
    assert [nest.sizes[i] for i in chosen.reduced] == [3, 3, SHAPES[name].channels]


@pytest.mark.parametrize("name", [x for x in SHAPES if x.startswith("rows of")])
def test_tiles_of_features_are_turned_where_rows_lie_side_by_side(name):
    nest = SHAPES[name].nest()
    chosen, access = plan(nest, AVX512), nest.stores[0].access
    assert access.strides[chosen.vector_loop] > 1 and access.strides[chosen.row_loops[-1]] == 1
    stored = re.findall(
        r"store float |store <16 x float>|masked.store.v16f32",
        generate(nest, chosen, AVX512, "turned").ir,
    )
    assert "store float " not in stored


SKIPPED = {
    "many channels": (0.81, 0.83), "many channels, relu": (0.76, 0.77), "dilated": (1, 1),
    "two tiles": (0.84, 0.85), "two tiles, one side": (0.72, 0.73), "five tiles": (0.77, 0.78),
    "four tiles, strided": (0.71, 0.73),
}  # fmt: skip


@pytest.mark.parametrize("name", SKIPPED)
def test_pads_of_many_channels_are_not_multiplied(name):
    """Where a whole tile reads pads at a tap, and pixels where few tiles are a row."""
    shape = SHAPES[name]
    low, high = SKIPPED[name]
    nest = shape.nest()
    chosen = plan(nest, AVX512)
    whole = shape.n * shape.out[0] * shape.out[1] * products(shape)
    vectors = -(-shape.features // 16)
    assert low <= chosen.work.fma / (whole * vectors) <= high
    x, w = shape.operands(np.random.default_rng(0))
    w[0, 0] = np.inf  # taps above and left of the first pixel
    found = run(shape, AVX512, x, w)
    assert np.isfinite(found[0, 0, 0]).all() == (high < 1)
    assert found.shape[2] < 57 or not np.isfinite(found[0, 1, 0]).all()  # a tile of many
    assert not np.isfinite(found[0, -1, -1]).any()


@pytest.mark.parametrize("name", ["odd sizes", "depthwise"])
def test_nan_reaches_the_windows_it_is_in_and_no_other(name):
    shape = SHAPES[name]
    x, w = shape.operands(np.random.default_rng(0))
    x[0, 4, 3, 0, 0] = np.nan
    found = np.isnan(run(shape, AVX512, x, w))
    touched = np.zeros_like(found)
    touched[0, 3:6, 2:5, 0] = True  # of its group, every feature
    assert (found == touched).all()


ERRORS = ["three channels", "many channels", "depthwise", "dilated"]
ERRORS += ["grouped", "groups of 16", "groups of 4"]


@pytest.mark.parametrize("name", ERRORS)
def test_the_error_is_at_most_twice_that_of_xla(name):
    shape = SHAPES[name]
    x, w = shape.operands(np.random.default_rng(0))
    found, expected = run(shape, AVX512, x, w), shape.expected(x, w)
    channels = shape.channels
    theirs = jax.lax.conv_general_dilated(
        x.reshape(shape.n, shape.h, shape.w, channels),
        w.reshape(shape.k, shape.k, channels // shape.groups, shape.features),
        (shape.stride,) * 2,
        [(shape.low, shape.high)] * 2,
        rhs_dilation=(shape.dilation,) * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=shape.groups,
    )
    errors = [y - expected for y in (found, np.asarray(theirs).reshape(found.shape))]
    ours, xla = (np.sqrt((e**2).mean()) for e in errors)
    assert ours <= 2 * xla
    if name.startswith("group"):  # not one long sum where XLA's are short
        ours, xla = (np.abs(e).max() for e in errors)
        assert ours <= 2 * xla
        assert Blocking(shape.nest(), plan(shape.nest(), AVX512), roles(shape)).adds_parts


def roles(shape):
    return product_roles_of(shape.nest())
