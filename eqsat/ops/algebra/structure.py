"""Operands with a structure: Kronecker products, shared heads, diagonals, and blocks on a diagonal.

Kronecker products and heads that share keys are products and copies over more loops than their
readers have; a diagonal is a slice of all rows in one line. The reader gets these loops, which
computes the same elements, so what follows (other orders, no copies) is left to other rules.
Sources: NumPy's `kron`; grouped queries (Ainslie et al., EMNLP 2023); `jnp.diagonal`.

A product with a matrix of blocks on its diagonal, written as padded parts put together, is one
small product per block. What is left out was multiplied by zero, so rules built on that hold on
finite values. Sources: `jax.scipy.linalg.block_diag`; monarch matrices (Dao et al., ICML 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from eqsat.model.affine import Affine, affine
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic
from eqsat.model.movement import Move, Reshape
from eqsat.ops.algebra.einsum import einsum_of
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, compose_maps
from eqsat.ops.generics.windows import LoopRange, restricted
from eqsat.ops.movement.collapse import RegroupedOperand, before_reshape
from eqsat.ops.movement.layout import reassociation
from eqsat.ops.movement.moves import concat_of, pad_of, pad_value, unless_identity


# ---- structure behind a reshape ------------------------------------------------------------------
# ---- products and copies under a reshape ---------------------------------------------------------
def loops_apart(g: Generic, i: int, groups: Reshape, e: Generic) -> RegroupedOperand | None:
    """A contraction whose operand i is reshape(e), over the loops of e.

    Where e is a copy or a product without a sum, and the reshape joins loops that none of its
    operands has together: the rows of a Kronecker product, or copies of a row.
    """
    if contraction_roles(g) is None or not (_is_spread(e) or _is_outer(e)):
        return None
    return before_reshape(g, i, groups) if _joins_apart(e, groups) else None


def _is_spread(e: Generic) -> bool:
    is_copy = len(e.maps) == len(e.yields) == 1 and e.body == arg(0) and not e.tile
    return is_copy and not e.reductions and all(x.dim is not None for x in e.maps[0])


def _is_outer(e: Generic) -> bool:
    product = einsum_of(e)
    return product is not None and len(product.factors) > 1 and not product.reductions


def _joins_apart(e: Generic, groups: Reshape) -> bool:
    """Whether some dim of the reshaped value is walked by no operand of e as a whole."""
    parts = reassociation(groups.source, groups.shape)
    for dims, _ in parts or ():
        large = {d for d in dims if e.sizes[d] > 1}
        walked = [{x.dim for x in m} & large for m in e.maps]
        if len(large) > 1 and any(walked) and large not in walked:
            return True
    return False


# ---- diagonals -----------------------------------------------------------------------------------
def read_diagonal(g: Generic, groups: Reshape, cut: Move) -> Generic | None:
    """slice(reshape(g)) that steps through several dims of g at once: only that is computed.

    As in the diagonal of a matrix: every (n + 1)-th element of its n · n.
    """
    if len(g.yields) != 1 or g.tile or 0 in g.sizes or 0 in cut.shape:
        return None
    at = _walked(groups, cut)
    if at is None:
        return None
    rank = len(cut.shape)
    loops = [*at, *(affine([(rank + n, 1)]) for n in range(len(g.reductions)))]
    return canonical_generic(
        [*cut.shape, *g.sizes[g.rank :]], range(rank), [compose_maps(m, loops) for m in g.maps],
        g.shapes, g.yields, (), g.dtypes, precision=g.precision,
    )  # fmt: skip


def _walked(groups: Reshape, cut: Move) -> list[Affine] | None:
    """How the slice walks every dim in front of the reshape; None if it steps through no two."""
    parts = reassociation(groups.source, groups.shape)
    if parts is None:
        return None
    index: dict[int, Affine] = {}
    steps_through = False
    for dims, (*outer, q) in parts:
        if any(groups.shape[d] != 1 for d in outer):
            return None
        shape = [groups.source[d] for d in dims]
        start, step = (_digits(cut.args[k][q], shape) for k in (0, 2))
        last = [a + b * (cut.shape[q] - 1) for a, b in zip(start, step, strict=True)]
        if any(a >= n for a, n in zip(last, shape, strict=True)):
            return None  # it crosses the end of a row
        index |= {
            d: affine([(q, b)] if b else [], a) for d, a, b in zip(dims, start, step, strict=True)
        }
        steps_through |= sum(b > 0 for b in step) > 1 and cut.shape[q] > 1
    return [index[d] for d in range(len(groups.source))] if steps_through else None


def _digits(value: int, shape: Sequence[int]) -> Shape:
    """The index of the element that lies this far from the first one."""
    digits: list[int] = []
    for n in reversed(shape):
        digits.append(value % n)
        value //= n
    return tuple(reversed(digits))


# ---- blocks on a diagonal ------------------------------------------------------------------------
_MOST_BLOCKS = 4  # rules are written per number of blocks


@dataclass(frozen=True)
class PairedBlocks:
    """The pads of two blocks inside of the smallest matrix of both, and what is around that."""

    first: Move
    second: Move
    pair: Move
    pad: Move
    concat: Move


@dataclass(frozen=True)
class BlockProducts:
    """Other operand of each block, the products, and how they are put together."""

    first: Move | None
    second: Move | None
    third: Move | None
    fourth: Move | None
    product: Generic
    product_2: Generic
    product_3: Generic | None
    product_4: Generic | None
    concat: Move


def pair_blocks(m: Move, p: Move, q: Move) -> PairedBlocks | None:
    """concat(pad(a), pad(b), …) = concat(pad(c), …) for c the matrix with the blocks a and b.

    Of more parts than `block_products` takes; b begins in the column in which a ends.
    """
    (axis,) = m.args
    located = _columns([p, q], axis)
    if located is None or len(m.sources) <= _MOST_BLOCKS:
        return None
    dim, (low, middle, high) = located
    first = _padded(p, dim, 0, high - middle)
    second = _padded(q, dim, middle - low, 0)
    pair = concat_of([first.shape, second.shape], axis)
    pad = pad_of(pair.shape, *_around(len(pair.shape), dim, low, p.shape[dim] - high), p.args[2])
    return PairedBlocks(first, second, pair, pad, concat_of([pad.shape, *m.sources[2:]], axis))


def block_products(
    g: Generic, i: int, m: Move, p: Move, q: Move, r: Move | None = None, s: Move | None = None
) -> BlockProducts | None:
    """A contraction whose operand i has blocks on its diagonal: one contraction for each.

    p to s: the pads of the blocks, two to four of them.
    """
    pads = [x for x in (p, q, r, s) if x is not None]
    (axis,) = m.args
    located, k = _columns(pads, axis), g.maps[i][axis].dim
    if located is None or einsum_of(g) is None or len(g.maps) != 2 or len(pads) != len(m.sources):
        return None
    if contraction_roles(g) is None or any(pad_value(x.args[2]) != "0" for x in pads):
        return None
    dim, columns = located
    n = g.maps[i][dim].dim
    if k is None or n is None or k < g.rank or n >= g.rank:
        return None
    if columns[0] or columns[-1] != g.sizes[n] or _walks(g, n) != 1 or _walks(g, k) != 2:
        return None
    rows = [0, *accumulate(x.shape[axis] for x in pads)]
    parts = [
        restricted(g, {k: LoopRange(a, 1, b - a), n: LoopRange(c, 1, d - c)})
        for (a, b), (c, d) in zip(pairwise(rows), pairwise(columns), strict=True)
    ]
    cuts = [unless_identity(x.operands[1 - i]) for x in parts]
    sigs = [x.sig for x in parts]
    third, fourth = (cuts + [None] * 2)[2:4]
    product_3, product_4 = ([*sigs, None, None])[2:4]
    return BlockProducts(
        cuts[0], cuts[1], third, fourth, sigs[0], sigs[1], product_3, product_4,
        concat_of([x.result_shape for x in sigs], n),
    )  # fmt: skip


def _walks(g: Generic, loop: int) -> int:
    """How many dims of operands a loop walks."""
    return sum(d == loop for m in g.maps for e in m for d, _ in e.terms)


def _columns(pads: Sequence[Move], axis: int) -> tuple[int, list[int]] | None:
    """The dim that all are padded in, where the first begins and where each of them ends there.

    None unless each begins where the one before ends.
    """
    padded = {
        d for x in pads for d, around in enumerate(zip(*x.args[:2], strict=True)) if any(around)
    }
    if len(padded) != 1 or axis in padded or len({pad_value(x.args[2]) for x in pads}) > 1:
        return None
    (dim,) = padded
    ranges = [(x.args[0][dim], x.args[0][dim] + x.sources[0][dim]) for x in pads]
    if any(low >= high for low, high in ranges):
        return None
    if any(a[1] != b[0] for a, b in pairwise(ranges)) or any(0 in x.sources[0] for x in pads):
        return None
    return dim, [ranges[0][0], *(high for _, high in ranges)]


def _padded(p: Move, dim: int, low: int, high: int) -> Move:
    return pad_of(p.sources[0], *_around(len(p.shape), dim, low, high), p.args[2])


def _around(rank: int, dim: int, low: int, high: int) -> tuple[list[int], list[int]]:
    """Padding of one dim, as lists of all dims."""
    return [low if d == dim else 0 for d in range(rank)], [
        high if d == dim else 0 for d in range(rank)
    ]


FUNCTIONS = attr_functions(loops_apart, read_diagonal, pair_blocks, block_products)
