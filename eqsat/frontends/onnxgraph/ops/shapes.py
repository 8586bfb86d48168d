"""Operators that move or make elements by shape: reshapes, slices, pads, constants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import STATIC_ELEMENTS, OnnxCall, operator
from eqsat.frontends.onnxgraph.proto import ELEMENT_TYPES, is_bearable
from eqsat.ops.meaning.programs import element_dtype

_CONSTANTS = {
    "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
    "value_ints": np.int64,
}  # fmt: skip


@operator("Constant", newest=25)
def constant(c: OnnxCall) -> Any:
    given = [k for k, v in c.node.attributes.items() if v is not None]
    if len(given) != 1:
        raise c.error("E362", f"has {len(given)} values, not one")
    if given[0] == "value":
        return c.node.attributes["value"]
    if given[0] not in _CONSTANTS:
        raise c.unsupported(f"a constant given by `{given[0]}`")
    return np.asarray(c.node.attributes[given[0]], _CONSTANTS[given[0]])


@operator("Shape", newest=25)
def shape(c: OnnxCall) -> Any:
    dims = c.shape(0)
    return np.asarray(dims[slice(c.attribute("start", 0), c.attribute("end"))], np.int64)


@operator("Size", newest=25)
def size(c: OnnxCall) -> Any:
    return np.asarray(math.prod(c.shape(0)), np.int64)


@operator("Reshape", newest=25, fold=True)
def reshape(c: OnnxCall) -> Any:
    wanted = list(c.whole(1, "shape"))
    given = c.shape(0)
    if not c.attribute("allowzero", 0):
        for at, d in enumerate(wanted):
            if d == 0 and at < len(given):
                wanted[at] = given[at]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        raise c.error("E368", f"reshapes to {wanted[:16]}, which is no shape")
    return c.xp.reshape(c[0], _inferred(c, wanted))


def _inferred(c: OnnxCall, wanted: list[int]) -> tuple[int, ...]:
    """The shape with -1 replaced; E368 if the elements do not come out even."""
    total, product = math.prod(c.shape(0)), math.prod(d for d in wanted if d != -1)
    if -1 in wanted and product:
        wanted[wanted.index(-1)] = total // product
    if math.prod(wanted) != total:
        raise c.error(
            "E368",
            f"reshapes {list(c.shape(0))} to {wanted[:16]}, which has another number of elements",
            help="if a `--size` was given, the model may hold another one fixed",
        )
    return tuple(wanted)


@operator("Flatten", newest=25, fold=True)
def flatten(c: OnnxCall) -> Any:
    rank, dims = c.rank(0), c.shape(0)
    at = int(c.attribute("axis", 1))
    if not -rank <= at <= rank:
        raise c.error("E368", f"names axis {at} of a tensor of rank {rank}")
    at = at + rank if at < 0 else at
    return c.xp.reshape(c[0], (math.prod(dims[:at]), math.prod(dims[at:])))


@operator("Transpose", newest=25, fold=True)
def transpose(c: OnnxCall) -> Any:
    default = tuple(reversed(range(c.rank(0))))
    return c.xp.transpose(c[0], c.axes(c.attribute("perm", default), c.rank(0)))


@operator("Squeeze", newest=25, fold=True)
def squeeze(c: OnnxCall) -> Any:
    if c.has(1):
        axes = c.axes(c.whole(1, "axes"), c.rank(0))
    else:
        axes = tuple(d for d, s in enumerate(c.shape(0)) if s == 1)
    return c.xp.squeeze(c[0], axes)


@operator("Unsqueeze", newest=25, fold=True)
def unsqueeze(c: OnnxCall) -> Any:
    given = c.whole(1, "axes")
    axes = c.axes(given, c.rank(0) + len(given))
    return c.xp.expand_dims(c[0], axes)


@operator("Concat", newest=13, fold=True)
def concat(c: OnnxCall) -> Any:
    return c.xp.concatenate(c.all, axis=c.axis(int(c.needed("axis")), c.rank(0)))


@operator("Split", newest=18, fold=True)
def split(c: OnnxCall) -> Any:
    axis, count = c.along("axis", 0), len(c.node.outputs)
    total = c.shape(0)[axis]
    if c.has(1):
        sizes = c.whole(1, "sizes")
    else:
        if c.attribute("num_outputs", count) != count:
            raise c.error("E362", f"has {count} outputs, not `num_outputs`")
        if not c.node.attributes.get("num_outputs") and total % count:
            raise c.error("E368", f"cannot split {total} into {count} equal parts")
        each = -(-total // count)
        sizes = tuple(max(0, min(each, total - i * each)) for i in range(count))
    if len(sizes) != count or sum(sizes) != total or min(sizes, default=0) < 0:
        raise c.error("E368", f"splits {total} elements into {list(sizes)[:16]}")
    ends = np.cumsum(sizes)[:-1].tolist()
    return tuple(c.xp.split(c[0], ends, axis=axis))


@operator("Slice", newest=13, fold=True)
def slice_(c: OnnxCall) -> Any:
    starts, ends = c.whole(1, "starts"), c.whole(2, "ends")
    axes = c.whole(3, "axes") if c.has(3) else tuple(range(len(starts)))
    steps = c.whole(4, "steps") if c.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise c.error("E368", "has starts, ends, axes and steps that do not fit each other")
    index = [slice(None)] * c.rank(0)
    for axis, a, b, k in zip(c.axes(axes, c.rank(0)), starts, ends, steps, strict=True):
        index[axis] = _bounds(a, b, k, c.shape(0)[axis])
    return c[0][tuple(index)]


def _bounds(start: int, end: int, step: int, size: int) -> slice:
    """ONNX clamps both ends into the axis; a stop before the first element is None in Python."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step) if size else slice(0, 0)


@operator("Expand", newest=13, fold=True)
def expand(c: OnnxCall) -> Any:
    given, wanted = c.shape(0), c.whole(1, "shape")
    shape = np.broadcast_shapes(given, wanted)
    return c.xp.broadcast_to(_numpy_if_small(c, shape), shape)


def _numpy_if_small(c: OnnxCall, shape: tuple[int, ...]) -> Any:
    """Operand 0; E368 where a constant would be grown beyond all bounds."""
    if not is_bearable(shape) or (c.xp is np and math.prod(shape) > STATIC_ELEMENTS):
        raise c.error("E368", f"makes a tensor of shape {list(shape)[:16]}, which is too large")
    return c[0]


@operator("Tile", newest=13, fold=True)
def tile(c: OnnxCall) -> Any:
    reps = c.whole(1, "repeats")
    if len(reps) != c.rank(0) or min(reps, default=0) < 0:
        raise c.error("E368", f"repeats a tensor of rank {c.rank(0)} {list(reps)[:16]} times")
    shape = tuple(s * r for s, r in zip(c.shape(0), reps, strict=True))
    return c.xp.tile(_numpy_if_small(c, shape), reps)


@operator("Pad", newest=25, fold=True)
def pad(c: OnnxCall) -> Any:
    """Negative pads crop; every mode but `constant` then mirrors or repeats what is left."""
    pads, rank = c.whole(1, "pads"), c.rank(0)
    axes = c.axes(c.whole(3, "axes"), rank) if c.has(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise c.error("E368", f"has {len(pads)} pads for {len(axes)} axes")
    widths = [(0, 0)] * rank
    for at, axis in enumerate(axes):
        widths[axis] = (pads[at], pads[at + len(axes)])
    shape = tuple(s + a + b for s, (a, b) in zip(c.shape(0), widths, strict=True))
    if min(shape, default=0) < 0:
        raise c.error("E368", f"crops {list(c.shape(0))} by {list(pads)[:16]}: nothing is left")
    return _padded(c, _cropped(_numpy_if_small(c, shape), widths), widths)


def _cropped(x: Any, widths: list[tuple[int, int]]) -> Any:
    if all(a >= 0 and b >= 0 for a, b in widths):
        return x
    return x[tuple(slice(max(-a, 0), x.shape[d] - max(-b, 0)) for d, (a, b) in enumerate(widths))]


def _padded(c: OnnxCall, x: Any, widths: list[tuple[int, int]]) -> Any:
    mode = c.attribute("mode", "constant")
    grown = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode != "constant":
        if mode not in ("reflect", "edge", "wrap"):
            raise c.unsupported(f"the mode `{mode}`")
        return c.xp.pad(x, grown, mode=mode) if any(map(any, grown)) else x
    value = c.static(2, "value").reshape(-1)[0] if c.has(2) else np.zeros((), c.dtype(0))
    if c.xp is np:
        return np.pad(x, grown, constant_values=value)
    value = c.xp.asarray(value, x.dtype)
    return c.lax.pad(x, value, [(a, b, 0) for a, b in grown])


@operator("ConstantOfShape", newest=25)
def constant_of_shape(c: OnnxCall) -> Any:
    dims = c.whole(0, "shape")
    value = np.asarray(c.attribute("value", np.zeros(1, np.float32)))
    if min(dims, default=0) < 0 or not is_bearable(dims) or value.size != 1:
        raise c.error("E368", f"makes a tensor of shape {list(dims)[:16]}, which is no size")
    return filled(c, dims, value.reshape(-1)[0], value.dtype)


def filled(c: OnnxCall, shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """One value everywhere: known while it is small."""
    if math.prod(shape) <= STATIC_ELEMENTS // 64:
        return np.full(shape, value, dtype)
    return c.xp.full(shape, value, dtype) if c.xp is not np else _traced_full(shape, value, dtype)


def _traced_full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    import jax.numpy as jnp

    return jnp.full(shape, value, dtype)


@operator("Range", newest=27)
def range_(c: OnnxCall) -> Any:
    start, limit, delta = (c.static(i, "bounds").reshape(()) for i in range(3))
    if not delta or not all(np.isfinite(v) for v in (start, limit, delta)):
        raise c.error("E368", f"counts from {start} to {limit} in steps of {delta}")
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    if count > STATIC_ELEMENTS:
        raise c.error("E368", f"counts {count} numbers, which are too many")
    wide = np.float64 if start.dtype.kind not in "iu" else start.dtype
    steps = np.arange(count).astype(wide) * delta.astype(wide)
    return (start.astype(wide) + steps).astype(start.dtype)


@operator("EyeLike", newest=22)
def eye_like(c: OnnxCall) -> Any:
    if c.rank(0) != 2 or math.prod(c.shape(0)) > STATIC_ELEMENTS:
        raise c.error("E368", f"wants a matrix, not {list(c.shape(0))}")
    number = int(c.attribute("dtype", 0))
    dtype = element_dtype(ELEMENT_TYPES[number].name) if number else c.dtype(0)
    return np.eye(*c.shape(0), k=int(c.attribute("k", 0))).astype(dtype)


@operator("Trilu", newest=14, fold=True)
def trilu(c: OnnxCall) -> Any:
    """The k-th diagonal and what lies above it (or below), of the last two dims."""
    k = int(c.static(1, "diagonal").reshape(-1)[0]) if c.has(1) else 0
    rows, columns = c.shape(0)[-2:]
    if rows * columns > STATIC_ELEMENTS:
        raise c.error("E368", f"wants a mask of {rows} by {columns}, which is too large")
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    mask = distance >= k if c.attribute("upper", 1) else distance <= k
    return c.xp.where(mask, c[0], np.zeros((), c.dtype(0)))


@operator("DepthToSpace", newest=28)
def depth_to_space(c: OnnxCall) -> Any:
    n, depth, h, w = _image(c)
    b = int(c.needed("blocksize"))
    if b < 1 or depth % (b * b):
        raise c.error("E368", f"cannot spread {depth} channels over blocks of {b}")
    if c.attribute("mode", "DCR") == "DCR":
        x = c[0].reshape(n, b, b, depth // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = c[0].reshape(n, depth // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(n, depth // (b * b), h * b, w * b)


@operator("SpaceToDepth", newest=28)
def space_to_depth(c: OnnxCall) -> Any:
    n, depth, h, w = _image(c)
    b = int(c.needed("blocksize"))
    if b < 1 or h % b or w % b:
        raise c.error("E368", f"cannot cut {h} by {w} into blocks of {b}")
    order = (0, 3, 5, 1, 2, 4) if c.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = c[0].reshape(n, depth, h // b, b, w // b, b).transpose(order)
    return x.reshape(n, depth * b * b, h // b, w // b)


def _image(c: OnnxCall) -> tuple[int, ...]:
    if c.rank(0) != 4:
        raise c.error("E368", f"wants an image [n, c, h, w], not {list(c.shape(0))}")
    return c.shape(0)
