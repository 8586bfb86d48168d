"""Convolutions as contractions: which operand is the image, which loops are spatial, how they pack.

A convolution is a contraction whose spatial loops stand in sums like `2*d2 + d5` (windows); a 1x1
one has bare spatial loops and looks like a matmul with several m loops. Both are packed along
channels only, after tpp-mlir's ToBlockLayoutAndBack: image N C' H W c, filter K' C' R S c k, result
N K' P Q k, whatever the order of the dims was before.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.model.affine import Map, dim, map_loops
from eqsat.model.expr import arg
from eqsat.model.generic import Generic, Yield
from eqsat.model.precision import NONE
from eqsat.ops.contractions.roles import Roles, contraction_roles, mixed_dims
from eqsat.ops.declare import attr_functions
from eqsat.ops.generics.canonical import canonical_generic


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
    """The same, a depthwise convolution included: groups, and neither filters nor channels."""
    roles = contraction_roles(g)
    if roles is None or not (roles.k or (roles.batch and has_windows(g, roles))):
        return None
    image = _image(g, roles)
    own, filters = (roles.m, roles.n) if image == 0 else (roles.n, roles.m)
    read = {d for m in g.maps for e in m for d, _ in e.terms}
    units = tuple(d for d in roles.other if d < g.rank and d not in read)
    windows = sum(d < g.rank for d in roles.other) - len(units)
    places = tuple(sorted({*own, *(d for d in roles.other if d < g.rank)} - {*units}))
    # the loop over images comes first and is always there in practice, be it one that nobody reads
    spatial = len(places) if units else max(windows, len(places) - 1)
    if spatial < 1 or (not has_windows(g, roles) and _large(g, places) < 2):
        return None
    cut = len(places) - spatial
    rest = tuple(d for d in roles.other if d >= g.rank)
    images = (*units, *places[:cut])
    return Convolution(image, roles.batch, images, places[cut:], filters, roles.k, rest)


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


def block_rank(found: Convolution) -> dict[int, int]:
    """The order of loops in packed tensors: groups, images, filters, channels, then places."""
    order = (*found.groups, *found.images, *found.filters, *found.channels, *found.spatial)
    return {d: i for i, d in enumerate((*order, *found.windows))}


def panel_rank(found: Convolution) -> dict[int, int]:
    """The same for panels: the image and the result stay as they are, channels innermost."""
    order = (*found.groups, *found.images, *found.spatial, *found.filters)
    return {d: i for i, d in enumerate((*order, *found.windows, *found.channels))}


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
    found, roles = convolution(g), contraction_roles(g)
    if found is None or roles is None or g.tile or found.image != i or not has_windows(g, roles):
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


FUNCTIONS = attr_functions(im2col)
