"""MeshPlan: how the values of a schedule are spread over a mesh, and what moves between devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from eqsat.model.mesh import Mesh, Spread
from eqsat.model.restore import restored

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
        """What gathering its panels takes."""
        return self.panels * sum(step.time_ps for s in self.streams for step in s.steps)


@dataclass(frozen=True)
class PlanRule:
    """A spread rule: where it stands, how many choices it permits here, and how many are taken."""

    name: str
    at: str
    permits: int
    used: int


@dataclass(frozen=True)
class MeshPlan:
    """The answer on a mesh: spreads, conversions between them, time and bytes of every device.

    of: `answer` or `input`: the schedule that is cut. time_ps: of the whole, launches included;
    bound_ps: no choice of the model is quicker, and peak_bound: none that is as quick holds less.
    """

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
        known = {(r.node, r.reader): r for r in self.reshards}
        for v in self.values:
            if v.made != v.held:
                self._check(known.get((v.node, -1)), v.made, v.held, f"%{v.node}")
        for (node, reader), r in known.items():
            if reader >= 0:
                held = self.by_node[node].held
                self._check(r, held, r.result, f"%{node} for %{reader}")
        streams = sum(v.stream_ps for v in self.values)
        if sum(r.time_ps for r in self.reshards) + streams != self.sent_ps:
            raise ValueError("the time of the conversions is not their sum")

    def _check(self, found: Reshard | None, origin: Spread, result: Spread, what: str) -> None:
        if found is None or (found.origin, found.result) != (origin, result):
            raise ValueError(f"{what}: no conversion from {origin} to {result}")

    def to_json(self) -> dict[str, Any]:
        return {"format": 1} | asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MeshPlan:
        plain = {k: v for k, v in data.items() if k != "format"}
        return restored(cls, plain)


def _ring_bytes(s: MeshStep, devices: int) -> int:
    """What a device sends: blocks pass n - 1 times, twice in an all-reduce."""
    whole = (devices - 1) * s.nbytes
    if s.kind == "all-gather":
        return whole
    return (2 if s.kind == "all-reduce" else 1) * whole // devices
