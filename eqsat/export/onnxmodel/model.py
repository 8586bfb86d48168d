"""A plan as an ONNX model: the only file of `export` that imports `onnx`.

Ops are a table, one line each; loops and branches are Scan, Loop and If.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from eqsat.export.onnxmodel.generics import write_generic
from eqsat.export.onnxmodel.graph import Graph, GraphNode, Subgraph, Value
from eqsat.export.plan import Exported, Group, Plan, SizedPlans, body_plan, little_endian
from eqsat.export.walk import PlanWriter, foreign_name
from eqsat.model.attr import Attr
from eqsat.model.control import COND, SCAN, Control, every_program
from eqsat.model.diag import fail
from eqsat.model.expr import read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move
from eqsat.model.program import Node
from eqsat.model.tensor import DEFAULT, DTYPES, NONE, TensorType


def _fill(graph: Graph, fill: Fill) -> Value:
    return graph.expand(graph.scalar(fill.value, fill.type.dtype), fill.type.shape)


def _same(graph: Graph, attr: Attr, x: Value) -> Value:
    """A requested layout, a copy to another device, or padding that is forgotten."""
    return x


def _pack(graph: Graph, layout: Layout, x: Value) -> Value:
    """Lanes that may hold anything hold zeros."""
    for d, tile, text in layout.padded_dims:
        missing = -layout.source[d] % tile
        high = [missing if axis == d else 0 for axis in range(len(x.shape))]
        value = 0 if text in ("-", "?") else read_literal(text)
        x = graph.pad(x, [0] * len(high), high, value)
    shape, order = layout.blocked(x.shape)
    return graph.transpose(graph.reshape(x, shape), order)


def _unpack(graph: Graph, layout: Layout, x: Value) -> Value:
    slots, padded = layout.unblocked(x.shape)
    whole = graph.reshape(graph.transpose(x, slots), padded)
    return graph.slice(whole, [0] * len(padded), layout.source, [1] * len(padded))


def _pad(graph: Graph, move: Move, x: Value) -> Value:
    low, high, text = move.args
    return graph.pad(x, low, high, read_literal(str(text)))


def _gather(graph: Graph, move: Move, x: Value, indices: Value) -> Value:
    """Indices are clipped into range."""
    (axis,) = move.args
    last = graph.scalar(max(0, x.shape[axis] - 1), "i64")
    below = graph.broadcast("Min", graph.cast(indices, "i64"), last)
    return graph.gather(x, graph.broadcast("Max", below, graph.scalar(0, "i64")), axis)


# op -> (graph, attribute, *operands) -> its results, or the only one; an op that is not here
# cannot be written
WRITERS: dict[str, Callable[..., Value | list[Value]]] = {
    "generic": lambda graph, g, *xs: write_generic(graph, g, xs),
    "fill": _fill,
    "transpose": lambda graph, t, x: graph.transpose(x, t.perm),
    "reshape": lambda graph, r, x: graph.reshape(x, r.shape),
    "pack": _pack,
    "unpack": _unpack,
    "retype": lambda graph, layout, x: _pack(graph, layout, _unpack(graph, layout, x)),
    "relax": _same,
    "pad": _pad,
    "slice": lambda graph, move, x: graph.slice(x, *move.args),
    "concat": lambda graph, move, *xs: graph.concat(xs, move.args[0]),
    "gather": _gather,
    "set_encoding": _same,
    "unset_encoding": _same,
    "transfer": _same,
}


# (graph, number of the body, its operands) → its results, written into the graph
Write = Callable[[Graph, int, Sequence[Value]], list[Value]]
_FLAG, _COUNT = TensorType("bool", ()), TensorType("i64", ())


def write_control(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """Write a loop or branch, and give its results; scratch, which nobody reads, has no name."""
    scratch = [Value("", t.dtype, t.shape) for t in attr.scratch_types]
    if not attr.result_types:
        return scratch
    form = {SCAN: _scan, COND: _cond}.get(attr.op, _while)
    return form(graph, attr, xs, write) + scratch


# ---- scan --------------------------------------------------------------------------------------
def _scan(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """A Scan; ONNX has none without a stacked operand, so that one is a Loop."""
    at = attr.consts + attr.carries
    consts, carries, stacked = xs[: attr.consts], xs[attr.consts : at], xs[at:]
    if attr.length == 0:
        empty = attr.result_types[attr.carries :]
        return [*carries, *(graph.expand(graph.scalar(0, t.dtype), t.shape) for t in empty)]
    if not stacked:
        return _counted(graph, attr, consts, carries, write)
    inner = graph.inside()
    state = [inner.given(v.type) for v in carries]
    slices = [inner.given(v.type.with_shape(v.shape[1:])) for v in stacked]
    body = inner.closed([*state, *slices], write(inner, 0, [*consts, *state, *slices]))
    outputs = len(attr.result_types) - attr.carries
    ways = {"scan_input_directions": len(stacked), "scan_output_directions": outputs}
    turned = {k: (1,) * n for k, n in ways.items() if attr.reverse and n}
    attrs = {"body": body, "num_scan_inputs": len(stacked)} | turned
    return graph.several("Scan", [*carries, *stacked], attr.result_types, attrs)


def _counted(
    graph: Graph, attr: Control, consts: Sequence[Value], carries: Sequence[Value], write: Write
) -> list[Value]:
    inner = graph.inside()
    number, going = inner.given(_COUNT), inner.given(_FLAG)
    state = [inner.given(v.type) for v in carries]
    next_state = write(inner, 0, [*consts, *state])
    body = inner.closed([number, going, *state], [going, *next_state])
    trips = graph.constant(np.array(attr.length), "i64")
    outputs = graph.several("Loop", [trips, None, *carries], attr.result_types, {"body": body})
    if not attr.reverse:
        return outputs
    return [*outputs[: attr.carries], *(_turned(graph, v) for v in outputs[attr.carries :])]


def _turned(graph: Graph, x: Value) -> Value:
    """The slices of a stack from the last one on."""
    length, *rest = x.shape
    steps = [-1, *(1 for _ in rest)]
    return graph.slice(x, [length - 1, *(0 for _ in rest)], [-1, *rest], steps)


# ---- while -------------------------------------------------------------------------------------
def _while(graph: Graph, attr: Control, xs: Sequence[Value], write: Write) -> list[Value]:
    """A Loop without a count; its condition is computed ahead of it, and in each step."""
    consts, carries = xs[: attr.consts], xs[attr.consts :]
    (first,) = write(graph, 0, xs)
    inner = graph.inside()
    number, before = inner.given(_COUNT), inner.given(_FLAG)
    state = [inner.given(v.type) for v in carries]
    after = write(inner, 1, [*consts, *state])
    going = write(inner, 0, [*consts, *after])
    body = inner.closed([number, before, *state], [*going, *after])
    return graph.several("Loop", [None, first, *carries], attr.result_types, {"body": body})


# ---- cond --------------------------------------------------------------------------------------
def _cond(
    graph: Graph, attr: Control, xs: Sequence[Value], write: Write, number: int = 0
) -> list[Value]:
    """An If per branch but the last; so an index that is too small or large is clipped."""
    index, *consts = xs
    if number + 1 == len(attr.bodies):
        return write(graph, number, consts)
    is_it = graph.broadcast("LessOrEqual", index, graph.scalar(number, "i32"), dtype="bool")
    this, rest = graph.inside(), graph.inside()
    branches = {
        "then_branch": this.closed([], write(this, number, consts)),
        "else_branch": rest.closed([], _cond(rest, attr, xs, write, number + 1)),
    }
    return graph.several("If", [is_it], attr.result_types, branches)


OPSET, IR_VERSION = 21, 10
LARGE = 1536 * 2**20  # bytes of constants in one file; protocol buffers end at 2 GiB
ALIGNMENT = 4096  # of a tensor in the file of external data, so that it can be mapped
OWN_FILE = 1024  # bytes of a tensor that is worth a place there

Array = np.ndarray[Any, Any]
_ELEMENTS = {
    "f64": "DOUBLE", "f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f8e4m3fn": "FLOAT8E4M3FN", "f8e5m2": "FLOAT8E5M2", "f8e4m3fnuz": "FLOAT8E4M3FNUZ",
    "f8e5m2fnuz": "FLOAT8E5M2FNUZ", "f8e8m0fnu": "FLOAT8E8M0",
    "f4e2m1fn": "FLOAT4E2M1", "i64": "INT64", "i32": "INT32", "i16": "INT16", "i8": "INT8",
    "i4": "INT4", "u64": "UINT64", "u32": "UINT32", "u16": "UINT16", "u8": "UINT8", "u4": "UINT4",
    "bool": "BOOL",
}  # fmt: skip
_NEWER = {"f4e2m1fn": (23, 11), "f8e8m0fnu": (24, 12)}  # the opset and IR that brought a type


def write_model(
    plan: Plan | SizedPlans, *, external: str = "", force_external: bool = False
) -> Exported:
    """The model. Ops it cannot say become ops of the domain `eqsat`, and are listed as missing.

    external: name of the file for constants, used where they are too many for one file, or with
    `force_external`. EqsatError E382 if `onnx` is not installed.
    """
    model = _Model(plan) if isinstance(plan, Plan) else _SizedModel(plan)
    model.write()
    total = sum(a.nbytes for a, _ in model.graph.constants.values())
    beside = _External(external) if external and (force_external or total > LARGE) else None
    data = model.serialized(beside)
    files = (("", data),) if beside is None else (("", data), (external, beside.content()))
    return Exported(files, model.ops, tuple(model.missing))


@dataclass
class _External:
    """Constants in a file of their own, each at an aligned place."""

    name: str
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def append(self, data: bytes) -> tuple[int, int]:
        """(offset, length) of the data."""
        gap = -self.size % ALIGNMENT
        self.parts += [b"\0" * gap, data]
        self.size += gap + len(data)
        return self.size - len(data), len(data)

    def content(self) -> bytes:
        return b"".join(self.parts)


class _Model(PlanWriter[Value]):
    writers = WRITERS
    lacks = "ONNX has no op that does this"

    def __init__(
        self, plan: Plan, graph: Graph | None = None, given: Sequence[Value] | None = None
    ):
        super().__init__(plan)
        self.graph = graph or Graph()
        self.given = given  # the arguments of a body; a model has its own
        self.names = self._free_names()
        self.ops = len(plan.order)
        self.named: list[Value] = []  # the results, by the names that the model gives them

    def write(self) -> None:
        """Fill the graph."""
        self.walk()
        self.graph.origin = "results"
        self.named = [self.graph.rename(v, f"result{n}") for n, v in enumerate(self.results)]

    def _free_names(self) -> dict[int, str]:
        """The plan's names, changed where the graph makes names of that form itself."""
        reserved = re.compile(r"(v\d+(\.\d+)?|c\d+|result\d+|g\d+\..*)\Z", re.DOTALL)
        return {i: f"{n}_" if reserved.match(n) else n for i, n in self.plan.names.items()}

    def argument(self, number: int, node: int) -> Value:
        if self.given is not None:
            return self.given[number]
        t = self.plan.program.nodes[node].types[0]
        return Value(self.names[node], t.dtype, t.shape)

    def constant(self, number: int, node: int, array: Array) -> Value:
        t = self.plan.program.nodes[node].types[0]
        name = self.names[node] if self.given is None else ""  # those of bodies may be equal
        return self.graph.constant(array, t.dtype, name)

    def begin(self, group: Group) -> None:
        """Nothing: every node says what group it is of."""

    def begin_node(self, i: int, node: Node, group: Group) -> int:
        self.graph.origin = (
            f"{group.title}: {self.plan.program.value_name(i)} {node.op}".removeprefix(": ")
        )
        self.graph.precision = node.attr.precision if isinstance(node.attr, Generic) else NONE
        return len(self.graph.nodes)

    def forget(self, before: int) -> None:
        self.graph.forget(before)

    def written(self, i: int, node: Node, xs: Sequence[Value]) -> list[Value]:
        if isinstance(node.attr, Control):
            result = write_control(self.graph, node.attr, xs, self._body_writer(node.attr))
        else:
            result = self.writer_of(node)(self.graph, node.attr, *xs)
        values = result if isinstance(result, list) else [result]
        assert [v.type for v in values] == list(node.types), (i, node.op, values, node.types)
        return values

    def _body_writer(self, attr: Control) -> Write:
        def write(graph: Graph, number: int, given: Sequence[Value]) -> list[Value]:
            body = _Model(body_plan(attr, number), graph, given)
            body.walk()
            self.missing += body.missing
            self.ops += body.ops
            return body.results

        return write

    def called(self, i: int, node: Node, xs: Sequence[Value]) -> list[Value]:
        return self.graph.call(foreign_name(node), list(xs), node.types)

    # ---- protocol buffers ----------------------------------------------------------------------
    def info(self, onnx: Any, v: Value, number: int, is_result: bool) -> Any:
        """The type of an argument or result of the model."""
        return _info(onnx, v)

    def serialized(self, external: _External | None) -> bytes:
        """The file; the same bytes every time."""
        onnx = _onnx()
        helper = onnx.helper
        program = self.plan.program
        inputs = [self.values[i][0] for i in self.plan.arguments]
        read = {name for n in _every(self.graph.nodes) for name in n.inputs}
        constants = [(k, *c) for k, c in self.graph.constants.items() if k in read]
        graph = helper.make_graph(
            [_proto(onnx, n, number) for number, n in enumerate(self.graph.nodes)],
            program.name or "program",
            [self.info(onnx, v, number, False) for number, v in enumerate(inputs)],
            [self.info(onnx, v, number, True) for number, v in enumerate(self.named)],
            [_tensor(onnx, *c, external) for c in constants],
            value_info=[_info(onnx, v) for v in self.graph.undefined],
        )
        used = {t.dtype for p in every_program(program) for n in p.nodes for t in n.types}
        newer = [_NEWER[t] for t in used if t in _NEWER]
        opset, ir_version = max([(OPSET, IR_VERSION), *newer])
        opsets = [helper.make_opsetid("", opset)]
        if any(n.domain for n in _every(self.graph.nodes)):
            opsets.append(helper.make_opsetid("eqsat", 1))
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=ir_version, producer_name="eqsat"
        )
        return model.SerializeToString(deterministic=True)


class _SizedModel(_Model):
    """An If for each size but the last; arguments have the names of the first plan.

    In a branch they are reshaped to what they are, which fails at a size that is none of these.
    """

    def __init__(self, sized: SizedPlans):
        super().__init__(sized.plans[0][1])
        self.sized = sized
        self.ops = 0

    def write(self) -> None:
        for number, i in enumerate(self.plan.arguments):
            self.values[i] = [self.argument(number, i)]
        number, dim = self.sized.place
        given = self.values[self.plan.arguments[number]][0]
        rank = TensorType("i64", (len(given.shape),))
        (shape,) = self.graph.several("Shape", [given], [rank], {})
        size = self.graph.gather(shape, self.graph.constant(np.array(dim), "i64"), 0)
        results = self._branch(self.graph, size, 0)
        self.named = [self.graph.rename(v, f"result{n}") for n, v in enumerate(results)]

    def _branch(self, graph: Graph, size: Value, number: int) -> list[Value]:
        """The results at the size of this number, or at one of those after it."""
        known, plan = self.sized.plans[number]
        if number + 1 == len(self.sized.plans):
            return self._of(graph, plan)
        is_it = graph.broadcast("Equal", size, graph.scalar(known, "i64"), dtype="bool")
        this, rest = graph.inside(), graph.inside()
        shapes = tuple(self.sized.result_shapes)
        branches = {
            "then_branch": replace(this.closed([], self._of(this, plan)), open_shapes=shapes),
            "else_branch": replace(
                rest.closed([], self._branch(rest, size, number + 1)), open_shapes=shapes
            ),
        }
        types = [plan.program.nodes[r].types[0] for r in plan.program.results]
        return graph.several("If", [is_it], types, branches)

    def _of(self, graph: Graph, plan: Plan) -> list[Value]:
        """The results of a plan."""
        given = []
        for number, i in enumerate(plan.arguments):
            v, t = self.values[self.plan.arguments[number]][0], plan.program.nodes[i].type
            is_open = None in self.sized.argument_shapes[number]
            shape = graph.ints(t.shape)
            given.append(graph.add("Reshape", [v, shape], t.dtype, t.shape) if is_open else v)
        body = _Model(plan, graph, given)
        body.walk()
        self.missing += body.missing
        self.ops += body.ops
        return body.results

    def info(self, onnx: Any, v: Value, number: int, is_result: bool) -> Any:
        shapes = self.sized.result_shapes if is_result else self.sized.argument_shapes
        name = "" if is_result else self.sized.symbol
        return _info(onnx, v, [name or None if d is None else d for d in shapes[number]])


def _every(nodes: Iterable[GraphNode]) -> Iterator[GraphNode]:
    """All nodes, those of graphs inside of ops too."""
    for n in nodes:
        yield n
        for _, value in n.attributes:
            if isinstance(value, Subgraph):
                yield from _every(value.nodes)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise fail(
            "E382", "writing ONNX needs the package `onnx`", help="pip install 'eqsat[onnx]'"
        ) from None
    return onnx


def _element(onnx: Any, dtype: str) -> int:
    if dtype not in _ELEMENTS:
        raise fail("E380", f"ONNX has no element type {dtype}", help="`--to mlir` writes it")
    return int(getattr(onnx.TensorProto, _ELEMENTS[dtype]))


def _info(onnx: Any, v: Value, dims: Sequence[int | str | None] | None = None) -> Any:
    """The type of a value, with these dims in place of its own."""
    shape = list(v.shape if dims is None else dims)
    return onnx.helper.make_tensor_value_info(v.name, _element(onnx, v.dtype), shape)


def _inner(onnx: Any, g: Subgraph, name: str) -> Any:
    return onnx.helper.make_graph(
        [_proto(onnx, n, number, f"{name}.") for number, n in enumerate(g.nodes)],
        name,
        [_info(onnx, v) for v in g.inputs],
        [_info(onnx, v, s) for v, s in zip_longest(g.outputs, g.open_shapes)],
    )


def _proto(onnx: Any, n: GraphNode, number: int, prefix: str = "") -> Any:
    name = f"{prefix}n{number}"
    attrs: dict[str, Any] = {k: list(v) if isinstance(v, tuple) else v for k, v in n.attributes}
    for key, value in n.attributes:
        if isinstance(value, Subgraph):
            attrs[key] = _inner(onnx, value, f"{name}.{key}")
    if n.op == "Cast":
        attrs["to"] = _element(onnx, attrs["to"])
    node = onnx.helper.make_node(n.op, n.inputs, n.outputs, name=name, domain=n.domain, **attrs)
    node.doc_string = n.origin
    if n.precision not in (NONE, DEFAULT):
        node.metadata_props.add(key="eqsat.precision", value=n.precision)
    return node


def _tensor(onnx: Any, name: str, array: Array, t: TensorType, external: _External | None) -> Any:
    tensor = onnx.TensorProto()
    tensor.name = name
    tensor.data_type = _element(onnx, t.dtype)
    tensor.dims.extend(t.shape)
    data = _nibbles(array) if DTYPES[t.dtype][0] == 4 else little_endian(array)
    if external is None or len(data) < OWN_FILE:
        tensor.raw_data = data
        return tensor
    offset, length = external.append(data)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", external.name), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _nibbles(array: Array) -> bytes:
    """Two elements of 4 bits per byte, the first in the low half."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & 15
    flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
    return (flat[0::2] | (flat[1::2] << 4)).tobytes()
