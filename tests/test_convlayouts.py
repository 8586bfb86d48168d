"""The order of a convolution's dims as a choice: rule, prices, and what the search makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

import eqsat
from eqsat.extract.candidates.space import Space
from eqsat.extract.dispatch.prices import Costs
from eqsat.lab.calibrate.check import bottleneck, deep
from eqsat.lab.calibrate.shapes import in_dim_order, mnk_product, nchw_conv
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import read_target
from eqsat.model.diag import EqsatError
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder
from eqsat.model.target import Target, UntiledKernel
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.convolution import lies_in, order_convolution, orders
from eqsat.ops.generics.propagate import permute_operand, permute_result
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.targets.kernels import (
    RESULT,
    facts,
    kernel_choices,
    kernel_kind,
    misread,
    moves_innermost,
    target_orders,
)
from eqsat.saturate import saturate

TEXT = """target: channels-last
doc: A machine whose library works in NHWC.
executor: xla
data_tiling: false
source: invented
memory:
  - {name: ram, size: 16 GiB, bandwidth: 20 GB/s}
launch: 1 us
relayout: 4 GB/s
rates: {f32: 100 GFLOP/s}
untiled:
  conv2d:
    - {image: nhwc, filters: hwio, rate: 0.8}
    - {image: nchw, filters: oihw, rate: 0.4}
fusion: {template: 0, join: {contraction: [], reduction: []}}
"""
LAST = read_target(TEXT)
EXCHANGED = "{image: nhwc, filters: hwio, rate: 0.4}, {image: nchw, filters: oihw, rate: 0.8}"
FIRST = override(LAST, [f"untiled.conv2d=[{EXCHANGED}]"])


def lies(g: Generic) -> tuple[str, str, str]:
    found = orders(g)
    assert found is not None
    return "".join(found.image), "".join(found.filters), "".join(found.result)


def windowed(run: eqsat.Run) -> list[tuple[str, str, str]]:
    """How the convolutions with windows of a schedule lie."""
    assert run.schedule is not None
    sigs = [n.attr for n in run.schedule.program.nodes if isinstance(n.attr, Generic)]
    return [lies(g) for g in sigs if orders(g) and kernel_kind(g) == "conv2d"]


# ---- what an order is ------------------------------------------------------------------------
def test_dims_are_named():
    g = nchw_conv(3, 8, 5, 3, 2)
    assert lies(g) == ("nchw", "oihw", "nchw")
    assert lies(in_dim_order(g, "nhwc", "hwio")) == ("nhwc", "hwio", "nhwc")
    assert lies(nchw_conv(1, 1, 5, 3, groups=4)) == ("nchw", "ohw", "nchw")
    assert lies(nchw_conv(2, 3, 5, 3, groups=4)) == ("ncchw", "ooihw", "ncchw")
    assert orders(mnk_product(8, 8, 8)) is None


def test_dims_of_extent_one_may_lie_anywhere():
    assert lies_in("cnhw", (3, 1, 5, 5), "nchw")
    assert not lies_in("cnhw", (3, 2, 5, 5), "nchw")
    assert lies_in("nhwc", (1, 1, 1, 7), "nchw")


@pytest.mark.parametrize(
    "g", [nchw_conv(3, 8, 5, 3, 2), nchw_conv(1, 1, 4, 3, groups=4), nchw_conv(2, 3, 4, 2)]
)
def test_an_order_is_reached_and_left_again(g: Generic):
    there = order_convolution(g, "nhwc", "hwio")
    assert there is not None
    assert order_convolution(there.sig, "nhwc", "hwio") is None, "it lies so already"
    back = order_convolution(there.sig, "nchw", "oihw")
    assert back is not None
    assert back.sig == g
    assert order_convolution(g, "nwc", "wio") is None, "two places, not one"


def test_only_orders_of_the_target_are_tried():
    g = nchw_conv(3, 8, 5, 3)
    assert [lies(o.sig)[0] for o in target_orders(LAST, {}, g)] == ["nhwc"]
    assert target_orders(eqsat.target("avx512-xla"), {}, g) == []
    assert target_orders(LAST, {}, mnk_product(8, 8, 8)) == []


def test_kernels_convolve_few_filters_with_channels_first():
    """Fewer than a vector has lanes: vectors then lie along a row of pixels."""

    def tried(name: str, g: Generic) -> list[str]:
        return [lies(o.sig)[0] for o in target_orders(eqsat.target(name), {}, g)]

    few, many, depthwise = (
        in_dim_order(g, "nhwc", "hwio")
        for g in (nchw_conv(64, 6, 5, 3), nchw_conv(6, 64, 5, 3), nchw_conv(1, 1, 5, 3, groups=4))
    )
    assert tried("avx512", few) == tried("avx2", few) == ["nchw"]
    assert tried("avx512", many) == tried("avx512", depthwise) == []
    wider = in_dim_order(nchw_conv(64, 12, 5, 3), "nhwc", "hwio")
    assert tried("avx512", wider) == ["nchw"]
    assert tried("avx2", wider) == []


# ---- which kernel runs it --------------------------------------------------------------------
def test_a_kernel_transposes_what_lies_otherwise():
    g = nchw_conv(16, 8, 5, 3)
    by_rate = {c.rate: c.misplaced for c in kernel_choices(LAST, g)}
    assert by_rate == {0.8: (0, 1, RESULT), 0.4: ()}
    channels_last = in_dim_order(g, "nhwc", "hwio")
    assert {c.rate: c.misplaced for c in kernel_choices(LAST, channels_last)} == {
        0.8: (),
        0.4: (0, 1, RESULT),
    }


def test_rows_are_tried_in_order_and_by_regime():
    rows = (
        UntiledKernel(0.3, LAST.untiled_kernels("conv2d")[0].when, "nhwc", "hwio"),
        UntiledKernel(0.9, (), "nhwc", "hwio"),
    )
    target = replace(LAST, untiled=(("conv2d", rows),))
    assert [c.rate for c in kernel_choices(target, nchw_conv(16, 8, 5, 3))] == [0.3]
    text = "untiled.conv2d=[{image: nhwc, rate: 0.1, when: c <= 4}, {image: nhwc, rate: 0.9}]"
    target = override(LAST, [text])
    assert [c.rate for c in kernel_choices(target, nchw_conv(3, 8, 5, 3))] == [0.1]
    assert [c.rate for c in kernel_choices(target, nchw_conv(16, 8, 5, 3))] == [0.9]


def test_a_stride_without_a_window_is_a_matmul():
    traced = eqsat.optimize(*strided(), target=LAST, stop_after="program").program
    (g,) = (n.attr for n in traced.nodes if isinstance(n.attr, Generic))
    assert kernel_kind(g) == "matmul"
    known = facts(g, "matmul")
    assert (known["k"], sorted((known["m"], known["n"]))) == (6, [8, 16])


def strided() -> tuple[Any, Any]:
    filters: Any = np.ones((8, 6, 1, 1), "f4")
    numbers = ("NCHW", "OIHW", "NCHW")
    x = jax.ShapeDtypeStruct((1, 6, 8, 8), "float32")
    return lambda x: lax.conv_general_dilated(
        x, filters, (2, 2), "VALID", dimension_numbers=numbers
    ), x


@pytest.mark.parametrize(
    ("perms", "lost"),
    [
        ({}, ()),
        ({0: (0, 2, 1)}, ()),  # a transposed operand is one the kernel knows
        ({0: (1, 0, 2)}, (0,)),  # the batch is not outermost
        ({0: (1, 2, 0), 1: (1, 0, 2)}, (0, 1)),
    ],
)
def test_operands_of_a_product_are_grouped(
    perms: dict[int, tuple[int, ...]], lost: tuple[int, ...]
):
    g = mnk_product(4, 5, 6, batch=3)
    for i, perm in perms.items():
        found = permute_operand(g, i, perm)
        assert found is not None
        g = found
    (call,) = kernel_choices(LAST, g)
    assert call.misplaced == lost


def test_which_ops_walk_across_what_they_read():
    def node(body: str, shape: str = "2, 3, 4") -> Any:
        n = parse_program(f"program p\ninput x: f32[{shape}]\ny = {body}\nreturn y\n").nodes[-1]
        return n.op, n.attr

    assert moves_innermost(*node("transpose(x, perm=[0, 2, 1])"))
    assert not moves_innermost(*node("transpose(x, perm=[1, 0, 2])"))
    assert not moves_innermost(*node("transpose(x, perm=[0, 2, 1])", "2, 3, 1"))
    assert moves_innermost(*node("pack(x, pos=[1], tiles=[3])"))
    assert not moves_innermost(*node("pack(x, pos=[2], tiles=[2])"))
    across = node("generic(x, loops=[2, 4, 3], maps=[[d0, d2, d1]], body=exp(x0))")[1]
    assert list(misread(across)) == [0]
    rows = "generic(x, loops=[2, 3, 4], maps=[[d0, d1, d2]], body=x0, combine=add, rank=2)"
    assert list(misread(node(rows)[1])) == []


# ---- prices ----------------------------------------------------------------------------------
def prices(target: Target, g: Generic) -> int:
    """Picoseconds of one contraction as a dispatch."""
    b = Builder("p")
    leaves = [
        b.add("input", (), Leaf(f"x{i}", TensorType(t, s)))
        for i, (s, t) in enumerate(zip(g.shapes, g.dtypes, strict=True))
    ]
    program = b.build([b.add("generic", tuple(leaves), g)])
    space = Space(saturate(program, eqsat.rules("policy/keep"), target))
    costs = Costs(space, target)
    (node,) = (i for i, n in enumerate(space.egraph.nodes) if n.op == "generic")
    reads = space.egraph.nodes[node].children
    return costs.group_ps((node,), reads, space.outputs[node])


def test_a_convolution_is_priced_by_hand():
    g = in_dim_order(nchw_conv(16, 8, 10, 3), "nhwc", "hwio")
    operations = 2 * 8 * 16 * 9 * 100
    assert prices(LAST, g) == operations * 10**12 // (80 * 10**9) + 10**6
    # the image of 12 x 12 x 16, filters and result, each read and written once more
    moved = 4 * (12 * 12 * 16 + 9 * 16 * 8 + 100 * 8)
    slow = replace(LAST, untiled=(("conv2d", (UntiledKernel(0.8, (), "nchw", "oihw"),)),))
    extra = 2 * moved * 10**12 // (4 * 10**9)
    assert prices(slow, g) == prices(LAST, g) + extra


def test_targets_without_the_keys_price_as_they_did():
    g = nchw_conv(16, 8, 10, 3)
    plain = replace(LAST, untiled=(), relayout=None, untiled_rate=0.5)
    for way in (g, in_dim_order(g, "nhwc", "hwio"), permute_result(g, (1, 0, 2, 3))):
        assert way is not None
        assert prices(plain, way) == 2 * 8 * 16 * 9 * 100 * 10**12 // (50 * 10**9) + 10**6


def test_an_order_of_other_letters_is_refused():
    with pytest.raises(EqsatError, match="E424"):
        override(LAST, ["untiled.conv1d=[{image: nhwc, rate: 1}]"])


def test_a_target_with_kernels_goes_to_json_and_back():
    assert Target.from_json(LAST.to_json()) == LAST
    assert "untiled conv2d nhwc: 0.8 of the peak" in str(LAST)


# ---- the search ------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def block() -> eqsat.Run:
    return eqsat.optimize(*bottleneck(16, 16, 28), target=LAST)


def test_channels_last_is_chosen_without_being_told(block: eqsat.Run):
    assert windowed(block) == [("nhwc", "hwio", "nhwc")]
    summary = block.summary()
    assert summary["goals"]["time_us"]["value"] < summary["baseline"]["time_us"]
    assert summary["counts"]["weight_packs"] >= 1, "the filters are transposed ahead of time"
    assert block.verify(samples=2).ok


def test_channels_first_stays_where_it_is_faster():
    run = eqsat.optimize(*bottleneck(16, 16, 28), target=FIRST)
    assert windowed(run) == [("nchw", "oihw", "nchw")]
    summary = run.summary()
    assert summary["counts"]["transposes"] + summary["counts"]["fused_conversions"] == 0


def test_channels_last_stays_where_it_was_read():
    """As Keras writes its networks: nothing is transposed at run time, nothing gets worse."""
    filters: list[Any] = [np.ones((3, 3, 16, 16), "f4") / 12] * 2

    def network(x: jax.Array) -> jax.Array:
        for f in filters:
            y = lax.conv_general_dilated(
                x, f, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(y + x)
        return x

    run = eqsat.optimize(network, jax.ShapeDtypeStruct((1, 28, 28, 16), "float32"), target=LAST)
    assert set(windowed(run)) == {("nhwc", "hwio", "nhwc")}
    summary = run.summary()
    assert summary["counts"]["transposes"] + summary["counts"]["fused_conversions"] == 0
    assert summary["goals"]["time_us"]["value"] <= summary["baseline"]["time_us"]


def test_a_transpose_that_costs_more_than_it_gains_is_not_made():
    dear = override(LAST, ["relayout=0.01 GB/s"])
    run = eqsat.optimize(*deep(16, 28), target=dear)
    assert set(windowed(run)) == {("nchw", "oihw", "nchw")}


def test_filters_move_ahead_of_time_where_only_they_cost():
    source, x = deep(64, 7)
    run = eqsat.optimize(source, x, target=LAST)
    chosen = {(image, filters) for image, filters, _ in windowed(run)}
    assert {f for _, f in chosen} == {"hwio"}
    assert run.summary()["counts"]["weight_packs"] == 2


def test_both_orders_compute_the_same(block: eqsat.Run):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 28, 28))
    weights = block.source.weights
    (wanted,) = evaluate_program(block.program, [x], weights, {})
    assert block.schedule is not None
    (got,) = evaluate_program(block.schedule.program, [x], weights, {})
    assert np.allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_e_graph_grows_by_the_number_of_convolutions():
    """Twice the layers are about twice the nodes: orders do not multiply."""

    def network(layers: int) -> Any:
        filters: Any = np.ones((16, 16, 3, 3), "f4") / 12

        def apply(x: jax.Array) -> jax.Array:
            for _ in range(layers):
                x = jax.nn.relu(lax.conv(x, filters, (1, 1), "SAME"))
            return x

        return apply, jax.ShapeDtypeStruct((1, 16, 14, 14), "float32")

    sizes = []
    for layers in (4, 8):
        run = eqsat.optimize(*network(layers), target=LAST, stop_after="egraph")
        assert run.egraph is not None
        sizes.append(len(run.egraph.nodes))
    assert sizes[1] <= 2.2 * sizes[0]
