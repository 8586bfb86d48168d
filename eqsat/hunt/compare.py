"""Two sides of a rule at one instance → the first lane on which they differ, as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.hunt.sides import Array, Claim, constant_lanes
from eqsat.model.layout import Layout

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
    """What is wrong with the right side, "" if nothing is; both sides in one or two runs.

    A lane is open if anything it is computed from is open. Where the left side is not open, the
    right side must not be, and be equal. Where the left side is open, and does depend on garbage,
    the right side must be open: after the union a reader that relies on the right side may get
    undefined lanes.
    """
    for i, (a, is_open) in enumerate(zip(lefts[0], left_open, strict=True)):
        where = f" of result {i}" if len(left_open) > 1 else ""
        found = [r[i] for r in rights]
        same = np.logical_and.reduce([agree(a, b, how) for b in found])
        wrong = ~is_open & (right_open[i] | ~same)
        if wrong.any():
            at = _first(wrong & right_open[i]) if (wrong & right_open[i]).any() else _first(wrong)
            return _lane(a, found, bool(right_open[i][at]), at, where)
        leaked = is_open & ~right_open[i] & ~agree(a, lefts[-1][i], Tolerance())
        if leaked.any():
            at = _first(leaked)
            return (
                f"at {list(at)}{where}: the left side leaves this lane open, the right side"
                f" promises {shown(found[0][at])}"
            )
    return ""


def _lane(a: Array, rights: Sequence[Array], is_open: bool, at: tuple[int, ...], where: str) -> str:
    left, found = shown(a[at]), shown(rights[-1][at])
    if is_open:
        return f"at {list(at)}{where}: left {left}, the right side leaves this lane open"
    return f"at {list(at)}{where}: left {left}, right {found}"


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
