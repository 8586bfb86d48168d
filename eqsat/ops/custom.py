"""Ops that have no attribute class of their own: instances for the hunt, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eqsat.model.attr import Shape, ShapeError
from eqsat.model.diag import EqsatError
from eqsat.model.foreign import Custom
from eqsat.ops.meaning import scalar
from eqsat.ops.op import Array, Op, broken_op, said
from eqsat.ops.registry import op_record

Sampler = Callable[[np.random.Generator, Shape], Custom | None]
TRIES = ("same", "whole", "near", "far") * 32  # values that lanes are tried with


def sample(r: Op, rng: np.random.Generator, shape: Shape) -> Custom | None:
    """An instance whose result has this shape, by the op's sampler; None if it knows none."""
    if r.sample is None:
        return None
    try:
        sampled = r.sample(rng, shape)
        if sampled is None:
            return None
        values, sources = sampled
        attr = r.attribute(list(sources), values)
    except ShapeError as error:
        raise broken_op(r, f"its sampler proposes a misfit: {error}") from error
    except EqsatError:
        raise
    except Exception as error:
        raise broken_op(r, f"its sampler fails for {list(shape)}: {said(error)}") from error
    assert isinstance(attr, Custom)
    if attr.shape != tuple(shape):
        raise broken_op(r, f"its sampler gives {list(attr.shape)} where {list(shape)} is wanted")
    return attr


# ---- meaning -------------------------------------------------------------------------------------
def evaluate_custom(attr: Custom, operands: Sequence[Array]) -> Array:
    """The result in held form, by the NumPy meaning of the op; E601 or E602 if there is none."""
    r = op_record(attr.op)
    assert r.numpy is not None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(r.numpy(dict(attr.values), *operands))
    except Exception as error:
        raise broken_op(r, f"its NumPy meaning fails: {said(error)}") from error
    if result.shape != attr.shape:
        raise broken_op(
            r, f"its NumPy meaning gives {list(result.shape)}, its shape rule {list(attr.shape)}"
        )
    return scalar.hold(result, attr.dtype) if attr.dtype else result.astype(operands[0].dtype)


def dependent_lanes(attr: Custom, operands: Sequence[Array], marked: Sequence[Array]) -> Array:
    """Lanes of the result that may depend on the marked lanes (bools per operand).

    Found by trying, on random operands of these types: as for other ops, what an operand happens
    to hold elsewhere (a zero that it is multiplied by) does not matter.
    """
    rng = np.random.default_rng(0)
    dependent = np.zeros(attr.shape, bool)
    for how in TRIES if any(m.any() for m in marked) else ():
        one = [_random(rng, x, how) for x in operands]
        other = [_odd(rng, _random(rng, x, "near")) for x in operands]
        mixed = [np.where(m, b, a) for m, a, b in zip(marked, one, other, strict=True)]
        dependent |= ~_same(evaluate_custom(attr, one), evaluate_custom(attr, mixed))
    return dependent


def _random(rng: np.random.Generator, like: Array, how: str) -> Array:
    """An array all of whose values are 1, or small and whole, or about 1, or about 9."""
    if how == "same":
        return np.ones_like(like)
    if like.dtype.kind == "b":
        return rng.random(like.shape) < 0.5
    if like.dtype.kind == "f" and how != "whole":
        return rng.normal(0, 9 if how == "far" else 1, like.shape)
    low = 0 if like.dtype.kind == "u" else -2
    return rng.integers(low, 3, like.shape).astype(like.dtype)


def _odd(rng: np.random.Generator, x: Array) -> Array:
    """With some NaN among the floats."""
    return np.where(rng.random(x.shape) < 0.25, np.nan, x) if x.dtype.kind == "f" else x


def _same(a: Array, b: Array) -> Array:
    """Lane by lane; NaN is NaN."""
    return (a == b) | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else a == b
