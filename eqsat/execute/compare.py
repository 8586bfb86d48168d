"""Differences between results and what was wanted, and the verdict of a verification.

Element by element and by the worst; the verdict is the record that runs keep, print and write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.model.files import JsonRecord

Array = np.ndarray[Any, Any]
MOST_NOISE = 0.25  # of the largest element; a bound beyond that says nothing
MANY = 25  # elements that are off, of which a count says how many others may be
CHANCE = 2.0  # standard deviations by which two such counts may differ
LEEWAY = 2.0  # two errors of one distribution differ by that, where the noise does not tell it


def distance(got: Array, wanted: Array) -> Array:
    """|a − b| as float64; 0 where both are NaN or the same infinity, inf where only one is."""
    with np.errstate(all="ignore"):
        a, b = np.asarray(got).astype(np.float64), np.asarray(wanted).astype(np.float64)
        gap = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))


def size(wanted: Array) -> float:
    """The largest finite magnitude; 1 if there is none above zero."""
    x = np.abs(np.asarray(wanted).astype(np.float64))
    return float(np.max(np.where(np.isfinite(x), x, 0.0), initial=0.0)) or 1.0


def proof(wanted: Array, allowed: Array | None = None) -> float:
    """The share of elements that say something: finite, and not allowed to be anything.

    What may be off by a share of the largest element is rounding error and little else.
    """
    if not wanted.size:
        return 1.0
    says = np.isfinite(np.asarray(wanted).astype(np.float64))
    if allowed is not None:
        says = says & (allowed <= size(wanted) * MOST_NOISE)
    return float(np.mean(says))


def misshapen(got: Array, wanted: Array) -> str:
    return f": shape {list(got.shape)}, wanted {list(wanted.shape)}"


def element_place(shape: tuple[int, ...], flat: int) -> str:
    """`3, 1` of one element."""
    return ", ".join(str(int(i)) for i in np.unravel_index(flat, shape))


def element(got: Array, wanted: Array, flat: int, where: str | None = None) -> str:
    """`[3, 1]: got 2.0, wanted 1.0` of one element; where: its place, if it is not that here."""
    at = np.unravel_index(flat, wanted.shape)
    where = element_place(wanted.shape, flat) if where is None else where
    return f" [{where}]: got {got[at]}, wanted {wanted[at]}"


def dominated(errors: Array, reference: Array, explained: Array) -> bool:
    """Whether errors that rounding does not explain are as few and small as the input program's.

    Rank by rank, so that one element that is far off excuses one element, and no block of them;
    those that rounding explains excuse nothing. Where many are off, as where a chain of quantised
    layers rounds ties otherwise, two counts differ by chance; the further ones are as small as the
    smallest of the input program's.
    """
    mine = np.sort(errors[errors > explained], axis=None)[::-1]
    theirs = np.sort(reference[reference > explained], axis=None)[::-1]
    further = len(mine) - len(theirs)
    if further > 0 and (len(theirs) < MANY or further > CHANCE * (2 * len(theirs)) ** 0.5):
        return False
    allowed = np.append(theirs, np.full(max(further, 0), theirs[-1:].max(initial=0.0)))
    return bool((mine <= LEEWAY * allowed[: len(mine)]).all())


OK, MISMATCH, UNPROVEN = "ok", "mismatch", "unproven"
WHOLE, SAMPLED = "whole", "sampled"


@dataclass(frozen=True)
class Verification(JsonRecord):
    """max_error: max|a − b| / max|b| over samples and results; `where` names the worst element.

    outcome: `ok`, `mismatch` or `unproven`, with a sentence in `reason` unless it is ok. limit: the
    relative error that was allowed there. samples: how many inputs were judged. operations: of
    work, as the limit counts them. arena, arena_reason: the same of the schedule on one arena; ""
    where none was asked for. input_error: max_error of the input program itself, run as it came on
    the same executor and samples; None if not requested. drawn: weights of which only the shape was
    known.

    how: `whole`, every element of every result against the float64 reference; or `sampled`, every
    dispatch from its own operands, at elements that were computed in float64 on demand. elements:
    how many these are, `checked` a sentence of what else was compared; 0 and "" where `whole`.
    """

    ok: bool
    max_error: float
    limit: float
    samples: int
    where: str
    outcome: str = OK
    reason: str = ""
    operations: int = 0
    arena: str = ""
    arena_reason: str = ""
    input_error: float | None = None
    drawn: int = 0
    how: str = WHOLE
    elements: int = 0
    checked: str = ""


def unproven(reason: str, operations: int) -> Verification:
    """No statement, and why."""
    return Verification(False, 0.0, 0.0, 0, "", UNPROVEN, reason, operations)
