"""What a plan of rows counts: each term that a clock has shown."""

from __future__ import annotations

import pytest
from test_kernel_math import MACHINE
from test_nest import nest_of_text

from eqsat.model.dispatch import Work
from eqsat.model.expr import arg, call
from eqsat.model.nest import Access, Bound, Lookup, Nest, Stage, Store
from eqsat.plan import rows
from eqsat.plan.storage import in_place

FLAT = "program p\ninput x: f32[4096]\ninput z: f32[4096]\n"
VECTORS = 4096 / MACHINE.lanes()
ROWS = 64 * 640 / MACHINE.lanes()  # vectors of 64 rows


def work(nest: Nest) -> Work:
    return rows.plan(nest, MACHINE).work


def of_body(body: str) -> Work:
    maps = "maps=[[d0], [d0]]"
    text = f"{FLAT}y = generic(x, z, loops=[4096], {maps}, body={body})\nreturn y\n"
    return work(nest_of_text(text))


def copied(sizes: tuple[int, ...], strides: tuple[int, ...], base: int = 0, *bounds: Bound) -> Nest:
    """A copy that is read by these strides, and written in order."""
    order = [1] * len(sizes)
    for i in reversed(range(len(sizes) - 1)):
        order[i] = order[i + 1] * sizes[i + 1]
    read = Access(0, "f32", strides, base, bounds, 0.0 if bounds else None)
    loops = tuple(range(len(sizes)))
    stage = Stage(1, loops, arg(0), (read,), "f32")
    return Nest(sizes, (stage,), (Store(Access(1, "f32", tuple(order)), 0, loops),))


def test_the_larger_of_two_is_dearer_than_that_of_one_and_a_number():
    """NaN if one is, and 0 above -0: four instructions; one where a number is known."""
    both, known = of_body("add(max(x0, x1), x1)"), of_body("add(max(x0, 0.5), x1)")
    assert both.scalar == 5 * VECTORS and known.scalar == 2 * VECTORS


@pytest.mark.parametrize(("how", "each"), [("add", 1), ("max", 2)])
def test_combining_the_largest_is_dearer_than_a_sum(how: str, each: int):
    one = f"y = generic(x, loops=[4096, 8], maps=[[d1, d0]], body=x0, combine={how}, rank=1)\n"
    nest = nest_of_text(f"program p\ninput x: f32[8, 4096]\n{one}return y\n")
    assert work(nest).scalar == each * 8 * VECTORS


def test_what_is_read_backwards_are_whole_vectors():
    back = work(copied((64, 640), (640, -1), 639))
    assert not back.strided
    assert (back.loads, back.scalar) == (2 * ROWS, ROWS)


def test_every_other_element_is_whole_vectors_and_a_shuffle():
    apart = work(copied((64, 640), (1280, 2)))
    assert not apart.strided
    assert (apart.loads, apart.scalar) == (3 * ROWS, ROWS)


def test_rows_between_pads_are_begun_twice():
    """What is inside, and what is not, are loops of their own."""
    bounds = Bound((0, 1), -1, 398)
    assert work(copied((64, 400), (398, 1), -1, bounds)).loops == 2 * 64
    assert work(copied((64, 40), (80, 1))).loops == 64


def test_far_rows_are_pages_where_memory_is_far():
    """Of columns 8,000 bytes apart, in a core's own cache nothing is waited for."""

    def summed(rows: int) -> Work:
        one = f"loops=[2000, {rows}], maps=[[d1, d0]], body=x0, combine=add, rank=1"
        text = f"program p\ninput x: f32[{rows}, 2000]\ny = generic(x, {one})\nreturn y\n"
        return work(nest_of_text(text))

    assert not summed(40).pages and summed(400).pages


def test_what_is_looked_up_along_a_row_shares_no_sets():
    """Its place is not known: no stride says that lines leave the caches."""
    at = Access(1, "i32", (64, 1))
    table = Access(0, "f32", (500, 0), 0, (), None, (Lookup((at,), arg(0), "i32", 1, 500),))
    stage = Stage(2, (0, 1), arg(0), (table,), "f32")
    nest = Nest((200, 64), (stage,), (Store(Access(2, "f32", (64, 1)), 0, (0, 1)),))
    found = work(nest)
    assert not found.pages and found.strided == 200 * 64


def test_in_place_only_what_changes_is_read_and_computed():
    """select(x1 < x2, x3, x0), x0 the old value, which is not read; the condition is one test."""
    old, new = Access(0, "f32", (256, 1)), Access(3, "f32", (256, 1))
    sides = (old, Access(1, "i32", (1, 0)), Access(2, "i32", (0, 0)), new)
    body = call("select", call("lt", arg(1), arg(2)), arg(3), arg(0))
    stage = Stage(4, (0, 1), body, sides, "f32")
    whole = Nest((8, 256), (stage,), (Store(Access(4, "f32", (256, 1)), 0, (0, 1)),))
    changed, copied = work(in_place(whole, 0, 4)), work(whole)
    vectors = 8 * 256 / MACHINE.lanes()
    assert (changed.loads, changed.scalar) == (2 * vectors, vectors)
    assert copied.scalar == 2 * vectors
    assert copied.loads == 3 * vectors + 8 * 2, "what stays along a row is read once for it"
