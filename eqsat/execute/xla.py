"""A Schedule → a plain JAX callable, in ordinary `jax.lax` ops on any platform."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.execute.weights import pack_weights, run_time_nodes
from eqsat.model.diag import fail
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import element_dtype

KEPT = 4  # sets of packed weights kept, for callers that switch between models


class Signature(Protocol):
    """The calling convention of a traced function (a `frontends.jaxpr.Traced` has it)."""

    @property
    def weights(self) -> Mapping[str, Any]:
        """Weights the function closes over, by key."""
        ...

    def flat_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> list[Any]:
        """The program's inputs among the arguments of a call."""
        ...

    def flat_weights(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Every weight by key, those the call brings included."""
        ...

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Flat results as the function returns them."""
        ...


def build(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any] | None = None,
    signature: Signature | None = None,
) -> Executable:
    """The executable of a schedule.

    opaque: key → function of JAX arrays that returns a list; weights: content key → array;
    signature: if given, the executable is called as the traced function was, else flat.
    EqsatError E505 if the program needs 64-bit types and JAX has them switched off.
    """
    _require_wide_types(schedule)
    return Executable(schedule, opaque, weights or {}, signature)


class Executable:
    """Weights are packed on the first call and handed to one compiled function as arguments.

    It may be called under jit, grad and vmap.
    """

    def __init__(
        self,
        schedule: Schedule,
        opaque: Mapping[str, OpaqueFunction],
        weights: Mapping[str, Any],
        signature: Signature | None = None,
    ):
        self.schedule = schedule
        self.opaque = dict(opaque)
        self.weights = dict(weights)
        self.signature = signature
        self._packed: dict[int, Any] | None = None
        self._kept: OrderedDict[Any, tuple[Any, dict[int, Any]]] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """With a signature: its arguments and results. Without: as `flat`."""
        s = self.signature
        if s is None:
            return self.flat(*args, **kwargs)
        given = {k: x for k, x in s.flat_weights(args, kwargs).items() if k not in s.weights}
        return s.unflatten(self.flat(*s.flat_inputs(args, kwargs), weights=given or None))

    def flat(self, *inputs: Any, weights: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
        """The program's inputs in order → a tuple of its results.

        weights: used before the executable's own for this call.
        EqsatError E503 if an input or a weight is missing or does not fit.
        """
        self._check(inputs)
        if weights is None:
            return self.jitted(self.packed, *inputs)
        return self.jitted(self._pack(dict(weights)), *inputs)

    def _pack(self, weights: dict[str, Any]) -> dict[int, Any]:
        """Packed once per set of arrays: JAX arrays by identity, NumPy's, which may be written to,
        by content. Tracers are traced through."""
        mixed = self.weights | weights
        if _traced(weights.values()):
            return pack_weights(self.schedule, mixed, self.opaque)
        key = tuple((k, _identity(w)) for k, w in sorted(weights.items()))
        if key not in self._kept:  # the arrays are kept too, so that no other gets their identity
            self._kept[key] = weights, pack_weights(self.schedule, mixed, self.opaque)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][1]

    def compile(self) -> Callable[..., tuple[Any, ...]]:
        """Pack the weights and compile now; the result takes flat inputs and never compiles."""
        import jax

        program = self.schedule.program
        types = [program.nodes[i].type for i in program.inputs]
        avals = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in types]
        packed = self.packed
        compiled = self.jitted.lower(packed, *avals).compile()

        def call(*inputs: Any) -> tuple[Any, ...]:
            self._check(inputs)
            return compiled(packed, *(self._typed(i, x) for i, x in enumerate(inputs)))

        return call

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

    @cached_property
    def jitted(self) -> Any:
        """The jitted function of (packed weights, *inputs); `.lower(…)` shows what XLA gets."""
        import jax

        return jax.jit(self._run)

    def _run(self, packed: dict[int, Any], *inputs: Any) -> tuple[Any, ...]:
        program = self.schedule.program
        known = dict(packed)
        known |= {i: self._typed(at, inputs[at]) for at, i in enumerate(program.inputs)}
        values = evaluate(program, run_time_nodes(self.schedule), known, self.opaque)
        return tuple(values[r][0] for r in program.results)

    def _typed(self, number: int, x: Any) -> Any:
        """Input `number` as a JAX array; E503 if its element type is another one."""
        import jax.numpy as jnp

        node = self.schedule.program.inputs[number]
        array, t = jnp.asarray(x), self.schedule.program.nodes[node].type
        if array.dtype != element_dtype(t.dtype):
            name = self.schedule.program.leaf(node).name
            raise fail("E503", f"`{name}` is {t}, got element type {array.dtype}")
        return array

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


def _identity(array: Any) -> Any:
    import numpy as np

    if isinstance(array, np.ndarray):
        return array.shape, array.dtype.str, hashlib.sha256(array.tobytes()).hexdigest()
    return id(array)


def _traced(arrays: Any) -> bool:
    from jax.core import Tracer

    return any(isinstance(x, Tracer) for x in arrays)


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
