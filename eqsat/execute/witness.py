"""The input program itself on the executor: how near to float64 it comes without any rewrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType, is_float

Array = np.ndarray[Any, Any]


class Witness:
    """Compiled on first use; weights are arguments, so that they can be moved too."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, Any],
        opaque: Mapping[str, OpaqueFunction],
    ):
        self.program = program
        self.opaque = opaque
        self.keys = [program.leaf(i).key for i in program.weights]
        self.weights = weights

    def __call__(self, inputs: Sequence[Array], rng: np.random.Generator | None = None) -> Any:
        """The program's results; rng: with inputs and weights moved by one unit in the last place,
        which no caller can tell from the inputs it has."""
        arrays = [*(np.asarray(self.weights[k]) for k in self.keys), *inputs]
        types = [self.program.nodes[i].type for i in (*self.program.weights, *self.program.inputs)]
        if rng is not None:
            arrays = [nudged(a, t, rng) for a, t in zip(arrays, types, strict=True)]
        count = len(self.keys)
        return [np.asarray(x) for x in self._jitted(arrays[:count], arrays[count:])]

    @cached_property
    def _jitted(self) -> Callable[..., Any]:
        import jax

        return jax.jit(self._run)

    def _run(self, weights: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
        p = self.program
        given = dict(zip(p.weights, weights, strict=True)) | dict(
            zip(p.inputs, inputs, strict=True)
        )
        values = evaluate(p, p.needed, given, self.opaque)
        return tuple(values[r][0] for r in p.results)


def nudged(x: Array, t: TensorType, rng: np.random.Generator) -> Array:
    """Each float one unit in the last place up or down, or as it is."""
    array = np.asarray(x)
    if not is_float(t.dtype):
        return array
    bits = np.dtype(f"i{array.dtype.itemsize}")
    step = rng.integers(-1, 2, array.shape).astype(bits)
    safe = np.isfinite(array.astype(np.float64)) & (array != 0)
    moved = (array.view(bits) + step).view(array.dtype)
    stays = ~safe | ~np.isfinite(moved.astype(np.float64))
    return np.where(stays, array, moved)
