"""A function as data: its arguments, a line per value, and the names it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NAME = re.compile(r"\b[vx]\d+\b")  # of a value or an argument
Types = dict[str, jax.ShapeDtypeStruct]
KNOWN = {"jax": jax, "jnp": jnp, "lax": jax.lax}
SNIPPET = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import eqsat


{source}

arrays = [
{arrays}]
run = eqsat.optimize(f, *arrays, {asked})
print(run.verify(samples=1))
for got, want in zip(run.compile()(*arrays), jax.jit(f)(*arrays), strict=True):
    print(np.abs(np.asarray(got, "f8") - np.asarray(want, "f8")).max(initial=0))
"""
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
    def source(self) -> str:
        """The function as Python source, named `f`."""
        body = [*map(str, self.lines), f"return {', '.join(self.results)},"]
        head = f"def f({', '.join(a.name for a in self.arguments)}):"
        return "\n    ".join([head, *body]) + "\n"

    def function(self) -> Callable[..., Any]:
        space: dict[str, Any] = dict(KNOWN)
        exec(compile(self.source, "<written>", "exec"), space)
        return space["f"]

    def snippet(self, target: str, settings: Sequence[str] = ()) -> str:
        """A Python file that runs it on a target and prints what is wrong."""
        asked = f'weights={self.weights}, target="{target}", settings={tuple(settings)}'
        arrays = "".join(f"    {a.text},\n" for a in self.arguments)
        return SNIPPET.format(source=self.source, arrays=arrays, asked=asked)

    @property
    def arrays(self) -> tuple[np.ndarray[Any, Any], ...]:
        return tuple(a.array() for a in self.arguments)

    @property
    def weights(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.arguments if a.is_weight)

    def types(self) -> Types:
        """The type of every value; whatever JAX raises if a line is not valid."""
        found = {a.name: jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.arguments}
        for line in self.lines:
            found |= types_of(line, found)
        return found

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


def types_of(line: Line, known: Mapping[str, jax.ShapeDtypeStruct]) -> Types:
    """The types of a line's values; whatever JAX raises if it is not valid."""
    code = compile(line.text, "<line>", "eval")

    def step(*values: Any) -> Any:
        return eval(code, KNOWN | dict(zip(line.reads, values, strict=True)))

    found = jax.eval_shape(step, *(known[n] for n in line.reads))
    values: Sequence[Any] = [found] if len(line.names) == 1 else list(found)
    return dict(zip(line.names, values, strict=True))
