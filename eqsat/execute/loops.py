"""`generic` as JAX: dot_general for contractions, convolutions, else broadcast and reduce.

Each operand is first projected: constants, strides and reversals become slices, so that every
remaining dim is either one loop or a window sum such as `2*d0 + d4`.

Sums of products with windows become `lax.conv_general_dilated`, grouped and packed forms included.
Operands keep their own order of dims where the loops of each role lie side by side: that order
becomes the convolution's `dimension_numbers`. Input channels, output channels and images may each
be several loops (a packed convolution has an outer and an inner channel loop); loops of one role
that lie apart are brought together by a transpose.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from eqsat.execute.contractions import as_dot, as_strided
from eqsat.execute.expressions import (
    cast_factors,
    convert,
    evaluate_body_in_jax,
    evaluator,
    is_by_convolutions,
    is_by_products,
    level,
    operand_types,
    to_loops,
)
from eqsat.model.affine import Affine, Map, affine
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.tensor import ALGORITHMS
from eqsat.ops.generics.windows import (
    Block,
    ConvolutionRoles,
    Window,
    bare_loops,
    convolution_roles,
    fixed_at,
    indices,
    read_part,
    window_loops,
)
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import element_dtype

Dims = tuple[tuple[str, Block], ...]  # dims in order: "batch", "feature" or "spatial", and loops
Pads = Mapping[int, "Pad"]  # by operand
NO_PADS: Pads = {}
FEW_IMAGES, FEW_CHANNELS = 8, 32  # on a TPU: fewer, and at most so many
NATIVE_DIMS = 4  # with more, images are brought together in one dim: XLA is slow beyond


@dataclass(frozen=True)
class Pad:
    """An array, and how many zeros an operand has around it: (low, high) per axis."""

    array: Any
    widths: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class DimNames:
    """The dims of image, kernel and result; spatial ones are named by their position loops.

    A kernel's "batch" is its input channels, its "feature" its output channels.
    """

    image: Dims
    kernel: Dims
    result: Dims

    @property
    def spatial(self) -> tuple[Block, ...]:
        return tuple(b for role, b in self.image if role == "spatial")

    def spec(self, dims: Dims) -> tuple[int, ...]:
        """Where batch, feature and each spatial dim are, as `ConvDimensionNumbers` has it."""
        at = {(role, b if role == "spatial" else ()): i for i, (role, b) in enumerate(dims)}
        spatial = [at["spatial", b] for b in self.spatial]
        return (at["batch", ()], at["feature", ()], *spatial)


def is_small(g: Generic) -> bool:
    """Whether a convolution is better written as a sum of products on a TPU.

    XLA cuts a few images into more of them, for which it copies them, and holds a few channels in
    128 lanes. Sums are of f32 or wider, as they are rounded once per place.
    """
    r = convolution_roles(g) if cast_factors(g) is not None else None
    if r is None or r.groups or g.precision in ALGORITHMS:
        return False
    if any(w.stride != 1 for w in r.windows):  # it would slice in steps, of unknown cycles
        return False
    images, channels = (math.prod(g.sizes[d] for d in block) for block in (r.batch, r.inputs))
    is_wide = element_dtype(g.yields[0].dtype).itemsize >= 4
    return images < FEW_IMAGES and channels <= FEW_CHANNELS and is_wide


def _loops(m: Map) -> list[int]:
    """The loops that stand alone in a map."""
    return [e.dim for e in m if e.dim is not None]


def form(g: Generic, r: ConvolutionRoles) -> DimNames:
    """The order in which the operands are handed over."""
    features, outputs = (*r.groups, *r.inputs), (*r.groups, *r.outputs)
    image = _image_dims(_image_loops(g, r), features, r.batch)
    if len(image) > max(NATIVE_DIMS, 2 + len(r.windows)):
        spatial: Dims = tuple(("spatial", (w.position,)) for w in r.windows)
        image = (("batch", r.batch), *spatial, ("feature", features))
    blocks = tuple(b for role, b in image if role == "spatial")
    batch = next(b for role, b in image if role == "batch")
    result: Dims = (("batch", batch), ("feature", outputs), *(("spatial", b) for b in blocks))
    return DimNames(
        image,
        _kernel_dims(_kernel_loops(g, r), outputs, r.inputs, blocks),
        tuple(sorted(result, key=lambda d: d[1])),
    )


def _image_loops(g: Generic, r: ConvolutionRoles) -> list[int]:
    """The loop of every axis of the image, a window by its position."""
    positions = {w.axis: w.position for w in r.windows}
    loops = [positions.get(axis, e.dim) for axis, e in enumerate(g.maps[r.image])]
    return [d for d in loops if d is not None]


def _kernel_loops(g: Generic, r: ConvolutionRoles) -> list[int]:
    """The loop of every axis of the kernel, an offset by its position."""
    positions = {w.offset: w.position for w in r.windows}
    return [positions.get(d, d) for d in _loops(g.maps[r.kernel])]


def _image_dims(loops: list[int], features: Block, images: Block) -> Dims:
    """The image's own order if its features lie together, else features last.

    Images that lie together are one dim; the first such dim is the batch, others are spatial dims
    that the kernel is 1 wide in.
    """
    dims = [("feature" if b == features else "", b) for b in _runs(loops, (features,), images)]
    if not features:
        dims.append(("feature", ()))
    first = next((i for i, (_, b) in enumerate(dims) if b and b[0] in images), None)
    if first is None:
        dims.insert(0, ("batch", ()))
    else:
        dims[first] = ("batch", dims[first][1])
    return tuple((role or "spatial", b) for role, b in dims)


def _kernel_dims(loops: list[int], outputs: Block, inputs: Block, spatial: Sequence[Block]) -> Dims:
    """The kernel's own order if its channels lie together, else input and output channels last."""
    role = {inputs: "batch", outputs: "feature"}
    dims = [(role.get(b, "spatial"), b) for b in _runs(loops, (inputs, outputs), ())]
    narrow = [("spatial", b) for b in spatial if b[0] not in loops]
    there = {r for r, _ in dims}
    missing = [(r, ()) for r in ("batch", "feature") if r not in there]
    return (*dims, *narrow, *missing)


def _runs(loops: list[int], blocks: Sequence[Block], merged: Block) -> list[Block]:
    """Loops in order, those of a block as one run; blocks that lie apart come last.

    Neighbours that are both in `merged` are one run too.
    """
    apart = [b for b in blocks if b and not _together(loops, b)]
    heads = {b[0]: b for b in blocks if b and b not in apart}
    inside = {d for b in blocks for d in b}
    runs: list[Block] = []
    for d in loops:
        if d in heads:
            runs.append(heads[d])
        elif d in merged and runs and runs[-1][-1] in merged:
            runs[-1] = (*runs[-1], d)
        elif d not in inside:
            runs.append((d,))
    return runs + apart


def _together(loops: list[int], block: Block) -> bool:
    at = loops.index(block[0])
    return tuple(loops[at : at + len(block)]) == block


def unpadded(
    g: Generic, arrays: Sequence[Any], operands: Sequence[Any], pads: Pads
) -> tuple[Generic, list[Any], list[tuple[int, int]]]:
    """The arrays with the image as it was before its padding, and that per axis of the image.

    XLA:CPU writes a padded image down before it convolves it, unless the padding is the
    convolution's own; that is 1.1 to 1.4 times slower.
    """
    r = convolution_roles(g)
    image = -1 if r is None else r.image
    if r is None or image not in pads or arrays[image] is not operands[image]:  # not read as it is
        return g, list(arrays), []
    pad, windowed = pads[image], {w.axis for w in r.windows}
    if any((a or b) and axis not in windowed for axis, (a, b) in enumerate(pad.widths)):
        return g, list(arrays), []
    return g, [pad.array if i == image else x for i, x in enumerate(arrays)], list(pad.widths)


def convolve(
    g: Generic, arrays: Sequence[Any], padding: Sequence[tuple[int, int]] = ()
) -> Any | None:
    """The result over all loops of `g.result_shape`, or None if this is no convolution.

    padding: zeros that belong around every axis of the image; () for none.
    """
    from jax import lax

    r = convolution_roles(g)
    if r is None:
        return None
    f, typed = form(g, r), operand_types(g, arrays)
    windows: dict[Block, Window] = {(w.position,): w for w in r.windows}
    around: dict[Block, tuple[int, int]] = {}
    if padding:
        around = {(w.position,): padding[w.axis] for w in r.windows}
    result = lax.conv_general_dilated(
        _arranged(typed[r.image], _image_loops(g, r), f.image),
        _arranged(typed[r.kernel], _kernel_loops(g, r), f.kernel),
        [windows[b].stride if b in windows else 1 for b in f.spatial],
        [around.get(b, (0, 0)) for b in f.spatial],
        rhs_dilation=[windows[b].dilation if b in windows else 1 for b in f.spatial],
        dimension_numbers=lax.ConvDimensionNumbers(
            f.spec(f.image), _kernel_spec(f), f.spec(f.result)
        ),
        feature_group_count=math.prod(g.sizes[d] for d in r.groups),
        precision=level(g.precision),
        preferred_element_type=element_dtype(g.yields[0].dtype),
    )
    order = [d for _, b in f.result for d in b]
    return to_loops(result.reshape([g.sizes[d] for d in order]), order, g.result_shape)


def _kernel_spec(f: DimNames) -> tuple[int, ...]:
    """JAX wants a kernel's output channels first."""
    inputs, outputs, *spatial = f.spec(f.kernel)
    return (outputs, inputs, *spatial)


def _arranged(x: Any, loops: list[int], dims: Dims) -> Any:
    """The operand with these dims; loops it does not have are dims of extent 1."""
    from jax import lax

    axes = [loops.index(d) for _, b in dims for d in b if d in loops]
    if axes != sorted(axes):
        x = lax.transpose(x, axes)
    size = {loops[a]: int(s) for a, s in zip(axes, x.shape, strict=True)}
    shape = [math.prod(size.get(d, 1) for d in b) for _, b in dims]
    return x if list(x.shape) == shape else x.reshape(shape)


UNROLL_LIMIT = 128  # window positions written out one by one; more are gathered


def generic(
    g: Generic,
    operands: Sequence[Any],
    pads: Pads = NO_PADS,
    products: Collection[int] = (),
) -> list[Any]:
    """One array per yield, each of shape `g.result_shape`.

    pads: operands that are zeros around an array, which a convolution reads without them.
    products: operands that are results of contractions.
    """
    if math.prod(g.sizes) == 0:
        return [_empty(g, y.combine, y.dtype) for y in g.yields]
    if is_by_convolutions() and (stepped := as_strided(g, operands)) is not None:
        return [stepped]
    g, arrays = _project_all(_forwards(g), operands)
    windows = window_loops(g)
    few = bool(windows) and math.prod(g.sizes[d] for d in windows) <= UNROLL_LIMIT
    if is_by_products() and few and is_small(g):
        return [_as_places(g, arrays, windows)]
    if cast_factors(g) is not None:
        total = as_dot(g, arrays, products)
        # depthwise: a few slices, 20 to 40 times faster than XLA's grouped convolution on a CPU
        if total is None and not (few and windows == list(g.reductions)):
            total = convolve(*unpadded(g, arrays, operands, pads))
        if total is not None:
            return [total]
    if few:
        return _unrolled(g, arrays, windows)
    return _broadcast(g, arrays)


def _as_places(g: Generic, arrays: Sequence[Any], windows: list[int]) -> Any:
    """A convolution as the sum of a product per place of its filters."""
    parts: list[Any] = []
    for at in product(*(range(g.sizes[d]) for d in windows)):
        step = fixed_at(g, dict(zip(windows, at, strict=True)))
        parts.append(as_dot(*_project_all(_forwards(step), arrays), ()))
    return sum(parts[1:], parts[0])


def _empty(g: Generic, combine: str, dtype: str) -> Any:
    import jax.numpy as jnp

    start = scalar.neutral(combine, dtype) if combine else 0
    return jnp.full(g.result_shape, start, element_dtype(dtype))


# -- operands ------------------------------------------------------------------------------------


def _forwards(g: Generic) -> Generic:
    """Generic without reductions that run backwards in whatever reads them.

    Elements are combined in an order that XLA chooses, so that no copy is needed for this one.
    """
    steps: dict[int, set[bool]] = {}
    for d, s in (t for m in g.maps for e in m for t in e.terms):
        steps.setdefault(d, set()).add(s < 0)
    back = {d for d in g.reductions if steps.get(d) == {True}}
    if not back:
        return g

    def turned(e: Affine) -> Affine:
        shift = sum(s * (g.sizes[d] - 1) for d, s in e.terms if d in back)
        terms = [(d, -s if d in back else s) for d, s in e.terms]
        return affine(terms, e.constant + shift)

    return replace(g, maps=tuple(tuple(map(turned, m)) for m in g.maps))


def _project_all(g: Generic, operands: Sequence[Any]) -> tuple[Generic, list[Any]]:
    """Generic whose maps hold bare dims and window sums only."""
    arrays, maps = [], []
    for x, m in zip(operands, g.maps, strict=True):
        array, left = project(x, m, g.sizes)
        arrays.append(array)
        maps.append(left)
    shapes = tuple(tuple(int(d) for d in a.shape) for a in arrays)
    return replace(g, maps=tuple(maps), shapes=shapes), arrays


def project(x: Any, m: Map, sizes: Sequence[int]) -> tuple[Any, Map]:
    """Slice away constants, strides and reversals; extent-1 constants lose their dim."""
    from jax import lax

    part = read_part(m, sizes)
    start, limit, steps = (
        (list(ends) for ends in zip(*part.ranges, strict=True)) if m else ([],) * 3
    )
    stride, flip = list(map(abs, steps)), [axis for axis, s in enumerate(steps) if s < 0]
    if any(start) or list(x.shape) != limit or any(s != 1 for s in stride):
        x = lax.slice(x, start, limit, stride)
    x = lax.rev(x, flip) if flip else x
    if len(part.axes) < len(m):
        x = lax.squeeze(x, [axis for axis in range(len(m)) if axis not in part.axes])
    return x, part.map


# -- everything else -----------------------------------------------------------------------------


def _unrolled(g: Generic, arrays: Sequence[Any], windows: list[int]) -> list[Any]:
    """Fix the window loops at each of their positions and combine: every step is plain slices."""
    total: list[Any] | None = None
    for at in product(*(range(g.sizes[d]) for d in windows)):
        step = generic(fixed_at(g, dict(zip(windows, at, strict=True))), arrays)
        total = (
            step
            if total is None
            else [
                evaluate_body_in_jax(
                    Expr(y.combine, (Expr("arg", (), 0), Expr("arg", (), 1))), [a, b]
                )
                for y, a, b in zip(g.yields, total, step, strict=True)
            ]
        )
    assert total is not None
    return total


def _broadcast(g: Generic, arrays: Sequence[Any]) -> list[Any]:
    import jax.numpy as jnp

    order = _order(g)
    views = [_over_loops(x, m, g.sizes, order) for x, m in zip(arrays, g.maps, strict=True)]
    results, body = [], evaluator(views)
    reduced = tuple(i for i, d in enumerate(order) if d in g.reductions)
    left = [d for d in order if d not in g.reductions]
    for y in g.yields:
        value = convert(body(y.body), y.dtype)
        full = jnp.broadcast_to(value, [g.sizes[d] for d in order])
        if y.combine:
            total = reduce(full, y.combine, reduced)
            results.append(jnp.transpose(total, [left.index(d) for d in range(g.rank)]))
        else:
            results.append(full)
    return results


def _order(g: Generic) -> list[int]:
    """The loops in the order in which they are computed, result loops among reduced ones.

    What is reduced has the order of an operand that reads all loops: XLA:CPU would copy what it
    computes to lay it out another way. What is not reduced has the order of the result.
    """
    loops = list(range(len(g.sizes)))
    if not all(y.combine for y in g.yields):
        return loops
    read = [[e.dim for e in m if e.dim is not None] for m in g.maps]
    whole = [
        r for r, m in zip(read, g.maps, strict=True) if len(r) == len(m) and sorted(r) == loops
    ]
    return loops if loops in whole else next(iter(whole), loops)


def _over_loops(x: Any, m: Map, sizes: Sequence[int], order: Sequence[int]) -> Any:
    """The operand with one dim per loop in this order, extent 1 where it does not use the loop."""
    from jax import lax

    bare = bare_loops(m)
    if bare is None:  # diagonals and wide windows: rare, and slow
        bare, at = indices(m, sizes)
        x = x[tuple(at)]
    ordered = sorted(bare, key=list(order).index)
    if bare != ordered:
        x = lax.transpose(x, [bare.index(d) for d in ordered])
    return x.reshape([sizes[d] if d in ordered else 1 for d in order])


def reduce(x: Any, combine: str, axes: tuple[int, ...]) -> Any:
    """Combine over `axes` in the array's own element type."""
    import jax.numpy as jnp
    from jax import lax

    whole: dict[str, Any] = {"max": jnp.max, "min": jnp.min}
    if combine in whole:
        return whole[combine](x, axis=axes)
    if combine in ("add", "mul"):
        return (jnp.sum if combine == "add" else jnp.prod)(x, axis=axes, dtype=x.dtype)
    if x.dtype == np.bool_:
        return (jnp.all if combine == "and" else jnp.any)(x, axis=axes)
    start = np.asarray(0 if combine == "or" else -1).astype(x.dtype)
    return lax.reduce(x, start, lax.bitwise_and if combine == "and" else lax.bitwise_or, axes)
