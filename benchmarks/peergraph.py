"""ONNX graphs that steps rewrite, and models written by hand, as a person would export them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET, IR_VERSION = 21, 10
INT64 = onnx.TensorProto.INT64
Array = np.ndarray[Any, Any]


class Graph:
    """Nodes by what they give, constants, and shapes."""

    def __init__(self, model: Any):
        self.source = model
        self.nodes: list[Any] = list(model.graph.node)
        self.by_output = {n.output[0]: n for n in self.nodes}
        self.constants = {t.name: t for t in model.graph.initializer}
        self.values: dict[str, Array] = {}
        self.readers = Counter(i for n in self.nodes for i in read_by(n))
        self.floats: set[str] = set()  # values of f32
        self.filters: set[str] = set()  # matrices that were filters of 1x1
        # constants that are integers times scales, both of the constant's shape
        self.integers: dict[str, tuple[Array, Array]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {
            k: tuple(t.dims) for k, t in self.constants.items()
        }
        inferred = onnx.shape_inference.infer_shapes(without_data(model)).graph
        for v in (*inferred.value_info, *inferred.input, *inferred.output):
            self.shapes[v.name] = tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
            if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                self.floats.add(v.name)

    def value(self, name: str) -> Any:
        """The array of a constant, else None."""
        if name not in self.values and name in self.constants:
            self.values[name] = numpy_helper.to_array(self.constants[name])
        return self.values.get(name)

    def number(self, name: str) -> float | None:
        """The one element of a constant, else None."""
        found = self.value(name) if prod(self.shapes.get(name, (0,))) == 1 else None
        return None if found is None else float(found.reshape(()))

    def numbers(self, name: str) -> list[int]:
        found = self.value(name)
        return [] if found is None else [int(v) for v in found.reshape(-1)]

    def made_by(self, name: str, op: str) -> Any:
        """The node of this op that gives a value, behind reshapes that only add or drop ones."""
        while (n := self.by_output.get(name)) is not None and n.op_type == "Reshape" != op:
            if [d for d in self.shapes[name] if d != 1] != [
                d for d in self.shapes[n.input[0]] if d != 1
            ]:
                return None
            name = n.input[0]
        return n if n is not None and n.op_type == op else None

    def add_constant(self, array: Array) -> str:
        name = f"raised{len(self.values)}_{len(self.nodes)}"
        self.values[name], self.shapes[name] = array, array.shape
        return name

    def add_moved(self, source: str, move: Callable[[Array], Array]) -> str:
        """A constant whose elements are brought into another order or shape."""
        name = self.add_constant(np.ascontiguousarray(move(self.value(source))))
        if source in self.integers:
            whole, scales = self.integers[source]
            self.integers[name] = move(whole), move(scales)
        return name

    def replace(self, node: Any, *made: Any) -> None:
        """Other nodes in the place of this one; the last gives what it gave."""
        at = next(i for i, n in enumerate(self.nodes) if n is node)
        self.nodes[at : at + 1] = made
        self.by_output |= {n.output[0]: n for n in made}

    def fresh(self, shape: Sequence[int]) -> str:
        name = f"raised{len(self.shapes)}"
        self.shapes[name] = tuple(shape)
        return name

    def model(self) -> Any:
        """The model without what nothing reads."""
        results = [o.name for o in self.source.graph.output]
        needed, kept = set(results), []
        for n in reversed(self.nodes):
            if needed & set(n.output):
                needed.update(read_by(n))
                kept.append(n)
        held = [
            self.constants[k] if k in self.constants else numpy_helper.from_array(self.values[k], k)
            for k in (self.constants | self.values)
            if k in needed
        ]
        found = onnx.ModelProto()
        found.CopyFrom(without_data(self.source))
        del found.graph.node[:], found.graph.initializer[:], found.graph.value_info[:]
        found.graph.node.extend(reversed(kept))
        found.graph.initializer.extend(held)
        return found


def read_by(node: Any) -> list[str]:
    """Names that a node reads, those that graphs inside of it read too."""
    inner = [i for a in node.attribute for n in a.g.node for i in read_by(n)]
    return [*node.input, *inner]


def without_data(model: Any) -> Any:
    """The same model with large constants known by their shapes, as further inputs."""
    found = onnx.ModelProto()
    held = model.graph.initializer
    small = [t for t in held if prod(t.dims) < 1024]
    large = [t for t in held if prod(t.dims) >= 1024]
    found.ir_version, found.producer_name = model.ir_version, model.producer_name
    found.opset_import.extend(model.opset_import)
    found.graph.name = model.graph.name
    found.graph.node.extend(model.graph.node)
    found.graph.initializer.extend(small)
    found.graph.input.extend(model.graph.input)
    found.graph.output.extend(model.graph.output)
    found.graph.value_info.extend(model.graph.value_info)
    for t in large:
        found.graph.value_info.append(
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        )
    return found


def attribute(node: Any, name: str, otherwise: Any = None) -> Any:
    found = [a for a in node.attribute if a.name == name]
    return helper.get_attribute_value(found[0]) if found else otherwise


# ---- by hand -------------------------------------------------------------------------------------
class Written:
    """Nodes and constants that are named as they come; arrays may stand for operands."""

    def __init__(self, prefix: str = "w"):
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __call__(self, op: str, *inputs: str | Array, **attrs: Any) -> str:
        """The first output of an op."""
        return self.several(op, 1, *inputs, **attrs)[0]

    def several(self, op: str, count: int, *inputs: str | Array, **attrs: Any) -> list[str]:
        names = [x if isinstance(x, str) else self._constant(x) for x in inputs]
        found = [f"{self.prefix}{len(self.nodes)}.{i}" for i in range(count)]
        self.nodes.append(helper.make_node(op, names, found, **attrs))
        return found

    def named(self, value: str, name: str) -> None:
        """The value under another name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def _constant(self, array: Array) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def model_of(
    write: Callable[..., Sequence[str]], inputs: Sequence[Array], weights: Sequence[Array],
    results: Sequence[Array],
) -> Any:  # fmt: skip
    """The model that `write(ops, names of the inputs, weights)` makes; results: of these types."""
    made = Written()
    names = [f"x{i}" for i in range(len(inputs))]
    for i, value in enumerate(write(made, names, weights)):
        made.named(value, f"result{i}")

    def info(name: str, x: Array) -> Any:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )

    graph = helper.make_graph(
        made.nodes, "natural", [info(n, x) for n, x in zip(names, inputs, strict=True)],
        [info(f"result{i}", x) for i, x in enumerate(results)], made.constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


# op of the domain `eqsat` → what writes it: (ops, names of its operands, their shapes) → results
Ops = Mapping[str, Callable[[Written, Sequence[str], Sequence[Sequence[int]]], Sequence[str]]]


def with_ops(model: Any, ops: Ops) -> Any:
    """The model with these ops in the place of those of the domain `eqsat`."""
    shapes = Graph(model).shapes
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:]
    for number, node in enumerate(model.graph.node):
        if node.domain != "eqsat" or node.op_type not in ops:
            found.graph.node.append(node)
            continue
        made = Written(f"said{number}.")
        values = ops[node.op_type](made, node.input, [shapes[i] for i in node.input])
        for value, name in zip(values, node.output, strict=True):
            made.named(value, name)
        found.graph.node.extend(made.nodes)
        found.graph.initializer.extend(made.constants)
    return found
