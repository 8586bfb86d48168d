"""Arrays for the variables of an instance, such that its left side can be what it says.

Where a left side says that padding holds a value (`unpack(y, layout=l)` with zeros), the variable
behind it is made to hold that value; where it says "?", garbage may lie.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from eqsat.hunt.sides import (
    Application,
    Array,
    Garbage,
    Key,
    Leaves,
    Lefts,
    Origins,
    constant_lanes,
    open_lanes,
)
from eqsat.model.attr import Attr
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import is_iota
from eqsat.ops.meaning.scalar import held_dtype, integer_range

SPECIALS = (np.inf, -np.inf, np.nan)


@dataclass(frozen=True)
class Contents:
    """The arrays of all leaves, and which of their lanes hold garbage."""

    held: Mapping[Key | Attr, Array]
    is_open: Mapping[Key | Attr, Array]

    @property
    def any_open(self) -> bool:
        return any(x.any() for x in self.is_open.values())

    def filled(self, garbage: Garbage) -> Leaves:
        """The arrays with garbage of one kind in their open lanes."""
        return {
            key: np.where(self.is_open[key], garbage.many(x), x) if self.is_open[key].any() else x
            for key, x in self.held.items()
        }


def fill_leaves(
    rng: Random,
    sides: Lefts,
    types: Mapping[Key, TensorType],
    is_inexact: bool,
    defined: Collection[str] = (),
) -> Contents:
    """Random contents of every variable and weight of a left side.

    defined: variables without garbage.
    """
    wanted: dict[Key | Attr, TensorType] = {**types}
    trees = [t for side in (sides.root, *sides.also) for t in side.walk()]
    wanted |= {t.attr: t.attr.type for t in trees if isinstance(t.attr, Leaf)}
    draw = np.random.default_rng(rng.getrandbits(32))
    has_specials = not is_inexact and rng.random() < 0.3
    generics = [t.attr for t in trees if isinstance(t.attr, Generic)]
    is_filled = any(writes_values(t.attr) for t in trees)
    has_signs = not generics or (not is_filled and all(map(keeps_sign, generics)))
    held = {key: _array(draw, t, has_specials, has_signs, is_inexact) for key, t in wanted.items()}
    is_open = {
        key: np.zeros(x.shape, bool)
        if isinstance(key, tuple) and key[0] in defined
        else _stray(rng, draw, x.shape)
        for key, x in held.items()
    }
    for key in [k for k in held if isinstance(k, Leaf) and is_iota(k)]:
        held[key] = np.arange(held[key].size).astype(held[key].dtype)
        is_open[key] = np.zeros(held[key].shape, bool)
    _enforce(rng, trees, held, is_open)
    return Contents(held, is_open)


def keeps_sign(g: Generic) -> bool:
    """Whether the sign of a zero does not depend on the order in which things are computed."""
    unsure = {"max", "min", "clamp"}
    bodies = [e.fn for y in g.yields for e in y.body.walk()]
    return not len(g.reductions) and not unsure & set(bodies)


def writes_values(attr: Attr) -> bool:
    """Whether an op puts in values of its own."""
    return isinstance(attr, Fill) or bool(attr.padding())


def _array(
    rng: np.random.Generator, t: TensorType, specials: bool, signs: bool, is_inexact: bool
) -> Array:
    """Small whole numbers, so that sums are exact in any order; integers over their full range."""
    held = held_dtype(t.dtype)
    if held.kind == "b":
        return rng.integers(0, 2, t.shape).astype(bool)
    if held.kind == "f":
        x = rng.integers(-4, 5, t.shape).astype(held)
        if is_inexact:
            # numbers of f32 with all their digits, so that it shows in which order they are added
            return (x + rng.uniform(0.25, 0.75, t.shape)).astype(np.float32).astype(held)
        if specials:
            pool = np.array([*SPECIALS, -0.0] if signs else SPECIALS)
            x = np.where(rng.random(t.shape) < 0.12, rng.choice(pool, t.shape), x)
        return x
    low, high = integer_range(t.dtype)
    small = rng.integers(max(low, -5), 6, t.shape).astype(held)
    whole = rng.integers(low, high, t.shape, held, endpoint=True)
    ends = rng.choice(np.array([low, high], held), t.shape)
    choice = rng.random(t.shape)
    return np.where(choice < 0.15, ends, np.where(choice < 0.5, whole, small)).astype(held)


def _stray(rng: Random, draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Mostly none: some leaves are packed tensors themselves, whose lanes nobody defined."""
    if rng.random() < 0.88 or not shape:
        return np.zeros(shape, bool)
    if rng.random() < 0.4:
        return draw.random(shape) < 0.2
    lanes = np.zeros(shape, bool)
    axis = rng.randrange(len(shape))
    if shape[axis] > 1:
        np.moveaxis(lanes, axis, 0)[rng.randrange(1, shape[axis]) :] = True
    return lanes


def _enforce(
    rng: Random, trees: list[Application], held: dict[Any, Array], is_open: dict[Any, Array]
) -> None:
    """Make packed tensors hold what the ops that read them say; garbage where anything goes."""
    readers = [t for t in trees if t.op in ("unpack", "relax", "retype")]
    if not any(isinstance(t.attr, Layout) and t.attr.is_padded for t in readers):
        return
    origin, lanes = _numbered(held)
    constants: list[tuple[Array, Array]] = []
    for t in readers:
        assert isinstance(t.attr, Layout)
        source = origin(t.operands[0])[0]
        free = open_lanes(t.attr)
        if t.op != "relax" and free is not None and rng.random() < 0.8:
            _mark(lanes, is_open, source[free], True)
        given = constant_lanes(t.attr, np.dtype(np.float64)) if t.op != "retype" else None
        if given is not None:
            constants.append((source[given[0]], given[1][given[0]]))
    for numbers, values in constants:
        _mark(lanes, is_open, numbers, False)
        _write(lanes, held, numbers, values)


def _numbered(held: dict[Any, Array]) -> tuple[Origins, list[tuple[Any, int, int]]]:
    """Every lane of every leaf gets a number from 1 on: the ranges of the leaves beside it."""
    numbers: dict[Any, Array] = {}
    ranges = []
    first = 1
    for key, x in held.items():
        numbers[key] = np.arange(first, first + x.size).reshape(x.shape)
        ranges.append((key, first, first + x.size))
        first += x.size
    return Origins(numbers), ranges


def _mark(
    ranges: list[tuple[Any, int, int]], is_open: dict[Any, Array], numbers: Array, value: bool
) -> None:
    for key, first, end in ranges:
        mine = numbers[(numbers >= first) & (numbers < end)] - first
        is_open[key].reshape(-1)[mine] = value


def _write(
    ranges: list[tuple[Any, int, int]], held: dict[Any, Array], numbers: Array, values: Array
) -> None:
    for key, first, end in ranges:
        mine = (numbers >= first) & (numbers < end)
        held[key].reshape(-1)[numbers[mine] - first] = values[mine].astype(held[key].dtype)
