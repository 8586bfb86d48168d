"""Equal loop nests are equal records."""

from __future__ import annotations

import itertools

import pytest

from eqsat.model.affine import affine, dim
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.generic import Yield
from eqsat.model.leaves import Leaf
from eqsat.model.program import Builder
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import (
    canonical_body,
    canonical_generic,
    compose_maps,
    generic_node,
    identity,
)


def builder(*types: str) -> Builder:
    b = Builder("p")
    for i, t in enumerate(types):
        b.add("input", (), Leaf(f"x{i}", TensorType.parse(t), index=i))
    return b


MUL = Yield(call("mul", arg(0), arg(1)), "f32", "add")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_loop_numbers_do_not_matter(order):
    m, n, k = order  # the numbers a caller gave to the loops
    sizes = [0, 0, 0]
    sizes[m], sizes[n], sizes[k] = 4, 5, 6
    maps = [(dim(m), dim(k)), (dim(k), dim(n))]
    got = canonical_generic(sizes, [m, n], maps, [(4, 6), (6, 5)], [MUL], precision="default")
    assert got.sizes == (4, 5, 6)
    assert got.maps == ((dim(0), dim(2)), (dim(2), dim(1)))


def test_operand_order_of_commutative_bodies_does_not_matter():
    b = builder("f32[4, 6]", "f32[6, 5]")
    lhs, rhs = (0, (dim(0), dim(2))), (1, (dim(2), dim(1)))
    one = generic_node(b, [4, 5, 6], [0, 1], [lhs, rhs], [MUL], precision="default")
    two = generic_node(b, [4, 5, 6], [0, 1], [rhs, lhs], [MUL], precision="default")
    assert one == two
    assert b.nodes[one].operands == (0, 1)


def test_order_of_operands_that_are_not_commutative_stays():
    b = builder("f32[4]", "f32[4]")
    y = Yield(call("sub", arg(0), arg(1)), "f32")
    ab = generic_node(b, [4], [0], [(0, identity(1)), (1, identity(1))], [y], precision="default")
    ba = generic_node(b, [4], [0], [(1, identity(1)), (0, identity(1))], [y], precision="default")
    assert ab != ba


def test_casts_travel_with_their_operand():
    b = builder("f16[4]", "f32[4]")
    y = Yield(call("mul", cast(arg(0), "f32"), arg(1)), "f32")
    swapped = Yield(call("mul", arg(0), cast(arg(1), "f32")), "f32")
    xs = [(0, identity(1)), (1, identity(1))]
    assert generic_node(b, [4], [0], xs, [y], precision="default") == generic_node(
        b, [4], [0], xs[::-1], [swapped], precision="default"
    )


def test_equal_operands_are_merged_and_unread_ones_dropped():
    b = builder("f32[4]", "f32[4]")
    xs = [(0, identity(1)), (1, identity(1)), (0, identity(1))]
    node = b.nodes[
        generic_node(
            b, [4], [0], xs, [Yield(call("mul", arg(0), arg(2)), "f32")], precision="default"
        )
    ]
    assert node.operands == (0,)
    assert node.attr.body == call("mul", arg(0), arg(0))  # type: ignore[attr-defined]


def test_a_copy_of_an_operand_is_the_operand():
    b = builder("f32[4, 1]")
    assert (
        generic_node(
            b, [4, 1], [0, 1], [(0, identity(2))], [Yield(arg(0), "f32")], precision="default"
        )
        == 0
    )
    broadcast = generic_node(
        b, [4, 3], [0, 1], [(0, (dim(0), affine([])))], [Yield(arg(0), "f32")], precision="default"
    )
    assert broadcast != 0


def test_loops_of_extent_one_leave_sums():
    maps = [(affine([(0, 2), (1, 1)]),)]
    g = canonical_generic(
        [5, 1], [0], maps, [(9,)], [Yield(arg(0), "f32", "add")], precision="default"
    )
    assert g.sizes == (5,)
    assert g.combine == ""
    assert g.maps == ((affine([(0, 2)]),),)


def test_constants_come_last_in_bodies():
    assert canonical_body(call("mul", const(2.0), arg(0))) == call("mul", arg(0), const(2.0))
    assert canonical_body(call("sub", const(2.0), arg(0))) == call("sub", const(2.0), arg(0))
    one = call("add", call("exp", arg(1)), arg(0))
    assert canonical_body(one) == call("add", arg(0), call("exp", arg(1)))


def test_compose_puts_maps_into_maps():
    inner = (affine([(0, 1), (1, 2)], 3),)
    assert compose_maps(inner, [dim(3), affine([(1, -1)], 4)]) == (affine([(1, -2), (3, 1)], 11),)
