"""Attributes of ops: interned, complete instances with their shapes in them.

An attribute knows the shapes of its operands and of its result, so a rewrite never has to
analyse shapes inside the e-graph, and two layouts cancel when they are equal records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from eqsat.model.expr import Expr
from eqsat.model.tensor import DTYPES, KIND_NAMES, TensorType, cdiv

Shape = tuple[int, ...]
ROLES = ("lhs", "rhs", "result")  # of a tensor in a contraction


class ShapeError(ValueError):
    """An attribute does not fit its operands; the text is a sentence for the user."""


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ShapeError(message)


@dataclass(frozen=True)
class Affine:
    """One result of an indexing map: `constant + Σ stride · dim`, dims ascending."""

    terms: tuple[tuple[int, int], ...]  # (loop, stride), stride ≠ 0
    constant: int = 0

    @property
    def dim(self) -> int | None:
        """The loop if this is a bare dim expression, else None."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def rename(self, loops: dict[int, int] | list[int]) -> Affine:
        """The same expression over renumbered loops."""
        return Affine(tuple(sorted((loops[d], s) for d, s in self.terms)), self.constant)

    def __str__(self) -> str:
        parts = [f"d{d}" if s == 1 else f"{s}*d{d}" for d, s in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


def dim(d: int) -> Affine:
    return Affine(((d, 1),))


def affine(terms: list[tuple[int, int]], constant: int = 0) -> Affine:
    """Sum up strides per loop and drop zeros."""
    total: dict[int, int] = {}
    for d, s in terms:
        total[d] = total.get(d, 0) + s
    return Affine(tuple(sorted((d, s) for d, s in total.items() if s)), constant)


Map = tuple[Affine, ...]


@dataclass(frozen=True)
class Yield:
    """One result of a generic: its body, element type, and how reductions combine."""

    body: Expr
    dtype: str
    combine: str = ""  # "" when the generic has no reduction loop; else add max min mul and or


@dataclass(frozen=True)
class Attr:
    """Base of all attributes: hash once, print as keywords, go to JSON and back."""

    kind: ClassVar[str] = ""

    @cached_property
    def _cached_hash(self) -> int:
        return hash((self.kind, *(getattr(self, f.name) for f in fields(self))))

    def __hash__(self) -> int:
        return self._cached_hash

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        """Result types for these operand types; ShapeError if they do not fit."""
        raise NotImplementedError  # every attribute class has its own

    def to_json(self) -> Any:
        return {"kind": self.kind} | {
            f.name: _jsonable(getattr(self, f.name)) for f in fields(self)
        }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Expr):
        return value.to_json()
    if isinstance(value, Affine):
        return {"terms": [list(t) for t in value.terms], "constant": value.constant}
    if isinstance(value, Yield):
        return {"body": value.body.to_json(), "dtype": value.dtype, "combine": value.combine}
    if isinstance(value, TensorType):
        return str(value)
    if isinstance(value, tuple):
        return [_jsonable(v) for v in value]
    return value


def _check_operands(op: str, shapes: tuple[Shape, ...], operands: tuple[TensorType, ...]) -> None:
    _require(
        len(shapes) == len(operands),
        f"`{op}` takes {len(shapes)} operand(s), got {len(operands)}",
    )
    for i, (want, got) in enumerate(zip(shapes, operands, strict=True)):
        _require(
            want == got.shape,
            f"operand {i} of `{op}` has shape {list(got.shape)}, wanted {list(want)}",
        )


@dataclass(frozen=True, eq=True)
class Leaf(Attr):
    """`input` (argument number `index`), or `weight` (content hash `key`)."""

    kind: ClassVar[str] = "leaf"
    name: str
    type: TensorType
    index: int = -1
    key: str = ""
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _require(not operands, f"`{op}` takes no operands")
        return (self.type,)


@dataclass(frozen=True, eq=True)
class Fill(Attr):
    """A tensor that holds one value everywhere."""

    kind: ClassVar[str] = "fill"
    value: bool | int | float
    type: TensorType
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _require(not operands, "`fill` takes no operands")
        return (self.type,)


@dataclass(frozen=True, eq=True)
class Generic(Attr):
    """The structured op: loops, one indexing map per operand, and a body per result.

    Canonical form: loops 0 … rank-1 are the result's dims in order (so every result map is the
    identity and is not stored); reduction loops follow in the order operands first use them.
    After MLIR's `linalg.generic`.
    """

    kind: ClassVar[str] = "generic"
    sizes: Shape  # extent of every loop
    rank: int  # number of result dims = number of parallel loops
    maps: tuple[Map, ...]  # per operand, one affine expression per operand dim
    shapes: tuple[Shape, ...]  # per operand
    yields: tuple[Yield, ...]
    tile: tuple[int, ...] = ()  # (m, n, k) if a rule packed this contraction, else ()
    dtypes: tuple[str, ...] = ()  # element type per operand
    __hash__ = Attr.__hash__

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

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _check_operands("generic", self.shapes, operands)
        types = tuple(t.dtype for t in operands)
        _require(self.dtypes == types, f"`generic` wants operands of {self.dtypes}, got {types}")
        self.verify()
        return tuple(TensorType(y.dtype, self.result_shape) for y in self.yields)

    def verify(self) -> None:
        """ShapeError unless every map stays inside its operand and the form is canonical."""
        _require(len(self.maps) == len(self.shapes), "one indexing map per operand is needed")
        for i, (m, shape) in enumerate(zip(self.maps, self.shapes, strict=True)):
            _require(len(m) == len(shape), f"map {i} has {len(m)} results for {len(shape)} dims")
            for e, size in zip(m, shape, strict=True):
                self._check_bounds(i, e, size)
        for y in self.yields:
            _require(
                bool(y.combine) == bool(len(self.reductions)), "`combine` goes with reductions"
            )
            _require(
                all(0 <= o < len(self.maps) for o in y.body.operands()),
                "the body names an operand that is not there",
            )

    def _check_bounds(self, i: int, e: Affine, size: int) -> None:
        low = high = e.constant
        for d, s in e.terms:
            _require(0 <= d < len(self.sizes), f"map {i} names loop d{d}, which does not exist")
            reach = s * max(0, self.sizes[d] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        if math.prod(self.sizes):
            _require(
                low >= 0 and high < size,
                f"map {i} reads elements {low}…{high} of a dimension of size {size}",
            )


@dataclass(frozen=True, eq=True)
class Transpose(Attr):
    """Result dim i reads source dim perm[i] (as MLIR's `linalg.transpose`)."""

    kind: ClassVar[str] = "transpose"
    source: Shape
    perm: tuple[int, ...]
    __hash__ = Attr.__hash__

    @property
    def result_shape(self) -> Shape:
        return tuple(self.source[p] for p in self.perm)

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _check_operands("transpose", (self.source,), operands)
        _require(
            sorted(self.perm) == list(range(len(self.source))),
            f"{list(self.perm)} is not a permutation of {len(self.source)} dims",
        )
        return (operands[0].with_shape(self.result_shape),)


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
        _check_operands("reshape", (self.source,), operands)
        _require(
            math.prod(self.source) == math.prod(self.shape),
            f"cannot reshape {list(self.source)} to {list(self.shape)}: sizes differ",
        )
        return (operands[0].with_shape(self.shape),)


@dataclass(frozen=True, eq=True)
class Layout(Attr):
    """How `pack` lays out a tensor; `unpack`, `retype` and `relax` name the same record.

    Tiled dims `pos` are strip-mined by `tiles`; outer dims come first in the order `outer`
    (outer[j] = source dim at outer position j), tile dims follow in the order of `pos`.
    pads per tile: "-" divisible, "0" zeros, "?" anything, else the value's text.
    Source: MLIR LinalgRelayoutOps.td.
    """

    kind: ClassVar[str] = "layout"
    source: Shape
    pos: tuple[int, ...]
    tiles: tuple[int, ...]
    outer: tuple[int, ...]
    pads: tuple[str, ...]
    __hash__ = Attr.__hash__

    @cached_property
    def packed_shape(self) -> Shape:
        tile = dict(zip(self.pos, self.tiles, strict=True))
        blocks = [cdiv(s, tile.get(d, 1)) for d, s in enumerate(self.source)]
        return tuple(blocks[d] for d in self.outer) + self.tiles

    @property
    def is_padded(self) -> bool:
        return any(p != "-" for p in self.pads)

    @property
    def padded_dims(self) -> list[tuple[int, int, str]]:
        """(dim, tile, padding) in the order in which padding is written, "?" last.

        The order does not depend on that of the tiles, so lanes beyond several dims hold the same
        in every order of blocks.
        """
        found = zip(self.pos, self.tiles, self.pads, strict=True)
        return sorted(found, key=lambda f: (f[2] == "?", f[2]))

    def verify(self) -> None:
        rank = len(self.source)
        _require(sorted(self.outer) == list(range(rank)), f"`outer` is not a permutation of {rank}")
        _require(len(self.pos) == len(self.tiles), "`pos` and `tiles` differ in length")
        _require(len(set(self.pos)) == len(self.pos), "a dim is tiled twice in `pos`")
        _require(all(0 <= p < rank for p in self.pos), f"`pos` names a dim outside 0…{rank - 1}")
        _require(all(t >= 1 for t in self.tiles), "a tile is at least 1")
        for d, t, p in zip(self.pos, self.tiles, self.pads, strict=True):
            divisible = self.source[d] % t == 0
            _require(
                divisible == (p == "-"),
                f"dim {d} of size {self.source[d]} and tile {t} "
                + (
                    "need no padding" if divisible else "need a padding value: `pad=0` or `pad=any`"
                ),
            )

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        self.verify()
        logical, packed = self.source, self.packed_shape
        sides = {
            "pack": (logical, packed),
            "unpack": (packed, logical),
            "retype": (packed, packed),
            "relax": (packed, packed),
        }[op]
        _check_operands(op, (sides[0],), operands)
        return (operands[0].with_shape(sides[1]),)


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
        _require(op == self.op, f"`{self.op}` attribute on `{op}`")
        _check_operands(op, self.sources, operands)
        want = MOVE_SHAPES[op](self)
        _require(want == self.shape, f"`{op}` gives {list(want)}, not {list(self.shape)}")
        return (operands[0].with_shape(self.shape),)


def _pad_shape(m: Move) -> Shape:
    low, high, _ = m.args
    _require(all(v >= 0 for v in (*low, *high)), "`pad` amounts are not negative")
    return tuple(s + a + b for s, a, b in zip(m.sources[0], low, high, strict=True))


def _slice_shape(m: Move) -> Shape:
    for s, a, b, k in zip(m.sources[0], *m.args, strict=True):
        _require(0 <= a <= b <= s and k >= 1, f"`slice` {a}:{b}:{k} is outside a dim of size {s}")
    return tuple(cdiv(b - a, k) for a, b, k in zip(*m.args, strict=True))


def _concat_shape(m: Move) -> Shape:
    (axis,) = m.args
    first = m.sources[0]
    for s in m.sources:
        same = [a == b for d, (a, b) in enumerate(zip(s, first, strict=True)) if d != axis]
        _require(all(same), f"`concat` of {list(first)} and {list(s)} along {axis}")
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


@dataclass(frozen=True, eq=True)
class Encoding(Attr):
    """A requested layout: which operand of which contraction this tensor is, dim by dim.

    A target turns `set_encoding` / `unset_encoding` into a pack and an unpack, or into nothing.
    sizes: extents of the contraction's loops, 0 where not known. maps: those of lhs, rhs and
    result; without them it is a plain (batched) matmul. dims: per dim of this tensor, the dim of
    that operand it holds, -1 for none; () is all of them in order. A tensor that was moved away
    from its contraction keeps the encoding, with other `dims`: the chain of maps, composed.
    After IREE's `#iree_encoding.encoding` (knowledge of its 2026 form).
    """

    kind: ClassVar[str] = "encoding"
    source: Shape
    role: str  # lhs | rhs | result
    contraction: str = "matmul"  # a name; without maps, only that of a matmul says enough
    dtypes: tuple[str, ...] = ()  # lhs, rhs, result
    sizes: Shape = ()
    maps: tuple[Map, ...] = ()
    dims: tuple[int, ...] = ()
    __hash__ = Attr.__hash__

    @property
    def held(self) -> tuple[int, ...]:
        """`dims`, written out."""
        return self.dims or tuple(range(len(self.source)))

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _check_operands(op, (self.source,), operands)
        self.verify()
        return operands

    def verify(self) -> None:
        """ShapeError unless the dims of the tensor are dims of that operand, of equal extent."""
        held = [d for d in self.held if d >= 0]
        _require(len(self.held) == len(self.source), "`dims` has one entry per dim of the tensor")
        _require(len(set(held)) == len(held), "a dim of the operand is named twice in `dims`")
        if not self.maps:
            return
        _require(len(self.maps) == len(ROLES), "`maps` has a map for lhs, rhs and result")
        named = {d for m in self.maps for e in m for d, _ in e.terms}
        _require(all(0 <= d < len(self.sizes) for d in named), "`maps` names a loop without a size")
        own = self.maps[ROLES.index(self.role)]
        _require(all(d < len(own) for d in held), "`dims` names a dim the operand does not have")
        for size, d in zip(self.source, self.held, strict=True):
            loop = own[d].dim if d >= 0 else None
            fits = loop is None or self.sizes[loop] in (0, size)
            _require(fits, f"a dim of size {size} cannot be loop d{loop} of the contraction")


@dataclass(frozen=True, eq=True)
class Opaque(Attr):
    """A primitive nobody modelled: kept whole, executed as it was, a barrier for rules."""

    kind: ClassVar[str] = "opaque"
    primitive: str
    key: str  # hash of its exported form, which travels beside the program
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _require(operands == self.operands, f"operands of opaque `{self.primitive}` do not fit")
        return self.results


@dataclass(frozen=True, eq=True)
class Result(Attr):
    """Result number `index` of an op with several results."""

    kind: ClassVar[str] = "result"
    index: int
    __hash__ = Attr.__hash__

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _require(0 <= self.index < len(operands), f"there is no result {self.index}")
        return (operands[self.index],)


@dataclass(frozen=True, eq=True)
class Custom(Attr):
    """An op that a plug-in brings; complete, so that only running it needs the plug-in.

    values: what its keywords say, by key ascending; an int, a float, a text or ints. accepts: per
    operand, the kinds of element types it may have (letters of `model.tensor.DTYPES`); () is any.
    """

    kind: ClassVar[str] = "custom"
    op: str
    sources: tuple[Shape, ...]
    values: tuple[tuple[str, Any], ...]
    shape: Shape
    dtype: str = ""  # element type of the result; "" is that of operand 0
    fusion: str = "opaque"  # one of `model.target.KINDS`
    operations: int = 0  # scalar operations per element of the result
    accepts: tuple[str, ...] = ()
    __hash__ = Attr.__hash__

    def __getitem__(self, key: str) -> Any:
        return dict(self.values)[key]

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        _require(op == self.op, f"`{self.op}` attribute on `{op}`")
        _check_operands(op, self.sources, operands)
        for i, (kinds, t) in enumerate(zip(self.accepts, operands, strict=False)):
            wanted = " or ".join(KIND_NAMES[k] for k in kinds)
            ok = DTYPES[t.dtype][1] in kinds
            _require(ok, f"operand {i} of `{op}` is {wanted}, not {t.dtype}")
        return (TensorType(self.dtype or operands[0].dtype, self.shape),)


# op -> attribute class; every other op is `Custom`
OPS: dict[str, type[Attr]] = {
    "input": Leaf,
    "weight": Leaf,
    "fill": Fill,
    "generic": Generic,
    "transpose": Transpose,
    "reshape": Reshape,
    "pack": Layout,
    "unpack": Layout,
    "retype": Layout,
    "relax": Layout,
    "pad": Move,
    "slice": Move,
    "concat": Move,
    "gather": Move,
    "set_encoding": Encoding,
    "unset_encoding": Encoding,
    "opaque": Opaque,
    "result": Result,
}
LEAVES = frozenset({"input", "weight", "fill"})
VIEWS = frozenset({"reshape", "relax", "result"})  # no data moves
CONVERSIONS = frozenset({"pack", "unpack", "transpose", "retype", "set_encoding", "unset_encoding"})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _read_affine(data: Any) -> Affine:
    return Affine(_tuples(data["terms"]), data["constant"])


def _read_yield(data: Any) -> Yield:
    return Yield(Expr.from_json(data["body"]), data["dtype"], data["combine"])


def attr_from_json(data: Any) -> Attr:
    """Undo `Attr.to_json`."""
    kinds = {c.kind: c for c in (*OPS.values(), Custom)}
    rest = {k: v for k, v in data.items() if k != "kind"}
    cls = kinds[data["kind"]]
    if cls in (Generic, Encoding):
        rest["maps"] = tuple(tuple(_read_affine(e) for e in m) for m in rest.get("maps", ()))
    if cls is Generic:
        rest["yields"] = tuple(_read_yield(y) for y in rest["yields"])
    if cls in (Leaf, Fill):
        rest["type"] = TensorType.parse(rest["type"])
    if cls is Opaque:
        for side in ("operands", "results"):
            rest[side] = tuple(TensorType.parse(t) for t in rest[side])
    return cls(**{k: _tuples(v) for k, v in rest.items()})
