"""Functions of one value in an ONNX graph, known by what they are along a line of values."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
from onnx import helper
from peergraph import Array, Graph, attribute

FOLDED: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Div": np.divide, "Exp": np.exp, "Expand": lambda x, s: x + np.zeros(s, x.dtype),
    "Identity": lambda x: x, "Max": np.maximum, "Min": np.minimum, "Mul": np.multiply,
    "Neg": np.negative, "Reciprocal": np.reciprocal, "Reshape": lambda x, s: x.reshape(s),
    "Sqrt": np.sqrt, "Sub": np.subtract,
}  # fmt: skip
LINE = np.linspace(-6, 6, 49, dtype=np.float32)  # where functions of one value are compared
SCALAR: dict[str, Callable[..., Any]] = FOLDED | {
    "Erf": np.vectorize(erf, otypes=[np.float32]), "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Pow": np.power,
    "Round": np.round, "IsNaN": np.isnan, "Where": np.where, "Clip": np.clip,
    "Relu": lambda x: np.maximum(x, 0),
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Equal": np.equal, "Not": np.logical_not, "Abs": np.abs,
    "Log": np.log, "Softplus": lambda x: np.log1p(np.exp(x)),
    "HardSigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),  # as `FUNCTIONS` writes it
}  # fmt: skip


def function(graph: Graph, node: Any) -> None:
    """A function of one value that is a known one wherever it is looked at."""
    depth = {"Mul": 3, "Div": 3, "Where": 12}.get(node.op_type)
    for leaf in leaves(graph, node, depth) if depth else ():
        found = line_of(graph, node.output[0], leaf, {})
        if found is None:
            continue
        for op, attributes, known in FUNCTIONS:
            if np.allclose(found, known(LINE), rtol=2e-4, atol=2e-6):
                graph.replace(node, helper.make_node(op, [leaf], list(node.output), **attributes))
                return


def leaky(graph: Graph, node: Any) -> None:
    """x, and below zero a share of it."""
    for leaf in leaves(graph, node) if node.op_type == "Where" else ():
        found = line_of(graph, node.output[0], leaf, {})
        if found is None or found.shape != LINE.shape:
            continue
        share = float(found[0] / LINE[0])
        if 0 < share < 1 and np.allclose(found, np.where(LINE < 0, share * LINE, LINE)):
            made = helper.make_node("LeakyRelu", [leaf], list(node.output), alpha=share)
            graph.replace(node, made)
            return


def leaves(graph: Graph, node: Any, depth: int = 2) -> list[str]:
    """Values up to so many steps above a node that it may be a function of."""
    found = [i for i in node.input if graph.number(i) is None]
    for i in list(found):
        above = graph.by_output.get(i)
        if depth and above is not None and above.op_type in (*SCALAR, "Cast", "Relu"):
            found += leaves(graph, above, depth - 1)
    return list(dict.fromkeys(found))


def line_of(graph: Graph, name: str, leaf: str, known: dict[str, Any], line: Array = LINE) -> Any:
    """The value where the leaf is this line, if it is a function of it and of numbers."""
    if name == leaf:
        return line
    if (number := graph.number(name)) is not None:
        return np.asarray(number, np.float32)
    if name not in known:
        known[name] = None
        node = graph.by_output.get(name)
        if node is None or node.op_type not in (*SCALAR, "Cast") or node.op_type == "Reshape":
            return None
        xs = [line_of(graph, i, leaf, known, line) for i in node.input]
        if all(x is not None for x in xs):
            if node.op_type == "Cast":  # beyond i8 only what is clipped before
                to = helper.tensor_dtype_to_np_dtype(attribute(node, "to"))
                known[name] = xs[0].astype(to)
            else:
                with np.errstate(all="ignore"):
                    known[name] = SCALAR[node.op_type](*xs)
    return known[name]


FUNCTIONS: tuple[tuple[str, dict[str, Any], Callable[..., Any]], ...] = (
    ("Gelu", {"approximate": "none"},
     lambda x: 0.5 * x * (1 + SCALAR["Erf"](x / np.sqrt(np.float32(2))))),
    ("Gelu", {"approximate": "tanh"},
     lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ("Softplus", {}, SCALAR["Softplus"]),
    ("HardSwish", {}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, lambda x: np.clip(x + 3, 0, 6) / 6),
)  # fmt: skip
