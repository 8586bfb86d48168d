"""What a plan of row blocks does, counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat.model.nest import Access, Nest
from eqsat.model.plan import Work
from eqsat.plan import estimate, expressions
from eqsat.plan.cores import CHAIN, CHAINS, PAGE_BYTES
from eqsat.plan.roles import ProductFactor
from eqsat.plan.rowroles import read_by
from eqsat.plan.stages import accesses_read, additions, needed, stages_read

if TYPE_CHECKING:
    from eqsat.plan.rowblocks import RowExtents


def row_block_work(sizes: RowExtents) -> Work:
    """Counts of all work items; see `Work`."""
    p, roles = sizes.plan, sizes.roles
    rows = sizes.batch * sizes.row_count
    vectors = -(-sizes.length // p.lanes)
    fma, loads, tiles = _products(sizes)
    copied, prologue, strided = _copies(sizes)
    passes = _passes(sizes)
    epilogue = additions(sizes.nest, roles.epilogue)
    epilogue += expressions.COSTS["div"] * (roles.divisor is not None)
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
        strided=strided + _strided_ends(sizes),
        pages=_pages(sizes) + _pages_of_ends(sizes),
        tiles=tiles,
        items=p.items,
        copied=copied,
        streams=tuple(_streams(sizes)),
    )


def _products(sizes: RowExtents) -> tuple[float, float, float]:
    """Multiply-adds, loads and register tiles of both contractions."""
    p, products = sizes.plan, list[tuple[int, int, int, int]]()
    fma, loads, tiles = _dots(sizes) if p.dots else (0.0, 0.0, 0.0)
    if sizes.depth and not p.dots:
        products += [(sizes.length, sizes.panels, p.vectors, sizes.depth)]
    if p.streamed:
        own = _streamed(sizes)
        fma, loads, tiles = fma + own[0], loads + own[1], tiles + sizes.batch
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


def _dots(sizes: RowExtents) -> tuple[float, float, float]:
    """Those of scores that are vectors along the depth."""
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
    found = (*roles.values, *(i for i in roles.scalars if roles.reduces(i)))
    return additions(sizes.nest, found) + sum(bool(stages[i].combine) for i in found)


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
    return expressions.additions_of(factor.body) + additions(nest, inner)


def _strided_ends(sizes: RowExtents) -> float:
    """Elements along rows and results that no vector reads or writes."""
    return sum(n for _, n in _far_ends(sizes))


def _pages_of_ends(sizes: RowExtents) -> float:
    """Those whose line leaves the cache before the next row reads of it: they share cache sets."""
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
