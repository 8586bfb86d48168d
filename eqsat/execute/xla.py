"""A Schedule → a plain JAX callable, in ordinary `jax.lax` ops on any platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.execute.weights import pack_weights, run_time_nodes
from eqsat.model.diag import fail
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import TensorType


def build(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any] | None = None,
) -> Executable:
    """The executable of a schedule.

    opaque: key → function of JAX arrays that returns a list; weights: content key → array.
    EqsatError E505 if the program needs 64-bit types and JAX has them switched off.
    """
    _require_wide_types(schedule)
    return Executable(schedule, opaque, weights or {})


class Executable:
    """Call it with the program's inputs, flat and in order; it returns a tuple of flat results.

    Weights are packed on the first call and handed to one compiled function as arguments. It may
    be called under jit, grad and vmap.
    """

    def __init__(
        self,
        schedule: Schedule,
        opaque: Mapping[str, OpaqueFunction],
        weights: Mapping[str, Any],
    ):
        self.schedule = schedule
        self.opaque = dict(opaque)
        self.weights = dict(weights)
        self._packed: dict[int, Any] | None = None

    @property
    def packed(self) -> dict[int, Any]:
        """Resident node → packed weight; computed on first use, may be set from `weights.load`."""
        if self._packed is None:
            found = pack_weights(self.schedule, self.weights, self.opaque)
            if not _traced(self.weights.values()):
                self._packed = found
            return found
        return self._packed

    @packed.setter
    def packed(self, arrays: dict[int, Any]) -> None:
        self._packed = dict(arrays)

    def __call__(self, *inputs: Any, weights: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """weights: used instead of the executable's own for this call, and not kept.

        EqsatError E503 if an input does not fit.
        """
        self._check(inputs)
        if weights is None:
            return self.compiled(self.packed, *inputs)
        mixed = self.weights | dict(weights)
        return self.compiled(pack_weights(self.schedule, mixed, self.opaque), *inputs)

    @cached_property
    def compiled(self) -> Callable[..., tuple[Any, ...]]:
        """The jitted function of (packed weights, *inputs); `.lower(…)` shows what XLA gets."""
        import jax

        return jax.jit(self._run)

    def _run(self, packed: dict[int, Any], *inputs: Any) -> tuple[Any, ...]:
        import jax.numpy as jnp

        program = self.schedule.program
        known = dict(packed) | {
            i: jnp.asarray(x) for i, x in zip(program.inputs, inputs, strict=True)
        }
        values = evaluate(program, run_time_nodes(self.schedule), known, self.opaque)
        return tuple(values[r][0] for r in program.results)

    def _check(self, inputs: tuple[Any, ...]) -> None:
        import numpy as np

        program = self.schedule.program
        if len(inputs) != len(program.inputs):
            raise fail(
                "E503", f"`{program.name}` takes {len(program.inputs)} input(s), got {len(inputs)}"
            )
        for i, x in zip(program.inputs, inputs, strict=True):
            if tuple(np.shape(x)) != program.nodes[i].type.shape:
                raise fail(
                    "E503",
                    f"`{program.leaf(i).name}` is {program.nodes[i].type}, "
                    f"got shape {list(np.shape(x))}",
                )


def differentiate_as(call: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, with the derivatives of `original` (same arguments and results).

    For functions with custom derivatives or stop_gradient, which a program does not keep.
    """
    import jax

    @jax.custom_jvp
    def wrapped(*args: Any) -> Any:
        return call(*args)

    @wrapped.defjvp
    def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        _, out = jax.jvp(original, primals, tangents)
        return wrapped(*primals), out

    return wrapped


def _traced(arrays: Any) -> bool:
    import jax

    return any(isinstance(x, jax.core.Tracer) for x in arrays)


def _require_wide_types(schedule: Schedule) -> None:
    import jax

    if jax.config.read("jax_enable_x64"):
        return
    types: set[TensorType] = {t for n in schedule.program.nodes for t in n.types}
    wide = sorted({t.dtype for t in types} & {"f64", "i64", "u64"})
    if wide:
        raise fail(
            "E505",
            f"the program uses {', '.join(wide)}, and JAX has 64-bit types switched off",
            help='jax.config.update("jax_enable_x64", True)',
        )
