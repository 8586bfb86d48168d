"""The structured op, and the op that picks one of several results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

from eqsat.model.affine import Affine, Map, maps_from_json
from eqsat.model.attr import (
    Attr,
    Shape,
    ShapeError,
    check_operands,
    check_order,
    listed,
    require,
)
from eqsat.model.expr import Expr
from eqsat.model.extents import Symbols
from eqsat.model.tensor import DEFAULT, HIGHEST, NONE, PRECISIONS, TensorType, is_float


@dataclass(frozen=True)
class Yield:
    """One result of a generic: its body, element type, and how reductions combine."""

    body: Expr
    dtype: str
    combine: str = ""  # "" when the generic has no reduction loop; else add max min mul and or

    def to_json(self) -> Any:
        return {"body": self.body.to_json(), "dtype": self.dtype, "combine": self.combine}

    @classmethod
    def from_json(cls, data: Any) -> Yield:
        return cls(Expr.from_json(data["body"]), data["dtype"], data["combine"])


def without_casts(e: Expr) -> Expr:
    """The expression inside the casts around it."""
    while e.fn == "cast":
        e = e.args[0]
    return e


def factors_of(body: Expr) -> tuple[Expr, Expr] | None:
    """The two operands that a body multiplies, casts aside; None if it does anything else."""
    product = without_casts(body)
    if product.fn != "mul":
        return None
    a, b = map(without_casts, product.args)
    return (a, b) if a.fn == b.fn == "arg" else None


@dataclass(frozen=True, eq=True)
class Generic(Attr):
    """The structured op: loops, one indexing map per operand, and a body per result.

    Canonical form: loops 0 … rank-1 are the result's dims in order (so every result map is the
    identity and is not stored); reduction loops follow in the order operands first use them.
    After MLIR's `linalg.generic`.

    The maths has no loop order; a chosen op may have one, `order`. It changes no value: only which
    maps are identities if the loops are counted as they are executed (`ops.generics.interchange`).
    """

    kind: ClassVar[str] = "generic"
    ops: ClassVar[Mapping[str, str]] = {"generic": "structured"}
    sizes: Shape  # extent of every loop
    rank: int  # number of result dims = number of parallel loops
    maps: tuple[Map, ...]  # per operand, one affine expression per operand dim
    shapes: tuple[Shape, ...]  # per operand
    yields: tuple[Yield, ...]
    tile: tuple[int, ...] = ()  # (m, n, k) if a rule packed this contraction, else ()
    dtypes: tuple[str, ...] = ()  # element type per operand
    precision: str = DEFAULT  # of a contraction, else NONE
    order: tuple[int, ...] = ()  # the loops as executed, outermost first; () if in canonical order
    __hash__ = Attr.__hash__

    def __post_init__(self) -> None:
        """Only a contraction has a precision, so that equal generics are equal records.

        A contraction that is made of other ops is as accurate as these were.
        """
        precision = (self.precision or HIGHEST) if self.has_precision else NONE
        if precision != self.precision:
            object.__setattr__(self, "precision", precision)

    @cached_property
    def has_precision(self) -> bool:
        """Whether this sums floating products of two operands; others may be there, unread."""
        if len(self.yields) != 1 or self.combine != "add" or not is_float(self.yields[0].dtype):
            return False
        factors = factors_of(self.body)
        return factors is not None and factors[0].value != factors[1].value

    @property
    def is_elementwise(self) -> bool:
        """Whether there is no reduction loop."""
        return self.rank == len(self.sizes)

    @property
    def is_tiled(self) -> bool:
        """Whether it is packed by a tile already."""
        return bool(self.tile)

    @property
    def result_shape(self) -> Shape:
        return self.sizes[: self.rank]

    @property
    def body(self) -> Expr:
        """The body of a single-result generic."""
        return self.yields[0].body

    @property
    def combine(self) -> str:
        return self.yields[0].combine

    @cached_property
    def reductions(self) -> range:
        return range(self.rank, len(self.sizes))

    @cached_property
    def executed(self) -> tuple[int, ...]:
        """The loops in the order in which they are executed, the outermost first."""
        return self.order or tuple(range(len(self.sizes)))

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        check_operands("generic", self.shapes, operands)
        types = tuple([t.dtype for t in operands])
        if self.dtypes != types:
            raise ShapeError(f"`generic` wants operands of {self.dtypes}, got {types}")
        return self._results

    @cached_property
    def _results(self) -> tuple[TensorType, ...]:
        """The result types of what verifies: a record that many nodes share is looked at once."""
        self.verify()
        return tuple(TensorType(y.dtype, self.result_shape) for y in self.yields)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return self.shapes

    def typed_operands(self, op: str, dtype: str) -> tuple[TensorType, ...]:
        return tuple(map(TensorType, self.dtypes, self.shapes))

    def value_shape(self, op: str) -> Shape:
        return self.result_shape

    def text(self, op: str) -> str:
        parts = [f"loops={listed(self.sizes)}", f"maps={listed(map(listed, self.maps))}"]
        parts.append(f"body={_one_or_list([str(y.body) for y in self.yields])}")
        if self.combine:
            parts.append(f"combine={_one_or_list([y.combine for y in self.yields])}")
        if self.tile:
            parts.append(f"tile={listed(self.tile)}")
        if self.precision not in (NONE, DEFAULT):
            parts.append(f"precision={self.precision}")
        if self.order:
            parts.append(f"order={listed(self.order)}")
        return ", ".join(parts)

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        yields = tuple(map(Yield.from_json, data["yields"]))
        maps = maps_from_json(data["maps"], symbols)
        return super().from_json(data | {"maps": maps, "yields": yields}, symbols)

    def to_json(self) -> Any:
        """`precision` is written where it is not `default`, `order` where there is one."""
        data = super().to_json()
        if self.precision in (NONE, DEFAULT):
            del data["precision"]
        if not self.order:
            del data["order"]
        return data

    def verify(self) -> None:
        """ShapeError unless every map stays inside its operand and the form is canonical."""
        is_precision = self.precision in (NONE, *PRECISIONS)
        require(is_precision, f"no precision named `{self.precision}`")
        _check_nest(self.sizes, self.maps, self.shapes)
        check_order(self.order, len(self.sizes))
        for y in self.yields:
            require(bool(y.combine) == bool(len(self.reductions)), "`combine` goes with reductions")
            require(
                all(0 <= o < len(self.maps) for o in y.body.operands()),
                "the body names an operand that is not there",
            )


def _one_or_list(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else listed(texts)


@lru_cache(maxsize=10_000)  # programs repeat few loop nests; what is refused is not kept
def _check_nest(sizes: Shape, maps: tuple[Map, ...], shapes: tuple[Shape, ...]) -> None:
    require(len(maps) == len(shapes), "one indexing map per operand is needed")
    for i, (m, shape) in enumerate(zip(maps, shapes, strict=True)):
        require(len(m) == len(shape), f"map {i} has {len(m)} results for {len(shape)} dims")
        for e, size in zip(m, shape, strict=True):
            _check_bounds(sizes, i, e, size)


def _check_bounds(sizes: Shape, i: int, e: Affine, size: int) -> None:
    low = high = e.constant
    for d, s in e.terms:
        require(0 <= d < len(sizes), f"map {i} names loop d{d}, which does not exist")
        reach = s * max(0, sizes[d] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    if math.prod(sizes):
        require(
            low >= 0 and high < size,
            f"map {i} reads elements {low}…{high} of a dimension of size {size}",
        )


@dataclass(frozen=True, eq=True)
class Result(Attr):
    """Result number `index` of an op with several results."""

    kind: ClassVar[str] = "result"
    ops: ClassVar[Mapping[str, str]] = {"result": "view"}
    index: int
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        require(0 <= self.index < len(operands), f"there is no result {self.index}")
        return (operands[self.index],)

    def is_in_place(self, op: str) -> bool:
        return True

    def text(self, op: str) -> str:
        return f"index={self.index}"
