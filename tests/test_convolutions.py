"""Convolutions of every form: read as contractions over windows, run by XLA in their own order."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest
from jax import lax
from seeds import seeds

from eqsat.execute.loops import form
from eqsat.execute.loops import generic as run_generic
from eqsat.execute.lowering import evaluate
from eqsat.frontends.jaxpr import trace
from eqsat.model.affine import affine, dim
from eqsat.model.expr import arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.generics.windows import convolution_roles
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.meaning.structured import evaluate_generic

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def oracle(x, kernel, p):
    """The convolution by its definition, element by element, in float64; x and kernel as N C …,
    O I …, p as `lax.conv_general_dilated` takes it."""
    x, kernel = x.astype(np.float64), kernel.astype(np.float64)
    x = spread(x, p["lhs_dilation"], p["padding"])
    n, c = x.shape[:2]
    o, width = kernel.shape[0], kernel.shape[2:]
    by_channel, by_image = p["feature_group_count"], p["batch_group_count"]
    reach = [(k - 1) * d + 1 for k, d in zip(width, p["rhs_dilation"], strict=True)]
    places = [
        (s - r) // t + 1 for s, r, t in zip(x.shape[2:], reach, p["window_strides"], strict=True)
    ]
    out = np.zeros((n // by_image, o, *places))
    for f, at, off in product(range(o), np.ndindex(*places), np.ndindex(*width)):
        where = tuple(
            a * t + b * d
            for a, t, b, d in zip(at, p["window_strides"], off, p["rhs_dilation"], strict=True)
        )
        group = f // (o // (by_channel * by_image))
        images = slice(group * (n // by_image), (group + 1) * (n // by_image))
        channels = slice(group * (c // by_channel), (group + 1) * (c // by_channel))
        if by_image == 1:
            images = slice(None)
        if by_channel == 1:
            channels = slice(None)
        patch = x[(images, channels, *where)]
        out[(slice(None), f, *at)] += patch @ kernel[(f, slice(None), *off)]
    return out


def spread(x, dilation, padding):
    """Zeros between elements, then zeros around or elements cut off."""
    for axis, (k, (low, high)) in enumerate(zip(dilation, padding, strict=True), 2):
        shape = [*x.shape]
        shape[axis] = (shape[axis] - 1) * k + 1
        wide = np.zeros(shape)
        wide[(slice(None),) * axis + (slice(None, None, k),)] = x
        around = [(0, 0)] * x.ndim
        around[axis] = (max(low, 0), max(high, 0))
        x = np.pad(wide, around)
        ends = slice(max(-low, 0), x.shape[axis] - max(-high, 0))
        x = x[(slice(None),) * axis + (ends,)]
    return x


def draw(rng):
    """A random form: sizes, parameters, and the letters of image, kernel and result."""
    dims = int(rng.choice([1, 2, 2, 2, 3]))
    by_channel, by_image = [(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)][rng.integers(5)]
    groups = by_channel * by_image
    depthwise = by_channel > 1 and rng.random() < 0.4
    inputs, outputs = (1 if depthwise else int(rng.integers(1, 4))), int(rng.integers(1, 4))
    width = [int(w) for w in rng.integers(1, 4, dims)]
    p = {
        "window_strides": [int(v) for v in rng.integers(1, 4, dims)],
        "padding": [tuple(int(v) for v in rng.integers(-1, 4, 2)) for _ in range(dims)],
        "lhs_dilation": [int(v) for v in rng.choice([1, 1, 2, 3], dims)],
        "rhs_dilation": [int(v) for v in rng.choice([1, 1, 2], dims)],
        "feature_group_count": by_channel,
        "batch_group_count": by_image,
    }
    space = [int(v) for v in rng.integers(6, 9, dims)]
    image = (int(rng.integers(1, 3)) * by_image, inputs * by_channel, *space)
    kernel = (outputs * groups, inputs, *width)
    letters = [shuffled(rng, f"{a}{SPATIAL[dims]}") for a in ("NC", "OI", "NC")]
    return image, kernel, p, letters


def shuffled(rng, letters):
    return "".join(rng.permutation(list(letters)))


def placed(x, own, letters):
    """An array whose dims are `own` with its dims in the order of `letters`."""
    return np.ascontiguousarray(x.transpose([own.index(a) for a in letters]))


def operands(rng):
    """A random convolution: image and kernel as N C … and O I …, and what JAX is given."""
    image, kernel, p, letters = draw(rng)
    space = SPATIAL[len(image) - 2]
    x, k = (rng.standard_normal(s).astype(np.float32) for s in (image, kernel))
    want = placed(oracle(x, k, p), f"NC{space}", letters[2])
    # JAX counts spatial dims as the kernel has them
    order = [space.index(a) for a in letters[1] if a in space]
    given = {n: [v[i] for i in order] if isinstance(v, list) else v for n, v in p.items()}
    x, k = placed(x, f"NC{space}", letters[0]), placed(k, f"OI{space}", letters[1])
    return (x, k), given | {"dimension_numbers": tuple(letters)}, want


@pytest.mark.parametrize("seed", seeds(1, 5))
def test_any_form_equals_its_definition(seed):
    """Six at a time, so that fewer functions are compiled."""
    rng = np.random.default_rng(seed)
    drawn = [operands(rng) for _ in range(6)]

    def convolve(pairs):
        return [
            lax.conv_general_dilated(x, k, **given)
            for (x, k), (_, given, _) in zip(pairs, drawn, strict=True)
        ]

    arrays = [a for pair, _, _ in drawn for a in pair]
    program = trace(convolve, ([pair for pair, _, _ in drawn],)).program
    assert {n.op for n in program.nodes} <= {"input", "generic", "reshape", "pad", "slice"}
    exact = evaluate_program(program, arrays, {})
    for got, ran, (_, _, want) in zip(exact, run(program, arrays), drawn, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        scale = np.abs(want).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(ran), want, rtol=2e-5, atol=2e-5 * scale)


@pytest.mark.parametrize("every", seeds(1, [3, 2, 5]))
def test_a_spread_image_is_read_in_phases_at_any_edge(every):
    """No zeros between elements are made, and windows have as few taps as can be."""
    rng = np.random.default_rng(every)
    for low, high, width, extent in product((-2, 0, 1, 4), (-1, 3), (1, 2, 3, 4, 7), (2, 5)):
        reach = (extent - 1) * every + 1 + low + high
        if reach < width:
            continue
        p = {
            "window_strides": [1], "padding": [(low, high)], "lhs_dilation": [every],
            "rhs_dilation": [1], "feature_group_count": 1, "batch_group_count": 1,
        }  # fmt: skip
        x = rng.standard_normal((2, 3, extent)).astype(np.float32)
        k = rng.standard_normal((4, 3, width)).astype(np.float32)
        given = p | {"dimension_numbers": ("NCW", "OIW", "NCW")}
        program = trace(lambda x, k, g=given: lax.conv_general_dilated(x, k, **g), (x, k)).program
        (got,) = evaluate_program(program, [x, k], {})
        np.testing.assert_allclose(got, oracle(x, k, p), rtol=1e-12, atol=1e-12)
        (sig,) = (
            n.attr for n in program.nodes if isinstance(n.attr, Generic) and n.attr.reductions
        )
        groups = -(-(reach - width + every) // every)  # of places, some of the first may be skipped
        assert np.prod(sig.sizes) <= 2 * 4 * 3 * groups * every * -(-width // every)


def run(program, arrays):
    @jax.jit
    def execute(arrays):
        known = dict(zip(program.inputs, arrays, strict=True))
        values = evaluate(program, range(len(program.nodes)), known, {})
        return [values[r][0] for r in program.results]

    return execute([jax.numpy.asarray(a) for a in arrays])


def product_over(sizes, rank, image, kernel, shapes) -> Generic:
    body = call("mul", arg(0), arg(1))
    return canonical_generic(
        sizes,
        range(rank),
        [image, kernel],
        shapes,
        [Yield(body, "f32", "add")],
        (),
        ["f32"] * 2,
        precision="default",
    )


def transposes(g, arrays):
    return str(jax.make_jaxpr(lambda *xs: run_generic(g, xs))(*arrays)).count(" transpose[")


def traced_generic(letters, shapes, **options):
    x, k = (np.ones(s, np.float32) for s in shapes)
    program = trace(
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 1), "VALID", dimension_numbers=letters, **options
        ),
        (x, k),
    ).program
    (g,) = [n.attr for n in program.nodes if isinstance(n.attr, Generic)]
    assert isinstance(g, Generic)
    return g, [np.ones(s, np.float32) for s in g.shapes]


@pytest.mark.parametrize(
    "letters",
    [
        ("NHWC", "HWIO", "NHWC"),
        ("NCHW", "OIHW", "NCHW"),
        ("NHWC", "OIHW", "NCHW"),
        ("CHWN", "IHWO", "HWNC"),
        ("HWCN", "HOWI", "CNWH"),
    ],
)
def test_every_order_goes_to_xla_as_it_is(letters):
    size = dict(N=2, C=3, H=6, W=7) | dict(O=4, I=3)
    shapes = [
        tuple({"H": 3, "W": 2}.get(a, size[a]) if side else size[a] for a in text)
        for side, text in enumerate(letters[:2])
    ]
    g, arrays = traced_generic(letters, shapes)
    found = convolution_roles(g)
    assert found is not None
    assert form(g, found).image[letters[0].index("C")][0] == "feature"
    assert transposes(g, arrays) == 0


def test_groups_of_several_channels_are_one_convolution_of_xla():
    g, arrays = traced_generic(
        ("NHWC", "HWIO", "NHWC"), [(1, 6, 6, 8), (3, 3, 4, 6)], feature_group_count=2
    )
    text = str(jax.make_jaxpr(lambda *xs: run_generic(g, xs))(*arrays))
    assert "feature_group_count=2" in text
    assert " transpose[" not in text


def test_depthwise_is_a_sum_of_slices():
    """Which XLA runs 20 to 40 times faster on a CPU than its grouped convolution."""
    g, arrays = traced_generic(
        ("NHWC", "HWIO", "NHWC"), [(1, 6, 6, 8), (3, 3, 1, 8)], feature_group_count=8
    )
    text = str(jax.make_jaxpr(lambda *xs: run_generic(g, xs))(*arrays))
    assert "conv_general_dilated" not in text
    (got,) = run_generic(g, arrays)
    assert np.array_equal(np.asarray(got), np.full((1, 4, 4, 8), 9.0))


def test_wide_depthwise_windows_are_a_convolution_of_xla():
    g, arrays = traced_generic(
        ("NHWC", "HWIO", "NHWC"), [(1, 14, 14, 2), (12, 12, 1, 2)], feature_group_count=2
    )
    text = str(jax.make_jaxpr(lambda *xs: run_generic(g, xs))(*arrays))
    assert "feature_group_count=2" in text


PACKED = {
    # N C' H W c, K' C' R S c k, N K' P Q k
    "blocked": (
        [2, 3, 5, 4, 4, 2, 3, 2, 8],
        5,
        [dim(0), dim(5), affine([(2, 1), (6, 1)]), affine([(3, 1), (7, 1)]), dim(8)],
        [dim(1), dim(5), dim(6), dim(7), dim(8), dim(4)],
        [(2, 2, 7, 5, 8), (3, 2, 3, 2, 8, 4)],
    ),
    # images in two dims around a window
    "images apart": (
        [2, 4, 3, 5, 3, 3],
        4,
        [dim(0), affine([(1, 2), (4, 1)]), dim(2), dim(5)],
        [dim(4), dim(5), dim(3)],
        [(2, 9, 3, 3), (3, 3, 5)],
    ),
    # groups last in the image, first in the kernel
    "groups apart": (
        [2, 3, 4, 5, 3, 2],
        4,
        [dim(0), affine([(1, 1), (4, 1)]), dim(5), dim(2)],
        [dim(2), dim(3), dim(5), dim(4)],
        [(2, 5, 2, 4), (4, 5, 2, 3)],
    ),
    "no images, no filters": (
        [4, 3, 2],
        1,
        [affine([(0, 1), (1, 2)]), dim(2)],
        [dim(1), dim(2)],
        [(8, 2), (3, 2)],
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_loops_of_a_role_may_lie_apart(name):
    sizes, rank, image, kernel, shapes = PACKED[name]
    g = product_over(sizes, rank, tuple(image), tuple(kernel), shapes)
    assert convolution_roles(g) is not None
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    assert "conv_general_dilated" in str(jax.make_jaxpr(lambda *xs: run_generic(g, xs))(*arrays))
    (want,) = evaluate_generic(g, [a.astype(np.float64) for a in arrays])
    (got,) = run_generic(g, arrays)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)


def test_sixteen_bit_convolutions_sum_in_f32():
    x = np.asarray(jax.numpy.ones((1, 8, 8, 300), "bfloat16"))
    k = np.asarray(jax.numpy.ones((3, 3, 300, 2), "bfloat16"))
    program = trace(
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        (x, k),
    ).program
    (ran,) = run(program, (x, k))
    assert ran.dtype == "bfloat16"
    assert (np.asarray(ran, np.float64) == 2704).all()  # 2700 to the nearest bf16; not 256
