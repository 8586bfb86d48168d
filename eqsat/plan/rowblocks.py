"""Plan of row blocks: two contractions, and passes along the rows between them, in scratch.

A work item is a chunk of the rows that share keys and columns (of one head of attention): what lies
along the rows is copied once, turned so that vectors lie along them, then a few rows at a time are
computed from the first contraction to the result. After Rabe and Staats, "Self-attention Does Not
Need O(n²) Memory" (2021), with whole rows in scratch.

Few rows, as of one token and a cache, read keys once: these stay where they are if they are
contiguous along the depth, and scores are sums of vectors along it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from eqsat.model.nest import Nest, NoNest
from eqsat.model.plan import Machine, Plan
from eqsat.plan import estimate, expressions
from eqsat.plan.cores import ITEMS_PER_CORE, LEAST_APART, LEAST_CORES, LEAST_ITEM, even_blocks
from eqsat.plan.rowblockwork import row_block_work
from eqsat.plan.rowroles import RowRoles, row_roles_of

STREAMED = 8  # rows of columns that are read side by side, 12 KiB of them on the way
LEAST_ROWS = 32  # of an item that copies keys: less, and copying takes longer than computing


@dataclass(frozen=True)
class RowBlocks(Plan):
    """How row blocks run.

    Rows of one batch point are cut into `blocks` of `rows` or `rows - 1`; `chunk` blocks are a work
    item. Panels of the first contraction are `vectors` vectors along the rows, those of the last
    `wide_vectors` along its result. dots: keys at a time whose scores are sums along the depth, 0:
    keys are copied, turned. columns_copied: the last contraction's columns are in scratch.
    streamed: rows of these columns that are read side by side, in order; 0: panel by panel.
    slots: per stage that is kept along the rows, in which of the row buffers, as pairs.
    """

    kind: ClassVar[str] = "row_blocks"
    lanes: int = 1
    rows: int = 1
    blocks: int = 1
    chunk: int = 1
    vectors: int = 1
    wide_vectors: int = 1
    dots: int = 0
    columns_copied: bool = False
    streamed: int = 0
    slots: tuple[tuple[int, int], ...] = ()
    weights_slot: int = 0  # what the last contraction reads

    def to_text(self) -> str:
        first = f"sums along {self.dots} keys" if self.dots else f"panels of {self.vectors}"
        return (
            f"row blocks: {self.blocks} of {self.rows} rows, {self.chunk} an item, {first} and "
            f"{self.wide_vectors} vectors of {self.lanes}"
            + (", columns copied" if self.columns_copied else "")
            + (f", columns in order by {self.streamed}" if self.streamed else "")
            + f", {self.items} items, scratch {self.scratch_bytes} B"
        )


@dataclass(frozen=True)
class RowExtents:
    """What follows from a nest and its plan; planner and generator share it."""

    nest: Nest
    plan: RowBlocks
    roles: RowRoles

    @cached_property
    def batch(self) -> int:
        return self.nest.points(self.roles.batch)

    @cached_property
    def row_count(self) -> int:
        """Rows of one batch point."""
        return self.nest.points(self.roles.single)

    @cached_property
    def full_blocks(self) -> int:
        """Blocks that have `rows` rows, the first ones; the others have one fewer."""
        return self.row_count - self.plan.blocks * (self.plan.rows - 1)

    @cached_property
    def chunks(self) -> int:
        return -(-self.plan.blocks // self.plan.chunk)

    @cached_property
    def length(self) -> int:
        """Elements of a row."""
        return self.nest.sizes[self.roles.along]

    @cached_property
    def width(self) -> int:
        """Elements of a row of the result."""
        return self.nest.sizes[self.roles.wide]

    @cached_property
    def depth(self) -> int:
        first = self.roles.first
        return self.nest.sizes[first.depth] if first else 0

    @cached_property
    def panel(self) -> int:
        """Elements of a panel of the first contraction."""
        return self.plan.vectors * self.plan.lanes

    @cached_property
    def wide_panel(self) -> int:
        return self.plan.wide_vectors * self.plan.lanes

    @cached_property
    def panels(self) -> int:
        return -(-self.length // self.panel)

    @cached_property
    def wide_panels(self) -> int:
        return -(-self.width // self.wide_panel)

    @cached_property
    def row_stride(self) -> int:
        """Elements from row to row in a row buffer, off powers of two, which share cache sets."""
        return self.panels * self.panel + self.plan.lanes

    @cached_property
    def query_stride(self) -> int:
        lanes = self.plan.lanes
        return -(-self.depth // lanes) * lanes + lanes if self.depth else 0

    @cached_property
    def result_stride(self) -> int:
        return self.wide_panels * self.wide_panel

    @cached_property
    def buffers(self) -> int:
        """Row buffers."""
        return 1 + max([self.plan.weights_slot, *(slot for _, slot in self.plan.slots)])

    @cached_property
    def scratch(self) -> dict[str, int]:
        """Offsets in bytes of what is in scratch, and its `end`."""
        p = self.plan
        elements = {
            "keys": 0 if p.dots else self.panels * self.panel * self.depth,
            "columns": self.length * self.result_stride if p.columns_copied else 0,
            "queries": p.rows * self.query_stride,
            "rows": p.rows * self.row_stride * self.buffers,
            "result": p.rows * self.result_stride,
            "scalars": p.rows * len(self.roles.scalars),
        }
        at, found = 0, dict[str, int]()
        for name, count in elements.items():
            found[name] = at
            at += -(-4 * count // 64) * 64
        return found | {"end": at}


def plan(nest: Nest, machine: Machine) -> RowBlocks:
    """Raises NoNest for what is not computed by row blocks."""
    roles = row_roles_of(nest)
    expressions.check_bodies(nest)
    nest = roles.nest
    lanes = machine.lanes(4)
    slots, weights = _slots(roles)
    _check_types(nest, roles, [i for i, _ in slots])
    columns = roles.columns.plain
    own = RowBlocks(
        lanes=lanes,
        columns_copied=columns is None or columns.strides[roles.wide] != 1,
        slots=slots,
        weights_slot=weights,
    )
    found = [_finished(RowExtents(nest, x, roles)) for x in _candidates(nest, own, roles, machine)]
    fitting = [x for x in found if x.scratch_bytes <= machine.caches[-1]]
    if not fitting:
        least = min(x.scratch_bytes for x in found)
        raise NoNest(f"row blocks would keep {least:,} bytes in scratch")
    return min(fitting, key=lambda x: estimate.cycles(x.work, machine))


def _candidates(nest: Nest, own: RowBlocks, roles: RowRoles, machine: Machine) -> list[RowBlocks]:
    """With keys copied, and with keys where they are."""
    count, most = RowExtents(nest, own, roles).row_count, _most_rows(machine)
    blocks = -(-count // most)
    rows = -(-count // blocks)
    own = replace(own, blocks=blocks, rows=rows)
    own = replace(own, vectors=_vectors(nest.sizes[roles.along], rows, machine))
    own = replace(own, wide_vectors=_vectors(nest.sizes[roles.wide], rows, machine))
    own = replace(own, chunk=_chunk(RowExtents(nest, own, roles), machine))
    own = replace(own, streamed=STREAMED if _is_streamed(RowExtents(nest, own, roles)) else 0)
    dots = _dots(roles, own, machine)
    return [own, replace(own, dots=dots)] if dots else [own]


def _is_streamed(sizes: RowExtents) -> bool:
    """Whether columns are read once, and panels of them would be short pieces of long rows."""
    p, columns = sizes.plan, sizes.roles.columns.plain
    if columns is None or p.columns_copied or p.blocks > 1 or sizes.wide_panels == 1:
        return False
    return estimate.row_bytes(columns, sizes.roles.along) >= LEAST_APART


def _finished(sizes: RowExtents) -> RowBlocks:
    items = sizes.batch * sizes.chunks
    found = replace(sizes.plan, items=items, scratch_bytes=sizes.scratch["end"])
    return replace(found, work=row_block_work(replace(sizes, plan=found)))


def _dots(roles: RowRoles, own: RowBlocks, machine: Machine) -> int:
    """Keys at a time whose sums along the depth half of the registers hold, 0: fewer than two."""
    keys = roles.first.keys.plain if roles.first else None
    if roles.first is None or keys is None or own.blocks > 1:
        return 0
    if keys.strides[roles.first.depth] != 1:
        return 0
    fitting = (n for n in (16, 8, 4, 2) if n <= own.lanes)
    return next((n for n in fitting if 2 * own.rows * n <= machine.registers), 0)


def _check_types(nest: Nest, roles: RowRoles, kept: list[int]) -> None:
    """Rows, results and numbers of rows that are in scratch are f32; masks, say, are not."""
    stages = [nest.stages[i] for i in (*kept, *roles.late, *roles.epilogue)]
    other = {s.dtype for s in stages if s.dtype != "f32"}
    other |= {s.access.dtype for s in nest.stores if s.access.dtype != "f32"}
    factors = [roles.columns]
    factors += [roles.first.queries, roles.first.keys] if roles.first else []
    other |= {a.dtype for f in factors for a in f.accesses if f.plain and a.dtype != "f32"}
    if other:
        raise NoNest(f"row blocks are of f32, here is {', '.join(sorted(other))}")
    for s in nest.stores:
        if s.loops != nest.stages[s.stage].loops or s.bounds or s.access.bounds:
            raise NoNest("row blocks write every value once, and no open lanes")
        if s.access.lookups:
            raise NoNest("row blocks write where an index says")


def _most_rows(machine: Machine) -> int:
    """Rows of a register tile of two vectors.

    Where no multiply-add reads its scalar from memory (vectors of 16 bytes: NEON), addresses of
    more than 8 rows do not fit the general registers.
    """
    return 8 if machine.vector_bytes <= 16 else min(13, (machine.registers - 3) // 2)


def _vectors(extent: int, rows: int, machine: Machine) -> int:
    """Vectors of a panel that leave registers for a broadcast, least padding first."""
    along = -(-extent // machine.lanes(4))
    most = max(1, min(along, (machine.registers - 2) // (rows + 1)))
    return min(range(1, most + 1), key=lambda n: (-(-along // n) * n, -n))


def _chunk(sizes: RowExtents, machine: Machine) -> int:
    """Blocks of an item: all that share keys, unless cores would wait."""
    p = sizes.plan
    blocks, least = p.blocks, -(-LEAST_ROWS // p.rows)
    products = sizes.batch * sizes.row_count * sizes.length * (sizes.depth + sizes.width)
    worth = products // p.lanes // LEAST_ITEM
    wanted = ITEMS_PER_CORE * machine.cores if machine.cores > 1 else min(LEAST_CORES, worth)
    chunks = max(1, min(-(-wanted // max(1, sizes.batch)), blocks // least))
    return max(even_blocks(blocks, -(-blocks // chunks), sizes.batch), min(least, blocks))


def _slots(roles: RowRoles) -> tuple[tuple[tuple[int, int], ...], int]:
    """Per kept stage its row buffer, and that of what the last contraction reads.

    A buffer is free for a value of the pass that reads it last: elements are read before they are
    written.
    """
    ends: list[int] = []  # per buffer: the last pass that reads it
    found: dict[int, int] = {}

    def take(last: int, now: int) -> int:
        slot = next((i for i, end in enumerate(ends) if end <= now), len(ends))
        ends[slot:] = [last] if slot == len(ends) else [last, *ends[slot + 1 :]]
        return slot

    uses = roles.uses
    if roles.first is not None:
        found[roles.first.stage] = take(max(uses[roles.first.stage], default=0), -1)
    for now in range(roles.passes):
        for i in (i for i in roles.values if roles.level[i] == now):
            last = max(uses[i], default=now)
            if last > now:
                found[i] = take(last, now)
        if now == roles.last_level and roles.kept.fn != "arg":
            found[-1] = take(roles.passes, now)
    if roles.kept.fn == "arg":
        source = roles.arguments[roles.kept.value]
        if not isinstance(source, int) or source not in found:
            raise NoNest("the last contraction reads nothing that lies along rows")
        return tuple(sorted(found.items())), found[source]
    weights = found.pop(-1)
    return tuple(sorted(found.items())), weights
