"""Convolutions as contractions: image and filter, spatial loops, how they pack, orders of dims.

A convolution is a contraction whose spatial loops stand in sums like `2*d2 + d5` (windows); a 1x1
one has bare spatial loops and looks like a matmul with several m loops. Both are packed along
channels only, after tpp-mlir's ToBlockLayoutAndBack: image N C' H W c, filter K' C' R S c k, result
N K' P Q k, whatever the order of the dims was before.

In a name of an order (nhwc, nchw, …) a dim of an image is named n (images), c (channels, a group
loop before them included) or d, h, w (a place); one of a filter o, i, or d, h, w. Dims of extent 1
have no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Map, dim, map_loops
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import NONE
from eqsat.ops.contractions.roles import Roles, contraction_roles, mixed_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.generics.propagate import permute_operand, permute_result
from eqsat.ops.movement.lists import inverse


# ---- roles and packs -----------------------------------------------------------------------------
@dataclass(frozen=True)
class Convolution:
    """Loops of a convolution by what they run over; batch loops are groups."""

    image: int  # which operand; the other one holds the filters
    groups: tuple[int, ...]
    images: tuple[int, ...]  # the loops over images (N)
    spatial: tuple[int, ...]  # over the result's positions
    filters: tuple[int, ...]
    channels: tuple[int, ...]  # over input channels
    windows: tuple[int, ...]  # all other reduction loops


@dataclass(frozen=True)
class Im2col:
    """A convolution as a contraction over a matrix that repeats the image's elements."""

    matrix: Generic
    sig: Generic


def convolution(g: Generic) -> Convolution | None:
    """The loops of a convolution, a 1x1 one included; None if `g` has no spatial loops.

    The image is the operand with windows; without any, the one with more loops of its own.
    """
    roles = contraction_roles(g)
    return None if roles is None or not roles.k else spatial_contraction(g)


def spatial_contraction(g: Generic) -> Convolution | None:
    """Roles of loops, depthwise convolutions included: groups, and neither filters nor channels."""
    roles = contraction_roles(g)
    if roles is None or not (roles.k or (roles.batch and has_windows(g, roles))):
        return None
    image = _image(g, roles)
    image_loops, filters = (roles.m, roles.n) if image == 0 else (roles.n, roles.m)
    read = {d for m in g.maps for e in m for d, _ in e.terms}
    units = tuple(d for d in roles.other if d < g.rank and d not in read)
    windows = sum(d < g.rank for d in roles.other) - len(units)
    places = tuple(sorted({*image_loops, *(d for d in roles.other if d < g.rank)} - {*units}))
    # the loop over images comes first and is always there in practice, be it one that nobody reads
    spatial = len(places) if units else max(windows, len(places) - 1)
    if spatial < 1 or (not has_windows(g, roles) and _large(g, places) < 2):
        return None
    cut = len(places) - spatial
    rest = tuple(d for d in roles.other if d >= g.rank)
    # wherever the loop over images stands, no window slides along it
    by_window = sorted(places, key=lambda d: (d in roles.other, d))
    images = (*units, *by_window[:cut])
    slid = tuple(sorted(by_window[cut:]))
    return Convolution(image, roles.batch, images, slid, filters, roles.k, rest)


def has_windows(g: Generic, roles: Roles) -> bool:
    """Whether some loop of extent above 1 stands in a sum or has a stride."""
    return any(g.sizes[d] > 1 for m in g.maps for d in mixed_dims(m) if d in roles.other)


def _image(g: Generic, roles: Roles) -> int:
    windows = [len(mixed_dims(m)) for m in g.maps]
    if windows[0] != windows[1]:
        return int(windows[1] > windows[0])
    return int(_large(g, roles.n) > _large(g, roles.m))


def _large(g: Generic, loops: tuple[int, ...]) -> int:
    return sum(g.sizes[d] > 1 for d in loops)


def block_rank(conv: Convolution) -> dict[int, int]:
    """The order of loops in packed tensors: groups, images, filters, channels, then places."""
    order = (*conv.groups, *conv.images, *conv.filters, *conv.channels, *conv.spatial)
    return {d: i for i, d in enumerate((*order, *conv.windows))}


def panel_rank(conv: Convolution) -> dict[int, int]:
    """The order of loops in panels: image and result stay as they are, channels innermost."""
    order = (*conv.groups, *conv.images, *conv.spatial, *conv.filters)
    return {d: i for i, d in enumerate((*order, *conv.windows, *conv.channels))}


def block_order_of(m: Map, rank: dict[int, int]) -> tuple[int, ...]:
    """The outer order of an operand: its dims by the first of their loops.

    Constants come first, and so does a loop without a role: one that only this operand reads.
    """
    first = [min((rank.get(d, -1) for d, _ in e.terms), default=-1) for e in m]
    return tuple(sorted(range(len(m)), key=lambda q: (first[q], q)))


def im2col(g: Generic, i: int) -> Im2col | None:
    """Copy the image (operand i) once per window position, then contract without windows.

    The matrix has the places first and the window with its channels last, in the order in which the
    filter holds them; strides and dilations are in the copy's map. After ConvertConv2DToImg2Col.
    """
    conv, roles = convolution(g), contraction_roles(g)
    if conv is None or roles is None or g.tile or conv.image != i or not has_windows(g, roles):
        return None
    read = map_loops(g.maps[i])
    filters = [d for e in g.maps[1 - i] for d, _ in e.terms]
    order = [d for d in range(g.rank) if d in read]
    order += sorted(read - set(order), key=lambda d: [*filters, d].index(d))
    sizes = [s if d in read else 1 for d, s in enumerate(g.sizes)]
    copied = Yield(arg(0), g.dtypes[i])
    matrix = canonical_generic(
        sizes, order, [g.maps[i]], [g.shapes[i]], [copied], (), [g.dtypes[i]], precision=NONE
    )
    maps, shapes = list(g.maps), list(g.shapes)
    maps[i], shapes[i] = tuple(dim(d) for d in order), matrix.result_shape
    sig = canonical_generic(
        g.sizes, range(g.rank), maps, shapes, g.yields, (), g.dtypes, precision=g.precision
    )
    return Im2col(matrix, sig)


# ---- orders of dims ------------------------------------------------------------------------------
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
    conv = spatial_contraction(g)
    if conv is None or g.tile:
        return None
    places: dict[int, str] = dict(zip(conv.spatial, PLACES[-len(conv.spatial) :], strict=False))
    if len(places) < len(conv.spatial):
        return None
    places |= _window_letters(g, conv, places)
    letters = dict.fromkeys(conv.images, "n") | places
    image = letters | dict.fromkeys((*conv.groups, *conv.channels), "c")
    filters = places | dict.fromkeys(conv.channels, "i")
    filters |= dict.fromkeys((*conv.groups, *conv.filters), "o")
    result = letters | dict.fromkeys((*conv.groups, *conv.filters), "c")
    read = [_letters(m, n) for m, n in _named(g, conv, image, filters)]
    if None in read:
        return None
    lhs, rhs = (r or () for r in read)
    image_dims, filter_dims = (lhs, rhs) if conv.image == 0 else (rhs, lhs)
    return Orders(image_dims, filter_dims, tuple(result.get(d, "") for d in range(g.rank)))


def _named(
    g: Generic, conv: Convolution, image: dict[int, str], filters: dict[int, str]
) -> list[tuple[Map, dict[int, str]]]:
    names = (image, filters) if conv.image == 0 else (filters, image)
    return list(zip(g.maps, names, strict=True))


def _window_letters(g: Generic, conv: Convolution, places: dict[int, str]) -> dict[int, str]:
    """The loops of windows have the letter of the place they stand in a sum with."""
    letters: dict[int, str] = {}
    for e in g.maps[conv.image]:
        at = [places[d] for d, _ in e.terms if d in places]
        if len(at) == 1:
            letters |= {d: at[0] for d, _ in e.terms if d not in places}
    return letters


def _letters(m: Map, names: dict[int, str]) -> tuple[str, ...] | None:
    dims = []
    for e in m:
        letters = {names.get(d, "?") for d, _ in e.terms}
        if len(letters) > 1 or "?" in letters:
            return None
        dims.append(letters.pop() if letters else "")
    return tuple(dims)


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
    conv, now = spatial_contraction(g), orders(g)
    if conv is None or now is None or len(image) != len(conv.spatial) + 2:
        return None
    perms = [_perm(now.image, image), _perm(now.filters, filters)]
    lhs, rhs = perms if conv.image == 0 else perms[::-1]
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
    ordered = [order_convolution(g, *pair) for pair in COMMON]
    return [o for o in ordered if o is not None]


FUNCTIONS = attr_functions(im2col, ("target.orders", common_orders))
