"""Gather, scatter and their kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import STATIC_ELEMENTS, OnnxCall, operator


def _wrapped(c: OnnxCall, i: int, size: int) -> Any:
    """Indices counted from 0; those known now are checked to lie in the axis."""
    held = c.held(i)
    if held.is_constant:
        index = held.array
        if index.size and (index.min() < -size or index.max() >= size):
            raise c.error("E368", f"reads beyond an axis of {size} elements")
        return np.where(index < 0, index + size, index) if index.dtype.kind == "i" else index
    index = c[i]
    return c.xp.where(index < 0, index + size, index) if index.dtype.kind == "i" else index


@operator("Gather", newest=13, fold=True)
def gather(c: OnnxCall) -> Any:
    """Known indices that step evenly are a slice."""
    axis = c.along("axis", 0)
    index = _wrapped(c, 1, c.shape(0)[axis])
    if c.xp is np:
        return np.take(c[0], index, axis=axis)
    steps = _even_steps(index) if isinstance(index, np.ndarray) else None
    if steps is None:
        return c.xp.take(c[0], index, axis=axis, mode="clip")
    at = (slice(None),) * axis
    rows = c[0][(*at, steps)]
    return rows.reshape(c.shape(0)[:axis] + index.shape + c.shape(0)[axis + 1 :])


def _even_steps(index: np.ndarray[Any, Any]) -> slice | None:
    flat = index.reshape(-1).astype(np.int64)
    if flat.size == 0:
        return None
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    if step < 1 or not (np.diff(flat) == step).all():
        return None
    return slice(int(flat[0]), int(flat[-1]) + 1, step)


@operator("GatherElements", newest=13, fold=True)
def gather_elements(c: OnnxCall) -> Any:
    axis = c.along("axis", 0)
    if c.rank(0) != c.rank(1):
        raise c.error("E368", f"has data of rank {c.rank(0)} and indices of rank {c.rank(1)}")
    index = _wrapped(c, 1, c.shape(0)[axis])
    cut = tuple(slice(None) if d == axis else slice(0, s) for d, s in enumerate(c.shape(1)))
    return c.xp.take_along_axis(c[0][cut], c.xp.asarray(index), axis=axis)


@operator("GatherND", newest=13, fold=True)
def gather_nd(c: OnnxCall) -> Any:
    batch = int(c.attribute("batch_dims", 0))
    depth, lead = c.shape(1)[-1], c.shape(1)[:-1]
    if not 0 <= batch < min(c.rank(0), c.rank(1)) or not 1 <= depth <= c.rank(0) - batch:
        raise c.error("E368", f"indexes {depth} of {c.rank(0)} dims below {batch} batch dims")
    grid = [_batch_index(c, lead, b) for b in range(batch)]
    index = c[1]
    for d in range(depth):
        size = c.shape(0)[batch + d]
        part = index[..., d]
        grid.append(c.xp.where(part < 0, part + size, part))
    return c[0][tuple(grid)]


def _batch_index(c: OnnxCall, lead: tuple[int, ...], b: int) -> Any:
    shape = [lead[b] if d == b else 1 for d in range(len(lead))]
    return c.xp.asarray(np.arange(lead[b]).reshape(shape))


@operator("ScatterND", newest=18, fold=True)
def scatter_nd(c: OnnxCall) -> Any:
    depth = c.shape(1)[-1]
    if depth > c.rank(0):
        raise c.error("E368", f"indexes {depth} dims of a tensor of rank {c.rank(0)}")
    index = c[1]
    at = tuple(_positive(c, index[..., d], c.shape(0)[d]) for d in range(depth))
    return _updated(c, c[0], at, c[2])


def _positive(c: OnnxCall, index: Any, size: int) -> Any:
    return c.xp.where(index < 0, index + size, index)


@operator("ScatterElements", newest=18, fold=True)
def scatter_elements(c: OnnxCall) -> Any:
    axis = c.along("axis", 0)
    shape = c.shape(1)
    at = [_batch_index(c, shape, d) for d in range(len(shape))]
    at[axis] = _positive(c, c[1], c.shape(0)[axis])
    return _updated(c, c[0], tuple(at), c[2])


_NUMPY_UPDATES = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _updated(c: OnnxCall, x: Any, at: tuple[Any, ...], updates: Any) -> Any:
    how = c.attribute("reduction", "none")
    if how not in ("none", *_NUMPY_UPDATES):
        raise c.unsupported(f"the reduction `{how}`")
    if c.xp is np:
        updated = np.array(x)
        if how == "none":
            updated[at] = updates
        else:
            _NUMPY_UPDATES[how].at(updated, at, updates)
        return updated
    place = x.at[at]
    return place.set(updates) if how == "none" else getattr(place, how)(updates)


@operator("OneHot", newest=28)
def one_hot(c: OnnxCall) -> Any:
    depth = int(c.static(1, "depth").reshape(-1)[0])
    if not 0 <= depth <= STATIC_ELEMENTS:
        raise c.error("E368", f"has depth {depth}")
    rank = c.rank(0) + 1
    axis = c.axis(int(c.attribute("axis", -1)), rank)
    index = c[0].astype(np.int64)
    index = c.xp.expand_dims(c.xp.where(index < 0, index + depth, index), axis)
    shape = tuple(depth if d == axis else 1 for d in range(rank))
    line = c.xp.asarray(np.arange(depth).reshape(shape), index.dtype)
    values = c[2]
    return c.xp.where(index == line, values[1], values[0])


@operator("TopK", newest=24)
def top_k(c: OnnxCall) -> Any:
    """Ties: the lower index first, as the standard wants it."""
    k = int(c.static(1, "k").reshape(-1)[0])
    axis = c.along("axis", -1)
    if not 0 <= k <= c.shape(0)[axis]:
        raise c.error("E368", f"wants {k} of {c.shape(0)[axis]} elements")
    x, largest = c[0], bool(c.attribute("largest", 1))
    if x.dtype.kind == "u" and largest:
        x = ~x
    key = x if not largest or c.dtype(0).kind == "u" else ~x if x.dtype.kind in "ib" else -x
    order = c.xp.argsort(key, axis=axis, stable=True)
    first = order[tuple(slice(0, k) if d == axis else slice(None) for d in range(x.ndim))]
    return c.xp.take_along_axis(c[0], first, axis=axis), first.astype(np.int64)


@operator("NonZero", newest=13, fold=True)
def non_zero(c: OnnxCall) -> Any:
    indices = np.nonzero(c.static(0, "operand (how many are not zero decides a shape)"))
    return np.stack(indices).astype(np.int64) if indices else np.zeros((0, 1), np.int64)


@operator("Compress", newest=28, fold=True)
def compress(c: OnnxCall) -> Any:
    indices = np.flatnonzero(c.static(1, "condition")).astype(np.int64)
    if "axis" not in c.node.attributes:
        return c.xp.take(c[0].reshape(-1), indices)
    return c.xp.take(c[0], indices, axis=c.axis(int(c.needed("axis")), c.rank(0)))


@operator("ReverseSequence", newest=28)
def reverse_sequence(c: OnnxCall) -> Any:
    batch, time = int(c.attribute("batch_axis", 1)), int(c.attribute("time_axis", 0))
    if {batch, time} != {0, 1}:
        raise c.error("E368", "reverses along other axes than the first two")
    x = c[0] if time == 0 else c.xp.swapaxes(c[0], 0, 1)
    index = reversal(c, x.shape[0], c[1])
    reversed_ = c.xp.take_along_axis(x, index.reshape(*index.shape, *([1] * (x.ndim - 2))), axis=0)
    return reversed_ if time == 0 else c.xp.swapaxes(reversed_, 0, 1)


def reversal(c: OnnxCall, steps: int, lengths: Any) -> Any:
    """[steps, batch]: which step stands at a place after each sequence is reversed."""
    line = c.xp.arange(steps, dtype=lengths.dtype)[:, None]
    return c.xp.where(line < lengths[None], lengths[None] - 1 - line, line)


@operator("Einsum", newest=28)
def einsum(c: OnnxCall) -> Any:
    text = c.needed("equation").replace(" ", "")
    if len(text) > 500:
        raise c.error("E368", "has an equation of more than 500 letters")
    return c.xp.einsum(text, *c.all)


@operator("Unique", newest=28)
def unique(c: OnnxCall) -> Any:
    """Known operands only: the result's shape depends on the values."""
    x = c.static(0, "operand (how many differ decides a shape)")
    axis = c.attribute("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    if not c.attribute("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, *(np.asarray(v, np.int64).reshape(-1) for v in (first, inverse, counts))
