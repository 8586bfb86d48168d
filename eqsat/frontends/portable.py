"""StableHLO bytes of a stranger → whether `jax.export` could have written them.

XLA runs any custom call that is registered in the process, with whatever arguments the module has:
one that takes the index of a Python callback reads memory behind it. JAX looks at the targets as it
exports, not as it loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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
            found: Any = deserialize_portable_artifact(module)
            found.operation.verify()
        except Exception as error:  # MLIR's own, of no public type
            raise ValueError(f"no StableHLO: {str(error).strip().splitlines()[0]}") from error
        _check_ops(found.operation)
        _check_main(found, operands, results)


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
