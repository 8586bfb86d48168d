"""Mesh: equal devices, how a value is spread over them, and the plan of a schedule (`MeshPlan`).

A spread says for every axis of a mesh what becomes of a value along it: a dim is cut into as many
blocks as the axis has devices, every device holds all of it, or every device holds a part of a sum
(or of another reduction) of which the value is the whole. A cut value is a pack: its tile is what
one device holds, and its block dims lie on the axes. The plan says how the values of a schedule are
spread, and what moves between devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from eqsat.model.attr import Shape
from eqsat.model.devices import PS_PER_SECOND
from eqsat.model.files import JsonRecord
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
        counts = [1] * rank
        for kind, axis in zip(spread, self.axes, strict=True):
            if isinstance(kind, int):
                counts[kind] *= axis.devices
        return tuple(counts)

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


ANSWER, INPUT = "answer", "input"  # the schedules that a plan may be of
SLICE = "slice"  # a device takes its block of what it holds: nothing is sent
# conversions between spreads that send something
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


@dataclass(frozen=True)
class MeshStep:
    """One conversion along one axis of the mesh, of `nbytes` that a device holds before it.

    kind: `slice` or one of COLLECTIVES. dim: that is cut before (`all-gather`, `all-to-all`) or
    after it; to: that an `all-to-all` cuts. combine: the reduction of parts. rule: that permits it.
    """

    kind: str
    axis: str
    dim: int = -1
    to: int = -1
    combine: str = ""
    nbytes: int = 0
    time_ps: int = 0
    rule: str = ""

    def to_text(self) -> str:
        where = "" if self.dim < 0 else f" dim {self.dim}"
        where += "" if self.to < 0 else f" to dim {self.to}"
        how = "" if self.combine in ("", "add") else f" ({self.combine})"
        return f"{self.kind}{how} over {self.axis}{where}"


@dataclass(frozen=True)
class Reshard:
    """A value taken from one spread to another: once behind its maker, or for one reader.

    reader: the node that reads it so; -1: all of its readers.
    """

    node: int
    reader: int
    origin: Spread
    result: Spread
    steps: tuple[MeshStep, ...]

    @property
    def time_ps(self) -> int:
        return sum(s.time_ps for s in self.steps)

    @property
    def sent(self) -> tuple[MeshStep, ...]:
        """The steps that are collectives."""
        return tuple(s for s in self.steps if s.kind != SLICE)


@dataclass(frozen=True)
class Stream:
    """An operand that its op gathers itself, panel by panel: what gathers one of them.

    dim: of the operand, along which panels lie.
    """

    operand: int
    dim: int
    steps: tuple[MeshStep, ...]


@dataclass(frozen=True)
class Sharded:
    """One value: how its op makes it, how it is held, and what the op reads of each operand.

    taken: what it computes on; other than `reads` where it gathers operands in `panels` steps, as
    `streams` say. cut_by, kept_by: per axis the rule that permits it; "" for what the caller asked.
    """

    node: int
    made: Spread
    held: Spread
    reads: tuple[Spread, ...] = ()
    cuts: tuple[str, ...] = ()  # per axis what of the op it cuts, "" for nothing
    time_ps: int = 0  # of the op on one device
    cut_by: tuple[str, ...] = ()
    kept_by: tuple[str, ...] = ()
    taken: tuple[Spread, ...] = ()
    panels: int = 0
    streams: tuple[Stream, ...] = ()

    @property
    def stream_ps(self) -> int:
        """Picoseconds to gather its panels."""
        return self.panels * sum(step.time_ps for s in self.streams for step in s.steps)


@dataclass(frozen=True)
class PlanRule:
    """A spread rule: where it stands, how many choices it permits here, and how many are taken."""

    name: str
    at: str
    permits: int
    used: int


@dataclass(frozen=True)
class MeshPlan(JsonRecord):
    """The answer on a mesh: spreads, conversions between them, time and bytes of every device.

    of: `answer` or `input`: the schedule that is cut. time_ps: of the whole, launches included;
    bound_ps: no choice of the model is quicker, and peak_bound: none that is as quick holds less.
    """

    FORMAT = 1

    mesh: Mesh
    of: str
    values: tuple[Sharded, ...]
    reshards: tuple[Reshard, ...]
    time_ps: int
    compute_ps: int
    sent_ps: int
    peak_bytes: int
    resident_bytes: int
    bound_ps: int
    stop: str = "proven"
    alike: int = 1  # how many ops share a choice at most, as they are those of equal layers
    single_ps: int = 0  # of the same schedule on one device
    single_bytes: int = 0
    rules: tuple[PlanRule, ...] = ()

    @cached_property
    def by_node(self) -> dict[int, Sharded]:
        return {v.node: v for v in self.values}

    @property
    def gap(self) -> float:
        """How far the time may be from the best, as a share of it."""
        return 0.0 if not self.time_ps else (self.time_ps - self.bound_ps) / self.time_ps

    @cached_property
    def collectives(self) -> dict[str, int]:
        """How many of each kind one call runs."""
        count = Counter(s.kind for r in self.reshards for s in r.sent)
        for v in self.values:
            count["all-gather"] += v.panels * sum(len(s.steps) for s in v.streams)
        return {k: count[k] for k in COLLECTIVES if count[k]}

    @cached_property
    def sent_bytes(self) -> int:
        """Bytes that each device sends in one call, by rings."""
        sizes = dict(zip(self.mesh.names, self.mesh.sizes, strict=True))
        steps = [(s, 1) for r in self.reshards for s in r.sent]
        steps += [(s, v.panels) for v in self.values for each in v.streams for s in each.steps]
        return sum(times * _ring_bytes(s, sizes[s.axis]) for s, times in steps)

    def at(self, rule: str) -> str:
        """The place of a rule, ` (file:line:column)`; "" for none."""
        return next((f" ({r.at})" for r in self.rules if r.name == rule), "")

    def verify(self) -> None:
        """ValueError if a conversion does not start where its value is, or a reader gets another.

        Recomputed from the spreads alone.
        """
        reshard_of = {(r.node, r.reader): r for r in self.reshards}
        for v in self.values:
            if v.made != v.held:
                self._check(reshard_of.get((v.node, -1)), v.made, v.held, f"%{v.node}")
        for (node, reader), r in reshard_of.items():
            if reader >= 0:
                held = self.by_node[node].held
                self._check(r, held, r.result, f"%{node} for %{reader}")
        streams = sum(v.stream_ps for v in self.values)
        if sum(r.time_ps for r in self.reshards) + streams != self.sent_ps:
            raise ValueError("the time of the conversions is not their sum")

    def _check(self, reshard: Reshard | None, origin: Spread, result: Spread, what: str) -> None:
        if reshard is None or (reshard.origin, reshard.result) != (origin, result):
            raise ValueError(f"{what}: no conversion from {origin} to {result}")


def _ring_bytes(s: MeshStep, devices: int) -> int:
    """Bytes that a device sends: blocks pass n - 1 times, twice in an all-reduce."""
    whole = (devices - 1) * s.nbytes
    if s.kind == "all-gather":
        return whole
    return (2 if s.kind == "all-reduce" else 1) * whole // devices
