"""An ONNX graph as plain data; methods add nodes and know the types of what they make.

Movement that would move nothing adds no node. Shapes are static.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.export.plan import OpenShape
from eqsat.model.attr import Shape
from eqsat.model.tensor import NO_ZERO, NONE, TensorType, is_float
from eqsat.ops.meaning.programs import element_dtype

Array = np.ndarray[Any, Any]
PRODUCTS = ("MatMul", "Conv")


@dataclass(frozen=True)
class Value:
    """A tensor by its name in the graph."""

    name: str
    dtype: str
    shape: Shape

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class GraphNode:
    """One ONNX op; attributes are ints, floats, texts, tuples of ints or a `Subgraph`.

    An input "" is none.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Any], ...]
    origin: str  # what it was made for
    domain: str = ""
    precision: str = NONE  # that the program asks for; ONNX itself has none


@dataclass(frozen=True)
class Subgraph:
    """A graph inside of an op; its nodes may read the values around it.

    open_shapes: of the outputs, where other branches have other sizes.
    """

    nodes: tuple[GraphNode, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    open_shapes: tuple[OpenShape, ...] = ()


class Graph:
    """Nodes in order, and constants by name."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix  # of all names that are made here
        self.nodes: list[GraphNode] = []
        self.constants: dict[str, tuple[Array, TensorType]] = {}
        self.undefined: list[Value] = []  # results of ops of the domain `eqsat`
        self.origin = ""  # of the nodes that are added from now on
        self.precision = NONE  # of the products among them
        self._constant_values: dict[tuple[str, Shape, bytes], Value] = {}
        self._cached: dict[Any, Value] = {}
        self._inside = 0  # graphs and arguments that were begun

    # ---- graphs inside of ops ------------------------------------------------------------------
    def inside(self) -> Graph:
        """A graph for an op of this one; constants of both are kept in one place."""
        self._inside += 1
        graph = Graph(f"{self.prefix}g{self._inside}.")
        graph.constants, graph._constant_values = self.constants, self._constant_values
        return graph

    def given(self, t: TensorType) -> Value:
        """One more argument of a graph inside of an op."""
        self._inside += 1
        return Value(f"{self.prefix}x{self._inside}", t.dtype, t.shape)

    def closed(self, inputs: Sequence[Value], results: Sequence[Value]) -> Subgraph:
        """The finished graph; each result has a node of its own, as runtimes want it."""
        outputs = [self.rename(v, f"{self.prefix}r{n}") for n, v in enumerate(results)]
        return Subgraph(tuple(self.nodes), tuple(inputs), tuple(outputs))

    # ---- nodes ---------------------------------------------------------------------------------
    def add(
        self, op: str, inputs: Sequence[Value], dtype: str, shape: Shape, **attrs: Any
    ) -> Value:
        """A node with one output of this type; the value of an equal node if there is one."""
        names = tuple(v.name for v in inputs)
        precision = self.precision if op in PRODUCTS else NONE
        key = (op, names, tuple(sorted(attrs.items())), precision)
        if key not in self._cached:
            value = Value(f"{self.prefix}v{len(self.nodes)}", dtype, tuple(shape))
            self.nodes.append(
                GraphNode(op, names, (value.name,), key[2], self.origin, "", precision)
            )
            self._cached[key] = value
        return self._cached[key]

    def forget(self, count: int) -> None:
        """Take back all nodes after the first `count`."""
        gone = {name for n in self.nodes[count:] for name in n.outputs}
        del self.nodes[count:]
        self._cached = {k: v for k, v in self._cached.items() if v.name not in gone}

    def call(self, op: str, inputs: Sequence[Value], types: Sequence[TensorType]) -> list[Value]:
        """An op of the domain `eqsat`, for what ONNX has no op for."""
        results = self.several(op, inputs, types, {}, "eqsat")
        self.undefined += results
        return results

    def several(
        self, op: str, inputs: Sequence[Value | None], types: Sequence[TensorType],
        attrs: Mapping[str, Any], domain: str = "",
    ) -> list[Value]:  # fmt: skip
        """A node with an output of each of these types; an input None is left out."""
        first = f"{self.prefix}v{len(self.nodes)}"
        outputs = [Value(f"{first}.{i}", t.dtype, t.shape) for i, t in enumerate(types)]
        names = tuple(v.name if v else "" for v in inputs), tuple(v.name for v in outputs)
        self.nodes.append(GraphNode(op, *names, tuple(attrs.items()), self.origin, domain))
        return outputs

    def rename(self, v: Value, name: str) -> Value:
        """An identity: the value under another name."""
        self.nodes.append(GraphNode("Identity", (v.name,), (name,), (), self.origin))
        return Value(name, v.dtype, v.shape)

    # ---- constants -----------------------------------------------------------------------------
    def constant(self, array: Any, dtype: str, name: str = "") -> Value:
        """Values that are part of the model; equal ones without a name are kept once."""
        held = np.ascontiguousarray(np.asarray(array).astype(element_dtype(dtype)))
        shape = np.shape(array)
        key = (dtype, shape, held.tobytes()) if not name else (name, shape, b"")
        if key not in self._constant_values:
            value = Value(name or f"c{len(self._constant_values)}", dtype, shape)
            self.constants[value.name] = held.reshape(shape), value.type
            self._constant_values[key] = value
        return self._constant_values[key]

    def ints(self, values: Sequence[int]) -> Value:
        """A list of numbers, as the shapes and axes of ops are given."""
        return self.constant(np.array(values, np.int64), "i64")

    def scalar(self, value: bool | int | float, dtype: str) -> Value:
        return self.constant(np.array(value), dtype)

    # ---- types and movement --------------------------------------------------------------------
    def cast(self, v: Value, dtype: str) -> Value:
        """ONNX's Cast: integers wrap; floats must fit."""
        if v.dtype == dtype:
            return v
        nearest = {"round_mode": "nearest", "saturate": 0} if dtype in NO_ZERO else {}
        return self.add("Cast", [v], dtype, v.shape, to=dtype, **nearest)

    def reshape(self, v: Value, shape: Sequence[int]) -> Value:
        """The elements in order, in another shape."""
        if tuple(shape) == v.shape:
            return v
        zeros = {"allowzero": 1} if 0 in shape else {}
        return self.add("Reshape", [v, self.ints(shape)], v.dtype, tuple(shape), **zeros)

    def transpose(self, v: Value, perm: Sequence[int]) -> Value:
        """Result dim i reads dim perm[i]; where only extents of 1 move it is a reshape."""
        shape = tuple(v.shape[p] for p in perm)
        large = [p for p in perm if v.shape[p] != 1]
        if large == sorted(large):
            return self.reshape(v, shape)
        return self.add("Transpose", [v], v.dtype, shape, perm=tuple(perm))

    def slice(
        self, v: Value, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
    ) -> Value:
        """v[start:stop:step] per dim; with a negative step, `stop` may be -1 for "to the end"."""
        extents = [max(0, -(-(b - a) // k)) for a, b, k in zip(start, stop, step, strict=True)]
        if tuple(extents) == v.shape and all(k > 0 for k in step):
            return v
        axes = [
            d
            for d, (a, b, k) in enumerate(zip(start, stop, step, strict=True))
            if (a, b, k) != (0, v.shape[d], 1)
        ]
        ends = [stop[d] if stop[d] >= 0 else -(2**31) for d in axes]
        lists = [[start[d] for d in axes], ends, axes, [step[d] for d in axes]]
        return self.add("Slice", [v, *map(self.ints, lists)], v.dtype, tuple(extents))

    def pad(self, v: Value, low: Sequence[int], high: Sequence[int], value: Any) -> Value:
        """v with `value` around it."""
        if not any((*low, *high)):
            return v
        if v.dtype in PLAIN:
            return self._pad(v, low, high, value)
        wide = "f32" if is_float(v.dtype) else "i32"
        return self.cast(self._pad(self.cast(v, wide), low, high, value), v.dtype)

    def _pad(self, v: Value, low: Sequence[int], high: Sequence[int], value: Any) -> Value:
        shape = tuple(a + s + b for a, s, b in zip(low, v.shape, high, strict=True))
        amounts = self.ints([*low, *high])
        return self.add("Pad", [v, amounts, self.scalar(value, v.dtype)], v.dtype, shape)

    def expand(self, v: Value, shape: Sequence[int]) -> Value:
        """v repeated along dims of extent 1, or in front."""
        if tuple(shape) == v.shape:
            return v
        if v.dtype not in PLAIN:
            wide = self.cast(v, "f32" if is_float(v.dtype) else "i32")
            return self.cast(self.expand(wide, shape), v.dtype)
        return self.add("Expand", [v, self.ints(shape)], v.dtype, tuple(shape))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Values one after another along a dim."""
        first = values[0]
        total = sum(v.shape[axis] for v in values)
        shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
        return self.add("Concat", values, first.dtype, shape, axis=axis)

    def gather(self, v: Value, indices: Value, axis: int) -> Value:
        """v at indices that are in range, along a dim."""
        shape = (*v.shape[:axis], *indices.shape, *v.shape[axis + 1 :])
        return self.add("Gather", [v, indices], v.dtype, shape, axis=axis)

    def reduce(self, op: str, v: Value, axes: Sequence[int]) -> Value:
        """ReduceSum, ReduceMax … over these dims, which go."""
        if not axes:
            return v
        shape = tuple(s for d, s in enumerate(v.shape) if d not in axes)
        return self.add(op, [v, self.ints(axes)], v.dtype, shape, keepdims=0)

    def broadcast(self, op: str, *args: Value, dtype: str = "") -> Value:
        """An elementwise op of values that broadcast against one another."""
        shape = np.broadcast_shapes(*(a.shape for a in args))
        return self.add(op, args, dtype or args[-1].dtype, shape)


# element types that runtimes pad and repeat; others go through a wider one
PLAIN = frozenset({"f32", "f64", "i32", "i64", "i8", "u8", "u32", "u64", "bool"})


def extent(shape: Sequence[int]) -> int:
    """Number of elements."""
    return math.prod(shape)
