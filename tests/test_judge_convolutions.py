"""HLO's convolutions, read for `eqsat judge`, beside what JAX computes."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from seeds import one_in, seeds

import eqsat
from eqsat.api.judge import foreign_cut, judge
from eqsat.execute.reference import WorkBudget, reference
from eqsat.frontends.hlo import read_hlo
from eqsat.model.diag import EqsatError

CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")


def shape(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def conv(*stride: int, pad="SAME", layout=CHANNELS_LAST, **more):
    def convolution(x, w):
        return jax.lax.conv_general_dilated(x, w, stride, pad, dimension_numbers=layout, **more)

    return convolution


def gradients(function):
    def both(x, w):
        return jax.grad(lambda x, w: (function(x, w) ** 2).sum(), argnums=(0, 1))(x, w)

    return both


def activated(x, w):
    return jax.nn.relu(conv(2, 2)(x, w))


def transposed(x, w):
    return jax.lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=CHANNELS_LAST)


uneven = conv(1, 1, pad=[(1, 0), (2, 1)], rhs_dilation=(2, 1), layout=("NCHW", "OIHW", "NCHW"))
grouped = conv(1, 1, pad="VALID", feature_group_count=2)
FUNCTIONS = {
    "activated": (activated, (shape(2, 9, 9, 8), shape(3, 3, 8, 16))),
    "uneven": (uneven, (shape(2, 4, 9, 8), shape(6, 4, 3, 2))),
    "cut off": (conv(1, 2, pad=[(-1, 2), (3, -2)]), (shape(1, 9, 8, 3), shape(2, 3, 3, 5))),
    "depthwise": (conv(1, 1, feature_group_count=8), (shape(2, 9, 9, 8), shape(3, 3, 1, 8))),
    "grouped": (grouped, (shape(2, 9, 9, 8), shape(3, 3, 4, 6))),
    "batch groups": (conv(1, 1, batch_group_count=2), (shape(4, 5, 5, 3), shape(3, 3, 3, 4))),
    "transposed": (transposed, (shape(1, 5, 5, 4), shape(3, 3, 4, 6))),
    "gradients": (gradients(uneven), (shape(2, 4, 9, 8), shape(6, 4, 3, 2))),
    "grouped gradients": (gradients(grouped), (shape(2, 9, 9, 8), shape(3, 3, 4, 6))),
    "line": (conv(2, layout=("NWC", "WIO", "NWC")), (shape(2, 12, 4), shape(3, 4, 8))),
    "volume": (
        conv(1, 1, 2, layout=("NDHWC", "DHWIO", "NDHWC")),
        (shape(1, 4, 5, 6, 2), shape(2, 3, 3, 2, 4)),
    ),
    "no window": (conv(layout=("NC", "IO", "NC"), pad=[]), (shape(6, 4), shape(4, 8))),
}


def computed(text: str, args, function) -> None:
    """What is read of a text gives what the function gives."""
    cut = read_hlo(text, "conv.hlo")
    cut.verify()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(a.shape).astype(np.float32) for a in args]
    got = reference(cut.program, inputs, cut.weights, {}, WorkBudget(10**10))
    want = jax.tree.leaves(function(*map(jnp.asarray, inputs)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("stage", ["optimized", "not optimized"])
@pytest.mark.parametrize("name", one_in(3, FUNCTIONS))
def test_a_convolution_of_hlo_computes_what_jax_does(name: str, stage: str):
    function, args = FUNCTIONS[name]
    lowered = jax.jit(function).lower(*args)
    if stage == "optimized":
        computed(lowered.compile().as_text(), args, function)
    else:
        computed(lowered.compiler_ir("hlo").get_hlo_module().to_string(), args, function)


def test_what_xla_makes_of_a_convolution_is_judged():
    function, args = FUNCTIONS["activated"]
    run = eqsat.optimize(function, *args, target="avx512-xla")
    text = jax.jit(function).lower(*args).compile().as_text()
    found = judge(run, foreign_cut(read_hlo(text, "conv.hlo"), run))
    assert "random samples" in found.sameness or "prove it" in found.sameness
    assert any("conv" in label for label in found.foreign.labels)
    assert all(g.time_ps > 0 for g in found.selection.groups)
    assert found.refused or found.gap("time") >= 0


WINDOW = "window={size=3x3 stride=2x2 pad=1_1x1_1 rhs_reversal=1x0}"
CONV = """HloModule conv

ENTRY %main (x: f32[2,9,9,8], w: f32[3,3,8,16]) -> f32[2,5,5,16] {
  %x = f32[2,9,9,8]{3,2,1,0} parameter(0)
  %w = f32[3,3,8,16]{3,2,1,0} parameter(1)
  ROOT %c = f32[2,5,5,16]{3,2,1,0} convolution(%x, %w), WINDOW, dim_labels=b01f_01io->b01f
}
""".replace("WINDOW", WINDOW)


def test_a_reversed_window_reads_the_kernel_backwards():
    def turned(x, w):
        return conv(2, 2, pad=[(1, 1), (1, 1)])(x, w[::-1])

    computed(CONV, (shape(2, 9, 9, 8), shape(3, 3, 8, 16)), turned)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size=3x3", "size=3x2", "the kernel has [3, 3]"),
        ("size=3x3", "size=3", "has not 2 numbers"),
        ("stride=2x2", "stride=0x2", "below 1"),
        ("stride=2x2", "stride=1x2", "[2, 16, 9, 5]"),
        ("pad=1_1x1_1", "pad=1x1", "two pads"),
        ("pad=1_1x1_1", "pad=1_1", "two pads"),
        ("rhs_reversal", "rhs_turned", "no window"),
        ("b01f_01io->b01f", "b01f_01io->b01g", "labels no dims"),
        ("b01f_01io->b01f", "b01f_01ii->b01f", "each of"),
        ("b01f_01io->b01f", "b01f_0io->b01f", "other numbers"),
        ("b01f_01io->b01f", "b0f_0io->b0f", "has not 1 numbers"),
        ("b01f_01io->b01f", "b01f_01io->b01f, feature_group_count=2", "features"),
        ("b01f_01io->b01f", "b01f_01io->b01f, batch_group_count=3", "are [0"),
        (", dim_labels=b01f_01io->b01f", "", "dim_labels"),
        (f"{WINDOW}, dim_labels=b01f_01io->b01f", "dim_labels=b012f_012io->b012f", "5 dims are"),
        ("(%x, %w)", "(%x)", "operands"),
        ("f32[2,5,5,16]{3,2,1,0} conv", "f32[2,5,5,8]{3,2,1,0} conv", "its type has"),
    ],
)
def test_a_broken_convolution_gets_a_sentence(old: str, new: str, words: str):
    assert old in CONV
    with pytest.raises(EqsatError, match="E345") as error:
        read_hlo(CONV.replace(old, new), "conv.hlo")
    assert words in str(error.value)
    assert "conv.hlo:6" in str(error.value)


@pytest.mark.parametrize("seed", seeds(12, 40))
def test_hostile_convolutions_never_break_the_reader(seed: int):
    rng = random.Random(seed)
    text = list(CONV)
    start = CONV.index("ROOT")
    for _ in range(rng.randint(1, 6)):
        text[rng.randrange(start, len(text))] = rng.choice(["", "x", "_", "-", "0", "9", "=", "}"])
    codes = set[str]()
    try:
        read_hlo("".join(text), "hostile.hlo").verify()
    except EqsatError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E345", "E346"}
