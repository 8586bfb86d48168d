"""Products of matrices in every precision, for the tests about it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from eqsat.model.affine import Map, dim
from eqsat.model.control import every_program
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Generic, Yield
from eqsat.model.program import Program
from eqsat.model.tensor import (
    DEFAULT,
)

MAPS: tuple[Map, ...] = ((dim(0), dim(2)), (dim(2), dim(1)))
MUL = call("mul", arg(0), arg(1))
NUMBERS = (([1], [0]), ([], []))
A, B = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)


def matmul(
    precision: str = DEFAULT, body: Expr = MUL, dtype: str = "f32", combine: str = "add",
    dtypes: tuple[str, ...] = ("f32", "f32"),
) -> Generic:  # fmt: skip
    yields = (Yield(body, dtype, combine),)
    return Generic((4, 5, 6), 2, MAPS, ((4, 6), (6, 5)), yields, (), dtypes, precision)


def precisions(p: Program) -> list[str]:
    """Of the contractions of a program and of its bodies."""
    found = [n.attr for q in every_program(p) for n in q.nodes if isinstance(n.attr, Generic)]
    return [g.precision for g in found if g.has_precision]


def dot(a: Any, b: Any, precision: Any = None) -> Any:
    return lax.dot_general(a, b, NUMBERS, precision=precision)


def lowered(f: Any, *args: Any, platform: str) -> str:
    return jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text()
