"""Attribute functions for masks made by comparing 0, 1, …: identities, diagonals, traces, one-hots.

A mask `a == b` of two such lines is one on the diagonal alone, so a sum over one of its loops has
one term; a mask `i == b` picks row i. What is left out was multiplied by zero, so rules built on
this hold on finite values. Lines are known by content (`meaning.iotas`), not by name.
Sources: how `jnp.eye`, `jnp.diag`, `jnp.trace` and `jax.nn.one_hot` are written; NumPy's einsum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.model.affine import Map, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.einsum import Einsum, einsum_of, generic_of
from eqsat.ops.algebra.linear import (
    MINUS_ONE,
    REALS,
    LinearForm,
    affine_in,
    as_dtype,
    factors,
    plus,
    replaced,
    times,
)
from eqsat.ops.algebra.simplify import permuted_copy
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import (
    canonical_body,
    canonical_generic,
    compose_maps,
    identity,
    without_operand,
)
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.movement.moves import gather_of


@dataclass(frozen=True)
class DiagonalApart:
    """The rest beside the diagonal, the product with the diagonal, and the sum of both products.

    The sum is an op of its own: with the operands of the diagonal it would have one operand more
    than the op that was matched, and rules are compiled for every number of operands there may be.
    """

    rest: Generic
    own: Generic
    total: Generic


@dataclass(frozen=True)
class PickedRows:
    """The rows that are picked, and zeros where an index names none."""

    move: Move
    masked: Generic


Operand = tuple[Map, Shape, str]  # how loops read it, its shape and its element type


# ---- masks ---------------------------------------------------------------------------------------
def _is_mask(e: Generic) -> bool:
    equal = call("eq", arg(0), arg(1))
    return len(e.yields) == 1 and not e.tile and e.rank == len(e.sizes) and e.body == equal


def _diagonal(e: Generic, a: Leaf, b: Leaf) -> tuple[int, int] | None:
    """The dims of a square mask that is true on its diagonal."""
    if not _is_mask(e) or len(e.maps) != 2 or not (is_iota(a) and is_iota(b)):
        return None
    dims = [m[0].dim for m in e.maps]
    if sorted(d for d in dims if d is not None) != [0, 1] or len(set(e.sizes)) > 1:
        return None
    p, q = dims
    whole = e.shapes == (e.sizes[:1], e.sizes[:1])
    return (p, q) if whole and p is not None and q is not None else None


def mask_form(body: Expr, i: int) -> LinearForm | None:
    """scale · mask + shift, the mask being operand i, as 0 and 1."""
    for t in REALS:
        body = replaced(body, cast(arg(i), t), arg(i))
    for part in list(body.walk()):
        if part.fn == "select" and part.args[0] == arg(i) and _is_zero(part.args[2]):
            body = replaced(body, part, call("mul", arg(i), part.args[1]))
    return affine_in(body, i)


def _is_zero(e: Expr) -> bool:
    return e.fn == "const" and e.value == 0


def _pair(m: Map, at: tuple[int, int]) -> tuple[int, int] | None:
    """The loops that walk these two dims."""
    p, q = (m[d].dim for d in at)
    return None if p is None or q is None or p == q else (p, q)


# ---- sums over a diagonal ------------------------------------------------------------------------
def diagonal_sum(g: Generic, i: int, e: Generic, a: Leaf, b: Leaf) -> Generic | None:
    """A sum of what is multiplied by a mask of the diagonal: without the mask, its operand i."""
    at = _diagonal(e, a, b)
    if at is None or len(g.yields) != 1 or g.tile or g.combine != "add":
        return None
    pair, form = _pair(g.maps[i], at), mask_form(g.body, i)
    if pair is None or form is None or g.yields[0].dtype not in REALS:
        return None
    if form.shift is not None or form.scale is None or not form.scale.operands():
        return None
    others = [j for j in range(len(g.maps)) if j != i]
    operands = [(g.maps[j], g.shapes[j], g.dtypes[j]) for j in others]
    body = form.scale.substitute({j: arg(n) for n, j in enumerate(others)})
    return _unified(g, pair, operands, body)


def diagonal_product(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> Generic | None:
    """A product whose operand `side` is zero but on a diagonal: the other operand, then those of s
    but for the mask, its operand i. What is nothing but the other operand is `unit_product`'s."""
    product = _product(g, side, s, i, e, a, b)
    return None if product is None or _is_copy(product) else product


def unit_product(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> Generic | None:
    """A product with an identity matrix, which is the other operand."""
    product = _product(g, side, s, i, e, a, b)
    return product if product is not None and _is_copy(product) else None


def _is_copy(g: Generic) -> bool:
    perm = permuted_copy(g)
    return perm is not None and perm == tuple(range(len(perm)))


def _product(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> Generic | None:
    masked = _masked(g, side, s, i, e, a, b)
    if masked is None or masked[3].shift is not None:
        return None
    product, pair, operands, form = masked
    value = _diagonal_value(product, side, s, i, form)
    return None if value is None else _unified(g, pair, operands, value)


def diagonal_apart(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> DiagonalApart | None:
    """x @ (m + mask · v) = x @ m + x · v; m reads operands, and is what `s` is without the mask."""
    masked = _masked(g, side, s, i, e, a, b)
    if masked is None or masked[3].shift is None or not masked[3].shift.operands():
        return None
    product, pair, operands, form = masked
    value = _diagonal_value(product, side, s, i, form)
    if value is None or len(g.reductions) != 1:
        return None
    scale, shift = _constant_apart(masked[3].shift)
    rest = without_operand(s, i, [shift], NONE)
    first = (identity(g.rank), g.result_shape, product.dtype)
    return _apart(g, pair, rest, first, times(scale, arg(0)), operands, value)


def _constant_apart(e: Expr) -> tuple[Expr, Expr]:
    """(c, x) with e = c · x for a constant c, so that x may be seen to be a product."""
    scale, rest = factors(e, lambda _: False)
    if rest.fn != "neg":
        return scale, rest
    return times(MINUS_ONE, scale), rest.args[0]


def diagonal_beside_constant(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> DiagonalApart | None:
    """x @ (c + mask · v) = c · Σ x + x · v for a constant c; `rest` is the sum of x."""
    masked = _masked(g, side, s, i, e, a, b)
    if masked is None or masked[3].shift is None or masked[3].shift.operands():
        return None
    product, pair, operands, form = masked
    value = _diagonal_value(product, side, s, i, form)
    x = product.factors[1 - side]
    if value is None or len(g.reductions) != 1 or g.rank not in x.used or -1 in x.loops:
        return None
    loops = [d for d in x.loops if d != g.rank]
    if len(set(loops)) < len(loops):
        return None
    rest = generic_of(dict(enumerate(g.sizes)), loops, [x], product.dtype)
    first = (tuple(dim(d) for d in loops), rest.result_shape, product.dtype)
    scaled = times(masked[3].shift, arg(0))
    return _apart(g, pair, rest, first, scaled, operands, value)


_Masked = tuple[Einsum, tuple[int, int], list[Operand], LinearForm]


def _masked(
    g: Generic, side: int, s: Generic, i: int, e: Generic, a: Leaf, b: Leaf
) -> _Masked | None:
    """The product g, the loops of the mask in it, its operands without the mask, and s by it."""
    product, at = einsum_of(g), _diagonal(e, a, b)
    if product is None or at is None or len(g.maps) != 2 or len(s.yields) != 1 or s.tile:
        return None
    dtype = s.yields[0].dtype
    if s.rank != len(s.sizes) or dtype not in REALS or product.dtype not in REALS:
        return None
    if any(x.dim is None for x in g.maps[side]):
        return None
    pair = _pair(compose_maps(s.maps[i], g.maps[side]), at)
    form = mask_form(s.body, i)
    if pair is None or max(pair) < g.rank or form is None or form.scale is None:
        return None
    others = [j for j in range(len(s.maps)) if j != i]
    x = (g.maps[1 - side], g.shapes[1 - side], g.dtypes[1 - side])
    inner = [(compose_maps(s.maps[j], g.maps[side]), s.shapes[j], s.dtypes[j]) for j in others]
    return product, pair, [x, *inner], form


def _diagonal_value(
    product: Einsum, side: int, s: Generic, i: int, form: LinearForm
) -> Expr | None:
    """Contribution of the diagonal, over the operands `_masked` lists."""
    if form.scale is None:
        return None
    others = [j for j in range(len(s.maps)) if j != i]
    scale = form.scale.substitute({j: arg(1 + n) for n, j in enumerate(others)})
    x = as_dtype(arg(0), product.factors[1 - side].dtype, product.dtype)
    if form.scale.operands():
        scale = as_dtype(scale, s.yields[0].dtype, product.dtype)
    return times(scale, x)


def _unified(
    g: Generic, pair: tuple[int, int], operands: Sequence[Operand], body: Expr
) -> Generic | None:
    """Over the loops of g with the two as one; one of them is summed and goes."""
    keep, gone = sorted(pair)
    if gone < g.rank:
        return None
    new = [d - (d > gone) for d in range(len(g.sizes))]
    new[gone] = new[keep]
    at = [dim(d) for d in new]
    y = replace(g.yields[0], body=canonical_body(body))
    return canonical_generic(
        [n for d, n in enumerate(g.sizes) if d != gone], range(g.rank),
        [compose_maps(m, at) for m, _, _ in operands], [shape for _, shape, _ in operands], [y], (),
        [t for _, _, t in operands], precision=g.precision,
    )  # fmt: skip


def _apart(
    g: Generic,
    pair: tuple[int, int],
    rest: Generic,
    first: Operand,
    scaled: Expr,
    operands: Sequence[Operand],
    value: Expr,
) -> DiagonalApart:
    """Over the result of g: the scaled first operand plus what the diagonal of the others adds."""
    keep, gone = sorted(pair)
    at = [dim(keep if d == gone else d) for d in range(len(g.sizes))]
    reads = [(compose_maps(m, at), shape, t) for m, shape, t in operands]
    whole = (identity(g.rank), g.result_shape, g.yields[0].dtype)
    total = plus(scaled, arg(1))
    assert total is not None
    return DiagonalApart(
        rest, _over_result(g, reads, value), _over_result(g, (first, whole), total)
    )


def _over_result(g: Generic, reads: Sequence[Operand], body: Expr) -> Generic:
    """An elementwise op over the result of g."""
    return canonical_generic(
        g.result_shape, range(g.rank), [m for m, _, _ in reads], [shape for _, shape, _ in reads],
        [Yield(canonical_body(body), g.yields[0].dtype)], (), [t for _, _, t in reads],
        precision=NONE,
    )  # fmt: skip


# ---- one-hots ------------------------------------------------------------------------------------
def pick_rows(g: Generic, side: int, s: Generic, e: Generic, lines: Leaf) -> PickedRows | None:
    """onehot(i) @ t = t[i], zeros where i names no row; s, operand `side` of g, casts the mask."""
    f = einsum_of(g)
    if f is None or f.dtype not in REALS or len(f.factors) != 2 or not _is_mask(e):
        return None
    if not is_iota(lines) or len(e.maps) != 2 or s.maps != (identity(s.rank),):
        return None
    if s.body != cast(arg(0), s.yields[0].dtype) or s.tile or s.rank != len(s.sizes):
        return None
    places, at = [x.dim for x in e.maps[0]], e.maps[1][0].dim
    if at is None or places != [d for d in range(e.rank) if d != at]:
        return None
    hot, table = f.factors[side].loops, f.factors[1 - side].loops
    k, rows = hot[at], [d for q, d in enumerate(hot) if q != at]
    if list(f.reductions) != [k] or table.count(k) != 1 or set(rows) & set(table):
        return None
    axis = table.index(k)
    loops = [*table[:axis], *rows, *table[axis + 1 :]]
    if sorted(loops) != list(f.result) or e.shapes[1] != (f.sizes[k],):
        return None
    move = gather_of(g.shapes[1 - side], e.shapes[0], axis)
    named = call("and", call("ge", arg(1), const(0)), call("lt", arg(1), const(f.sizes[k])))
    row = as_dtype(arg(0), f.factors[1 - side].dtype, f.dtype)
    masked = canonical_generic(
        g.result_shape, range(g.rank), [tuple(map(dim, loops)), tuple(map(dim, rows))],
        [move.shape, e.shapes[0]], [Yield(call("select", named, row, const(0.0)), f.dtype)], (),
        (f.factors[1 - side].dtype, e.dtypes[0]), precision=NONE,
    )  # fmt: skip
    return PickedRows(move, masked)


FUNCTIONS = attr_functions(
    diagonal_sum,
    diagonal_product,
    unit_product,
    diagonal_apart,
    diagonal_beside_constant,
    pick_rows,
)
