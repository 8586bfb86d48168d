"""Random networks for searches: larger dims than a hunt's, and what people write programs of."""

from __future__ import annotations

import random
from collections import Counter

from eqsat.model.affine import dim
from eqsat.model.expr import arg, call, const
from eqsat.model.generic import Generic
from eqsat.model.movement import Reshape, Transpose
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import TensorType
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.generics.canonical import identity
from fuzz.programs import STEPS, Maker

SMALL = (1, 3, 7, 8, 10, 12, 16, 20, 33, 40)
LARGE = (16, 24, 40, 64, 100, 128)
READ = (16, 24, 33, 40, 48, 72, 100)  # of a product that several others read
LARGE_SHARE = 0.15
TRIES = 200
TILES = (2, 4, 8, 16)  # extents of the tiles that targets offer


class NetworkMaker(Maker):
    """Every op of `Maker`; softmax, layer norm, dense layers, shared transposes and packs; and
    products of which parts are read beside the whole."""

    shares = STEPS | {
        "matmul": 4, "left_side": 0, "encode": 1, "convert": 1, "fill": 1, "gather": 1,
        "unary": 2, "binary": 3, "transpose": 5, "softmax": 2, "layer_norm": 2, "dense": 5,
        "shared_transpose": 6, "packed_dense": 5, "residual": 3, "turned_product": 5,
        "gated": 3, "part_beside": 4, "stacked_product": 3, "edges": 2,
    }  # fmt: skip

    def __init__(self, seed: int, is_large: bool):
        self.sizes = LARGE if is_large else SMALL
        self.largest = 60_000 if is_large else 8_000
        super().__init__(seed, exact=False)
        self.b.name = f"network{seed}"

    def _over_last(self, x: int, combine: str) -> int | None:
        """A reduction of the last dim; None if that is all there is."""
        s = self.b.type(x).shape
        if len(s) < 2:
            return None
        reads = [(x, identity(len(s)))]
        return self._generic(s, len(s) - 1, reads, arg(0), self.b.type(x).dtype, combine)

    def _rows(self, x: int, row: int, fn: str) -> int:
        """`fn(x, row)` with one element of `row` per row of `x`."""
        t = self.b.type(x)
        reads = [(x, identity(t.rank)), (row, identity(t.rank)[:-1])]
        return self._generic(t.shape, t.rank, reads, call(fn, arg(0), arg(1)), t.dtype)

    def _apply(self, x: int, fn: str) -> int:
        t = self.b.type(x)
        body = call("max", arg(0), const(0.0)) if fn == "relu" else call(fn, arg(0))
        return self._generic(t.shape, t.rank, [(x, identity(t.rank))], body, t.dtype)

    def softmax(self, x: int) -> int | None:
        top = self._over_last(x, "max")
        if top is None:
            return None
        e = self._apply(self._rows(x, top, "sub"), "exp")
        total = self._over_last(e, "add")
        return None if total is None else self._rows(e, total, "div")

    def layer_norm(self, x: int) -> int | None:
        total = self._over_last(x, "add")
        if total is None:
            return None
        t = self.b.type(x)
        scaled = [(total, identity(t.rank - 1))]
        body = call("mul", arg(0), const(1.0 / t.shape[-1]))
        mean = self._generic(t.shape[:-1], t.rank - 1, scaled, body, t.dtype)
        centred = self._rows(x, mean, "sub")
        return self.scale_and_bias(centred)

    def dense(self, x: int) -> int | None:
        """A matmul over the last dim, a bias and an activation."""
        t = self.b.type(x)
        if not t.rank or t.dtype == "bool":
            return None
        n, r = self.rng.choice(self.sizes), t.rank
        w = self.weight((t.shape[-1], n), t.dtype)
        loops = [dim(d) for d in range(r - 1)]
        reads = [(x, (*loops, dim(r))), (w, (dim(r), dim(r - 1)))]
        y = self._product([*t.shape[:-1], n, t.shape[-1]], r, reads, t.dtype)
        made = self.b.type(y)
        bias = self.weight((n,), made.dtype)
        plus = [(y, identity(r)), (bias, (dim(r - 1),))]
        y = self._generic(made.shape, r, plus, call("add", arg(0), arg(1)), made.dtype)
        return self._apply(y, self.rng.choice(("relu", "tanh")))

    def _turned(self, x: int) -> int:
        s = self.b.type(x).shape
        perm = tuple(reversed(range(len(s))))
        return self.b.add("transpose", (x,), Transpose(s, perm))

    def shared_transpose(self, x: int) -> int | None:
        """A transpose that a contraction and an elementwise op read."""
        t = self._turned(x)
        self.values.append(self._apply(t, "tanh"))
        return self.matmul(t)

    def turned_product(self, x: int) -> int | None:
        """A contraction between two transposes, as front-ends write it."""
        y = self.matmul(self._turned(x))
        return None if y is None else self._turned(y)

    def packed_dense(self, x: int) -> int | None:
        """A pack, an elementwise op on the tiles, an unpack, and a dense layer behind it."""
        s = self.b.type(x).shape
        if not s or len(s) > 3:
            return None
        layout = self._layout(s)
        layout = self._padded(layout, "?" * len(layout.tiles))
        packed = self._apply(self.b.add("pack", (x,), layout), "relu")
        return self.dense(self.b.add("unpack", (packed,), layout))

    def _columns(self, x: int, start: int, limit: int) -> int | None:
        s = self.b.type(x).shape
        zeros, ones = (0,) * len(s), (1,) * len(s)
        return self._move("slice", (x,), (*zeros[1:], start), (*s[:-1], limit), ones)

    def gated(self, x: int) -> int | None:
        """Columns of one product, the first ones by the last ones; now and then all of them."""
        y = self.dense(x)
        n = self.b.type(y).shape[-1] if y is not None else 0
        if y is None or n < 2:
            return None
        width = self.rng.randint(1, n // 2)
        a, b = self._columns(y, 0, width), self._columns(y, n - width, n)
        if a is None or b is None:
            return None
        if self.rng.random() < 0.5:
            self.values.append(y)
        t = self.b.type(a)
        reads = [(a, identity(t.rank)), (b, identity(t.rank))]
        return self._generic(t.shape, t.rank, reads, call("mul", arg(0), arg(1)), t.dtype)

    def part_beside(self, x: int) -> int | None:
        """A product, and what is computed from some columns of it."""
        y = self.matmul(x)
        n = self.b.type(y).shape[-1] if y is not None else 0
        if y is None or n < 2:
            return None
        at = self.rng.randint(1, n - 1)
        part = self._columns(y, *self.rng.choice(((0, at), (at, n))))
        if part is None:
            return None
        self.values.append(y)
        return self._apply(part, "tanh") if self.rng.random() < 0.7 else self.matmul(part)

    def stacked_product(self, x: int) -> int | None:
        """Two values in a new dim, and a product of them."""
        t = self.b.type(x)
        if t.rank < 1 or t.rank > 3 or t.dtype == "bool":
            return None
        axis = self.rng.randint(0, t.rank)
        one = Reshape(t.shape, (*t.shape[:axis], 1, *t.shape[axis:]))
        parts = [self._apply(x, fn) for fn in ("tanh", "relu")]
        parts[0] = x if self.rng.random() < 0.3 else parts[0]
        found = self._move("concat", tuple(self.b.add("reshape", (p,), one) for p in parts), axis)
        return None if found is None else self.dense(found)

    def edges(self, x: int) -> int | None:
        """A product padded by its first and last rows, as `jnp.pad` does by its edges."""
        y = self.matmul(x)
        return None if y is None or self.b.type(y).rank < 2 else self._edged(y)

    def _edged(self, y: int) -> int | None:
        s, axis = self.b.type(y).shape, self.rng.randrange(self.b.type(y).rank)
        zeros, ones = [0] * len(s), (1,) * len(s)
        last, limit = list(zeros), list(s)
        last[axis], limit[axis] = s[axis] - 1, 1
        first = self._move("slice", (y,), tuple(zeros), tuple(limit), ones)
        end = self._move("slice", (y,), tuple(last), s, ones)
        parts = (first, y, end) if self.rng.random() < 0.5 else (first, y)
        if first is None or end is None:
            return None
        return self._move("concat", tuple(p for p in parts if p is not None), axis)

    def residual(self, x: int) -> int | None:
        t = self.b.type(x)
        y = self.dense(x)
        if y is None or self.b.type(y) != t:
            return y
        reads = [(x, identity(t.rank)), (y, identity(t.rank))]
        return self._generic(t.shape, t.rank, reads, call("add", arg(0), arg(1)), t.dtype)


class ReadersMaker(NetworkMaker):
    """One product whose columns are no whole panels, and what reads it: all of it, and parts."""

    readers = ("part", "part", "gated_parts", "unary", "edges_of", "softmax", "turned", "product")

    def __init__(self, seed: int):
        super().__init__(seed, is_large=False)
        self.b, self.values, self.inputs = Builder(self.b.name), [], 0
        self.sizes = READ
        self.largest = 60_000

    def program(self, ops: int) -> Program:
        m, k, n = (self.rng.choice(READ) for _ in range(3))
        x = self.input(TensorType("f32", (m, k)))
        w = self.weight((k, n), "f32") if self.rng.random() < 0.5 else None
        w = self.input(TensorType("f32", (k, n))) if w is None else w
        reads = [(x, (dim(0), dim(2))), (w, (dim(2), dim(1)))]
        y = self._product([m, n, k], 2, reads, "f32")
        found = [getattr(self, self.rng.choice(self.readers))(y) for _ in range(ops)]
        results = [v for v in found if v is not None]
        results += [y] if self.rng.random() < 0.6 else []
        self.rng.shuffle(results)
        return prune(self.b.build(list(dict.fromkeys(results or [y]))))

    def part(self, y: int) -> int | None:
        """Some columns, as they are, through a function or multiplied."""
        n = self.b.type(y).shape[-1]
        at = self.rng.choice((n // 2, n // 3, self.rng.randint(1, n - 1), 16, 32))
        at = max(1, min(n - 1, at))
        found = self._columns(y, *self.rng.choice(((0, at), (at, n), (max(0, at - 9), at))))
        how = self.rng.choice(("", "tanh", "product"))
        if found is None or not how:
            return found
        return self.product(found) if how == "product" else self._apply(found, how)

    def gated_parts(self, y: int) -> int | None:
        n = self.b.type(y).shape[-1]
        width = self.rng.choice((n // 2, n // 3))
        a, b = self._columns(y, 0, width), self._columns(y, n - width, n)
        if a is None or b is None:
            return None
        reads = [(a, identity(2)), (b, identity(2))]
        return self._generic(self.b.type(a).shape, 2, reads, call("mul", arg(0), arg(1)), "f32")

    def edges_of(self, y: int) -> int | None:
        return self._edged(y)

    def turned(self, y: int) -> int:
        return self._apply(self._turned(y), "tanh")

    def product(self, y: int) -> int:
        s, n = self.b.type(y).shape, self.rng.choice(READ)
        reads = [(y, (dim(0), dim(2))), (self.weight((s[1], n), "f32"), (dim(2), dim(1)))]
        return self._product([s[0], n, s[1]], 2, reads, "f32")


def readers(seed: int) -> Program:
    """Program number `seed` of one product and what reads it."""
    return ReadersMaker(seed).program(random.Random(f"readers {seed}").randint(2, 4))


def is_hard(program: Program) -> bool:
    """A computed value with two readers, two contractions, and an extent no tile divides."""
    nodes = program.nodes
    found = [
        (n.attr, roles)
        for n in nodes
        if isinstance(n.attr, Generic) and (roles := contraction_roles(n.attr))
    ]
    odd = any(
        all(g.sizes[d] % t for t in TILES)
        for g, roles in found
        for d in (*roles.m, *roles.n, *roles.k)
        if g.sizes[d] > 1
    )
    readers = Counter(o for n in nodes for o in set(n.operands)) + Counter(set(program.results))
    shared = any(
        count > 1 and nodes[i].op not in ("weight", "fill", "input") for i, count in readers.items()
    )
    return shared and odd and len(found) >= 2


def network(seed: int) -> Program:
    """Program number `seed`; those of even numbers are hard (`is_hard`)."""
    rng = random.Random(f"network {seed}")
    for n in range(TRIES):
        is_large = rng.random() < LARGE_SHARE
        ops = rng.randint(2, 5) if is_large else rng.randint(3, 8)
        found = NetworkMaker(seed + n * 1_000_003, is_large).program(ops)
        if found.op_count >= 3 and (seed % 2 or is_hard(found)):
            return found
    raise AssertionError(f"no hard program in {TRIES} tries")
