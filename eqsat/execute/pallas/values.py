"""Stages of a nest on blocks of their loops, as JAX, to be traced inside of a Pallas kernel.

A value has a dim per loop of which a block has several points, in the plan's order. What differs
between back ends, reading elements and summing products, is a subclass's. Products are as accurate
as their contraction asks for, or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from itertools import product as positions
from typing import Any

from eqsat.execute.expressions import convert, evaluator
from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Bound, Nest, Scalar, Stage
from eqsat.model.tensor import ALGORITHMS, DEFAULT, DTYPES, is_float
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype
from eqsat.plan.gridded.shapes import ProductStage, stage_loops
from eqsat.plan.stages import access_loops


@dataclass(frozen=True)
class StageValue:
    """An array and the loop of each of its dims; -1: none, the extent is 1."""

    array: Any
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Extents:
    """Loops of a nest in a block: how many points, which order values have, which stages are what.

    precisions: stage → precision of the contraction it is. ragged: loops with points that do not
    exist in some block.
    """

    nest: Nest
    extents: tuple[int, ...]
    order: tuple[int, ...]
    products: Mapping[int, ProductStage]
    precisions: Mapping[int, str]
    ragged: frozenset[int]

    def dims(self, loops: Iterable[int], fixed: Iterable[int] = ()) -> tuple[int, ...]:
        """The loops, of these, that are dims of a value, in its order."""
        present = set(loops) - set(fixed)
        return tuple([d for d in self.order if d in present and self.extents[d] > 1])

    def shape(self, dims: Iterable[int], of: Iterable[int]) -> list[int]:
        """Of a value with these dims, 1 where it has not that loop."""
        present = set(of)
        return [self.extents[d] if d in present else 1 for d in dims]


class StageValues:
    """Stages at the points of one block; each is computed once, when it is asked for.

    starts: loop → its index at the first point, a number or a traced one. fixed: loops that are at
    that point only; moved: those whose start is another than that of the parent. computed: stages
    that are there already.
    """

    def __init__(
        self,
        extents: Extents,
        starts: Mapping[int, Any],
        fixed: frozenset[int] = frozenset(),
        computed: Mapping[int, StageValue] | None = None,
        parent: StageValues | None = None,
        moved: frozenset[int] = frozenset(),
    ):
        self.e, self.starts, self.fixed, self.parent = extents, starts, fixed, parent
        self.moved = moved | fixed
        self.computed = dict(computed or {})

    # ---- what a back end says
    @property
    def instead(self) -> Mapping[str, Callable[..., Any]]:
        """Scalar functions that its compiler does not have."""
        return {}

    def load(self, access: Access) -> StageValue:
        """The elements of an access at all points; where it has none its fill, or anything."""
        raise NotImplementedError

    def below(self, starts: Mapping[int, Any], fixed: frozenset[int]) -> StageValues:
        """Values with more loops fixed."""
        raise NotImplementedError

    def reduced(self, x: Any, combine: str, axes: tuple[int, ...], dtype: str) -> Any:
        """Combined over these axes, which stay with extent 1."""
        raise NotImplementedError

    def apart(self, stage: Stage) -> tuple[int, ...]:
        """Loops over which a stage is combined position by position."""
        return ()

    # ---- stages
    def stage(self, number: int) -> StageValue:
        """The value of a stage."""
        if number not in self.computed:
            s = self.e.nest.stages[number]
            if self.parent is not None and not self.moved & set(stage_loops(s)):
                return self.parent.stage(number)
            self.computed[number] = self._evaluated(number, s)
        return self.computed[number]

    def _evaluated(self, number: int, s: Stage) -> StageValue:
        if not s.combine:
            return self._elementwise(s)
        total = self.partial(number)
        return StageValue(convert(total.array, s.dtype), total.loops)

    def partial(self, number: int) -> StageValue:
        """A reduction over what a block has of its loops, in the type that sums are kept in."""
        s = self.e.nest.stages[number]
        apart = [d for d in self.apart(s) if d not in self.moved]
        if not apart:
            return self._reduction(number, s)
        total = None
        for at in positions(*(range(self.e.nest.sizes[d]) for d in apart)):
            starts = {**self.starts, **dict(zip(apart, at, strict=True))}
            part = self.below(starts, self.fixed | set(apart)).partial(number)
            total = part if total is None else self.combined(s, total, part)
        assert total is not None
        return total

    def combined(self, s: Stage, a: StageValue, b: StageValue) -> StageValue:
        """Two parts of a reduction as one."""
        assert a.loops == b.loops
        return StageValue(combine_two(s.combine, a.array, b.array), a.loops)

    def _elementwise(self, s: Stage) -> StageValue:
        dims = self.e.dims(s.loops, self.fixed)
        array = convert(self._body(s.body, s, dims), s.dtype)
        return StageValue(array, dims) if array.ndim == len(dims) else self._whole(array, dims)

    def _body(self, body: Expr, s: Stage, dims: Sequence[int]) -> Any:
        """A body at all points of these dims; an extent may be 1 where it does not differ."""
        arguments = [self._aligned(self._argument(a), dims) for a in s.arguments]
        value = evaluator(arguments, self.instead)(body)
        if s.bounds:
            other = arguments[1] if len(arguments) > 1 else _of_type(s.fill, s.dtype)
            value = choose(self.holds(s.bounds, dims), value, other)
        return value

    def _argument(self, a: Access | int) -> StageValue:
        return self.stage(a) if isinstance(a, int) else self.load(a)

    def _reduction(self, number: int, s: Stage) -> StageValue:
        result_dims = self.e.dims(s.loops, self.fixed)
        product = self.e.products.get(number)
        if product is not None and (matmul := self._product(number, s, product)) is not None:
            return matmul
        dims = self.e.dims(stage_loops(s), self.fixed)
        kind = sum_type(s.dtype, s.combine)
        value = convert(self._body(s.body, s, dims), s.dtype)
        value = broadcast(self._whole(value, dims).array, self.e.shape(dims, dims))
        value = convert(value, kind)
        value = self._where_points(s, value, dims, scalar.neutral(s.combine, kind), kind)
        axes = tuple([i for i, d in enumerate(dims) if d not in result_dims])
        if axes:
            value = self.reduced(value, s.combine, axes, kind)
        return StageValue(value, tuple([d if d in result_dims else -1 for d in dims]))

    def _whole(self, x: Any, dims: Sequence[int]) -> StageValue:
        """An array that has all these dims."""
        import jax.numpy as jnp

        array = jnp.asarray(x)
        return StageValue(
            array if array.ndim == len(dims) else array.reshape((1,) * len(dims)), tuple(dims)
        )

    def _where_points(
        self, s: Stage, x: Any, dims: Sequence[int], neutral: Scalar, kind: str
    ) -> Any:
        """The reduced value, with the neutral element where a point does not exist."""
        where = self.exists(s.reduced, dims)
        return x if where is None else choose(where, x, _of_type(neutral, kind))

    # ---- products
    def _product(self, number: int, s: Stage, p: ProductStage) -> StageValue | None:
        """By the matrix unit; None if one of the factors has no loop that is a dim of its own."""
        import jax.numpy as jnp

        e, fixed = self.e, self.fixed
        batch, rows, columns, summed = (
            e.dims(x, fixed) for x in (p.batch, p.rows, p.columns, p.summed)
        )
        if not self.multiplies(rows, columns, summed, batch):
            return None
        kind = sum_type(s.dtype, "add")
        both_sides = [e.dims((*batch, *free, *summed)) for free in (rows, columns)]
        for b in e.nest.bounds:
            used = access_loops(b)
            if used & set(s.reduced) and not any(self._has_all(used, d) for d in both_sides):
                return None
        sides = []
        for factor, place, free in zip(p.factors, p.arguments, (rows, columns), strict=True):
            x = self._argument(s.arguments[place])
            dims = e.dims((*batch, *free, *summed))
            array = broadcast(self._aligned(x, dims), e.shape(dims, dims))
            where = self.exists(s.reduced, dims)
            if where is not None:
                array = choose(where, array, jnp.zeros((), array.dtype))
            sides.append((factor, array, dims))
        arrays = factor_arrays([f for f, _, _ in sides], [a for _, a, _ in sides], kind)
        shape = ProductShape(
            tuple([s[2] for s in sides]), batch, rows, columns, summed, tuple(e.extents)
        )
        total = block_product(
            arrays[0], arrays[1], shape, e.precisions.get(number, ""), element_dtype(kind)
        )
        dims = (*batch, *rows, *columns)
        ordered = e.dims(dims)
        value = StageValue(self._aligned(StageValue(total, dims), ordered), ordered)
        result_dims = e.dims(s.loops, fixed)
        return (
            StageValue(self._aligned(value, result_dims), result_dims)
            if result_dims != ordered
            else value
        )

    def multiplies(
        self,
        rows: Sequence[int],
        columns: Sequence[int],
        summed: Sequence[int],
        batch: Sequence[int],
    ) -> bool:
        """Whether the back end multiplies matrices of these loops."""
        return bool(summed)

    # ---- dims and points
    def _aligned(self, v: StageValue, dims: Sequence[int]) -> Any:
        """The array with these dims, extent 1 where it does not have a loop."""
        import jax.numpy as jnp

        loops = [d for d in v.loops if d >= 0]
        array = v.array
        wanted = [d for d in dims if d in loops]
        if loops != wanted:
            array = array.reshape([n for n, d in zip(array.shape, v.loops, strict=True) if d >= 0])
            array = jnp.transpose(array, [loops.index(d) for d in wanted])
        sizes = {d: n for d, n in zip(v.loops, v.array.shape, strict=True) if d >= 0}
        shape = tuple([sizes.get(d, 1) for d in dims])
        return array if array.shape == shape else array.reshape(shape)

    def index(self, loop: int, dims: Sequence[int]) -> Any:
        """The index of a loop at all points of these dims: an i32 array, or a scalar."""
        import jax.numpy as jnp
        from jax import lax

        start = self.starts.get(loop, 0)
        if loop not in dims:
            return start
        place = list(dims).index(loop)
        shape = [self.e.extents[d] if d == loop else 1 for d in dims]
        index = lax.broadcasted_iota(jnp.int32, shape, place)
        return index if isinstance(start, int) and start == 0 else index + start

    def affine(self, strides: Sequence[int], base: int, dims: Sequence[int]) -> Any:
        """`base + Σ strides · loops` at all points of these dims."""
        parts = [_times(self.index(d, dims), s) for d, s in enumerate(strides) if s]
        return fold(lambda a, b: a + b, parts, base)

    def holds(self, bounds: Sequence[Bound], dims: Sequence[int]) -> Any:
        """Where all these bounds hold; a Python bool if that is known."""
        mask: Any = True
        for b in bounds:
            at = self.affine(b.strides, b.base, dims)
            mask = both(mask, both(at >= 0, at < b.extent))
        return mask

    def exists(self, loops: Iterable[int], dims: Sequence[int]) -> Any | None:
        """Where points of these loops exist; None: all do.

        Points beyond the end of a loop, and those that the nest's bounds leave out.
        """
        walked, mask = set(loops), True
        for d in sorted(walked & self.e.ragged):
            if d in dims:
                mask = both(mask, self.index(d, dims) < self.e.nest.sizes[d])
        for b in self.e.nest.bounds:
            if access_loops(b) & walked and self._has_all(access_loops(b), dims):
                mask = both(mask, self.holds((b,), dims))
        return None if mask is True else mask

    def _has_all(self, loops: Iterable[int], dims: Sequence[int]) -> bool:
        """Whether a point of these dims has an index of each of these loops."""
        return all(d in dims or d in self.fixed or self.e.extents[d] == 1 for d in loops)


@dataclass(frozen=True)
class ProductShape:
    """Dims of both factors, as they are, and the loops of each role, merged row-major."""

    sides: tuple[tuple[int, ...], ...]
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]
    extents: tuple[int, ...]

    def size(self, loops: Sequence[int]) -> int:
        return math.prod(self.extents[d] for d in loops)

    def shape(self, loops: Sequence[int]) -> list[int]:
        return [self.extents[d] for d in loops]

    @property
    def result(self) -> list[int]:
        return self.shape((*self.batch, *self.rows, *self.columns))


def factor_arrays(factors: Sequence[Expr], arrays: Sequence[Any], kind: str) -> list[Any]:
    """Factors as they are multiplied: left narrow where widening them changes nothing."""
    import jax.numpy as jnp

    wanted = element_dtype(kind)
    kinds = {a.dtype for a in arrays}
    plain = all(f.fn == "arg" or (f.fn == "cast" and f.args[0].fn == "arg") for f in factors)
    dtype = arrays[0].dtype
    casts = [element_dtype(f.value) for f in factors if f.fn == "cast"]
    if len(kinds) == 1 and plain and all(_widens(dtype, t) for t in (*casts, wanted)):
        return list(arrays)
    typed = []
    for f, a in zip(factors, arrays, strict=True):
        place = max(f.operands())
        typed.append(jnp.asarray(evaluator([a] * (place + 1))(f)).astype(wanted))
    return typed


def _widens(narrow: Any, wide: Any) -> bool:
    import jax.numpy as jnp

    if narrow == wide:
        return True
    groups = (jnp.floating, jnp.signedinteger)
    alike = any(jnp.issubdtype(narrow, g) and jnp.issubdtype(wide, g) for g in groups)
    return alike and narrow.itemsize < wide.itemsize


def sum_type(dtype: str, combine: str) -> str:
    """The element type in which a reduction is kept: narrow floats are added up in f32."""
    narrow = is_float(dtype) and DTYPES[dtype][0] < 32
    return "f32" if narrow and combine in ("add", "mul") else dtype


def combine_two(combine: str, a: Any, b: Any) -> Any:
    """Two partial results of a reduction as one."""
    import jax.numpy as jnp
    from jax import lax

    functions: dict[str, Callable[[Any, Any], Any]] = {
        "add": jnp.add,
        "mul": jnp.multiply,
        "max": jnp.maximum,
        "min": jnp.minimum,
        "and": lax.bitwise_and,
        "or": lax.bitwise_or,
    }
    return functions[combine](a, b)


def both(a: Any, b: Any) -> Any:
    """`a and b` of conditions, Python's or traced ones."""
    if a is True or b is False:
        return b
    return a if b is True or a is False else a & b


def choose(where: Any, x: Any, other: Any) -> Any:
    """`x` where the condition holds, else the other; all broadcast."""
    import jax.numpy as jnp

    if isinstance(where, bool):
        return x if where else jnp.broadcast_to(other, jnp.shape(x))
    return jnp.where(where, x, other)


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    """The array in this shape, which it has already or broadcasts to."""
    import jax.numpy as jnp

    return x if tuple(x.shape) == tuple(shape) else jnp.broadcast_to(x, shape)


def _of_type(value: Scalar, dtype: str) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, element_dtype(dtype))


def _times(index: Any, stride: int) -> Any:
    return index if stride == 1 else index * stride


# algorithms that round operands to bf16 once, as a matrix unit does by itself
_ONE_PASS = frozenset({"bf16_bf16_f32", "bf16_bf16_bf16"})


def dot_precision(precision: str, dtype: Any) -> Any:
    """`jax.lax.Precision`: kernels have two of them, and what is in between is rounded up."""
    import jax.numpy as jnp
    from jax import lax

    if dtype != jnp.float32:  # exact as it is
        return lax.Precision.DEFAULT
    if precision in ALGORITHMS:
        return lax.Precision.DEFAULT if precision in _ONE_PASS else lax.Precision.HIGHEST
    return lax.Precision.DEFAULT if precision == DEFAULT else lax.Precision.HIGHEST


def block_product(a: Any, b: Any, shape: ProductShape, precision: str, dtype: Any) -> Any:
    """Sums of products of two values of a block, as one product of matrices."""
    from jax import lax

    left = _matrices(a, shape.sides[0], shape, shape.rows)
    right = _matrices(b, shape.sides[1], shape, shape.columns)
    batch = ((0,), (0,)) if shape.batch else ((), ())
    numbers = ((left.ndim - 1,), (right.ndim - 1,)), batch
    p = dot_precision(precision, left.dtype)
    product = lax.dot_general(left, right, numbers, p, preferred_element_type=dtype)
    return product if list(product.shape) == shape.result else product.reshape(shape.result)


def _matrices(x: Any, dims: Sequence[int], shape: ProductShape, free: Sequence[int]) -> Any:
    """[batch, own, summed], each the product of its loops; no batch if there is none."""
    x = transposed(x, dims, (*shape.batch, *free, *shape.summed))
    wanted = [shape.size(free), shape.size(shape.summed)]
    wanted = [shape.size(shape.batch), *wanted] if shape.batch else wanted
    return x if list(x.shape) == wanted else x.reshape(wanted)


def transposed(x: Any, dims: Sequence[int], wanted: Sequence[int]) -> Any:
    import jax.numpy as jnp

    dims = list(dims)
    return x if dims == list(wanted) else jnp.transpose(x, [dims.index(d) for d in wanted])
