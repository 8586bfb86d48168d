"""Respellings of how ops read and write: maps, transposes, slices, reshapes, dims of extent 1."""

from __future__ import annotations

import random
from collections.abc import Callable

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Transpose
from eqsat.model.program import Builder, Program
from eqsat.ops.generics.canonical import Operand, compose_maps, identity
from fuzz.edit import (
    generics,
    inverse,
    is_elementwise,
    nest,
    operand_places,
    operands_of,
    reshaped,
    rewritten,
    shuffled,
    transposed,
    with_operand,
)


def map_for_transpose(p: Program, rng: random.Random) -> Program | None:
    """A transpose becomes a generic that reads by a permuted map."""
    found = [i for i, n in enumerate(p.nodes) if isinstance(n.attr, Transpose)]
    if not found:
        return None
    i = rng.choice(found)
    t = p.nodes[i].attr
    assert isinstance(t, Transpose)
    m = tuple(dim(at) for at in inverse(t.perm))
    return rewritten(p, {i: _copy(t.result_shape, m, p.nodes[i].type.dtype)})


def map_for_slice(p: Program, rng: random.Random) -> Program | None:
    """A slice becomes a generic that reads from an offset and in steps."""
    found = [i for i, n in enumerate(p.nodes) if n.op == "slice" and 0 not in n.type.shape]
    if not found:
        return None
    i = rng.choice(found)
    move = p.nodes[i].attr
    assert isinstance(move, Move)
    start, _, stride = move.args
    m = tuple(
        Affine(((d, s),), a) for d, (a, s) in enumerate(zip(start, stride, strict=True))
    )  # fmt: skip
    return rewritten(p, {i: _copy(move.shape, m, p.nodes[i].type.dtype)})


def _copy(shape: Shape, m: Map, dtype: str) -> Callable[[Builder, tuple[int, ...]], int]:
    return lambda b, xs: nest(b, shape, range(len(shape)), [(xs[0], m)], Yield(arg(0), dtype))


def transpose_for_map(p: Program, rng: random.Random) -> Program | None:
    """A generic reads an operand transposed, by a map that undoes it."""
    places = operand_places(p, lambda g, m: len(m) > 1)
    if not places:
        return None
    i, k = rng.choice(places)
    perm = shuffled(rng, len(operands_of(p, i)[1].maps[k]))

    def write(b: Builder, x: int, m: Map) -> Operand:
        return transposed(b, x, perm), tuple(m[d] for d in perm)

    return with_operand(p, i, k, write)


def transpose_into_map(p: Program, rng: random.Random) -> Program | None:
    """A generic that reads a transposed value reads the value itself, by a permuted map."""
    places = [(i, k) for i, k in operand_places(p, lambda g, m: len(m) > 1)
              if isinstance(p.nodes[p.nodes[i].operands[k]].attr, Transpose)]  # fmt: skip
    if not places:
        return None
    i, k = rng.choice(places)
    t = p.nodes[p.nodes[i].operands[k]].attr
    assert isinstance(t, Transpose)
    back = inverse(t.perm)

    def write(b: Builder, x: int, m: Map) -> Operand:
        return b.nodes[x].operands[0], tuple(m[d] for d in back)

    return with_operand(p, i, k, write)


def result_transposed(p: Program, rng: random.Random) -> Program | None:
    """A generic writes its result in another order of dims, and a transpose puts it right."""
    found = generics(p, lambda g: g.rank > 1)
    if not found:
        return None
    i = rng.choice(found)
    _, g = operands_of(p, i)
    perm = shuffled(rng, g.rank)

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        y = nest(b, g.sizes, perm, reads, g.yields[0], g.precision)
        return transposed(b, y, inverse(perm))

    return rewritten(p, {i: write})


def broadcast(p: Program, rng: random.Random) -> Program | None:
    """An operand that a generic broadcasts is written out in all the loops of the result."""
    places = operand_places(p, lambda g, m: is_elementwise(g) and 0 < len(m) < g.rank)
    if not places:
        return None
    i, k = rng.choice(places)
    _, g = operands_of(p, i)

    def write(b: Builder, x: int, m: Map) -> Operand:
        made = Yield(arg(0), b.type(x).dtype)
        return nest(b, g.sizes, range(g.rank), [(x, m)], made), identity(g.rank)

    return with_operand(p, i, k, write)


def loops_collapsed(p: Program, rng: random.Random) -> Program | None:
    """Two loops that all operands hold side by side become one, between reshapes."""
    places = [(i, d) for i in generics(p, lambda g: g.rank > 1)
              for d in range(operands_of(p, i)[1].rank - 1)
              if _are_together(operands_of(p, i)[1], d)]  # fmt: skip
    if not places:
        return None
    i, d = rng.choice(places)
    _, g = operands_of(p, i)
    new = [dim(e - (e > d)) for e in range(len(g.sizes))]

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads: list[Operand] = []
        for x, m, s in zip(xs, g.maps, g.shapes, strict=True):
            if d not in _loops(m):
                reads.append((x, compose_maps(m, new)))
                continue
            at = [e.dim for e in m].index(d)
            flat = reshaped(b, x, (*s[:at], s[at] * s[at + 1], *s[at + 2 :]))
            reads.append((flat, compose_maps((*m[: at + 1], *m[at + 2 :]), new)))
        sizes = (*g.sizes[:d], g.sizes[d] * g.sizes[d + 1], *g.sizes[d + 2 :])
        y = nest(b, sizes, range(g.rank - 1), reads, g.yields[0], g.precision)
        return reshaped(b, y, g.result_shape)

    return rewritten(p, {i: write})


def _loops(m: Map) -> set[int]:
    return {d for e in m for d, _ in e.terms}


def _are_together(g: Generic, d: int) -> bool:
    """Whether every operand that reads loop d or d + 1 reads whole dims by both, side by side."""
    for m, s in zip(g.maps, g.shapes, strict=True):
        if not _loops(m) & {d, d + 1}:
            continue
        dims = [e.dim for e in m]
        if dims.count(d) != 1 or dims.count(d + 1) != 1 or dims.index(d) + 1 != dims.index(d + 1):
            return False
        at = dims.index(d)
        whole = s[at : at + 2] == g.sizes[d : d + 2]
        rest = _loops((*m[:at], *m[at + 2 :]))
        if not whole or rest & {d, d + 1}:
            return False
    return True


def unit_dims(p: Program, rng: random.Random) -> Program | None:
    """A generic runs over one more loop of extent 1, which is the first dim of all it reads."""
    found = generics(p, lambda g: bool(g.maps))
    if not found:
        return None
    i = rng.choice(found)
    _, g = operands_of(p, i)
    new = [dim(d + 1) for d in range(len(g.sizes))]

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = [
            (reshaped(b, x, (1, *s)), (dim(0), *compose_maps(m, new)))
            for x, m, s in zip(xs, g.maps, g.shapes, strict=True)
        ]
        y = nest(b, (1, *g.sizes), range(g.rank + 1), reads, g.yields[0], g.precision)
        return reshaped(b, y, g.result_shape)

    return rewritten(p, {i: write})
