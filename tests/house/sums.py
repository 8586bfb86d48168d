"""`cumsum_back`: sums of what is still to come along an axis; it fuses with nothing."""

from __future__ import annotations

import numpy as np

from eqsat.model.attr import Shape
from eqsat.ops.op import Array, Op, Sample, Values


def _shape(given: Values, sources: tuple[Shape, ...]) -> Shape:
    (source,) = sources
    if not 0 <= given["axis"] < len(source):
        raise ValueError(f"`cumsum_back` has no axis {given['axis']} of {len(source)}")
    return source


def _numpy(given: Values, x: Array) -> Array:
    axis = given["axis"]
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis)


def _sample(rng: np.random.Generator, wanted: Shape) -> Sample | None:
    return ({"axis": int(rng.integers(len(wanted)))}, [wanted]) if wanted else None


OPS = (
    Op(
        "cumsum_back", "Sums of what is still to come along an axis.", 1, {"axis": "int"},
        shape=_shape, numpy=_numpy, sample=_sample, operations=1,
    ),
)  # fmt: skip
