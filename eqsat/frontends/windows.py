"""Primitives with reduction loops → generics: dot_general, reductions, pooling, convolutions.

Running sums, and `conv_general_dilated` in every form: sums of products over windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.frontends.indexing import line
from eqsat.frontends.values import (
    Context,
    Edges,
    Tensor,
    dtype_name,
    padded,
    reshaped,
    sliced_along,
    view,
)
from eqsat.model.affine import Affine, affine, dim
from eqsat.model.expr import Expr, arg, call, cast, const
from eqsat.model.generic import Yield
from eqsat.model.tensor import DEFAULT, DTYPES, algorithm_name, is_float, most_accurate
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.scalar import integer_range, neutral


# ---- precision -----------------------------------------------------------------------------------
def precision_of(given: Any) -> str | None:
    """The name of the parameter `precision` of `dot_general` and `conv_general_dilated`.

    Of two precisions, one per operand, the more accurate one. None for a `jax.lax.DotAlgorithm`
    that is no preset: a program has no name for it.
    """
    from jax import lax

    if given is None:
        return DEFAULT
    if isinstance(given, lax.DotAlgorithmPreset):
        return given.name.lower()
    if isinstance(given, lax.DotAlgorithm):
        return _preset(given)
    return most_accurate(p.name.lower() for p in given)


def _preset(given: Any) -> str | None:
    """The preset with these fields; parts are counted by products, as in the presets."""
    types = (given.lhs_precision_type, given.rhs_precision_type, given.accumulation_type)
    lhs, rhs, accumulator = (dtype_name(np.dtype(t)) for t in types)
    if None in (lhs, rhs, accumulator):
        return None
    if (given.lhs_component_count, given.rhs_component_count) != (1, 1):
        return None
    fast = bool(given.allow_imprecise_accumulation)
    return algorithm_name(lhs, rhs, accumulator, given.num_primitive_operations, fast)


# ---- reductions ----------------------------------------------------------------------------------
Operand = tuple[Tensor, Sequence[Affine]]
Lower = Callable[[Context, Any, Sequence[Tensor]], "list[Tensor] | None"]


def _product(lhs: str, rhs: str, accumulator: str) -> Expr:
    factors = [
        arg(i) if dtype == accumulator else cast(arg(i), accumulator)
        for i, dtype in enumerate((lhs, rhs))
    ]
    return call("mul", *factors)


def contract(
    ctx: Context,
    sizes: Sequence[int],
    rank: int,
    operands: Sequence[Operand],
    dtype: str,
    given: Any,
) -> list[Tensor] | None:
    """A sum of products of the precision given; None for bools, and for one without a name.

    16- and 8-bit floats are summed in f32 and cast at the end.
    """
    precision = precision_of(given)
    if precision is None or any(v.dtype == "bool" for v, _ in operands):
        return None
    small = is_float(dtype) and DTYPES[dtype][0] < 32
    accumulator = "f32" if small else dtype
    solid = [(ctx.full(ctx.materialise(v)) if v.is_constant else v, m) for v, m in operands]
    body = _product(solid[0][0].dtype, solid[1][0].dtype, accumulator)
    combine = "add" if len(sizes) > rank else ""
    total = ctx.generic(sizes, range(rank), solid, Yield(body, accumulator, combine), precision)
    if accumulator == dtype:
        return [total]
    return [ctx.elementwise(cast(arg(0), dtype), [total], total.shape, dtype)]


def dot_general(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Any batch and contracting dims; loops: batch, lhs free, rhs free, contracting."""
    (lhs_k, rhs_k), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    lhs, rhs = xs
    lhs_loop = {int(d): at for at, d in enumerate(lhs_batch)}
    rhs_loop = {int(d): at for at, d in enumerate(rhs_batch)}
    at = len(lhs_batch)
    for loops, taken, x in ((lhs_loop, lhs_k, lhs), (rhs_loop, rhs_k, rhs)):
        for d in range(len(x.shape)):
            if d not in loops and d not in taken:
                loops[d] = at
                at += 1
    for i, (a, b) in enumerate(zip(lhs_k, rhs_k, strict=True)):
        lhs_loop[int(a)] = rhs_loop[int(b)] = at + i
    sizes = [*shape, *(lhs.shape[d] for d in lhs_k)]
    operands = [
        (lhs, [dim(lhs_loop[d]) for d in range(len(lhs.shape))]),
        (rhs, [dim(rhs_loop[d]) for d in range(len(rhs.shape))]),
    ]
    dtype = dtype_name(eqn.outvars[0].aval.dtype)
    if dtype is None:
        return None
    return contract(ctx, sizes, len(shape), operands, dtype, eqn.params["precision"])


def reduction(combine: str) -> Lower:
    """reduce_sum and its kin: kept dims are the result's loops, reduced dims follow."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [reduced(ctx, xs[0], [int(a) for a in eqn.params["axes"]], combine)]

    return lower


def reduced(ctx: Context, x: Tensor, axes: list[int], combine: str) -> Tensor:
    """x without these axes."""
    if not axes:
        return x
    rest = [d for d in range(len(x.shape)) if d not in axes]
    loop = {d: at for at, d in enumerate(rest + axes)}
    sizes = [x.shape[d] for d in rest + axes]
    operands = [(x, [dim(loop[d]) for d in range(len(x.shape))])]
    return ctx.generic(sizes, range(len(rest)), operands, Yield(arg(0), x.dtype, combine))


def reduce_window(combine: str) -> Lower:
    """Pooling: windows wider than 1 become reduction loops; padding holds the neutral element."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        return [_pooled(ctx, eqn, xs[0], combine)]

    return lower


def _pooled(ctx: Context, eqn: Any, x: Tensor, combine: str) -> Tensor:
    p = eqn.params
    spread = [int(d) - 1 for d in p["base_dilation"]]
    edges = [(int(a), int(b), k) for (a, b), k in zip(p["padding"], spread, strict=True)]
    x = padded(ctx, x, edges, scalar.neutral(combine, x.dtype))
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    sizes, exprs = list(shape), []
    for d, width in enumerate(p["window_dimensions"]):
        terms = [(d, int(p["window_strides"][d]))]
        if width > 1:
            terms.append((len(sizes), int(p["window_dilation"][d])))
            sizes.append(int(width))
        exprs.append(affine(terms))
    result = Yield(arg(0), x.dtype, combine if len(sizes) > len(shape) else "")
    return ctx.generic(sizes, range(len(shape)), [(x, exprs)], result)


def general_reduce_window(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce_window` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    return [_from_start(ctx, _pooled(ctx, eqn, xs[0], combine), xs[1], combine)]


def general_reduce(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """`reduce` of one operand whose function is one of ours, from any start."""
    combine = _combiner(eqn.params["jaxpr"])
    if len(xs) != 2 or combine is None:
        return None
    x, axes = xs[0], [int(d) for d in eqn.params["dimensions"]]
    return [_from_start(ctx, reduced(ctx, x, axes, combine), xs[1], combine)]


def _combiner(jaxpr: Any) -> str | None:
    """The combine function a jaxpr of two scalars is, None if it is another or several."""
    inner = jaxpr.jaxpr if hasattr(jaxpr, "jaxpr") else jaxpr
    combiners = {"add", "mul", "max", "min", "and", "or"}
    if len(inner.eqns) != 1 or inner.eqns[0].primitive.name not in combiners:
        return None
    eqn = inner.eqns[0]
    direct = list(eqn.outvars) == list(inner.outvars) and set(eqn.invars) == set(inner.invars)
    return eqn.primitive.name if direct and len(inner.invars) == 2 else None


def _from_start(ctx: Context, x: Tensor, start: Tensor, combine: str) -> Tensor:
    """The start is one more element; nothing to do if it is the neutral one."""
    if start.is_constant and start.constant == scalar.neutral(combine, x.dtype):
        return x
    return ctx.elementwise(call(combine, arg(0), arg(1)), [x, start], x.shape, x.dtype)


# ---- running sums and places of extremes ---------------------------------------------------------
BLOCK = 16  # elements that one step reads for each of its results; lanes of a vector of f32


def running(combine: str) -> Lower:
    """cumsum and cumprod: within blocks, then over the blocks, so n elements take n · BLOCK steps.

    Sums of blocks round less than one sum after the other. Not of bools.
    """

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        (x,), axis = xs, int(eqn.params["axis"])
        if x.dtype == "bool" or type(x.shape[axis]) is not int or 0 in x.shape:
            return None
        return [_running(ctx, x, axis, combine, bool(eqn.params["reverse"]))]

    return lower


def _running(ctx: Context, x: Tensor, axis: int, combine: str, reverse: bool) -> Tensor:
    size = x.shape[axis]
    if size <= 2 * BLOCK:
        return _inside(ctx, x, axis, combine, reverse)
    start = neutral(combine, x.dtype)
    blocks = -(-size // BLOCK)
    x = padded(ctx, x, _edges(x, axis, 0, blocks * BLOCK - size), start)
    apart = reshaped(ctx, x, (*x.shape[:axis], blocks, BLOCK, *x.shape[axis + 1 :]))
    within = _inside(ctx, apart, axis + 1, combine, reverse)
    totals = _running(ctx, reduced(ctx, apart, [axis + 1], combine), axis, combine, reverse)
    low, high = (-1, 1) if reverse else (1, -1)  # of the blocks before it
    before = padded(ctx, totals, _edges(totals, axis, low, high), start)
    outer = [dim(d if d <= axis else d + 1) for d in range(len(before.shape))]
    both = [within, view(before, within.shape, outer)]
    joined = ctx.elementwise(call(combine, arg(0), arg(1)), both, within.shape, x.dtype)
    return sliced_along(ctx, reshaped(ctx, joined, x.shape), axis, 0, size)


def _edges(x: Tensor, axis: int, low: int, high: int) -> list[tuple[int, int, int]]:
    return [(low, high, 0) if d == axis else (0, 0, 0) for d in range(len(x.shape))]


def _inside(ctx: Context, x: Tensor, axis: int, combine: str, reverse: bool) -> Tensor:
    """For each place of a dim: all elements up to there (from there on), combined."""
    rank, size = len(x.shape), x.shape[axis]
    places = line(ctx, size)
    counted = call("le", *((arg(2), arg(1)) if reverse else (arg(1), arg(2))))
    body = call("select", counted, arg(0), const(neutral(combine, x.dtype)))
    operands = [
        (x, [dim(rank if d == axis else d) for d in range(rank)]),
        (places, [dim(rank)]),
        (places, [dim(axis)]),
    ]
    result = Yield(body, x.dtype, combine)
    return ctx.generic([*x.shape, size], range(rank), operands, result)


def extreme_place(combine: str) -> Lower:
    """argmax and argmin: the first place of the extreme, or of a NaN. Not of bools."""

    def lower(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
        (x,), axes = xs, [int(a) for a in eqn.params["axes"]]
        dtype = dtype_name(eqn.outvars[0].aval.dtype)
        size = x.shape[axes[0]]
        if len(axes) != 1 or x.dtype == "bool" or dtype is None or type(size) is not int:
            return None
        if 0 in x.shape or is_float(dtype) or size - 1 > integer_range(dtype)[1]:
            return None
        return [_place(ctx, x, axes[0], combine, dtype)]

    return lower


def _place(ctx: Context, x: Tensor, axis: int, combine: str, dtype: str) -> Tensor:
    rank, size = len(x.shape), x.shape[axis]
    loop = {d: at for at, d in enumerate([*(d for d in range(rank) if d != axis), axis])}
    sizes = [*(s for d, s in enumerate(x.shape) if d != axis), size]
    itself = (x, [dim(loop[d]) for d in range(rank)])
    operands = [
        itself,
        (reduced(ctx, x, [axis], combine), [dim(d) for d in range(rank - 1)]),
        (line(ctx, size, dtype), [dim(rank - 1)]),
    ]
    is_it = call("eq", arg(0), arg(1))
    if is_float(x.dtype):  # counted, as XLA's maximum of numbers and NaNs may be a number
        is_nan = call("ne", arg(0), arg(0))
        one = Yield(call("select", is_nan, const(1), const(0)), "i32", "max")
        nans = ctx.generic(sizes, range(rank - 1), [itself], one)
        operands.append((nans, [dim(d) for d in range(rank - 1)]))
        is_it = call("select", call("gt", arg(3), const(0)), is_nan, is_it)
    body = call("select", is_it, arg(2), const(size - 1))
    return ctx.generic(sizes, range(rank - 1), operands, Yield(body, dtype, "min"))


# ---- phases --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Phases:
    """How a spatial dim is taken apart. skipped: positions in front of the first that is wanted."""

    every: int
    positions: int
    taps: int
    skipped: int
    image: Edges
    window: Edges

    def result_edges(self, extent: int) -> Edges:
        """Edges to cut off of all positions so that `extent` of them are left."""
        return -self.skipped, extent + self.skipped - self.every * self.positions, 0


def phases(
    p: Any, j: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases | None:
    """Phases of spatial dim j of a `conv_general_dilated` with parameters p, if it has any."""
    every, low = int(p["lhs_dilation"][j]), int(p["padding"][j][0])
    plain = int(p["window_strides"][j]) == int(p["rhs_dilation"][j]) == 1
    if every == 1 or not plain or 0 in (image_extent, window_extent, result_extent):
        return None
    # with so many positions skipped the window is divided into as few groups as can be
    aligned = (-1 - low) % every
    choices = [_phases(every, low, s, image_extent, window_extent, result_extent)
             for s in (0, aligned)]  # fmt: skip
    return min(choices, key=lambda f: f.taps)


def _phases(
    every: int, low: int, skipped: int, image_extent: int, window_extent: int, result_extent: int
) -> Phases:
    low += skipped
    positions = -(-(result_extent + skipped) // every)
    first = -(low // every)
    last = (window_extent - 1 + every - 1 - low) // every
    taps = last - first + 1
    before = every - 1 - (every * first + low)  # of the window, so that groups are whole
    after = every * taps - before - window_extent
    image = (-first, positions + last - image_extent, 0)
    return Phases(every, positions, taps, skipped, image, (before, after, 0))


def window_edges(per_dim: Sequence[Phases | None], dims: Sequence[int], rank: int) -> list[Edges]:
    """Zeros around a window of this rank whose spatial dims are `dims`."""
    edges: list[Edges] = [(0, 0, 0)] * rank
    for d, f in zip(dims, per_dim, strict=True):
        if f is not None:
            edges[d] = f.window
    return edges


# ---- convolutions --------------------------------------------------------------------------------
@dataclass
class _Loops:
    """Loops so far, the result dims' loops, and what indexes each operand dim.

    A split dim has two indices. phases: of the spatial dims, with the loop of the phase.
    """

    sizes: list[int] = field(default_factory=list)
    result: dict[int, Affine] = field(default_factory=dict)
    image: dict[int, list[Affine]] = field(default_factory=dict)
    kernel: dict[int, list[Affine]] = field(default_factory=dict)
    phases: dict[int, tuple[Phases, Affine]] = field(default_factory=dict)

    def loop(self, extent: int) -> Affine:
        """A further loop."""
        self.sizes.append(extent)
        return dim(len(self.sizes) - 1)

    def loop_above_one(self, extent: int) -> Affine:
        """A further loop; none, and index 0, for an extent of 1."""
        return affine([]) if extent == 1 else self.loop(extent)


def conv_general_dilated(ctx: Context, eqn: Any, xs: Sequence[Tensor]) -> list[Tensor] | None:
    """Any layout, stride, dilation, padding and grouping."""
    p, dtype = eqn.params, dtype_name(eqn.outvars[0].aval.dtype)
    if dtype is None:
        return None
    shape = tuple(int(d) for d in eqn.outvars[0].aval.shape)
    spec = p["dimension_numbers"]
    spatial = tuple(zip(spec.lhs_spec[2:], spec.rhs_spec[2:], spec.out_spec[2:], strict=True))
    per_dim = [
        phases(p, j, xs[0].shape[a], xs[1].shape[b], shape[c])
        for j, (a, b, c) in enumerate(spatial)
    ]
    x = padded(ctx, xs[0], _image_edges(p, per_dim), 0)
    kernel = padded(ctx, xs[1], window_edges(per_dim, spec.rhs_spec[2:], len(shape)), 0)
    nest = _Loops()
    split = {c: f for f, (_, _, c) in zip(per_dim, spatial, strict=True) if f is not None}
    group = _add_result(nest, p, shape, split)
    rank = len(nest.sizes)
    _add_channels(nest, p, kernel.shape, group)
    for j in range(len(shape) - 2):
        _add_window(nest, p, j, kernel.shape)
    taps = {d: f.taps for d, f in zip(spec.rhs_spec[2:], per_dim, strict=True) if f is not None}
    operands = [
        _operand(ctx, x, nest.image, _groups(p), {}),
        _operand(ctx, kernel, nest.kernel, _groups(p), taps),
    ]
    total = contract(ctx, nest.sizes, rank, operands, dtype, p["precision"])
    if total is None:
        return None
    whole = [split[d].every * split[d].positions if d in split else n for d, n in enumerate(shape)]
    edges = [split[d].result_edges(n) if d in split else (0, 0, 0) for d, n in enumerate(shape)]
    return [padded(ctx, reshaped(ctx, total[0], tuple(whole)), edges, 0)]


def _image_edges(p: Any, per_dim: Sequence[Phases | None]) -> list[Edges]:
    spec = p["dimension_numbers"].lhs_spec
    edges: list[Edges] = [(0, 0, 0)] * len(spec)
    pairs = zip(p["padding"], p["lhs_dilation"], per_dim, strict=True)
    for d, ((low, high), dilation, f) in zip(spec[2:], pairs, strict=True):
        edges[d] = f.image if f is not None else (int(low), int(high), int(dilation) - 1)
    return edges


def _groups(p: Any) -> int:
    return int(p["feature_group_count"]) * int(p["batch_group_count"])  # one of them is 1


def _add_result(
    nest: _Loops, p: Any, shape: tuple[int, ...], split: Mapping[int, Phases]
) -> Affine:
    """Loops of the result's dims, its channels as groups and channels of each.

    split: dims of positions and phases.

    Returns the index of the group.
    """
    groups, channels, group = _groups(p), p["dimension_numbers"].out_spec[1], affine([])
    for d, extent in enumerate(shape):
        if d == channels and groups > 1:
            group = nest.loop(groups)
            nest.result[d] = nest.loop_above_one(extent // groups)
        elif d in split:
            nest.result[d] = nest.loop(split[d].positions)
            nest.phases[d] = split[d], nest.loop(split[d].every)
        else:
            nest.result[d] = nest.loop(extent)
    return group


def _add_channels(nest: _Loops, p: Any, kernel: tuple[int, ...], group: Affine) -> None:
    """Everything that is no window: images, channels and filters."""
    spec, grouped = p["dimension_numbers"], _groups(p) > 1
    extent = kernel[spec.rhs_spec[1]]
    channel = nest.loop_above_one(extent) if grouped else nest.loop(extent)
    split = [group] if grouped else []
    images, channels = spec.lhs_spec[:2]
    nest.image[images] = [nest.result[spec.out_spec[0]]]
    nest.image[channels] = [channel]
    grouped_dim = channels if p["feature_group_count"] > 1 else images
    nest.image[grouped_dim] = split + nest.image[grouped_dim]
    nest.kernel[spec.rhs_spec[0]] = [*split, nest.result[spec.out_spec[1]]]
    nest.kernel[spec.rhs_spec[1]] = [channel]


def _add_window(nest: _Loops, p: Any, j: int, kernel: tuple[int, ...]) -> None:
    """Spatial dim j: stride * position + dilation * offset; no loop for a window of 1."""
    spec = p["dimension_numbers"]
    ((position, _),) = nest.result[spec.out_spec[2 + j]].terms
    if spec.out_spec[2 + j] in nest.phases:
        split, phase = nest.phases[spec.out_spec[2 + j]]
        tap = nest.loop_above_one(split.taps)
        nest.image[spec.lhs_spec[2 + j]] = [affine([(position, 1), *tap.terms])]
        within = affine([(d, -stride) for d, stride in phase.terms], split.every - 1)
        nest.kernel[spec.rhs_spec[2 + j]] = [tap, within]
        return
    offset = nest.loop_above_one(kernel[spec.rhs_spec[2 + j]])
    inside = [(d, int(p["rhs_dilation"][j])) for d, _ in offset.terms]
    nest.image[spec.lhs_spec[2 + j]] = [affine([(position, int(p["window_strides"][j])), *inside])]
    nest.kernel[spec.rhs_spec[2 + j]] = [offset]


def _operand(
    ctx: Context, x: Tensor, index: dict[int, list[Affine]], groups: int, taps: Mapping[int, int]
) -> tuple[Tensor, list[Affine]]:
    """The operand with its split dims as two, and what indexes each of its dims.

    taps: of the dims that are split into taps and phases; all others are split into groups.
    """
    shape, flat = [], []
    for d, extent in enumerate(x.shape):
        first = taps.get(d, groups)
        split = len(index[d]) == 2 and extent > first
        shape += [first, extent // first] if split else [extent]
        flat += index[d] if split else index[d][:1]
    return reshaped(ctx, x, tuple(shape)), flat
