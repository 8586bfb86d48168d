"""A function as data: its arguments, a line per value, and the names it returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

Types = dict[str, jax.ShapeDtypeStruct]
NAME = re.compile(r"\b[vx]\d+\b")  # of a value or an argument
INTEGERS = {"int32": (-4, 5), "int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}


@dataclass(frozen=True)
class Argument:
    """An array to call with. is_weight: known before the call. below: of an index, its table."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_weight: bool = False
    below: int = 0

    @property
    def text(self) -> str:
        """The array as Python: values that follow from the name."""
        drawn = f"np.random.default_rng({self.name[1:]})"
        if self.dtype == "float32":
            return f'{drawn}.standard_normal({self.shape}).astype("float32")'
        low, high = (0, self.below) if self.below else INTEGERS[self.dtype]
        return f'{drawn}.integers({low}, {high}, {self.shape}).astype("{self.dtype}")'

    @property
    def type(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.shape, self.dtype)

    def array(self) -> np.ndarray[Any, Any]:
        return eval(self.text, {"np": np})


@dataclass(frozen=True)
class Line:
    """`v1, v2 = jnp.split(v0, [7], 1)`: the names it gives, and an expression of others."""

    names: tuple[str, ...]
    text: str

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(NAME.findall(self.text)))

    def __str__(self) -> str:
        return f"{', '.join(self.names)} = {self.text}"


@dataclass(frozen=True)
class Written:
    """A function of flat arrays that returns a tuple; equal ones behave alike."""

    arguments: tuple[Argument, ...]
    lines: tuple[Line, ...]
    results: tuple[str, ...]

    @property
    def arrays(self) -> tuple[np.ndarray[Any, Any], ...]:
        return tuple(a.array() for a in self.arguments)

    @property
    def weights(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.arguments if a.is_weight)

    def pruned(self) -> Written:
        """Without what no result needs."""
        needed, kept = set(self.results), []
        for line in reversed(self.lines):
            if needed.intersection(line.names):
                kept.append(line)
                needed.update(line.reads)
        arguments = tuple(a for a in self.arguments if a.name in needed)
        return replace(self, arguments=arguments, lines=tuple(reversed(kept)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Written:
        arguments = (Argument(**(a | {"shape": tuple(a["shape"])})) for a in data["arguments"])
        lines = (Line(tuple(n["names"]), n["text"]) for n in data["lines"])
        return Written(tuple(arguments), tuple(lines), tuple(data["results"]))
