"""The plan of a contraction: every way to tile it that is worth a look, and the cheapest.

Vector loop, operand order, register tile, blocks and copies follow from the strides, the registers
and the caches. Candidates are few, so all are estimated.
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsat.model.dispatch import Machine
from eqsat.model.nest import Nest, NoNest
from eqsat.plan import estimate
from eqsat.plan.blocks import (
    along_curves,
    blocked,
    may_curve,
    other_blocks,
    panel_count,
    split,
)
from eqsat.plan.contraction import Blocking, Tiling, products_at_once
from eqsat.plan.roles import (
    ProductFactor,
    ProductRoles,
    fetched_bytes,
    product_roles_of,
    source_access,
)
from eqsat.plan.stages import CHAIN, CHAINS, LEAST_APART, LINE, access_loops, check_bodies
from eqsat.plan.strips import (
    LEAST_PRODUCTS,
    MOST_TAPS,
    is_walked,
    leaves_much_out,
    padded_loops,
)
from eqsat.plan.windows import Coordinates

MOST_DOT_ROWS = 12  # rows of sums along the reduction: 16 registers hold them and what they read
LONG_COLUMN = 2048  # bytes of one that is summed along: side by side more of them are quicker
MANY_ROWS = 16  # of a block: they fill the registers under panels of two or three vectors
LEAST_ROWS = 4  # of a packed tile that is read row by row
STREAMED_SUMS = 4  # vectors of them that hide the latency of memory and of multiply-adds


def plan(nest: Nest, machine: Machine) -> Tiling:
    """The cheapest plan by `estimate`; raises NoNest for what is no contraction and epilogue."""
    return min(tilings(nest, machine), key=lambda c: estimate.cycles(c.work, machine))


def tilings(nest: Nest, machine: Machine, *, neighbours: bool = False) -> list[Tiling]:
    """All plans that are compared, and (neighbours) those with other blocks; NoNest as `plan`."""
    roles = product_roles_of(nest)
    check_bodies(nest)
    if any(nest.stages[i].bounds for i in roles.epilogue):
        raise NoNest("a stage behind the contraction pads what it reads")
    found = list(_candidates(nest, roles, machine))
    if not found:
        raise NoNest("no loop of the contraction's result can be its vector loop")
    if neighbours:
        found += [x for c in found for x in other_blocks(nest, roles, c)]
    finished = [_finished(nest, roles, c, machine) for c in dict.fromkeys(found)]
    curved = (
        x for c in _cheapest(finished, machine) for x in along_curves(nest, roles, c, machine)
    )
    return [*finished, *(_finished(nest, roles, c, machine) for c in curved)]


def _cheapest(some: list[Tiling], machine: Machine) -> list[Tiling]:
    """The cheapest that copies nothing, if there is one, which may go along a curve."""
    plain = [c for c in some if may_curve(c)]
    return [min(plain, key=lambda c: estimate.cycles(c.work, machine))] if plain else []


def _finished(nest: Nest, roles: ProductRoles, c: Tiling, machine: Machine) -> Tiling:
    sizes = Blocking(nest, c, roles)
    items = nest.points(c.batch) * sizes.row_blocks * sizes.groups
    work = estimate.tiled_work(sizes, machine, items)
    return c.changed(items=items, scratch_bytes=sizes.scratch[-1], work=work)


def _candidates(nest: Nest, roles: ProductRoles, machine: Machine) -> Iterator[Tiling]:
    for swapped in (False, True):
        a, b = roles.factors[::-1] if swapped else roles.factors
        rows, columns = roles.only[::-1] if swapped else roles.only
        base = Tiling(swapped=swapped, batch=roles.batch, extra=roles.extra, lanes=machine.lanes(4))
        for v in _vector_loops(nest, a, b, columns, roles.batch):
            tiling = base.changed(
                vector_loop=v,
                vector_rows=v in roles.batch,
                batch=tuple(i for i in roles.batch if i != v),
                outer_columns=tuple(i for i in columns if i != v),
            )
            yield from _tiled(nest, roles, tiling, rows, machine)
            yield from _fused(nest, roles, tiling, rows, machine)
            yield from _windowed(nest, roles, tiling, rows, machine)
            yield from _strips(nest, roles, tiling, rows, machine)
            yield from _apart_from_pads(nest, roles, tiling, rows, machine)
            yield from _dots(nest, roles, tiling, rows, machine)


def _vector_loops(
    nest: Nest, a: ProductFactor, b: ProductFactor, columns: tuple[int, ...], batch: tuple[int, ...]
) -> list[int]:
    """Loops along which vectors of B lie, or the result's do; those of both factors along which A
    lies are for vectors of both: B, such as the taps of every channel, may be copied."""
    unit = [i for i in columns if b.direct and b.direct.strides[i] == 1]
    written = [i for i in columns if any(s.access.strides[i] == 1 for s in nest.stores)]
    of_b = [i for i in columns if any(x.strides[i] == 1 for x in b.accesses)]
    contiguous = list(dict.fromkeys([*unit, *written, *of_b]))
    both = [i for i in batch if b.direct and any(x.strides[i] == 1 for x in a.accesses)]
    return [*contiguous, *both] or list(columns[-1:])


def _tiled(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    must_a = _must_copy(nest, a, rows)
    must_b = not _may_compute(nest, tiling, b) and _must_copy(nest, b, ())
    source = source_access(b)
    strided = source is None or source.strides[tiling.vector_loop] != 1
    if tiling.vector_rows and (must_a or b.direct is None):
        return
    reduced = _reduction_order(roles, a, b)
    for copy_a in (False, True):
        for copy_b in (False, True):
            if (must_a and not copy_a) or ((must_b or strided) and not copy_b):
                continue
            if copy_a and not must_a and (tiling.vector_rows or not _may_copy(nest, a, rows)):
                continue
            both = tiling.changed(reduced=reduced, copied=(copy_a, copy_b))
            for row_loops, outer in _either_rows(nest, a, rows, copy_a):
                one = both.changed(row_loops=row_loops, outer_rows=outer)
                if _may_stream(nest, one, b):
                    narrow = one.changed(vectors=_streamed_vectors(nest, one, b))
                    yield blocked(nest, roles, narrow, machine, streamed=True)
                    continue
                sized = (one.changed(vectors=n, wide=w) for n, w in _panels(nest, one, machine))
                yield from (blocked(nest, roles, x, machine) for x in sized)


def _fused(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Integers whose products are multiplied and added in groups, both factors copied in these."""
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    reduced = _reduction_order(roles, a, b)
    together = products_at_once(nest, a, b, reduced, machine)
    if roles.dtype != "i32" or tiling.vector_rows or together == 1:
        return
    row_loops, outer = _rows(nest, a, rows, copied=True)
    one = tiling.changed(
        row_loops=row_loops,
        outer_rows=outer,
        reduced=reduced,
        copied=(True, True),
        fused=together,
    )
    for n, w in _panels(nest, one, machine):
        yield blocked(nest, roles, one.changed(vectors=n, wide=w), machine)


def _windowed(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """A is copied by windows; rows of tiles are along one loop, blocks along it or the next.

    Of integers whose products are summed in groups, which lie along the innermost coordinate.
    """
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    coordinates = roles.coordinates[tiling.swapped]
    if coordinates is None or (
        tiling.vector_rows and not _lie_along(coordinates, tiling.vector_loop)
    ):
        return
    in_groups = roles.dtype != "f32"
    must_b = _must_copy(nest, b, ()) or (b.direct and b.direct.strides[tiling.vector_loop] != 1)
    must_b = must_b or in_groups
    row_loops, outer = _rows(nest, a, rows, copied=False)
    one = tiling.changed(
        row_loops=row_loops,
        outer_rows=outer[-1:],
        batch=(*tiling.batch, *outer[:-1]),
        windows=True,
    )
    orders = dict.fromkeys(
        (*(_reduction_order(roles, *x) for x in ((a, b), (b, a))), _order_of(roles, b, a))
    )
    for n, w in _panels(nest, one, machine):
        for copy_b in (True,) if must_b else (False, True):
            if w == 1 and (must_b or not tiling.vector_rows or not copy_b):
                sized = one.changed(vectors=n, wide=w, copied=(False, copy_b))
                for order in orders:
                    together = _groups(nest, a, b, coordinates, order, machine) if in_groups else 1
                    if together:
                        tiled = sized.changed(reduced=order, fused=together)
                        yield blocked(nest, roles, tiled, machine)


def _strips(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Vectors of both factors where they lie, tiles one below the other, pads left out."""
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    coordinates = roles.coordinates[tiling.swapped]
    if not tiling.vector_rows or (len(rows) < 2 and coordinates is None) or _must_copy(nest, b, ()):
        return
    assert b.direct is not None
    if b.direct.strides[tiling.vector_loop] != 1:  # every tile would copy them again
        return
    row_loops, outer = _rows(nest, a, rows, copied=False)
    if coordinates is not None and coordinates.pads:
        padded = padded_loops(roles, coordinates, row_loops, outer[-1:])
        first, last = padded or ((), ())
        order = (*first, *(i for i in roles.reduced if i not in (*first, *last)), *last)
        order = order if padded else None
    else:
        is_plain = is_walked(roles, a.direct) and not _must_copy(nest, a, rows)
        order = _reduction_order(roles, a, b) if is_plain else None
    if not order or nest.points(order) > CHAIN or nest.sizes[order[-1]] > MOST_TAPS:
        return
    one = _beside_pads(tiling, row_loops, outer, order)
    along = -(-nest.sizes[tiling.vector_loop] // tiling.lanes)
    for n in range(1, min(2, along) + 1):
        yield blocked(nest, roles, one.changed(vectors=n), machine)


def _beside_pads(
    tiling: Tiling, rows: tuple[int, ...], outer: tuple[int, ...], reduced: tuple[int, ...]
) -> Tiling:
    """Rows that are read where they lie, so that pads can be left out."""
    batch = (*tiling.batch, *outer[:-1])
    return tiling.changed(
        row_loops=rows, outer_rows=outer[-1:], batch=batch, reduced=reduced, strips=True
    )


def _apart_from_pads(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Rows where they lie beside so many pads that to leave these out is worth code for each tap:
    windows of dilated convolutions, which are as large as the image."""
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    coordinates = roles.coordinates[tiling.swapped]
    if tiling.vector_rows or coordinates is None or not coordinates.pads or roles.dtype != "f32":
        return
    row_loops, outer = _rows(nest, a, rows, copied=False)
    padded = padded_loops(roles, coordinates, row_loops, outer[-1:])
    strided = b.direct is None or b.direct.strides[tiling.vector_loop] != 1
    if not padded or not all(padded) or strided or _must_copy(nest, b, ()):
        return
    taps = tuple(i for loops in padded for i in loops)
    inner = tuple(i for i in _reduction_order(roles, a, b) if i not in taps)
    if nest.points(inner) < LEAST_PRODUCTS or nest.sizes[taps[-1]] > MOST_TAPS:
        return
    one = _beside_pads(tiling, row_loops, outer, (*taps, *inner))
    for n, w in _panels(nest, one, machine):
        tiled = blocked(nest, roles, one.changed(vectors=n, wide=w), machine)
        sizes = Blocking(nest, tiled, roles)
        if leaves_much_out(sizes) and not _cuts_taps(sizes):
            yield tiled


def _cuts_taps(sizes: Blocking) -> bool:
    """Whether sums are cut into parts along a loop of whose points each leaves out other rows."""
    p = sizes.plan
    cut = [p.k_blocks > 1, *(p.chain[0] == level for level in range(1, len(p.reduced)))]
    return any(
        min(p.k_block, p.chain[1]) < len(sizes.beside_pads(level, tile))
        for level, is_cut in enumerate(cut)
        for *_, tile in (sizes.tile_kinds if is_cut else ())
    )


def _groups(
    nest: Nest,
    a: ProductFactor,
    b: ProductFactor,
    coordinates: Coordinates,
    reduced: tuple[int, ...],
    machine: Machine,
) -> int:
    """Products of a group whose elements of A follow each other in a window; 0: there are none."""
    together = products_at_once(nest, a, b, reduced, machine, in_windows=True)
    return together if together > 1 and coordinates.strides[-1][reduced[-1]] == 1 else 0


def _lie_along(coordinates: Coordinates, loop: int) -> bool:
    """Whether the innermost coordinate is this loop alone."""
    return [i for i, s in enumerate(coordinates.strides[-1]) if s] == [loop]


def _dots(
    nest: Nest, roles: ProductRoles, tiling: Tiling, rows: tuple[int, ...], machine: Machine
) -> Iterator[Tiling]:
    """Few rows of factors that are both contiguous along the reduction: vectors along it."""
    a, b = roles.factors[::-1] if tiling.swapped else roles.factors
    if _must_copy(nest, a, rows) or _must_copy(nest, b, ()) or tiling.vector_rows:
        return
    x, y = a.direct, b.direct
    both = [i for i in roles.reduced if x and y and x.strides[i] == y.strides[i] == 1]
    count = nest.points(rows)
    if (
        roles.dtype != "f32"
        or not both
        or len(rows) > 1
        or count > MOST_DOT_ROWS
        or tiling.outer_columns
    ):
        return
    order = _reduction_order(roles, a, b)
    reduced = (*(i for i in order if i != both[0]), both[0])
    fitting = (n for n in (8, 4, 2, 1) if count * n + n + 2 <= machine.registers)
    dot, column = next(fitting, 1), nest.sizes[both[0]] * fetched_bytes(b)
    # as many lines from memory are on their way then; from a cache that is near they take its sets
    is_far = column >= LONG_COLUMN and nest.points(b.loops) * fetched_bytes(b) > machine.caches[-1]
    one = tiling.changed(
        dot=16 if count == 1 and dot == 8 and is_far else dot,
        row_loops=rows,
        reduced=reduced,
        rows=count,
        k_block=nest.sizes[reduced[0]],
        chain=(0, nest.sizes[reduced[0]]),
        in_registers=False,
    )
    one = one.changed(panels=panel_count(nest, one))
    yield split(nest, roles, one, machine)


def _widths(rows: int, along: int, machine: Machine) -> list[int]:
    """Vectors of a panel: two or three where rows fill the registers, more where they do not."""
    if rows >= MANY_ROWS:
        return sorted({min(n, along) for n in (2, 3)})
    even = (-(-along // n) for n in range(1, 5))  # panels, none of which is short
    fitting = [n for n in sorted({1, 2, 3, 4, 6, 8, 12, 16, 24, *even}) if n <= along]
    fitting = [n for n in fitting if (rows + 1) * n < machine.registers] or fitting[:1]
    return [n for n in fitting if rows * n >= CHAINS] or fitting[-1:]


def _must_copy(nest: Nest, factor: ProductFactor, rows: tuple[int, ...]) -> bool:
    """Whether a factor is more than an access, or some of its points do not exist."""
    if factor.direct is None:
        return True
    return any(access_loops(b) & (factor.loops | set(rows)) for b in nest.bounds)


def _may_compute(nest: Nest, tiling: Tiling, b: ProductFactor) -> bool:
    """Whether tiles may compute B from what lies in memory: vectors, and what they share."""
    if b.inline is None or tiling.outer_columns:
        return False
    along = (a.strides[tiling.vector_loop] for a in b.inline.leaves)
    return all(x in (0, 1) for x in along) and not any(
        access_loops(x) & b.loops for x in nest.bounds
    )


def _may_copy(nest: Nest, a: ProductFactor, rows: tuple[int, ...]) -> bool:
    """Whether copying rows could pay: several loops of rows, rows that share cache sets, or
    elements that every panel would convert again."""
    assert a.direct is not None
    if len(rows) > 1 or estimate.widening(a, ()):
        return True
    return any(estimate.aliased(estimate.row_bytes(a.direct, i), nest.sizes[i]) for i in rows)


def _reduction_order(roles: ProductRoles, a: ProductFactor, b: ProductFactor) -> tuple[int, ...]:
    """Reduction loops, those of longest strides outermost; the second factor's count first."""

    contiguous = [i for i in roles.reduced if any(x.strides[i] == 1 for x in a.accesses)]
    last = contiguous[:1] if a.direct is None else []
    return (*(i for i in _order_of(roles, b, a) if i not in last), *last)


def _order_of(roles: ProductRoles, first: ProductFactor, second: ProductFactor) -> tuple[int, ...]:
    """Reduction loops, those of longest strides outermost; the first factor's count first."""

    def key(i: int) -> tuple[int, ...]:
        factors = (first, second)
        return tuple(-max((abs(x.strides[i]) for x in f.accesses), default=0) for f in factors)

    return tuple(sorted(roles.reduced, key=key))


def _rows(
    nest: Nest, a: ProductFactor, rows: tuple[int, ...], copied: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Loops that number the rows of tiles, and those around them."""
    if copied or len(rows) < 2:
        return rows, ()
    inner = max(rows, key=lambda i: (min(nest.sizes[i], 14), -abs(a.accesses[0].strides[i])))
    return (inner,), tuple(i for i in rows if i != inner)


def _either_rows(
    nest: Nest, a: ProductFactor, rows: tuple[int, ...], copied: bool
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """`_rows`; before these the rows of a packed tile, which lie side by side."""
    found = _rows(nest, a, rows, copied)
    side_by_side = [i for i in rows if a.direct and a.direct.strides[i] == 1]
    if not copied and side_by_side and nest.sizes[side_by_side[0]] >= LEAST_ROWS:
        packed = tuple(side_by_side[:1]), tuple(i for i in rows if i != side_by_side[0])
        yield from dict.fromkeys((packed, found))
    else:
        yield found


def _panels(nest: Nest, tiling: Tiling, machine: Machine) -> Iterator[tuple[int, int]]:
    """Vectors of a panel, and over how many points of another loop they go."""
    along = -(-nest.sizes[tiling.vector_loop] // tiling.lanes)
    rows = nest.points(tiling.row_loops)
    yield from ((n, 1) for n in _widths(rows, along, machine))
    whole = nest.sizes[tiling.vector_loop] % tiling.lanes == 0
    if whole and tiling.outer_columns and along < 4:
        u = tiling.outer_columns[-1]
        yield from ((along * q, q) for q in (2, 3) if nest.sizes[u] % q == 0 and along * q <= 4)


def _may_stream(nest: Nest, tiling: Tiling, b: ProductFactor) -> bool:
    """Whether B is read once, and along its own rows it would be read in order."""
    source = source_access(b)
    if source is None or tiling.copied[1] or not tiling.reduced:
        return False
    rows = nest.points(tiling.row_loops) * nest.points(tiling.outer_rows)
    apart = estimate.row_bytes(source, tiling.reduced[0]) >= LEAST_APART
    return apart and rows < MANY_ROWS


def _streamed_vectors(nest: Nest, tiling: Tiling, b: ProductFactor) -> int:
    """Vectors of a panel that is streamed: few are steady, but a line, and enough for the sums."""
    along = -(-nest.sizes[tiling.vector_loop] // tiling.lanes)
    line = int(4 * LINE // (tiling.lanes * fetched_bytes(b)))
    return min(along, max(-(-STREAMED_SUMS // nest.points(tiling.row_loops)), line))
