"""Seeded mutants of ONNX models: broken where files are broken, in fields and in bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxcases
import onnxmodels
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnxmodels import FLOAT, INT64, Writer, value

Rng = random.Random
NUMBERS = (
    0, 1, -1, 2, 3, 7, 1000, 10**9, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**31), -(2**63),
)  # fmt: skip
SIZES = (0, 1, 2, 3, 17, 1000, 10**9, 2**40, 2**62, -1)
FLOATS = (0.0, -1.0, 1e38, -1e38, float("nan"), float("inf"), 1e-45)
WORDS = ("", "x", "NOTSET", "SAME_UPPER", "VALID", "nearest", "ij,jk->ik", "é" * 200, "constant")
# modules of ONNX's own node tests whose models are mutated, beside whole models
SUITE = (
    "add", "argmax", "averagepool", "batch_normalization", "cast", "clip", "concat",
    "constantofshape", "conv", "convtranspose", "cumsum", "depthtospace", "einsum", "expand",
    "flatten", "gather", "gathernd", "gemm", "if_", "layernormalization", "loop", "lstm", "matmul",
    "maxpool", "onehot", "pad", "pow", "qlinearmatmul", "quantizelinear", "rangeop", "reducesum",
    "reshape", "resize", "scan", "scatternd", "slice", "softmax", "split", "squeeze", "tile",
    "topk", "transpose", "trilu", "unsqueeze", "where",
)  # fmt: skip


# ---- what is mutated -----------------------------------------------------------------------------
def counted_loop(trips: int = 4) -> Any:
    """x f32[2, 3] → tanh, `trips` times; the results of all trips stacked, if they are few."""
    inner = Writer()
    y = inner.op("Tanh", "/body/Tanh", "carried")
    keep = inner.op("Identity", "/body/Identity", "go")
    given = [value("i", INT64), value("go", TensorProto.BOOL), value("carried", FLOAT, 2, 3)]
    per_trip = [value(y, FLOAT, 2, 3)] if trips < 100 else []
    made = [value(keep, TensorProto.BOOL), value(y, FLOAT, 2, 3), *per_trip]
    body = helper.make_graph(inner.nodes, "body", given, made)
    w = Writer()
    count = w.constant("trips", np.asarray(trips, np.int64))
    ys = w.op("Loop", "/Loop", count, "", "x", results=2, body=body)
    del w.nodes[-1].output[1 + len(per_trip) :]
    stacked = value(ys[1], FLOAT, trips, 2, 3)
    made = [value(ys[0], FLOAT, 2, 3), *([stacked] if trips < 100 else [])]
    return w.model([value("x", FLOAT, 2, 3)], made)


def nested(depth: int) -> Any:
    """An If in the branch of an If, and so on; only the innermost computes."""
    w = Writer()
    last = w.op("Relu", f"/{depth}/Relu", "x")
    other = helper.make_graph(w.nodes, "other", [], [value(last, FLOAT, 2)])
    graph = other
    for i in reversed(range(depth)):
        w = Writer()
        last = w.op("If", f"/{i}/If", "c", then_branch=graph, else_branch=other)
        graph = helper.make_graph(w.nodes, f"level{i}", [], [value(last, FLOAT, 2)])
    given = [value("x", FLOAT, 2), value("c", TensorProto.BOOL)]
    outer = helper.make_graph(list(graph.node), "main", given, [value(last, FLOAT, 2)])
    return helper.make_model(outer, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def image() -> Any:
    """A convolution, a pool, a product: what most classifiers are made of."""
    w = Writer()
    y = w.op(
        "Conv", "/Conv", "x", w.weight("conv.weight", 4, 3, 3, 3), pads=[1] * 4, strides=[1, 1],
        dilations=[1, 1], group=1, kernel_shape=[3, 3],
    )  # fmt: skip
    y = w.op("Relu", "/Relu", y)
    y = w.op("MaxPool", "/MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = w.op("Reshape", "/Reshape", y, w.whole("flat", 1, -1))
    y = w.op("Gemm", "/Gemm", y, w.weight("fc.weight", 10, 64), transB=1)
    y = w.op("Softmax", "/Softmax", y, axis=-1)
    return w.model([value("x", FLOAT, 1, 3, 8, 8)], [value(y, FLOAT, 1, 10)])


def fixed(model: Any, **sizes: int) -> Any:
    """The model with these sizes in place of the open dims of its inputs."""
    for v in model.graph.input:
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param in sizes:
                d.dim_value = sizes[d.dim_param]
    return model


WHOLE: dict[str, Callable[[], Any]] = {
    "loop": counted_loop,
    "long loop": lambda: counted_loop(2**62),
    "nested": lambda: nested(3),
    "image": image,
    "encoder": lambda: fixed(onnxmodels.encoder(1, 16, 2, 20, 8), batch=1, sequence=4),
    "quantised": lambda: onnxmodels.qdq_block(4, 6),
}


@cache
def originals() -> list[Any]:
    """Small models of many kinds, in a fixed order; whole ones as often as those of the suite."""
    found = [make() for make in WHOLE.values()]
    cases = onnxcases.cases_of(*SUITE)
    for name in sorted(cases):
        case = cases[name]
        small = case.model is not None and case.data_sets and case.model.ByteSize() < 20_000
        if not small or not _is_tensor_case(case):
            continue
        inputs = case.data_sets[0][0]
        for constants in dict.fromkeys((0, max(len(inputs) - 1, 0))):
            found.append(onnxcases.with_constants(case.model, inputs, constants))
    return found


def _is_tensor_case(case: Any) -> bool:
    return all(v.type.HasField("tensor_type") for v in case.model.graph.input)


def mutant_of(seed: int) -> bytes:
    """The bytes of one broken model; the same for the same seed and version of onnx."""
    rng = random.Random(seed)
    whole = len(WHOLE)
    found = originals()
    model = onnx.ModelProto()
    at = rng.randrange(whole) if rng.random() < 0.4 else rng.randrange(whole, len(found))
    model.CopyFrom(found[at])
    if rng.random() < 0.03:
        model = nested(rng.choice((10, 20, 28)))
    for _ in range(rng.choice((1, 1, 1, 2))):
        rng.choice(CHANGES)(rng, model)
    data = model.SerializeToString()
    return broken_bytes(rng, data) if rng.random() < 0.06 else data


def broken_bytes(rng: Rng, data: bytes) -> bytes:
    """A byte changed, or the end cut off."""
    if not data or rng.random() < 0.5:
        return data[: rng.randrange(len(data) + 1)]
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


# ---- one change each -----------------------------------------------------------------------------
def graphs(model: Any) -> list[Any]:
    """The main graph and those inside of nodes."""
    found = []
    waiting = [model.graph]
    while waiting:
        g = waiting.pop(0)
        found.append(g)
        waiting += [a.g for n in g.node for a in n.attribute if a.type == AttributeProto.GRAPH]
    return found


def _nodes(model: Any) -> list[Any]:
    return [n for g in graphs(model) for n in g.node]


def _tensors(model: Any) -> list[Any]:
    """Initializers, and tensors among attributes."""
    found = [t for g in graphs(model) for t in g.initializer]
    return found + [a.t for n in _nodes(model) for a in n.attribute if a.HasField("t")]


def _values(model: Any) -> list[Any]:
    return [v for g in graphs(model) for v in (*g.input, *g.output)]


def _names(model: Any) -> list[str]:
    names = [v.name for v in _values(model)] + [t.name for t in _tensors(model)]
    return sorted({*names, *(o for n in _nodes(model) for o in n.output)})


def change_attribute(rng: Rng, model: Any) -> None:
    """Another number, text or list; another name; taken away; there twice; of another kind."""
    nodes = [n for n in _nodes(model) if n.attribute]
    if not nodes:
        return add_attribute(rng, model)
    node = rng.choice(nodes)
    a = rng.choice(node.attribute)
    kind = rng.randrange(8)
    if kind == 0:
        node.attribute.remove(a)
    elif kind == 1:
        node.attribute.append(a)
    elif kind == 2:
        a.name = rng.choice(("axis", "perm", "zz", "to", a.name.upper()))
    elif kind == 3:
        a.type = rng.randrange(16) if rng.random() < 0.5 else AttributeProto.INT
    else:
        _other_value(rng, a)
    return None


def _other_value(rng: Rng, a: Any) -> None:
    match a.type:
        case AttributeProto.INT:
            a.i = rng.choice(NUMBERS)
        case AttributeProto.FLOAT:
            a.f = rng.choice(FLOATS)
        case AttributeProto.STRING:
            a.s = rng.choice(WORDS).encode() if rng.random() < 0.8 else b"\xff\xfe"
        case AttributeProto.INTS:
            _other_list(rng, a.ints, NUMBERS)
        case AttributeProto.FLOATS:
            _other_list(rng, a.floats, FLOATS)


def _other_list(rng: Rng, held: Any, pool: Any) -> None:
    kind = rng.randrange(4)
    if kind == 0 and len(held):
        del held[rng.randrange(len(held))]
    elif kind == 1:
        held.append(rng.choice(pool))
    elif len(held):
        held[rng.randrange(len(held))] = rng.choice(pool)


def add_attribute(rng: Rng, model: Any) -> None:
    if nodes := _nodes(model):
        held: Any = rng.choice((1, -1, 2**62, [0, 1], [-5], 0.5, "text"))
        name = rng.choice(("axis", "perm", "group", "to", "keepdims", "axes", "mode", "dtype"))
        rng.choice(nodes).attribute.append(helper.make_attribute(name, held))


def change_dim(rng: Rng, model: Any) -> None:
    """A size of an input or a result: none, huge, negative, open; a dim more or less."""
    held = [v for v in _values(model) if v.type.HasField("tensor_type")]
    if not held:
        return
    shape = rng.choice(held).type.tensor_type.shape
    kind = rng.randrange(6)
    if kind == 0:
        shape.dim.add().dim_value = rng.choice(SIZES)
    elif kind == 1 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif kind == 2 and shape.dim:
        rng.choice(shape.dim).dim_param = rng.choice(("n", "", "batch"))
    elif kind == 3:
        for d in shape.dim:
            d.dim_value = 10**9
    elif shape.dim:
        rng.choice(shape.dim).dim_value = rng.choice(SIZES)


def change_type(rng: Rng, model: Any) -> None:
    """An element type of a value, of all values, or of a tensor."""
    number = rng.randrange(30)
    if rng.random() < 0.5:
        for v in _values(model):
            if v.type.HasField("tensor_type") and rng.random() < 0.7:
                v.type.tensor_type.elem_type = number
    elif tensors := _tensors(model):
        rng.choice(tensors).data_type = number


def change_name(rng: Rng, model: Any) -> None:
    """A node reads something else: nothing, what comes later, what nobody makes."""
    nodes = [n for n in _nodes(model) if n.input or n.output]
    if not nodes:
        return
    node = rng.choice(nodes)
    side = node.input if node.input and rng.random() < 0.75 else node.output
    if side:
        pool = [*_names(model), "", "nobody"]
        side[rng.randrange(len(side))] = rng.choice(pool)


def change_operands(rng: Rng, model: Any) -> None:
    """An operand more, one less, or two exchanged."""
    nodes = [n for n in _nodes(model) if n.input]
    if not nodes:
        return
    node, kind = rng.choice(nodes), rng.randrange(3)
    if kind == 0:
        node.input.append(rng.choice(_names(model)))
    elif kind == 1:
        del node.input[rng.randrange(len(node.input))]
    else:
        held = list(node.input)
        rng.shuffle(held)
        del node.input[:]
        node.input.extend(held)


def change_operator(rng: Rng, model: Any) -> None:
    pool = (
        "MatMul", "Add", "Reshape", "Transpose", "Loop", "Softmax", "Conv", "Concat", "Nope",
        "Tile", "Expand", "Range", "NonZero", "ReduceSum", "Gather", "Pad", "OneHot",
    )  # fmt: skip
    if nodes := _nodes(model):
        node = rng.choice(nodes)
        node.op_type = rng.choice(pool)
        if rng.random() < 0.1:
            node.domain = rng.choice(("ai.onnx", "com.microsoft", "x"))


def change_order(rng: Rng, model: Any) -> None:
    """Nodes taken away, there twice, or in another order."""
    graph = rng.choice(graphs(model))
    if not graph.node:
        return
    kind = rng.randrange(3)
    node = rng.choice(graph.node)
    if kind == 0:
        graph.node.remove(node)
    elif kind == 1:
        graph.node.append(node)
    else:
        held = list(graph.node)
        rng.shuffle(held)
        del graph.node[:]
        graph.node.extend(held)


def change_tensor(rng: Rng, model: Any) -> None:
    """Data cut off, dims that do not fit, other values: huge, negative, none."""
    tensors = _tensors(model)
    if not tensors:
        return
    t, kind = rng.choice(tensors), rng.randrange(5)
    if kind == 0 and t.raw_data:
        t.raw_data = t.raw_data[: rng.randrange(len(t.raw_data))]
    elif kind == 1 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(SIZES)
    elif kind == 2:
        t.dims.append(rng.choice(SIZES))
    else:
        _other_numbers(rng, t)


def _other_numbers(rng: Rng, t: Any) -> None:
    """Integers are mostly shapes, axes and counts of trips, so they get the odd numbers."""
    try:
        array = numpy_helper.to_array(t).copy()
    except Exception:
        return
    if not array.size or array.dtype.kind not in "if":
        return
    if array.dtype.kind == "i":
        limits = np.iinfo(array.dtype)
        fit = [n for n in NUMBERS if limits.min <= n <= limits.max]
        array.flat[rng.randrange(array.size)] = rng.choice(fit)
    else:
        array.flat[rng.randrange(array.size)] = rng.choice(FLOATS)
    t.CopyFrom(numpy_helper.from_array(array, t.name))


def change_opset(rng: Rng, model: Any) -> None:
    if model.opset_import:
        o = rng.choice(model.opset_import)
        o.version = rng.choice((0, 1, 7, 11, 13, 14, 17, 18, 19, 20, 21, 22, 23, 24, 25, 99, -1))
        if rng.random() < 0.1:
            o.domain = "x"


def change_results(rng: Rng, model: Any) -> None:
    """A result more, less, twice, or one that is an input."""
    graph, kind = rng.choice(graphs(model)), rng.randrange(3)
    if kind == 0 and graph.output:
        del graph.output[rng.randrange(len(graph.output))]
    elif kind == 1:
        made = graph.output.add()
        made.name = rng.choice(_names(model))
    elif graph.input:
        graph.output.add().CopyFrom(rng.choice(graph.input))


def grow(rng: Rng, model: Any) -> None:
    """Every size of every input and result that was the same number becomes another one."""
    dims = list(_dims(model))
    sizes = sorted({d.dim_value for d in dims if d.dim_value})
    if not sizes:
        return
    old, new = rng.choice(sizes), rng.choice((0, 1, 5, 100_000, 10**9))
    for d in dims:
        if d.dim_value == old:
            d.dim_value = new


def _dims(model: Any) -> Iterator[Any]:
    for v in _values(model):
        yield from v.type.tensor_type.shape.dim


CHANGES: tuple[Callable[[Rng, Any], None], ...] = (
    change_attribute, change_attribute, change_attribute, add_attribute, change_dim, change_dim,
    change_type, change_name, change_operands, change_operator, change_order, change_tensor,
    change_tensor, change_opset, change_results, grow, grow,
)  # fmt: skip
