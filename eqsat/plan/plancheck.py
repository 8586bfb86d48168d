"""Check of a plan against its nest, by exact integer reasoning: would its kernel be incomplete?

Planner and generator share records of what follows from a plan (`Blocking`, `RowExtents`, `Part`).
Here these are taken as they are, and asked for what has to hold of them: loops are run over once,
tiles and panels are as many rows and columns as there are, what is left out is a pad, what is kept
lies apart, the multiply-adds are those of the ops. Nothing here asks how a plan was found.

Rows: every reduction and store in one pass, at all points. Row blocks: rows, keys, columns, and
lives of what is kept. Contractions: `tilecheck`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import pairwise

from eqsat.model.dispatch import Plan
from eqsat.model.nest import Access, Bound, Nest
from eqsat.model.tensor import DTYPES
from eqsat.plan.contraction import Tiling
from eqsat.plan.passes import Several, dependences, parts_of
from eqsat.plan.rowblocks import RowBlocks, RowExtents
from eqsat.plan.rowroles import RowRoles, read_by, row_roles_of
from eqsat.plan.rows import Part, Pass, Rows, scratch_of, square_slots
from eqsat.plan.stages import needed
from eqsat.plan.tilecheck import depends, multiplied_sides, multiply_adds, tiling_faults


# ---- row blocks ----------------------------------------------------------------------------------
def row_block_faults(nest: Nest, p: RowBlocks) -> Iterator[str]:
    """Faults of a plan: where its kernel would compute otherwise than the nest."""
    roles = row_roles_of(nest)
    sizes = RowExtents(roles.nest, p, roles)
    if min(p.rows, p.blocks, p.chunk, p.vectors, p.wide_vectors) < 1 or p.lanes & (p.lanes - 1):
        yield "it has no rows, or no vectors"
        return
    if {i for i, _ in p.slots} - {*roles.level}:
        yield "it keeps stages that are not along its rows"
        return
    yield from _loops(roles)
    yield from _in_place(sizes)
    yield from _counts(sizes)
    yield from _lives(sizes)
    yield from _block_scratch(sizes)
    issued = p.work.fma * p.lanes
    needed = sum(multiply_adds(roles.nest, i) for i in _sums(roles))
    if issued < 0.999 * needed:
        yield f"it issues {issued:,.0f} multiply-adds, the ops have {needed:,}"


def _sums(r: RowRoles) -> list[int]:
    return [r.last, *([r.first.stage] if r.first else [])]


def _loops(r: RowRoles) -> Iterator[str]:
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
        along = {r.wide} if t.stage in (r.last, *r.epilogue) else {r.along}
        along = set() if t.stage in r.scalars else along
        if set(t.loops) & wide != ({*r.rows} | along) & wide:
            yield f"%{t.access.buffer} is written over other loops than its own"


def _in_place(s: RowExtents) -> Iterator[str]:
    """Factors that are not copied lie in memory as products read them."""
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
    """Live ranges of row buffers end at their last read."""
    p, r, slots = s.plan, s.roles, dict(s.plan.slots)
    for i in (*r.values, *r.scalars):
        if r.level[i] < _first_pass_with(r, s.nest.stages[i].arguments):
            yield f"stage {i} is computed before what it reads"
    if r.last_level < _first_pass_with(r, r.arguments_read):
        yield "the last contraction reads what is not there yet"
    busy: dict[int, int] = {}  # slot → the pass that reads it last
    ordered = sorted(slots, key=lambda i: (r.level[i], i != (r.first.stage if r.first else -1)))
    for i in ordered:
        last = max(r.uses[i], default=r.level[i])
        if busy.get(slots[i], -1) > r.level[i]:
            yield f"stage {i} is kept where another one is still read"
        busy[slots[i]] = max(last, busy.get(slots[i], -1))
    for i in r.values:
        if max(r.uses[i], default=r.level[i]) > r.level[i] and i not in slots:
            yield f"stage {i} is read in a later pass and not kept"
    source = r.arguments[r.weights.value] if r.weights.fn == "arg" else None
    if source is not None and slots.get(source) != p.weights_slot:
        yield "the last contraction reads another row than what is kept for it"
    if source is None and busy.get(p.weights_slot, -1) > r.last_level:
        yield "what the last contraction reads lies where another stage is still read"


def _first_pass_with(r: RowRoles, arguments: Iterable[Access | int]) -> int:
    """The first pass in which all of these are there: a reduction behind that which makes it."""
    numbers = [a for a in arguments if isinstance(a, int) and a in r.level]
    return max((r.level[a] + bool(r.nest.stages[a].combine and a in r.scalars) for a in numbers),
               default=0)  # fmt: skip


def _block_scratch(s: RowExtents) -> Iterator[str]:
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


# ---- rows ----------------------------------------------------------------------------------------
def row_faults(nest: Nest, plan: Rows) -> Iterator[str]:
    """Faults of a plan: where its kernel would compute otherwise than the nest."""
    stores = Counter(i for part in plan.parts for q in part.passes for i in q.stores)
    if stores != Counter(range(len(nest.stores))):
        yield "stores are not written by one pass each"
    if plan.items != sum(p.items for p in plan.parts):
        yield "it has other work items than its parts"
    passes = dependences(nest)
    sweeps = [passes.groups(s) for s in passes.sections]
    if [[(q.stages, q.stores) for q in part.passes] for part in plan.parts] != [
        [(g.stages, g.stores) for g in groups] for groups in sweeps
    ]:
        yield "its passes are not those of the nest"
        return
    for part in plan.parts:
        yield from _outer(nest, part)
        yield from _order(nest, part)
        yield from _inside(nest, part)
        for q in part.passes:
            yield from _pass(nest, part, q)
        yield from _scratch(nest, part, plan.scratch_bytes)


def _outer(nest: Nest, part: Part) -> Iterator[str]:
    """Work items are all points of the outer loops, whole vectors each."""
    if len(set(part.outer)) != len(part.outer):
        yield "an outer loop is run over twice"
    if part.lanes & (part.lanes - 1) or part.vectors < 1 or min(part.vector, part.square) < -1:
        yield f"there are no {part.vectors} vectors of {part.lanes} lanes"
    if part.square >= 0 and any(q.inner or q.reduced for q in part.passes):
        yield "squares are of rows that have no loops inside"
    if part.vector >= 0 and part.outer[-1:] != (part.vector,):
        yield "the vector loop is not the innermost outer one"
    if part.square >= 0 and part.outer[-2:-1] != (part.square,):
        yield "squares are not of the loop in front of the vectors'"
    if not 0 <= part.numbered <= len(part.outer) or part.block < 1 or part.lanes < 1:
        yield "work items are of loops that there are not"
        return
    items, numbered = 1, part.outer[: part.numbered]
    for i in numbered[:-1]:
        items *= nest.sizes[i]
    if numbered:
        items *= -(-nest.sizes[numbered[-1]] // part.block)
    if items != part.items:
        yield f"{part.items} items are not {items}"
    grain = (
        {part.vector: part.lanes, part.square: part.lanes}.get(numbered[-1], 1) if numbered else 1
    )
    if grain > 1 and part.block % grain and part.block < nest.sizes[numbered[-1]]:
        yield f"blocks of {part.block} cut vectors of {part.lanes}"


def _pass(nest: Nest, part: Part, q: Pass) -> Iterator[str]:
    """A pass runs over the loops of what it computes."""
    wide = {i for i, n in enumerate(nest.sizes) if n > 1}
    outer, inner, reduced = (set(x) & wide for x in (part.outer, q.inner, q.reduced))
    if q.lanes & (q.lanes - 1) or q.lanes < 1 or q.vectors < 1 or q.vector < -1:
        yield f"there are no {q.vectors} vectors of {q.lanes} lanes"
    innermost = {q.inner[-1:], q.reduced[-1:]}
    if q.vector >= 0 and (part.vector >= 0 or (q.vector,) not in innermost):
        yield "the vector loop of a pass is not its innermost one"
    if outer & (inner | reduced) or inner & reduced:
        yield "a pass runs over a loop twice"
    for i in q.stages:
        s = nest.stages[i]
        if set(s.reduced) & wide != reduced or set(s.loops) & wide != outer | inner:
            yield f"stage {i} is reduced over other loops than its own"
    for i in q.stores:
        if set(nest.stores[i].loops) & wide != outer | inner | reduced:
            yield f"store {i} is written over other loops than its own"


def _order(nest: Nest, part: Part) -> Iterator[str]:
    """Reductions that a pass reads are of earlier passes."""
    done: set[int] = set()
    for q in part.passes:
        ends = [a for i in q.stages for a in nest.stages[i].arguments]
        ends += [nest.stores[i].stage for i in q.stores]
        if missing := _sums_read(nest, ends) - done:
            yield f"a pass reads stage {min(missing)} before it is reduced"
        done |= set(q.stages)


def _sums_read(nest: Nest, arguments: Sequence[object]) -> set[int]:
    """The reductions that these need, without those that the reductions themselves need."""
    sums: set[int] = set()
    for a in arguments:
        if isinstance(a, int):
            s = nest.stages[a]
            sums |= {a} if s.combine else _sums_read(nest, s.arguments)
    return sums


def _inside(nest: Nest, part: Part) -> Iterator[str]:
    """Bounds that are not tested inside hold there."""
    if (inside := part.inside) is None:
        return
    if part.vector not in part.outer or part.square >= 0:
        yield "rows that are not side by side have an inside"
        return
    size, lanes = nest.sizes[part.vector], part.lanes
    is_whole = inside.low % lanes == 0 and (inside.high % lanes == 0 or inside.high == size)
    if not (is_whole and 0 <= inside.low <= inside.high <= size):
        yield f"its inside {inside.low}:{inside.high} is not of whole vectors"
    rows = {i for i in part.outer if i != part.vector}
    for b in inside.bounds:
        fixed = tuple(s if i in rows else 0 for i, s in enumerate(b.strides))
        tests = (
            [t for t in inside.rows if t.strides == fixed] if any(fixed) else [Bound(fixed, 0, 1)]
        )
        ends = [
            sorted(
                (s * inside.low, s * (inside.high - 1)) if i == part.vector else (0, s * (n - 1))
            )
            for i, (s, n) in enumerate(zip(b.strides, nest.sizes, strict=True))
            if i not in rows
        ]
        least, most = (b.base + sum(e[k] for e in ends) for k in (0, 1))
        # where a test holds, the rows' part of the index is -t.base … t.extent - t.base - 1
        if all(least < t.base or most + t.extent - t.base > b.extent for t in tests):
            yield f"a bound of extent {b.extent} is not tested, and fails somewhere inside"


def _scratch(nest: Nest, part: Part, nbytes: int) -> Iterator[str]:
    """Scratch of stages lies apart, and there is room for all."""
    places, used = scratch_of(nest, part)
    end = 0
    for number, (start, loops) in places.items():
        if start < end:
            yield f"stage {number} is kept where another one is"
        each = part.lanes * part.vectors if part.vector >= 0 else 1
        width = max(DTYPES[nest.stages[number].dtype][0], 8) // 8
        end = start + width * each * nest.points(loops)
    slots, squares = square_slots(nest, part)
    ends = sorted(slots.values())
    if any(b - a < part.lanes * part.lanes for a, b in pairwise(ends)):
        yield "squares lie over each other"
    if used < end or nbytes < used + squares:
        yield f"it has {nbytes} bytes of scratch, of {max(end, used) + squares}"


# ---- plans of any kind ---------------------------------------------------------------------------
def plan_faults(nest: Nest, plan: Plan) -> Iterator[str]:
    """Faults of a plan for its nest, each in a sentence; the nest is taken as right."""
    match plan:
        case Tiling():
            yield from tiling_faults(nest, plan)
        case RowBlocks():
            yield from row_block_faults(nest, plan)
        case Rows():
            yield from row_faults(nest, plan)
        case Several():
            yield from _several_faults(nest, plan)


def _described(nest: Nest) -> Iterator[Hashable]:
    """Writes and computations, whatever the numbers of loops and stages are."""

    def spread(strides: tuple[int, ...], loops: Iterable[int]) -> Hashable:
        return tuple(sorted((nest.sizes[i], strides[i]) for i in loops))

    for s in nest.stores:
        yield s.access.buffer, s.access.base, spread(s.access.strides, s.loops)
    for i in needed(nest, (s.stage for s in nest.stores)):
        s = nest.stages[i]
        reads = [a for a in s.arguments if isinstance(a, Access)]
        walked = {*s.loops, *s.reduced}
        yield (
            s.node, str(s.body), s.combine, s.dtype,
            tuple(sorted(nest.sizes[d] for d in s.loops)),
            tuple(sorted(nest.sizes[d] for d in s.reduced)),
            tuple((a.buffer, a.base, spread(a.strides, walked)) for a in reads),
        )  # fmt: skip


def _several_faults(nest: Nest, plan: Several) -> Iterator[str]:
    parts = parts_of(nest)
    if len(parts) != len(plan.parts):
        yield f"{len(plan.parts)} plans are of {len(parts)} parts"
        return
    if plan.items != sum(p.items for p in plan.parts):
        yield "it has other work items than its parts"
    if plan.scratch_bytes < max(p.scratch_bytes for p in plan.parts):
        yield "it has less scratch than one of its parts"
    if {x for p in parts for x in _described(p)} != set(_described(nest)):
        yield "its parts compute something else than the nest"
    if sum(len(p.stores) for p in parts) != len(nest.stores):
        yield "its parts write other pieces than the nest"
    for part, part_plan in zip(parts, plan.parts, strict=True):
        yield from plan_faults(part, part_plan)
