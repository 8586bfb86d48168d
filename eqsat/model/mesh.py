"""A mesh of devices, and how a value is spread over it.

A spread says for every axis of a mesh what becomes of a value along it: a dim is cut into as many
blocks as the axis has devices, every device holds all of it, or every device holds a part of a sum
(or of another reduction) of which the value is the whole. A cut value is a pack: its tile is what
one device holds, and its block dims lie on the axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.model.attr import Shape
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.layout import Layout

REPLICATED = ""  # all of the value is on every device of the axis
PARTIAL = ("add", "max", "min")  # reductions whose parts may stay on their devices
# per axis of a mesh: the dim that is cut over it, REPLICATED, or the reduction of its parts
Spread = tuple[int | str, ...]


@dataclass(frozen=True)
class Axis:
    """An axis of a mesh: a ring or line of devices, each with a link to the next.

    bandwidth: bytes per second of a link, one way. latency_ps: of one hop.
    """

    name: str
    devices: int
    bandwidth: float
    latency_ps: int

    def hop_ps(self, nbytes: float) -> float:
        """Picoseconds for so many bytes to the next device."""
        return self.latency_ps + nbytes * PS_PER_SECOND / self.bandwidth


@dataclass(frozen=True)
class AxisLink:
    """The links of an axis of this name, whether or not a mesh has it: as of `Axis`."""

    name: str
    bandwidth: float
    latency_ps: int

    def axis(self, devices: int) -> Axis:
        return Axis(self.name, devices, self.bandwidth, self.latency_ps)


@dataclass(frozen=True)
class Mesh:
    """Devices that are alike, by the axes of their links; the first axis varies slowest.

    memory_bytes: what each device may hold at once; None is no limit. shards: spreads that the
    caller asked for, by the name of an argument or `result0`.
    """

    axes: tuple[Axis, ...]
    memory_bytes: int | None = None
    shards: tuple[tuple[str, str], ...] = ()

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(a.devices for a in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(a.devices for a in self.axes)

    @property
    def whole(self) -> Spread:
        """The spread of a value that every device holds."""
        return (REPLICATED,) * len(self.axes)

    def verify(self) -> None:
        """ValueError if an axis is named twice, or a figure makes no sense."""
        if not self.axes or len(set(self.names)) < len(self.axes):
            raise ValueError("a mesh has axes, each with a name of its own")
        if any(a.devices < 1 or a.bandwidth <= 0 or a.latency_ps < 0 for a in self.axes):
            raise ValueError("an axis has at least one device, and links with a bandwidth")

    def blocks(self, spread: Spread, rank: int) -> tuple[int, ...]:
        """Into how many blocks each dim is cut."""
        found = [1] * rank
        for kind, axis in zip(spread, self.axes, strict=True):
            if isinstance(kind, int):
                found[kind] *= axis.devices
        return tuple(found)

    def fits(self, spread: Spread, shape: Shape) -> bool:
        """Whether every block of a tensor of this shape is as large as the others."""
        cut = [k for k in spread if isinstance(k, int)]
        if any(not 0 <= d < len(shape) for d in cut):
            return False
        return all(s % b == 0 for s, b in zip(shape, self.blocks(spread, len(shape)), strict=True))

    def local(self, spread: Spread, shape: Shape) -> Shape:
        """The shape of what one device holds."""
        return tuple(s // b for s, b in zip(shape, self.blocks(spread, len(shape)), strict=True))

    def as_pack(self, spread: Spread, shape: Shape) -> Layout:
        """The pack that a spread is: of every cut dim a tile per device, its blocks in front."""
        local = self.local(spread, shape)
        pos = tuple(d for d, (s, n) in enumerate(zip(shape, local, strict=True)) if s != n)
        tiles = tuple(local[d] for d in pos)
        return Layout(shape, pos, tiles, tuple(range(len(shape))), ("-",) * len(pos))

    def text(self, spread: Spread, rank: int) -> str:
        """`[data, -, model]`, then `add over AXIS` where devices hold parts."""
        dims = [[a for k, a in self._named(spread) if k == d] for d in range(rank)]
        text = f"[{', '.join('+'.join(names) or '-' for names in dims)}]"
        parts = [f"{k} over {a}" for k, a in self._named(spread) if k in PARTIAL]
        return ", ".join([text, *parts])

    def _named(self, spread: Spread) -> Iterator[tuple[int | str, str]]:
        yield from zip(spread, self.names, strict=True)

    def to_text(self) -> str:
        """`data=4, model=2`."""
        return ", ".join(f"{a.name}={a.devices}" for a in self.axes)


def is_partial(spread: Spread) -> bool:
    """Whether some axis holds parts of a reduction."""
    return any(k in PARTIAL for k in spread)


def is_everywhere(spread: Spread) -> bool:
    """Whether every device holds all of the value."""
    return all(k == REPLICATED for k in spread)
