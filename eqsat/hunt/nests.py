"""What generics are made of: how large instances are, loop nests in the making, what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Shape
from eqsat.model.generic import Generic, Yield
from eqsat.model.precision import DEFAULT
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import canonical_generic

MOST_POINTS = 3000  # of an iteration domain: a hunt makes many small instances
DTYPES = ("f32",) * 12 + (
    "i32", "i32", "i8", "u8", "bool", "bool", "bf16", "f16", "f64", "i64", "u32", "i16", "i4",
    "f8e5m2",
)  # fmt: skip


# what most generics of an instance are; epilogue: elementwise ops on contractions, prologue: before
THEMES = ("",) * 4 + ("contraction", "contraction", "elementwise", "window", "epilogue", "prologue")


class Misfit(Exception):
    """This proposal cannot fit what is known; another one may."""


@dataclass(frozen=True)
class Scale:
    """How large an instance may become, and what it is mostly made of.

    Smaller ones are tried when a failure is shrunk. kind: the kind of most generics; dtype: of
    most elements; is_plain: bodies are mostly one function.
    """

    rank: int = 4
    dim: int = 8
    points: int = MOST_POINTS
    kind: str = ""
    dtype: str = ""
    is_plain: bool = False

    def themed(self, rng: Random) -> Scale:
        """Often of one kind: rules match several ops that must go together."""
        kind = rng.choice(THEMES)
        dtype = pick_dtype(rng) if rng.random() < 0.6 else ""
        return replace(self, kind=kind, dtype=dtype, is_plain=rng.random() < 0.4)

    def element(self, rng: Random) -> str:
        return self.dtype if self.dtype and rng.random() < 0.9 else pick_dtype(rng)

    def extent(self, rng: Random) -> int:
        return min(self.dim, rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 8)))

    def shape(self, rng: Random, most: int | None = None) -> Shape:
        ranks = [r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4) if r <= min(self.rank, most or self.rank)]
        return tuple(self.extent(rng) for _ in range(rng.choice(ranks)))


@dataclass
class Loopnest:
    """A loop nest in the making: the result's loops first, reductions behind them."""

    rng: Random
    scale: Scale
    sizes: list[int]
    rank: int
    may_reduce: bool = False
    most_reductions: int = 2
    maps: list[Map] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    def reduction(self, size: int | None = None) -> int:
        """A new reduction loop; Misfit if there are enough of them."""
        if not self.may_reduce or len(self.sizes) - self.rank >= self.most_reductions:
            raise Misfit
        self.sizes.append(self.scale.extent(self.rng) if size is None else size)
        return len(self.sizes) - 1

    def read(self, shape: Shape | None, loops: Sequence[int] | None = None) -> None:
        """Add an operand: of this shape, or of any shape that some of `loops` index."""
        if shape is not None:
            m = tuple(self._fitted(shape))
        else:
            m = self._free(list(range(len(self.sizes)) if loops is None else loops))
            shape = tuple(self.extent(e) for e in m)
        self.maps.append(m)
        self.shapes.append(shape)

    def _free(self, loops: list[int]) -> Map:
        rng = self.rng
        choice = rng.random()
        if choice < 0.25:
            rng.shuffle(loops)
        if 0.15 < choice < 0.45:
            loops = [d for d in loops if rng.random() < 0.6]
        m = [dim(d) for d in loops]
        if choice > 0.94:
            m.insert(rng.randint(0, len(m)), Affine((), 0))
        if 0.90 < choice < 0.94 and m:  # a window of a larger operand
            at = rng.randrange(len(m))
            m[at] = affine([(loops[at], rng.randint(1, 2))], rng.randint(0, 2))
        return tuple(m)

    def extent(self, e: Affine) -> int:
        reach = e.constant + sum(s * (self.sizes[d] - 1) for d, s in e.terms)
        slack = self.rng.choice((0, 0, 1)) if e.dim is None and e.terms else 0
        return reach + 1 + slack

    def _fitted(self, shape: Shape) -> list[Affine]:
        """Each dim of a known operand read by a loop of its own, of its size if there is one."""
        used: set[int] = set()
        exprs: list[Affine] = []
        for s in shape:
            free = [d for d in range(len(self.sizes)) if d not in used]
            same = [d for d in free if self.sizes[d] == s]
            if same:
                at = same[0] if self.rng.random() < 0.7 else self.rng.choice(same)
            elif s == 1 and self.rng.random() < 0.8:
                exprs.append(Affine((), 0))
                continue
            else:
                at = self.reduction(s)
            used.add(at)
            exprs.append(dim(at))
        return exprs

    def generic(self, yields: Sequence[Yield], dtypes: Sequence[str]) -> Generic:
        if math.prod(self.sizes) > self.scale.points:
            raise Misfit
        return canonical_generic(
            self.sizes, range(self.rank), self.maps, self.shapes, yields, (), dtypes,
            precision=DEFAULT,
        )  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """What is known of a generic: its operands, and the type of its result number `index`."""

    rng: Random
    scale: Scale
    operands: tuple[TensorType | None, ...]
    result: TensorType | None
    index: int = 0
    results: int = 1

    def shape(self, i: int) -> Shape | None:
        operand = self.operands[i]
        return None if operand is None else operand.shape

    def dtypes(self, most: str) -> list[str]:
        """Types of the operands: the known ones, mostly `most` for the others."""
        return [self._dtype(most) if t is None else t.dtype for t in self.operands]

    def _dtype(self, most: str) -> str:
        return most if self.rng.random() < 0.85 else self.scale.element(self.rng)

    def dtype(self) -> str:
        """The type of the result: the wished one, that of an operand, or any."""
        if self.result is not None:
            return self.result.dtype
        dtypes = [t.dtype for t in self.operands if t is not None]
        return self.rng.choice(dtypes) if dtypes else self.scale.element(self.rng)

    def nest(self, may_reduce: bool = False, most: int | None = None) -> Loopnest:
        loops = list(self._loops(most) if self.result is None else self.result.shape)
        return Loopnest(self.rng, self.scale, loops, len(loops), may_reduce)

    def _loops(self, most: int | None) -> Shape:
        """Result loops when nothing is wished: those of a known operand, or any."""
        shapes = [t.shape for t in self.operands if t is not None]
        if not shapes or self.rng.random() < 0.05:
            return self.scale.shape(self.rng, most)
        base = list(max(shapes, key=len))
        if self.rng.random() < 0.2:
            self.rng.shuffle(base)
        if self.rng.random() < 0.2:
            base.insert(self.rng.randint(0, len(base)), self.scale.extent(self.rng))
        return tuple(base)


def pick_dtype(rng: Random) -> str:
    return rng.choice(DTYPES)
