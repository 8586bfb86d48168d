"""A plan of row blocks held against its nest: rows, keys, columns, and lives of what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from eqsat.model.nest import Access, Nest
from eqsat.plan.productcheck import depends, multiplied_sides, multiply_adds
from eqsat.plan.rowblocks import RowBlocks, RowExtents
from eqsat.plan.rowroles import RowRoles, read_by, row_roles_of


def row_block_faults(nest: Nest, p: RowBlocks) -> Iterator[str]:
    """What of a plan its kernel would compute otherwise than the nest."""
    roles = row_roles_of(nest)
    sizes = RowExtents(roles.nest, p, roles)
    if min(p.rows, p.blocks, p.chunk, p.vectors, p.wide_vectors) < 1 or p.lanes & (p.lanes - 1):
        yield "it has no rows, or no vectors"
        return
    if {i for i, _ in p.slots} - {*roles.level}:
        yield "it keeps stages that are not along its rows"
        return
    yield from _loops(nest, roles)
    yield from _in_place(sizes)
    yield from _counts(sizes)
    yield from _lives(sizes)
    yield from _scratch(sizes)
    issued = p.work.fma * p.lanes
    needed = sum(multiply_adds(roles.nest, i) for i in _sums(roles))
    if issued < 0.999 * needed:
        yield f"it issues {issued:,.0f} multiply-adds, the ops have {needed:,}"


def _sums(r: RowRoles) -> list[int]:
    return [r.last, *([r.first.stage] if r.first else [])]


def _loops(nest: Nest, r: RowRoles) -> Iterator[str]:
    """Rows, and what lies along them, are all loops; copies differ by none that they are not
    copied again for."""
    wide = {i for i, n in enumerate(r.nest.sizes) if n > 1}
    if any(multiplied_sides(r.nest, i) is None for i in _sums(r)):
        yield "it sums no products"
    last = r.nest.stages[r.last]
    if {*last.loops} & wide != {*r.rows, r.wide} & wide or {*last.reduced} & wide != {r.along}:
        yield "the last contraction has other loops than its rows, columns and sums"
    if {*r.single, *r.batch} != {*r.rows} or len(r.single) + len(r.batch) != len(r.rows):
        yield "a row is in two batches"
    if extra := depends(r.nest, list(read_by(r.columns))) - {*r.batch, r.along, r.wide}:
        yield f"columns depend on loops {sorted(extra)}, along which they are kept"
    if r.first is not None:
        s = r.nest.stages[r.first.stage]
        if {*s.loops} & wide - {*r.rows, r.along} or {*s.reduced} & wide != {r.first.depth}:
            yield "the first contraction has other loops than rows and what lies along them"
        keys, queries = (depends(r.nest, list(read_by(f))) for f in (r.first.keys, r.first.queries))
        if extra := keys - {*r.batch, r.along, r.first.depth}:
            yield f"keys depend on loops {sorted(extra)}, along which they are kept"
        if extra := queries - {*r.rows, r.first.depth}:
            yield f"queries depend on loops {sorted(extra)}"
    for t in r.nest.stores:
        own = {r.wide} if t.stage in (r.last, *r.epilogue) else {r.along}
        own = set() if t.stage in r.scalars else own
        if set(t.loops) & wide != ({*r.rows} | own) & wide:
            yield f"%{t.access.buffer} is written over other loops than its own"


def _in_place(s: RowExtents) -> Iterator[str]:
    """What is not copied lies in memory as products read it."""
    p, columns = s.plan, s.roles.columns.plain
    if not p.columns_copied and (columns is None or columns.strides[s.roles.wide] != 1):
        yield "its columns are not copied, and are no vectors"
    if p.streamed < 0 or (p.streamed and p.columns_copied):
        yield "its columns are copied, and read in order"
    if p.dots:
        first = s.roles.first
        keys = first.keys.plain if first else None
        if p.dots < 0 or first is None or keys is None or keys.strides[first.depth] != 1:
            yield "its keys are not copied, and are no vectors"


def _counts(s: RowExtents) -> Iterator[str]:
    r, sizes = s.roles, s.nest.sizes
    depth = sizes[r.first.depth] if r.first else 0
    if (s.length, s.width, s.depth) != (sizes[r.along], sizes[r.wide], depth):
        yield "rows have another length, width or depth than their loops"
    if s.row_count != s.nest.points(r.single) or s.batch != s.nest.points(r.batch):
        yield "there are other rows than points of their loops"
    p, rows = s.plan, s.nest.points(s.roles.single)
    full = s.full_blocks
    if full * p.rows + (p.blocks - full) * (p.rows - 1) != rows or not 0 < full <= p.blocks:
        yield f"{p.blocks} blocks of {p.rows} rows are not {rows} rows"
    chunks = -(-p.blocks // p.chunk)
    if s.chunks != chunks or p.items != s.nest.points(s.roles.batch) * chunks:
        yield f"{p.items} items are not {s.nest.points(s.roles.batch) * chunks}"
    keys, columns = (s.panels, p.vectors), (s.wide_panels, p.wide_vectors)
    for what, (panels, n), length in (("keys", keys, s.length), ("columns", columns, s.width)):
        width = n * p.lanes
        if width < 1 or not (panels - 1) * width < length <= panels * width:
            yield f"{panels} panels of {n} vectors are not {length} {what}"


def _lives(s: RowExtents) -> Iterator[str]:
    """What is kept along the rows is there until it is read last."""
    p, r, slots = s.plan, s.roles, dict(s.plan.slots)
    for i in (*r.values, *r.scalars):
        if r.level[i] < _known_from(r, s.nest.stages[i].arguments):
            yield f"stage {i} is computed before what it reads"
    if r.last_level < _known_from(r, r.arguments_read):
        yield "the last contraction reads what is not there yet"
    busy: dict[int, int] = {}  # slot → the pass that reads it last
    made = sorted(slots, key=lambda i: (r.level[i], i != (r.first.stage if r.first else -1)))
    for i in made:
        last = max(r.uses[i], default=r.level[i])
        if busy.get(slots[i], -1) > r.level[i]:
            yield f"stage {i} is kept where another one is still read"
        busy[slots[i]] = max(last, busy.get(slots[i], -1))
    for i in r.values:
        if max(r.uses[i], default=r.level[i]) > r.level[i] and i not in slots:
            yield f"stage {i} is read in a later pass and not kept"
    source = r.arguments[r.kept.value] if r.kept.fn == "arg" else None
    if source is not None and slots.get(source) != p.weights_slot:
        yield "the last contraction reads another row than what is kept for it"
    if source is None and busy.get(p.weights_slot, -1) > r.last_level:
        yield "what the last contraction reads lies where another stage is still read"


def _known_from(r: RowRoles, arguments: Iterable[Access | int]) -> int:
    """The first pass in which all of these are there: a reduction behind that which makes it."""
    known = [a for a in arguments if isinstance(a, int) and a in r.level]
    return max((r.level[a] + bool(r.nest.stages[a].combine and a in r.scalars) for a in known),
               default=0)  # fmt: skip


def _scratch(s: RowExtents) -> Iterator[str]:
    """Copies, rows and results lie apart, and there is room for all."""
    p, r = s.plan, s.roles
    buffers = 1 + max([p.weights_slot, *(slot for _, slot in p.slots)])
    elements = {
        "keys": 0 if p.dots else s.panels * p.vectors * p.lanes * s.depth,
        "columns": s.length * s.wide_panels * p.wide_vectors * p.lanes if p.columns_copied else 0,
        "queries": p.rows * -(-s.depth // p.lanes) * p.lanes,
        "rows": p.rows * s.panels * p.vectors * p.lanes * buffers,
        "result": p.rows * s.wide_panels * p.wide_vectors * p.lanes,
        "scalars": p.rows * len(r.scalars),
    }
    starts = [*s.scratch.values()]
    rooms = [b - a for a, b in pairwise(starts)]
    for (what, count), room in zip(elements.items(), rooms, strict=True):
        if room < 4 * count:
            yield f"{room} bytes of scratch are no room for {what}, which take {4 * count}"
    if s.row_stride < s.panels * p.vectors * p.lanes or s.query_stride < s.depth:
        yield "rows lie over each other"
    if p.scratch_bytes < max(starts):
        yield f"it has {p.scratch_bytes} bytes of scratch, of {max(starts)}"
