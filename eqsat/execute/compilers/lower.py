"""Programs and schedules → what XLA's compiler for another device reads (`jax.export`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import jax
from jax import export
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from eqsat.execute.calls import Signature, in_layouts
from eqsat.execute.compilers.ask import PLATFORMS, TPUS, Lowered
from eqsat.execute.draw import drawn_weights
from eqsat.execute.executable import xla_executable
from eqsat.execute.executors import build_executable
from eqsat.execute.expressions import lowered_for
from eqsat.execute.lowering import OpaqueFunction
from eqsat.execute.weights import resident
from eqsat.model.compiled import ARGUMENTS, CONSTANTS
from eqsat.model.diag import EqsatError, fail
from eqsat.model.layout import Border, Layout
from eqsat.model.oracle import Oracle
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype

CPU_EXECUTORS = ("kernels", "arena")  # XLA's ops stand for what these run on another device


class Lowerable(Protocol):
    """Source of a lowering: a program, its weights and calls, and the traced function."""

    @property
    def program(self) -> Program: ...

    @property
    def opaque(self) -> Mapping[str, OpaqueFunction]: ...

    @property
    def traced(self) -> Signature | None: ...

    @property
    def layouts(self) -> Mapping[Border, Layout]: ...


@dataclass(frozen=True)
class DeviceLowering:
    """How programs are handed to a compiler: for which device, and what weights are."""

    oracle: Oracle
    weights: str  # CONSTANTS | ARGUMENTS

    @property
    def platform(self) -> str:
        return PLATFORMS[self.oracle.compiler]

    def of_schedule(
        self, schedule: Schedule, source: Lowerable, arrays: Mapping[str, Any], target: Target
    ) -> Lowered:
        """The chosen program of a schedule; weights are packed already.

        arrays: of weights, by key. EqsatError: E464 if it cannot be lowered for the device.
        """
        held = self._held(schedule.program, arrays)
        if target.executor in CPU_EXECUTORS:
            executable: Any = xla_executable(schedule, source.opaque, held, target)
        else:
            executable = build_executable(schedule, source.opaque, held, target)
        program = schedule.program
        inputs = [_struct(program.nodes[i].type) for i in program.inputs]
        name, residents = source.program.name, resident(schedule)
        if self.weights == CONSTANTS:
            return self._exported(executable.flat, inputs, name, range(len(inputs)))
        packed = [_struct(program.nodes[i].types[0]) for i in residents]

        def run(packed: Sequence[Any], *inputs: Any) -> Any:
            return executable.run(dict(zip(residents, packed, strict=True)), *inputs)

        return self._exported(
            run, [packed, *inputs], name, range(len(residents), len(residents) + len(inputs))
        )

    def of_program(self, source: Lowerable, arrays: Mapping[str, Any]) -> Lowered:
        """The input: the traced function where there is one, else the ops of the program.

        EqsatError: E464 if it cannot be lowered for the device.
        """
        program, signature = source.program, source.traced
        if signature is None or signature.captured:
            whole = Schedule(program, (), (), (), "")
            return self.of_schedule(whole, source, arrays, _XLA_ALONE)
        call = in_layouts(signature, source.layouts)
        leaves = [self._leaf(program, kind, key) for kind, key in signature.bindings]
        pairs, before = list(signature.bindings), 0
        if self.weights == ARGUMENTS:
            call, leaves = hoisted(call, leaves)
            before = len(leaves[0])
        places = [before + pairs.index(("input", i)) for i in range(len(program.inputs))]
        return self._exported(call, leaves, program.name, places)

    def _held(self, program: Program, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """All weights of a program; those without values are not looked at where they are args."""
        if self.weights == ARGUMENTS:
            return dict(arrays)
        return {**arrays, **drawn_weights(program, arrays)}

    def _leaf(self, program: Program, kind: str, key: int | str) -> Any:
        if kind == "input":
            return _struct(program.nodes[program.inputs[int(key)]].type)
        at = next(i for i in program.weights if program.leaf(i).key == key)
        return _struct(program.nodes[at].type)

    def _exported(
        self, call: Callable[..., Any], args: Sequence[Any], name: str, places: Sequence[int]
    ) -> Lowered:
        """places: of the inputs among the flat arguments."""

        def named(*args: Any) -> Any:
            return call(*args)

        named.__name__ = name if name.isidentifier() else "program"
        checks = [export.DisabledSafetyCheck.custom_call(c) for c in KERNEL_CALLS]
        try:
            with self._device(), lowered_for(self.platform):
                exported = export.export(
                    jax.jit(named), platforms=[self.platform], disabled_checks=checks
                )(*args)
        except EqsatError:
            raise
        except Exception as error:  # whatever a primitive without this platform raises
            why = " ".join(str(error).split()) or type(error).__name__
            raise fail(
                "E464",
                f"`{name}` cannot be lowered for {self.oracle.device}: {why}",
                help="an opaque op of a saved run is compiled for one kind of device: ask about the"
                " run before it is saved (`run.compile_for(…)`)",
            ) from error
        return Lowered(bytes(exported.serialize()), tuple(places))

    def _device(self) -> AbstractContextManager[Any]:
        """The device as kernels see it while they are traced."""
        if self.oracle.compiler != "libtpu":
            return nullcontext()
        kind = TPUS[self.oracle.device].kind
        device = AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
        return use_abstract_mesh(AbstractMesh((1,), ("one",), abstract_device=device))


KERNEL_CALLS = ("tpu_custom_call", "mosaic_gpu_v2", "__gpu$xla.gpu.triton", "triton_kernel_call")
_XLA_ALONE = Target("", "", "xla", False, (), 0, (), 1.0, 1.0, ())


def hoisted(call: Callable[..., Any], args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """Function with the arrays that it closes over as an argument in front, and all arguments."""
    closed, result = jax.make_jaxpr(call, return_shape=True)(*args)
    tree = jax.tree_util.tree_structure(result)
    arrays = [jax.ShapeDtypeStruct(c.shape, c.dtype) for c in closed.consts]

    def outside(consts: Sequence[Any], *given: Any) -> Any:
        flat = jax.tree_util.tree_leaves(given)
        return tree.unflatten(jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, list(consts)))(*flat))

    return outside, [arrays, *args]


def _struct(t: TensorType) -> Any:
    return jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype))
