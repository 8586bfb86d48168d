"""Kernels of rows against the meaning of their nests, between guard pages."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from seeds import one_in, seeds

pytest.importorskip("llvmlite")

from rownests import (
    check,
    flat,
    layer_norm,
    moved,
    random_nest,
    reduced,
    softmax,
)
from runnable import needs_kernels
from test_kernel_math import AVX2, MACHINE
from test_nest import nest_of_text

from eqsat.execute.kernels.kernel import generate
from eqsat.model.dispatch import Plan
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.nest import Access, Bound, Lookup, Nest, NoNest, Stage, Store
from eqsat.plan import rows

pytestmark = needs_kernels(MACHINE)


@pytest.fixture(autouse=True)
def many_items(monkeypatch):
    monkeypatch.setattr(rows, "ITEM_COST", 60)


def test_a_softmax_keeps_what_is_dear():
    plan = check(softmax(5, 37), "softmax")
    assert plan.parts[0].cached == (1,)
    assert plan.items > 1


def test_a_layer_norm_is_one_kernel():
    plan = check(layer_norm(4, 100), "layer_norm")
    assert len(plan.parts[0].passes) == 3 and plan.parts[0].cached == ()


@pytest.mark.parametrize(
    ("sizes", "to", "dtype", "body"),
    [
        ((40, 50), (1, 0), "f32", None),
        ((3, 20, 33), (2, 0, 1), "f32", None),
        ((20, 35), (1, 0), "bool", None),
        ((17, 64), (1, 0), "f32", call("erfc", arg(0))),
    ],
)
def test_transposes_go_by_squares(sizes, to, dtype, body):
    plan = check(moved(sizes, to, dtype, body), f"moved{len(sizes)}{dtype}{body is None}")
    assert plan.parts[0].square >= 0 and plan.work.strided == 0


@pytest.mark.parametrize(
    ("sizes", "over", "how", "dtype"),
    [
        ((7, 100), (1,), "add", "f32"),
        ((300, 70), (0,), "add", "f32"),
        ((5, 33, 6), (1,), "min", "f32"),
        ((5, 6, 7), (0, 2), "max", "f32"),
        ((20000,), (0,), "add", "f32"),
        ((9, 70), (1,), "and", "bool"),
        ((9, 70), (1,), "mul", "i32"),
        ((4, 3), (1,), "add", "f32"),
        ((5, 70), (1,), "max", "bf16"),
        ((70, 37), (0,), "min", "bf16"),
        ((3, 5), (1,), "mul", "f16"),
    ],
)
def test_reductions_over_any_loops(sizes, over, how, dtype):
    name = f"reduced{'_'.join(map(str, sizes))}{how}{dtype}"
    check(reduced(sizes, over, how, dtype), name, within=2e-3 if dtype == "f16" else 1e-6)


@pytest.mark.parametrize(("dtype", "unit"), [("bf16", 2**-8), ("f16", 2**-11)])
def test_sums_of_short_floats_are_rounded_once(dtype, unit):
    """Of 4,000 numbers: an accumulator of the short type would stop at a few hundred."""
    check(reduced((3, 4000), (1,), body=call("abs", arg(0)), dtype=dtype), f"long{dtype}",
        within=unit)  # fmt: skip


@pytest.mark.parametrize("seed", seeds(4, 10))
def test_random_nests(seed):
    nest = random_nest(np.random.default_rng(seed))
    check(nest, f"random{seed}", AVX2 if seed % 4 == 3 else MACHINE, seed, within=2e-5)


@pytest.mark.parametrize("empty", [0, 1])
def test_empty_loops(empty):
    sizes = (0, 5) if empty == 0 else (5, 0)
    check(softmax(*sizes), f"empty{empty}", sizes={0: 0, 9: 0})
    check(reduced(sizes, (1,)), f"none{empty}", sizes={0: 0, 9: sizes[0]})


def test_a_gather_and_what_follows():
    def by(strides, stride, extent):
        return Lookup((Access(1, "i32", strides),), arg(0), "i32", stride, extent)

    table = Access(0, "f32", (0, 1), lookups=(by((1, 0), 20, 30),))
    column = Access(0, "f32", (20, 0), lookups=(by((0, 1), 1, 20),))  # varies along the lanes
    body = call("add", call("add", arg(0), arg(1)), arg(2))
    nest = Nest(
        (9, 20),
        (Stage(3, (0, 1), body, (table, column, Access(2, "f32", (20, 1))), "f32"),),
        (Store(Access(9, "f32", (20, 1)), 0, (0, 1)),),
    )
    check(nest, "gather")


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u64"])
@pytest.mark.parametrize("sizes", [(9, 20), (40, 3)])
def test_rows_are_looked_up_by_what_is_computed(dtype, sizes):
    """table[select(i < 50, i - 90, i + j)]: numbers of either sign, of which most are clamped."""
    rows_, width = sizes
    if dtype == "u64":  # a difference below 0 is the largest number there is
        number = call("sub", arg(0), const(5))
    else:
        less = call("lt", arg(0), const(50))
        number = call("select", less, call("sub", arg(0), const(90)), call("add", arg(0), arg(1)))
    ids, more = Access(1, dtype, (1, 0)), Access(2, dtype, (1, 0), 3)
    used = (ids, more)[: 1 + (dtype != "u64")]
    table = Access(0, "f32", (0, 1), lookups=(Lookup(used, number, dtype, width, 30),))
    column = Lookup((Access(3, dtype, (0, 1)),), call("sub", arg(0), const(1)), dtype, 1, width)
    turned = Access(0, "f32", (width, 0), lookups=(column,))  # varies along the lanes
    nest = Nest(
        sizes,
        (Stage(4, (0, 1), call("add", arg(0), arg(1)), (table, turned), "f32"),),
        (Store(Access(9, "f32", (width, 1)), 0, (0, 1)),),
    )
    check(nest, f"lookups{dtype}{rows_}", sizes={0: max(30, rows_) * width})


@pytest.mark.parametrize("machine", [MACHINE, AVX2], ids=["all", "avx2"])
@pytest.mark.parametrize("dtype", ["f32", "i8", "f64"])
@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("width", one_in(2, [39, 16, 5, 21]))
def test_elements_a_few_apart_come_out_of_whole_vectors(step, width, dtype, machine):
    """Every few elements of a row, and of one between pads: nothing behind the last is read."""
    sizes = (3, width)
    row = step * (width - 1) + 1
    plain = Access(0, dtype, (row, step))
    inside = Bound((0, step), -2, row)
    padded = Access(1, dtype, (row, step), -2, (inside,), 0)
    nest = Nest(
        sizes,
        (Stage(2, (0, 1), call("max", arg(0), arg(1)), (plain, padded), dtype),),
        (Store(Access(9, dtype, (width, 1)), 0, (0, 1)),),
    )
    plan = check(nest, f"apart{step}{width}{dtype}", machine)
    assert plan.work.strided == 0


@pytest.mark.parametrize("width", [14, 31])
def test_pooling_of_every_second_column_has_columns_in_its_lanes(width):
    sizes = (2, 9, width, 3, 3)
    inside = Bound((0, 2, 0, 1, 0), -1, 18), Bound((0, 0, 2, 0, 1), -1, 2 * width)
    read = Access(0, "f32", (36 * width, 4 * width, 2, 2 * width, 1), -2 * width - 1, inside, -1.0)
    nest = Nest(
        sizes,
        (Stage(1, (0, 1, 2), arg(0), (read,), "f32", "max", (3, 4)),),
        (Store(Access(9, "f32", (9 * width, width, 1, 0, 0)), 0, (0, 1, 2)),),
    )
    assert check(nest, f"pooled{width}").parts[0].vector == 2


WIDE = partial(pytest.param, marks=needs_kernels("avx512"))


@pytest.mark.parametrize(
    ("channels", "side_by_side"),
    [WIDE(32, 2), (64, 4), WIDE(48, 1), (130, 4), (40, 1)],
)
def test_pooling_between_pads_has_neighbouring_channels_in_its_lanes(channels, side_by_side):
    sizes = (4, 5, channels, 3, 3)
    inside = Bound((2, 0, 0, 1, 0), -1, 8), Bound((0, 2, 0, 0, 1), -1, 9)
    row, pixel = 9 * channels, channels
    steps = (2 * row, 2 * pixel, 1, row, pixel)
    read = Access(0, "f32", steps, -row - pixel, inside, -1.0)
    nest = Nest(
        sizes,
        (Stage(1, (0, 1, 2), arg(0), (read,), "f32", "max", (3, 4)),),
        (Store(Access(9, "f32", (5 * pixel, pixel, 1, 0, 0)), 0, (0, 1, 2)),),
    )
    part = check(nest, f"channels{channels}").parts[0]
    assert (part.vector, part.vectors) == (2, side_by_side)


def test_a_pack_fills_its_lanes():
    """[37, 40] in tiles of 16 columns: three of them, the last half open, read along the loop."""
    sizes = (3, 37, 16)
    inside = Bound((16, 0, 1), 0, 40)
    read = Access(0, "f32", (16, 40, 1), 0, (inside,), 0.0)
    nest = Nest(
        sizes,
        (Stage(1, (0, 1, 2), arg(0), (read,), "f32"),),
        (Store(Access(9, "f32", flat(sizes)), 0, (0, 1, 2)),),
    )
    check(nest, "pack")
    turned = Access(0, "f32", (16 * 37, 1, 37), 0, (inside,), 0.5)  # of the transposed operand
    nest = Nest(
        sizes,
        (Stage(1, (0, 1, 2), arg(0), (turned,), "f32"),),
        (Store(Access(9, "f32", flat(sizes)), 0, (0, 1, 2)),),
    )
    assert check(nest, "turned_pack").parts[0].square == 1


def test_pieces_of_a_concat_are_sections():
    """[5, 7 + 9]: two stores over loops of their own; and a row that both need."""
    pieces = (
        Stage(1, (0, 1), arg(0), (Access(0, "f32", (7, 1, 0)),), "f32"),
        Stage(2, (0, 2), call("abs", arg(0)), (Access(1, "f32", (9, 0, 1)),), "f32"),
    )
    stores = (
        Store(Access(9, "f32", (16, 1, 0)), 0, (0, 1)),
        Store(Access(9, "f32", (16, 0, 1), 7), 1, (0, 2)),
    )
    plan = check(Nest((5, 7, 9), pieces, stores), "concat")
    assert len(plan.parts) == 2


def test_masks_and_integers_in_bodies():
    """select(i <= j, x, -inf) with the indices read, and a cast of the mask."""
    sizes = (6, 21)
    i, j = Access(0, "i32", (1, 0)), Access(1, "i32", (0, 1))
    x = Access(2, "f32", (21, 1))
    masked = call("select", arg(0), arg(1), call("neg", arg(1)))
    nest = Nest(
        sizes,
        (
            Stage(3, (0, 1), call("le", arg(0), arg(1)), (i, j), "bool"),
            Stage(4, (0, 1), masked, (0, x), "f32"),
            Stage(5, (0,), cast(arg(0), "i32"), (0,), "i32", "add", (1,)),
        ),
        (
            Store(Access(9, "f32", (21, 1)), 1, (0, 1)),
            Store(Access(10, "bool", (21, 1)), 0, (0, 1)),
            Store(Access(11, "i32", (1, 0)), 2, (0,)),
        ),
    )
    check(nest, "masks")


def test_stages_that_pad_and_stores_that_cover_less():
    inside = Bound((0, 1), -2, 9)
    nest = Nest(
        (5, 14),
        (
            Stage(1, (0, 1), call("exp", arg(0)), (Access(0, "f32", (14, 1)),), "f32"),
            Stage(2, (0, 1), arg(0), (0,), "f32", bounds=(inside,), fill=1.5),
            Stage(3, (0,), arg(0), (1,), "f32", "add", (1,)),
        ),
        (
            Store(Access(9, "f32", (14, 1)), 1, (0, 1)),
            Store(Access(10, "f32", (9, 1), -2), 0, (0, 1), (inside,)),
            Store(Access(11, "f32", (1, 0)), 2, (0,)),
        ),
    )
    check(nest, "padded")


def test_a_roll_chooses_between_its_parts():
    nest = nest_of_text("""program p
        input x: f32[6, 20]
        a = slice(x, start=[0, 7], limit=[6, 20], stride=[1, 1])
        b = slice(x, start=[0, 0], limit=[6, 7], stride=[1, 1])
        r = concat(a, b, axis=1)
        e = generic(r, loops=[6, 20], maps=[[d0, d1]], body=exp(x0))
        y = generic(e, loops=[6, 20], rank=1, maps=[[d0, d1]], body=x0, combine=add)
        return y""")
    assert any(s.bounds and len(s.arguments) == 2 for s in nest.stages)
    check(nest, "roll")


def test_moves_of_any_type():
    for dtype in ("i8", "bf16", "f64"):
        check(moved((18, 19), (1, 0), dtype), f"moves{dtype}")


def test_nan_and_infinities_go_through_reductions():
    from fuzz import guarded

    nest = reduced((3, 40), (1,), "max")
    kernel = generate(nest, rows.plan(nest, MACHINE), MACHINE, "nans")
    x = np.zeros((3, 40), np.float32)
    x[0, 3], x[1, 39], x[2, 17] = np.nan, np.inf, -np.inf
    (found,) = guarded.run(kernel, MACHINE, [x], [((3,), np.float32)])
    np.testing.assert_array_equal(found, [np.nan, np.inf, 0])


def test_plans_are_data_and_work_grows_with_what_is_done():
    plan = rows.plan(layer_norm(64, 384), MACHINE)
    again = Plan.from_json(plan.to_json())
    assert again.parts == plan.parts and again.work == plan.work
    assert rows.plan(layer_norm(128, 384), MACHINE).work.scalar == 2 * plan.work.scalar
    assert "outer loops i0" in plan.to_text()


def test_what_kernels_of_rows_do_not_take():
    with pytest.raises(NoNest, match="no f8e5m2"):
        rows.plan(moved((4, 4), (1, 0), "f8e5m2"), MACHINE)
    with pytest.raises(NoNest, match="`rem` of f32 has no vector code"):
        rows.plan(moved((4, 4), (1, 0), body=call("rem", arg(0), arg(0))), MACHINE)
    with pytest.raises(NoNest, match="`exp` of f64"):
        rows.plan(moved((4, 4), (1, 0), "f64", call("exp", arg(0))), MACHINE)


@pytest.mark.parametrize("machine", [MACHINE, AVX2], ids=["avx512", "avx2"])
@pytest.mark.parametrize("channels", [1, 7, 8, 15, 16, 17, 48, 64, 65])
def test_pads_of_whole_vectors_are_not_loaded(channels, machine):
    """A load whose mask is empty takes fifty times as long where its address is no memory."""
    height, width, c = 4, 5, channels
    inside = (Bound((1, 0, 0), -2, height - 3), Bound((0, 1, 0), -1, width - 2))
    step = ((width - 2) * c, c, 1)
    base = -2 * step[0] - step[1]
    read = Access(0, "f32", step, base, inside, float("-inf"))
    stage = Stage(1, (0, 1, 2), arg(0), (read,), "f32")
    store = Store(Access(1, "f32", (width * c, c, 1)), 0, (0, 1, 2))
    nest = Nest((height, width, c), (stage,), (store,))
    plan = rows.plan(nest, machine)
    check(nest, f"padded{c}", machine, plan=plan, sizes={0: (height - 3) * (width - 2) * c})
    masked = "masked.load" in generate(nest, plan, machine, "padded").ir
    assert masked == bool(c % plan.parts[0].lanes)
