"""ONNX models written by hand, as a person would export them; ops for what eqsat keeps whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from peergraph import Graph

OPSET, IR_VERSION = 21, 10
INT64 = onnx.TensorProto.INT64
Array = np.ndarray[Any, Any]


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
