"""Random programs of a few ops, half of whose values are used more than once, for tests."""

from __future__ import annotations

import random

from eqsat.model.affine import dim
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Builder, Program, prune
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import generic_node, identity

SIZES = (1, 3, 7, 8, 10, 16, 20)
UNARY = ("exp", "tanh", "neg", "relu", "half")
TILES = "tiles.matmul=[{mnk: [4, 8, 1], rate: 1.0}, {mnk: [8, 8, 8], rate: 1.0}]"
SETTINGS = {
    "plain": (),
    "many": ("fusion.multi_result=true", "fusion.clone=[all]", TILES),
    "forced": ("tiles_forced=true", "tiles.matmul=[{mnk: [4, 8, 4], rate: 1.0}]"),
    "fast": (TILES, "untiled_rate=0.2", "rates={f32: 10 GFLOP/s}"),
}


def body(name: str) -> Expr:
    if name == "relu":
        return call("max", arg(0), const(0.0))
    return call("mul", arg(0), const(0.5)) if name == "half" else call(name, arg(0))


class Maker:
    """A random program, values at most of rank 3; half of them are used more than once."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.b = Builder(f"random{seed}")
        self.values: list[int] = []
        for i in range(self.rng.randint(1, 3)):
            shape = tuple(self.rng.choice(SIZES) for _ in range(self.rng.randint(1, 3)))
            self.values.append(self.leaf("input", f"x{i}", shape, i))

    def leaf(self, op: str, name: str, shape: tuple[int, ...], index: int = -1) -> int:
        key = name if op == "weight" else ""
        return self.b.add(op, (), Leaf(name, TensorType("f32", shape), index, key))

    def program(self, ops: int) -> Program:
        for _ in range(ops):
            step = self.rng.choice(
                [self.unary, self.matmul, self.matmul, self.transpose, self.reshape, self.reduce,
                 self.bias, self.binary, self.pad]
            )  # fmt: skip
            self.values.append(step(self.rng.choice(self.values)))
        results = [self.values[-1], *self.rng.sample(self.values, self.rng.randint(0, 2))]
        return prune(self.b.build(list(dict.fromkeys(results))))

    def shape(self, x: int) -> tuple[int, ...]:
        return self.b.type(x).shape

    def elementwise(self, operands: list, expr: Expr, shape: tuple[int, ...]) -> int:
        return generic_node(
            self.b, shape, range(len(shape)), operands, [Yield(expr, "f32")], precision="default"
        )

    def unary(self, x: int) -> int:
        s = self.shape(x)
        return self.elementwise([(x, identity(len(s)))], body(self.rng.choice(UNARY)), s)

    def binary(self, x: int) -> int:
        s = self.shape(x)
        same = [v for v in self.values if self.shape(v) == s]
        y, i = self.rng.choice(same), identity(len(s))
        return self.elementwise([(x, i), (y, i)], call("add", arg(0), arg(1)), s)

    def bias(self, x: int) -> int:
        s = self.shape(x)
        at = self.rng.randrange(len(s))
        w = self.leaf("weight", f"w{len(self.b.nodes)}", (s[at],))
        reads = [(x, identity(len(s))), (w, (dim(at),))]
        return self.elementwise(reads, call("add", arg(0), arg(1)), s)

    def matmul(self, x: int) -> int:
        s = self.shape(x)
        r, n = len(s), self.rng.choice(SIZES)
        k = self.rng.randrange(r)
        op = self.rng.choice(["weight", "weight", "value"])
        fits = [v for v in self.values if len(self.shape(v)) == 2 and self.shape(v)[0] == s[k]]
        if op == "value" and fits:
            w = self.rng.choice(fits)
            n = self.shape(w)[1]
        else:
            w = self.leaf("weight", f"w{len(self.b.nodes)}", (s[k], n))
        kept = [d for d in range(r) if d != k]
        loops = {d: i for i, d in enumerate(kept)} | {k: r}  # kept dims, n, k
        sizes = [*(s[d] for d in kept), n, s[k]]
        reads = [(x, tuple(dim(loops[d]) for d in range(r))), (w, (dim(r), dim(r - 1)))]
        y = Yield(call("mul", arg(0), arg(1)), "f32", "add")
        return generic_node(self.b, sizes, range(r), reads, [y], precision="default")

    def transpose(self, x: int) -> int:
        s = self.shape(x)
        perm = list(range(len(s)))
        self.rng.shuffle(perm)
        return self.b.add("transpose", (x,), Transpose(s, tuple(perm)))

    def reshape(self, x: int) -> int:
        s = self.shape(x)
        if len(s) > 1:
            at = self.rng.randrange(len(s) - 1)
            new = (*s[:at], s[at] * s[at + 1], *s[at + 2 :])
        else:
            split = next((d for d in (4, 5, 2) if s[0] % d == 0 and s[0] > d), 1)
            new = (split, s[0] // split)
        return self.b.add("reshape", (x,), Reshape(s, new))

    def reduce(self, x: int) -> int:
        s = self.shape(x)
        if len(s) == 1:
            return self.unary(x)
        at = self.rng.randrange(len(s))
        kept = [d for d in range(len(s)) if d != at]
        loops = {d: i for i, d in enumerate(kept)} | {at: len(kept)}
        reads = [(x, tuple(dim(loops[d]) for d in range(len(s))))]
        y = Yield(arg(0), "f32", self.rng.choice(["add", "max"]))
        return generic_node(
            self.b,
            [*(s[d] for d in kept), s[at]],
            range(len(kept)),
            reads,
            [y],
            precision="default",
        )

    def pad(self, x: int) -> int:
        s = self.shape(x)
        low, high = (tuple(self.rng.choice((0, 0, 1)) for _ in s) for _ in range(2))
        shape = tuple(a + b + c for a, b, c in zip(s, low, high, strict=True))
        return self.b.add("pad", (x,), Move("pad", (s,), (low, high, "0.0"), shape))
