"""The windows of HLO's convolutions and pools: `window={…}` and `dim_labels=…`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.frontends.hlo.text import Instruction

_LABELS = re.compile(r"([bf\d]+)_([io\d]+)->([bf\d]+)")
_KEYS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


@dataclass(frozen=True)
class Window:
    """Of each windowed dim: extent, step, zeros before and after, dilations, and if it turns."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[tuple[int, int], ...]
    lhs_dilate: tuple[int, ...]
    rhs_dilate: tuple[int, ...]
    reversal: tuple[int, ...]

    def positions(self, extents: Sequence[int]) -> tuple[int, ...]:
        """How many places it has along dims of these extents; below 1 where it does not fit."""
        return tuple(
            (low + high + _spread(n, base) - _spread(size, dilation)) // stride + 1
            for n, size, stride, (low, high), base, dilation in zip(
                extents, self.size, self.stride, self.pad, self.lhs_dilate, self.rhs_dilate,
                strict=True,
            )
        )  # fmt: skip


class DimNumbers(NamedTuple):
    """Dims of image, kernel and result: (batch or out, feature or in, windowed ones in order)."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def _spread(extent: int, dilation: int) -> int:
    return max(extent - 1, 0) * dilation + min(extent, 1)


def window_of(i: Instruction, rank: int) -> Window:
    """The window of an instruction over `rank` dims; ValueError if it is not one."""
    text = i.attributes.get("window", "{}")
    found = dict(re.findall(r"(\w+)=([\dx_\-]+)", text))
    if set(found) - set(_KEYS):
        raise ValueError(f"`{text}` is no window")
    sizes, strides, lhs, rhs = (
        _numbers(found.get(k), rank, 1) for k in ("size", "stride", "lhs_dilate", "rhs_dilate")
    )
    if min((*sizes, *strides, *lhs, *rhs), default=1) < 1:
        raise ValueError(f"`{text}` has numbers below 1")
    pads = found["pad"].split("x") if "pad" in found else ["0_0"] * rank
    edges = [tuple(map(int, p.split("_"))) for p in pads]
    if len(edges) != rank or any(len(e) != 2 for e in edges):
        raise ValueError(f"`{text}` has no two pads for each of {rank} dims")
    pad = tuple((e[0], e[1]) for e in edges)
    return Window(sizes, strides, pad, lhs, rhs, _numbers(found.get("rhs_reversal"), rank, 0))


def _numbers(text: str | None, rank: int, otherwise: int) -> tuple[int, ...]:
    found = tuple(map(int, text.split("x"))) if text else (otherwise,) * rank
    if len(found) != rank:
        raise ValueError(f"`{text}` has not {rank} numbers")
    return found


def dimension_numbers(labels: str) -> DimNumbers:
    """`b01f_01io->b01f`; ValueError if it is not of that form."""
    found = _LABELS.fullmatch(labels)
    if found is None:
        raise ValueError(f"`{labels}` labels no dims")
    sides = zip(found.groups(), ("bf", "oi", "bf"), strict=True)
    specs = [_spec(text, first) for text, first in sides]
    if len({len(s) for s in specs}) != 1:
        raise ValueError(f"`{labels}` labels other numbers of dims")
    return DimNumbers(*specs)


def _spec(text: str, first: str) -> tuple[int, ...]:
    wanted = first + "".join(str(d) for d in range(len(text) - 2))
    if sorted(text) != sorted(wanted):
        raise ValueError(f"`{text}` has not each of `{wanted}` once")
    return tuple(text.index(label) for label in wanted)


def check_convolution(
    window: Window,
    numbers: DimNumbers,
    groups: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """ValueError if the shapes of image, kernel and result do not belong together.

    groups: of features and of images, at most one of them above 1.
    """
    if any(len(s) != len(spec) for s, spec in zip(shapes, numbers, strict=True)):
        raise ValueError(f"{len(numbers.lhs_spec)} dims are labelled")
    image, kernel, result = (
        [shape[d] for d in spec] for shape, spec in zip(shapes, numbers, strict=True)
    )
    by_feature, by_batch = groups
    if min(groups) != 1:
        raise ValueError("one of the two group counts has to be 1")
    if kernel[2:] != list(window.size):
        raise ValueError(f"the window is {list(window.size)}, the kernel has {kernel[2:]}")
    wanted = [image[0] // by_batch, kernel[0], *window.positions(image[2:])]
    if result != wanted:
        raise ValueError(f"batch, features and places are {wanted}, its type has {result}")
    is_split = kernel[0] % max(groups) == 0 and image[0] % by_batch == 0
    if image[1] != kernel[1] * by_feature or not is_split:
        raise ValueError(f"{image[1]} features of the image, {kernel[1]} of the kernel")
