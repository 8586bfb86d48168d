"""Layouts in memory: packed, requested for a contraction, and orders of a program's borders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from eqsat.model.affine import Map, maps_from_json
from eqsat.model.attr import Attr, InPlace, Shape, check_operands, listed, require
from eqsat.model.extents import Symbols
from eqsat.model.files import JsonRecord
from eqsat.model.tensor import TensorType, cdiv

ROW_MAJOR = "row-major"  # the name of the plain layout
ROLES = ("lhs", "rhs", "result")  # of a tensor in a contraction
ROWS = "rows"  # of a tensor that lies in longer rows, if the target asks for them


@dataclass(frozen=True, eq=True)
class Layout(Attr):
    """How `pack` lays out a tensor; `unpack`, `retype` and `relax` name the same record.

    Tiled dims `pos` are strip-mined by `tiles`; outer dims come first in the order `outer`
    (outer[j] = source dim at outer position j), tile dims follow in the order of `pos`. pads per
    tile: "-" divisible, "0" zeros, "?" open (anything), otherwise the value's text. Source: MLIR
    LinalgRelayoutOps.td.
    """

    kind: ClassVar[str] = "layout"
    ops: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("pack", "unpack", "retype"), "conversion"),
        "relax": "view",
    }
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

    def blocked(self, padded: Shape) -> tuple[Shape, tuple[int, ...]]:
        """How a source of this (padded) shape is packed: strip-mined to a shape, then transposed.

        Source: MLIR's lowering of `linalg.pack`.
        """
        tile = dict(zip(self.pos, self.tiles, strict=True))
        shape: list[int] = []
        outer: dict[int, int] = {}
        inner: dict[int, int] = {}
        for d, size in enumerate(padded):
            outer[d] = len(shape)
            shape.append(size // tile.get(d, 1))
            if d in tile:
                inner[d] = len(shape)
                shape.append(tile[d])
        return tuple(shape), (*(outer[d] for d in self.outer), *(inner[d] for d in self.pos))

    def unblocked(self, packed: Shape) -> tuple[tuple[int, ...], Shape]:
        """The inverse of `blocked`: the transpose, then the collapse to the padded source."""
        rank = len(self.source)
        slots: list[int] = []
        padded = list(self.source)
        for d in range(rank):
            slots.append(self.outer.index(d))
            if d in self.pos:
                at = self.pos.index(d)
                padded[d] = packed[slots[-1]] * self.tiles[at]
                slots.append(rank + at)
        return tuple(slots), tuple(padded)

    @property
    def is_padded(self) -> bool:
        """Some tile has lanes beyond the end."""
        return any(p != "-" for p in self.pads)

    @property
    def is_outer_identity(self) -> bool:
        """The blocks keep the order of the dims (an empty `outer_dims_perm`)."""
        return self.outer == tuple(range(len(self.outer)))

    @cached_property
    def row_padding(self) -> tuple[int, ...]:
        """Elements behind the end of each dim if nothing moves and they hold anything, else ().

        Every dim from the first padded one on is a single block: a tensor in longer rows.
        """
        behind = tuple(t - self.source[d] for d, t in zip(self.pos, self.tiles, strict=True))
        rest = range(len(self.source) - len(self.pos), len(self.source))
        is_plain = self.is_outer_identity and self.pos == tuple(rest) and {*self.pads} <= {*"-?"}
        if not is_plain or not behind or behind[0] <= 0 or min(behind) < 0:
            return ()
        return (*(0 for _ in range(rest.start)), *behind)

    @property
    def padded_dims(self) -> list[tuple[int, int, str]]:
        """(dim, tile, padding) in the order in which padding is written, "?" last.

        The order does not depend on that of the tiles, so lanes beyond several dims hold the same
        in every order of blocks.
        """
        paddings = zip(self.pos, self.tiles, self.pads, strict=True)
        return sorted(paddings, key=lambda f: (f[2] == "?", f[2]))

    def verify(self) -> None:
        rank = len(self.source)
        require(sorted(self.outer) == list(range(rank)), f"`outer` is not a permutation of {rank}")
        require(len(self.pos) == len(self.tiles), "`pos` and `tiles` differ in length")
        require(len(set(self.pos)) == len(self.pos), "a dim is tiled twice in `pos`")
        require(all(0 <= p < rank for p in self.pos), f"`pos` names a dim outside 0…{rank - 1}")
        require(all(t >= 1 for t in self.tiles), "a tile is at least 1")
        for d, t, p in zip(self.pos, self.tiles, self.pads, strict=True):
            divisible = self.source[d] % t == 0
            require(
                divisible == (p == "-"),
                f"dim {d} of size {self.source[d]} and tile {t} "
                + (
                    "need no padding" if divisible else "need a padding value: `pad=0` or `pad=any`"
                ),
            )

    def infer(self, op: str, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        self.verify()
        check_operands(op, self.operand_shapes(op), operands)
        return (operands[0].with_shape(self.value_shape(op)),)

    def operand_shapes(self, op: str) -> tuple[Shape, ...]:
        return (self.source if op == "pack" else self.packed_shape,)

    def value_shape(self, op: str) -> Shape:
        return self.source if op == "unpack" else self.packed_shape

    def is_in_place(self, op: str) -> bool:
        return op not in ("pack", "unpack")  # the others say what lanes of padding hold

    def padding(self) -> tuple[str, ...]:
        return tuple(p for p in self.pads if p not in "-?")

    def field(self, key: str) -> Any:
        return getattr(self, "pads" if key == "pad" else key)

    def text(self, op: str) -> str:
        attributes = [f"pos={listed(self.pos)}", f"tiles={listed(self.tiles)}"]
        attributes += [f"outer={listed(self.outer)}", *self._padding_text()]
        return ", ".join(
            attributes if op == "pack" else [*attributes, f"shape={listed(self.source)}"]
        )

    def _padding_text(self) -> list[str]:
        words = [{"-": "none", "?": "any"}.get(p, p) for p in self.pads]
        padded = {*words} - {"none"}
        return [f"pad={padded.pop() if len(padded) == 1 else listed(words)}"] if padded else []


@dataclass(frozen=True, eq=True)
class Encoding(InPlace):
    """A requested layout: which operand of which contraction this tensor is, dim by dim.

    A target turns `set_encoding` / `unset_encoding` into a pack and an unpack, or into nothing.
    sizes: extents of the contraction's loops, 0 where not known. maps: those of lhs, rhs and
    result; without them it is a plain (batched) matmul. dims: per dim of this tensor, the dim of
    that operand it holds, -1 for none; () is all of them in order. A tensor that was moved away
    from its contraction keeps the encoding, with other `dims`: the chain of maps, composed.
    After IREE's `#iree_encoding.encoding` as of 2026.
    """

    kind: ClassVar[str] = "encoding"
    ops: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("set_encoding", "unset_encoding"), "conversion"
    )
    role: str  # lhs | rhs | result; or rows, which speaks of no contraction
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

    def text(self, op: str) -> str:
        names = ", ".join(f'"{d}"' for d in self.dtypes)
        text = f'role="{self.role}", contraction="{self.contraction}", dtypes=[{names}]'
        if self.maps:
            text += f", loops={listed(self.sizes)}, maps={listed(map(listed, self.maps))}"
        return text + (f", dims={listed(self.dims)}" if self.dims else "")

    @classmethod
    def from_json(cls, data: dict[str, Any], symbols: Symbols) -> Self:
        maps = maps_from_json(data.get("maps", ()), symbols)
        return super().from_json(data | {"maps": maps}, symbols)

    def verify(self) -> None:
        """ShapeError unless the dims of the tensor are dims of that operand, of equal extent."""
        held = [d for d in self.held if d >= 0]
        require(len(self.held) == len(self.source), "`dims` has one entry per dim of the tensor")
        require(len(set(held)) == len(held), "a dim of the operand is named twice in `dims`")
        if not self.maps:
            return
        require(len(self.maps) == len(ROLES), "`maps` has a map for lhs, rhs and result")
        named = {d for m in self.maps for e in m for d, _ in e.terms}
        require(all(0 <= d < len(self.sizes) for d in named), "`maps` names a loop without a size")
        operand_map = self.maps[ROLES.index(self.role)]
        require(
            all(d < len(operand_map) for d in held), "`dims` names a dim the operand does not have"
        )
        for size, d in zip(self.source, self.held, strict=True):
            loop = operand_map[d].dim if d >= 0 else None
            fits = loop is None or self.sizes[loop] in (0, size)
            require(fits, f"a dim of size {size} cannot be loop d{loop} of the contraction")


Held = Layout | Encoding  # what a border may be fixed to; an encoding is the target's to resolve


@dataclass(frozen=True, order=True)
class Border:
    """An argument (`input`) or a result of a program, by its number."""

    kind: str  # input | result
    number: int

    def to_json(self) -> list[Any]:
        return [self.kind, self.number]


@dataclass(frozen=True)
class Free:
    """The search chooses the layout. calls: of these one needs the caller to convert.

    The conversion is priced as a dispatch of its own, its time divided by `calls`; 0: the caller
    has the tensor in any layout at no cost.
    """

    calls: int = 0


SEARCH, CALLER, COMPILER = "search", "caller", "compiler"  # who says in which order a tensor lies


@dataclass(frozen=True)
class Ordered:
    """An argument or result whose dims lie in memory as `order` says, the outermost first.

    Its shape is as it was: dim order[0] of it is the one whose neighbours are furthest apart (as
    `major_to_minor` of JAX). name: as messages call it. by: `search`, or `caller`.
    """

    name: str
    border: Border
    order: tuple[int, ...]
    by: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.border.kind,
            "number": self.border.number,
            "order": list(self.order),
            "by": self.by,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ordered:
        """Undo `to_json`."""
        border = Border(data["kind"], data["number"])
        return cls(data["name"], border, tuple(data["order"]), data["by"], data["why"])


@dataclass(frozen=True)
class MemoryOrders(JsonRecord):
    """Outcome of free orders: those that are not plain, and what the others would cost.

    left: arguments and results that lie plainly, where the compiler of an accelerator may choose if
    it says that this costs less. compiler: those that are the compiler's alone.
    ties: number of a donated argument, and of the result that is written in its place.
    goal: the first one; plain, value: what it is with plain arguments and with these, in its own
    unit (ps, bytes, a count); bound: what no order could be below, None where not all were
    looked at. tried: searches of an e-graph with free orders, or in orders. why: a sentence.
    """

    chosen: tuple[Ordered, ...] = ()
    left: tuple[Border, ...] = ()
    compiler: tuple[Border, ...] = ()
    ties: tuple[tuple[int, int], ...] = ()
    goal: str = ""
    plain: float | None = None
    value: float | None = None
    bound: float | None = None
    tried: int = 0
    why: str = ""

    @property
    def by_border(self) -> dict[Border, tuple[int, ...]]:
        """The order of every argument and result that is not plain."""
        return {o.border: o.order for o in self.chosen}


@dataclass(frozen=True)
class AskedOrders:
    """What `layouts=` says. layouts: requests other than orders, by name; orders: by the caller.

    free: ties that are left to the search, one order each; compiler: left to the back end alone.
    ties: as of `MemoryOrders`.
    """

    layouts: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[Border, tuple[int, ...]] = field(default_factory=dict)
    free: tuple[tuple[Border, ...], ...] = ()
    compiler: tuple[Border, ...] = ()
    ties: tuple[tuple[int, int], ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether an order is asked for, or left free."""
        return bool(self.orders or self.free or self.compiler)


def padded_layout(source: Shape, padding: Sequence[int]) -> Layout:
    """A tensor with so many elements of no value behind each dim, as one block; some are > 0."""
    first = next(d for d, p in enumerate(padding) if p)
    pos = tuple(range(first, len(source)))
    tiles = tuple(source[d] + padding[d] for d in pos)
    pads = tuple("?" if padding[d] else "-" for d in pos)
    return Layout(source, pos, tiles, tuple(range(len(source))), pads)


def layout_in(order: tuple[int, ...], shape: tuple[int, ...]) -> Layout:
    """A tensor of this shape whose dims lie in this order, as the layout of a border."""
    return Layout(shape, (), (), order, ())
