"""Plan of row blocks: two contractions, and passes along the rows between them, in scratch.

A work item is a chunk of the rows that share keys and columns (of one head of attention): what lies
along the rows is copied once, turned so that vectors lie along them, then a few rows at a time are
computed from the first contraction to the result. After Rabe and Staats, "Self-attention Does Not
Need O(n²) Memory" (2021), with whole rows in scratch. The work of a plan is counted here as well.

Few rows, as of one token and a cache, read keys once: these stay where they are if they are
contiguous along the depth, and scores are sums of vectors along it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from eqsat.model.dispatch import Machine, Plan, Work
from eqsat.model.nest import Access, Nest, NoNest
from eqsat.plan import estimate
from eqsat.plan.roles import ProductFactor
from eqsat.plan.rowroles import RowRoles, read_by, row_roles_of
from eqsat.plan.stages import (
    CHAIN,
    CHAINS,
    COSTS,
    ITEMS_PER_CORE,
    LEAST_APART,
    LEAST_CORES,
    LEAST_ITEM,
    PAGE_BYTES,
    accesses_read,
    additions,
    additions_of,
    check_bodies,
    even_blocks,
    needed,
    stages_read,
)


# ---- work ----------------------------------------------------------------------------------------
def row_block_work(sizes: RowExtents) -> Work:
    """Counts of all work items; see `Work`."""
    p, roles = sizes.plan, sizes.roles
    rows = sizes.batch * sizes.row_count
    vectors = -(-sizes.length // p.lanes)
    fma, loads, tiles = _products(sizes)
    copied, prologue, strided = _copies(sizes)
    passes = _passes(sizes)
    epilogue = additions(sizes.nest, roles.epilogue)
    epilogue += COSTS["div"] * (roles.divisor is not None)
    each = rows * -(-sizes.width // p.lanes)
    lanes = 2 * p.lanes.bit_length()
    reductions = sum(map(roles.reduces, roles.scalars))
    singles = additions(sizes.nest, (i for i in roles.scalars if not roles.reduces(i)))
    return Work(
        fma=fma,
        loads=loads + rows * vectors * _ends(sizes),
        scalar=rows * (vectors * passes + reductions * lanes + singles)
        + each * epilogue
        + prologue
        + _added_up(sizes)
        + _partial_sums(sizes),
        strided=strided + sum(n for _, n in _far_ends(sizes)),
        pages=_pages(sizes) + _pages_of_ends(sizes),
        tiles=tiles,
        items=p.items,
        copied=copied,
        streams=tuple(_streams(sizes)),
    )


def _products(sizes: RowExtents) -> tuple[float, float, float]:
    """Multiply-adds, loads and register tiles of both contractions."""
    p, products = sizes.plan, list[tuple[int, int, int, int]]()
    fma, loads, tiles = _dot_work(sizes) if p.dots else (0.0, 0.0, 0.0)
    if sizes.depth and not p.dots:
        products += [(sizes.length, sizes.panels, p.vectors, sizes.depth)]
    if p.streamed:
        streamed = _streamed(sizes)
        fma, loads, tiles = fma + streamed[0], loads + streamed[1], tiles + sizes.batch
    else:
        products += [(sizes.width, sizes.wide_panels, p.wide_vectors, sizes.length)]
    for count, rows in ((sizes.full_blocks, p.rows), (p.blocks - sizes.full_blocks, p.rows - 1)):
        for _, panels, vectors, depth in products:
            times = sizes.batch * count * panels
            fma += times * depth * max(rows * vectors, CHAINS)
            loads += times * depth * (rows + vectors)
            tiles += times * -(-depth // CHAIN)
    return fma, loads, tiles


def _streamed(sizes: RowExtents) -> tuple[float, float]:
    """Multiply-adds, loads and stores of the last contraction where its columns are in order."""
    p = sizes.plan
    vectors = sizes.batch * -(-sizes.width // p.lanes)
    fma = vectors * sizes.length * p.rows
    elements = 0 if p.rows == 1 else fma  # those of one row stay in registers
    return fma, vectors * sizes.length + elements + 2 * _partial_sums(sizes)


def _partial_sums(sizes: RowExtents) -> float:
    """Vectors of sums in memory that are added to."""
    p = sizes.plan
    each = sizes.batch * p.rows * -(-sizes.width // p.lanes)
    return each * -(-sizes.length // p.streamed) if p.streamed else 0


def _dot_work(sizes: RowExtents) -> tuple[float, float, float]:
    """Work of scores that are vectors along the depth."""
    p = sizes.plan
    turns = sizes.batch * -(-sizes.length // p.dots) * -(-sizes.depth // p.lanes)
    return turns * max(p.rows * p.dots, CHAINS), turns * (p.rows + p.dots), sizes.batch


def _added_up(sizes: RowExtents) -> float:
    """Additions of vectors that make sums of their lanes: two shuffles and a sum for each."""
    return 3.0 * sizes.batch * sizes.length * sizes.plan.rows if sizes.plan.dots else 0


def _pages(sizes: RowExtents) -> float:
    """Rows of columns in memory that no prefetcher follows, as often as they are fetched.

    Those within a page count by the square of their share of one, and stay in a cache.
    """
    p, columns = sizes.plan, sizes.roles.columns.plain
    if columns is None or p.columns_copied or p.streamed:
        return 0
    share = 4 * abs(columns.strides[sizes.roles.along]) / PAGE_BYTES
    times = sizes.chunks if share < 1 else p.blocks
    return sizes.batch * times * sizes.wide_panels * sizes.length * min(share, 1) ** 2


def _passes(sizes: RowExtents) -> float:
    """Additions per vector of a row: bodies and reductions."""
    roles, stages = sizes.roles, sizes.nest.stages
    evaluated = (*roles.values, *(i for i in roles.scalars if roles.reduces(i)))
    return additions(sizes.nest, evaluated) + sum(bool(stages[i].combine) for i in evaluated)


def _ends(sizes: RowExtents) -> float:
    """Vectors that are read per vector of a row: from memory, and of what is kept."""
    roles, stages = sizes.roles, sizes.nest.stages
    read = sum(len(accesses_read(stages[i].arguments)) for i in roles.values)
    return read + sum(len(roles.uses[i]) for i, _ in sizes.plan.slots)


def _copies(sizes: RowExtents) -> tuple[float, float, float]:
    """Bytes copied to scratch, additions of vectors on the way, elements read one by one."""
    p, roles = sizes.plan, sizes.roles
    points = sizes.batch * sizes.chunks * sizes.length
    copies: list[tuple[ProductFactor, int, float]] = []
    if roles.first is not None:
        rows = sizes.batch * sizes.row_count
        if not p.dots:
            copies += [(roles.first.keys, roles.first.depth, points * sizes.depth)]
        copies += [(roles.first.queries, roles.first.depth, rows * sizes.depth)]
    if p.columns_copied:
        copies += [(roles.columns, roles.wide, points * sizes.width)]
    copied = prologue = strided = 0.0
    for factor, along, elements in copies:
        copied += 4 * elements
        prologue += elements / p.lanes * _body_cost(sizes.nest, factor)
        is_turned = factor.plain is not None and factor.plain.strides[along] == 1
        if roles.first is not None and factor is roles.first.keys and is_turned:
            prologue += elements / p.lanes * estimate.TURNED
        strided += elements * sum(a.strides[along] not in (0, 1) for a in factor.accesses)
    return copied, prologue, strided


def _body_cost(nest: Nest, factor: ProductFactor) -> float:
    inner = needed(nest, stages_read(read_by(factor)))
    return additions_of(factor.body) + additions(nest, inner)


def _pages_of_ends(sizes: RowExtents) -> float:
    """Reads whose line leaves the cache before the next row reads of it: they share cache sets."""
    length = sizes.length
    return sum(n for step, n in _far_ends(sizes) if estimate.aliased(step, length))


def _far_ends(sizes: RowExtents) -> list[tuple[int, float]]:
    """(elements from one to the next, how many) of what no vector reads or writes."""
    nest, roles = sizes.nest, sizes.roles
    rows = sizes.batch * sizes.row_count
    ends: list[tuple[Access, int]] = []
    for i in roles.values:
        ends += [(a, roles.along) for a in accesses_read(nest.stages[i].arguments)]
    for i in roles.epilogue:
        ends += [(a, roles.wide) for a in accesses_read(nest.stages[i].arguments)]
    for s in nest.stores:
        along = roles.along if s.stage in roles.values else roles.wide
        ends += [(s.access, along)] if along in s.loops else []
    each = {roles.along: sizes.length, roles.wide: sizes.width}
    return [(a.strides[i], float(rows * each[i])) for a, i in ends if a.strides[i] not in (0, 1)]


def _streams(sizes: RowExtents) -> Iterator[tuple[float, float]]:
    """(bytes used in between, bytes fetched again): keys, columns and rows of scratch."""
    p = sizes.plan
    keys = 0.0 if p.dots else 4.0 * sizes.panels * sizes.panel * sizes.depth
    columns = 4.0 * sizes.length * sizes.result_stride
    rows = 4.0 * p.rows * sizes.row_stride * sizes.buffers
    between = keys + columns + rows
    yield between, sizes.batch * p.blocks * keys
    yield between, sizes.batch * (p.blocks - 1) * columns
    yield rows, sizes.batch * p.blocks * rows * (sizes.roles.passes + 1)
    if sizes.chunks > 1:  # every item reads what lies along its rows from memory
        yield sizes.batch * (keys + columns), sizes.batch * (sizes.chunks - 1) * (keys + columns)


# ---- plans ---------------------------------------------------------------------------------------
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
    """Extents that follow from a nest and its plan; planner and generator share them."""

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
        at, offsets = 0, dict[str, int]()
        for name, count in elements.items():
            offsets[name] = at
            at += -(-4 * count // 64) * 64
        return offsets | {"end": at}


def plan(nest: Nest, machine: Machine) -> RowBlocks:
    """Raises NoNest for what is not computed by row blocks."""
    return min(row_blocks(nest, machine), key=lambda x: estimate.cycles(x.work, machine))


def row_blocks(nest: Nest, machine: Machine, *, neighbours: bool = False) -> list[RowBlocks]:
    """All plans that are compared, and (neighbours) those of fewer rows; NoNest as `plan`."""
    roles = row_roles_of(nest)
    check_bodies(nest)
    nest = roles.nest
    lanes = machine.lanes(4)
    slots, weights = _slots(roles)
    _check_types(nest, roles, [i for i, _ in slots])
    columns = roles.columns.plain
    base = RowBlocks(
        lanes=lanes,
        columns_copied=columns is None or columns.strides[roles.wide] != 1,
        slots=slots,
        weights_slot=weights,
    )
    most = _most_rows(machine)
    found = _candidates(nest, base, roles, machine, most)
    for fewer in range(most - 1, 1, -1) if neighbours else ():
        found += _candidates(nest, base, roles, machine, fewer)
    plans = [_finished(RowExtents(nest, x, roles)) for x in dict.fromkeys(found)]
    fitting = [x for x in plans if x.scratch_bytes <= machine.caches[-1]]
    if not fitting:
        least = min(x.scratch_bytes for x in plans)
        raise NoNest(f"row blocks would keep {least:,} bytes in scratch")
    return fitting


def _candidates(
    nest: Nest, base: RowBlocks, roles: RowRoles, machine: Machine, most: int
) -> list[RowBlocks]:
    """With keys copied, and with keys where they are; most: rows of a block."""
    count = RowExtents(nest, base, roles).row_count
    blocks = -(-count // most)
    rows = -(-count // blocks)
    base = replace(base, blocks=blocks, rows=rows)
    base = replace(base, vectors=_vectors(nest.sizes[roles.along], rows, machine))
    base = replace(base, wide_vectors=_vectors(nest.sizes[roles.wide], rows, machine))
    base = replace(base, chunk=_chunk(RowExtents(nest, base, roles), machine))
    base = replace(base, streamed=STREAMED if _is_streamed(RowExtents(nest, base, roles)) else 0)
    dots = _dots(roles, base, machine)
    return [base, replace(base, dots=dots)] if dots else [base]


def _is_streamed(sizes: RowExtents) -> bool:
    """Whether columns are read once, and panels of them would be short pieces of long rows."""
    p, columns = sizes.plan, sizes.roles.columns.plain
    if columns is None or p.columns_copied or p.blocks > 1 or sizes.wide_panels == 1:
        return False
    return estimate.row_bytes(columns, sizes.roles.along) >= LEAST_APART


def _finished(sizes: RowExtents) -> RowBlocks:
    items = sizes.batch * sizes.chunks
    plan = replace(sizes.plan, items=items, scratch_bytes=sizes.scratch["end"])
    return replace(plan, work=row_block_work(replace(sizes, plan=plan)))


def _dots(roles: RowRoles, base: RowBlocks, machine: Machine) -> int:
    """Keys at a time whose sums along the depth half of the registers hold, 0: fewer than two."""
    keys = roles.first.keys.plain if roles.first else None
    if roles.first is None or keys is None or base.blocks > 1:
        return 0
    if keys.strides[roles.first.depth] != 1:
        return 0
    fitting = (n for n in (16, 8, 4, 2) if n <= base.lanes)
    return next((n for n in fitting if 2 * base.rows * n <= machine.registers), 0)


def _check_types(nest: Nest, roles: RowRoles, in_slots: list[int]) -> None:
    """Rows, results and numbers of rows that are in scratch are f32; masks, say, are not."""
    stages = [nest.stages[i] for i in (*in_slots, *roles.late, *roles.epilogue)]
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
    slots: dict[int, int] = {}

    def take(last: int, now: int) -> int:
        slot = next((i for i, end in enumerate(ends) if end <= now), len(ends))
        ends[slot:] = [last] if slot == len(ends) else [last, *ends[slot + 1 :]]
        return slot

    uses = roles.uses
    if roles.first is not None:
        slots[roles.first.stage] = take(max(uses[roles.first.stage], default=0), -1)
    for now in range(roles.passes):
        for i in (i for i in roles.values if roles.level[i] == now):
            last = max(uses[i], default=now)
            if last > now:
                slots[i] = take(last, now)
        if now == roles.last_level and roles.weights.fn != "arg":
            slots[-1] = take(roles.passes, now)
    if roles.weights.fn == "arg":
        source = roles.arguments[roles.weights.value]
        if not isinstance(source, int) or source not in slots:
            raise NoNest("the last contraction reads nothing that lies along rows")
        return tuple(sorted(slots.items())), slots[source]
    weights = slots.pop(-1)
    return tuple(sorted(slots.items())), weights
