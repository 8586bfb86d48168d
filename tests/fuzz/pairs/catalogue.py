"""What a pair is: two JAX functions of the same value, one of which takes less work.

Themes are modules beside this one. A pair is made for a scale: `n(1024)` is 1024 at scale 1, for
searching and timing, and 32 at scale 32, where both sides are compared in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Sizes = Callable[[int], int]
Function = Callable[..., Any]
SEED = 7


@dataclass(frozen=True)
class Input:
    """One argument: real numbers, or of [0, below) those of a type of whole numbers or `bool`."""

    shape: tuple[int, ...]
    below: int | None = None
    dtype: str = "float32"

    def draw(self, rng: np.random.Generator, dtype: str | None = None) -> np.ndarray[Any, Any]:
        """An array; dtype: of real numbers, instead of the input's own."""
        if self.below is not None:
            return rng.integers(0, self.below, self.shape).astype(self.dtype)
        # a product with one of them is of about unit size, so that recurrent layers are no chaos
        scale = max(self.shape or (1,)) ** -0.5
        return (rng.standard_normal(self.shape) * scale).astype(dtype or self.dtype)

    @property
    def spec(self) -> Any:
        """Shape and type for tracing, without numbers."""
        import jax

        return jax.ShapeDtypeStruct(self.shape, self.dtype)


@dataclass(frozen=True)
class Pair:
    """Both sides and their arguments; weights: names of arguments that are known ahead of time."""

    naive: Function
    better: Function
    inputs: tuple[Input, ...]
    weights: tuple[str, ...] = ()

    @property
    def specs(self) -> list[Any]:
        return [i.spec for i in self.inputs]

    def draw(self, dtype: str | None = None) -> list[np.ndarray[Any, Any]]:
        """The same numbers at every call."""
        rng = np.random.default_rng(SEED)
        return [i.draw(rng, dtype) for i in self.inputs]


@dataclass(frozen=True)
class Entry:
    """How a pair is made, what it is about, and where it is from."""

    make: Callable[[Sizes], Pair]
    theme: str
    doc: str
    source: str

    def at(self, scale: int = 1) -> Pair:
        """The pair with its sizes divided by the scale (a power of two, at most 32)."""
        return self.make(lambda size: size // scale)


PAIRS: dict[str, Entry] = {}


def pair(source: str) -> Callable[[Callable[[Sizes], Pair]], Callable[[Sizes], Pair]]:
    """Adds a pair under its function's name; source: where the equality or its need is stated."""

    def add(make: Callable[[Sizes], Pair]) -> Callable[[Sizes], Pair]:
        if make.__name__ in PAIRS:
            raise ValueError(f"two pairs are called {make.__name__}")
        theme = make.__module__.rpartition(".")[2]
        PAIRS[make.__name__] = Entry(make, theme, (make.__doc__ or "").strip(), source)
        return make

    return add


def real(*shape: int) -> Input:
    """f32[shape]."""
    return Input(shape)


def whole(below: int, *shape: int) -> Input:
    """i32[shape] of numbers in [0, below)."""
    return Input(shape, below, "int32")


def flags(*shape: int) -> Input:
    """bool[shape]."""
    return Input(shape, 2, "bool")
