"""Attribute functions on lists, permutations and tensor variables, and conditions on attributes."""

from __future__ import annotations

from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.movement import Reshape
from eqsat.model.target import Tile
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.declare import attr_functions
from eqsat.ops.vocabulary import AttrFunction


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The inverse permutation."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def undone(groups: Reshape) -> Reshape:
    """The reshape back."""
    return Reshape(groups.shape, groups.source)


def is_block_diagonal(perm: tuple[int, ...], n: int) -> bool:
    """A permutation of a packed shape that keeps outer dims outer (rank n) and tile dims inner."""
    return all((p < n) == (i < n) for i, p in enumerate(perm))


def no_tiles(_: Generic) -> tuple[Tile, ...]:
    """The vocabulary when no target is at hand: empty."""
    return ()


def is_open(a: Layout) -> bool:
    """Whether some lane beyond the end may hold anything."""
    return "?" in a.pads


def relaxes(a: Layout, b: Layout) -> bool:
    """Where b leaves lanes open, anything will do; elsewhere a holds what b asks for."""
    fits = same_tiles(a, b) and all(y in (x, "?") for x, y in zip(a.pads, b.pads, strict=True))
    return fits and is_open(b)


def forgets(a: Layout, b: Layout) -> bool:
    """b is another layout than a, with some lanes left open that a defines."""
    return a != b and relaxes(a, b)


def masks(a: Layout, b: Layout) -> bool:
    """b is a with padding that has to be written anew."""
    return a != b and same_tiles(a, b) and not relaxes(a, b)


def _compose(p: tuple[int, ...], d: tuple[int, ...]) -> tuple[int, ...] | None:
    return tuple(p[i] for i in d) if all(i < len(p) for i in d) else None


def is_identity(p: tuple[int, ...]) -> bool:
    """0 … n-1."""
    return p == tuple(range(len(p)))


def _changes_nothing(groups: Reshape) -> bool:
    """A reshape to the shape that is there."""
    return groups.source == groups.shape


def same_tiles(a: Layout, b: Layout) -> bool:
    """Equal but for what the padding holds."""
    return (a.source, a.pos, a.tiles, a.outer) == (b.source, b.pos, b.tiles, b.outer)


def _is_contraction(g: Generic) -> bool:
    return contraction_roles(g) is not None


def _fact(name: str, doc: str) -> AttrFunction:
    """A fact of the input program, see `ops.programs.facts`."""
    return AttrFunction(("tensor",), "bool", doc, lambda x: name in x.facts, is_fact=True)


FUNCTIONS = attr_functions(same_tiles, relaxes, is_open, forgets, masks)
FUNCTIONS |= attr_functions(
    is_identity, ("is_identity", _changes_nothing), inverse, ("inverse", undone)
)
FUNCTIONS |= {
    "compose": AttrFunction(("ints", "ints"), "ints", "[p[i] for i in d]", _compose),
    "identity": AttrFunction(("int",), "ints", "[0 … n-1]", lambda n: tuple(range(n))),
    "len": AttrFunction(("ints|tensors",), "int", "how many", len),
    "uses": AttrFunction(("tensor",), "int", "uses in the input program", lambda x: x.uses),
    "wasted": _fact("wasted", "of this value of the input program less than nine tenths are read"),
    "defined": _fact("defined", "of the input program, and no lane of it may hold anything"),
    "counts": _fact("counts", "a weight of the input program that holds 0, 1, 2 …"),
    "short": _fact("short", "a value of the input program of integers of 8 or 16 bits"),
    "is_contraction": AttrFunction(
        ("sig",), "bool", "a sum of products with m, n or k loops", _is_contraction
    ),
    "target.tiles": AttrFunction(
        ("sig",), "tiles", "the target's tiles for this contraction", no_tiles
    ),
}
