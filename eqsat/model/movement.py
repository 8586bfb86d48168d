"""Attributes of ops that move elements and compute nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from eqsat.model.attr import Attr, Shape, check_operands, check_order, require
from eqsat.model.tensor import TensorType, cdiv


@dataclass(frozen=True, eq=True)
class Transpose(Attr):
    """Result dim i reads source dim perm[i] (as MLIR's `linalg.transpose`).

    Its loops are the result's dims; a chosen one may execute them in another `order`, such as that
    of the source, and writes permuted then (see `Generic`).
    """

    kind: ClassVar[str] = "transpose"
    source: Shape
    perm: tuple[int, ...]
    order: tuple[int, ...] = ()
    __hash__ = Attr.__hash__

    @property
    def result_shape(self) -> Shape:
        return tuple(self.source[p] for p in self.perm)

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        check_operands("transpose", (self.source,), operands)
        require(
            sorted(self.perm) == list(range(len(self.source))),
            f"{list(self.perm)} is not a permutation of {len(self.source)} dims",
        )
        check_order(self.order, len(self.perm))
        return (operands[0].with_shape(self.result_shape),)

    def to_json(self) -> Any:
        """`order` is written where there is one."""
        data = super().to_json()
        return data if self.order else {k: v for k, v in data.items() if k != "order"}


@dataclass(frozen=True, eq=True)
class Reshape(Attr):
    """Row-major collapse and expand; the element order stays."""

    kind: ClassVar[str] = "reshape"
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


@dataclass(frozen=True, eq=True)
class Move(Attr):
    """`pad`, `slice`, `concat` and `gather`: movement that is not a permutation.

    args by op: pad (low, high, value text); slice (start, limit, stride); concat (axis,);
    gather (axis,) with operands (x, indices): result replaces dim `axis` by the index dims.
    """

    kind: ClassVar[str] = "move"
    op: str
    sources: tuple[Shape, ...]
    args: tuple[Any, ...]
    shape: Shape
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(op == self.op, f"`{self.op}` attribute on `{op}`")
        check_operands(op, self.sources, operands)
        want = MOVE_SHAPES[op](self)
        require(want == self.shape, f"`{op}` gives {list(want)}, not {list(self.shape)}")
        return (operands[0].with_shape(self.shape),)


def _pad_shape(m: Move) -> Shape:
    low, high, _ = m.args
    require(all(v >= 0 for v in (*low, *high)), "`pad` amounts are not negative")
    return tuple(s + a + b for s, a, b in zip(m.sources[0], low, high, strict=True))


def _slice_shape(m: Move) -> Shape:
    for s, a, b, k in zip(m.sources[0], *m.args, strict=True):
        require(0 <= a <= b <= s and k >= 1, f"`slice` {a}:{b}:{k} is outside a dim of size {s}")
    return tuple(cdiv(b - a, k) for a, b, k in zip(*m.args, strict=True))


def _concat_shape(m: Move) -> Shape:
    (axis,) = m.args
    first = m.sources[0]
    for s in m.sources:
        same = [a == b for d, (a, b) in enumerate(zip(s, first, strict=True)) if d != axis]
        require(all(same), f"`concat` of {list(first)} and {list(s)} along {axis}")
    return (*first[:axis], sum(s[axis] for s in m.sources), *first[axis + 1 :])


def _gather_shape(m: Move) -> Shape:
    (axis,) = m.args
    return (*m.sources[0][:axis], *m.sources[1], *m.sources[0][axis + 1 :])


MOVE_SHAPES = {
    "pad": _pad_shape,
    "slice": _slice_shape,
    "concat": _concat_shape,
    "gather": _gather_shape,
}
