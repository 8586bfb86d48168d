"""`flip`: one axis reversed."""

from __future__ import annotations

import numpy as np

from eqsat.model.affine import affine, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Custom
from eqsat.ops.op import Array, Op, Sample, Values


def _shape(given: Values, sources: tuple[Shape, ...]) -> Shape:
    (source,) = sources
    if not 0 <= given["axis"] < len(source):
        raise ValueError(f"`flip` has no axis {given['axis']} of {len(source)}")
    return source


def _numpy(given: Values, x: Array) -> Array:
    return np.flip(x, given["axis"])


def _sample(rng: np.random.Generator, wanted: Shape) -> Sample | None:
    return ({"axis": int(rng.integers(len(wanted)))}, [wanted]) if wanted else None


def strides(flip: Custom) -> tuple[list[int], list[int], list[int]]:
    """Start, stop and step per dim of a slice that does the same."""
    at, n = flip.field("axis"), len(flip.shape)
    start, stop, step = [0] * n, list(flip.shape), [1] * n
    start[at], stop[at], step[at] = flip.shape[at] - 1, -1, -1
    return start, stop, step


def reversal(flip: Custom, dtype: str) -> Generic:
    """The generic that reads the axis backwards."""
    at, shape = flip.field("axis"), flip.shape
    backwards = affine([(at, -1)], shape[at] - 1)
    m = tuple(backwards if d == at else dim(d) for d in range(len(shape)))
    return Generic(shape, len(shape), (m,), (shape,), (Yield(arg(0), dtype),), dtypes=(dtype,))


OPS = (
    Op(
        "flip", "x with one axis reversed.", 1, {"axis": "int"},
        shape=_shape, numpy=_numpy, sample=_sample, kind="move",
    ),
)  # fmt: skip
