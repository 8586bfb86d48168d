"""Opaque pieces of a jaxpr: equations that touch values programs cannot hold, kept whole.

Such values are PRNG keys and complex numbers. A piece is a callable with a stable key, and its
StableHLO bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from eqsat.frontends.values import Context, Tensor, dtype_name, tensor_type
from eqsat.model.diag import fail
from eqsat.model.generic import Result
from eqsat.model.leaves import Opaque
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype


@dataclass(frozen=True)
class EquationGroup:
    """Equations, in order; more than one, or `foreign`, means they are kept whole."""

    eqns: tuple[Any, ...]
    foreign: bool = False


def is_foreign(v: Any) -> bool:
    """Whether a variable or literal has a type that programs have no name for."""
    dtype = getattr(v.aval, "dtype", None)
    return dtype is None or dtype_name(dtype) is None


def units(jaxpr: Any) -> Iterator[tuple[EquationGroup, list[Any]]]:
    """The equations of a jaxpr, foreign ones grouped into convex regions, in executable order.

    Beside each unit the variables it defines for what comes after.
    """
    eqns = list(jaxpr.eqns)
    touched = [any([is_foreign(v) for v in (*e.invars, *e.outvars)]) for e in eqns]
    if not any(touched):
        return ((EquationGroup((e,)), e.outvars) for e in eqns)
    parts = _regions(eqns, touched)
    return ((u, _exports(parts, at, jaxpr)) for at, u in enumerate(parts))


def _exports(parts: list[EquationGroup], at: int, jaxpr: Any) -> list[Any]:
    """The variables a unit defines; of a region, those that something after it reads."""
    if not parts[at].foreign:
        return parts[at].eqns[0].outvars
    read = {id(v) for u in parts[at + 1 :] for e in u.eqns for v in e.invars}
    read |= {id(v) for v in jaxpr.outvars}
    return [v for e in parts[at].eqns for v in e.outvars if id(v) in read]


def _regions(eqns: list[Any], touched: list[bool]) -> list[EquationGroup]:
    producers = {v: i for i, e in enumerate(eqns) for v in e.outvars}
    needs = [sorted({producers[v] for v in _variables(e) if v in producers}) for e in eqns]
    label = _close(needs, _components(eqns, touched, producers))
    members: dict[int, list[int]] = {}
    for i in range(len(eqns)):
        members.setdefault(label[i], []).append(i)
    foreign = {label[i] for i, t in enumerate(touched) if t}
    return [
        EquationGroup(tuple(eqns[i] for i in members[group]), group in foreign)
        for group in _order(members, label, needs)
    ]


def _variables(eqn: Any) -> Iterator[Any]:
    from jax.extend.core import Literal

    return (v for v in eqn.invars if not isinstance(v, Literal))


def _components(eqns: list[Any], touched: list[bool], producers: dict[Any, int]) -> list[int]:
    """A group number per equation: equations that pass a foreign value share one."""
    label = list(range(len(eqns)))
    for i, e in enumerate(eqns):
        if not touched[i]:
            continue
        for v in _variables(e):
            if v in producers and is_foreign(v):
                _merge(label, label[producers[v]], label[i])
    return label


def _merge(label: list[int], a: int, b: int) -> None:
    low, high = min(a, b), max(a, b)
    for i, group in enumerate(label):
        if group == high:
            label[i] = low


def _close(needs: list[list[int]], label: list[int]) -> list[int]:
    """Take in whatever lies on a path that leaves a group and comes back, until none does."""
    while True:
        outside = _path_back(needs, label)
        if outside is None:
            return label
        _merge(label, *outside)


def _path_back(needs: list[list[int]], label: list[int]) -> tuple[int, int] | None:
    """Two groups on a common cycle of the group graph, or None if it has no cycle."""
    groups = sorted({g for g in label if label.count(g) > 1})
    for group in groups:
        below: set[int] = {group}  # groups that depend on this one, itself included
        changed = True
        while changed:
            changed = False
            for i, sources in enumerate(needs):
                if label[i] not in below and any(label[s] in below for s in sources):
                    below.add(label[i])
                    changed = True
        for i, sources in enumerate(needs):
            for s in sources:
                if label[i] == group and label[s] != group and label[s] in below:
                    return group, label[s]
    return None


def _order(members: dict[int, list[int]], label: list[int], needs: list[list[int]]) -> list[int]:
    """Groups such that each follows what it reads, in the program's order where it can."""
    waits = {g: {label[s] for i in inside for s in needs[i]} - {g} for g, inside in members.items()}
    readers: dict[int, list[int]] = {g: [] for g in waits}
    for g, sources in waits.items():
        for s in sources:
            readers[s].append(g)
    left = {g: len(sources) for g, sources in waits.items()}
    ready, done = [g for g, n in left.items() if not n], []
    heapify(ready)
    while ready:
        done.append(heappop(ready))
        for g in readers[done[-1]]:
            left[g] -= 1
            if not left[g]:
                heappush(ready, g)
    return done


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
