"""Schedule: the extracted program cut into dispatches, with the lifetime of every buffer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from eqsat.model.attrs import CONVERSIONS, VIEWS
from eqsat.model.program import Program


@dataclass(frozen=True)
class Dispatch:
    """One kernel: nodes of the schedule's program computed together.

    A node may appear in several dispatches: it is then computed again in each.
    """

    members: tuple[int, ...]
    reads: tuple[int, ...]  # nodes whose buffers it reads
    writes: tuple[int, ...]  # nodes whose values it writes to buffers
    time_ps: int
    step: int
    name: str  # e.g. "contraction+elementwise"


@dataclass(frozen=True)
class Buffer:
    """Bytes at a dispatch border: live from step `first` to step `last`, both included.

    role: argument | result | temporary | weight. Arguments, results and weights are live all the
    time, as their owner is the caller.
    """

    node: int
    nbytes: int
    role: str
    first: int
    last: int


@dataclass(frozen=True)
class Schedule:
    """`program` holds every chosen op, the ahead-of-time ones included."""

    program: Program
    dispatches: tuple[Dispatch, ...]
    buffers: tuple[Buffer, ...]
    ahead: tuple[int, ...]  # nodes computed once, from weights only
    target: str

    def verify(self) -> None:
        """ValueError if a dispatch reads what nobody wrote, or a temporary outside its lifetime."""
        self.program.verify()
        nodes = self.program.nodes
        ready = {*self.program.inputs, *self.program.weights, *self.ahead}
        live = {b.node: b for b in self.buffers}
        step = 0
        for i, d in enumerate(self.dispatches):
            if d.step < step:
                raise ValueError(f"dispatch {i} runs at step {d.step}, after step {step}")
            step = d.step
            if not set(d.writes) <= {*d.members, *ready}:
                raise ValueError(f"dispatch {i} writes what it does not compute")
            for r in d.reads:
                if r not in ready or r not in live:
                    raise ValueError(f"dispatch {i} reads %{r} ({nodes[r].op}) before it is there")
                if not live[r].first <= d.step <= live[r].last:
                    raise ValueError(f"dispatch {i} reads %{r} after its buffer is gone")
            ready.update(d.members)

    @cached_property
    def resident_bytes(self) -> int:
        """Weights kept in memory, in the layouts the schedule reads."""
        return sum(b.nbytes for b in self.buffers if b.role == "weight")

    @cached_property
    def peak_bytes(self) -> int:
        """Arguments + results + weights + temporaries at the worst step."""
        steps = range(1 + max((d.step for d in self.dispatches), default=0))
        fixed = sum(b.nbytes for b in self.buffers if b.role != "temporary")
        live = [
            sum(b.nbytes for b in self.buffers if b.role == "temporary" and b.first <= s <= b.last)
            for s in steps
        ]
        return fixed + max(live, default=0)

    @cached_property
    def time_ps(self) -> int:
        return sum(d.time_ps for d in self.dispatches)

    @cached_property
    def bytes_moved(self) -> int:
        """Traffic at dispatch borders: every buffer a dispatch reads or writes, once each."""
        nodes = self.program.nodes
        borders = (i for d in self.dispatches for i in (*d.reads, *d.writes))
        return sum(nodes[i].type.nbytes for i in borders)

    @cached_property
    def relayout_bytes(self) -> int:
        """Bytes of data that run-time conversions move, inside of other dispatches or not.

        Each counts once, by the data it moves: the smaller of its sides, as padding is no data.
        """
        nodes = self.program.nodes
        return sum(
            min(nodes[j].type.nbytes for j in (i, *nodes[i].operands))
            for _, i in self.ops(CONVERSIONS)
        )

    @cached_property
    def load_peak_bytes(self) -> int:
        """Peak bytes while weights are packed one after another: originals, copies, results.

        All originals are loaded first and each is dropped after its last use, unless the schedule
        reads it as it is.
        """
        nodes = self.program.nodes
        kept = {b.node for b in self.buffers if b.role == "weight"}
        work = sorted({*self.ahead, *self.program.weights})
        last = {o: i for i in work for o in nodes[i].operands}
        needed = [i for i in work if i in kept or i in last]
        live = sum(nodes[i].type.nbytes for i in needed if nodes[i].op == "weight")
        worst = live
        for i in needed:
            if nodes[i].op != "weight" and nodes[i].op not in VIEWS:
                live += nodes[i].type.nbytes
                worst = max(worst, live)
            dead = {o for o in nodes[i].operands if last[o] == i and o not in kept}
            live -= sum(nodes[o].type.nbytes for o in dead if nodes[o].op not in VIEWS)
        return worst

    def counts(self) -> dict[str, int]:
        """Ops by what they cost: conversions in dispatches of their own, fused ones, ahead ones."""
        nodes = self.program.nodes
        alone = [nodes[i].op for d, i in self.ops(CONVERSIONS) if self.is_conversion(d)]
        ahead = [nodes[i].op for i in self.ahead if nodes[i].op in CONVERSIONS]
        return {
            "dispatches": len(self.dispatches),
            "packs": alone.count("pack") + alone.count("retype"),
            "unpacks": alone.count("unpack"),
            "transposes": alone.count("transpose"),
            "fused_conversions": len(self.ops(CONVERSIONS)) - len(alone),
            "weight_packs": len(ahead),
            "opaque": len({i for _, i in self.ops({"opaque"})}),
        }

    def ops(self, kinds: frozenset[str] | set[str]) -> list[tuple[Dispatch, int]]:
        """Run-time nodes of these ops, with the dispatch that computes them."""
        nodes = self.program.nodes
        return [(d, i) for d in self.dispatches for i in d.members if nodes[i].op in kinds]

    def is_conversion(self, dispatch: Dispatch) -> bool:
        """A dispatch without arithmetic that moves data between layouts."""
        ops = {self.program.nodes[i].op for i in dispatch.members} - VIEWS
        return bool(ops) and ops <= CONVERSIONS

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "program": self.program.to_json(),
            "dispatches": [asdict(d) for d in self.dispatches],
            "buffers": [asdict(b) for b in self.buffers],
            "ahead": list(self.ahead),
            "target": self.target,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        dispatches = tuple(
            Dispatch(
                tuple(d["members"]),
                tuple(d["reads"]),
                tuple(d["writes"]),
                d["time_ps"],
                d["step"],
                d["name"],
            )
            for d in data["dispatches"]
        )
        buffers = tuple(Buffer(**b) for b in data["buffers"])
        program = Program.from_json(data["program"])
        return cls(program, dispatches, buffers, tuple(data["ahead"]), data["target"])

    def to_text(self) -> str:
        lines = []
        for i, d in enumerate(self.dispatches):
            reads = ", ".join(f"%{r}" for r in d.reads)
            writes = ", ".join(f"%{w}" for w in d.writes)
            lines.append(
                f"dispatch {i} {d.name} ({d.time_ps / 1e6:.3f} us) reads {reads} writes {writes}"
            )
            lines += [
                f"  %{m} = {self.program.nodes[m].op} : {self.program.nodes[m].types[0]}"
                for m in d.members
            ]
        for b in self.buffers:
            lines.append(f"buffer %{b.node} {b.nbytes} bytes, {b.role}, steps {b.first}..{b.last}")
        return "\n".join(lines) + "\n"

    __str__ = to_text
