"""Attribute functions on lists, permutations and tensor variables, and conditions on attributes."""

from __future__ import annotations

from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.target import Tile
from eqsat.ops.contraction import contraction_roles
from eqsat.ops.vocabulary import AttrFunction


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse permutation."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def is_block_diagonal(perm: tuple[int, ...], n: int) -> bool:
    """A permutation of a packed shape that keeps outer dims outer (rank n) and tile dims inner."""
    return all((p < n) == (i < n) for i, p in enumerate(perm))


def inner_entries(perm: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The tile part of a block-diagonal permutation, counted from 0."""
    return tuple(p - n for p in perm[n:])


def no_tiles(_: Generic) -> tuple[Tile, ...]:
    """The vocabulary when no target is at hand: empty."""
    return ()


def same_tiles(a: Layout, b: Layout) -> bool:
    """Equal but for what the padding holds."""
    return (a.source, a.pos, a.tiles, a.outer) == (b.source, b.pos, b.tiles, b.outer)


def is_open(a: Layout) -> bool:
    """Whether some lane beyond the end may hold anything."""
    return "?" in a.pads


def relaxes(a: Layout, b: Layout) -> bool:
    """Where b leaves lanes open, anything will do; elsewhere a holds what b asks for."""
    kept = same_tiles(a, b) and all(y in (x, "?") for x, y in zip(a.pads, b.pads, strict=True))
    return kept and is_open(b)


def forgets(a: Layout, b: Layout) -> bool:
    """b is another layout than a, with some lanes left open that a defines."""
    return a != b and relaxes(a, b)


def masks(a: Layout, b: Layout) -> bool:
    """b is a with padding that has to be written anew."""
    return a != b and same_tiles(a, b) and not relaxes(a, b)


def _compose(p: tuple[int, ...], d: tuple[int, ...]) -> tuple[int, ...] | None:
    return tuple(p[i] for i in d) if all(i < len(p) for i in d) else None


def _is_identity(p: tuple[int, ...]) -> bool:
    return p == tuple(range(len(p)))


def _is_contraction(g: Generic) -> bool:
    return contraction_roles(g) is not None


FUNCTIONS: dict[str, AttrFunction] = {
    "compose": AttrFunction(("ints", "ints"), "ints", "[p[i] for i in d]", _compose),
    "inverse": AttrFunction(("ints",), "ints", "the inverse permutation", inverse),
    "identity": AttrFunction(("int",), "ints", "[0 … n-1]", lambda n: tuple(range(n))),
    "take": AttrFunction(("ints", "int"), "ints", "the first n", lambda p, n: p[:n]),
    "inner": AttrFunction(("ints", "int"), "ints", "entries from n on, minus n", inner_entries),
    "len": AttrFunction(("ints|tensors",), "int", "how many", len),
    "rank": AttrFunction(("tensor",), "int", "number of dims", lambda x: len(x.shape)),
    "shape": AttrFunction(("tensor",), "ints", "extents", lambda x: x.shape),
    "uses": AttrFunction(("tensor",), "int", "uses in the input program", lambda x: x.uses),
    "is_identity": AttrFunction(("ints",), "bool", "p is 0 … n-1", _is_identity),
    "is_block_diagonal": AttrFunction(
        ("ints", "int"), "bool", "the first n entries are below n", is_block_diagonal
    ),
    "same_layout": AttrFunction(
        ("layout", "layout"), "bool", "equal, padding included", lambda a, b: a == b
    ),
    "same_tiles": AttrFunction(
        ("layout", "layout"), "bool", "equal but for what the padding holds", same_tiles
    ),
    "relaxes": AttrFunction(
        ("layout", "layout"), "bool", "the second is the first with lanes left open", relaxes
    ),
    "is_open": AttrFunction(("layout",), "bool", "lanes beyond the end hold anything", is_open),
    "forgets": AttrFunction(
        ("layout", "layout"), "bool", "the second leaves lanes open the first defines", forgets
    ),
    "masks": AttrFunction(
        ("layout", "layout"), "bool", "the second asks for padding the first does not hold", masks
    ),
    "is_same_shape": AttrFunction(
        ("groups",), "bool", "a reshape that changes nothing", lambda r: r.source == r.shape
    ),
    "is_contraction": AttrFunction(
        ("sig",), "bool", "a sum of products with m, n or k loops", _is_contraction
    ),
    "is_elementwise": AttrFunction(
        ("sig",), "bool", "no reduction loop", lambda g: g.rank == len(g.sizes)
    ),
    "precision": AttrFunction(
        ("sig",), "str", 'of a contraction, such as "high"; "" of other ops', lambda g: g.precision
    ),
    "is_tiled": AttrFunction(("sig",), "bool", "already packed by a tile", lambda g: bool(g.tile)),
    "target.tiles": AttrFunction(
        ("sig",), "tiles", "the target's tiles for this contraction", no_tiles
    ),
}
