"""Generics that are einsums: Σ (or none) of the product of all operands, over bare whole dims.

What the algebra of sums, factors and orders of products reads and writes. Real and integer types:
integers wrap, so their sums and products may be taken in any order. Operands of narrower types may
be cast inside of the body, as in contractions that sum bf16 in f32.
Source: NumPy's einsum; opt_einsum (Smith and Gray, JOSS 2018) for what an order costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from eqsat.model.affine import Affine, Map, dim
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import DTYPES, NONE
from eqsat.ops.algebra.linear import REALS, as_dtype
from eqsat.ops.generics.canonical import canonical_body, canonical_generic

UNIT = -1  # a dim of size 1 that no loop walks
SMALL = 256  # elements
Loops = tuple[int, ...]


@dataclass(frozen=True)
class Factor:
    """An operand: the loop that walks each of its dims, and its element type."""

    loops: Loops
    dtype: str

    @property
    def used(self) -> frozenset[int]:
        """The loops it varies along."""
        return frozenset(self.loops) - {UNIT}

    def renamed(self, new: Mapping[int, int]) -> Factor:
        """The operand over renamed loops; those that are not named stay."""
        return Factor(tuple(new.get(d, d) for d in self.loops), self.dtype)


@dataclass(frozen=True)
class Einsum:
    """result[loops 0 … rank-1] = Σ over the other loops of the product of all factors."""

    sizes: Loops  # extent of every loop
    rank: int
    factors: tuple[Factor, ...]
    dtype: str
    precision: str

    @property
    def result(self) -> range:
        return range(self.rank)

    @property
    def reductions(self) -> range:
        return range(self.rank, len(self.sizes))

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return math.prod(self.sizes)


@lru_cache(maxsize=10_000)
def einsum_of(g: Generic) -> Einsum | None:
    """The einsum that a generic is; None if it is none, or has loops that no operand has."""
    y = g.yields[0]
    if len(g.yields) != 1 or g.tile or not g.maps or g.combine not in ("", "add") or 0 in g.sizes:
        return None
    if not is_ring(y.dtype) or any(0 in s for s in g.shapes):
        return None
    named = _product_of(y.body, g.dtypes, y.dtype)
    if named is None or sorted(named) != list(range(len(g.maps))):
        return None
    loops = [_loops(m, shape, g.sizes) for m, shape in zip(g.maps, g.shapes, strict=True)]
    walked = [x for x in loops if x is not None]
    if len(walked) != len(loops):
        return None
    factors = tuple(Factor(x, t) for x, t in zip(walked, g.dtypes, strict=True))
    used = frozenset[int]().union(*(f.used for f in factors))
    if any(size != 1 and d not in used for d, size in enumerate(g.sizes)):
        return None  # a sum over such a loop multiplies
    return Einsum(g.sizes, g.rank, factors, y.dtype, g.precision)


def is_ring(dtype: str) -> bool:
    """Whether sums and products of this type may be reordered: exactly, or up to rounding."""
    return dtype in REALS or DTYPES[dtype][1] in "iu"


def _product_of(e: Expr, dtypes: Sequence[str], dtype: str) -> list[int] | None:
    """The operands that a body multiplies, each as it is or cast to the type of the result."""
    if e.fn == "mul":
        parts = [_product_of(a, dtypes, dtype) for a in e.args]
        return None if None in parts else [i for p in parts if p is not None for i in p]
    if e.fn == "cast" and e.value == dtype and dtype in REALS:
        e = e.args[0]
        return [e.value] if e.fn == "arg" and dtypes[e.value] in REALS else None
    return [e.value] if e.fn == "arg" and dtypes[e.value] == dtype else None


def _loops(m: Map, shape: Loops, sizes: Loops) -> Loops | None:
    """The loop of every dim, if each walks its whole dim."""
    loops = []
    for e, size in zip(m, shape, strict=True):
        if e.dim is not None and sizes[e.dim] == size:
            loops.append(e.dim)
        elif e == Affine(()) and size == 1:
            loops.append(UNIT)
        else:
            return None
    return tuple(loops)


# ---- back to generics ----------------------------------------------------------------------------
def generic_of(
    sizes: Mapping[int, int],
    result: Sequence[int],
    factors: Sequence[Factor],
    dtype: str,
    precision: str = NONE,
) -> Generic:
    """The sum over all loops of the factors that the result has not; sizes: of every loop."""
    used = frozenset[int]().union(*(f.used for f in factors))
    order = [*result, *sorted(used - set(result))]
    new = {d: i for i, d in enumerate(order)}
    maps = [tuple(Affine(()) if d == UNIT else dim(new[d]) for d in f.loops) for f in factors]
    shapes = [tuple(1 if d == UNIT else sizes[d] for d in f.loops) for f in factors]
    wide = [as_dtype(arg(i), f.dtype, dtype) for i, f in enumerate(factors)]
    body = canonical_body(reduce(lambda a, b: call("mul", a, b), wide))
    return canonical_generic(
        [sizes[d] for d in order],
        range(len(result)),
        maps,
        shapes,
        [Yield(body, dtype, "add")],
        (),
        [f.dtype for f in factors],
        precision=precision,
    )


# ---- what it takes ------------------------------------------------------------------------------
def work_of(sizes: Mapping[int, int], *factors: Factor) -> int:
    """Multiply-adds of one product of these factors."""
    return math.prod(sizes[d] for d in frozenset[int]().union(*(f.used for f in factors)))


def is_tenth_less(new: int, old: int) -> bool:
    """Whether `new` is at most nine tenths of `old`."""
    return 10 * new <= 9 * old


def is_times_less(new: int, old: int, times: int) -> bool:
    """Whether `new` elements are so many times fewer than `old`; of up to SMALL, a tenth fewer.

    The factor keeps e-graphs of models from growing; small values are what rules are hunted on.
    """
    return times * new <= old or (old <= SMALL and is_tenth_less(new, old))
