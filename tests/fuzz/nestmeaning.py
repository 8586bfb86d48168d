"""NumPy float64 meaning of a nest: every point of every stage, then every store.

It knows nothing of how nests are built: addresses are computed and looked up one by one, so a
stride or a bound that is wrong gives wrong values, and an address outside of a buffer an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.model.nest import Access, Bound, Nest, Scalar, Stage, Store
from eqsat.ops.meaning import scalar

Array = np.ndarray[Any, Any]
LIMIT = 2**22  # points evaluated at once

_REDUCE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def evaluate(
    nest: Nest, buffers: Mapping[int, Array], results: Mapping[int, int], limit: int = LIMIT
) -> dict[int, Array]:
    """The buffers a nest writes, flat, in held form (`scalar.held_dtype`).

    buffers: what it reads, flat, in held form. results: elements of each buffer that is written;
    those that no store writes, or where anything may stand, are NaN or the largest integer.
    IndexError where an address lies outside of its buffer.
    """
    run = _Run(nest, buffers, limit)
    types = {s.access.buffer: s.access.dtype for s in nest.stores}
    written = {b: np.full(n, anything(types[b]), scalar.held_dtype(types[b]))
               for b, n in results.items()}  # fmt: skip
    with np.errstate(all="ignore"):
        for i in range(len(nest.stages)):
            run.stage(i)
        for s in nest.stores:
            run.store(s, written[s.access.buffer])
    return written


def disagreement(nest: Nest, values: Mapping[int, Array]) -> str:
    """What a nest writes otherwise than its members mean, as a sentence; "" if nothing.

    values: of every node that it reads or writes, in held form, in any shape. Where a value is
    NaN, as in lanes that are left open, the nest may write anything.
    """
    read = {b: values[b].ravel() for b in nest.reads}
    got = evaluate(nest, read, {w: values[w].size for w in nest.writes})
    for w in nest.writes:
        want = values[w].ravel()
        if want.dtype.kind == "f":
            scale = np.max(np.abs(want), where=np.isfinite(want), initial=1.0)
            close = np.isclose(got[w], want, rtol=1e-9, atol=1e-9 * scale)
            same = np.isnan(want) | close
        else:
            same = got[w] == want
        if not same.all():
            return f"%{w}: {int((~same).sum())} of {same.size} elements differ"
    return ""


def anything(dtype: str) -> Scalar:
    """What stands for any value, so that reading it shows."""
    kind = scalar.held_dtype(dtype).kind
    if kind == "f":
        return math.nan
    return True if kind == "b" else scalar.integer_range(dtype)[1]


class _Run:
    def __init__(self, nest: Nest, buffers: Mapping[int, Array], limit: int):
        self.nest, self.buffers, self.limit = nest, buffers, limit
        self.values: list[Array] = []  # of each stage: extent 1 along loops it does not have

    def stage(self, number: int) -> None:
        s = self.nest.stages[number]
        loops = (*s.loops, *s.reduced)
        held = scalar.held_dtype(s.dtype)
        start = scalar.neutral(s.combine, s.dtype) if s.combine else 0
        whole = np.full(self._shape(s.loops), start, held)
        for box in self._boxes(loops):
            value = scalar.hold(self._body(s, box), s.dtype)
            value = np.broadcast_to(value, self._shape(loops, box))
            if s.combine:
                value = np.where(
                    self._exists(self.nest.bounds, box, loops), value, held.type(start)
                )
                value = _REDUCE[s.combine].reduce(
                    value, axis=s.reduced, keepdims=True, dtype=held, initial=start
                )
            where = tuple(box[d] if d in s.loops else slice(None) for d in range(len(box)))
            before = whole[where]
            whole[where] = _REDUCE[s.combine](before, value) if s.combine else value
        self.values.append(scalar.hold(whole, s.dtype))

    def _body(self, s: Stage, box: Sequence[slice]) -> Array:
        operands = [
            self._cut(self.values[a], box) if isinstance(a, int) else self._read(a, box)
            for a in s.arguments
        ]
        value = scalar.evaluate_body(s.body, operands)
        if s.bounds:
            other = operands[1] if len(operands) > 1 else s.fill
            value = np.where(self._holds(s.bounds, box), value, other)
        return value

    def _read(self, a: Access, box: Sequence[slice]) -> Array:
        own = self._holds(a.bounds, box)
        address = self._address(a, box)
        read = own & self._holds(self.nest.bounds, box)
        touched = np.where(read, address, 0)
        low, high = touched.min(initial=0), touched.max(initial=0)
        if touched.size and (low < 0 or high >= self.buffers[a.buffer].size):
            raise IndexError(f"%{a.buffer} is read at {low} … {high}")
        fill = anything(a.dtype) if a.fill is None else a.fill
        held = scalar.held_dtype(a.dtype)
        if not touched.size:
            return np.full(touched.shape, fill, held)
        return np.where(read, self.buffers[a.buffer][touched], held.type(fill))

    def store(self, s: Store, written: Array) -> None:
        a = s.access
        for box in self._boxes(s.loops):
            shape = self._shape(s.loops, box)
            where = self._holds((*self.nest.bounds, *s.bounds), box)
            where = np.broadcast_to(where, np.broadcast_shapes(shape, where.shape))
            value = self._cut(self.values[s.stage], box)
            fill = scalar.held_dtype(a.dtype).type(anything(a.dtype) if a.fill is None else a.fill)
            value = np.where(self._holds(a.bounds, box), value, fill)
            address = np.broadcast_to(self._address(a, box), where.shape)[where]
            if address.size and (address.min() < 0 or address.max() >= written.size):
                raise IndexError(f"%{a.buffer} is written at {address.min()} … {address.max()}")
            written[address] = np.broadcast_to(value, where.shape)[where]

    # ---- points
    def _boxes(self, loops: Iterable[int]) -> Iterable[list[slice]]:
        """The points of these loops in boxes of at most `limit`; index 0 along the others."""
        own, sizes = set(loops), self.nest.sizes
        boxes = [[slice(0, n if d in own else 1) for d, n in enumerate(sizes)]]
        while boxes:
            box = boxes.pop()
            extents = [b.stop - b.start for b in box]
            if math.prod(extents) <= self.limit:
                yield box
                continue
            d = extents.index(max(extents))
            middle = box[d].start + extents[d] // 2
            for part in (slice(box[d].start, middle), slice(middle, box[d].stop)):
                boxes.append([*box[:d], part, *box[d + 1 :]])

    def _shape(self, loops: Sequence[int], box: Sequence[slice] | None = None) -> tuple[int, ...]:
        sizes = self.nest.sizes if box is None else [b.stop - b.start for b in box]
        return tuple(n if d in loops else 1 for d, n in enumerate(sizes))

    def _cut(self, value: Array, box: Sequence[slice]) -> Array:
        """A value's part in a box; all of it along loops it does not have."""
        return value[
            tuple(b if n > 1 else slice(None) for b, n in zip(box, value.shape, strict=True))
        ]

    def _sum(self, strides: Sequence[int], base: int, box: Sequence[slice]) -> Array:
        found = np.full((1,) * len(box), base, np.int64)
        for d, (stride, part) in enumerate(zip(strides, box, strict=True)):
            if stride:
                line = np.arange(part.start, part.stop) * stride
                found = found + line.reshape([-1 if d == i else 1 for i in range(len(box))])
        return found

    def _address(self, a: Access, box: Sequence[slice]) -> Array:
        found = self._sum(a.strides, a.base, box)
        for k in a.lookups:
            read = [self._read(x, box) for x in k.arguments]
            index = scalar.hold(scalar.evaluate_body(k.body, read), k.dtype)
            found = found + np.clip(index, 0, k.extent - 1).astype(np.int64) * k.stride
        return found

    def _holds(self, bounds: Iterable[Bound], box: Sequence[slice]) -> Array:
        found = np.full((1,) * len(box), True)
        for b in bounds:
            index = self._sum(b.strides, b.base, box)
            found = found & (index >= 0) & (index < b.extent)
        return found

    def _exists(self, bounds: Iterable[Bound], box: Sequence[slice], loops: Sequence[int]) -> Array:
        """Where points of these loops exist: bounds on other loops are others' concern."""
        own = [b for b in bounds if all(d in loops for d, s in enumerate(b.strides) if s)]
        return self._holds(own, box)
