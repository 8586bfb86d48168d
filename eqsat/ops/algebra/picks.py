"""Attribute functions for masks beside the diagonal, and for one-hots that pick from a product.

A mask `a + c == b` of two lines 0, 1, … moves what is multiplied by it by c; of a product of which
a one-hot picks an element per row, only that element is computed. What is left out was multiplied
by zero, so rules built on this hold on finite values.
Sources: `jnp.eye` with k, `jax.nn.one_hot`; cross entropy with one-hot labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Leaf
from eqsat.model.movement import Move
from eqsat.model.tensor import NONE
from eqsat.ops.algebra.deltas import mask_form
from eqsat.ops.algebra.einsum import UNIT, Factor, einsum_of, generic_of
from eqsat.ops.algebra.linear import REALS
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic, identity
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.movement.moves import gather_of, pad_of, slice_along, unless_identity


@dataclass(frozen=True)
class MovedRows:
    """The part of a value that stays, the zeros that come in, and the order of dims behind."""

    cut: Move | None
    pad: Move | None
    perm: tuple[int, ...] | None


@dataclass(frozen=True)
class PickedProduct:
    """The slices of one operand that are picked, the product with them, and what is masked."""

    move: Move
    product: Generic
    masked: Generic


# ---- masks beside the diagonal -------------------------------------------------------------------
def shifted_rows(
    g: Generic, side: int, s: Generic, e: Generic, a: Leaf, b: Leaf
) -> MovedRows | None:
    """eye(k) @ x: the rows of x moved by k; s, operand `side` of g, casts the mask e."""
    f, offset = einsum_of(g), _offset(e)
    if f is None or offset is None or len(f.factors) != 2 or not (is_iota(a) and is_iota(b)):
        return None
    if not _casts(s) or f.dtype not in REALS or f.factors[1 - side].dtype != f.dtype:
        return None
    dims = [m[0].dim for m in e.maps]
    if sorted(d for d in dims if d is not None) != [0, 1] or e.rank != 2:
        return None
    if any(e.shapes[j] != (e.sizes[d],) for j, d in enumerate(dims) if d is not None):
        return None
    hot, table = f.factors[side].loops, f.factors[1 - side].loops
    first, second = (hot[d] for d in dims if d is not None)
    # element [first, second] is one where first + offset = second
    (k, row, step) = (second, first, offset) if second >= f.rank else (first, second, -offset)
    if list(f.reductions) != [k] or table.count(k) != 1 or row in (*table, k, UNIT):
        return None
    moved = [row if d == k else d for d in table]
    low, high = max(0, -step), min(f.sizes[row], f.sizes[k] - step)
    if sorted(moved) != list(f.result) or high <= low:
        return None
    axis = table.index(k)
    cut = slice_along(g.shapes[1 - side], axis, low + step, high + step)
    before = [low if q == axis else 0 for q in range(len(table))]
    behind = [f.sizes[row] - high if q == axis else 0 for q in range(len(table))]
    pad = pad_of(cut.shape, before, behind, "0.0")
    perm = tuple(moved.index(d) for d in f.result)
    is_straight = perm == tuple(range(len(perm)))
    return MovedRows(unless_identity(cut), unless_identity(pad), None if is_straight else perm)


def _offset(e: Generic) -> int | None:
    """c of a mask that is true where the first operand plus c is the second one."""
    if len(e.yields) != 1 or e.tile or e.rank != len(e.sizes) or e.body.fn != "eq":
        return None
    if len(e.maps) != 2:
        return None
    sides = [_plus_constant(x) for x in e.body.args]
    if None in sides or sorted(s[0] for s in sides if s) != [0, 1]:
        return None
    by = {s[0]: s[1] for s in sides if s}
    c = by[0] - by[1]
    return c if abs(c) < max(e.sizes) else None  # so nothing wraps


def _plus_constant(e: Expr) -> tuple[int, int] | None:
    """(i, c) of x_i + c."""
    if e.fn == "arg":
        return e.value, 0
    if e.fn not in ("add", "sub") or e.args[0].fn != "arg" or e.args[1].fn != "const":
        return None
    c = e.args[1].value
    return (e.args[0].value, c if e.fn == "add" else -c) if isinstance(c, int) else None


def _casts(s: Generic) -> bool:
    is_plain = len(s.yields) == 1 and not s.tile and s.rank == len(s.sizes)
    return is_plain and s.maps == (identity(s.rank),) and s.body == cast(arg(0), s.yields[0].dtype)


# ---- one-hots ------------------------------------------------------------------------------------
def pick_of_product(
    g: Generic, at: int, h: Generic, side: int, e: Generic, lines: Leaf
) -> PickedProduct | None:
    """Σ_j (x @ w)[i, j] · onehot(ids)[i, j] = x[i] · w[:, ids[i]], zero where ids names no column.

    Operand `at` of g is the mask e, the other one the product h, whose operand `side` has j.
    """
    f = einsum_of(h)
    loops = _bare(g, 1 - at)
    hot = _bare(g, at)
    if f is None or loops is None or hot is None or len(f.factors) != 2 or not is_iota(lines):
        return None
    if len(g.maps) != 2 or len(g.yields) != 1 or g.tile or g.combine != "add" or 0 in g.sizes:
        return None
    form, t = mask_form(g.body, at), f.dtype
    if t not in REALS or {g.yields[0].dtype, g.dtypes[1 - at]} != {t} or form is None:
        return None
    if (
        form.scale != arg(1 - at)
        or form.shift is not None
        or set(loops) != set(range(len(g.sizes)))
    ):
        return None
    if _offset(e) != 0 or len(e.maps[1]) != 1 or e.shapes[1] != (e.sizes[-1],):
        return None
    if [x.dim for x in e.maps[0]] != list(range(e.rank - 1)) or e.maps[1][0].dim != e.rank - 1:
        return None
    *rows, j = hot
    new = {d: loops[d] for d in f.result} | {d: len(g.sizes) + d for d in f.reductions}
    sizes = dict(enumerate(g.sizes)) | {len(g.sizes) + d: f.sizes[d] for d in f.reductions}
    x, w = f.factors[1 - side].renamed(new), f.factors[side].renamed(new)
    if j < g.rank or j in x.used or w.loops.count(j) != 1 or set(rows) & w.used or j in rows:
        return None
    if UNIT in w.loops or any(len(set(o.loops)) < len(o.loops) for o in (x, w)):
        return None
    axis, left = w.loops.index(j), [d for d in range(len(g.sizes)) if d != j]
    picked = Factor((*w.loops[:axis], *rows, *w.loops[axis + 1 :]), w.dtype)
    if not set(left) <= x.used | picked.used:
        return None
    pair = (x, picked) if side else (picked, x)
    return PickedProduct(
        gather_of(h.shapes[side], e.shapes[0], axis),
        generic_of(sizes, left, pair, t, f.precision),
        _masked(g, left, rows, e),
    )


def _bare(g: Generic, i: int) -> list[int] | None:
    """The loop of every dim of an operand, if each walks its whole dim alone."""
    if i >= len(g.maps):
        return None
    dims = [x.dim for x in g.maps[i]]
    loops = [d for d in dims if d is not None]
    is_whole = tuple(g.sizes[d] for d in loops) == g.shapes[i]
    return loops if len(loops) == len(dims) == len(set(loops)) and is_whole else None


def _masked(g: Generic, loops: Sequence[int], rows: Sequence[int], e: Generic) -> Generic:
    """The sum over what g still sums of the picked elements, zero where an index names none."""
    t, new = g.yields[0].dtype, {d: n for n, d in enumerate(loops)}
    named = call("and", call("ge", arg(1), const(0)), call("lt", arg(1), const(e.sizes[-1])))
    sizes = [g.sizes[d] for d in loops]
    return canonical_generic(
        sizes, range(g.rank), [identity(len(loops)), tuple(dim(new[d]) for d in rows)],
        [tuple(sizes), e.shapes[0]],
        [Yield(call("select", named, arg(0), const(0.0)), t, "add" if len(loops) > g.rank else "")],
        (), (t, e.dtypes[0]), precision=NONE,
    )  # fmt: skip


FUNCTIONS = attr_functions(shifted_rows, pick_of_product)
