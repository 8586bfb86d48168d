"""Reductions, arg reductions, softmax, cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall
from eqsat.frontends.onnxgraph.registry import operator

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
        found = reduce(c, c[0], _axes(c), bool(c.attribute("keepdims", 1)))
        return found.astype(c[0].dtype) if found.dtype != c[0].dtype else found

    return compute


def _plain(name: str) -> Reduce:
    return lambda c, x, axes, keep: getattr(c.xp, name)(x, axis=axes, keepdims=keep)


def _extreme(name: str) -> Reduce:
    """Of an empty tensor too: the least or greatest value of the type."""

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
    found = run(x, axis=axis, dtype=x.dtype)
    if c.attribute("exclusive", 0):
        size = c.shape(0)[axis]
        widths = [(1 if d == axis else 0, 0) for d in range(c.rank(0))]
        padded = c.xp.pad(found, widths, constant_values=start)
        found = padded[tuple(slice(0, size) if d == axis else slice(None) for d in range(x.ndim))]
    return c.xp.flip(found, axis) if c.attribute("reverse", 0) else found


operator("CumSum", newest=14, fold=True)(lambda c: _cumulative(c, c.xp.cumsum, 0))
operator("CumProd", newest=26, fold=True)(lambda c: _cumulative(c, c.xp.cumprod, 1))
