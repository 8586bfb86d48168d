"""Random programs of equal blocks, and some whose blocks are equal but for one thing.

What a search learns of one block it uses for all that look alike. So the programs to try it on are
those that are almost periodic: nothing of a block may be said of another that only looks like it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.layout import Layout
from eqsat.model.program import Program, prune
from eqsat.ops.generics.canonical import identity
from eqsat.ops.movement.layout import make_layout
from fuzz.networks import SMALL, NetworkMaker
from fuzz.programs import Maker

FEWEST, MOST = 3, 7  # blocks
MOST_STEPS = 3  # of a block; a softmax is one step and four ops
TRIES = 100
# what one block does otherwise than the others: broken symmetry
BROKEN = (
    "a constant", "no residual", "shared weights", "a result inside", "another dtype",
    "a step less", "one op more", "reads the input", "another layer", "an op twice",
)  # fmt: skip
# and what all of them do in the same way
ALIKE = ("weights of its own", "one set of weights", "every value a result", "reads the input")


class BlockMaker(NetworkMaker):
    """A chain of equal blocks, drawn once; each takes a value to one of the same type."""

    def __init__(self, seed: int):
        rng = random.Random(f"repeated {seed}")
        self.sizes = rng.sample(SMALL, 2)
        self.largest = 4_000
        Maker.__init__(self, seed, exact=False)
        self.b.name = f"repeated{seed}"
        self.seed, self.first = seed, self.values[0]
        self.count = rng.randint(FEWEST, MOST)
        self.kind = rng.choice(BROKEN if seed % 2 else ALIKE)
        self.odd = rng.randrange(1, self.count) if seed % 2 else -1  # the block that differs
        self.steps = rng.randint(1, MOST_STEPS)
        self.has_residual = self.kind == "no residual" or rng.random() < 0.5
        self.own: list[list[int]] = []  # weights of each block, in the order of use

    def _shape(self) -> Shape:
        return tuple(self.rng.choice(self.sizes) for _ in range(2))

    def _layout(self, s: Shape) -> Layout:
        """Drawn anew: what other blocks hold is not looked at."""
        pos = self.rng.sample(range(len(s)), self.rng.randint(1, min(2, len(s))))
        tiles = [self.rng.choice((2, 4, 8)) for _ in pos]
        outer = self.rng.sample(range(len(s)), len(s))
        return make_layout(s, pos, tiles, outer, ["0"] * len(pos))

    def weight(self, shape: Shape, dtype: str) -> int:
        """A new one, or that of another block in its place, if it has the same type."""
        place, known = len(self.own[-1]), []
        if self.kind == "one set of weights" or (self._is("shared weights") and len(self.own) > 1):
            known = self.own[0 if self.kind == "one set of weights" else -2]
        found = -1
        if place < len(known):
            t = self.b.type(known[place])
            found = known[place] if (t.shape, t.dtype) == (shape, dtype) else -1
        found = super().weight(shape, dtype) if found < 0 else found
        self.own[-1].append(found)
        return found

    def _is(self, kind: str) -> bool:
        """Whether the block that is drawn now is the one that differs, in this way."""
        return self.kind == kind and len(self.own) - 1 == self.odd

    def chain(self) -> Program:
        """The program."""
        known = {k: n for k, n in self.shares.items() if hasattr(self, k)}
        steps = [getattr(self, name) for name, n in known.items() for _ in range(n)]
        x, results = self.first, []
        for _ in range(self.count):
            x, inside = self._block(x, steps)
            if self._is("a result inside") or self.kind == "every value a result":
                results.append(inside)
        return prune(self.b.build(list(dict.fromkeys([*results, x]))))

    def _block(self, x: int, steps: list[Callable[[int], int | None]]) -> tuple[int, int]:
        """(what a block makes of x, a value inside of it)."""
        self.rng = random.Random(f"block {self.seed}")
        self.own.append([])
        self.values = [x]
        if self.kind == "reads the input" and (self.odd < 0 or self._is(self.kind)):
            self.values.insert(0, self.first)
        for _ in range(self.steps - self._is("a step less")):
            self.step(steps)
        y = inside = self.values[-1]
        if self._is("another dtype"):
            y = self._cast(self._cast(y, "f16"), "f32")
        if self._is("one op more") or self._is("an op twice"):
            y = self._apply(y, "tanh")
            y = self._apply(y, "tanh") if self._is("an op twice") else y
        if self._is("another layer"):
            y = self.dense(y) or y
        y = self._apply(self._back(y, x), "tanh")
        if self.has_residual and not self._is("no residual"):
            y = self._sum(x, y)
        factor = 0.25 if self._is("a constant") else 0.5
        return self._map(y, call("mul", arg(0), const(factor))), inside

    def _map(self, x: int, body: Expr) -> int:
        t = self.b.type(x)
        return self._generic(t.shape, t.rank, [(x, identity(t.rank))], body, t.dtype)

    def _cast(self, x: int, dtype: str) -> int:
        t = self.b.type(x)
        return self._generic(t.shape, t.rank, [(x, identity(t.rank))], cast(arg(0), dtype), dtype)

    def _sum(self, x: int, y: int) -> int:
        t = self.b.type(x)
        reads = [(x, identity(t.rank)), (y, identity(t.rank))]
        return self._generic(t.shape, t.rank, reads, call("add", arg(0), arg(1)), t.dtype)

    def _back(self, y: int, x: int) -> int:
        """y if it has the type of x; else x and one number of all of y."""
        t, made = self.b.type(x), self.b.type(y)
        if made.dtype != t.dtype:
            y = self._cast(y, t.dtype)
            made = self.b.type(y)
        if made == t:
            return y
        total = self._generic(made.shape, 0, [(y, identity(made.rank))], arg(0), t.dtype, "max")
        reads = [(x, identity(t.rank)), (total, ())]
        return self._generic(t.shape, t.rank, reads, call("add", arg(0), arg(1)), t.dtype)


def repeated(seed: int) -> tuple[Program, str]:
    """Program number `seed`, and how its blocks are alike or which one differs, in what.

    Blocks of odd numbers are alike but for one thing.
    """
    for n in range(TRIES):
        maker = BlockMaker(seed + 2 * n * 1_000_003)
        found = maker.chain()
        if found.op_count >= 2 * maker.count:
            return found, maker.kind
    raise AssertionError(f"no program of blocks in {TRIES} tries")
