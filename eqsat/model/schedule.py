"""Schedule: the extracted program cut into dispatches, with the live range of every buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from eqsat.model.attr import loop_order, loop_order_text
from eqsat.model.control import Control
from eqsat.model.dispatch import Buffer, Dispatch, in_place_fault, owners_of
from eqsat.model.files import restored
from eqsat.model.ops import CONVERSIONS, VIEWS, permutes
from eqsat.model.printed import Printed
from eqsat.model.program import Program


@dataclass(frozen=True)
class Schedule(Printed):
    """`program` holds every chosen op, the ahead-of-time ones included."""

    program: Program
    dispatches: tuple[Dispatch, ...]
    buffers: tuple[Buffer, ...]
    ahead: tuple[int, ...]  # nodes computed once, from weights only
    target: str
    originals: str = "dropped"  # of weights, once they are packed: dropped | held; or stored packed
    in_place: tuple[tuple[int, int], ...] = ()  # (written, operand): one buffer has both
    padded: tuple[tuple[int, int], ...] = ()  # (node, bytes) of those that memory pads
    narrowed: tuple[tuple[int, str], ...] = ()  # (node, type) of those kept in another type

    def verify(self) -> None:
        """ValueError if a dispatch reads what was not written, or a temporary when it is not live.

        Also if temporaries that are live at one step share a byte of the arena.
        """
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
        if fault := in_place_fault(self.program, self.dispatches, self.in_place):
            raise ValueError(fault)
        self._verify_arena()

    def _verify_arena(self) -> None:
        """Every pair of placed temporaries, as it is written; none may be left out."""
        placed = [b for b in self.buffers if b.offset is not None]
        if any(b.role != "temporary" for b in placed):
            raise ValueError("only temporaries lie in the arena")
        if placed and len(placed) < len(self.temporaries):
            raise ValueError("some temporaries lie in the arena, others do not")
        by_first = sorted((b for b in placed if b.nbytes), key=lambda b: b.first)
        live: list[Buffer] = []
        for b in by_first:
            live = [a for a in live if a.last >= b.first]
            low = b.offset or 0
            for a in live:
                at = a.offset or 0
                if low < at + a.nbytes and at < low + b.nbytes:
                    raise ValueError(f"%{a.node} and %{b.node} overlap in the arena")
            if low < 0:
                raise ValueError(f"%{b.node} lies in front of the arena")
            live.append(b)

    @cached_property
    def _padded(self) -> dict[int, int]:
        return dict(self.padded)

    def nbytes(self, node: int) -> int:
        """Bytes of a node's buffer, as the target's memory pads it."""
        padded = self._padded.get(node)
        return self.program.nodes[node].type.nbytes if padded is None else padded

    @cached_property
    def owners(self) -> dict[int, int]:
        """Of values that lie in bytes that others have, too: whose bytes these are."""
        return owners_of(self.program, self.in_place)

    @cached_property
    def temporaries(self) -> tuple[Buffer, ...]:
        """Temporary buffers that have bytes of their own."""
        owners = self.owners
        return tuple(
            b
            for b in self.buffers
            if b.role == "temporary" and owners.get(b.node, b.node) == b.node
        )

    @cached_property
    def arena_bytes(self) -> int | None:
        """Size of the arena that holds all temporaries; None where they were not placed."""
        if any(b.offset is None for b in self.temporaries):
            return None
        return max(
            (b.offset + b.nbytes for b in self.temporaries if b.offset is not None), default=0
        )

    @cached_property
    def arena_bound(self) -> int:
        """Bytes of temporaries at the worst step: no arena is smaller."""
        changes: dict[int, int] = {}
        for b in self.temporaries:
            changes[b.first] = changes.get(b.first, 0) + b.nbytes
            changes[b.last + 1] = changes.get(b.last + 1, 0) - b.nbytes
        live = worst = 0
        for step in sorted(changes):
            live += changes[step]
            worst = max(worst, live)
        return worst

    def placed(self, offsets: Sequence[int]) -> Schedule:
        """With these offsets for its temporaries, in their order; ValueError if they overlap."""
        at = dict(zip((b.node for b in self.temporaries), offsets, strict=True))
        buffers = tuple(replace(b, offset=at[b.node]) if b.node in at else b for b in self.buffers)
        schedule = replace(self, buffers=buffers)
        schedule._verify_arena()
        return schedule

    @cached_property
    def resident_bytes(self) -> int:
        """Weights kept in memory, in the layouts the schedule reads."""
        return sum(b.nbytes for b in self.buffers if b.role == "weight")

    @cached_property
    def peak_bytes(self) -> int:
        """Arguments + results + weights + temporaries at the worst step, bytes of several once.

        What is in place is known once an answer is chosen: the search counts it apart.
        """
        persistent = [b for b in self.buffers if b.role != "temporary"]
        fixed = sum(b.nbytes for b in persistent if self.owners.get(b.node, b.node) == b.node)
        return fixed + self.arena_bound

    @cached_property
    def donated_bytes(self) -> int:
        """Bytes of values that lie where others lay."""
        return sum(self.nbytes(new) for new, _ in self.in_place)

    @cached_property
    def time_ps(self) -> int:
        return sum(d.time_ps for d in self.dispatches)

    @cached_property
    def bytes_moved(self) -> int:
        """Traffic at dispatch borders: every buffer a dispatch reads or writes, once each.

        Of a table that a dispatch only gathers from, the rows it takes.
        """
        plain = [d for d in self.dispatches if self.control(d) is None]
        written = sum(self.nbytes(i) for d in plain for i in d.writes)
        read = sum(self._read_bytes(d, i) for d in plain for i in d.reads)
        return written + read + self._inside("bytes_moved")

    def _read_bytes(self, dispatch: Dispatch, buffer: int) -> int:
        nodes = self.program.nodes
        nbytes = self.nbytes(buffer)
        readers = [nodes[m] for m in dispatch.members if buffer in nodes[m].operands]
        if any(n.op != "gather" or buffer in n.operands[1:] for n in readers):
            return nbytes
        return min(nbytes, sum(n.type.nbytes for n in readers)) if readers else nbytes

    def control(self, dispatch: Dispatch) -> Control | None:
        """The loop or branch that a dispatch is, if it is one."""
        attrs = (self.program.nodes[m].attr for m in dispatch.members)
        return next((a for a in attrs if isinstance(a, Control)), None)

    @cached_property
    def held(self) -> tuple[Control, ...]:
        """The loops and branches that run, in their order."""
        return tuple(a for d in self.dispatches if (a := self.control(d)) is not None)

    @cached_property
    def kernels(self) -> int:
        """Dispatches; of loops and branches those of their bodies, each once."""
        return len(self.dispatches) - len(self.held) + sum(a.kernels for a in self.held)

    def _inside(self, figure: str) -> int:
        """A figure of the bodies of loops and branches, as often as they run."""
        return sum(a.total([getattr(s, figure) for s in a.schedules] or [0, 0]) for a in self.held)

    @cached_property
    def relayout_bytes(self) -> int:
        """Bytes of data that run-time conversions move, inside of other dispatches or not.

        Each counts once, by the data it moves: the smaller of its sides, as padding is no data.
        """
        nodes = self.program.nodes
        moved = sum(
            min(nodes[j].type.nbytes for j in (i, *nodes[i].operands))
            for _, i in self.ops(CONVERSIONS)
        )
        return moved + self._inside("relayout_bytes")

    @cached_property
    def permutes(self) -> int:
        """Transposes, packs and unpacks of a run that change the order of elements."""
        nodes = self.program.nodes
        return sum(permutes(nodes[i].op, nodes[i].attr) for _, i in self.ops(CONVERSIONS)) + (
            self._inside("permutes")
        )

    @cached_property
    def load_peak_bytes(self) -> int:
        """Peak bytes while weights are packed, or only read where the file has them packed.

        By `originals`: dropped as they are packed, held all the time, or stored packed.
        """
        if self.originals == "stored":
            return self.load_peak_embedded_bytes
        return self.load_peak_held_bytes if self.originals == "held" else self._turns_bytes

    @property
    def load_peak_embedded_bytes(self) -> int:
        """Load peak where weights were packed before they were stored, as in a saved run.

        Nothing is packed at load, so it is what is read at run time.
        """
        return sum(self.nbytes(i) for i in self.kept)

    @property
    def load_peak_held_bytes(self) -> int:
        """Load peak where the originals stay: arrays that the program or its caller holds."""
        return sum(self.nbytes(i) for i in {*self.kept, *self._needed})

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Nodes of weights that dispatches read or that are results, as they are in memory."""
        read = {r for d in self.dispatches for r in d.reads} | {
            self.viewed(r) for r in self.program.results
        }
        if not self.dispatches:  # a schedule of nothing but weights says what it keeps
            return tuple(b.node for b in self.buffers if b.role == "weight")
        return tuple(b.node for b in self.buffers if b.role == "weight" and b.node in read)

    @cached_property
    def sources(self) -> dict[int, tuple[int, ...]]:
        """Per node of a weight or computed from weights: the weights it is made from, in order."""
        nodes, sources = self.program.nodes, dict[int, tuple[int, ...]]()
        for i in sorted({*self.ahead, *self.program.weights}):
            below = {s for o in nodes[i].operands for s in sources.get(o, ())}
            sources[i] = (i,) if nodes[i].op == "weight" else tuple(sorted(below))
        return sources

    @property
    def _needed(self) -> set[int]:
        """Weights that something kept is made from; all there are, where the caller holds them."""
        if self.originals == "held":
            return set(self.program.weights)
        return {s for i in self.kept for s in self.sources[i]}

    @cached_property
    def _turns_bytes(self) -> int:
        """Load peak if all originals are read first and weights are packed in program order.

        Each layout that is kept is made in one pass, in the turn of the last weight it is made
        from. An original goes after the last turn that needs it, unless it is kept itself.
        """
        sources = self.sources
        packed = [i for i in self.kept if sources[i] != (i,)]
        last = {i: max(sources[i]) for i in packed}
        worst = sum(self.nbytes(i) for i in self._needed)
        for turn in set(last.values()):
            live = {s for i in packed if last[i] >= turn for s in sources[i]}
            live |= {i for i in self.kept if sources[i] == (i,)}
            live |= {i for i in packed if last[i] <= turn}
            worst = max(worst, sum(self.nbytes(i) for i in live))
        return worst

    def viewed(self, node: int) -> int:
        """The node whose bytes this one reads, through views."""
        while self.program.nodes[node].op in VIEWS:
            (node,) = self.program.nodes[node].operands
        return node

    def inside(self, dispatch: Dispatch) -> tuple[int, ...]:
        """Nodes that a dispatch computes from the buffers it reads, operands first.

        Its members, and the views and constants of them that stand in no list of members.
        """
        nodes, inner = self.program.nodes, {*dispatch.members}
        stack = list(dispatch.members)
        while stack:
            for o in nodes[stack.pop()].operands:
                free = nodes[o].op in VIEWS or nodes[o].op == "fill"
                if free and o not in inner and o not in dispatch.reads:
                    inner.add(o)
                    stack.append(o)
        return tuple(sorted(inner))

    def buffer_of(self, node: int) -> int:
        """The node whose buffer holds the value of this one: reshapes and relaxed views have none.

        A result of an op with several has a buffer of its own.
        """
        return self.program.behind_views(node)

    def counts(self) -> dict[str, int]:
        """Counts of ops: conversions in dispatches of their own, fused ones, those done ahead.

        Those in bodies of loops and branches count once each.
        """
        counts = self._own_counts()
        for inner in (s.counts() for a in self.held for s in a.schedules):
            counts = {k: v + inner[k] for k, v in counts.items()}
        return counts | {"dispatches": self.kernels}

    def _own_counts(self) -> dict[str, int]:
        nodes = self.program.nodes
        alone = [nodes[i].op for d, i in self.ops(CONVERSIONS) if self.is_conversion(d)]
        ahead = [nodes[i].op for i in self.ahead if nodes[i].op in CONVERSIONS]
        orders = [loop_order(n.attr) for n in nodes]
        return {
            "dispatches": len(self.dispatches),
            "packs": alone.count("pack") + alone.count("retype"),
            "unpacks": alone.count("unpack"),
            "transposes": alone.count("transpose"),
            "fused_conversions": len(self.ops(CONVERSIONS)) - len(alone),
            "weight_packs": len(ahead),
            "opaque": len({i for _, i in self.ops({"opaque"})}),
            "interchanged": len({m for d in self.dispatches for m in d.members if orders[m]}),
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
            "dispatches": [d.to_json() for d in self.dispatches],
            "buffers": [asdict(b) for b in self.buffers],
            "ahead": list(self.ahead),
            "target": self.target,
            "originals": self.originals,
            "in_place": [list(pair) for pair in self.in_place],
        } | {
            k: [list(pair) for pair in pairs]
            for k, pairs in (("padded", self.padded), ("narrowed", self.narrowed))
            if pairs
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        return restored(cls, {k: v for k, v in data.items() if k != "format"})

    def dispatch_lines(self, number: int) -> list[str]:
        """A dispatch as text: what it reads and writes, its plan, its nodes."""
        d = self.dispatches[number]
        reads = ", ".join(map(self.program.value_name, d.reads))
        writes = ", ".join(map(self.program.value_name, d.writes))
        where = f" on {d.device}" if d.device else ""
        where += f" by {d.pipeline}" if d.pipeline else ""
        head = f"dispatch {number} {d.ops}{where} ({d.time_ps / 1e6:.3f} us)"
        nodes = [(m, self.program.nodes[m]) for m in d.members]
        held = self.control(d)
        return [
            f"{head} reads {reads} writes {writes}",
            *(f"  {line}" for line in d.price_lines),
            *(
                f"  {self.program.value_name(m)} = {n.op}{loop_order_text(n.attr)} : {n.types[0]}"
                for m, n in nodes
            ),
            *([] if held is None else _body_lines(held)),
        ]

    def to_text(self) -> str:
        numbers = range(len(self.dispatches))
        lines = [line for i in numbers for line in self.dispatch_lines(i)]
        for b in self.buffers:
            name, steps = self.program.value_name(b.node), f"{b.first}..{b.last}"
            where = "" if b.offset is None else f", offset {b.offset}"
            where += "".join(
                f", in place of {self.program.value_name(a)}"
                for r, a in self.in_place
                if r == b.node
            )
            lines.append(f"buffer {name} {b.nbytes} bytes, {b.role}, steps {steps}{where}")
        if self.temporaries and self.arena_bytes is not None:
            live = f"{self.arena_bound} of them live at once"
            lines.append(f"arena of the temporaries {self.arena_bytes} bytes, {live}")
        return "\n".join(lines) + "\n"


def _body_lines(control: Control) -> list[str]:
    """The schedules inside of a loop or branch, moved to the right."""
    lines: list[str] = []
    for label, s in zip(control.labels, control.schedules, strict=True):
        lines += [f"  {label}:", *(f"    {line}" for line in s.to_text().splitlines())]
    return lines
