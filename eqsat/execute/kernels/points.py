"""Values of a nest's accesses and stages at a point, or at neighbouring points along one loop.

The parts of a rows kernel share these of a row, with its buffers and scratch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat.execute.kernels import kinds, math
from eqsat.execute.kernels.ir import Code, Index, Mask
from eqsat.execute.kernels.kinds import I8, Value, memory_type
from eqsat.execute.kernels.lanes import loaded, memory_constant, stored
from eqsat.model.expr import Expr, arg
from eqsat.model.nest import Access, Bound, Lookup, Nest, Store
from eqsat.plan import passes as analysis
from eqsat.plan.rows import Part, scratch_of, square_slots, widest_lanes
from eqsat.plan.stages import access_loops
from eqsat.plan.storage import update_of


@dataclass(frozen=True)
class Points:
    """Lanes points along loop `along`, the first at the indices a call gives; one point if -1.

    reads: pointer of every buffer that is read. positions: of lookups that are the same at all
    points and evaluated by now.
    """

    code: Code
    nest: Nest
    reads: Mapping[int, Value]
    along: int = -1
    lanes: int = 1
    positions: Mapping[Lookup, Index] = field(default_factory=dict)

    def access(self, access: Access, at: Sequence[Index], mask: Mask = None) -> Value:
        """The element at each point; where a bound fails its fill; out of the mask, anything.

        Bools are masks.
        """
        element = self._element(access, at, mask)
        if access.dtype != "bool":
            return element
        return self.code.builder.icmp_unsigned("!=", element, self.code.zero(kinds.I8, self.lanes))

    def _element(self, access: Access, at: Sequence[Index], mask: Mask) -> Value:
        """Element as it lies in memory."""
        kind = kinds.memory_type(access.dtype)
        step = access.strides[self.along] if self.lanes > 1 else 0
        if any(self._varies(k) for k in access.lookups):
            return self._one_by_one(access, at, mask)
        there = self.holds(access.bounds, at)
        fill = memory_constant(self.code, access.fill or 0, access.dtype)
        if there is False:
            return self.code.broadcast(fill, self.lanes)
        offset = self.offset(access, at)
        pointer = self.code.at(self.reads[access.buffer], kind, offset)
        if step == 0:
            return self._uniform(pointer, kind, there, fill)
        if there is not True and self.lanes > 1 and kinds.lanes_of(there) == 1:
            return self._all_or_none(pointer, kind, step, mask, there, fill)
        if there is not True:
            mask = self.code.within(there, mask, self.lanes)
        return self.code.load(pointer, kind, self.lanes, step, mask, fill)

    def _all_or_none(
        self, pointer: Value, kind: Any, step: int, mask: Mask, there: Value, fill: Value
    ) -> Value:
        """A vector that is there as a whole or not at all.

        A load whose mask is empty is no way out: where its address is no memory of the process it
        takes a hundred times as long as one that reads.
        """
        code, other = self.code, self.code.broadcast(fill, self.lanes)
        load = lambda: [code.load(pointer, kind, self.lanes, step, mask, fill)]  # noqa: E731
        return code.when(there, load, lambda: [other])[0]

    def offset(self, access: Access, at: Sequence[Index]) -> Index:
        """Elements from the start of the buffer to the first point's."""
        offset = self.code.affine(access.base, access.strides, at)
        for k in access.lookups:
            number = self.positions[k] if k in self.positions else self.looked_up(k, at)
            offset = self.code.add(offset, self.code.mul(number, k.stride))
        return offset

    def holds(self, bounds: Iterable[Bound], at: Sequence[Index]) -> Any:
        """Whether all bounds hold: a bool, an i1, or a mask where that differs between lanes."""
        code, all_hold = self.code, True
        for b in bounds:
            x = code.affine(b.base, b.strides, at)
            step = b.strides[self.along] if self.lanes > 1 else 0
            if step:
                start = code.broadcast(code.index(x), self.lanes)
                steps = [i * step for i in range(self.lanes)]
                wide = code.builder.add(start, kinds.constants(kinds.I64, steps))
                limit = kinds.constants(kinds.I64, [b.extent] * self.lanes)
                test = code.builder.icmp_unsigned("<", wide, limit)
            elif isinstance(x, int):
                test = 0 <= x < b.extent
            else:
                test = code.builder.icmp_unsigned("<", x, code.index(b.extent))
            all_hold = code.both(all_hold, test)
        return all_hold

    def _uniform(self, pointer: Value, kind: Any, there: Any, fill: Value) -> Value:
        """One element for all lanes, behind the conditions that all lanes share."""
        code = self.code
        if there is True:
            return code.broadcast(code.load(pointer, kind), self.lanes)
        if kinds.lanes_of(there) == 1:
            return code.broadcast(code.load(pointer, kind, mask=there, fill=fill), self.lanes)
        some = code.any_lane(there)
        one = code.load(pointer, kind, mask=some, fill=fill)
        return code.select(there, code.broadcast(one, self.lanes), code.broadcast(fill, self.lanes))

    def _varies(self, lookup: Lookup) -> bool:
        return self.lanes > 1 and any(self.along in access_loops(x) for x in lookup.arguments)

    def looked_up(self, k: Lookup, at: Sequence[Index]) -> Index:
        """The number found, clamped; of the first point, as a scalar."""
        code, one = self.code, Points(self.code, self.nest, self.reads)
        number = one.body(k.body, k.arguments, at, {}, dtype=k.dtype)
        unsigned = k.dtype.startswith("u")
        if k.dtype == "u64":  # so that what is above all signed numbers is not below them
            number = code.intrinsic("llvm.umin", number, code.index(k.extent - 1))
        elif k.dtype != "i64":
            widen = code.builder.zext if unsigned else code.builder.sext
            number = widen(number, kinds.I64)
        return code.max(code.min(number, k.extent - 1), 0)

    def _one_by_one(self, access: Access, at: Sequence[Index], mask: Mask) -> Value:
        kind, gathered = kinds.memory_type(access.dtype), None
        one = Points(self.code, self.nest, self.reads, positions=self.positions)
        for i in range(self.lanes if mask is None or not isinstance(mask, int) else mask):
            here = list(at)
            here[self.along] = self.code.add(at[self.along], i)
            x = self._lane_value(one, access, here, mask, i)
            start = self.code.zero(kind, self.lanes) if gathered is None else gathered
            gathered = self.code.builder.insert_element(start, x, kinds.constants(kinds.I32, [i]))
        return self.code.zero(kind, self.lanes) if gathered is None else gathered

    def _lane_value(
        self, one: Points, access: Access, here: Sequence[Index], mask: Mask, i: int
    ) -> Value:
        if mask is None or isinstance(mask, int):
            return one._element(access, here, None)
        zero = self.code.zero(kinds.memory_type(access.dtype))
        there = self.code.lane(mask, i)
        return self.code.when(there, lambda: [one._element(access, here, None)], lambda: [zero])[0]

    def stage(
        self,
        number: int,
        at: Sequence[Index],
        values: MutableMapping[Any, Value],
        mask: Mask = None,
    ) -> Value:
        """A stage's value; `values`: those of accesses and stages at these points, added to."""
        if number not in values:
            s = self.nest.stages[number]
            x = self.body(s.body, s.arguments, at, values, mask, s.dtype)
            there = self.holds(s.bounds, at)
            if there is not True:
                if len(s.arguments) > 1:
                    other = self.body(arg(1), s.arguments, at, values, mask, s.dtype)
                else:
                    other = math.lane_constant(self.code, self.lanes, s.fill, s.dtype)
                x = self.code.select(there, x, other)
            values[number] = x
        return values[number]

    def body(
        self,
        body: Expr,
        arguments: Sequence[Access | int],
        at: Sequence[Index],
        values: MutableMapping[Any, Value],
        mask: Mask = None,
        dtype: str = "f32",
    ) -> Value:
        """An expression over accesses and stages at these points, as a value of `dtype`."""
        operands: dict[int, Value] = {}
        for i in body.operands():
            a = arguments[i]
            if isinstance(a, int):
                operands[i] = self.stage(a, at, values, mask)
                continue
            if a not in values:
                values[a] = self.access(a, at, mask)
            operands[i] = values[a]
        dtypes = {i: self._dtype(arguments[i]) for i in operands}
        return lower_body(self.code, body, operands, self.lanes, dtypes, dtype)

    def _dtype(self, argument: Access | int) -> str:
        if isinstance(argument, int):
            return self.nest.stages[argument].dtype
        return argument.dtype


def lower_body(
    code: Code,
    body: Expr,
    operands: Mapping[int, Value],
    lanes: int,
    dtypes: Mapping[int, str] | None = None,
    dtype: str = "f32",
) -> Value:
    """Vector code of a body over operands of these element types (f32), as a value of `dtype`."""
    leaves = [math.Typed(None, None)] * (max(operands, default=-1) + 1)
    for i, x in operands.items():
        leaves[i] = math.Typed(code.broadcast(x, lanes), dtypes[i] if dtypes else "f32")
    (result,) = math.lower_bodies(code, lanes, [body], leaves, dtype)
    return math.lane_cast(code, lanes, result, dtype).value


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
        return stored(code, x, a.dtype)


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
        return loaded(code, value, self.section.nest.stages[number].dtype)

    def keep(self, number: int, x: Value, at: Sequence[Index], mask: Mask) -> None:
        pointer, kind, loop = self.section.slot(number, at, self.column)
        code, step = self.code, self._step(number, loop)
        x = stored(code, x, self.section.nest.stages[number].dtype)
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
