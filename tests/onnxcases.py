"""ONNX's own backend node tests run through the reader and the float64 reference."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from eqsat.frontends.onnxgraph import read_onnx
from eqsat.model.diag import EqsatError
from eqsat.ops.meaning.programs import element_dtype, evaluate_program

# of a 16- or 8-bit float type: a unit in the last place, as the reference does not round on the way
LOOSE = {"float16": 2e-3, "bfloat16": 2e-2, "float8_e4m3": 0.13, "float8_e5m2": 0.26}
ROUNDING = ("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear")


@dataclass(frozen=True)
class Outcome:
    """status: pass | refused (a sentence) | wrong | crash; constants: inputs made initializers."""

    status: str
    detail: str = ""
    constants: int = 0


@cache
def cases() -> dict[str, Any]:
    """Every node test of the installed onnx, by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {c.name: c for c in collect_testcases(None)}


@cache
def cases_of(*modules: str) -> dict[str, Any]:
    """The cases that these modules of the suite define, by name; far cheaper than all of them."""
    import onnx.backend.test.case.node as suite

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            importlib.import_module(f"{suite.__name__}.{module}")
        return {c.name: c for c in suite._NodeTestCases}


def operators(case: Any) -> list[str]:
    return sorted({f"{n.domain}.{n.op_type}".lstrip(".") for n in case.model.graph.node})


def run(case: Any, folder: Path) -> Outcome:
    """Read the case's model and compare its results with those that the case expects."""
    if case.model is None or not case.data_sets:
        return Outcome("refused", "the case has no model or no data")
    inputs, wanted = case.data_sets[0]
    for constants in dict.fromkeys((0, max(len(inputs) - 1, 0), len(inputs))):
        found = _attempt(case, inputs, wanted, constants, folder)
        if not found.detail.startswith("E366"):
            return found
    return found


def _attempt(
    case: Any, inputs: Sequence[Any], wanted: Sequence[Any], constants: int, folder: Path
) -> Outcome:
    """Run the case with its last operands as initializers."""
    model = with_constants(case.model, inputs, constants)
    path = folder / "case.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            read = read_onnx(path)
        given = [_array(x) for x in inputs[: len(inputs) - constants]]
        got = evaluate_program(read.program, given, read.weights, read.opaque)
    except EqsatError as error:
        first = error.diagnostics[0]
        return Outcome("refused", f"{first.code} {first.message}", constants)
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {str(error)[:200]}", constants)
    types = [read.program.nodes[r].type.dtype for r in read.program.results]
    told = compare(case, got, types, wanted)
    return Outcome("wrong" if told else "pass", told, constants)


def with_constants(model: Any, inputs: Sequence[Any], constants: int) -> Any:
    """The model with its last inputs as initializers."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    _raise_opset(found)
    graph = found.graph
    keep = len(graph.input) - constants
    for value, array in zip(list(graph.input)[keep:], inputs[keep:], strict=True):
        tensor = array if isinstance(array, onnx.TensorProto) else _tensor(array, value)
        tensor.name = value.name
        graph.initializer.append(tensor)
    del graph.input[keep:]
    return found


def _raise_opset(model: Any) -> None:
    """To 13 where the operators mean the same there as in the older opset of the case."""
    for o in model.opset_import:
        if o.domain == "" and o.version < 13 and all(_same(n, o.version) for n in model.graph.node):
            o.version = 13


def _same(node: Any, version: int) -> bool:
    if node.domain or (node.op_type in ("If", "Loop", "Scan") and version >= 9):
        return True  # later versions only take more types
    try:
        old = onnx.defs.get_schema(node.op_type, version, "")
        new = onnx.defs.get_schema(node.op_type, 13, "")
    except onnx.defs.SchemaError:
        return False
    return old.since_version == new.since_version


def _array(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x)


def _tensor(array: Any, value: Any) -> Any:
    number = value.type.tensor_type.elem_type
    return (
        onnx.helper.make_tensor(
            value.name, number, np.shape(array), np.asarray(array).tobytes(), raw=True
        )
        if number in _RAW
        else onnx.numpy_helper.from_array(np.asarray(array), value.name)
    )


_RAW = {17, 18, 19, 20, 16, 10}


def compare(case: Any, got: Sequence[Any], types: Sequence[str], wanted: Sequence[Any]) -> str:
    """What differs, "" if nothing does."""
    if len(got) != len(wanted):
        return f"{len(got)} results, wanted {len(wanted)}"
    for at, (a, t, expected) in enumerate(zip(got, types, wanted, strict=True)):
        b = _plain(_array(expected))
        if a.shape != b.shape:
            return f"result {at}: shape {a.shape}, wanted {b.shape}"
        if element_dtype(t) != b.dtype and t not in ("i4", "u4"):
            return f"result {at}: type {t}, wanted {b.dtype}"
        told = _differs(case, a, b)
        if told:
            return f"result {at}: {told}"
    return ""


def _plain(b: Any) -> Any:
    """4-bit integers in 8 bits."""
    return b.astype({"uint4": np.uint8, "int4": np.int8}.get(b.dtype.name, b.dtype))


def _differs(case: Any, a: Any, b: Any) -> str:
    if b.dtype.kind in "iub":
        off = np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0)
        allowed = 1 if set(ROUNDING) & set(operators(case)) else 0  # a quantum, next to a tie
        return f"off by {off}" if off > allowed else ""
    rtol = max([case.rtol, *(r for name, r in LOOSE.items() if b.dtype.name.startswith(name))])
    with np.errstate(all="ignore"):
        x, y = a.astype(b.dtype).astype(np.float64), b.astype(np.float64)
    if np.allclose(x, y, rtol=rtol, atol=max(case.atol, 1e-6), equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"off by {np.nanmax(np.abs(x - y))}"
