"""Standard breaks of attribute values, by kind: what a careless rule author gets wrong.

Every break is a function of one value; it returns the value unchanged where it has nothing to
break. A broken value may be ill-formed: then the rule is refused, which is found as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from eqsat.model.affine import Affine, Map
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape
from eqsat.ops.movement.layout import make_layout
from eqsat.ops.movement.lists import inverse
from eqsat.ops.vocabulary import PLURAL

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Break:
    """One way to break a value of a kind; `text` goes on from the expression: `l, tile + 1`."""

    name: str
    text: str
    change: Callable[[Any], Any]


# ---- lists of ints -------------------------------------------------------------------------------
def _is_permutation(p: Ints) -> bool:
    return sorted(p) == list(range(len(p)))


def _inverted(p: Ints) -> Ints:
    return inverse(p) if _is_permutation(p) else p


def _identity(p: Ints) -> Ints:
    return tuple(range(len(p))) if _is_permutation(p) else p


def _reversed(p: Ints) -> Ints:
    return tuple(p[::-1])


def _rotated(p: Ints) -> Ints:
    return (*p[1:], *p[:1])


def _first_plus_one(p: Ints) -> Ints:
    return (p[0] + 1, *p[1:]) if p else p


# ---- layouts -------------------------------------------------------------------------------------
def _remade(layout: Layout, **changes: Any) -> Layout:
    """The layout with these fields, its padding marks made to fit them."""
    new = replace(layout, **changes)
    wanted = ["?" if p == "-" else p for p in new.pads]
    return make_layout(new.source, new.pos, new.tiles, new.outer, wanted)


def _tile_plus_one(layout: Layout) -> Layout:
    return _remade(layout, tiles=_first_plus_one(layout.tiles))


def _tile_doubled(layout: Layout) -> Layout:
    *rest, last = layout.tiles or (0,)
    return _remade(layout, tiles=(*rest, 2 * last)) if layout.tiles else layout


def _tiles_exchanged(layout: Layout) -> Layout:
    """The tiles stand at the right dims, in another order."""
    return replace(layout, pos=layout.pos[::-1], tiles=layout.tiles[::-1], pads=layout.pads[::-1])


def _pos_reversed(layout: Layout) -> Layout:
    return _remade(layout, pos=layout.pos[::-1])


def _outer_rotated(layout: Layout) -> Layout:
    return replace(layout, outer=_rotated(layout.outer))


def _padded_with(old: str, new: str) -> Callable[[Layout], Layout]:
    return lambda layout: replace(layout, pads=tuple(new if p == old else p for p in layout.pads))


# ---- generics ------------------------------------------------------------------------------------
def _maps_exchanged(g: Generic) -> Generic:
    """Two operands of one shape are read through each other's map."""
    for i in range(len(g.maps)):
        for j in range(i):
            if g.shapes[i] == g.shapes[j] and g.maps[i] != g.maps[j]:
                return replace(g, maps=_exchanged(g.maps, i, j))
    return g


def _exchanged(values: tuple[Any, ...], i: int, j: int) -> tuple[Any, ...]:
    new = list(values)
    new[i], new[j] = new[j], new[i]
    return tuple(new)


def _map_permuted(g: Generic) -> Generic:
    """One operand is read with two dims of one extent exchanged."""
    for at, (m, shape) in enumerate(zip(g.maps, g.shapes, strict=True)):
        for i in range(len(m)):
            for j in range(i):
                if shape[i] == shape[j] and m[i] != m[j]:
                    maps = [*g.maps]
                    maps[at] = _exchanged(m, i, j)
                    return replace(g, maps=tuple(maps))
    return g


def _loops_exchanged(g: Generic) -> Generic:
    """The result is written with two dims of one extent exchanged."""
    for i in range(g.rank):
        for j in range(i):
            if g.sizes[i] == g.sizes[j]:
                new = {d: d for d in range(len(g.sizes))} | {i: j, j: i}
                return replace(g, maps=tuple(_renamed(m, new) for m in g.maps))
    return g


def _renamed(m: Map, new: dict[int, int]) -> Map:
    return tuple(e.rename(new) for e in m)


def _read_from_zero(g: Generic) -> Generic:
    """Offsets of windows are lost."""
    return replace(g, maps=tuple(tuple(Affine(e.terms) for e in m) for m in g.maps))


_COMBINE = {
    "": "",
    "add": "max",
    "max": "min",
    "min": "max",
    "mul": "add",
    "and": "or",
    "or": "and",
}


def _combine_changed(g: Generic) -> Generic:
    return replace(g, yields=tuple(replace(y, combine=_COMBINE[y.combine]) for y in g.yields))


def _type_changed(g: Generic) -> Generic:
    """The result is kept in another element type."""
    new = [replace(y, dtype="f16" if y.dtype != "f16" else "f32") for y in g.yields]
    return replace(g, yields=tuple(new))


# ---- reshapes, moves, fills ----------------------------------------------------------------------
def _shape_reversed(groups: Reshape) -> Reshape:
    return replace(groups, shape=groups.shape[::-1])


def _shape_plus_one(groups: Reshape) -> Reshape:
    return replace(groups, shape=_first_plus_one(groups.shape))


def _shifted(move: Move) -> Move:
    """The same amount of padding or of elements, one place further on (or back)."""
    if move.op not in ("pad", "slice") or not move.shape:
        return move
    first, second, rest = move.args
    for d, size in enumerate(move.sources[0]):
        for step in (1, -1):
            a, b = first[d] + step, second[d] + (step if move.op == "slice" else -step)
            if a >= 0 and b >= 0 and (move.op == "pad" or b <= size):
                args = (_put(first, d, a), _put(second, d, b), rest)
                return replace(move, args=args)
    return move


def _put(values: Ints, at: int, value: int) -> Ints:
    return (*values[:at], value, *values[at + 1 :])


def _other_value(move: Move) -> Move:
    if move.op != "pad":
        return move
    low, high, value = move.args
    return replace(move, args=(low, high, _other_text(value)))


def _other_axis(move: Move) -> Move:
    if move.op not in ("concat", "gather"):
        return move
    return replace(move, args=((move.args[0] + 1) % max(1, len(move.sources[0])),))


def _other_text(text: str) -> str:
    return "1" if text not in ("1", "1.0", "true") else "0"


def _other_fill(fill: Fill) -> Fill:
    value = not fill.value if isinstance(fill.value, bool) else 1 if fill.value == 0 else 0
    return replace(fill, value=type(fill.value)(value))


_ONE: dict[str, tuple[Break, ...]] = {
    "ints": (
        Break("inverted", "inverted", _inverted),
        Break("identity", "the identity instead", _identity),
        Break("reversed", "reversed", _reversed),
        Break("rotated", "rotated", _rotated),
        Break("first-plus-one", "first entry + 1", _first_plus_one),
    ),
    "int": (
        Break("plus-one", "+ 1", lambda n: n + 1),
        Break("minus-one", "- 1", lambda n: n - 1),
    ),
    "bool": (Break("negated", "negated", lambda b: not b),),
    "layout": (
        Break("tile-plus-one", "first tile + 1", _tile_plus_one),
        Break("tile-doubled", "last tile doubled", _tile_doubled),
        Break("tiles-exchanged", "order of tiles reversed", _tiles_exchanged),
        Break("pos-reversed", "pos reversed", _pos_reversed),
        Break("outer-rotated", "outer rotated", _outer_rotated),
        Break("zero-to-any", "padding 0 → any", _padded_with("0", "?")),
        Break("any-to-zero", "padding any → 0", _padded_with("?", "0")),
    ),
    "sig": (
        Break("maps-exchanged", "two maps exchanged", _maps_exchanged),
        Break("map-permuted", "a map permuted", _map_permuted),
        Break("loops-exchanged", "two result loops exchanged", _loops_exchanged),
        Break("offsets-lost", "offsets of maps lost", _read_from_zero),
        Break("combine-changed", "another combine", _combine_changed),
        Break("type-changed", "another element type", _type_changed),
    ),
    "groups": (
        Break("shape-reversed", "shape reversed", _shape_reversed),
        Break("shape-plus-one", "first extent + 1", _shape_plus_one),
    ),
    "move": (
        Break("shifted", "shifted by one", _shifted),
        Break("other-value", "another padding value", _other_value),
        Break("other-axis", "another axis", _other_axis),
    ),
    "pads": (
        Break("zero-to-any", "0 → any", lambda p: tuple("?" if x == "0" else x for x in p)),
        Break("any-to-zero", "any → 0", lambda p: tuple("0" if x == "?" else x for x in p)),
    ),
    "str": (Break("other-value", "another value", _other_text),),
    "fill": (Break("other-value", "another value", _other_fill),),
}


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The break on every entry of a list; an entry None leaves its operand alone."""
    return lambda values: tuple(None if v is None else change(v) for v in values)


BREAKS: dict[str, tuple[Break, ...]] = _ONE | {
    many: tuple(replace(b, change=_each(b.change)) for b in _ONE[one])
    for one, many in PLURAL.items()
    if one in _ONE
}
# what `Rows` needs to evaluate a broken rule; rule files cannot name these
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"broken.{kind}.{b.name}": b.change for kind, breaks in BREAKS.items() for b in breaks
}
