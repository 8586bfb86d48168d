"""Opaque pieces of a jaxpr, kept whole: a callable with a stable key, and its StableHLO bytes.

Bytes of a stranger are asked first whether `jax.export` could have written them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.frontends.values import Context, Tensor, tensor_type
from eqsat.model.diag import fail
from eqsat.model.foreign import Opaque
from eqsat.model.generic import Result
from eqsat.model.tensor import TensorType

# ---- bytes of a stranger -------------------------------------------------------------------------
# ops that wait for another side, which an op of a program does not have
_WAITING = frozenset(f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv"))
_CALLS = frozenset({"stablehlo.custom_call", "mhlo.custom_call"})


def check_portable(module: bytes, operands: Sequence[Any], results: Sequence[Any]) -> None:
    """ValueError if bytes are no module of these types, or call what JAX does not guarantee.

    operands, results: shapes and NumPy types of what `main` takes and gives.
    """
    from jax.extend.mlir import deserialize_portable_artifact
    from jax.interpreters import mlir

    with mlir.make_ir_context(), mlir.ir.Location.unknown():
        try:
            parsed: Any = deserialize_portable_artifact(module)
            parsed.operation.verify()
        except Exception as error:  # MLIR's own, of no public type
            raise ValueError(f"no StableHLO: {str(error).strip().splitlines()[0]}") from error
        _check_ops(parsed.operation)
        _check_main(parsed, operands, results)


def _check_ops(module: Any) -> None:
    allowed = guaranteed()
    for op in _walk(module):
        if op.name in _WAITING:
            raise ValueError(f"`{op.name}` waits for somebody who is not there")
        if op.name not in _CALLS:
            continue
        target = str(op.attributes["call_target_name"]).strip('"')
        if target not in allowed:
            raise ValueError(f"it calls `{target}`, which `jax.export` does not guarantee")


def guaranteed() -> frozenset[str]:
    """The custom calls that `jax.export` writes."""
    from jax._src.export import _export

    return frozenset(_export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE)


def _walk(op: Any) -> Iterator[Any]:
    waiting = [op]
    while waiting:
        op = waiting.pop()
        yield op
        waiting += [o.operation for region in op.regions for block in region for o in block]


def _check_main(module: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
    main = next((o for o in module.body.operations if _name(o) == "main"), None)
    if main is None:
        raise ValueError("no function `main`")
    for have, types in ((main.type.inputs, operands), (main.type.results, results)):
        want = [_ir_type(t) for t in types]
        if list(have) != want:
            raise ValueError(f"it has {', '.join(map(str, have))} for {', '.join(map(str, want))}")


def _ir_type(t: Any) -> Any:
    from jax.interpreters import mlir

    return mlir.ir.RankedTensorType.get(t.shape, mlir.dtype_to_ir_type(t.dtype))


def _name(op: Any) -> str:
    return op.name.value if op.operation.name == "func.func" else ""


# ---- pieces kept whole ---------------------------------------------------------------------------
PLATFORMS = ("cpu", "cuda", "tpu")
# what JAX raises of a header that was made up
_STRANGE = (
    AssertionError, AttributeError, LookupError, NotImplementedError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class OpaqueCall:
    """A kept computation: `call` takes JAX or NumPy arrays (or tracers) and returns a list.

    closed: the ClosedJaxpr it stands for; None when it was loaded from its exported form, which
    runs but cannot be differentiated.
    """

    primitive: str
    key: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    closed: Any = field(repr=False, default=None)
    exported: Any = field(repr=False, default=None)

    def call(self, *arrays: Any) -> list[Any]:
        """The results, as JAX itself computes them."""
        if self.closed is None:
            return list(self.exported.call(*arrays))
        from jax.extend.core import jaxpr_as_fun

        return list(jaxpr_as_fun(self.closed)(*arrays))

    __call__ = call

    def export(self) -> bytes:
        """StableHLO bytes with a header, for CPU, CUDA and TPU where the lowering allows it.

        Elsewhere for the present platform alone.
        """
        exported = self.exported or _export(self)
        header = {
            "format": 1,
            "primitive": self.primitive,
            "key": self.key,
            "operands": [str(t) for t in self.operands],
            "results": [str(t) for t in self.results],
            "platforms": list(exported.platforms),
            "calling_convention_version": exported.calling_convention_version,
            "module_kept_var_idx": list(exported.module_kept_var_idx),
            "uses_global_constants": exported.uses_global_constants,
        }
        return json.dumps(header).encode() + b"\n" + exported.mlir_module_serialized

    @classmethod
    def load(cls, data: bytes) -> OpaqueCall:
        """Undo `export`; EqsatError E325 if the bytes are something else."""
        head, _, module = data.partition(b"\n")
        try:
            h = json.loads(head)
            if not set(h["platforms"]) <= {*PLATFORMS, "rocm"}:
                raise ValueError(f"its platforms are {h['platforms']}")
            operands = tuple(TensorType.parse(t) for t in h["operands"])
            results = tuple(TensorType.parse(t) for t in h["results"])
            exported = _restore(h, operands, results, module)
        except _STRANGE as error:
            message = f"an opaque op is not what eqsat exported: {error}"
            raise fail("E325", message, help="save the run again") from error
        return cls(h["primitive"], h["key"], operands, results, None, exported)


def _shape_struct(t: TensorType) -> Any:
    import jax

    from eqsat.ops.meaning.programs import element_dtype

    return jax.ShapeDtypeStruct(t.shape, element_dtype(t.dtype))


def _export(call: OpaqueCall) -> Any:
    import jax
    from jax import export

    avals = [_shape_struct(t) for t in call.operands]
    function = jax.jit(lambda *xs: tuple(call.call(*xs)))
    try:
        return export.export(function, platforms=PLATFORMS)(*avals)
    except (NotImplementedError, ValueError, TypeError):
        return export.export(function)(*avals)  # e.g. a primitive with no TPU lowering


def _restore(
    header: dict[str, Any],
    operands: Sequence[TensorType],
    results: Sequence[TensorType],
    module: bytes,
) -> Any:
    """An `Exported` around the module, on the frame of a trivial one of the same signature.

    JAX's own `serialize` needs the flatbuffers package, which is no dependency of ours.
    """
    import jax
    import jax.numpy as jnp
    from jax import export

    wanted = [_shape_struct(t) for t in results]
    given = [_shape_struct(t) for t in operands]
    used = [given[i] for i in header["module_kept_var_idx"]]
    platform = [jax.ShapeDtypeStruct((), jnp.int32)] if len(header["platforms"]) > 1 else []
    check_portable(module, [*platform, *used], wanted)
    frame = export.export(
        jax.jit(lambda *_: tuple(jnp.zeros(w.shape, w.dtype) for w in wanted)),
        platforms=header["platforms"],
    )(*given)
    return replace(
        frame,
        mlir_module_serialized=module,
        calling_convention_version=header["calling_convention_version"],
        module_kept_var_idx=tuple(header["module_kept_var_idx"]),
        uses_global_constants=header["uses_global_constants"],
        _get_vjp=None,
    )


def kept_call(ctx: Context, title: str, closed: Any, operands: Sequence[int]) -> list[Tensor]:
    """The results of a jaxpr of these nodes, as one opaque op."""
    results = tuple(tensor_type(a, f"a result of {title}") for a in closed.out_avals)
    types = tuple(ctx.builder.type(o) for o in operands)
    key = fingerprint(closed)
    ctx.opaque[key] = OpaqueCall(title, key, types, results, closed)
    node = ctx.builder.add("opaque", tuple(operands), Opaque(title, key, types, results))
    if len(results) == 1:
        return [ctx.full(node)]
    return [ctx.add("result", (node,), Result(i)) for i in range(len(results))]


def fingerprint(closed: Any) -> str:
    """16 hex digits of the printed jaxpr and every array inside it.

    Stable across processes as far as the printed parameters are; a Python function among them
    prints with its address, which keeps two different functions apart within a process.
    """
    digest = hashlib.sha256(str(closed.jaxpr).encode())
    for array in _arrays(closed):
        value = np.asarray(array)
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()[:16]


def _arrays(value: Any) -> Iterator[Any]:
    """Constants, literals and array parameters, which a printed jaxpr may abbreviate."""
    import jax
    from jax.extend import core

    if isinstance(value, core.ClosedJaxpr):
        yield from value.consts
        yield from _arrays(value.jaxpr)
    elif isinstance(value, core.Jaxpr):
        for eqn in value.eqns:
            yield from (v.val for v in eqn.invars if isinstance(v, core.Literal))
            for parameter in eqn.params.values():
                yield from _arrays(parameter)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, np.ndarray | jax.Array):
        yield value
