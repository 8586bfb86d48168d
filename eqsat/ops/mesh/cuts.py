"""The cuts of an op: what an axis of devices may divide, and what becomes of operands and result.

One mechanism for all ops. A loop of a nest is cut: operands that it indexes are cut in that dim,
others are on every device, and the result is cut in its dim, or holds parts if the loop is summed
over. A movement carries a cut as it carries a pack, by the same functions (`ops.movement`): a cut
is a pack of one tile per device. What is linear in its operands is linear in parts of sums.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import BottomUp, Expr
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.mesh import PARTIAL, REPLICATED
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import is_float
from eqsat.ops.mesh.gathers import MASKED, own_rows
from eqsat.ops.movement.crossing import below
from eqsat.ops.movement.layout import before_transpose, large_groups

Kind = int | str  # an entry of a spread


@dataclass(frozen=True)
class OpCut:
    """Cut of an op by one axis: per operand and of the result an entry of a spread.

    name: what is cut, in the words of the op: `d2`, a loop; `dim 1`, of the result; `parts`.
    `d0/d2` cuts loop d0 and gathers operands without it along d2. form: what a rule of spreads
    calls it (`model.rules.SPREAD_VERBS`). streams: the operands that are gathered.
    """

    name: str
    operands: tuple[Kind, ...]
    result: Kind
    form: str
    streams: tuple[int, ...] = ()


@lru_cache(maxsize=20_000)
def cuts_of(
    op: str, attr: Attr, shapes: tuple[Shape, ...], blocks: int, batch: tuple[int, ...] = ()
) -> tuple[OpCut, ...]:
    """The cuts of an op on operands of these shapes into so many blocks of one size.

    Empty for an op of which nothing is known but its whole result. batch: of a gather's indices
    (`gathers.batch_dims`).
    """
    find = _CUTS.get(type(attr))
    found = () if find is None else tuple(find(op, attr, shapes, blocks))
    if op != "gather":
        return found
    assert isinstance(attr, Move)
    return (*found, *_of_rows(attr, blocks, batch))


_LOOPS = re.compile(r"d(\d+)(?:/d(\d+))?")


def loop_of(name: str) -> int | None:
    """The loop that a cut of this name divides; None if it divides none."""
    match = _LOOPS.fullmatch(name)
    return None if match is None else int(match[1])


def stream_of(name: str) -> int | None:
    """The summed loop along which a cut of this name gathers operands; None for no such cut."""
    match = _LOOPS.fullmatch(name)
    return None if match is None or match[2] is None else int(match[2])


# ---- loop nests ----------------------------------------------------------------------------------
def _of_generic(op: str, g: Generic, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    for loop, size in enumerate(g.sizes):
        kinds = _loop_kinds(g, loop)
        if size % blocks == 0 and size >= blocks and kinds is not None:
            result = _result_kind(g, loop)
            if result is not None:
                form = "parallel" if isinstance(result, int) else "summed"
                yield OpCut(f"d{loop}", kinds, result, form)
    yield from _linear(g)
    if g.has_precision and g.combine == "add":
        yield from _streamed(g, blocks)


def _streamed(g: Generic, blocks: int) -> Iterator[OpCut]:
    """A parallel loop cut, and operands without it cut along a summed loop, of a product."""
    sizes = {n: s for n, s in enumerate(g.sizes) if s % blocks == 0 and s >= blocks}
    kinds = {n: k for n in sizes if (k := _loop_kinds(g, n)) is not None}
    for loop in (n for n in kinds if n < g.rank):
        for summed in (n for n in kinds if n >= g.rank):
            pairs = list(zip(kinds[loop], kinds[summed], strict=True))
            streams = tuple(i for i, (a, b) in enumerate(pairs) if a == REPLICATED != b)
            if streams:
                operands = tuple(b if i in streams else a for i, (a, b) in enumerate(pairs))
                yield OpCut(f"d{loop}/d{summed}", operands, loop, "streamed", streams)


def _loop_kinds(g: Generic, loop: int) -> tuple[Kind, ...] | None:
    """Per operand the dim that this loop alone walks; None if one is walked with other loops."""
    kinds: list[Kind] = []
    for m, shape in zip(g.maps, g.shapes, strict=True):
        at = [d for d, e in enumerate(m) if any(t == loop for t, _ in e.terms)]
        if not at:
            kinds.append(REPLICATED)
            continue
        if len(at) > 1 or m[at[0]].dim != loop or shape[at[0]] != g.sizes[loop]:
            return None
        kinds.append(at[0])
    return tuple(kinds)


def _result_kind(g: Generic, loop: int) -> Kind | None:
    if loop < g.rank:
        return loop
    combines = {y.combine for y in g.yields}
    combine = combines.pop()
    return combine if not combines and combine in PARTIAL else None


def _linear(g: Generic) -> Iterator[OpCut]:
    """Parts of sums in, parts of a sum out, where the body is linear in these operands together."""
    if len(g.yields) != 1 or g.combine not in ("", "add") or not is_float(g.yields[0].dtype):
        return
    n = len(g.maps)
    alone = [frozenset([i]) for i in range(n)] if n <= _MANY else []
    for parts in dict.fromkeys([*alone, frozenset(range(n))]):
        if parts and is_linear(g.body, parts, g.dtypes):
            kinds = tuple("add" if i in parts else REPLICATED for i in range(n))
            yield OpCut("parts", kinds, "add", "parts")


_MANY = 8  # operands of a body of which each is looked at by itself
_FIXED, _LINEAR = "fixed", "linear"


def is_linear(body: Expr, parts: frozenset[int], dtypes: Sequence[str]) -> bool:
    """Whether the body is a linear form of these operands, without a constant term.

    Each has to occur in it: what is not read may be anything.
    """

    def step(e: Expr, kinds: Sequence[str | None]) -> str | None:
        if e.fn == "arg":
            return _LINEAR if e.value in parts else _FIXED
        if all(k == _FIXED for k in kinds):
            return _FIXED
        rule = _RULES.get(e.fn)
        return rule(e, kinds) if rule is not None else None

    if not all(is_float(dtypes[i]) for i in parts) or not parts.issubset(body.operands()):
        return False
    return BottomUp(step, lambda e: e.args)(body) == _LINEAR


def _all_linear(_: Expr, kinds: Sequence[str | None]) -> str | None:
    return _LINEAR if all(k == _LINEAR for k in kinds) else None


def _one_linear(_: Expr, kinds: Sequence[str | None]) -> str | None:
    return _LINEAR if sorted(map(str, kinds)) == [_FIXED, _LINEAR] else None


def _numerator(_: Expr, kinds: Sequence[str | None]) -> str | None:
    return _LINEAR if list(kinds) == [_LINEAR, _FIXED] else None


def _float_cast(e: Expr, kinds: Sequence[str | None]) -> str | None:
    return kinds[0] if is_float(str(e.value)) else None


_RULES: dict[str, Callable[[Expr, Sequence[str | None]], str | None]] = {
    "add": _all_linear, "sub": _all_linear, "neg": _all_linear, "mul": _one_linear,
    "div": _numerator, "cast": _float_cast,
}  # fmt: skip


# ---- movements -----------------------------------------------------------------------------------
def _shard(shape: Shape, dim: int, blocks: int) -> Layout | None:
    """A tensor cut in one dim, as a pack of one tile per block; None if it does not divide."""
    if shape[dim] % blocks or not shape[dim]:
        return None
    return Layout(shape, (dim,), (shape[dim] // blocks,), tuple(range(len(shape))), ("-",))


def _dim_of(layout: Layout | None, blocks: int) -> int | None:
    """The dim that a pack cuts into so many blocks; None if it is no such pack."""
    if layout is None or len(layout.pos) != 1:
        return None
    (dim,), (tile,) = layout.pos, layout.tiles
    return dim if layout.source[dim] == tile * blocks else None


def _parts(kinds: int) -> OpCut:
    return OpCut("parts", ("add",) * kinds, "add", "parts")


def _moved(dim: int, operands: tuple[Kind, ...]) -> OpCut:
    return OpCut(f"dim {dim}", operands, dim, "moved")


def _of_transpose(op: str, t: Transpose, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    shape = tuple(shapes[0][p] for p in t.perm)
    for dim in range(len(shape)):
        behind = _shard(shape, dim, blocks)
        before = None if behind is None else _dim_of(before_transpose(behind, t.perm), blocks)
        if before is not None:
            yield _moved(dim, (before,))
    yield _parts(1)


def _of_reshape(op: str, r: Reshape, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    """The outermost dims of a group of dims: their blocks are blocks on the other side."""
    for left, right in large_groups(r.source, r.shape) or ():
        a, b = left[0], right[0]
        if math.gcd(r.source[a], r.shape[b]) % blocks == 0:
            yield _moved(b, (a,))
    yield _parts(1)


def _of_move(op: str, move: Move, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    if op == "gather":
        yield from _of_gather(move, blocks)
        return
    for dim in range(len(move.sources[0])):
        packs = [_shard(s, dim, blocks) for s in move.sources]
        if None in packs:
            continue
        layouts = tuple(p for p in packs if p is not None)
        if op != "concat" and move.sources[0][dim] == move.shape[dim]:
            yield _moved(dim, (dim,))  # it moves nothing along this dim
            continue
        crossed = below(layouts, move)
        behind = None if crossed is None else _dim_of(crossed.layout, blocks)
        if behind is not None and all(s[dim] == move.shape[behind] for s in move.sources):
            yield _moved(behind, (dim,) * len(packs))
    if op != "pad" or float(move.args[2]) == 0:
        yield _parts(len(move.sources))


def _of_gather(move: Move, blocks: int) -> Iterator[OpCut]:
    (axis,) = move.args
    source, indices = move.sources
    for dim in range(len(source)):
        pack = _shard(source, dim, blocks)
        crossed = None if pack is None or dim == axis else below((pack,), move)
        behind = None if crossed is None else _dim_of(crossed.layout, blocks)
        if behind is not None:
            yield _moved(behind, (dim, REPLICATED))
    for dim, size in enumerate(indices):
        if size % blocks == 0 and size:
            yield _moved(axis + dim, (REPLICATED, dim))
    yield OpCut("parts", ("add", REPLICATED), "add", "parts")


def _of_rows(gather: Move, blocks: int, batch: Sequence[int]) -> Iterator[OpCut]:
    """The dim that is gathered along: of any table, and of one by items of a batch."""
    ((axis,), (source, indices)) = gather.args, gather.sources
    if source[axis] % blocks == 0 and source[axis]:
        yield OpCut(MASKED, (axis, REPLICATED), "add", "summed")
    for dim in batch:
        if indices[dim] % blocks == 0:
            yield OpCut(own_rows(dim), (axis, dim), axis + dim, "moved")


# ---- the rest ------------------------------------------------------------------------------------
def _of_fill(op: str, fill: Fill, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    for dim, size in enumerate(fill.type.shape):
        if size % blocks == 0 and size:
            yield _moved(dim, ())


def _of_result(op: str, r: Result, shapes: Sequence[Shape], blocks: int) -> Iterator[OpCut]:
    for dim, size in enumerate(shapes[0]):
        if size % blocks == 0 and size:
            yield _moved(dim, (dim,))
    for combine in PARTIAL:
        yield OpCut("parts", (combine,), combine, "parts")


_CUTS: dict[type[Attr], Callable[..., Iterator[OpCut]]] = {
    Generic: _of_generic,
    Transpose: _of_transpose,
    Reshape: _of_reshape,
    Move: _of_move,
    Fill: _of_fill,
    Result: _of_result,
}
