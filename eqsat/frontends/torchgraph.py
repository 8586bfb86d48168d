"""A torch graph → Program: lowered by torch's own ONNX exporter, read as any ONNX model is.

Parameters and buffers never become constants of the model: they are weights under the names that
the modules have for them, and their values stay where torch keeps them.
"""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.frontends.onnxgraph.interpret import read_model
from eqsat.frontends.source import Source, Traced
from eqsat.model.diag import fail

# what JAX would make 32-bit ones (integers are checked by value), and what programs cannot hold
REFUSED_TYPES = ("float64", "complex32", "complex64", "complex128")
SCOPES = "pkg.torch.onnx.name_scopes"  # where the exporter notes a node's modules


@dataclass(frozen=True)
class TorchGraph:
    """A graph that was read. weights: name in the modules → content key in the program."""

    traced: Traced
    weights: Mapping[str, str]

    def source(self, values: Mapping[str, Any]) -> Source:
        """The source with the values of its weights, by name (tensors of torch)."""
        arrays = {key: array_of(values[k]) for k, key in self.weights.items() if k in values}
        return Source(self.traced.program, {**self.traced.weights, **arrays}, self.traced.opaque)


def torch_module() -> Any:
    """The torch package, with what lowers its graphs; EqsatError E396 if it is not installed."""
    try:
        import onnxscript  # noqa: F401  what torch.onnx lowers by
        import torch
    except ImportError as error:
        raise fail(
            "E396",
            f"reading PyTorch programs needs the package `{error.name}`, which is not installed",
            help="pip install 'eqsat[torch]'",
        ) from error
    return torch


def is_exported(what: Any) -> bool:
    """Whether this is a `torch.export.ExportedProgram`; imports nothing."""
    return type(what).__name__ == "ExportedProgram" and _is_of_torch(type(what))


def is_module(what: Any) -> bool:
    """Whether this is a `torch.nn.Module`; imports nothing."""
    return any(c.__name__ == "Module" and _is_of_torch(c) for c in type(what).__mro__)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def read_exported(program: Any) -> Source:
    """The source of an ExportedProgram: flat inputs in its order, a tuple of its results.

    EqsatError: E396 if it cannot be lowered or changes what it is given, E36x as of ONNX models.
    """
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        message = f"the exported program changes `{changed[0]}` in place, which programs cannot"
        raise fail("E396", message, help="return the new value, or export without the change")
    weights = {*signature.inputs_to_parameters.values(), *signature.inputs_to_buffers.values()}
    values = {**program.state_dict, **program.constants}
    return read_graph(program, weights).source(values)


def read_graph(
    program: Any, weights: Collection[str], names: Sequence[str] = (), title: str = "torch"
) -> TorchGraph:
    """Lower an ExportedProgram and read it.

    weights: names of parameters, buffers and inputs that are weights. names: of the program's
    inputs, where they are to be called otherwise. EqsatError: E396, E36x.
    """
    refuse_types(program.graph_module.graph)
    model = _lowered(program, weights)
    graph = model.graph
    for value, name in zip(graph.inputs, names, strict=False):
        value.name = name
    for node in graph:
        node.name = _spoken(node)
        for value in node.outputs:
            value.name = f"{value.name}."  # no argument is called so
    import onnx_ir

    with _quiet():  # its constants are masks and such: infinite ones are meant
        traced = read_model(onnx_ir.to_proto(model), Path(title), weights=weights)
    held = {traced.program.leaf(i).key for i in traced.program.weights}
    leaves = zip(traced.input_paths, traced.bindings, strict=True)
    return TorchGraph(traced, {path: str(key) for path, (_, key) in leaves if key in held})


def refuse_types(graph: Any) -> None:
    """EqsatError E396 for a value of a graph that eqsat would compute in another type."""
    import jax

    refused = REFUSED_TYPES[1:] if jax.config.read("jax_enable_x64") else REFUSED_TYPES
    for node in graph.nodes:
        dtype = str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")
        if dtype in refused:
            help = 'jax.config.update("jax_enable_x64", True)' if dtype == "float64" else ""
            raise fail("E396", f"`{node.name}` is of {dtype}, which would be rounded", help=help)


def exported(graph: Any, inputs: Sequence[Any]) -> Any:
    """The ExportedProgram of a graph module; inputs: only their shapes and types are read.

    EqsatError E396 with torch's words.
    """
    torch = torch_module()
    empty = tuple(torch.empty(x.shape, dtype=x.dtype) for x in inputs)  # never touched
    with _told("torch cannot export the graph"), _outside():
        return torch.export.export(graph, empty, strict=False)


def _lowered(program: Any, weights: Collection[str]) -> Any:
    """The ONNX model of an ExportedProgram, in memory; EqsatError E396 with torch's words.

    weights: initializers that become inputs, before passes of the exporter could use their values.
    """
    torch = torch_module()
    with _told("torch's ONNX exporter cannot lower the graph"), _outside(), _quiet():
        lowered = torch.onnx.export(program, (), verbose=False, optimize=False)
        graph = lowered.model.graph
        for name in [k for k in graph.initializers if k in weights]:
            value = graph.initializers.pop(name)
            value.const_value = None
            graph.inputs.append(value)
        lowered.optimize()
        return lowered.model


@contextmanager
def _outside() -> Iterator[None]:
    """Not inside of what Dynamo traces, whose fake tensors refuse the constants of a graph."""
    from torch._guards import tracing
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with tracing(None), unset_fake_temporarily():
        yield


@contextmanager
def _told(message: str) -> Iterator[None]:
    """Errors as E396: torch fails in many ways, and none of them is ours."""
    try:
        yield
    except Exception as error:
        raise fail("E396", f"{message}: {_cause(error)}") from error


def _cause(error: BaseException) -> str:
    """The first line of what an error began with; the exporter wraps the one that says why."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter and its passes log and warn of; errors are raised all the same."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _spoken(node: Any) -> str:
    """A node by its innermost module and its op: `layer1.0.conv1/Conv`."""
    scopes = ast.literal_eval(node.metadata_props.get(SCOPES, "[]"))
    module = scopes[-2] if len(scopes) > 1 else ""
    module = module.removeprefix("L['self']").removeprefix(".")
    return f"{module}/{node.op_type}" if module else node.op_type


# ---- tensors and arrays --------------------------------------------------------------------------
def array_of(tensor: Any) -> Any:
    """A tensor as an array of JAX, in its memory where it is contiguous; 64-bit integers in 32.

    EqsatError E503 for integers that do not fit.
    """
    import jax

    torch = torch_module()
    x = tensor.detach()
    if x.dtype == torch.int64 and not jax.config.read("jax_enable_x64"):
        x = x.to(torch.int32)
        if not torch.equal(x.to(torch.int64), tensor.detach()):
            raise fail("E503", "an argument holds 64-bit integers beyond 32 bits")
    return jax.dlpack.from_dlpack(x.resolve_conj().resolve_neg().contiguous())


def tensor_of(array: Any) -> Any:
    """An array of JAX as a tensor in its memory, once it is computed."""
    return torch_module().from_dlpack(array.block_until_ready())
