"""What a plug-in may bring: an op with rules, a tile strategy, a goal."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from eqsat.model.egraph import EGraph
from eqsat.model.selection import Group, Selection
from eqsat.model.target import Target, Tile
from eqsat.ops.op import Op, Shape, Values
from eqsat.ops.targets.tiles import Contraction
from eqsat.ops.vocabulary import AttrFunction


# ---- the op `roll` -------------------------------------------------------------------------------
def _shape(values: Values, operands: tuple[Shape, ...]) -> Shape:
    (shape,) = operands
    if not 0 <= values["axis"] < len(shape):
        raise ValueError(f"`roll` has no axis {values['axis']} of {len(shape)}")
    return shape


def _numpy(values: Values, x: np.ndarray) -> np.ndarray:
    return np.roll(x, values["shift"], axis=values["axis"])


def _jax(values: Values, x):
    import jax.numpy as jnp

    return jnp.roll(x, values["shift"], axis=values["axis"])


def _sample(rng: np.random.Generator, shape: Shape) -> tuple[Values, list[Shape]] | None:
    if not shape:
        return None
    return {"shift": rng.integers(-5, 6), "axis": rng.integers(len(shape))}, [shape]


def _moved_axis(perm: tuple[int, ...], axis: int) -> int:
    return perm.index(axis)


ROLL = Op(
    name="roll",
    doc="x shifted along an axis; what leaves at one end enters at the other.",
    operands=1,
    attributes={"shift": "int", "axis": "int"},
    shape=_shape,
    numpy=_numpy,
    jax=_jax,
    sample=_sample,
    kind="move",
    functions={
        "roll.sum": AttrFunction(("int", "int"), "int", "both shifts", lambda s, t: s + t),
        "roll.moved": AttrFunction(("ints", "int"), "int", "the axis, permuted", _moved_axis),
    },
    rules=Path(__file__).parent / "rules",
)


# ---- the op `near`: two operands, attributes of the other kinds, a result of its own type --------
def _near_shape(values: Values, operands: tuple[Shape, ...]) -> Shape:
    x, y = operands
    if x != y:
        raise ValueError(f"`near` compares tensors of one shape, not {list(x)} and {list(y)}")
    return tuple(s for d, s in enumerate(x) if d not in values["axes"])


def _far(values: Values, x, y):
    distance = abs(x - y)
    return distance > values["within"] * (1 + abs(x) if values["mode"] == "relative" else 1)


def _near_numpy(values: Values, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ~_far(values, x, y).any(axis=values["axes"])


def _near_jax(values: Values, x, y):
    return ~_far(values, x, y).any(axis=values["axes"])


def _near_sample(rng: np.random.Generator, shape: Shape) -> tuple[Values, list[Shape]]:
    axis = int(rng.integers(len(shape) + 1))
    source = (*shape[:axis], int(rng.integers(1, 4)), *shape[axis:])
    mode = "relative" if rng.random() < 0.5 else "absolute"
    return {"axes": [axis], "mode": mode, "within": float(rng.integers(3))}, [source, source]


NEAR = Op(
    name="near",
    doc="Whether all elements along some axes are near to one another.",
    operands=2,
    attributes={"within": "float", "mode": "str", "axes": "ints"},
    shape=_near_shape,
    numpy=_near_numpy,
    jax=_near_jax,
    sample=_near_sample,
    kind="reduction",
    operations=3,
    dtype="bool",
    accepts=("f", "f"),
)


# ---- the strategy `square` -----------------------------------------------------------------------
def square(contraction: Contraction, target: Target) -> list[Tile]:
    """The largest square tile, up to 32, that divides m and n; none if that is 1."""
    m, n = (contraction.extents.get(role, 1) for role in ("m", "n"))
    if contraction.kind != "matmul":
        return []
    side = next(s for s in (32, 16, 8, 4, 2, 1) if m % s == 0 and n % s == 0)
    return [Tile((("m", side), ("n", side), ("k", 1)), rate=1.0)] if side > 1 else []


# ---- the goal `bindings` -------------------------------------------------------------------------
class Bindings:
    """Buffers bound to kernels, over all dispatches: what a driver pays for each launch."""

    def build(self, egraph: EGraph, target: Target, group: Group) -> int:
        """Every buffer a dispatch reads or writes."""
        return len(group.reads) + len(group.writes)

    def value(self, egraph: EGraph, target: Target, selection: Selection) -> int:
        """The same, counted over the whole selection."""
        reads = sum(len(g.reads) for g in selection.groups)
        return reads + sum(len(g.writes) for g in selection.groups)
