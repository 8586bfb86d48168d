"""Accesses composed through conversions, copies and moves, against what NumPy moves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from movement import Maker, do
from seeds import seeds

from eqsat.lang.programs import parse_program
from eqsat.model.attr import Attr, Shape
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom
from eqsat.model.movement import Reshape, Transpose
from eqsat.ops.generics.access import Computed, Index, LaneAccess, access, seen_as, through
from eqsat.ops.movement.moves import concat_of, gather_of, slice_of

Step = tuple[str, Attr, Shape]  # an op and the shape of the operand it reads


def at(index: Index, point: tuple[int, ...]) -> int | None:
    """The value of an index where the loops are at a point; None where nobody can say."""
    total = 0
    for d in index:
        source = point[d.source] if isinstance(d.source, int) else computed(d.source, point)
        if source is None:
            return None
        total = total * d.extent + source // d.div % d.extent
    return total


def computed(c: Computed, point: tuple[int, ...]) -> int | None:
    inner = at(c.parts[0], point) if c.how == "shift" else None
    return None if inner is None else c.offset + c.stride * inner


def whole(shape: Shape) -> LaneAccess:
    found = access("reshape", Reshape(shape, shape), 0, shape)
    assert found is not None
    return found


def composed(steps: list[Step], top: Shape) -> LaneAccess:
    """What is read of the operand of the first step by an op that walks the last one in order."""
    found: LaneAccess | None = whole(top)
    for op, attr, shape in reversed(steps):
        assert found is not None
        found = through(found, op, attr, 0, shape)
    assert found is not None
    return found


def step(make: Maker, shape: Shape) -> tuple[str, Attr]:
    match make.int(0, 5):
        case 0:
            return "transpose", Transpose(shape, make.perm(len(shape)))
        case 1:
            return "pack", make.layout(shape, ("0",))
        case 2:
            return "slice", make.slice(shape)
        case 3:
            return "pad", make.pad(shape)
        case 4:
            flat = math.prod(shape)
            rows = next((r for r in (4, 3, 2) if flat % r == 0), 1)
            return "reshape", Reshape(shape, (rows, flat // rows))
    axis = make.int(0, len(shape) - 1)
    other = (*shape[:axis], 2, *shape[axis + 1 :])
    return "concat", concat_of([shape, other], axis)


@pytest.mark.parametrize("seed", seeds(8, 80))
def test_what_is_composed_is_what_is_read(seed: int):
    make = Maker(seed)
    shape = make.shape(1, 3)
    base = np.arange(100.0, 100 + math.prod(shape)).reshape(shape)  # paddings are below
    value, steps = base, list[Step]()
    for _ in range(make.int(1, 4)):
        op, attr = step(make, value.shape)
        if op == "concat":
            assert hasattr(attr, "sources")
            more = do(op, attr, value, np.zeros(attr.sources[1]))
        else:
            more = do(op, attr, value)
        if not 0 < more.size < 300 or more.ndim > 5:
            break
        steps.append((op, attr, value.shape))
        value = more
    found = composed(steps, value.shape)
    known = 0
    for point in itertools.product(*map(range, value.shape)):
        place = [at(i, point) for i in found.indices]
        inside = None not in place and all(
            0 <= p < s for p, s in zip(place, shape, strict=True) if p is not None
        )
        if inside and value[point] >= 100:
            known += 1
            assert base[tuple(p for p in place if p is not None)] == value[point]
    if found.relation != "any":
        assert known or not (value >= 100).any()


def twice(op: str, attr: Attr, back: str, undo: Attr, shape: Shape, between: Shape) -> str:
    return composed([(op, attr, shape), (back, undo, between)], shape).relation


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_there_and_back_is_the_identity(seed: int):
    make = Maker(seed)
    shape = make.shape(1, 4)
    perm = make.perm(len(shape))
    turned = Transpose(shape, perm)
    back = Transpose(turned.result_shape, tuple(perm.index(d) for d in range(len(perm))))
    assert twice("transpose", turned, "transpose", back, shape, turned.result_shape) == "identity"
    packed = make.layout(shape)
    assert twice("pack", packed, "unpack", packed, shape, packed.packed_shape) == "identity"
    shaped = make.reshape()
    undone = Reshape(shaped.shape, shaped.source)
    there = twice("reshape", shaped, "reshape", undone, shaped.source, shaped.shape)
    assert there == "identity"
    padded = make.pad(shape)
    low = padded.args[0]
    limit = [a + s for a, s in zip(low, shape, strict=True)]
    cut = slice_of(padded.shape, low, limit, [1] * len(shape))
    assert twice("pad", padded, "slice", cut, shape, padded.shape) == "identity"


def test_a_shape_is_no_access():
    """Flat or not, an elementwise op reads in order."""
    assert seen_as(whole((4096,)), (4096,), (64, 64)).relation == "identity"
    assert seen_as(whole((64, 64)), (64, 64), (4096,)).relation == "identity"
    assert seen_as(whole((4, 16, 64)), (4, 16, 64), (64, 64)).relation == "identity"


def test_windows_and_diagonals_are_any():
    def relation(loops: str, reads: str, shape: str) -> str:
        text = f"input x: f32{shape}\ny = generic(x, loops={loops}, maps=[{reads}], body=x0)\n"
        node = parse_program(f"{text}return y\n").nodes[1]
        found = access(node.op, node.attr, 0, tuple(map(int, shape.strip("[]").split(","))))
        assert found is not None
        return found.relation

    assert relation("[4, 4]", "[d0, d1]", "[4, 4]") == "identity"
    assert relation("[4, 4]", "[d1, d0]", "[4, 4]") == "permutation"
    assert relation("[4, 4]", "[d1]", "[4]") == "permutation"
    assert relation("[4, 4]", "[2*d1 + 1, d0]", "[9, 4]") == "permutation"
    assert relation("[4, 4]", "[d0 + d1]", "[7]") == "any"
    assert relation("[4, 4]", "[d0, d0]", "[4, 4]") == "any"


def test_padding_of_the_outer_dim_is_read_in_step_in_any_shape():
    """Rows beyond the last one do not tell the shapes of a value apart."""
    packed = access("pack", Layout((3, 40), (0,), (4,), (0, 1), ("any",)), 0, (3, 40))
    assert packed is not None
    for made in ((3, 40), (3, 20, 2), (1, 3, 8, 5)):
        found = seen_as(packed, (3, 40), made)
        assert found.is_in_step((0, 2, 1), range(len(made)))
        assert not found.is_in_step((0, 1, 2), range(len(made)))
    inner = access("pack", Layout((40, 3), (1,), (4,), (0, 1), ("any",)), 0, (40, 3))
    assert inner is not None
    assert not seen_as(inner, (40, 3), (20, 2, 3)).is_in_step((0, 1, 2), range(3))


def test_a_lookup_by_bare_loops_is_a_permutation():
    rows = gather_of((8, 16, 32), (5,), 0)
    read = whole((5, 16, 32))
    table = through(read, "gather", rows, 0, (8, 16, 32))
    indices = through(read, "gather", rows, 1, (5,))
    assert table is not None
    assert table.relation == "permutation"
    assert indices is not None
    assert indices.relation == "permutation"
    packed = Layout((5, 16, 32), (1, 2), (16, 16), (0, 1, 2), ("-", "-"))
    above = through(whole(packed.packed_shape), "pack", packed, 0, packed.source)
    assert above is not None
    through_pack = through(above, "gather", rows, 0, (8, 16, 32))
    assert through_pack is not None
    assert through_pack.relation == "permutation"


@pytest.mark.parametrize("fusion", ["elementwise", "move", "opaque"])
def test_only_an_elementwise_op_of_a_plug_in_is_known_to_read_in_step(fusion: str) -> None:
    """One that rolls its operand has a result of its shape, too."""
    found = access("roll", Custom("roll", ((4, 3),), (), (4, 3), fusion=fusion), 0, (4, 3))
    assert (found == whole((4, 3))) == (fusion == "elementwise")
