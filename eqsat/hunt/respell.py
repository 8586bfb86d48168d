"""Programs that compute the same, written in another way: one respelling of a random place.

Each respelling takes a program and a source of random draws, and gives the program back with one
place written differently, or None if the program has no such place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from eqsat.hunt.edit import (
    edges,
    generics,
    inverse,
    is_elementwise,
    moved,
    nest,
    on_edge,
    operands_of,
    plain,
    reshaped,
    rewritten,
    shuffled,
    transposed,
)
from eqsat.model.affine import Affine, Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.movement import Move, Transpose
from eqsat.model.program import Builder, Program
from eqsat.ops.canonical import Operand, compose, identity
from eqsat.ops.tiling import make_layout

Respelling = Callable[[Program, random.Random], Program | None]
TILES = ((8, 4), (16, 1), (16, 16), (4, 8), (8, 1))
EXACT = ("max", "min", "and", "or")  # combines that may be taken in any order


# ---- identities on an edge -----------------------------------------------------------------------
def transposes(p: Program, rng: random.Random) -> Program | None:
    """A value is transposed and transposed back where it is read."""

    def insert(b: Builder, x: int) -> int:
        perm = shuffled(rng, b.type(x).rank)
        return transposed(b, transposed(b, x, perm), inverse(perm))

    return _on_some_edge(p, rng, insert, rank=2)


def reshapes(p: Program, rng: random.Random) -> Program | None:
    """A value is reshaped and reshaped back: two dims become one, or all."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        at = rng.randrange(len(s) - 1)
        flat = (b.type(x).size,)
        shape = rng.choice([flat, (*s[:at], s[at] * s[at + 1], *s[at + 2 :]), (1, *s)])
        return reshaped(b, reshaped(b, x, shape), s)

    return _on_some_edge(p, rng, insert, rank=2)


def slices_and_concat(p: Program, rng: random.Random) -> Program | None:
    """A value is cut into two or four parts, and these are put together again."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        axis = rng.randrange(len(s))
        count = min(rng.choice((2, 2, 4)), s[axis])
        cuts = [s[axis] * n // count for n in range(count + 1)]
        parts = tuple(_part(b, x, axis, cuts[n], cuts[n + 1]) for n in range(count))
        return moved(b, "concat", parts, axis)

    return _on_some_edge(p, rng, insert)


def _part(b: Builder, x: int, axis: int, start: int, limit: int) -> int:
    s = b.type(x).shape
    starts, limits = [0] * len(s), list(s)
    starts[axis], limits[axis] = start, limit
    return moved(b, "slice", (x,), tuple(starts), tuple(limits), (1,) * len(s))


def pad_and_slice(p: Program, rng: random.Random) -> Program | None:
    """A value is padded by zeros, and they are cut off."""

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        low, high = [0] * len(s), [0] * len(s)
        axis = rng.randrange(len(s))
        low[axis], high[axis] = rng.choice(((0, 8), (8, 0), (3, 5), (0, 1)))
        padded = moved(b, "pad", (x,), tuple(low), tuple(high), "0.0")
        limit = tuple(a + d for a, d in zip(low, s, strict=True))
        return moved(b, "slice", (padded,), tuple(low), limit, (1,) * len(s))

    return _on_some_edge(p, rng, insert)


def neutral_ops(p: Program, rng: random.Random) -> Program | None:
    """A copy, a product with one, or two negations."""
    x = arg(0)
    product = call("mul", x, const(1.0))
    bodies = rng.choice(
        [(x,), (product,), (call("neg", call("neg", x)),), (call("neg", x),) * 2,
         (call("sub", x, const(0.0)),)]
    )  # fmt: skip

    def insert(b: Builder, x: int) -> int:
        for body in bodies:
            x = plain(b, x, body)
        return x

    return _on_some_edge(p, rng, insert)


def packs(p: Program, rng: random.Random) -> Program | None:
    """A value is packed and unpacked, with zeros where tiles do not divide its last two dims."""
    tiles = rng.choice(TILES)

    def insert(b: Builder, x: int) -> int:
        s = b.type(x).shape
        layout = make_layout(s, (len(s) - 2, len(s) - 1), tiles, range(len(s)), "00")
        return b.append("unpack", (b.append("pack", (x,), layout),), layout)

    return _on_some_edge(p, rng, insert, rank=2)


def _on_some_edge(
    p: Program, rng: random.Random, insert: Callable[[Builder, int], int], rank: int = 1
) -> Program | None:
    found = edges(p, rank)
    return on_edge(p, rng.choice(found), insert) if found else None


# ---- maps and movement ---------------------------------------------------------------------------
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
    places = _operand_places(p, lambda g, m: len(m) > 1)
    if not places:
        return None
    i, k = rng.choice(places)
    perm = shuffled(rng, len(operands_of(p, i)[1].maps[k]))

    def write(b: Builder, x: int, m: Map) -> Operand:
        return transposed(b, x, perm), tuple(m[d] for d in perm)

    return _with_operand(p, i, k, write)


def transpose_into_map(p: Program, rng: random.Random) -> Program | None:
    """A generic that reads a transposed value reads the value itself, by a permuted map."""
    places = [(i, k) for i, k in _operand_places(p, lambda g, m: len(m) > 1)
              if isinstance(p.nodes[p.nodes[i].operands[k]].attr, Transpose)]  # fmt: skip
    if not places:
        return None
    i, k = rng.choice(places)
    t = p.nodes[p.nodes[i].operands[k]].attr
    assert isinstance(t, Transpose)
    back = inverse(t.perm)

    def write(b: Builder, x: int, m: Map) -> Operand:
        return b.nodes[x].operands[0], tuple(m[d] for d in back)

    return _with_operand(p, i, k, write)


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
    places = _operand_places(p, lambda g, m: is_elementwise(g) and 0 < len(m) < g.rank)
    if not places:
        return None
    i, k = rng.choice(places)
    _, g = operands_of(p, i)

    def write(b: Builder, x: int, m: Map) -> Operand:
        made = Yield(arg(0), b.type(x).dtype)
        return nest(b, g.sizes, range(g.rank), [(x, m)], made), identity(g.rank)

    return _with_operand(p, i, k, write)


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
                reads.append((x, compose(m, new)))
                continue
            at = [e.dim for e in m].index(d)
            flat = reshaped(b, x, (*s[:at], s[at] * s[at + 1], *s[at + 2 :]))
            reads.append((flat, compose((*m[: at + 1], *m[at + 2 :]), new)))
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
            (reshaped(b, x, (1, *s)), (dim(0), *compose(m, new)))
            for x, m, s in zip(xs, g.maps, g.shapes, strict=True)
        ]
        y = nest(b, (1, *g.sizes), range(g.rank + 1), reads, g.yields[0], g.precision)
        return reshaped(b, y, g.result_shape)

    return rewritten(p, {i: write})


def _operand_places(
    p: Program, wanted: Callable[[Generic, Map], bool]
) -> list[tuple[int, int]]:  # fmt: skip
    return [
        (i, k)
        for i in generics(p, lambda g: True)
        for k, m in enumerate(operands_of(p, i)[1].maps)
        if wanted(operands_of(p, i)[1], m)
    ]


def _with_operand(
    p: Program, i: int, k: int, write: Callable[[Builder, int, Map], Operand]
) -> Program:
    """The program with operand k of generic i read in another way."""
    _, g = operands_of(p, i)

    def anew(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        reads[k] = write(b, *reads[k])
        return nest(b, g.sizes, range(g.rank), reads, g.yields[0], g.precision)

    return rewritten(p, {i: anew})


# ---- bodies and values ---------------------------------------------------------------------------
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
    """An elementwise op is computed inside of one that reads it, and by itself if others do."""
    places = [(i, k) for i, k in _operand_places(p, lambda g, m: not g.has_precision)
              if _is_plain(p, p.nodes[i].operands[k])]  # fmt: skip
    if not places:
        return None
    i, k = rng.choice(places)
    node, g = operands_of(p, i)
    _, inner = operands_of(p, node.operands[k])
    n = len(g.maps)

    def write(b: Builder, xs: tuple[int, ...]) -> int:
        reads = list(zip(xs, g.maps, strict=True))
        below = b.nodes[xs[k]].operands
        reads += [(x, compose(m, g.maps[k])) for x, m in zip(below, inner.maps, strict=True)]
        part = inner.body.substitute({o: arg(n + o) for o in inner.body.operands()})
        body = g.body.substitute({k: part})
        used = sorted(body.operands())
        body = body.substitute({o: arg(at) for at, o in enumerate(used)})
        made = Yield(body, g.yields[0].dtype, g.yields[0].combine)
        kept = [reads[o] for o in used]
        return nest(b, g.sizes, range(g.rank), kept, made, g.precision)

    return rewritten(p, {i: write})


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


IDENTITIES: dict[str, Respelling] = {
    "transposes": transposes,
    "reshapes": reshapes,
    "slices-and-concat": slices_and_concat,
    "pad-and-slice": pad_and_slice,
    "neutral-ops": neutral_ops,
    "packs": packs,
}
RESPELLINGS: dict[str, Respelling] = IDENTITIES | {
    "map-for-transpose": map_for_transpose,
    "map-for-slice": map_for_slice,
    "transpose-for-map": transpose_for_map,
    "transpose-into-map": transpose_into_map,
    "result-transposed": result_transposed,
    "broadcast": broadcast,
    "loops-collapsed": loops_collapsed,
    "unit-dims": unit_dims,
    "operands-swapped": operands_swapped,
    "split-elementwise": split_elementwise,
    "merged-elementwise": merged_elementwise,
    "duplicated": duplicated,
    "two-step-extremum": two_step_extremum,
    "two-step-sum": two_step_sum,
    "lines-reordered": lines_reordered,
}
