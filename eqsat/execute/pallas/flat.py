"""Pallas kernels for GPUs: a dispatch as one `pallas_call` of programs that read by address.

Scalar functions that Triton's compiler does not have are made of those that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eqsat.execute.expressions import convert, evaluator
from eqsat.execute.kernels.approximations import ERF, ERF_END
from eqsat.execute.pallas.blocked import combine_two, typed_scalar
from eqsat.execute.pallas.values import (
    Extents,
    StageValue,
    StageValues,
    both,
    broadcast,
    choose,
    sum_type,
)
from eqsat.model.nest import Access, Bound, Lookup, Store
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan.gridded.flat import LEAST, FlatPlan
from eqsat.plan.stages import access_loops


def _round_even(x: Any) -> Any:
    """The nearest whole number, of two the even one."""
    import jax.numpy as jnp

    low = jnp.floor(x)
    rest = x - low
    is_odd = low - 2 * jnp.floor(low * 0.5) != 0
    return jnp.where((rest > 0.5) | ((rest == 0.5) & is_odd), low + 1, low)


def _round_away(x: Any) -> Any:
    """The nearest whole number, of two the one that is further from 0."""
    import jax.numpy as jnp

    low = jnp.floor(jnp.abs(x))
    whole = jnp.where(jnp.abs(x) - low >= 0.5, low + 1, low)
    return jnp.where(x < 0, -whole, whole)


def _erf(x: Any) -> Any:
    """x · P(x²) / Q(x²) in f32, which is no further from 0 than 1; NaN stays."""
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    near = jnp.minimum(jnp.maximum(wide, -ERF_END), ERF_END)
    square = near * near
    quotient = near * _polynomial(square, ERF[0]) / _polynomial(square, ERF[1])
    quotient = jnp.minimum(jnp.maximum(quotient, -1.0), 1.0)
    return jnp.where(jnp.isnan(wide), wide, quotient).astype(x.dtype)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    total: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


MISSING: dict[str, Callable[[Any], Any]] = {
    "round_even": _round_even,
    "round_away": _round_away,
    "erf": _erf,
}


def flat_call(
    plan: FlatPlan,
    types: Mapping[int, TensorType],
    precisions: Mapping[int, str],
    interpret: bool,
) -> Callable[..., tuple[Any, ...]]:
    """The kernel of a plan as a function of the buffers `nest.reads`, giving `nest.writes`.

    types: of every buffer. precisions: stage → precision of its contraction. To be traced.
    """
    nest = plan.nest
    ragged = frozenset(d for d in range(len(nest.sizes)) if plan.is_ragged(d))
    extents = Extents(nest, plan.extents, plan.order, plan.products, precisions, ragged)

    def kernel(*refs: Any) -> None:
        held = dict(zip(nest.reads, refs[: len(nest.reads)], strict=True))
        out = dict(zip(nest.writes, refs[len(nest.reads) :], strict=True))
        values = _FlatValues(extents, _starts(plan))
        values.refs, values.plan, values.interpret = held, plan, interpret
        for s in nest.stores:
            values.store(s, out[s.access.buffer])

    def call(*buffers: Any) -> tuple[Any, ...]:
        import jax
        from jax.experimental import pallas as pl

        out = [jax.ShapeDtypeStruct((types[w].size,), element_dtype(types[w].dtype))
               for w in nest.writes]  # fmt: skip
        outputs = pl.pallas_call(
            kernel,
            grid=(plan.programs,),
            out_shape=out,
            interpret=interpret,
            compiler_params=None if interpret else _compiler(plan),
            name="dispatch",
        )(*(x.reshape(-1) for x in buffers))
        return tuple(x.reshape(types[w].shape) for w, x in zip(nest.writes, outputs, strict=True))

    return call


def _compiler(plan: FlatPlan) -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=4, num_stages=2 if plan.steps else 1)


def _starts(plan: FlatPlan) -> dict[int, Any]:
    """Where a program's block of each loop of the grid begins."""
    from jax.experimental import pallas as pl

    left, starts = pl.program_id(0), {}
    for d in reversed(plan.grid):
        blocks = plan.blocks(d)
        starts[d] = (left % blocks) * plan.extents[d]
        left = left // blocks
    return starts


class _FlatValues(StageValues):
    """Elements are where their address says."""

    refs: Mapping[int, Any]
    plan: FlatPlan
    interpret: bool

    def below(self, starts: Mapping[int, Any], fixed: frozenset[int]) -> _FlatValues:
        """With these loops elsewhere; they stay dims of values."""
        values = _FlatValues(self.e, starts, self.fixed, parent=self, moved=self.moved | fixed)
        values.refs, values.plan, values.interpret = self.refs, self.plan, self.interpret
        return values

    @property
    def instead(self) -> Mapping[str, Callable[..., Any]]:
        return MISSING

    # ---- elements
    def load(self, access: Access) -> StageValue:
        from jax.experimental.pallas import triton

        dims = self.e.dims(access_loops(access), self.fixed)
        shape = self.e.shape(dims, dims)
        at = self._address(access, dims, shape)
        where = self._where(access.bounds, access_loops(access), dims, shape)
        ref = self.refs[access.buffer].at[at]
        if where is None:
            return StageValue(triton.load(ref), dims)
        fill = 0 if access.fill is None else access.fill
        other = broadcast(typed_scalar(fill, access.dtype), shape)
        return StageValue(triton.load(ref, mask=where, other=other), dims)

    def store(self, s: Store, ref: Any) -> None:
        """Write a value where its points exist."""
        import jax.numpy as jnp
        from jax.experimental.pallas import triton

        loops = access_loops(s.access) | {d for b in s.bounds for d in access_loops(b)}
        dims = self.e.dims(loops)
        shape = self.e.shape(dims, dims)
        array = broadcast(self._aligned(self.stage(s.stage), dims), shape)
        if s.access.bounds and s.access.fill is not None:
            fill = typed_scalar(s.access.fill, s.access.dtype)
            array = broadcast(choose(self.holds(s.access.bounds, dims), array, fill), shape)
        at = self._address(s.access, dims, shape)
        where = self._where(s.bounds, loops, dims, shape)
        if self.interpret and where is not None:
            # the interpreter writes what was there where it should write nothing: not over others
            at = jnp.where(where, at, ref.shape[0])
        triton.store(ref.at[at], array, mask=where)

    def _address(self, a: Access, dims: Sequence[int], shape: Sequence[int]) -> Any:
        import jax.numpy as jnp

        address = self.affine(a.strides, a.base, dims)
        for k in a.lookups:
            address = address + self._row(k, dims) * k.stride
        return broadcast(jnp.asarray(address, jnp.int32), shape)

    def _row(self, k: Lookup, dims: Sequence[int]) -> Any:
        """The row that is looked up, one that the table has."""
        import jax.numpy as jnp

        read = [self._aligned(self.load(x), dims) for x in k.arguments]
        number = convert(evaluator(read, MISSING)(k.body), k.dtype)
        last = jnp.asarray(k.extent - 1, number.dtype)
        row = jnp.minimum(jnp.maximum(number, jnp.zeros((), number.dtype)), last)
        return row.astype(jnp.int32)

    def _where(
        self,
        bounds: Sequence[Bound],
        loops: Iterable[int],
        dims: Sequence[int],
        shape: Sequence[int],
    ) -> Any | None:
        """Where elements are there; None: everywhere."""
        mask: Any = self.holds(bounds, dims)
        exists = self.exists(loops, dims)
        mask = mask if exists is None else both(mask, exists)
        if mask is True:
            return None
        import jax.numpy as jnp

        return broadcast(jnp.asarray(mask), shape)

    # ---- reductions
    def partial(self, number: int) -> StageValue:
        """Block by block where its loops are longer than a program has points for."""
        import jax.numpy as jnp
        from jax import lax

        s = self.e.nest.stages[number]
        steps = [d for d in s.reduced if d in self.plan.steps and d not in self.moved]
        if not steps:
            return super().partial(number)
        dims = self.e.dims(s.loops, self.fixed)
        shape, kind = self.e.shape(dims, dims), sum_type(s.dtype, s.combine)
        counts = [self.plan.blocks(d) for d in steps]

        def body(i: Any, total: Any) -> Any:
            starts, left = dict(self.starts), i
            for d, count in reversed(list(zip(steps, counts, strict=True))):
                starts[d] = (left % count) * self.e.extents[d] if len(steps) > 1 else (
                    left * self.e.extents[d])  # fmt: skip
                left = left // count if len(steps) > 1 else left
            inner = self.below(starts, frozenset(steps))
            part = inner._aligned(StageValues.partial(inner, number), dims)
            return combine_two(s.combine, total, broadcast(part, shape))

        start = jnp.full(shape, scalar.neutral(s.combine, kind), element_dtype(kind))
        return StageValue(lax.fori_loop(0, math.prod(counts), body, start), dims)

    def reduced(self, x: Any, combine: str, axes: tuple[int, ...], dtype: str) -> Any:
        import jax.numpy as jnp

        is_bool = x.dtype == jnp.bool_
        if is_bool:
            x, combine = x.astype(jnp.int32), {"and": "min", "or": "max"}.get(combine, combine)
        functions = {"max": jnp.max, "min": jnp.min, "add": jnp.sum}
        for axis in axes:
            if x.shape[axis] > 1:
                shape = [1 if i == axis else n for i, n in enumerate(x.shape)]
                kind = {"dtype": x.dtype} if combine == "add" else {}
                x = functions[combine](x, axis=axis, **kind).reshape(shape)
        return x != 0 if is_bool else x

    def multiplies(
        self,
        rows: Sequence[int],
        columns: Sequence[int],
        summed: Sequence[int],
        batch: Sequence[int],
    ) -> bool:
        sides = [self.e.shape(r, r) for r in (rows, columns, summed)]
        return not batch and all(math.prod(x) >= LEAST for x in sides)
