"""How contractions are told to XLA for TPUs: what is written, and that it computes the same."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from seeds import one_in

import eqsat
from eqsat.execute.executable import xla_executable
from eqsat.execute.expressions import lowered_for, spelled
from eqsat.model.compiled import BY_CONVOLUTIONS, BY_PRODUCTS
from eqsat.model.schedule import Schedule


def told(function: Any, *args: Any, spelling: str) -> tuple[dict[str, int], list[np.ndarray]]:
    """The primitives with which XLA for a TPU is told a function, and what they compute here."""
    target = eqsat.target("tpu-v5e")
    run = eqsat.optimize(function, *args, target=target, rules=(), stop_after="program")
    schedule = Schedule(run.program, (), (), (), "")
    made = xla_executable(
        schedule, run.source.opaque, run.weights, replace(target, spelling=spelling)
    )
    with lowered_for("tpu"):
        traced = jax.make_jaxpr(made.run)(made.packed, *args)
        found = jax.jit(made.run)(made.packed, *args)
    names = [e.primitive.name for e in traced.jaxpr.eqns]
    counted = {n: names.count(n) for n in ("dot_general", "conv_general_dilated")}
    return counted, [np.asarray(x) for x in found]


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, "f4") for s in shapes]


@pytest.mark.parametrize(
    ("text", "shapes", "is_convolution"),
    [
        ("k,kn->n", ((512,), (512, 300)), True),
        ("nk,k->n", ((300, 512), (512,)), True),
        ("mk,kn->mn", ((1, 512), (512, 300)), True),
        ("kn,mk->nm", ((512, 300), (1, 512)), True),
        ("mk,kn->mn", ((2, 512), (512, 300)), False),  # two rows are a product to it anyway
        ("k,kn->n", ((64,), (64, 300)), False),  # too small to be worth it
        ("bk,bkn->bn", ((2, 512), (2, 512, 300)), False),
    ],
)
def test_a_large_product_of_one_row_is_a_convolution(text, shapes, is_convolution):
    args = drawn(*shapes)
    for spelling in (BY_CONVOLUTIONS, BY_PRODUCTS):
        counted, (got,) = told(lambda a, b: jnp.einsum(text, a, b), *args, spelling=spelling)
        assert counted == {
            "dot_general": int(not is_convolution), "conv_general_dilated": int(is_convolution)
        }  # fmt: skip
        np.testing.assert_allclose(got, np.einsum(text, *args), rtol=1e-4, atol=1e-4)


def convolution(form: str, stride: int, groups: int = 1, dilation: int = 1) -> Any:
    filters = "OIHW" if form == "NCHW" else "HWIO"

    def convolve(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
            dimension_numbers=(form, filters, form), feature_group_count=groups,
        )  # fmt: skip

    return convolve


@pytest.mark.parametrize(
    ("form", "stride", "dilation", "image", "filters", "places"),
    one_in(
        2,
        [
            ("NHWC", 1, 1, (1, 9, 8, 6), (3, 3, 6, 5), 9),
            ("NCHW", 1, 1, (2, 6, 9, 8), (5, 6, 3, 3), 9),
            ("NCHW", 1, 1, (1, 6, 9, 8), (5, 6, 3, 2), 6),
            ("NHWC", 1, 1, (1, 8, 6, 32), (3, 1, 32, 4), 3),
            ("NHWC", 1, 2, (1, 9, 8, 6), (2, 3, 6, 5), 6),
        ],
    ),
)
def test_a_small_convolution_is_a_sum_of_products(form, stride, dilation, image, filters, places):
    function = convolution(form, stride, dilation=dilation)
    args = drawn(image, filters)
    want = np.asarray(function(*args))
    for spelling, counts in ((BY_PRODUCTS, (places, 0)), (BY_CONVOLUTIONS, (0, 1))):
        counted, (got,) = told(function, *args, spelling=spelling)
        assert tuple(counted.values()) == counts
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("image", "filters", "groups", "stride"),
    [
        ((1, 8, 8, 6), (3, 3, 6, 5), 1, 2),
        ((8, 8, 8, 6), (3, 3, 6, 5), 1, 1),  # many images
        ((1, 8, 8, 33), (3, 3, 33, 5), 1, 1),  # many channels
        ((1, 8, 8, 6), (3, 3, 3, 6), 2, 1),
    ],
)
def test_other_convolutions_stay_what_they_are(image, filters, groups, stride):
    args = drawn(image, filters)
    counted, _ = told(convolution("NHWC", stride, groups), *args, spelling=BY_PRODUCTS)
    assert counted == {"dot_general": 0, "conv_general_dilated": 1}


def test_the_spelling_is_for_tpus_and_ends_with_its_block():
    args = drawn((1, 9, 8, 6), (3, 3, 6, 5))
    run = eqsat.optimize(convolution("NHWC", 1), *args, target="avx512-xla", time_limit=5)
    with spelled(BY_PRODUCTS):
        text = str(jax.make_jaxpr(run.executable.run)(run.executable.packed, *args))
    assert "conv_general_dilated" in text
