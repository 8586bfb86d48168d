"""`x.onnx` → Program: a graph run under a JAX trace, initializers as weights under their names.

What depends on constants only is computed in NumPy on the way.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.frontends.onnxgraph import proto
from eqsat.frontends.onnxgraph.convert import checked, read_function
from eqsat.frontends.onnxgraph.graph import (
    MICROSOFT,
    Argument,
    Array,
    Held,
    OnnxCall,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    Operator,
    Reference,
    short,
    subgraphs,
)
from eqsat.frontends.onnxgraph.ops import OPERATORS
from eqsat.frontends.onnxgraph.proto import HIGHEST_RANK, data_type_number, is_bearable
from eqsat.model.diag import Diagnostic, EqsatError, EqsatWarning, did_you_mean, fail
from eqsat.model.tensor import LEVELS

if TYPE_CHECKING:
    from eqsat.frontends.source import Traced

MOST_STEPS = 50_000  # nodes run, those of functions and loop bodies each time
DEEPEST = 64  # calls inside each other
Env = MutableMapping[str, Held]


@dataclass
class Interpreter:
    """Runs the graphs of one model; `steps` counts the nodes run, `depth` the calls now open."""

    model: OnnxModel
    steps: int = 0
    depth: int = 0
    opsets: Mapping[str, int] | None = None

    def graph(
        self, graph: OnnxGraph, given: Mapping[str, Held], outer: Env | None = None
    ) -> list[Held]:
        """The results of a graph; given: its inputs, outer: values of the graphs around it."""
        env: Env = ChainMap({}, outer) if outer is not None else {}
        for name, array in graph.initializers.items():
            env[name] = Held(array, name=name)
        env.update(given)
        self._nodes(graph, env)
        return [env[name] for name in graph.outputs if name]

    def _nodes(self, graph: OnnxGraph, env: Env) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise graph.nodes[0].error("E362", f"lies in {DEEPEST} calls inside each other")
        import jax

        for node in graph.nodes:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise node.error("E362", f"is reached after {MOST_STEPS} others: too many to run")
            with jax.named_scope(node.scope):
                results = self._node(node, env)
            for name, held in zip(node.outputs, results, strict=False):
                if name and held is not None:
                    env[name] = held
            self._check_outputs(node, env)
        self.depth -= 1

    def _check_outputs(self, node: OnnxNode, env: Env) -> None:
        for name in node.outputs:
            if name and name not in env:
                what = f"wants the result `{short(name)}`, which this operator does not give here"
                raise node.error("E365", what)

    def _node(self, node: OnnxNode, env: Env) -> Sequence[Held | None]:
        operands = tuple(env[i] if i else None for i in node.inputs)
        function = self.model.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return self._call(function, node, operands)
        record = OPERATORS.get((node.domain, node.op))
        if record is None:
            return self._standard_body(node, operands)
        self._check_version(node, record, operands)
        self._check_attributes(node)
        call = OnnxCall(
            node, operands, self._opset(node), _namespace(record, operands), _Runner(self, env)
        )
        results = [_held(node, r) for r in _results(_compute(record, call))]
        return results if subgraphs(node) else _recomputable(record, call, results)

    def _opset(self, node: OnnxNode) -> int:
        opsets = self.model.opsets if self.opsets is None else self.opsets
        if node.domain not in opsets and node.domain != MICROSOFT:
            raise node.error("E361", "is of a domain whose opset the model does not import")
        return opsets.get(node.domain, 1)

    def _check_version(
        self, node: OnnxNode, record: Operator, operands: Sequence[Held | None]
    ) -> None:
        if node.domain:
            return
        standard = proto.operator_schema(node.domain, node.op, self._opset(node))
        if standard is None or standard.deprecated:
            raise node.error("E365", f"is no operator of opset {self._opset(node)}")
        if standard.since_version > record.newest:
            raise node.error(
                "E365",
                f"means what opset {standard.since_version} says; known is opset {record.newest}",
                help="export the model for an earlier opset",
            )
        if len(node.inputs) < standard.min_input or len(node.inputs) > standard.max_input:
            raise node.error("E362", f"has {len(node.inputs)} operands, not as many as it takes")
        _check_types(node, operands, standard)

    def _check_attributes(self, node: OnnxNode) -> None:
        """Every attribute is one the standard knows, and of its type."""
        standard = None if node.domain else proto.operator_schema("", node.op, self._opset(node))
        for name, kind in node.kinds.items():
            if standard is None or isinstance(node.attributes.get(name), Reference):
                continue
            attribute = standard.attributes.get(name)
            if attribute is None:
                what = f"has an attribute `{short(name)}`, which the operator does not have"
                raise node.error("E362", what, did_you_mean(name, standard.attributes))
            if int(attribute.type.value) != kind:
                raise node.error("E362", f"has an attribute `{short(name)}` of another type")

    def _standard_body(
        self, node: OnnxNode, operands: tuple[Held | None, ...]
    ) -> Sequence[Held | None]:
        """An operator that the standard defines by others; E365 if it does not."""
        if subgraphs(node):  # what they do the body would leave out
            raise self._unknown(node)
        types = tuple(None if o is None else (data_type_number(o.dtype), o.shape) for o in operands)
        version = self._opset(node)
        body = proto.function_body(
            node.domain, node.op, version, lambda onnx: _node_proto(onnx, node), types
        )
        if body is None:
            raise self._unknown(node)
        self._check_attributes(node)
        function = read_function(body, self.model.opsets)
        standard = proto.operator_schema(node.domain, node.op, version)
        defaults = proto.schema_defaults(standard, function.attributes)
        return self._call(
            replace(function, defaults={**defaults, **function.defaults}), node, operands
        )

    def _unknown(self, node: OnnxNode) -> EqsatError:
        operators = [op for domain, op in OPERATORS if domain == node.domain]
        if node.domain == "" and node.op in proto.known_ops(""):
            return node.error(
                "E365",
                f"is an operator that is not read (opset {self._opset(node)})",
                help="replace it in the model, or cut the model before it",
            )
        where = f"the domain `{short(node.domain)}`" if node.domain else "the ONNX standard"
        help = did_you_mean(node.op, operators) if operators else "export without custom operators"
        near = (
            help if help.startswith("did") or not operators else "export without custom operators"
        )
        return node.error("E365", f"is no operator that is known in {where}", near)

    def _call(
        self, function: OnnxFunction, node: OnnxNode, operands: tuple[Held | None, ...]
    ) -> list[Held | None]:
        """A function inlined: parameters bound, attribute references resolved."""
        names = [a.name for a in function.body.inputs]
        if len(operands) > len(names):
            raise node.error("E362", f"calls a function of {len(names)} operands with more")
        given = dict(zip(names, operands, strict=False))
        values = {**function.defaults, **node.attributes}
        body = substituted(function.body, values, {n for n in names if given.get(n) is None})
        before, self.opsets = self.opsets, function.opsets
        try:
            results = self.graph(body, {k: v for k, v in given.items() if v is not None})
        finally:
            self.opsets = before
        named = dict(zip([o for o in body.outputs if o], results, strict=True))
        return [named.get(o) for o in body.outputs]


def _check_types(node: OnnxNode, operands: Sequence[Held | None], standard: Any) -> None:
    """Operands of one type variable of the standard have one type; 64 bits are held in 32."""
    dtypes: dict[str, str] = {}
    for i, held in enumerate(operands):
        formal = standard.inputs[min(i, len(standard.inputs) - 1)]
        if held is None or not formal.is_homogeneous:
            continue
        dtype = held.dtype.name.replace("64", "32")
        first = dtypes.setdefault(formal.type_str, dtype)
        if first != dtype:
            what = f"has operands of {first} and {dtype}, which have to be of one type"
            raise node.error("E368", what, help="put a Cast before one of them")


@dataclass(frozen=True)
class _Runner:
    """Runs the graphs that operators hold: the interpreter and the values around."""

    interpreter: Interpreter
    env: Env

    def __call__(self, graph: OnnxGraph, operands: Sequence[Held]) -> list[Held]:
        given = {a.name: h for a, h in zip(graph.inputs, operands, strict=True)}
        return self.interpreter.graph(graph, given, self.env)


def substituted(graph: OnnxGraph, attributes: Mapping[str, Any], absent: set[str]) -> OnnxGraph:
    """A function's body with references to attributes replaced, absent operands left out."""
    return replace(graph, nodes=tuple(_bound(n, attributes, absent) for n in graph.nodes))


def _bound(node: OnnxNode, values: Mapping[str, Any], absent: set[str]) -> OnnxNode:
    attributes: dict[str, Any] = {}
    for name, value in node.attributes.items():
        if isinstance(value, Reference):
            if value.name in values:
                attributes[name] = values[value.name]
        elif isinstance(value, OnnxGraph):
            attributes[name] = substituted(value, values, absent)
        else:
            attributes[name] = value
    inputs = tuple("" if i in absent else i for i in node.inputs)
    return replace(node, attributes=attributes, inputs=inputs)


def _namespace(record: Operator, operands: Sequence[Held | None]) -> Any:
    import jax.numpy as jnp

    given = [o for o in operands if o is not None]
    return np if record.fold and all(o.foldable for o in given) else jnp


def _compute(record: Operator, call: OnnxCall) -> Any:
    try:
        with np.errstate(all="ignore"), _matmul_precision(call.node.precision):
            return record.compute(call)
    except EqsatError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # JAX and NumPy say what does not fit in many ways
        lines = str(error).strip().splitlines() or [type(error).__name__]
        given = ", ".join(f"{o.dtype.name}{list(o.shape)}" for o in call.operands if o is not None)
        what = short(lines[0], 200)
        raise call.error(
            "E368", f"does not fit its operands ({short(given, 200)}): {what}",
            help="the model contradicts itself, or a `--size` does not suit it",
        ) from error  # fmt: skip


def _matmul_precision(name: str) -> Any:
    """A context in which JAX's products that name no precision have this one."""
    import jax

    return jax.default_matmul_precision(name if name in LEVELS else name.upper())


def _recomputable(record: Operator, call: OnnxCall, results: list[Held]) -> list[Held]:
    """The results, with their arrays at hand where the operands are known, but not folded."""
    given = [o for o in call.operands if o is not None]
    depth = 1 + max((o.depth for o in given), default=0)
    if depth > DEEPEST or not all(o.foldable or o.computed for o in given):
        return results

    @functools.cache
    def arrays() -> list[Array]:
        import jax

        known = tuple(None if o is None else Held(o.known) for o in call.operands)
        with jax.ensure_compile_time_eval():
            again = _results(_compute(record, replace(call, operands=known)))
            return [np.asarray(_held(call.node, r).array) for r in again]

    return [
        h if h.is_constant else replace(h, computed=lambda i=i: arrays()[i], depth=depth)
        for i, h in enumerate(results)
    ]


def _results(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _held(node: OnnxNode, result: Any) -> Held:
    if isinstance(result, Held):
        return result
    array = np.asarray(result) if isinstance(result, np.generic) else result
    if not is_bearable(tuple(array.shape)):
        raise node.error("E368", f"gives a tensor of shape {list(array.shape)}, which is too large")
    return Held(array)


def _node_proto(onnx: Any, node: OnnxNode) -> Any:
    """The node as a message again, for the standard's own function bodies."""
    plain = {k: v for k, v in node.attributes.items() if isinstance(v, int | float | str | tuple)}
    arrays = {k: v for k, v in node.attributes.items() if isinstance(v, np.ndarray)}
    message = onnx.helper.make_node(node.op, node.inputs, node.outputs, domain=node.domain, **plain)
    for name, array in arrays.items():
        tensor = onnx.numpy_helper.from_array(array)
        message.attribute.append(onnx.helper.make_attribute(name, tensor))
    return message


def read_onnx(path: str | Path, sizes: Mapping[str, int] | None = None) -> Traced:
    """Read a model; its program takes the graph's inputs in order and gives its outputs.

    sizes: the size of every dimension the file leaves open, by its name (`batch`), or by input and
    axis (`ids.0`) if it has none. Initializers are weights. 64-bit types become 32-bit ones unless
    `jax_enable_x64` is set, as everywhere in JAX. EqsatError E360 to E369; `EqsatWarning` for
    weights that are not finite. Nothing is executed, and only files in the model's folder are read.
    """
    file = Path(path)
    return read_model(proto.parse_model(file), file, sizes)


def read_model(
    model: Any, file: Path, sizes: Mapping[str, int] | None = None, weights: Collection[str] = ()
) -> Traced:
    """Read a ModelProto; file: what messages call it, beside which its external data lies.

    weights: inputs that are weights whose values are given later. Otherwise as `read_onnx`.
    """
    checked_model = checked(model, file)
    graph = checked_model.graph
    shapes = _shapes(graph, {k: int(n) for k, n in (sizes or {}).items()}, str(file))
    _warn_of_strange_values(graph)
    arguments = dict(zip(graph.inputs, shapes, strict=True))
    held = {k: a for k, a in graph.initializers.items() if a.size > 1}
    held |= {a.name: _struct(a, s) for a, s in arguments.items() if a.name in weights}
    given = {a: s for a, s in arguments.items() if a.name not in weights}
    return _trace(Interpreter(checked_model), graph, given, held, python_name(file.stem, set()))


def _trace(
    interpreter: Interpreter,
    graph: OnnxGraph,
    arguments: Mapping[Argument, tuple[int, ...]],
    weights: Mapping[str, Any],
    name: str,
) -> Traced:
    """weights: arrays of initializers, and shapes of inputs that are weights."""
    from eqsat.frontends.jaxpr import trace

    def function(*inputs: Any, **leaves: Any) -> tuple[Any, ...]:
        given = {a.name: Held(x, name=a.name) for a, x in zip(arguments, inputs, strict=True)}
        given |= {k: Held(x, name=k) for k, x in leaves.items() if k not in graph.initializers}
        for key, array in graph.initializers.items():
            given[key] = Held(array, leaves.get(key), key)
        results = interpreter.graph(graph, given)
        return tuple(h.traced for h in results)

    _name_parameters(function, [a.name for a in arguments])
    structs = [_struct(a, shape) for a, shape in arguments.items()]
    with warnings.catch_warnings():  # of 64-bit types that JAX makes 32-bit ones
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        return trace(function, tuple(structs), weights, weights=tuple(weights), name=name)


def _struct(a: Argument, shape: tuple[int, ...]) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, _dtype(a))


def _dtype(a: Argument) -> np.dtype[Any]:
    """The type an input has in the program: without x64, JAX's 32-bit one."""
    import jax

    if a.dtype is None:
        raise fail("E363", f"input `{short(a.name)}` has no element type")
    return np.dtype(jax.dtypes.canonicalize_dtype(a.dtype))


def _name_parameters(function: Any, names: list[str]) -> None:
    """Let `inspect.signature` tell the graph's names, from which the program takes its own."""
    kind = inspect.Parameter
    taken: set[str] = set()
    parameters = [kind(python_name(n, taken), kind.POSITIONAL_ONLY) for n in names]
    rest = kind(python_name("weights", taken), kind.VAR_KEYWORD)
    function.__signature__ = inspect.Signature([*parameters, rest])


def python_name(name: str, taken: set[str]) -> str:
    """A Python identifier like this name that is not taken yet; it is taken then."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:200] or "x"
    plain = plain if plain.isidentifier() and not plain[0].isdigit() else f"_{plain}"
    unique, n = plain, 1
    while unique in taken or not unique.isidentifier():
        n += 1
        unique = f"{plain}_{n}"
    taken.add(unique)
    return unique


def _shapes(graph: OnnxGraph, sizes: dict[str, int], path: str) -> list[tuple[int, ...]]:
    """The shape of every input; E367 names the dimensions without a size."""
    named = open_dims(graph)
    missing = [d for d in named if d not in sizes]
    if missing:
        raise unsized(missing, path)
    for name in named:
        if sizes[name] < 0:
            raise fail("E367", f"the size of dimension `{short(name)}` is {sizes[name]}")
    unknown = sorted(set(sizes) - set(named))
    if unknown:
        listed = ", ".join(map(short, named[:8])) or "none: every size is fixed"
        raise fail(
            "E367",
            f"`{path}` has no open dimension `{short(unknown[0])}`",
            help=f"its open dimensions: {listed}",
        )
    return [_shape(a, sizes) for a in graph.inputs]


def unsized(dims: Sequence[str], path: str) -> EqsatError:
    """E367 for dims of which nobody gave a size."""
    shown = ", ".join(f"`{short(d)}`" for d in dims[:8])
    flags = " ".join(f"--size {short(d)}=1" for d in dims[:8])
    return fail(
        "E367",
        f"`{path}` leaves the size of {len(dims)} dimension(s) open: {shown}",
        help=f"say how large they are: `{flags}`, or `eqsat.read(…, sizes={{…}})`",
    )


def open_dims(graph: OnnxGraph) -> list[str]:
    """The names of the dims that a model leaves open; EqsatError E367 for an input of no rank."""
    _check_ranks(graph)
    dims = [d for a in graph.inputs for d in a.shape or ()]
    return list(dict.fromkeys(d for d in dims if isinstance(d, str)))


def _check_ranks(graph: OnnxGraph) -> None:
    for a in graph.inputs:
        if a.shape is None:
            raise fail(
                "E367",
                f"input `{short(a.name)}` has no shape, not even a rank",
                help="set its shape with `onnx.helper.make_tensor_value_info` and save the model",
            )


def _shape(a: Argument, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape = tuple(sizes[d] if isinstance(d, str) else d for d in a.shape or ())
    if not is_bearable(shape) or len(shape) > HIGHEST_RANK:
        raise fail("E363", f"input `{short(a.name)}` is too large: {list(shape[:8])}")
    return shape


def _warn_of_strange_values(graph: OnnxGraph) -> None:
    """An EqsatWarning that names the weights with NaN or infinite values."""
    strange = [k for k, a in graph.initializers.items() if a.size > 1 and not _finite(a)]
    if not strange:
        return
    shown = ", ".join(f"`{short(k)}`" for k in strange[:4])
    more = f" and {len(strange) - 4} more" if len(strange) > 4 else ""
    d = Diagnostic(
        "E369",
        f"weights hold NaN or infinite values: {shown}{more}",
        help="they are kept as they are; results that read them may be NaN",
        severity="warning",
    )
    warnings.warn(EqsatWarning(d), stacklevel=3)


def _finite(array: np.ndarray[Any, Any]) -> bool:
    if array.dtype.kind in "iub" or array.dtype.name in ("int4", "uint4"):
        return True
    return bool(np.isfinite(array).all())
