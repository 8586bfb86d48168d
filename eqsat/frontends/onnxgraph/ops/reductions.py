"""Sums along axes: matrix products, reductions, softmax, cumulative sums and normalisations.

Normalisations are those of inference only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import OnnxCall, operator

# ---- reductions ----------------------------------------------------------------------------------
Reduce = Callable[[OnnxCall, Any, tuple[int, ...], bool], Any]


def _axes(c: OnnxCall) -> tuple[int, ...]:
    """The axes to reduce: an operand in newer opsets, an attribute in older ones."""
    if c.has(1):
        given: tuple[int, ...] | None = c.whole(1, "axes")
    else:
        given = c.attribute("axes")
    rank = c.rank(0)
    if not given:
        return () if c.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return c.axes(given, rank)


def _reduction(reduce: Reduce) -> Callable[[OnnxCall], Any]:
    def compute(c: OnnxCall) -> Any:
        result = reduce(c, c[0], _axes(c), bool(c.attribute("keepdims", 1)))
        return result.astype(c[0].dtype) if result.dtype != c[0].dtype else result

    return compute


def _plain(name: str) -> Reduce:
    return lambda c, x, axes, keep: getattr(c.xp, name)(x, axis=axes, keepdims=keep)


def _extreme(name: str) -> Reduce:
    """Extreme of a tensor; of an empty one the least or greatest value of the type."""

    def reduce(c: OnnxCall, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
        if x.dtype.kind == "b":
            logical = c.xp.any if name == "max" else c.xp.all
            return logical(x, axis=axes, keepdims=keep)
        return getattr(c.xp, name)(x, axis=axes, keepdims=keep, initial=_bound(name, x.dtype))

    return reduce


def _bound(name: str, dtype: Any) -> Any:
    if dtype.kind not in "iu":
        return -np.inf if name == "max" else np.inf
    return np.iinfo(dtype).min if name == "max" else np.iinfo(dtype).max


def _log_sum_exp(c: OnnxCall, x: Any, axes: tuple[int, ...], keep: bool) -> Any:
    top = c.lax.stop_gradient(c.xp.max(x, axis=axes, keepdims=True, initial=-np.inf))
    top = c.xp.where(c.xp.isfinite(top), top, 0)
    total = c.xp.log(c.xp.sum(c.xp.exp(x - top), axis=axes, keepdims=True)) + top
    return total if keep else c.xp.squeeze(total, axes)


_SUM, _MEAN, _PROD = _plain("sum"), _plain("mean"), _plain("prod")
REDUCTIONS: dict[str, tuple[Reduce, int]] = {
    "ReduceSum": (_SUM, 13),
    "ReduceMean": (_MEAN, 18),
    "ReduceProd": (_PROD, 18),
    "ReduceMax": (_extreme("max"), 20),
    "ReduceMin": (_extreme("min"), 20),
    "ReduceL1": (lambda c, x, a, k: _SUM(c, c.xp.abs(x), a, k), 18),
    "ReduceSumSquare": (lambda c, x, a, k: _SUM(c, x * x, a, k), 18),
    "ReduceLogSum": (lambda c, x, a, k: c.xp.log(_SUM(c, x, a, k)), 28),
}
for _name, (_function, _version) in REDUCTIONS.items():
    operator(_name, newest=_version, fold=True)(_reduction(_function))
operator("ReduceLogSumExp", newest=28)(_reduction(_log_sum_exp))
operator("ReduceL2", newest=18)(
    _reduction(lambda c, x, a, k: c.xp.sqrt(_SUM(c, _floating(c, x) ** 2, a, k)))
)


def _floating(c: OnnxCall, x: Any) -> Any:
    return x if x.dtype.kind not in "iu" else x.astype(np.float32)


def _arg(c: OnnxCall, name: str) -> Any:
    axis = c.along("axis", 0)
    keep, find = bool(c.attribute("keepdims", 1)), getattr(c.xp, name)
    if not c.attribute("select_last_index", 0):
        return find(c[0], axis=axis, keepdims=keep).astype(np.int64)
    last = find(c.xp.flip(c[0], axis), axis=axis, keepdims=keep)
    return (c.shape(0)[axis] - 1 - last).astype(np.int64)


operator("ArgMax", newest=13)(lambda c: _arg(c, "argmax"))
operator("ArgMin", newest=13)(lambda c: _arg(c, "argmin"))
operator("Softmax", newest=13)(lambda c: softmax_of(c, c[0], c.along("axis", -1)))


def softmax_of(c: OnnxCall, x: Any, axis: int) -> Any:
    """exp(x - max) / its sum, along one axis."""
    e = c.xp.exp(x - c.xp.max(x, axis=axis, keepdims=True))
    return e / c.xp.sum(e, axis=axis, keepdims=True)


@operator("LogSoftmax", newest=13)
def log_softmax(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    shifted = c[0] - c.xp.max(c[0], axis=axis, keepdims=True)
    return shifted - c.xp.log(c.xp.sum(c.xp.exp(shifted), axis=axis, keepdims=True))


@operator("Hardmax", newest=13)
def hardmax(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    place = c.xp.argmax(c[0], axis=axis, keepdims=True)
    shape = [1] * c.rank(0)
    shape[axis] = c.shape(0)[axis]
    line = np.arange(c.shape(0)[axis]).reshape(shape)
    return (c.xp.asarray(line, place.dtype) == place).astype(c[0].dtype)


def _cumulative(c: OnnxCall, run: Callable[..., Any], start: int) -> Any:
    axis = c.axis(int(c.static(1, "axis").reshape(-1)[0]), c.rank(0))
    x = c[0]
    if c.attribute("reverse", 0):
        x = c.xp.flip(x, axis)
    sums = run(x, axis=axis, dtype=x.dtype)
    if c.attribute("exclusive", 0):
        size = c.shape(0)[axis]
        widths = [(1 if d == axis else 0, 0) for d in range(c.rank(0))]
        padded = c.xp.pad(sums, widths, constant_values=start)
        sums = padded[tuple(slice(0, size) if d == axis else slice(None) for d in range(x.ndim))]
    return c.xp.flip(sums, axis) if c.attribute("reverse", 0) else sums


operator("CumSum", newest=14, fold=True)(lambda c: _cumulative(c, c.xp.cumsum, 0))
operator("CumProd", newest=26, fold=True)(lambda c: _cumulative(c, c.xp.cumprod, 1))


# ---- matrix products -----------------------------------------------------------------------------
operator("MatMul", newest=13)(lambda c: c.xp.matmul(c[0], c[1]))


@operator("Gemm", newest=13)
def gemm(c: OnnxCall) -> Any:
    """alpha A B + beta C."""
    a = c[0].T if c.attribute("transA", 0) else c[0]
    b = c[1].T if c.attribute("transB", 0) else c[1]
    product = scaled(a @ b, c.attribute("alpha", 1.0))
    return product + scaled(c[2], c.attribute("beta", 1.0)) if c.has(2) else product


def scaled(x: Any, factor: float) -> Any:
    """factor · x in x's type."""
    return x if factor == 1 else (x * factor).astype(x.dtype)


@operator("MatMulInteger", newest=10)
def matmul_integer(c: OnnxCall) -> Any:
    a, b = c[0], c[1]
    return integer_product(c, a, b, _row_zero(c, c.get(2), a), c.get(3))


def _row_zero(c: OnnxCall, zero: Any | None, a: Any) -> Any | None:
    """The zero point of the left operand, one per row if it is a vector."""
    if zero is None or zero.ndim != 1 or a.ndim < 2 or zero.shape[0] == 1:
        return zero
    return zero[:, None]


def integer_product(c: OnnxCall, a: Any, b: Any, a_zero: Any | None, b_zero: Any | None) -> Any:
    """(a - a_zero) (b - b_zero) in 32 bits; without zero points a product of small integers."""
    small = a.dtype == b.dtype
    a = a if a_zero is None and small else without_zero(a, a_zero)
    b = b if b_zero is None and small else without_zero(b, b_zero)
    if a.dtype != b.dtype:
        a, b = a.astype(np.int32), b.astype(np.int32)
    return c.xp.matmul(a, b, preferred_element_type=np.int32)


def without_zero(x: Any, zero: Any | None) -> Any:
    """x - zero in 32 bits."""
    wide = x.astype(np.int32)
    return wide if zero is None else wide - zero.astype(np.int32)


# ---- normalisations ------------------------------------------------------------------------------
def per_channel(x: Any, rank: int) -> Any:
    """[c] → [c, 1, …], which broadcasts along axis 1 of a tensor of this rank."""
    return x.reshape(-1, *([1] * (rank - 2)))


@operator("BatchNormalization", newest=15)
def batch_normalization(c: OnnxCall) -> Any:
    if c.attribute("training_mode", 0):
        raise c.unsupported("training mode", "export the model for inference")
    x, rank, eps = c[0], max(c.rank(0), 2), c.attribute("epsilon", 1e-5)
    scale, bias, mean, var = (per_channel(c[i], rank) for i in range(1, 5))
    return ((x - mean) / c.xp.sqrt(var + eps) * scale + bias).astype(x.dtype)


def moments(c: OnnxCall, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """(centred x, mean, 1 / standard deviation), dims kept."""
    mean = c.xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = c.xp.mean(centred * centred, axis=axes, keepdims=True)
    return centred, mean, 1 / c.xp.sqrt(variance + epsilon)


def in_f32(c: OnnxCall, x: Any) -> Any:
    """The stash type: 16-bit floats are normalised in 32 bits."""
    narrow = x.dtype.itemsize < 4 and int(c.attribute("stash_type", 1)) == 1
    return x.astype(np.float32) if narrow else x


@operator("LayerNormalization", newest=17)
def layer_normalization(c: OnnxCall) -> Any:
    """Over all axes from `axis` on; results: the tensor, mean and 1 / standard deviation."""
    axis = c.along("axis", -1)
    axes = tuple(range(axis, c.rank(0)))
    centred, mean, inverse = moments(c, in_f32(c, c[0]), axes, c.attribute("epsilon", 1e-5))
    result = (centred * inverse).astype(c[0].dtype) * c[1]
    if c.has(2):
        result = result + c[2]
    return result, mean, inverse


@operator("RMSNormalization", newest=23)
def rms_normalization(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    return root_mean_square(c, c[0], c[1], tuple(range(axis, c.rank(0))))


def root_mean_square(c: OnnxCall, x: Any, scale: Any, axes: tuple[int, ...]) -> Any:
    """x / √(mean of x² + ε) · scale."""
    wide = in_f32(c, x)
    square = c.xp.mean(wide * wide, axis=axes, keepdims=True)
    normal = wide / c.xp.sqrt(square + c.attribute("epsilon", 1e-5))
    return normal.astype(x.dtype) * scale


@operator("InstanceNormalization", newest=22)
def instance_normalization(c: OnnxCall) -> Any:
    axes = tuple(range(2, c.rank(0)))
    centred, _, inverse = moments(c, c[0], axes, c.attribute("epsilon", 1e-5))
    rank = c.rank(0)
    return centred * inverse * per_channel(c[1], rank) + per_channel(c[2], rank)


@operator("GroupNormalization", newest=21)
def group_normalization(c: OnnxCall) -> Any:
    """Scale and bias: one per channel, before opset 21 one per group."""
    (n, channels, *rest), groups = c.shape(0), int(c.needed("num_groups"))
    if groups < 1 or channels % groups:
        raise c.error("E368", f"has {groups} groups of {channels} channels")
    x = in_f32(c, c[0]).reshape(n, groups, channels // groups, *rest)
    axes = tuple(range(2, x.ndim))
    centred, _, inverse = moments(c, x, axes, c.attribute("epsilon", 1e-5))
    scale, bias = (_per_group(c, c[i], groups, channels, len(rest)) for i in (1, 2))
    result = (centred * inverse).astype(c[0].dtype) * scale + bias
    return result.reshape(c.shape(0))


def _per_group(c: OnnxCall, x: Any, groups: int, channels: int, spatial: int) -> Any:
    if x.shape not in ((groups,), (channels,)):
        raise c.error("E368", f"has {list(x.shape)} scales for {channels} channels")
    return x.reshape(groups, -1, *([1] * spatial))


@operator("LRN", newest=13)
def local_response(c: OnnxCall) -> Any:
    """x / (bias + alpha/size · sum of squares over neighbouring channels)^beta."""
    size = int(c.needed("size"))
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rank, x = c.rank(0), c[0]
    total = c.lax.reduce_window(
        x * x, np.zeros((), x.dtype), c.lax.add, (1, size, *([1] * (rank - 2))), (1,) * rank,
        ((0, 0), (before, after), *([(0, 0)] * (rank - 2))),
    )  # fmt: skip
    base = c.attribute("bias", 1.0) + c.attribute("alpha", 1e-4) / size * total
    return x / base ** c.attribute("beta", 0.75)


@operator("LpNormalization", newest=22)
def lp_normalization(c: OnnxCall) -> Any:
    axis = c.along("axis", -1)
    x = c[0]
    if int(c.attribute("p", 2)) == 1:
        norm = c.xp.sum(c.xp.abs(x), axis=axis, keepdims=True)
    else:
        norm = c.xp.sqrt(c.xp.sum(x * x, axis=axis, keepdims=True))
    return c.xp.where(norm == 0, 0, x / c.xp.where(norm == 0, 1, norm))


@operator("MeanVarianceNormalization", newest=13)
def mean_variance_normalization(c: OnnxCall) -> Any:
    axes = c.axes(c.attribute("axes", (0, 2, 3)), c.rank(0))
    x = c[0]
    mean = c.xp.mean(x, axis=axes, keepdims=True)
    variance = c.xp.mean(x * x, axis=axes, keepdims=True) - mean * mean
    return (x - mean) / (c.xp.sqrt(variance) + 1e-9)
