"""Comparison of two sides of a rule at one instance: the first lane on which they differ.

Rounding takes the sides of an `inexact` rule apart, at most by its `bound:`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.rounding import ULPS, UNROUNDED
from eqsat.hunt.sides import (
    Application,
    Array,
    Claim,
    Garbage,
    Leaves,
    Ref,
    Side,
    Values,
    constant_lanes,
)
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom
from eqsat.model.rules import FINITE
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.scalar import called, computed
from eqsat.ops.meaning.structured import evaluate_generic, strided_view

# ---- lanes ---------------------------------------------------------------------------------------
RELATIVE = 1e-9  # of float64 values whose order of computation may differ


@dataclass(frozen=True)
class Tolerance:
    """How exactly lanes must agree.

    relative: allowed error of floats, 0 if they must be equal. scale: the largest finite value
    seen, as cancellation leaves errors of its size. signs: whether -0 differs from 0.
    finite_only: lanes on which the left side is not finite are no evidence.
    """

    relative: float = 0.0
    scale: float = 0.0
    signs: bool = False
    finite_only: bool = False


def agree(a: Array, b: Array, how: Tolerance) -> Array:
    """Lane by lane; NaN equals NaN."""
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return a == b
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if how.signs:
            same &= (np.signbit(a) == np.signbit(b)) | np.isnan(a)
        if how.relative:
            size = np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-3 * how.scale)
            same |= np.abs(a - b) <= how.relative * size
    return same | ~np.isfinite(a) if how.finite_only else same


def first_difference(
    lefts: Sequence[Sequence[Array]],
    left_open: Sequence[Array],
    rights: Sequence[Sequence[Array]],
    right_open: Sequence[Array],
    how: Tolerance,
) -> str:
    """The first fault of the right side, "" if there is none; both sides in one or two runs.

    A lane is open if anything it is computed from is open. Where the left side is not open, the
    right side must not be, and be equal. Where the left side is open, and does depend on garbage,
    the right side must be open: after the union a reader that relies on the right side may get
    undefined lanes.
    """
    for i, (a, is_open) in enumerate(zip(lefts[0], left_open, strict=True)):
        where = f" of result {i}" if len(left_open) > 1 else ""
        candidates = [r[i] for r in rights]
        same = np.logical_and.reduce([agree(a, b, how) for b in candidates])
        wrong = ~is_open & (right_open[i] | ~same)
        if wrong.any():
            at = _first(wrong & right_open[i]) if (wrong & right_open[i]).any() else _first(wrong)
            return _lane(a, candidates, bool(right_open[i][at]), at, where)
        leaked = is_open & ~right_open[i] & ~agree(a, lefts[-1][i], Tolerance())
        if leaked.any():
            at = _first(leaked)
            return (
                f"at {list(at)}{where}: the left side leaves this lane open, the right side"
                f" promises {shown(candidates[0][at])}"
            )
    return ""


def _lane(a: Array, rights: Sequence[Array], is_open: bool, at: tuple[int, ...], where: str) -> str:
    left, right = shown(a[at]), shown(rights[-1][at])
    if is_open:
        return f"at {list(at)}{where}: left {left}, the right side leaves this lane open"
    return f"at {list(at)}{where}: left {left}, right {right}"


def false_claim(claims: Sequence[Claim]) -> str:
    """The first op that says its operand's padding holds a value when it does not."""
    for claim in claims:
        layout = claim.tree.attr
        assert isinstance(layout, Layout)
        given = constant_lanes(layout, claim.operand.dtype)
        if given is None:
            continue
        where, want = given
        wrong = where & ~agree(claim.operand, want, Tolerance())
        if wrong.any():
            at = _first(wrong)
            return (
                f"its `{claim.tree.op}` says that the padding at {list(at)} of its operand is"
                f" {shown(want[at])}, it may be {shown(claim.operand[at])}"
            )
    return ""


def _first(lanes: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(lanes)[0])


def shown(value: Any) -> str:
    return str(value.item() if isinstance(value, np.generic) else value)


# ---- bounds --------------------------------------------------------------------------------------
Pair = tuple[Array, Array]  # values, and their Σ|terms|

EPS = 2.0**-23  # of f32
STEP = 1e-5  # relative, of an argument, for slopes
UNSURE = 1e-4  # relative to the terms: so near, rounding may decide a comparison
ULPS_OF_CUSTOM = 8  # of an op of a plug-in
JUMPS = frozenset({"floor", "ceil", "round_even", "round_away", "sign", "rem", "nextafter"})
COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def beyond_bound(bound: str, left: Application, right: Side, leaves: Leaves, opened: Array) -> str:
    """The first lane of the first result that differs by more than the bound; "" if none does.

    opened: open lanes, which are not compared.
    """
    with np.errstate(all="ignore"):
        rounded = Rounded(leaves, Garbage(None))
        a, b = rounded(left)[0], rounded(right)[0]
        if a.dtype.kind != "f":
            return ""
        apart = np.abs(a - b)
        seen = np.isfinite(a) & np.isfinite(b) & ~opened
        if bound == FINITE:
            allowed = np.zeros_like(apart)
        else:
            count = count_roundings(left) + count_roundings(right)
            allowed = count * EPS * Terms(leaves)(left)[0]
        wrong = seen & np.isfinite(allowed) & (apart > allowed)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"at {list(at)}: in f32 left {a[at]:.9g}, right {b[at]:.9g}; the bound `{bound}` allows"
        f" {allowed[at]:.1e}, they differ by {apart[at]:.1e}"
    )


def count_roundings(side: Side) -> int:
    """How often a value is rounded along the longest path, at most."""
    if isinstance(side, Ref):
        return 0
    before = max((count_roundings(o) for o in side.operands), default=0)
    if isinstance(side.attr, Generic):
        return before + max(_rounding_steps(side.attr, y) for y in side.attr.yields)
    return before + ULPS_OF_CUSTOM * isinstance(side.attr, Custom)


def _rounding_steps(g: Generic, y: Yield) -> int:
    body = sum(int(ULPS.get(e.fn, 1)) for e in y.body.walk() if _rounds(e))
    return body + (math.prod(g.sizes[g.rank :]) if y.combine in ("add", "mul") else 0)


def _rounds(e: Expr) -> bool:
    return e.fn not in UNROUNDED and e.fn not in ("arg", "const", "cast")


class Rounded(Values):
    """The values of a side with every float rounded to f32, held in float64."""

    methods: Mapping[str, str] = {"generic": "_generic"}

    def _evaluate(self, side: Side) -> list[Array]:
        return [_f32(x) for x in super()._evaluate(side)]

    def _generic(self, tree: Application, operands: list[Array]) -> list[Array]:
        g = tree.attr
        assert isinstance(g, Generic)
        views = _views(g, operands)
        bodies = [y.body for y in g.yields]
        values = computed(bodies, lambda e, args: _f32(called(e, args, views)))
        whole = (
            evaluate_generic(g, operands) if any(not is_float(y.dtype) for y in g.yields) else ()
        )
        return [
            self._reduced(g, y, v) if is_float(y.dtype) else whole[i]
            for i, (y, v) in enumerate(zip(g.yields, values, strict=True))
        ]

    def _reduced(self, g: Generic, y: Yield, value: Array) -> Array:
        full = np.broadcast_to(value, g.sizes)
        if not y.combine:
            return full
        # in one piece per lane, so that the order depends on the number of terms alone
        narrow = np.ascontiguousarray(full, np.float32).reshape(*g.result_shape, -1)
        return np.asarray(_REDUCE[y.combine].reduce(narrow, axis=-1))


class Terms(Values):
    """Σ|terms| of every lane of a side; of what is no float the value."""

    methods: Mapping[str, str] = {"generic": "_generic"}

    def __init__(self, leaves: Leaves):
        super().__init__(leaves, Garbage(None))
        self.values = Values(leaves, Garbage(None))

    def _evaluate(self, side: Side) -> list[Array]:
        return [np.abs(x) if x.dtype.kind == "f" else x for x in super()._evaluate(side)]

    def _generic(self, tree: Application, operands: list[Array]) -> list[Array]:
        g = tree.attr
        assert isinstance(g, Generic)
        exact = [self.values(o)[0] for o in tree.operands]
        pairs = list(zip(_views(g, exact), _views(g, operands), strict=True))
        sized = computed([y.body for y in g.yields], lambda e, args: _term(e, args, pairs))
        results = self.values(tree)
        return [
            self._reduced(g, y, size) if is_float(y.dtype) else results[i]
            for i, (y, (_, size)) in enumerate(zip(g.yields, sized, strict=True))
        ]

    def _reduced(self, g: Generic, y: Yield, size: Array) -> Array:
        full = np.broadcast_to(size, g.sizes)
        if not y.combine:
            return full
        # the larger of two is off by no more than both, so a minimum has the largest term, too
        how = {"min": "max"}.get(y.combine, y.combine)
        return np.asarray(_REDUCE[how].reduce(full, axis=tuple(g.reductions)))


def _views(g: Generic, operands: Sequence[Array]) -> list[Array]:
    return [strided_view(x, m, g.sizes) for x, m in zip(operands, g.maps, strict=True)]


def _f32(x: Any) -> Array:
    value = np.asarray(x)
    return value.astype(np.float32).astype(np.float64) if value.dtype.kind == "f" else value


# ---- terms of a body -----------------------------------------------------------------------------
def _term(e: Expr, args: Sequence[Pair], operands: Sequence[Pair]) -> Pair:
    """The value of an expression and its Σ|terms|, of those of its arguments."""
    if e.fn == "arg":
        return operands[e.value]
    value = np.asarray(called(e, [v for v, _ in args], ()))
    if value.dtype.kind != "f" or e.fn == "const":
        return value, _decided(e, args, np.abs(value))
    sizes = [t for _, t in args]
    size_of = _SIZES.get(e.fn)
    if size_of is not None:
        size = size_of([v for v, _ in args], sizes)
    else:
        size = _decided(e, args, np.abs(value)) + _slopes(e, args)
    unsure = [np.isinf(t) for t in sizes if t.dtype.kind == "f"]
    return value, np.where(np.logical_or.reduce(np.broadcast_arrays(*unsure)), np.inf, size)


_SIZES: dict[str, Callable[[list[Array], list[Array]], Array]] = {
    "add": lambda v, t: t[0] + t[1],
    "sub": lambda v, t: t[0] + t[1],
    "mul": lambda v, t: t[0] * t[1],
    "div": lambda v, t: t[0] * t[1] / np.square(v[1]),
    "neg": lambda v, t: t[0],
    "abs": lambda v, t: t[0],
    "cast": lambda v, t: np.abs(t[0]),
    "max": lambda v, t: np.maximum(t[0], t[1]),
    "min": lambda v, t: np.maximum(t[0], t[1]),
    "clamp": lambda v, t: np.maximum(np.maximum(t[0], t[1]), t[2]),
    "select": lambda v, t: np.where(v[0], t[1], t[2]),
}


def _slopes(e: Expr, args: Sequence[Pair]) -> Array:
    """How much a function that is no polynomial moves with the terms of its arguments."""
    total = np.zeros(())
    if e.fn in JUMPS:
        return total
    for i, (v, size) in enumerate(args):
        step = STEP * np.maximum(1.0, np.abs(v))
        sides = [[w if j != i else v + s for j, (w, _) in enumerate(args)] for s in (step, -step)]
        high, low = (called(e, side, ()) for side in sides)
        total = total + np.abs(high - low) / (2 * step) * size
    return total


def _decided(e: Expr, args: Sequence[Pair], size: Array) -> Array:
    """The size, infinite where rounding may decide a comparison or a jump: that says nothing."""
    floats = [(v, t) for v, t in args if np.asarray(v).dtype.kind == "f"]
    near: Any = np.zeros((), bool)
    if e.fn in JUMPS:
        near = next(np.abs(2 * v - np.rint(2 * v)) <= UNSURE * t for v, t in floats)
    elif e.fn in COMPARED and len(floats) == 2:
        (a, s), (b, t) = floats
        near = np.abs(a - b) <= UNSURE * (s + t)
    return np.where(near, np.inf, size)
