"""What was just written is not read back, and what was just read is not written back.

A dynamic_update_slice arrives as a choice by position between the update and what was there, a
dynamic_slice as a gather of the rows from a clamped start on. Of one start and one width, a read of
a write is the update, and a write of a read is the value itself. Exact, as the start is clamped.
Source: XLA's AlgebraicSimplifier (dynamic-slice of dynamic-update-slice, and the reverse).
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.affine import dim
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Generic
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.program import Builder, Program, prune
from eqsat.ops.generics.canonical import canonical_body, identity
from eqsat.ops.meaning.iotas import is_iota


@dataclass(frozen=True)
class _Block:
    """So many rows along a dim, from a clamped start on."""

    start: int  # the node that computes it
    axis: int
    width: int


def without_read_backs(program: Program) -> Program:
    """The program in which nothing is read that was just written, or written that was just read."""
    if not any(n.op == "gather" for n in program.nodes):
        return program
    b = Builder(program.name)
    new: dict[int, int] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        at = b.move(n, operands)
        found = _read_back(b, at)
        new[i] = at if found is None else found
    return prune(b.build([new[r] for r in program.results], program.symbols))


def _read_back(b: Builder, i: int) -> int | None:
    """What a node is that reads what was written, or writes what was read."""
    read = _read(b, i)
    if read is not None:
        value, block = read
        written = _write(b, value)
        return written[1] if written is not None and written[2] == block else None
    written = _write(b, i)
    if written is None:
        return None
    value, update, block = written
    return value if _read(b, update) == (value, block) else None


def _read(b: Builder, i: int) -> tuple[int, _Block] | None:
    """The value and the block of it that a gather reads from a clamped start on."""
    n = b.nodes[i]
    if n.op != "gather" or not isinstance(n.attr, Move):
        return None
    (axis,) = n.attr.args
    value, k = n.operands
    g = b.nodes[k].attr
    if not isinstance(g, Generic) or len(g.sizes) != 1 or len(g.maps) != 2:
        return None
    (width,) = g.sizes
    at = _line_and_start(b, k, 0)
    if at is None or g.body not in (call("add", arg(0), arg(1)), call("add", arg(1), arg(0))):
        return None
    start = b.nodes[k].operands[at[1]]
    extent = n.attr.sources[0][axis]
    return (value, _Block(start, axis, width)) if _room(b, start) == extent - width else None


def _write(b: Builder, i: int) -> tuple[int, int, _Block] | None:
    """The value, the update and where it goes of a choice by position."""
    n = b.nodes[i]
    g = n.attr
    if not isinstance(g, Generic) or len(g.yields) != 1 or g.rank != len(g.sizes) or g.tile:
        return None
    if g.body.fn != "select" or len(g.maps) != 4 or any(a.fn != "arg" for a in g.body.args[1:]):
        return None
    there, here = (a.value for a in g.body.args[1:])
    gather = b.nodes[n.operands[there]]
    if gather.op != "gather" or not isinstance(gather.attr, Move):
        return None
    (axis,) = gather.attr.args
    update, k = gather.operands
    width = gather.attr.sources[0][axis]
    at = _line_and_start(b, i, axis)
    same = identity(g.rank)
    if at is None or {there, here, *at} != {0, 1, 2, 3} or {g.maps[there], g.maps[here]} != {same}:
        return None
    start = n.operands[at[1]]
    inside = _inside(arg(at[0]), arg(at[1]), width)
    body = canonical_body(call("select", inside, arg(there), arg(here)))
    is_there = canonical_body(g.body) == body and _is_offset(b, k, start, width)
    if not is_there or _room(b, start) != g.sizes[axis] - width:
        return None
    return n.operands[here], update, _Block(start, axis, width)


def _inside(at: Expr, start: Expr, width: int) -> Expr:
    return call("and", call("ge", at, start), call("lt", at, call("add", start, const(width))))


def _line_and_start(b: Builder, i: int, axis: int) -> tuple[int, int] | None:
    """The operands of a generic that count its loop `axis`, and that are a start."""
    n = b.nodes[i]
    g = n.attr
    assert isinstance(g, Generic)
    lines = [j for j, o in enumerate(n.operands) if _is_line(b, o) and g.maps[j] == (dim(axis),)]
    starts = [j for j, m in enumerate(g.maps) if m == ()]
    is_whole = len(lines) == len(starts) == 1 and g.shapes[lines[0]] == (g.sizes[axis],)
    return (lines[0], starts[0]) if is_whole else None


def _is_line(b: Builder, i: int) -> bool:
    leaf = b.nodes[i].attr
    return b.nodes[i].op == "weight" and isinstance(leaf, Leaf) and is_iota(leaf)


def _is_offset(b: Builder, i: int, start: int, width: int) -> bool:
    """Whether a node is 0, 1, … less the start, within the update."""
    n = b.nodes[i]
    if not isinstance(n.attr, Generic) or len(n.attr.sizes) != 1 or len(n.operands) != 2:
        return False
    at = _line_and_start(b, i, 0)
    if at is None or n.operands[at[1]] != start:
        return False
    body = call("clamp", const(0), call("sub", arg(at[0]), arg(at[1])), const(width - 1))
    return n.attr.body == canonical_body(body)


def _room(b: Builder, i: int) -> int | None:
    """The largest value of a number that is clamped from 0 on; None if it is not."""
    g = b.nodes[i].attr
    if not isinstance(g, Generic) or g.sizes or len(g.yields) != 1:
        return None
    e = g.body.args[0] if g.body.fn == "cast" else g.body
    if e.fn != "clamp" or e.args[0] != const(0) or e.args[2].fn != "const":
        return None
    room = e.args[2].value
    return room if isinstance(room, int) and g.yields[0].dtype == "i32" else None
