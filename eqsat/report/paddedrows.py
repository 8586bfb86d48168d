"""Buffers in longer rows: what the padding takes in memory, and which operands it is for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from eqsat.model.generic import Generic
from eqsat.model.schedule import Schedule
from eqsat.ops.contractions.roles import contraction_roles
from eqsat.ops.targets.rows import SIDES, longer_rows_of
from eqsat.report.formatting import bytes_text, count_text

PADDED_COLUMNS = ("padded rows", "type", "bytes", "padding", "kept", "read as")
PLURALS = {"temporary": "temporaries"}


@dataclass(frozen=True)
class PaddedBuffer:
    """One buffer; sides: lhs, rhs or op, for each way in which it is read."""

    name: str
    type: str
    nbytes: int
    padding_bytes: int
    role: str  # argument | result | temporary | weight
    sides: tuple[str, ...]

    def cells(self) -> tuple[str, ...]:
        """PADDED_COLUMNS, printed."""
        sizes = bytes_text(self.nbytes), bytes_text(self.padding_bytes)
        return (self.name, self.type, *sizes, self.role, " and ".join(self.sides) or "–")


def padded_buffers(schedule: Schedule) -> tuple[PaddedBuffer, ...]:
    """The buffers of a schedule whose rows are longer than what is read of them."""
    sides = _sides(schedule)
    found = []
    for b in schedule.buffers:
        node = schedule.program.nodes[b.node]
        layout = longer_rows_of(node)
        if layout is not None:
            plain = node.type.with_shape(layout.source).nbytes
            name, read = schedule.program.value_name(b.node), (*sides.get(b.node, {}),)
            padding = node.type.nbytes - plain
            found.append(PaddedBuffer(name, str(node.type), b.nbytes, padding, b.role, read))
    return tuple(found)


def padding_line(schedule: Schedule) -> list[str]:
    """`rows padded for lhs: 64 KiB of 4.06 MiB (1 temporary)`; nothing if none are."""
    buffers, texts = padded_buffers(schedule), []
    for sides in dict.fromkeys(b.sides for b in buffers):
        mine = [b for b in buffers if b.sides == sides]
        padding, total = sum(b.padding_bytes for b in mine), sum(b.nbytes for b in mine)
        counts = Counter(b.role for b in mine)
        roles = ", ".join(count_text(n, r, PLURALS.get(r, "")) for r, n in counts.items())
        who = " and ".join(sides) or "nobody"
        texts.append(f"{bytes_text(padding)} of {bytes_text(total)} for {who} ({roles})")
    return [f"rows padded: {'; '.join(texts)}"] if texts else []


def _sides(schedule: Schedule) -> dict[int, dict[str, None]]:
    """Per buffer as what it is read: an operand of a contraction, or of another op."""
    sides: dict[int, dict[str, None]] = {}
    for n in schedule.program.nodes:
        names = SIDES if isinstance(n.attr, Generic) and contraction_roles(n.attr) else ()
        for i, o in enumerate(n.operands):
            side = names[i] if i < len(names) else "op"
            sides.setdefault(schedule.viewed(o), {})[side] = None
    return sides
