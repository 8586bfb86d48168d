"""Attributes of ops that move elements and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from eqsat.model.attr import (
    Attr,
    Shape,
    check_operands,
    check_order,
    listed,
    require,
)
from eqsat.model.tensor import TensorType, cdiv


@dataclass(frozen=True, eq=True)
class Transpose(Attr):
    """Result dim i reads source dim perm[i] (as MLIR's `linalg.transpose`).

    Its loops are the result's dims; a chosen one may execute them in another `order`, such as that
    of the source, and writes permuted then (see `Generic`).
    """

    kind: ClassVar[str] = "transpose"
    ops: ClassVar[Mapping[str, str]] = {"transpose": "conversion"}
    source: Shape
    perm: tuple[int, ...]
    order: tuple[int, ...] = ()
    __hash__ = Attr.__hash__

    @property
    def result_shape(self) -> Shape:
        return tuple(self.source[p] for p in self.perm)

    @property
    def moves(self) -> bool:
        """Whether elements come in another order: dims of extent 1 may be anywhere."""
        large = [p for p in self.perm if self.source[p] != 1]
        return large != sorted(large)

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        check_operands("transpose", (self.source,), operands)
        require(
            sorted(self.perm) == list(range(len(self.source))),
            f"{list(self.perm)} is not a permutation of {len(self.source)} dims",
        )
        check_order(self.order, len(self.perm))
        return (operands[0].with_shape(self.result_shape),)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return (self.source,)

    def value_shape(self, op: str) -> Shape:
        return self.result_shape

    def text(self, op: str) -> str:
        order = f", order={listed(self.order)}" if self.order else ""
        return f"perm={listed(self.perm)}{order}"

    def to_json(self) -> Any:
        """`order` is written where there is one."""
        data = super().to_json()
        return data if self.order else {k: v for k, v in data.items() if k != "order"}


@dataclass(frozen=True, eq=True)
class Reshape(Attr):
    """Row-major collapse and expand; the element order stays."""

    kind: ClassVar[str] = "reshape"
    ops: ClassVar[Mapping[str, str]] = {"reshape": "view"}
    source: Shape
    shape: Shape
    __hash__ = Attr.__hash__

    @property
    def result_shape(self) -> Shape:
        return self.shape

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        check_operands("reshape", (self.source,), operands)
        require(
            math.prod(self.source) == math.prod(self.shape),
            f"cannot reshape {list(self.source)} to {list(self.shape)}: sizes differ",
        )
        return (operands[0].with_shape(self.shape),)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return (self.source,)

    def value_shape(self, op: str) -> Shape:
        return self.shape

    def text(self, op: str) -> str:
        return f"shape={listed(self.shape)}"


@dataclass(frozen=True, eq=True)
class Move(Attr):
    """`pad`, `slice`, `concat` and `gather`: movement that is not a permutation.

    args by op: pad (low, high, value text); slice (start, limit, stride); concat (axis,);
    gather (axis,) with operands (x, indices): result replaces dim `axis` by the index dims.
    """

    kind: ClassVar[str] = "move"
    ops: ClassVar[Mapping[str, str]] = dict.fromkeys(("pad", "slice", "concat", "gather"), "move")
    op: str
    sources: tuple[Shape, ...]
    args: tuple[Any, ...]
    shape: Shape
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(op == self.op, f"`{self.op}` attribute on `{op}`")
        check_operands(op, self.sources, operands)
        want = _MOVE_SHAPES[op](self.sources, self.args)
        require(want == self.shape, f"`{op}` gives {list(want)}, not {list(self.shape)}")
        if op == "concat":
            require(len({t.dtype for t in operands}) == 1, _UNLIKE)
        return (operands[0].with_shape(self.shape),)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return self.sources

    def value_shape(self, op: str) -> Shape:
        return self.shape

    def typed_operands(self, op: str, dtype: str) -> tuple[TensorType, ...]:
        types = super().typed_operands(op, dtype)
        return types if op != "gather" else (types[0], TensorType("i32", self.sources[1]))

    def padding(self) -> tuple[str, ...]:
        return (str(self.args[2]),) if self.op == "pad" else ()

    def field(self, key: str) -> Any:
        return self.args[MOVE_FIELDS[self.op].index(key)]

    def text(self, op: str) -> str:
        pairs = zip(MOVE_FIELDS[self.op], self.args, strict=True)
        return ", ".join(f"{k}={listed(v) if isinstance(v, tuple) else v}" for k, v in pairs)


def move_of(op: str, sources: Sequence[Shape], *args: Any) -> Move:
    """A move of operands of these shapes; ShapeError if they do not fit."""
    return Move(op, tuple(sources), args, _MOVE_SHAPES[op](tuple(sources), args))


def make_move(op: str, sources: Sequence[Shape], given: Mapping[str, Any]) -> Move:
    """`move_of`, with the arguments by name."""
    return move_of(op, sources, *(given[k] for k in MOVE_FIELDS[op]))


_UNLIKE = "`concat` wants tensors of one rank and element type"


def _per_dim(shape: Shape, **fields: Sequence[int]) -> None:
    for key, values in fields.items():
        require(len(values) == len(shape), f"`{key}` has one entry per dim of {list(shape)}")


def _pad_shape(sources: tuple[Shape, ...], args: tuple[Any, ...]) -> Shape:
    (source,), (low, high, _) = sources, args
    _per_dim(source, low=low, high=high)
    require(all(v >= 0 for v in (*low, *high)), "`pad` amounts are not negative")
    return tuple(s + a + b for s, a, b in zip(source, low, high, strict=True))


def _slice_shape(sources: tuple[Shape, ...], args: tuple[Any, ...]) -> Shape:
    (source,), (start, limit, stride) = sources, args
    _per_dim(source, start=start, limit=limit, stride=stride)
    require(all(k >= 1 for k in stride), "a stride is at least 1")
    for s, a, b, k in zip(source, start, limit, stride, strict=True):
        require(0 <= a <= b <= s, f"`slice` {a}:{b}:{k} is outside a dim of size {s}")
    return tuple(cdiv(b - a, k) for a, b, k in zip(start, limit, stride, strict=True))


def _check_axis(axis: int, shape: Shape) -> None:
    require(0 <= axis < len(shape), f"`axis` is one of 0 … {len(shape) - 1}")


def _concat_shape(sources: tuple[Shape, ...], args: tuple[Any, ...]) -> Shape:
    (axis,) = args
    require(len({len(s) for s in sources}) == 1, _UNLIKE)
    first = sources[0]
    _check_axis(axis, first)
    for s in sources:
        same = [a == b for d, (a, b) in enumerate(zip(s, first, strict=True)) if d != axis]
        require(all(same), f"`concat` of {list(first)} and {list(s)} along {axis}")
    return (*first[:axis], sum(s[axis] for s in sources), *first[axis + 1 :])


def _gather_shape(sources: tuple[Shape, ...], args: tuple[Any, ...]) -> Shape:
    (source, indices), (axis,) = sources, args
    _check_axis(axis, source)
    return (*source[:axis], *indices, *source[axis + 1 :])


_MOVE_SHAPES: dict[str, Callable[[tuple[Shape, ...], tuple[Any, ...]], Shape]] = {
    "pad": _pad_shape,
    "slice": _slice_shape,
    "concat": _concat_shape,
    "gather": _gather_shape,
}
# fields of a move in the order of its `args`
MOVE_FIELDS: dict[str, tuple[str, ...]] = {
    "pad": ("low", "high", "value"),
    "slice": ("start", "limit", "stride"),
    "concat": ("axis",),
    "gather": ("axis",),
}
