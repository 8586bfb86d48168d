"""A written function as a JAX function: source, types, and a file that repeats what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from fuzz.written import Line, Types, Written

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
for got, want in zip(run.compile(check="never")(*arrays), jax.jit(f)(*arrays), strict=True):
    print(np.abs(np.asarray(got, "f8") - np.asarray(want, "f8")).max(initial=0))
"""


def source(written: Written) -> str:
    """The function as Python source, named `f`; it returns a tuple."""
    body = [*map(str, written.lines), f"return {', '.join(written.results)},"]
    head = f"def f({', '.join(a.name for a in written.arguments)}):"
    return "\n    ".join([head, *body]) + "\n"


def function(written: Written) -> Callable[..., Any]:
    space: dict[str, Any] = dict(KNOWN)
    exec(compile(source(written), "<written>", "exec"), space)
    return space["f"]


def types(written: Written) -> Types:
    """The type of every value; whatever JAX raises if a line is not valid."""
    found = {a.name: a.type for a in written.arguments}
    for line in written.lines:
        found |= _types_of(line, tuple((n, found[n]) for n in line.reads))
    return found


@cache
def _types_of(line: Line, known: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    code = compile(line.text, "<line>", "eval")
    names = [n for n, _ in known]

    def step(*values: Any) -> Any:
        return eval(code, KNOWN | dict(zip(names, values, strict=True)))

    found = jax.eval_shape(step, *(t for _, t in known))
    values = [found] if len(line.names) == 1 else list(found)
    return dict(zip(line.names, values, strict=True))


def snippet(written: Written, target: str, settings: Sequence[str] = ()) -> str:
    """A Python file that runs it on a target and prints what is wrong."""
    asked = f'weights={written.weights}, target="{target}", settings={tuple(settings)}'
    arrays = "".join(f"    {a.text},\n" for a in written.arguments)
    return SNIPPET.format(source=source(written), arrays=arrays, asked=asked)
