"""Executables: the base class, the one whose dispatches are custom calls, and the executor `xla`.

An executor is a subclass that says how one dispatch is computed (`dispatch`), or how the results
come from packed weights and inputs as a whole (`run`). `xla` makes all ops one XLA executable,
fused as XLA likes, on any platform; kernels that JAX cannot look into are custom calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from eqsat.execute.expressions import spelled
from eqsat.execute.lowering import OpaqueFunction, TracedBodies, evaluate
from eqsat.execute.weights import pack_weights, packed_per_run, run_time_nodes
from eqsat.execute.withpacked import with_packed
from eqsat.model.diag import fail
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.nest import Nest, NoNest
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype

# JAX takes arrays of these, but XLA's CPU backend has no code for them (jaxlib 0.10)
NOT_IN_XLA = frozenset({"f6e2m3fn", "f6e3m2fn"})


class JaxExecutable:
    """A schedule as functions of flat inputs. Its weights are packed once, on first use.

    opaque: key → function of JAX arrays that returns a list; weights: content key → array. target:
    the machine for which the schedule was made, None where it does not matter. EqsatError: E505 if
    the program needs 64-bit types and JAX has them switched off, E509 for types that XLA has no
    code for.
    """

    def __init__(
        self,
        schedule: Schedule,
        opaque: Mapping[str, OpaqueFunction],
        weights: Mapping[str, Any],
        target: Target | None = None,
    ):
        _require_executable_types(schedule)
        self.schedule, self.target = schedule, target
        self.opaque = dict(opaque)
        self.weights = dict(weights)
        self._packed: dict[int, Any] | None = None
        self.donated: tuple[int, ...] = ()  # numbers of inputs that a call of `flat` uses up

    @property
    def weights_are_arguments(self) -> bool:
        """Whether packed weights should be arguments of what XLA compiles, not its constants."""
        return False

    @cached_property
    def flat(self) -> Any:
        """The jitted function of the program's inputs, in order, that gives a tuple of its results.

        It closes over the packed weights: XLA may lay a constant out as it likes, which makes a
        product of few rows up to twice as fast. Where `weights_are_arguments` it is a partial
        function of them. EqsatError E503 if an input does not fit.
        """
        import jax

        if self.weights_are_arguments:
            behind = tuple(n + 1 for n in self.donated)
            jitted = jax.jit(self.run, donate_argnums=behind) if behind else self.jitted
            return with_packed(jitted, self.packed)

        def flat(*inputs: Any) -> tuple[Any, ...]:
            return self.run(self.packed, *inputs)

        flat.__name__ = self.schedule.program.name
        return jax.jit(flat, donate_argnums=self.donated)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Results of flat inputs, as `flat`."""
        return self.flat(*inputs)

    def compile(self) -> Callable[..., tuple[Any, ...]]:
        """Pack the weights and compile now; the result takes flat inputs and never compiles.

        Weights are arguments of what is compiled, so that large ones cost no compile time.
        """
        import jax

        program = self.schedule.program
        types = [program.nodes[i].type for i in program.inputs]
        avals = [jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype)) for t in types]
        packed = self.packed
        compiled = self.jitted.lower(packed, *avals).compile()

        def call(*inputs: Any) -> tuple[Any, ...]:
            return compiled(packed, *self.typed(inputs))

        return call

    def pack(self, weights: Mapping[str, Any]) -> dict[int, Any]:
        """Resident node → packed weight, these arrays used before the executable's own.

        EqsatError E503 if a weight has no array.
        """
        return pack_weights(self.schedule, self.weights | dict(weights), self.opaque)

    def take_weights(self, weights: Mapping[str, Any]) -> None:
        """Use these arrays from now on; what was packed and compiled before is forgotten."""
        self.weights |= dict(weights)
        self._packed = None
        vars(self).pop("flat", None)

    @property
    def packed(self) -> dict[int, Any]:
        """Resident node → packed weight; computed on first use, or given, as `read_packed` does."""
        if self._packed is None:
            self._packed = self.pack({})
        return self._packed

    @packed.setter
    def packed(self, arrays: dict[int, Any]) -> None:
        self._packed = dict(arrays)

    @cached_property
    def jitted(self) -> Any:
        """The jitted function of (packed weights, *inputs); `.lower(…)` shows what XLA gets."""
        import jax

        return jax.jit(self.run)

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, dispatch by dispatch; to be traced.

        EqsatError E503 if an input does not fit.
        """
        program = self.schedule.program
        held = dict(packed) | dict(zip(program.inputs, self.typed(inputs), strict=True))
        for i, d in enumerate(self.schedule.dispatches):
            reads = [self.buffer(held, r) for r in d.reads]
            held.update(zip(d.writes, self.dispatch(i)(*reads), strict=True))
        return tuple(self.buffer(held, r) for r in program.results)

    def buffer(self, held: Mapping[int, Any], node: int) -> Any:
        """View of a held value, as `held_view`, of its schedule."""
        return held_view(self.schedule, held, node)

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """One dispatch as a function of the buffers it reads, in their order, giving those it
        writes; to be traced. Here it is the XLA ops of its members alone."""
        schedule, opaque = self.schedule, self.opaque
        d = schedule.dispatches[number]
        nodes = schedule.inside(d)

        def dispatch(*reads: Any) -> tuple[Any, ...]:
            given = dict(zip(d.reads, reads, strict=True))
            values = evaluate(schedule.program, nodes, given, opaque, self.bodies)
            return tuple(values[w][0] for w in d.writes)

        dispatch.__name__ = f"dispatch{number}"
        return dispatch

    @property
    def bodies(self) -> TracedBodies | None:
        """How bodies of loops and branches are traced; None: their ops one by one."""
        return None

    def typed(self, inputs: Sequence[Any], plain: Collection[int] = ()) -> list[Any]:
        """The program's inputs as JAX arrays; those of these numbers have their plain shapes.

        EqsatError E503 if they are not as many, or one has another shape or element type.
        """
        program = self.schedule.program
        if len(inputs) != len(program.inputs):
            raise fail(
                "E503", f"`{program.name}` takes {len(program.inputs)} input(s), got {len(inputs)}"
            )
        pairs = enumerate(zip(program.inputs, inputs, strict=True))
        return [self._typed(i, x, number in plain) for number, (i, x) in pairs]

    def _typed(self, node: int, x: Any, is_plain: bool) -> Any:
        import jax.numpy as jnp

        program = self.schedule.program
        leaf = program.leaf(node)
        array, t = jnp.asarray(x), leaf.plain if is_plain else leaf.type
        what = f"`{leaf.name}` is {t}, got"
        if array.shape != t.shape:
            raise fail("E503", f"{what} shape {list(array.shape)}")
        if array.dtype != element_dtype(t.dtype):
            raise fail("E503", f"{what} element type {array.dtype}")
        return array


def held_view(schedule: Schedule, held: Mapping[int, Any], node: int) -> Any:
    """The value of a node that is held itself, or as another view of its bytes."""
    if node in held:
        return held[node]
    base = schedule.buffer_of(node)
    array = next(x for i, x in held.items() if schedule.buffer_of(i) == base)
    return array.reshape(schedule.program.nodes[node].type.shape)


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


def _require_executable_types(schedule: Schedule) -> None:
    import jax

    types: set[TensorType] = {t for n in schedule.program.nodes for t in n.types}
    used = {t.dtype for t in types}
    if missing := sorted(used & NOT_IN_XLA):
        raise fail(
            "E509",
            f"the program uses {', '.join(missing)}, which XLA cannot execute",
            help="search, explain and export it; to execute it, hold these values in a wider type",
        )
    wide = sorted(used & {"f64", "i64", "u64"})
    if wide and not jax.config.read("jax_enable_x64"):
        raise fail(
            "E505",
            f"the program uses {', '.join(wide)}, and JAX has 64-bit types switched off",
            help='jax.config.update("jax_enable_x64", True)',
        )


# ---- dispatches as custom calls ------------------------------------------------------------------
LARGEST_CONSTANTS = 4 * 2**20  # bytes of weights that XLA gets as constants


class CustomCallExecutable(JaxExecutable):
    """A schedule whose dispatches are kernels.

    Derivatives are those of the ops as XLA has them, and `jax.vmap` runs these ops: a kernel is
    made for the shapes of its dispatch.
    """

    @property
    def weights_are_arguments(self) -> bool:
        """XLA takes longer to compile the larger its constants are, and gains nothing by them."""
        return self.schedule.resident_bytes > LARGEST_CONSTANTS

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, dispatch by dispatch; to be traced.

        EqsatError E503 if an input does not fit.
        """
        return self._called(dict(packed), self.typed(inputs))

    @cached_property
    def _called(self) -> Callable[..., tuple[Any, ...]]:
        """The function of packed weights and inputs, with its derivatives and batches."""

        def kernels(packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
            return self.as_kernels(packed, inputs)

        return batched(kernels, self.as_ops)

    def as_kernels(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results, dispatch by dispatch."""
        return super().run(packed, *inputs)

    def as_ops(self, packed: dict[int, Any], inputs: list[Any]) -> tuple[Any, ...]:
        """The results as XLA ops, as the executor `xla` has them."""
        program = self.schedule.program
        given = packed | dict(zip(program.inputs, inputs, strict=True))
        values = evaluate(program, run_time_nodes(self.schedule), given, self.opaque)
        return tuple(values[r][0] for r in program.results)


def kernel_nest(schedule: Schedule, number: int) -> Nest:
    """The nest of a dispatch that may be a kernel; NoNest with the reason if none is made."""
    from eqsat.ops.nests.nest import nest_of_dispatch

    refuse_no_nest(schedule, number)
    return nest_of_dispatch(schedule, schedule.dispatches[number])


def refuse_no_nest(schedule: Schedule, number: int) -> None:
    """NoNest with the reason if a dispatch is no kernel whatever its ops are."""
    d = schedule.dispatches[number]
    if schedule.control(d) is not None:
        raise NoNest("XLA runs loops and branches")
    nodes = schedule.program.nodes
    if any(0 in nodes[i].types[0].shape for i in (*d.reads, *d.writes)):
        raise NoNest("one of its buffers is empty")


def batched(
    kernels: Callable[..., tuple[Any, ...]], as_ops: Callable[..., tuple[Any, ...]]
) -> Callable[..., tuple[Any, ...]]:
    """Kernels of packed weights and inputs, whose derivatives and batches are those of ops."""
    import jax
    from jax.custom_batching import custom_vmap

    called = custom_vmap(kernels)

    @called.def_vmap
    def _(size: int, batches: Any, *args: Any) -> tuple[Any, Any]:
        axes = tuple(jax.tree.map(lambda b: 0 if b else None, part) for part in batches)
        out = jax.vmap(as_ops, in_axes=axes, axis_size=size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    return differentiate_as(called, as_ops)


# ---- the executor `xla` --------------------------------------------------------------------------
def xla_executable(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any] | None = None,
    target: Target | None = None,
) -> XlaExecutable:
    """The executable of a schedule; arguments and errors as `JaxExecutable` has them."""
    return XlaExecutable(schedule, opaque, weights or {}, target)


class XlaExecutable(JaxExecutable):
    """The chosen ops as `jax.lax` has them; the dispatches are not looked at."""

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, op by op; to be traced.

        EqsatError E503 if an input does not fit.
        """
        from jax import lax

        program = self.schedule.program
        given = dict(packed) | dict(zip(program.inputs, self.typed(inputs), strict=True))
        for i in self._per_run:  # else XLA packs constants when it compiles, and keeps both
            given[i] = lax.optimization_barrier(given[i])
        with spelled("" if self.target is None else self.target.spelling):
            values = evaluate(program, run_time_nodes(self.schedule), given, self.opaque)
        return tuple(values[r][0] for r in program.results)

    @cached_property
    def _per_run(self) -> list[int]:
        return packed_per_run(self.schedule)


XLA = Executor(
    "xla",
    BUILT_IN["xla"],
    "XLA may fuse and place otherwise than this schedule does",
    xla_executable,
    runs_input=True,
)
