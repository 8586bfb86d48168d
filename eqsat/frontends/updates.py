"""Writes at computed places: dynamic_update_slice, and the scatters of one window.

Known starts cut the value: what is before, the update and what is after. Others make a choice per
element by its position, which lets layouts pass as any elementwise op, and which a kernel computes
where it is new alone. A scatter is one window if no two of its updates can meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.frontends.indexing import Results, all_of, clamped, constant_array, in_range, line, taken
from eqsat.frontends.values import Context, Tensor, concatenated, sliced_along, view
from eqsat.model.affine import affine, dim
from eqsat.model.expr import Expr, arg, call, const


@dataclass(frozen=True)
class Window:
    """Where an update goes. starts: by dim, clamped; others are written whole.

    inside: further conditions, each over the value before it. combine: the function of what is
    there and the update; empty: the update.
    """

    starts: Mapping[int, Tensor]
    inside: Sequence[tuple[Tensor, Sequence[Expr]]] = ()
    combine: str = ""


def dynamic_update_slice(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> Results:
    """Starts are clamped so that the update fits."""
    x, update, *starts = xs
    if 0 in update.shape:
        return [x]
    room = [s - n for s, n in zip(x.shape, update.shape, strict=True)]
    held = {d: _clamped(ctx, starts[d], r) for d, r in enumerate(room) if r}
    return [_updated(ctx, x, update, Window(held))]


def _clamped(ctx: Context, start: Tensor, room: int) -> Tensor:
    if start.is_constant:
        return Tensor((), "i32", constant=min(max(int(start.constant), 0), room))
    return clamped(ctx, start, room)


def _updated(ctx: Context, x: Tensor, update: Tensor, window: Window) -> Tensor:
    """A known row beside a computed start, as that of a layer, is part of the choice: the value is
    then one, the whole, of which the next one can be made in place."""
    moves = bool(window.inside) or any(not s.is_constant for s in window.starts.values())
    fixed = [
        d
        for d, s in window.starts.items()
        if s.is_constant and not (moves and update.shape[d] == 1)
    ]
    return _replaced(ctx, x, update, window, fixed)


def _replaced(ctx: Context, x: Tensor, update: Tensor, window: Window, fixed: list[int]) -> Tensor:
    if not fixed:
        return _chosen(ctx, x, update, window)
    d, *rest = fixed
    at, width = int(window.starts[d].constant or 0), update.shape[d]
    before, after = sliced_along(ctx, x, d, 0, at), sliced_along(ctx, x, d, at + width, x.shape[d])
    there = sliced_along(ctx, x, d, at, at + width)
    left = {k: s for k, s in window.starts.items() if k != d}
    inner = Window(left, window.inside, window.combine)
    return concatenated(ctx, [before, _replaced(ctx, there, update, inner, rest), after], d)


def _chosen(ctx: Context, x: Tensor, update: Tensor, window: Window) -> Tensor:
    """x, and the update where the position in every one of these dims is inside it."""
    values, inside = [x, update], list[Expr]()
    for d, start in window.starts.items():
        extent, width = x.shape[d], update.shape[d]
        if width > 1:
            values[1] = taken(ctx, values[1], _offsets(ctx, start, extent, width), d)
        at = arg(len(values))
        values += [view(line(ctx, extent), x.shape, [dim(d)]), start]
        inside.append(_within(at, arg(len(values) - 1), width))
    for value, conditions in window.inside:
        inside += [c.substitute({0: arg(len(values))}) for c in conditions]
        values.append(value)
    new = call(window.combine, arg(0), arg(1)) if window.combine else arg(1)
    body = call("select", all_of(inside), new, arg(0)) if inside else new
    return ctx.elementwise(body, values, x.shape, x.dtype)


def _offsets(ctx: Context, start: Tensor, extent: int, width: int) -> Tensor:
    """For each position of a dim which element of the update it takes, if it takes one."""
    body = call("clamp", const(0), call("sub", arg(0), arg(1)), const(width - 1))
    return ctx.elementwise(body, [line(ctx, extent), start], (extent,), "i32")


def _within(at: Expr, begin: Expr, width: int) -> Expr:
    if width == 1:
        return call("eq", at, begin)
    return call("and", call("ge", at, begin), call("lt", at, call("add", begin, const(width))))


# ---- scatters ------------------------------------------------------------------------------------
def scatter(combine: str) -> Any:
    """A scatter of one window, or of one per row of dims that index themselves."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> Results:
        (x, indices, update), p = xs, eqn.params
        dn, plain = p["dimension_numbers"], combine or p["update_jaxpr"] is None
        batch = tuple(indices.shape[:-1])
        if not plain or 0 in (*x.shape, *update.shape) or len(x.shape) == 0:
            return None
        columns = _columns(ctx, indices, dn, batch)
        rows = _rows(ctx, dn, x, columns, batch)
        if any(n > 1 and b not in rows for b, n in enumerate(batch)):
            return None
        moving = {d: c for d, c in columns.items() if d not in rows.values()}
        whole = _laid_out(x, update, dn, rows)
        window = _window(ctx, x, whole, moving, rows, p["mode"].name)
        if window is None:
            return None
        starts, inside = window
        return [_updated(ctx, x, whole, Window(starts, inside, combine))]

    return lower


def _columns(ctx: Context, indices: Tensor, dn: Any, batch: tuple[int, ...]) -> dict[int, Tensor]:
    """By dim of the operand: its index, of the shape of the batch."""
    around, parts = [dim(b) for b in range(len(batch))], _side_by_side(ctx, indices)
    columns = [view(x, batch, [*around, affine([], k)]) for x in parts for k in range(x.shape[-1])]
    return {int(d): columns[k] for k, d in enumerate(dn.scatter_dims_to_operand_dims)}


def _side_by_side(ctx: Context, x: Tensor) -> list[Tensor]:
    """The parts concatenated along the last dim, so that one of them may be known."""
    if x.is_constant:
        return [x]
    n = ctx.builder.nodes[x.node]
    whole = n.op == "concat" and ctx.full(x.node) == x and n.attr.args == (len(x.shape) - 1,)  # type: ignore[attr-defined]
    return [ctx.full(o) for o in n.operands] if whole else [x]


def _rows(
    ctx: Context, dn: Any, x: Tensor, columns: Mapping[int, Tensor], batch: tuple[int, ...]
) -> dict[int, int]:
    """Dims of the batch by whose number a dim of the operand is indexed, and that dim."""
    pairs = zip(dn.scatter_indices_batching_dims, dn.operand_batching_dims, strict=True)
    rows = {int(b): int(d) for b, d in pairs}
    for d, column in columns.items():
        at = constant_array(ctx, column) if d in dn.inserted_window_dims else None
        for b, n in enumerate(batch):
            if at is None or b in rows or n == 1 or n != x.shape[d]:
                continue
            numbers = np.arange(n).reshape([n if k == b else 1 for k in range(len(batch))])
            if d not in rows.values() and (at == numbers).all():
                rows[b] = d
    return rows


def _laid_out(x: Tensor, update: Tensor, dn: Any, rows: Mapping[int, int]) -> Tensor:
    """The update with the dims of the operand, of extent 1 where it is indexed."""
    gone = {int(d) for d in (*dn.inserted_window_dims, *dn.operand_batching_dims)}
    window_dims = iter(d for d in range(len(x.shape)) if d not in gone)
    windows = {int(w) for w in dn.update_window_dims}
    batch = iter(range(len(update.shape)))
    outer, shape = [], [1] * len(x.shape)
    for u, n in enumerate(update.shape):
        d = next(window_dims) if u in windows else rows.get(next(batch), -1)
        outer.append(dim(d) if d >= 0 else affine([]))
        if d >= 0:
            shape[d] = n
    return view(update, tuple(shape), outer)


def _window(
    ctx: Context,
    x: Tensor,
    update: Tensor,
    columns: Mapping[int, Tensor],
    rows: Mapping[int, int],
    mode: str,
) -> tuple[dict[int, Tensor], list[tuple[Tensor, list[Expr]]]] | None:
    """Starts by dim, and conditions; None where each row has a window of several places."""
    starts: dict[int, Tensor] = {}
    inside: list[tuple[Tensor, list[Expr]]] = []

    def spread(index: Tensor) -> Tensor:
        if not rows:
            return view(index, (), [affine([])] * len(index.shape))
        images = [dim(rows[b]) if b in rows else affine([]) for b in range(len(index.shape))]
        return view(index, x.shape, images)

    for d, column in columns.items():
        room, width = x.shape[d] - update.shape[d], update.shape[d]
        if rows and width > 1 and room:
            return None
        at = constant_array(ctx, column)
        if at is not None and (at == at.flat[0]).all():
            one = int(at.flat[0])
            starts[d] = Tensor((), "i32", constant=min(max(one, 0), room))
            if mode != "CLIP" and not 0 <= one <= room:
                inside.append((spread(column), in_range(arg(0), room, column.dtype)))
        elif mode != "CLIP" and width == 1 and room and column.dtype == "i32":
            starts[d] = spread(column)  # one that is out of range is no place
        else:
            starts[d] = spread(clamped(ctx, column, room))
            tests = in_range(arg(0), room, column.dtype) if mode != "CLIP" else []
            inside += [(spread(column), tests)] if tests else []
    return {d: s for d, s in starts.items() if x.shape[d] > update.shape[d]}, inside
