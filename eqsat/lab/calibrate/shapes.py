"""The contractions that are measured: generics by their sizes, and the regimes they stand for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.model.affine import Affine, affine, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import arg, call, cast
from eqsat.model.generic import Generic, Yield
from eqsat.model.target import Tile
from eqsat.model.tensor import DEFAULT
from eqsat.ops.contractions.convolution import order_convolution
from eqsat.ops.contractions.packing import pack_loops
from eqsat.ops.generics.canonical import canonical_generic


@dataclass(frozen=True)
class Regime:
    """Contractions that one row of a target speaks for; `when` are the row's conditions."""

    when: tuple[str, ...]
    shapes: tuple[Generic, ...]


def mnk_product(m: int, n: int, k: int, batch: int = 1, dtype: str = "f32") -> Generic:
    """[batch, m, k] times [batch, k, n]; bf16 is summed in f32, i8 in i32."""
    acc = {"bf16": "f32", "i8": "i32"}.get(dtype, dtype)
    factors = [arg(i) if dtype == acc else cast(arg(i), acc) for i in (0, 1)]
    product = Yield(call("mul", *factors), acc, "add")
    if batch == 1:
        maps = [(dim(0), dim(2)), (dim(2), dim(1))]
        sizes, shapes = [m, n, k], [(m, k), (k, n)]
    else:
        maps = [(dim(0), dim(1), dim(3)), (dim(0), dim(3), dim(2))]
        sizes, shapes = [batch, m, n, k], [(batch, m, k), (batch, k, n)]
    return canonical_generic(
        sizes, range(len(sizes) - 1), maps, shapes, [product], (), [dtype] * 2, precision=DEFAULT
    )


def nchw_conv(
    c: int, k: int, places: int, window: int, stride: int = 1, groups: int = 1
) -> Generic:
    """One NCHW image, OIHW filters; c and k are per group, `places` is the result's extent.

    A window is wider than 1. Loops of groups, and of k and c where a group has one, are left out.
    """
    size = stride * (places - 1) + window
    sizes = [1, groups, k, places, places, c, window, window]
    rows, columns = affine([(3, stride), (6, 1)]), affine([(4, stride), (7, 1)])
    image = (dim(0), dim(1), dim(5), rows, columns)
    filters = (dim(1), dim(2), dim(5), dim(6), dim(7))
    shapes = [(1, groups, c, size, size), (groups, k, c, window, window)]
    product = Yield(call("mul", arg(0), arg(1)), "f32", "add")
    loops = [d for d in range(5) if d != 1 or groups > 1]
    loops = [d for d in loops if d != 2 or k > 1 or groups == 1]
    used = [d for d in range(8) if d in loops or (d >= 5 and sizes[d] > 1)]
    maps = [_kept(m, s, used) for m, s in zip((image, filters), shapes, strict=True)]
    new = {d: i for i, d in enumerate(used)}
    return canonical_generic(
        [sizes[d] for d in used], range(len(loops)),
        [tuple(e.rename(new) for e, _ in m) for m in maps],
        [tuple(s for _, s in m) for m in maps], [product], (), ["f32"] * 2,
        precision=DEFAULT,
    )  # fmt: skip


def _kept(m: Sequence[Affine], shape: Shape, used: Sequence[int]) -> list[tuple[Affine, int]]:
    """The dims whose loops are used."""
    return [(e, s) for e, s in zip(m, shape, strict=True) if all(d in used for d, _ in e.terms)]


def in_dim_order(g: Generic, image: str, filters: str) -> Generic:
    """A convolution in other orders of dims."""
    reordered = order_convolution(g, image, filters)
    return g if reordered is None else reordered.sig


def packed(g: Generic, tile: Tile) -> Generic:
    """A contraction on operands packed by a tile that fits it."""
    packing = pack_loops(g, tile)
    assert packing is not None, "the tiles here fit their contractions"
    return packing.sig


def traffic_bytes(g: Generic) -> int:
    """Bytes of the operands and the result of an f32 generic."""
    return 4 * sum(math.prod(s) for s in (*g.shapes, g.result_shape))


SQUARE = mnk_product(512, 512, 512)
TYPES = {
    "bf16": mnk_product(256, 256, 256, dtype="bf16"),
    "i8": mnk_product(256, 256, 256, dtype="i8"),
}
MATMULS = (
    Regime(("m <= 1",), (mnk_product(1, 512, 256),)),
    Regime(("n <= 1",), (mnk_product(512, 1, 256),)),
    Regime(("m <= 4",), (mnk_product(4, 512, 256),)),
    Regime(("n <= 4",), (mnk_product(512, 4, 256),)),
    Regime(("k <= 16",), (mnk_product(512, 512, 8),)),
    Regime(("batch > 1",), (mnk_product(128, 128, 64, batch=12),)),
    Regime(("m <= 64",), (mnk_product(16, 1024, 1024), mnk_product(64, 512, 1024))),
    Regime(
        (),
        (
            SQUARE,
            mnk_product(3136, 256, 64),
            mnk_product(196, 1024, 256),
            mnk_product(128, 384, 1536),
        ),
    ),
)
CONVOLUTIONS = (
    Regime(("batch > 1", "c <= 1"), (nchw_conv(1, 1, 28, 3, groups=64),)),
    Regime(("batch > 1",), (nchw_conv(16, 16, 28, 3, groups=4),)),
    Regime(("c <= 4", "k <= 32"), (nchw_conv(3, 32, 56, 7, 2),)),
    Regime(("c <= 4",), (nchw_conv(3, 64, 112, 7, 2),)),
    Regime(("k <= 32",), (nchw_conv(32, 32, 56, 3),)),
    Regime(("places <= 64",), (nchw_conv(512, 512, 7, 3),)),
    Regime(("places <= 256",), (nchw_conv(256, 256, 14, 3),)),
    Regime((), (nchw_conv(64, 64, 56, 3), nchw_conv(128, 128, 28, 3))),
)
ORDERS = (("nhwc", "hwio"), ("nchw", "oihw"))
# large images and large filters, as both are laid out anew for a packed convolution
TILES: dict[str, tuple[Tile, tuple[Generic, ...]]] = {
    "matmul": (Tile((("m", 16), ("n", 16), ("k", 1)), 1.0), (SQUARE, mnk_product(128, 384, 1536))),
    "conv2d": (
        Tile((("c", 16), ("k", 16)), 1.0),
        (nchw_conv(64, 64, 28, 3), nchw_conv(256, 256, 7, 3)),
    ),
}
