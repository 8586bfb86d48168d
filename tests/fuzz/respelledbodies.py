"""Respellings of what ops compute, and where: bodies, operands, values, steps, lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from eqsat.model.affine import Map, dim
from eqsat.model.expr import Expr, arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Builder, Program
from eqsat.ops.generics.canonical import compose_maps, identity
from fuzz.edit import (
    edges,
    generics,
    is_elementwise,
    nest,
    on_edge,
    operand_places,
    operands_of,
    reshaped,
    rewritten,
    shuffled,
)

EXACT = ("max", "min", "and", "or")  # combines that may be taken in any order


def operands_swapped(p: Program, rng: random.Random) -> Program | None:
    """A generic names its operands in another order."""
    found = generics(p, lambda g: len(g.maps) > 1)
    if not found:
        return None
    i = rng.choice(found)
    return rewritten(p, {i: _swapped(p, i, shuffled(rng, len(operands_of(p, i)[1].maps)))})


def _swapped(
    p: Program, i: int, order: Sequence[int]
) -> Callable[[Builder, tuple[int, ...]], int]:  # fmt: skip
    _, g = operands_of(p, i)
    y = g.yields[0]
    body = y.body.substitute({o: arg(at) for at, o in enumerate(order)})

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = [(xs[o], g.maps[o]) for o in order]
        made = Yield(body, y.dtype, y.combine)
        return nest(b, g.sizes, range(g.rank), reads, made, g.precision)

    return write


def split_elementwise(p: Program, rng: random.Random) -> Program | None:
    """An elementwise op becomes two: what is computed inside of its body comes first."""
    found = generics(p, lambda g: is_elementwise(g) and bool(_inner(g)))
    if not found:
        return None
    i = rng.choice(found)
    _, g = operands_of(p, i)
    inner = rng.choice(_inner(g))
    n = len(g.maps)

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        x = nest(b, g.sizes, range(g.rank), reads, Yield(inner, g.yields[0].dtype))
        args = [arg(n) if a is inner else a for a in g.body.args]
        body = Expr(g.body.fn, tuple(args), g.body.value)
        reads.append((x, identity(g.rank)))
        used = sorted(body.operands())
        body = body.substitute({o: arg(at) for at, o in enumerate(used)})
        made = Yield(body, g.yields[0].dtype)
        return nest(b, g.sizes, range(g.rank), [reads[o] for o in used], made)

    return rewritten(p, {i: write})


def _inner(g: Generic) -> list[Expr]:
    """Parts of a body of one element type that are computed, directly below its last operation."""
    if len({*g.dtypes, g.yields[0].dtype}) > 1 or any(e.fn == "cast" for e in g.body.walk()):
        return []
    if g.body.fn in ("select", "lt", "le", "gt", "ge", "eq", "ne"):
        return []
    return [a for a in g.body.args if a.args]


def merged_elementwise(p: Program, rng: random.Random) -> Program | None:
    """An elementwise op is computed inside of the only one that reads it, over the same loops."""
    return _merged(p, rng, is_shared=False)


def recomputed(p: Program, rng: random.Random) -> Program | None:
    """An elementwise op is computed inside of one that reads it, and by itself for the others."""
    return _merged(p, rng, is_shared=True)


def _merged(p: Program, rng: random.Random, is_shared: bool) -> Program | None:
    places = [(i, k) for i, k in operand_places(p, _reads_all)
              if _is_plain(p, p.nodes[i].operands[k])
              and (p.uses[p.nodes[i].operands[k]] > 1) == is_shared]  # fmt: skip
    if not places:
        return None
    i, k = rng.choice(places)
    node, g = operands_of(p, i)
    _, inner = operands_of(p, node.operands[k])
    n = len(g.maps)

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        below = b.nodes[xs[k]].operands
        reads += [(x, compose_maps(m, g.maps[k])) for x, m in zip(below, inner.maps, strict=True)]
        part = inner.body.substitute({o: arg(n + o) for o in inner.body.operands()})
        body = g.body.substitute({k: part})
        used = sorted(body.operands())
        body = body.substitute({o: arg(at) for at, o in enumerate(used)})
        made = Yield(body, g.yields[0].dtype, g.yields[0].combine)
        kept = [reads[o] for o in used]
        return nest(b, g.sizes, range(g.rank), kept, made, g.precision)

    return rewritten(p, {i: write})


def _reads_all(g: Generic, m: Map) -> bool:
    """Whether an operand is read by all loops, so that nothing of it is computed more often."""
    return not g.has_precision and sorted(e.dim or 0 for e in m) == list(range(len(g.sizes)))


def _is_plain(p: Program, i: int) -> bool:
    g = p.nodes[i].attr
    return isinstance(g, Generic) and len(g.yields) == 1 and is_elementwise(g) and bool(g.maps)


def duplicated(p: Program, rng: random.Random) -> Program | None:
    """A value with several uses is computed once more for one of them, its operands swapped."""
    uses = [e for e in edges(p, 0, is_computed=True) if e[0] >= 0]
    uses = [(i, k) for i, k in uses if p.uses[p.nodes[i].operands[k]] > 1]
    if not uses:
        return None
    edge = rng.choice(uses)
    o = p.nodes[edge[0]].operands[edge[1]]

    def insert(b: Builder, x: int) -> int:
        n = b.nodes[x]
        g = n.attr
        if isinstance(g, Generic) and len(g.yields) == 1 and len(g.maps) > 1 and not g.tile:
            return _swapped(p, o, tuple(reversed(range(len(g.maps)))))(b, n.operands)
        return b.append(n.op, n.operands, n.attr)

    return on_edge(p, edge, insert)


def two_step_extremum(p: Program, rng: random.Random) -> Program | None:
    """A maximum, minimum, conjunction or disjunction is taken of parts, and then of the parts'."""
    return _in_two_steps(p, rng, EXACT)


def two_step_sum(p: Program, rng: random.Random) -> Program | None:
    """A sum is a sum of parts' sums: equal up to rounding."""
    return _in_two_steps(p, rng, ("add",))


def _in_two_steps(p: Program, rng: random.Random, combines: Sequence[str]) -> Program | None:
    found = [i for i in generics(p, lambda g: len(g.maps) == 1 and g.combine in combines)
             if _step(operands_of(p, i)[1])]  # fmt: skip
    if not found:
        return None
    i = rng.choice(found)
    _, g = operands_of(p, i)
    at, y, last = _step(g), g.yields[0], len(g.sizes) - 1
    parts = rng.choice([n for n in (2, 4, 8) if g.sizes[last] % n == 0])
    k = at - 1

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        s = g.shapes[0]
        x = reshaped(b, xs[0], (*s[:k], parts, s[k] // parts, *s[k + 1 :]))
        sizes = (*g.sizes[:last], parts, g.sizes[last] // parts)
        m = (*g.maps[0][:k], dim(last), dim(last + 1), *g.maps[0][k + 1 :])
        first = nest(b, sizes, (*range(g.rank), last), [(x, m)], y)
        rest = (*g.sizes[: g.rank], parts)
        second = Yield(arg(0), y.dtype, y.combine)
        return nest(b, rest, range(g.rank), [(first, identity(g.rank + 1))], second)

    return rewritten(p, {i: write})


def _step(g: Generic) -> int:
    """One more than the operand's dim that the last loop runs over alone; 0 if it cannot be cut."""
    dims = [e.dim for e in g.maps[0]]
    last = len(g.sizes) - 1
    if dims.count(last) != 1 or g.sizes[last] % 2 or g.rank == len(g.sizes):
        return 0
    at = dims.index(last)
    alone = all(last not in dict(e.terms) for j, e in enumerate(g.maps[0]) if j != at)
    return at + 1 if alone and g.shapes[0][at] == g.sizes[last] else 0


def lines_reordered(p: Program, rng: random.Random) -> Program | None:
    """The lines stand in another order, as far as every value comes before its readers."""
    b = Builder(p.name)
    new: dict[int, int] = {}
    left = list(range(len(p.nodes)))
    while left:
        ready = [i for i in left if all(o in new for o in p.nodes[i].operands)]
        i = rng.choice(ready)
        left.remove(i)
        n = p.nodes[i]
        new[i] = b.append(n.op, tuple(new[o] for o in n.operands), n.attr)
    return b.build([new[r] for r in p.results], p.symbols)
