"""Windows of convolutions and pools: strides, dilations, pads, and the sizes they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.frontends.onnxgraph.call import OnnxCall

MOST = 2**20  # of a kernel, stride, dilation or pad; far beyond any model


@dataclass(frozen=True)
class Windows:
    """Per spatial axis: kernel, stride, dilation, and the pad before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def reach(self, d: int) -> int:
        """Elements of the axis between the first and last one of a window, both counted."""
        return (self.kernel[d] - 1) * self.dilations[d] + 1

    def count(self, size: int, d: int) -> int:
        """Windows along an axis."""
        return (size + sum(self.pads[d]) - self.reach(d)) // self.strides[d] + 1


def windows_of(c: OnnxCall, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows of a node over an image of this size; E368 if an attribute makes no sense."""
    rank = len(spatial)
    sizes = _several(c, "kernel_shape", kernel, rank, 1)
    strides = _several(c, "strides", (1,) * rank, rank, 1)
    dilations = _several(c, "dilations", (1,) * rank, rank, 1)
    plain = Windows(sizes, strides, dilations, ((0, 0),) * rank)
    pads = _pads(c, plain, spatial)
    found = Windows(sizes, strides, dilations, pads)
    for d, size in enumerate(spatial):
        if found.count(size, d) < 1:
            reach = found.reach(d)
            raise c.error("E368", f"has a window of {reach} over {size} elements: nothing is left")
    return found


def _several(
    c: OnnxCall, name: str, default: Sequence[int], rank: int, least: int
) -> tuple[int, ...]:
    found = tuple(int(v) for v in c.attribute(name, tuple(default)))
    if len(found) != rank or any(not least <= v <= MOST for v in found):
        raise c.error("E368", f"has {name} {list(found)[:16]} over {rank} spatial axes")
    return found


def _pads(c: OnnxCall, w: Windows, spatial: Sequence[int]) -> tuple[tuple[int, int], ...]:
    auto, rank = c.attribute("auto_pad", "NOTSET"), len(spatial)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(_same(w, size, d, auto == "SAME_UPPER") for d, size in enumerate(spatial))
    if auto not in ("NOTSET", "VALID", ""):
        raise c.error("E362", f"has the unknown auto_pad `{auto}`")
    given = (0,) * (2 * rank) if auto == "VALID" else c.attribute("pads", (0,) * (2 * rank))
    if len(given) != 2 * rank or any(not 0 <= v <= MOST for v in given):
        raise c.error("E368", f"has pads {list(given)[:16]} over {rank} spatial axes")
    return tuple((int(given[d]), int(given[d + rank])) for d in range(rank))


def _same(w: Windows, size: int, d: int, upper: bool) -> tuple[int, int]:
    """Pads that give ceil(size / stride) windows; the odd one behind, or before."""
    count = -(-size // w.strides[d])
    missing = max((count - 1) * w.strides[d] + w.reach(d) - size, 0)
    small, large = missing // 2, missing - missing // 2
    return (small, large) if upper else (large, small)
