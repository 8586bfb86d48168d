"""Executors by name, and the input program itself on one of them.

There are eqsat's own and those of plug-ins (group `eqsat.executors`). The input program as a
witness shows how near to float64 it comes without any rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.model.diag import EqsatError, fail
from eqsat.model.executor import BUILT_IN, Executable, Execution, Executor
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType, is_float
from eqsat.plugins import brought_by, load_plugin

# where eqsat's own are; imported when one is asked for, as each may need heavy libraries
_HOMES = {
    "xla": ("eqsat.execute.executable", "XLA"),
    "arena": ("eqsat.execute.arena", "ARENA"),
    "kernels": ("eqsat.execute.kernels.executor", "KERNELS"),
    "pallas": ("eqsat.execute.pallas.executor", "PALLAS"),
}


def find_executor(name: str) -> Executor:
    """The executor of this name.

    EqsatError: E601 if there is none, E600 if that of a plug-in is no executor.
    """
    if name in BUILT_IN:
        module, attribute = _HOMES[name]
        return getattr(import_module(module), attribute)
    executor = load_plugin("executors", name)
    if not isinstance(executor, Executor) or executor.name != name:
        what = f"named `{executor.name}`" if isinstance(executor, Executor) else f"{executor!r}"
        raise fail(
            "E600",
            f"{brought_by('executors', name)} is {what}",
            help=f"an eqsat.model.executor.Executor named `{name}` is needed",
        )
    return executor


def execution(schedule: Schedule | None, target: Target) -> Execution:
    """How the executor of a target runs a schedule; its name alone if it cannot be loaded."""
    try:
        executor = find_executor(target.executor)
    except EqsatError:
        return Execution(target.executor)
    if schedule is None:
        return Execution(executor.name, executor.plan)
    declined = tuple(sorted(executor.declined(schedule, target).items()))
    return Execution(executor.name, executor.plan, declined, len(schedule.dispatches))


def build_executable(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any],
    target: Target,
) -> Executable:
    """The executable of a schedule, by the executor of its target.

    opaque: key → function of JAX arrays that returns a list; weights: content key → array.
    EqsatError: E505 if the program needs 64-bit types and JAX has them switched off, E509 for types
    that the executor has no code for, E600 and E601 as `find_executor`.
    """
    return find_executor(target.executor).build(schedule, opaque, weights, target)


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
