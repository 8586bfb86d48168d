"""Functions, softmax, norms and means in an ONNX graph, from the small ops that spell them.

A function of one value is known by what it is along a line of values.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, prod
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


# ---- norms ---------------------------------------------------------------------------------------
def softmax(graph: Graph, node: Any) -> None:
    """exp(x - max) over its sum."""
    if node.op_type != "Div":
        return
    e, total = graph.by_output.get(node.input[0]), graph.made_by(node.input[1], "ReduceSum")
    if e is None or total is None or e.op_type != "Exp" or total.input[0] != e.output[0]:
        return
    shifted = graph.by_output.get(e.input[0])
    if shifted is None or shifted.op_type != "Sub":
        return
    most = graph.made_by(shifted.input[1], "ReduceMax")
    axes = graph.numbers(total.input[1])
    if most is None or most.input[0] != shifted.input[0] or len(axes) != 1:
        return
    if graph.numbers(most.input[1]) != axes:
        return
    made = helper.make_node("Softmax", [shifted.input[0]], list(node.output), axis=axes[0])
    graph.replace(node, made)


def layer_norm(graph: Graph, node: Any) -> None:
    """(x - mean) / sqrt(variance + epsilon) over the last dim; scale and shift follow as ops."""
    pair = node.input if node.op_type == "Mul" else ()
    for root, centred in (pair, reversed(pair)) if len(pair) == 2 else ():
        inverse = graph.made_by(root, "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        x = _centred(graph, centred)
        if not moved or x is None:
            continue
        epsilon = graph.number(moved.input[1])
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "")
        if epsilon is None or square is None or square.op_type != "Mul":
            continue
        if set(square.input) != {centred}:
            continue
        ones = graph.add_constant(np.ones(graph.shapes[x][-1:], np.float32))
        made = helper.make_node(
            "LayerNormalization", [x, ones], list(node.output), axis=-1, epsilon=epsilon
        )
        graph.replace(node, made)
        return


def keras_norm(graph: Graph, node: Any) -> None:
    """The same as Keras spells it: x s + (shift - mean s), s the scale over the deviation."""
    if node.op_type != "Add":
        return
    for left, right in (node.input, reversed(node.input)):
        scaled, rest = graph.by_output.get(right), graph.by_output.get(left)
        if not scaled or scaled.op_type != "Mul" or not rest or rest.op_type != "Add":
            continue
        x, factor = scaled.input
        back, shift = graph.by_output.get(rest.input[0]), rest.input[1]
        scale = graph.by_output.get(factor)
        if not back or back.op_type != "Mul" or back.input[1] != factor or not scale:
            continue
        mean_of = graph.made_by(back.input[0], "Neg")
        inverse = graph.made_by(scale.input[0], "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        if not moved or not mean_of or _mean_of(graph, mean_of.input[0]) != x:
            continue
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "")
        known = graph.value(scale.input[1]), graph.value(shift), graph.number(moved.input[1])
        if any(v is None for v in known) or not square or square.op_type != "Mul":
            continue
        if _centred(graph, square.input[0]) != x or square.input[0] != square.input[1]:
            continue
        inputs, epsilon = [x, scale.input[1], shift], known[2]
        made = helper.make_node(
            "LayerNormalization", inputs, list(node.output), axis=-1, epsilon=epsilon
        )
        graph.replace(node, made)
        return


def scaled_norm(graph: Graph, node: Any) -> None:
    """A norm's scale and shift, as its own."""
    if node.op_type not in ("Mul", "Add"):
        return
    for x, other in (node.input, reversed(node.input)):
        norm = graph.by_output.get(x)
        if norm is None or norm.op_type != "LayerNormalization":
            continue
        given = graph.value(other)
        if given is None or given.shape != graph.shapes[x][-1:]:
            continue
        if node.op_type == "Mul" and len(norm.input) == 2:
            if not (graph.value(norm.input[1]) == 1).all():
                continue
            inputs = [norm.input[0], other]
        elif node.op_type == "Add" and len(norm.input) == 2:
            inputs = [*norm.input, other]
        else:
            continue
        kept = {a.name: helper.get_attribute_value(a) for a in norm.attribute}
        graph.replace(node, helper.make_node(norm.op_type, inputs, list(node.output), **kept))
        return


def _centred(graph: Graph, name: str) -> str | None:
    """x, if this is x less its mean over the last dim."""
    node = graph.by_output.get(name)
    if node is None or node.op_type != "Sub":
        return None
    return node.input[0] if _mean_of(graph, node.input[1]) == node.input[0] else None


def mean(graph: Graph, node: Any) -> None:
    """A sum over its number of terms."""
    total = graph.made_by(node.input[0], "ReduceSum") if node.op_type == "Div" else None
    if total is None:
        return
    shape, axes = graph.shapes[total.input[0]], graph.numbers(total.input[1])
    kept = tuple(1 if d in axes else s for d, s in enumerate(shape))
    dropped = tuple(s for d, s in enumerate(shape) if d not in axes)
    keep = {kept: 1, dropped: 0}.get(graph.shapes[node.output[0]])
    if keep is not None and graph.number(node.input[1]) == prod(shape[a] for a in axes):
        made = helper.make_node("ReduceMean", total.input, list(node.output), keepdims=keep)
        graph.replace(node, made)


def root_norm(graph: Graph, node: Any) -> None:
    """x over the root of its mean square over the last dim, in the ops that runtimes fuse."""
    for root, x in (node.input, reversed(node.input)) if node.op_type == "Mul" else ():
        inverse = graph.made_by(root, "Reciprocal")
        deviation = inverse and graph.made_by(inverse.input[0], "Sqrt")
        moved = deviation and graph.made_by(deviation.input[0], "Add")
        square = graph.by_output.get(_mean_of(graph, moved.input[0]) or "") if moved else None
        epsilon = graph.number(moved.input[1]) if moved else None
        if square is None or square.op_type != "Mul" or {*square.input} != {x} or epsilon is None:
            continue
        shape = graph.shapes[x]
        names = [graph.fresh(s) for s in (shape, *((*shape[:-1], 1),) * 3)]
        two, small = (graph.add_constant(np.array(v, np.float32)) for v in (2, epsilon))
        last = graph.add_constant(np.array([-1]))
        graph.replace(
            node,
            helper.make_node("Pow", [x, two], names[:1]),
            helper.make_node("ReduceMean", [names[0], last], names[1:2], keepdims=1),
            helper.make_node("Add", [names[1], small], names[2:3]),
            helper.make_node("Sqrt", [names[2]], names[3:4]),
            helper.make_node("Div", [x, names[3]], list(node.output)),
        )
        return


def _mean_of(graph: Graph, name: str) -> str | None:
    """x, if this is its mean over the last dim."""
    node = graph.made_by(name, "Div")
    total = node and graph.made_by(node.input[0], "ReduceSum")
    if not total:
        return None
    shape = graph.shapes[total.input[0]]
    is_last = graph.numbers(total.input[1]) == [len(shape) - 1]
    return total.input[0] if is_last and graph.number(node.input[1]) == shape[-1] else None
