"""What the parts of a rows kernel share: buffers, scratch, and values at points of a row."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eqsat.execute.kernels import casts, math
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import I8, Value, memory_type
from eqsat.execute.kernels.points import Points
from eqsat.model.nest import Nest, Store
from eqsat.plan import passes as analysis
from eqsat.plan.inplace import update_of
from eqsat.plan.rows import Part, scratch_of, square_slots, widest_lanes


@dataclass(frozen=True)
class RowCode:
    """A part of the plan, the stores and reductions it is of, and where buffers lie."""

    code: Code
    nest: Nest
    part: Part
    passes: analysis.Dependences
    section: analysis.RowSection
    reads: Mapping[int, Value]
    writes: Mapping[int, Value]
    scratch: Value

    @cached_property
    def groups(self) -> list[analysis.Sweep]:
        return self.passes.groups(self.section)

    @cached_property
    def slots(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        return scratch_of(self.nest, self.part)[0]

    @cached_property
    def squares(self) -> dict[Any, int]:
        return square_slots(self.nest, self.part)[0]

    def slot(self, stage: int, at: Sequence[Index], column: int) -> tuple[Value, Any, int]:
        """Address of a kept value, its type in memory, and its loop that is contiguous (-1)."""
        code, part = self.code, self.part
        start, loops = self.slots[stage]
        kind = memory_type(self.nest.stages[stage].dtype)
        sizes = [self.nest.sizes[i] for i in loops]
        if part.vector < 0 and sizes:
            sizes[-1] = -(-sizes[-1] // widest_lanes(part)) * widest_lanes(part)
        index: Index = 0
        for i, n in zip(loops, sizes, strict=True):
            index = code.add(code.mul(index, n), at[i])
        if part.vector >= 0:
            index = code.add(code.mul(index, part.lanes * part.vectors), column * part.lanes)
        base = code.at(self.scratch, I8, start)
        return code.at(base, kind, index), kind, loops[-1] if loops else -1

    def store(
        self, store: Store, x: Value, points: Points, at: Sequence[Index], mask: Mask
    ) -> None:
        """Write a value where the nest has the points; mask: of those that exist."""
        code, a = self.code, store.access
        x = self.filled(store, x, points, at)
        written = points.holds(store.bounds, at)
        if written is False:
            return
        if written is not True:
            mask = code.within(written, mask, points.lanes)
        kind = memory_type(a.dtype)
        pointer = code.at(self.writes[a.buffer], kind, points.offset(a, at))
        step = a.strides[points.along] if points.lanes > 1 else 1
        code.store(x, pointer, kind, step, _vector_mask(code, mask, points.lanes))

    def change(
        self,
        store: Store,
        points: Points,
        at: Sequence[Index],
        values: Mapping[Any, Value],
        mask: Mask,
    ) -> None:
        """Write in place what is no element of the argument; the others are not even read."""
        code, s = self.code, self.nest.stages[store.stage]
        update = update_of(self.nest, store)
        assert update is not None
        condition, value, holds = update
        memo = dict(values)
        there = points.body(condition, s.arguments, at, memo, mask, "bool")
        there = there if holds else code.builder.not_(there)

        def write() -> None:
            x = points.body(value, s.arguments, at, dict(memo), mask, s.dtype)
            self.store(store, x, points, at, code.within(there, mask, points.lanes))

        code.when(code.any_lane(there), write)

    def filled(self, store: Store, x: Value, points: Points, at: Sequence[Index]) -> Value:
        """The value as it is stored, its fill where the access has no element."""
        code, a = self.code, store.access
        there = points.holds(a.bounds, at)
        if there is not True and a.fill is not None:
            fill = math.lane_constant(code, points.lanes, a.fill, a.dtype)
            x = code.select(there, x, fill)
        return casts.stored(code, x, a.dtype)


def _vector_mask(code: Code, mask: Mask, lanes: int) -> Mask:
    """A condition that all lanes share as a mask of lanes."""
    if lanes == 1 or mask is None or isinstance(mask, int):
        return mask
    return code.mask(mask, lanes)


@dataclass(frozen=True)
class RowPoints(Points):
    """Points of a row: values that were kept come from scratch.

    there: stages that scratch has by now. column: which of the vectors of rows this is.
    """

    section: Any = None
    there: frozenset[int] = frozenset()
    column: int = 0

    def stage(
        self,
        number: int,
        at: Sequence[Index],
        values: MutableMapping[Any, Value],
        mask: Mask = None,
    ) -> Value:
        if number not in values and number in self.there:
            values[number] = self.read_scratch(number, at, mask)
        return super().stage(number, at, values, mask)

    def read_scratch(self, number: int, at: Sequence[Index], mask: Mask) -> Value:
        pointer, kind, loop = self.section.slot(number, at, self.column)
        code, step = self.code, self._step(number, loop)
        if step == 1 and self.lanes > 1:  # whole vectors are there to be read
            value = code.load(pointer, kind, self.lanes)
        elif step == 0:
            value = code.broadcast(code.load(pointer, kind), self.lanes)
        else:
            value = code.load(pointer, kind, self.lanes, step, mask)
        return casts.loaded(code, value, self.section.nest.stages[number].dtype)

    def keep(self, number: int, x: Value, at: Sequence[Index], mask: Mask) -> None:
        pointer, kind, loop = self.section.slot(number, at, self.column)
        code, step = self.code, self._step(number, loop)
        x = casts.stored(code, x, self.section.nest.stages[number].dtype)
        whole = step == 1 or self.lanes == 1
        code.store(x, pointer, kind, 1 if whole else step, None if whole else mask)

    def _step(self, number: int, loop: int) -> int:
        """Elements between neighbouring lanes in the slot of a stage."""
        part = self.section.part
        if self.lanes == 1 or part.vector >= 0 or self.along == loop:
            return 1
        _, loops = self.section.slots[number]
        if self.along not in loops:
            return 0
        nest, step = self.section.nest, nest_size(self.section, loops[-1])
        for i in reversed(loops[:-1]):
            if i == self.along:
                return step
            step *= nest.sizes[i]
        return step


def nest_size(section: RowCode, loop: int) -> int:
    """Points of the contiguous loop of a slot, padded to whole vectors."""
    pad = widest_lanes(section.part)
    return -(-section.nest.sizes[loop] // pad) * pad
