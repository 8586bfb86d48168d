"""A dispatch as one `pallas_call` over blocks in scratch, as a TPU has them.

Operands come by BlockSpecs; a sum over a loop of the grid is kept in scratch from step to step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.execute.expressions import convert
from eqsat.execute.pallas.values import (
    Extents,
    StageValue,
    StageValues,
    broadcast,
    choose,
    combine_two,
    sum_type,
    transposed,
)
from eqsat.model.affine import Affine
from eqsat.model.nest import Access, Stage, Store
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan.gridded.blocks import AccessBlock, BlockPlan, DimBlock, radix
from eqsat.plan.gridded.shapes import reach
from eqsat.plan.stages import access_loops

Refs = Mapping[Any, Any]  # key of a block → its ref


def block_call(
    plan: BlockPlan,
    types: Mapping[int, TensorType],
    precisions: Mapping[int, str],
    interpret: bool,
) -> Callable[..., tuple[Any, ...]]:
    """The kernel of a plan as a function of the buffers `nest.reads`, giving `nest.writes`.

    types: of every buffer. precisions: stage → precision of its contraction. To be traced.
    """
    return _BlockCall(plan, types, precisions, interpret)


class _BlockCall:
    def __init__(
        self,
        plan: BlockPlan,
        types: Mapping[int, TensorType],
        precisions: Mapping[int, str],
        interpret: bool,
    ):
        self.plan, self.types, self.interpret = plan, types, interpret
        nest = plan.nest
        loops = range(len(nest.sizes))
        ragged = frozenset(d for d in loops if plan.is_ragged(d))
        self.extents = Extents(nest, plan.extents, plan.order, plan.products, precisions, ragged)
        first = len(plan.accesses) - len(nest.stores)
        self.reads = list({b.key: b for b in plan.accesses[:first]}.values())
        self.stores = plan.accesses[first:]
        self.writes = list({b.access.buffer: b for b in self.stores}.values())
        self.by_access = {b.access: b for b in plan.accesses[:first]}

    def __call__(self, *buffers: Any) -> tuple[Any, ...]:
        import jax
        from jax.experimental import pallas as pl

        nest, held = self.plan.nest, dict(zip(self.plan.nest.reads, buffers, strict=True))
        out = {
            b.access.buffer: jax.ShapeDtypeStruct(b.shape, element_dtype(b.access.dtype))
            for b in self.writes
        }
        call = pl.pallas_call(
            self._kernel,
            grid=tuple([self.plan.blocks(d) for d in self.plan.grid]),
            in_specs=[self._spec(b) for b in self.reads],
            out_specs=[self._spec(b) for b in self.writes],
            out_shape=list(out.values()),
            scratch_shapes=[self._sum_scratch(n) for n in self.plan.roots],
            interpret=self.interpret,
            compiler_params=None if self.interpret else self._compiler(),
            name="dispatch",
        )
        outputs = call(*(held[b.access.buffer].reshape(b.shape) for b in self.reads))
        by_buffer = dict(zip(out, outputs, strict=True))
        return tuple(by_buffer[w].reshape(self.types[w].shape) for w in nest.writes)

    def _spec(self, b: AccessBlock) -> Any:
        from jax.experimental import pallas as pl

        places = {d: i for i, d in enumerate(self.plan.grid)}
        at = [(places.get(d.loop, -1), d.start) for d in b.dims]

        def index_map(*grid: Any) -> tuple[Any, ...]:
            return tuple([grid[i] if i >= 0 else start for i, start in at])

        return pl.BlockSpec(b.block, index_map)

    def _sum_scratch(self, number: int) -> Any:
        from jax.experimental.pallas import tpu

        s = self.plan.nest.stages[number]
        shape = self._sum_shape(number)
        return tpu.VMEM(shape, element_dtype(sum_type(s.dtype, s.combine)))

    def _sum_shape(self, number: int) -> tuple[int, ...]:
        shape = self.extents.shape(*(self._sum_dims(number),) * 2)
        return tuple([1] * (2 - len(shape)) + shape)

    def _sum_dims(self, number: int) -> tuple[int, ...]:
        return self.extents.dims(self.plan.nest.stages[number].loops)

    def _compiler(self) -> Any:
        from jax.experimental.pallas import tpu

        summed, free = tpu.GridDimensionSemantics.ARBITRARY, tpu.GridDimensionSemantics.PARALLEL
        kinds = [summed if d in self.plan.steps else free for d in self.plan.grid]
        return tpu.CompilerParams(dimension_semantics=kinds)

    # ---- the kernel
    def _kernel(self, *refs: Any) -> None:
        from jax.experimental import pallas as pl

        reads, writes = len(self.reads), len(self.writes)
        held = dict(zip([b.key for b in self.reads], refs[:reads], strict=True))
        out = dict(zip([b.access.buffer for b in self.writes], refs[reads : reads + writes],
                       strict=True))  # fmt: skip
        sums = dict(zip(self.plan.roots, refs[reads + writes :], strict=True))
        places = enumerate(self.plan.grid)
        starts = {d: pl.program_id(i) * self.plan.extents[d] for i, d in places}
        values = _BlockValues(self.extents, starts)
        values.blocks, values.refs, values.unrolled = self.by_access, held, self.plan.unrolled
        if not sums:
            self._write(values, out)
            return
        at = [(pl.program_id(i), self.plan.blocks(d)) for i, d in enumerate(self.plan.grid)
              if d in self.plan.steps]  # fmt: skip
        is_first = math_all([i == 0 for i, _ in at])
        is_last = math_all([i == n - 1 for i, n in at])
        for number, ref in sums.items():
            pl.when(is_first)(partial(self._start, values, number, ref))
            pl.when(~is_first)(partial(self._add, values, number, ref))
        pl.when(is_last)(partial(self._finish, values, sums, out))

    def _part(self, values: _BlockValues, number: int) -> Any:
        fresh = values.anew({})
        sums = fresh.partial(number)
        dims = self._sum_dims(number)
        array = broadcast(fresh._aligned(sums, dims), self.extents.shape(dims, dims))
        return array.reshape(self._sum_shape(number))

    def _start(self, values: _BlockValues, number: int, ref: Any) -> None:
        ref[...] = self._part(values, number)

    def _add(self, values: _BlockValues, number: int, ref: Any) -> None:
        combine = self.plan.nest.stages[number].combine
        ref[...] = combine_two(combine, ref[...], self._part(values, number))

    def _finish(self, values: _BlockValues, sums: Mapping[int, Any], out: Refs) -> None:
        finished = {}
        for number, ref in sums.items():
            dims = self._sum_dims(number)
            array = ref[...].reshape(self.extents.shape(dims, dims))
            finished[number] = StageValue(convert(array, self.plan.nest.stages[number].dtype), dims)
        self._write(values.anew(finished), out)

    # ---- results
    def _write(self, values: _BlockValues, out: Refs) -> None:
        for s, b in zip(self.plan.nest.stores, self.stores, strict=True):
            self._store(values, s, b, out[s.access.buffer])

    def _store(self, values: _BlockValues, s: Store, b: AccessBlock, ref: Any) -> None:
        loops = [d for dim in b.dims for d in _loops_of(dim)]
        dims = self.extents.dims(loops)
        array = values._aligned(values.stage(s.stage), dims)
        array = broadcast(array, self.extents.shape(dims, dims))
        if s.access.bounds and s.access.fill is not None:
            fill = typed_scalar(s.access.fill, s.access.dtype)
            array = choose(values.holds(s.access.bounds, dims), array, fill)
        ordered = tuple([d for d in loops if d in dims])
        array = transposed(array, dims, ordered)
        array = array.reshape([math.prod(self.extents.shape(_loops_of(d), _loops_of(d)))
                               for d in b.dims])  # fmt: skip
        where = []
        for axis, (d, n) in enumerate(zip(b.dims, b.shape, strict=True)):
            array, place = self._place(array, axis, d, n)
            where.append(place)
        if all(w is None for w in where):
            ref[...] = array
        else:
            ref[tuple([slice(None) if w is None else w for w in where])] = array

    def _place(self, array: Any, axis: int, d: DimBlock, extent: int) -> tuple[Any, Any]:
        """The elements along an axis that are in the dim, and where they are written."""
        from jax import lax
        from jax.experimental import pallas as pl

        if not d.is_cut:
            return array, None
        step = d.index.terms[0][1] if len(d.index.terms) == 1 else 1
        if step < 0:
            array = lax.rev(array, [axis])
        low, high = reach(d.index, self.plan.nest.sizes)
        step = abs(step)
        skipped = -(min(low, 0) // step)
        last = min(high, extent - 1)
        count = (last - low) // step + 1 - skipped
        if count < array.shape[axis]:
            array = lax.slice_in_dim(array, skipped, skipped + count, axis=axis)
        start = low + skipped * step
        return array, pl.ds(start, count) if step == 1 else pl.ds(start, count, step)


class _BlockValues(StageValues):
    """Elements are in blocks that are in scratch."""

    blocks: Mapping[Access, AccessBlock]
    refs: Refs
    unrolled: tuple[int, ...]

    def _like(self, values: _BlockValues) -> _BlockValues:
        values.blocks, values.refs, values.unrolled = self.blocks, self.refs, self.unrolled
        return values

    def anew(self, computed: Mapping[int, StageValue]) -> _BlockValues:
        return self._like(_BlockValues(self.e, self.starts, self.fixed, computed))

    def below(self, starts: Mapping[int, Any], fixed: frozenset[int]) -> _BlockValues:
        return self._like(_BlockValues(self.e, starts, fixed, parent=self))

    def apart(self, stage: Stage) -> tuple[int, ...]:
        return tuple([d for d in stage.reduced if d in self.unrolled])

    def load(self, access: Access) -> StageValue:
        b = self.blocks[access]
        array, loops, shape = self.refs[b.key][...], [], []
        for axis, d in enumerate(b.dims):
            dim_loops = _loops_of(d)
            if d.is_cut:
                array, dim_loops = self._cut(array, axis, d)
            loops += [n for n in dim_loops if self.e.extents[n] > 1]
            shape += [self.e.extents[n] for n in dim_loops if self.e.extents[n] > 1]
        value = StageValue(
            array if list(array.shape) == shape else array.reshape(shape), tuple(loops)
        )
        if not access.bounds or access.fill is None:
            return value
        dims = self.e.dims(access_loops(access), self.fixed)
        aligned = self._aligned(value, dims)
        fill = typed_scalar(access.fill, access.dtype)
        return StageValue(choose(self.holds(access.bounds, dims), aligned, fill), dims)

    def _cut(self, x: Any, axis: int, d: DimBlock) -> tuple[Any, tuple[int, ...]]:
        """The elements that an index takes from a whole dim, and the loops they are for."""
        from jax import lax

        sizes, fixed = self.e.nest.sizes, 0
        left = []
        for loop, stride in d.index.terms:
            if loop in self.fixed:
                fixed += self.starts[loop] * stride
            else:
                left.append((loop, stride))
        index = Affine(tuple(left), d.index.constant + fixed)
        low, high = reach(index, sizes)
        if low < 0 or high >= x.shape[axis]:
            pads = [(0, 0, 0)] * x.ndim
            pads[axis] = (max(-low, 0), max(high - x.shape[axis] + 1, 0), 0)
            x = lax.pad(x, typed_scalar(0, x.dtype), pads)
            high, low = high + max(-low, 0), max(low, 0)
        step = abs(left[0][1]) if len(left) == 1 else 1
        x = _every(x, low, high, step, axis)
        if len(left) == 1:
            return (lax.rev(x, [axis]) if left[0][1] < 0 else x), (left[0][0],)
        return x, radix(Affine(tuple(left)), sizes)

    def reduced(self, x: Any, combine: str, axes: tuple[int, ...], dtype: str) -> Any:
        return reduce_axes(x, combine, axes)


def _every(x: Any, low: int, high: int, step: int, axis: int) -> Any:
    """The elements low, low + step … high along an axis.

    Steps become a dim of their own: Mosaic takes no slices with strides. The axis comes first
    meanwhile, as the last two dims are in tiles, which Mosaic would take apart one by one.
    """
    import jax.numpy as jnp
    from jax import lax

    count = (high - low) // step + 1
    missing = max(low + count * step - x.shape[axis], 0)
    if missing:
        pads = [(0, missing if a == axis else 0, 0) for a in range(x.ndim)]
        x = lax.pad(x, typed_scalar(0, x.dtype), pads)
    if (low, count * step) != (0, x.shape[axis]):
        x = lax.slice_in_dim(x, low, low + count * step, axis=axis)
    if step == 1:
        return x
    x = jnp.moveaxis(x, axis, 0)
    x = x.reshape([count, step, *x.shape[1:]])
    return jnp.moveaxis(lax.squeeze(lax.slice_in_dim(x, 0, 1, axis=1), [1]), 0, axis)


def _loops_of(d: DimBlock) -> tuple[int, ...]:
    """The loops of a dim, outermost first."""
    return d.radix or tuple([loop for loop, _ in d.index.terms])


def typed_scalar(value: Any, dtype: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, element_dtype(dtype) if isinstance(dtype, str) else dtype)


def math_all(conditions: Sequence[Any]) -> Any:
    """Whether all hold."""
    result = conditions[0]
    for c in conditions[1:]:
        result = result & c
    return result


def reduce_axes(x: Any, combine: str, axes: Sequence[int]) -> Any:
    """Combined over these axes, which stay with extent 1."""
    import jax.numpy as jnp

    if x.dtype == np.bool_:
        whole = {"and": jnp.all, "or": jnp.any, "max": jnp.any, "min": jnp.all}
        return whole[combine](x, axis=tuple(axes), keepdims=True)
    functions = {"max": jnp.max, "min": jnp.min}
    if combine in functions:
        return functions[combine](x, axis=tuple(axes), keepdims=True)
    if combine == "add":
        return jnp.sum(x, axis=tuple(axes), dtype=x.dtype, keepdims=True)
    for axis in axes:
        x = _halved(x, combine, axis)
    return x


def _halved(x: Any, combine: str, axis: int) -> Any:
    """One half with the other until one element is left: for what has no reduction of its own."""
    from jax import lax

    while (n := x.shape[axis]) > 1:
        half = n // 2
        a, b = (lax.slice_in_dim(x, i * half, (i + 1) * half, axis=axis) for i in (0, 1))
        combined = combine_two(combine, a, b)
        if n % 2:
            last = lax.slice_in_dim(x, n - 1, n, axis=axis)
            first = lax.slice_in_dim(combined, 0, 1, axis=axis)
            if half == 1:
                combined = combine_two(combine, first, last)
            else:
                rest = lax.slice_in_dim(combined, 1, half, axis=axis)
                combined = lax.concatenate([combine_two(combine, first, last), rest], axis)
        x = combined
    return x
