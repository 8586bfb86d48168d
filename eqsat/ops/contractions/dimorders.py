"""Convolutions by the order of their dims (nhwc, nchw, …): what it is, and the same in another one.

A dim of an image is named n (images), c (channels, a group loop before them included) or d, h, w (a
place); one of a filter o, i, or d, h, w. Dims of extent 1 have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map
from eqsat.model.generic import Generic
from eqsat.ops.contractions.convolution import Convolution, spatial_contraction
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.propagate import permute_operand, permute_result
from eqsat.ops.movement.lists import inverse

PLACES = "dhw"
Perm = tuple[int, ...]


@dataclass(frozen=True)
class Orders:
    """The dims of a convolution by letter; "" is a dim that no loop indexes."""

    image: tuple[str, ...]
    filters: tuple[str, ...]
    result: tuple[str, ...]


@dataclass(frozen=True)
class OrderedConvolution:
    """A convolution over transposed operands with a transposed result; None: as it is."""

    lhs: Perm | None
    rhs: Perm | None
    sig: Generic
    result: Perm | None


def orders(g: Generic) -> Orders | None:
    """How the dims of a convolution lie; None if it is none, or a dim has no single letter."""
    found = spatial_contraction(g)
    if found is None or g.tile:
        return None
    places = dict(zip(found.spatial, PLACES[-len(found.spatial) :], strict=False))
    if len(places) < len(found.spatial):
        return None
    places |= _window_letters(g, found, places)
    own = dict.fromkeys(found.images, "n") | places
    image = own | dict.fromkeys((*found.groups, *found.channels), "c")
    filters = places | dict.fromkeys(found.channels, "i")
    filters |= dict.fromkeys((*found.groups, *found.filters), "o")
    result = own | dict.fromkeys((*found.groups, *found.filters), "c")
    read = [_letters(m, n) for m, n in _named(g, found, image, filters)]
    if None in read:
        return None
    lhs, rhs = (r or () for r in read)
    image_dims, filter_dims = (lhs, rhs) if found.image == 0 else (rhs, lhs)
    return Orders(image_dims, filter_dims, tuple(result.get(d, "") for d in range(g.rank)))


def _named(
    g: Generic, found: Convolution, image: dict[int, str], filters: dict[int, str]
) -> list[tuple[Map, dict[int, str]]]:
    names = (image, filters) if found.image == 0 else (filters, image)
    return list(zip(g.maps, names, strict=True))


def _window_letters(g: Generic, found: Convolution, places: dict[int, str]) -> dict[int, str]:
    """The loops of windows have the letter of the place they stand in a sum with."""
    letters: dict[int, str] = {}
    for e in g.maps[found.image]:
        at = [places[d] for d, _ in e.terms if d in places]
        if len(at) == 1:
            letters |= {d: at[0] for d, _ in e.terms if d not in places}
    return letters


def _letters(m: Map, names: dict[int, str]) -> tuple[str, ...] | None:
    found = []
    for e in m:
        letters = {names.get(d, "?") for d, _ in e.terms}
        if len(letters) > 1 or "?" in letters:
            return None
        found.append(letters.pop() if letters else "")
    return tuple(found)


def lies_in(letters: Sequence[str], shape: Sequence[int], order: str) -> bool:
    """Whether dims lie in an order such as nhwc; those of extent 1 may lie anywhere."""
    ranks = [order.find(c) for c, s in zip(letters, shape, strict=True) if s > 1]
    return ranks == sorted(ranks)


def _perm(letters: Sequence[str], order: str) -> Perm | None:
    """The transposition into an order; None if nothing moves. Dims without a letter come first."""
    perm = tuple(sorted(range(len(letters)), key=lambda q: (order.find(letters[q] or "?"), q)))
    return None if perm == tuple(range(len(perm))) else perm


def order_convolution(g: Generic, image: str, filters: str) -> OrderedConvolution | None:
    """The convolution on operands in these orders, its result in that of the image.

    None if `g` is no convolution of so many places, or lies so already.
    """
    found, now = spatial_contraction(g), orders(g)
    if found is None or now is None or len(image) != len(found.spatial) + 2:
        return None
    perms = [_perm(now.image, image), _perm(now.filters, filters)]
    lhs, rhs = perms if found.image == 0 else perms[::-1]
    result = _perm(now.result, image)
    sig: Generic | None = g
    for i, perm in enumerate((lhs, rhs)):
        if perm is not None and sig is not None:
            sig = permute_operand(sig, i, inverse(perm))
    if result is not None and sig is not None:
        sig = permute_result(sig, result)
    if sig is None or sig == g:
        return None
    return OrderedConvolution(lhs, rhs, sig, None if result is None else inverse(result))


# ---- the orders in use ---------------------------------------------------------------------------
COMMON = (("nhwc", "hwio"), ("nchw", "oihw"), ("nwc", "wio"), ("ncw", "oiw"))


def common_orders(g: Generic) -> list[OrderedConvolution]:
    """The two orders in common use, where no target says which ones it has kernels for."""
    found = [order_convolution(g, *pair) for pair in COMMON]
    return [o for o in found if o is not None]


FUNCTIONS = attr_functions(("target.orders", common_orders))
