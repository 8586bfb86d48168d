"""Contractions as nests, built by hand, and what they compute in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eqsat.model.dispatch import Machine
from eqsat.model.expr import arg, call, cast, const
from eqsat.model.nest import Access, Bound, Nest, Stage, Store

CACHES = (32 << 10, 1 << 20, 32 << 20)
AVX512 = Machine(64, 32, CACHES, 1, ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"))
AVX2 = Machine(32, 16, CACHES, 1, ("avx2", "fma"))
NEON = Machine(16, 32, (64 << 10, 1 << 20), 1, ("neon",))
PRODUCT = call("mul", arg(0), arg(1))
A, B, BIAS, RESULT = 0, 1, 2, 9  # buffers


def matmul(
    m, k, n, a="mk", b="kn", bias=False, relu=False, result="mn", dtypes=("f32", "f32", "f32")
):
    """Result [m, n] of A [m, k] and B [k, n], stored in the orders of letters given.

    dtypes: of A and B, which are cast to that of the sums, the last.
    """
    extents = {"m": m, "n": n, "k": k}
    access = Access(A, dtypes[0], strides(a, extents)), Access(B, dtypes[1], strides(b, extents))
    factors = [
        arg(i) if x.dtype == dtypes[2] else cast(arg(i), dtypes[2]) for i, x in enumerate(access)
    ]
    product = call("mul", *factors)
    stages = [Stage(3, (0, 1), product, access, dtypes[2], "add", (2,))]
    if bias:
        body = call("add", arg(0), arg(1))
        body = call("max", body, const(0.0)) if relu else body
        arguments = (0, Access(BIAS, "f32", (0, 1, 0)))
        stages.append(Stage(4, (0, 1), body, arguments, "f32"))
    written = Access(RESULT, dtypes[2], strides(result, extents))
    return Nest((m, n, k), tuple(stages), (Store(written, len(stages) - 1, (0, 1)),))


def strides(order, extents):
    """Strides of loops m, n, k in a dense buffer with these dims."""
    steps, step = {}, 1
    for letter in reversed(order):
        steps[letter] = step
        step *= extents[letter]
    return tuple(steps.get(x, 0) for x in "mnk")


def operands(rng, m, k, n, a="mk", b="kn", bias=False):
    x, y = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    given = [x if a == "mk" else x.T.copy(), y if b == "kn" else y.T.copy()]
    return x, y, [*given, rng.standard_normal(n, np.float32)] if bias else given


def convolution(size, channels, features, window, stride=1):
    """NHWC, batch 1, borders padded by half a window of zeros."""
    pad = window // 2
    out = (size + 2 * pad - window) // stride + 1
    row = size * channels
    # loops: oh, ow, f, kh, kw, c
    inside = tuple(
        Bound(tuple(stride if i == d else int(i == d + 3) for i in range(6)), -pad, size)
        for d in (0, 1)
    )
    x = Access(
        A,
        "f32",
        (stride * row, stride * channels, 0, row, channels, 1),
        -pad * (row + channels),
        inside,
        0.0,
    )
    w = Access(B, "f32", (0, 0, 1, window * channels * features, channels * features, features))
    stage = Stage(3, (0, 1, 2), PRODUCT, (x, w), "f32", "add", (3, 4, 5))
    written = Access(RESULT, "f32", (out * features, features, 1, 0, 0, 0))
    sizes = (out, out, features, window, window, channels)
    return Nest(sizes, (stage,), (Store(written, 0, (0, 1, 2)),))


def convolved(x, w, stride=1):
    """The convolution in float64; x [h, w, c], w [kh, kw, c, f]."""
    pad = w.shape[0] // 2
    padded = np.pad(x.astype(np.float64), ((pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[:2], axis=(0, 1))
    return np.einsum("hwckl,klcf->hwf", windows[::stride, ::stride], w)


def beside(one, other):
    """Both nests as one that shares nothing; the second one's buffers are 20 higher."""
    n, stages = len(one.sizes), len(one.stages)

    def access(a):
        return replace(a, buffer=a.buffer + 20, strides=(*[0] * n, *a.strides))

    def stage(s):
        arguments = tuple(a + stages if isinstance(a, int) else access(a) for a in s.arguments)
        loops, reduced = (tuple(i + n for i in x) for x in (s.loops, s.reduced))
        return replace(s, loops=loops, reduced=reduced, arguments=arguments)

    wider = _wider(one, len(other.sizes))

    def store(s):
        loops = tuple(i + n for i in s.loops)
        return replace(s, access=access(s.access), stage=s.stage + stages, loops=loops)

    return Nest(
        one.sizes + other.sizes,
        wider.stages + tuple(map(stage, other.stages)),
        wider.stores + tuple(map(store, other.stores)),
    )


def _wider(nest, more):
    """The nest with so many more loops that nothing depends on."""

    def access(a):
        return replace(a, strides=(*a.strides, *[0] * more)) if isinstance(a, Access) else a

    stages = tuple(replace(s, arguments=tuple(map(access, s.arguments))) for s in nest.stages)
    stores = tuple(replace(s, access=access(s.access)) for s in nest.stores)
    return Nest((*nest.sizes, *[1] * more), stages, stores)
