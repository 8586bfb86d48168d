"""Schedule → Schedule: parts of merged bodies as ops of their own, so that cuts may change between.

An elementwise op inside its reader saves memory traffic on one device. On a mesh it ties all
operands of the reader to one cut: of c + (a + b), with a and b cut otherwise than c, both are sent
where their sum would do. Here every part of a body that reads several operands is an op of the same
dispatch, over the loops that the part needs. It is computed where it was, and in no memory unless
it is sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from eqsat.model.affine import dim, map_loops
from eqsat.model.expr import BottomUp, Expr, arg, rebuilt
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import NONE
from eqsat.ops.generics.canonical import Operand, generic_node
from eqsat.ops.meaning.scalar import result_dtype


def with_parts_apart(schedule: Schedule) -> Schedule:
    """The schedule with such parts as members of its dispatches; itself if there are none."""
    program = schedule.program
    b = Builder(program.name)
    new: dict[int, int] = {}
    parts: dict[int, tuple[int, ...]] = {}
    for i, n in b.following(program, new):
        operands = tuple([new[o] for o in n.operands])
        if isinstance(n.attr, Generic) and _may_be_split(n.attr):
            parts[i], new[i] = _split(b, n.attr, operands)
        else:
            parts[i], new[i] = (), b.add(n.op, operands, n.attr)
    if not any(parts.values()):
        return schedule

    def among(some: Iterable[int]) -> tuple[int, ...]:
        return tuple([new[i] for i in some])

    def with_parts(some: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(p for i in some for p in (*parts[i], new[i])))

    return replace(
        schedule,
        program=b.build(among(program.results), program.symbols),
        dispatches=tuple(
            replace(d, members=with_parts(d.members), reads=among(d.reads), writes=among(d.writes))
            for d in schedule.dispatches
        ),
        buffers=tuple([replace(buffer, node=new[buffer.node]) for buffer in schedule.buffers]),
        ahead=with_parts(schedule.ahead),
        in_place=tuple([(new[a], new[o]) for a, o in schedule.in_place]),
        padded=tuple([(new[i], nbytes) for i, nbytes in schedule.padded]),
        narrowed=tuple([(new[i], dtype) for i, dtype in schedule.narrowed]),
    )


def _may_be_split(g: Generic) -> bool:
    plain = all(e.dim is not None for m in g.maps for e in m)
    return plain and len(g.yields) == 1 and not (g.tile or g.order or g.has_precision)


def _split(b: Builder, g: Generic, operands: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The parts of a generic, and the generic that reads them."""
    reads = list[Operand](zip(operands, g.maps, strict=True))
    (y,) = g.yields

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        made = rebuilt(e, args) if args else e
        is_whole = e is y.body and not y.combine
        part = None if is_whole or len(made.operands()) < 2 else _part(b, g, made, reads)
        if part is None:
            return made
        reads.append(part)
        return arg(len(reads) - 1)

    body = BottomUp(step)(y.body)
    parts = tuple([node for node, _ in reads[len(operands) :]])
    yields = [replace(y, body=body)]
    return parts, generic_node(b, g.sizes, range(g.rank), reads, yields, precision=g.precision)


def _part(b: Builder, g: Generic, body: Expr, reads: Sequence[Operand]) -> Operand | None:
    """The op that computes a part; None if its value is larger than all that it reads."""
    used = [reads[k] for k in body.operands()]
    loops = sorted(set[int]().union(*(map_loops(m) for _, m in used)))
    sizes = tuple([g.sizes[d] for d in loops])
    if math.prod(sizes) > max(b.type(node).size for node, _ in used):
        return None
    dtypes = [b.type(node).dtype for node, _ in reads]
    dtype = result_dtype(body, dtypes)
    assert dtype is not None, "operands have types"
    number = {d: k for k, d in enumerate(loops)}
    over = [(node, tuple([e.rename(number) for e in m])) for node, m in reads]
    return (
        generic_node(b, sizes, range(len(sizes)), over, [Yield(body, dtype)], precision=NONE),
        tuple(map(dim, loops)),
    )
