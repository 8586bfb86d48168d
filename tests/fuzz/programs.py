"""Random programs: every op, several element types, sharing, sizes that no tile divides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from eqsat.model.affine import Affine, dim
from eqsat.model.attr import Shape, ShapeError
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Result, Yield
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Reshape, Transpose, move_of
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import DEFAULT, DTYPES, NONE, TensorType, is_float
from eqsat.ops.generics.canonical import Operand, generic_node, identity
from eqsat.ops.movement.layout import make_layout

# how often each op is chosen, in shares
STEPS = {
    "unary": 3, "binary": 4, "scale_and_bias": 2, "convert": 2, "broadcast": 1, "two_results": 1,
    "reduce": 2, "matmul": 5, "conv": 2, "pool": 1, "transpose": 4, "reshape": 3, "pad": 2,
    "slice": 2, "concat": 2, "gather": 1, "fill": 1, "pack": 4, "encode": 1,
    "left_side": 40,
}  # fmt: skip
EXACT = ("f32", "f32", "f32", "f16", "i32", "i8", "u8", "bool")


class Maker:
    """Builds one random program from a seed; its values are the operands of later ops.

    exact: small whole numbers of every type through bodies that may jump (comparisons, casts to
    integers, `floor`). Otherwise floats through smooth bodies, so that algebra which reorders
    floating point stays within an error bound.
    """

    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6, 7, 8)
    shares: ClassVar[dict[str, int]] = STEPS
    largest = 2000  # elements of a value: every node of the e-graph is evaluated several times

    def __init__(self, seed: int, exact: bool):
        self.rng = random.Random(seed)
        self.exact = exact
        self.b = Builder(f"chain{seed}")
        self.values: list[int] = []
        self.inputs = 0
        for _ in range(self.rng.randint(1, 2)):
            self.values.append(self.input(self._type(self._shape())))

    def program(self, ops: int) -> Program:
        """`ops` more ops (an op that does not fit its operand is tried again as another)."""
        known = {k: n for k, n in self.shares.items() if hasattr(self, k)}
        steps = [getattr(self, name) for name, n in known.items() for _ in range(n)]
        for _ in range(ops):
            self.step(steps)
        read = {o for n in self.b.nodes for o in n.operands}
        ends = [v for v in self.values if v not in read]
        results = [*ends, *self.rng.sample(self.values, self.rng.randint(0, 1))]
        return prune(self.b.build(list(dict.fromkeys(results))))

    def step(self, steps: Sequence[Any]) -> None:
        for _ in range(20):
            x = self.rng.choice(self.values[-4:])
            made = self.rng.choice(steps)(x)
            if made is not None and self.b.type(made).size <= self.largest:
                self.values.append(made)
                return

    # ---- leaves -----------------------------------------------------------------------------
    def input(self, type_: TensorType) -> int:
        self.inputs += 1
        return self.b.add("input", (), Leaf(f"x{self.inputs}", type_, self.inputs - 1))

    def weight(self, shape: Shape, dtype: str) -> int:
        name = f"w{len(self.b.nodes)}"
        return self.b.add("weight", (), Leaf(name, TensorType(dtype, shape), -1, name))

    def operand(self, shape: Shape, dtype: str) -> int:
        """A value of this type that is there already, if one is; else a weight or an input."""
        wanted = TensorType(dtype, shape)
        known = [v for v in self.values if self.b.type(v) == wanted]
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        if self.rng.random() < 0.2:
            x = self.input(wanted)
            self.values.append(x)
            return x
        return self.weight(shape, dtype)

    def _shape(self) -> Shape:
        return tuple(self.rng.choice(self.sizes) for _ in range(self.rng.randint(1, 3)))

    def _type(self, shape: Shape) -> TensorType:
        return TensorType(self.rng.choice(EXACT) if self.exact else "f32", shape)

    # ---- bodies -----------------------------------------------------------------------------
    def _unary(self, dtype: str) -> Expr:
        x, kind = arg(0), DTYPES[dtype][1]
        if kind == "b":
            return call("not", x)
        zero = const(0.0 if kind == "f" else 0)
        plain = [call("max", x, zero), call("neg", x), call("abs", x), call("sub", x, x)]
        if kind != "f":
            return self.rng.choice([*plain, call("add", x, const(1)), call("sign", x)])
        plain += [call("mul", x, const(0.5)), call("add", x, const(1.0))]
        if self.exact:
            return self.rng.choice([*plain, call("floor", x), call("sign", x)])
        smooth = [call(fn, call("tanh", x)) for fn in ("exp", "cos")]
        smooth += [call("tanh", x), call("logistic", x)]
        return self.rng.choice([*plain, *smooth])

    def _binary(self, dtype: str) -> Expr:
        x, y = arg(0), arg(1)
        names = {"b": ("and", "or", "xor")}.get(DTYPES[dtype][1], ("add", "add", "sub", "max"))
        name = self.rng.choice(names)
        if self.exact and DTYPES[dtype][1] != "b" and self.rng.random() < 0.2:
            zero = const(0.0 if is_float(dtype) else 0)
            return call("select", call("lt", x, y), x, zero)
        return call(name, x, y)

    def _combine(self, dtype: str) -> str:
        return self.rng.choice(("and", "or") if dtype == "bool" else ("add", "add", "max", "min"))

    def _generic(
        self, sizes: Sequence[int], rank: int, reads: Sequence[Operand], body: Expr, dtype: str,
        combine: str = "",
    ) -> int:  # fmt: skip
        made = [Yield(body, dtype, combine)]
        return generic_node(self.b, sizes, range(rank), reads, made, precision=DEFAULT)

    # ---- elementwise ------------------------------------------------------------------------
    def unary(self, x: int) -> int:
        t = self.b.type(x)
        return self._generic(
            t.shape, t.rank, [(x, identity(t.rank))], self._unary(t.dtype), t.dtype
        )

    def binary(self, x: int) -> int:
        """Two operands over the same loops, the second perhaps transposed or broadcast."""
        t = self.b.type(x)
        loops = self.rng.sample(range(t.rank), self.rng.randint(0, t.rank))
        if self.rng.random() < 0.4:
            loops = list(range(t.rank))
        y = self.operand(tuple(t.shape[d] for d in loops), t.dtype)
        reads = [(x, identity(t.rank)), (y, tuple(dim(d) for d in loops))]
        return self._generic(t.shape, t.rank, reads, self._binary(t.dtype), t.dtype)

    def scale_and_bias(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank or not is_float(t.dtype):
            return None
        d = self.rng.randrange(t.rank)
        s, o = (self.operand((t.shape[d],), t.dtype) for _ in range(2))
        reads = [(x, identity(t.rank)), (s, (dim(d),)), (o, (dim(d),))]
        body = call("add", call("mul", arg(0), arg(1)), arg(2))
        return self._generic(t.shape, t.rank, reads, body, t.dtype)

    def convert(self, x: int) -> int:
        t = self.b.type(x)
        dtype = self.rng.choice(EXACT) if self.exact else self.rng.choice(("f16", "bf16", "f32"))
        return self._generic(t.shape, t.rank, [(x, identity(t.rank))], cast(arg(0), dtype), dtype)

    def broadcast(self, x: int) -> int:
        t = self.b.type(x)
        at = self.rng.randint(0, t.rank)
        sizes = (*t.shape[:at], self.rng.choice(self.sizes), *t.shape[at:])
        reads = [(x, tuple(dim(d + (d >= at)) for d in range(t.rank)))]
        return self._generic(sizes, t.rank + 1, reads, arg(0), t.dtype)

    def two_results(self, x: int) -> int:
        """A generic with two results; one of them is what goes on."""
        t = self.b.type(x)
        y = self.operand(t.shape, t.dtype)
        reads = [(x, identity(t.rank)), (y, identity(t.rank))]
        yields = [Yield(self._binary(t.dtype), t.dtype) for _ in range(2)]
        both = generic_node(self.b, t.shape, range(t.rank), reads, yields, precision=NONE)
        if len(self.b.nodes[both].types) < 2:
            return both
        found = [self.b.add("result", (both,), Result(i)) for i in range(2)]
        self.values.append(found[0])
        return found[1]

    # ---- reductions and contractions --------------------------------------------------------
    def reduce(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank:
            return None
        gone = self.rng.sample(range(t.rank), self.rng.randint(1, min(2, t.rank)))
        kept = [d for d in range(t.rank) if d not in gone]
        at = {d: i for i, d in enumerate([*kept, *gone])}
        sizes = [t.shape[d] for d in (*kept, *gone)]
        reads = [(x, tuple(dim(at[d]) for d in range(t.rank)))]
        return self._generic(sizes, len(kept), reads, arg(0), t.dtype, self._combine(t.dtype))

    def matmul(self, x: int) -> int | None:
        """Any orientation, perhaps batched, perhaps with a transposed right operand."""
        t = self.b.type(x)
        if not t.rank or t.dtype == "bool":
            return None
        dims = list(range(t.rank))
        k = self.rng.choice(dims)
        batch = [d for d in dims if d != k and t.rank > 2 and self.rng.random() < 0.3]
        kept, n = [d for d in dims if d != k], self.rng.choice(self.sizes)
        at = {d: i for i, d in enumerate(kept)} | {k: len(kept) + 1}
        right = [*((at[d], t.shape[d]) for d in batch), (len(kept), n), (at[k], t.shape[k])]
        self.rng.shuffle(right)
        w = self.operand(tuple(s for _, s in right), t.dtype)
        reads = [(x, tuple(dim(at[d]) for d in dims)), (w, tuple(dim(d) for d, _ in right))]
        sizes = [*(t.shape[d] for d in kept), n, t.shape[k]]
        return self._product(sizes, len(kept) + 1, reads, t.dtype)

    def _product(
        self, sizes: Sequence[int], rank: int, reads: Sequence[Operand], dtype: str
    ) -> int:
        wide = {"i8": "i32", "f16": "f32"}.get(dtype, dtype)
        a, b = (cast(arg(i), wide) if wide != dtype else arg(i) for i in range(2))
        return self._generic(sizes, rank, reads, call("mul", a, b), wide, "add")

    def conv(self, x: int) -> int | None:
        """Convolution over the last dim but one or the last, with a stride, one or no channels."""
        t = self.b.type(x)
        if t.rank < 2 or t.dtype == "bool":
            return None
        window, stride, step = self.rng.randint(1, 3), self.rng.randint(1, 2), 1
        along, channel = self.rng.sample(range(t.rank), 2)
        if t.shape[along] < window:
            return None
        out, filters = (t.shape[along] - window) // stride + 1, self.rng.choice(self.sizes)
        rest = [d for d in range(t.rank) if d not in (along, channel)]
        sizes = [*(t.shape[d] for d in rest), out, filters, t.shape[channel], window]
        n = len(rest)
        maps = {d: dim(i) for i, d in enumerate(rest)} | {channel: dim(n + 2)}
        maps[along] = Affine(((n, stride), (n + 3, step)))
        w = self.operand((filters, t.shape[channel], window), t.dtype)
        reads = [
            (x, tuple(maps[d] for d in range(t.rank))),
            (w, (dim(n + 1), dim(n + 2), dim(n + 3))),
        ]
        return self._product(sizes, n + 2, reads, t.dtype)

    def pool(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank:
            return None
        d, window = self.rng.randrange(t.rank), self.rng.randint(1, 3)
        stride = self.rng.randint(1, 2)
        if t.shape[d] < window:
            return None
        sizes = [*t.shape, window]
        sizes[d] = (t.shape[d] - window) // stride + 1
        m = [dim(i) for i in range(t.rank)]
        m[d] = Affine(((d, stride), (t.rank, 1)))
        return self._generic(
            sizes, t.rank, [(x, tuple(m))], arg(0), t.dtype, self._combine(t.dtype)
        )

    # ---- movement ---------------------------------------------------------------------------
    def transpose(self, x: int) -> int:
        s = self.b.type(x).shape
        perm = self.rng.sample(range(len(s)), len(s))
        return self.b.add("transpose", (x,), Transpose(s, tuple(perm)))

    def reshape(self, x: int) -> int | None:
        s = list(self.b.type(x).shape)
        new = list(s)
        for _ in range(self.rng.randint(1, 2)):
            new = self._regrouped(new)
        return self.b.add("reshape", (x,), Reshape(tuple(s), tuple(new)))

    def _regrouped(self, s: list[int]) -> list[int]:
        at = self.rng.randrange(len(s)) if s else 0
        if len(s) > 1 and self.rng.random() < 0.5:
            at = min(at, len(s) - 2)
            return [*s[:at], s[at] * s[at + 1], *s[at + 2 :]]
        size = s[at] if s else 1
        parts = [p for p in range(1, size + 1) if size % p == 0]
        a = self.rng.choice(parts)
        return [*s[:at], a, size // a, *s[at + 1 :]]

    def _move(self, op: str, operands: tuple[int, ...], *args: Any) -> int | None:
        shapes = tuple(self.b.type(o).shape for o in operands)
        try:
            return self.b.add(op, operands, move_of(op, shapes, *args))
        except ShapeError:
            return None

    def pad(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank:
            return None
        low, high = (tuple(self.rng.choice((0, 0, 1, 3)) for _ in t.shape) for _ in range(2))
        values = {"f": ("0.0", "0.0", "1.0", "-inf"), "b": ("false", "true")}
        value = self.rng.choice(values.get(DTYPES[t.dtype][1], ("0", "0", "1")))
        if not self.exact and value == "-inf":
            value = "0.0"
        if self.rng.random() < 0.5:
            low = (0,) * t.rank
        return self._move("pad", (x,), low, high, value)

    def slice(self, x: int) -> int | None:
        s = self.b.type(x).shape
        if not s:
            return None
        start = tuple(self.rng.choice((0, 0, self.rng.randrange(d))) for d in s)
        ends = [(d, self.rng.randint(a + 1, d)) for a, d in zip(start, s, strict=True)]
        limit = tuple(map(self.rng.choice, ends))
        step = tuple(self.rng.choice((1, 1, 1, 2)) for _ in s)
        return self._move("slice", (x,), start, limit, step)

    def concat(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank:
            return None
        axis = self.rng.randrange(t.rank)
        fits = [v for v in self.values if _fits(self.b.type(v), t, axis)]
        more = [self.rng.choice(fits) for _ in range(self.rng.randint(1, 2))]
        operands = [x, *more]
        self.rng.shuffle(operands)
        return self._move("concat", tuple(operands), axis)

    def gather(self, x: int) -> int | None:
        t = self.b.type(x)
        if not t.rank:
            return None
        indices = self.weight((self.rng.choice(self.sizes),), "i32")
        return self._move("gather", (x, indices), self.rng.randrange(t.rank))

    def fill(self, x: int) -> int:
        t = self.b.type(x)
        value: bool | int | float = {"f": 1.5, "b": True}.get(DTYPES[t.dtype][1], 2)
        if self.rng.random() < 0.5:
            value = type(value)(0)
        return self.b.add("fill", (), Fill(value, t))

    # ---- layouts and encodings --------------------------------------------------------------
    def pack(self, x: int) -> int | None:
        """A pack, perhaps behind a pack and an unpack by the same tiles and another padding."""
        t = self.b.type(x)
        if not t.shape or t.rank > 3:
            return None
        layouts = [self._layout(t.shape)]
        pads = [tuple(self.rng.choice("0?") for _ in layouts[0].pads) for _ in range(2)]
        layouts += [self._padded(layouts[0], p) for p in pads]
        if self.rng.random() < 0.3:
            layouts[2] = self._layout(t.shape)
        x = self.b.add("pack", (x,), layouts[0])
        kind = self.rng.random()
        if kind < 0.3 and "?" not in layouts[0].pads:
            return x
        # what an unpack says of the padding it cuts off holds of its operand
        x = self.b.add("unpack", (x,), self._forgetful(layouts[0], layouts[1]))
        if kind < 0.6:
            return x
        x = self.b.add("pack", (x,), layouts[2])
        return x if "?" not in layouts[2].pads else self.b.add("unpack", (x,), layouts[2])

    def _layout(self, s: Shape) -> Layout:
        known = [n.attr for n in self.b.nodes if isinstance(n.attr, Layout) and n.attr.source == s]
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        pos = self.rng.sample(range(len(s)), self.rng.randint(1, min(2, len(s))))
        tiles = [self.rng.choice((2, 3, 4, 8)) for _ in pos]
        outer = self.rng.sample(range(len(s)), len(s))
        return make_layout(s, pos, tiles, outer, [self.rng.choice("0?") for _ in pos])

    def _padded(self, a: Layout, pads: Sequence[str]) -> Layout:
        return make_layout(a.source, a.pos, a.tiles, a.outer, pads)

    def _forgetful(self, held: Layout, wish: Layout) -> Layout:
        """The wished padding, where it is what the operand holds or claims nothing of it."""
        pads = [b if a == b else "?" for a, b in zip(held.pads, wish.pads, strict=True)]
        return self._padded(held, pads)

    def encode(self, x: int) -> int | None:
        t = self.b.type(x)
        e = Encoding(t.shape, self.rng.choice(("lhs", "rhs", "result")), "matmul", (t.dtype,) * 3)
        try:
            encoded = self.b.add("set_encoding", (x,), e)
            return self.b.add("unset_encoding", (encoded,), e)
        except (ShapeError, TypeError):
            return None


def _fits(a: TensorType, b: TensorType, axis: int) -> bool:
    """Whether two values can be joined along an axis."""
    return (
        a.dtype == b.dtype
        and a.rank == b.rank
        and all(d == axis or x == y for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)))
    )
