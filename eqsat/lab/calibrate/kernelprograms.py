"""The programs whose dispatches calibrate the constants of plans: shapes, layouts, epilogues, rows.

A group is what is left out together when the fit is tested: all forms of one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from eqsat.model.program import Program

BIAS_RELU = "max(add(x0, x1), 0.0)"
CUBE = "mul(0.044715, mul(mul(x0, x0), x0))"
GELU = f"mul(mul(0.5, x0), add(1.0, tanh(mul(0.7978846, add(x0, {CUBE})))))"
# rows, reduction, columns of products; the forms of the second factor; epilogues
PRODUCTS = (
    ((128, 128, 128), ("kn", "nk", "panels"), ("", "bias")),
    ((256, 256, 256), ("kn", "nk", "panels"), ("",)),
    ((512, 512, 512), ("kn", "panels"), ("",)),
    ((128, 384, 384), ("kn", "nk", "panels"), ("", "bias", "add")),
    ((128, 384, 1536), ("kn", "panels"), ("", "gelu")),
    ((128, 1536, 384), ("kn", "panels"), ("add",)),
    ((128, 784, 512), ("kn", "panels"), ("bias",)),
    ((256, 1024, 1024), ("kn", "nk", "panels"), ("bias",)),
    ((100, 300, 200), ("kn", "panels"), ("", "bias")),
    ((25, 64, 130), ("kn", "nk"), ("",)),
    ((128, 512, 10), ("kn", "panels"), ("bias",)),
    ((32, 512, 512), ("kn", "panels"), ("", "bias")),
    ((8, 768, 3072), ("kn", "nk", "panels"), ("",)),
    ((4, 512, 2048), ("kn", "panels"), ("bias",)),
    ((1, 768, 3072), ("kn", "nk", "panels"), ("",)),
    ((1, 2048, 2048), ("kn", "nk"), ("",)),
    ((1, 256, 256), ("kn", "nk"), ("bias",)),
)
TURNED = ((128, 384, 384), (256, 512, 256))  # whose first factor lies with its rows innermost
BATCHES = ((12, 128, 32, 128), (12, 128, 128, 32), (4, 64, 64, 64))  # batch, m, k, n
PANEL = 32
Function = Callable[..., Any]
# elements of one operand of passes that stream
STREAMED = (1 << 11, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 3 << 21)


@dataclass(frozen=True)
class ProbedProgram:
    """A program whose every dispatch is a sample; `make` reads it."""

    name: str
    group: str
    make: Callable[[], Program]


def probed_programs() -> tuple[ProbedProgram, ...]:
    """All probed programs, in a fixed order."""
    return (
        *_products(),
        *_batches(),
        *_streams(),
        *_rows(),
        *_moves(),
        *_windows(),
        *_pools(),
        *_pads(),
        *_by_xla(),
    )


# ---- contractions ----------------------------------------------------------------------------
def _products() -> Iterator[ProbedProgram]:
    for sizes, forms, epilogues in PRODUCTS:
        for form in forms:
            for epilogue in epilogues:
                yield product_program(sizes, form, epilogue)
    for m, k, n in TURNED:
        lines = (f"input x: f32[{k}, {m}]", f"input w: f32[{k}, {n}]")
        body = _contraction(f"{m}, {n}, {k}", "[d2, d0], [d2, d1]", f"{m}, {n}")
        yield _text(f"{m}x{k}x{n} km", f"{m}x{k}x{n}", *lines, body, "return y")


def product_program(sizes: tuple[int, int, int], form: str, epilogue: str) -> ProbedProgram:
    """A product of these rows, reduction and columns.

    form: how the second factor lies, kn, nk or in panels. epilogue: bias, add, gelu or none.
    """
    m, k, n = sizes
    group = f"{m}x{k}x{n}"
    lines = [f"input x: f32[{m}, {k}]"]
    if form == "panels":
        panels = -(-n // PANEL)
        lines.append(f"input w: f32[{panels}, {k}, {PANEL}]")
        result = f"{m}, {panels}, {PANEL}"
        lines.append(_contraction(f"{result}, {k}", "[d0, d3], [d1, d3, d2]", result, "p"))
        plain = f"pos=[1], tiles=[{PANEL}], outer=[0, 1], shape=[{m}, {n}]"
        pad = ", pad=any" if n % PANEL else ""
        lines.append(f"y = unpack(p, {plain}{pad}) : f32[{m}, {n}]")
    else:
        shape = f"{k}, {n}" if form == "kn" else f"{n}, {k}"
        lines.append(f"input w: f32[{shape}]")
        w = "[d2, d1]" if form == "kn" else "[d1, d2]"
        lines.append(_contraction(f"{m}, {n}, {k}", f"[d0, d2], {w}", f"{m}, {n}"))
    lines += _epilogue(epilogue, m, n)
    last = "e" if epilogue else "y"
    return _text(f"{group} {form} {epilogue}".strip(), group, *lines, f"return {last}")


def _contraction(loops: str, maps: str, shape: str, name: str = "y") -> str:
    body = "body=mul(x0, x1), combine=add"
    return f"{name} = generic(x, w, loops=[{loops}], maps=[{maps}], {body}) : f32[{shape}]"


def _epilogue(kind: str, m: int, n: int) -> list[str]:
    plain = "[d0, d1]"
    loops = f"loops=[{m}, {n}]"
    if kind == "bias":
        row = f"e = generic(y, b, {loops}, maps=[{plain}, [d1]], body={BIAS_RELU})"
        return [f"input b: f32[{n}]", row]
    if kind == "add":
        row = f"e = generic(y, b, {loops}, maps=[{plain}, {plain}], body=add(x0, x1))"
        return [f"input b: f32[{m}, {n}]", row]
    return [f"e = generic(y, {loops}, maps=[{plain}], body={GELU})"] if kind else []


def _batches() -> Iterator[ProbedProgram]:
    for b, m, k, n in BATCHES:
        group = f"{b}x{m}x{k}x{n}"
        result = f"{b}, {m}, {n}"
        for form, shape, w in (
            ("kn", f"{b}, {k}, {n}", "[d0, d3, d2]"),
            ("nk", f"{b}, {n}, {k}", "[d0, d2, d3]"),
        ):
            lines = [f"input x: f32[{b}, {m}, {k}]", f"input w: f32[{shape}]"]
            lines.append(_contraction(f"{result}, {k}", f"[d0, d1, d3], {w}", result))
            yield _text(f"{group} {form}", group, *lines, "return y")
        # heads that lie beside each other in every row, as projections leave them
        lines = [f"input x: f32[{m}, {b}, {k}]", f"input w: f32[{n}, {b}, {k}]"]
        lines.append(_contraction(f"{result}, {k}", "[d1, d0, d3], [d2, d0, d3]", result))
        yield _text(f"{group} heads", group, *lines, "return y")


# ---- passes over memory, rows, moves ---------------------------------------------------------
def _streams() -> Iterator[ProbedProgram]:
    for size in STREAMED:
        group = f"stream {size}"
        one = f"y = generic(x, loops=[{size}], maps=[[d0]], body=add(mul(x0, 0.5), 1.0))"
        yield _text(f"{group} scaled", group, f"input x: f32[{size}]", one, "return y")
        two = f"y = generic(x, z, loops=[{size}], maps=[[d0], [d0]], body=add(x0, x1))"
        inputs = (f"input x: f32[{size}]", f"input z: f32[{size}]")
        yield _text(f"{group} added", group, *inputs, two, "return y")


def _rows() -> Iterator[ProbedProgram]:
    import jax
    from jax import numpy as jnp

    def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    def rms_norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale

    for shape in ((128, 384), (512, 1024)):
        width = shape[-1]
        yield traced("layer norm", layer_norm, shape, (width,), (width,))
        yield traced("rms norm", rms_norm, shape, (width,))
    for shape in ((1536, 128), (128, 512), (64, 1000)):
        yield traced("softmax", partial(jax.nn.softmax, axis=-1), shape)
    for shape in ((128, 1536), (64, 100)):
        yield traced("gelu", jax.nn.gelu, shape)
        yield traced("sigmoid", jax.nn.sigmoid, shape)
        yield traced("bias", lambda x, b: jax.nn.relu(x + b), shape, shape[1:])
    for name, function in (("exp", jnp.exp), ("tanh", jnp.tanh), ("log", jnp.log1p)):
        yield traced(name, function, (256, 512))
    for shape in ((1024, 256), (256, 1000)):
        yield traced("sum of rows", lambda x: x.sum(1), shape)
        yield traced("sum of columns", lambda x: x.sum(0), shape)
        yield traced("largest of rows", lambda x: x.max(1), shape)


def _moves() -> Iterator[ProbedProgram]:
    import jax

    def turned(*perm: int) -> Callable[..., Any]:
        return lambda x: x.transpose(perm)

    for shape in ((512, 256), (1024, 1024), (100, 300)):
        yield traced("transpose", turned(1, 0), shape)
    yield traced("heads apart", turned(1, 0, 2), (128, 12, 32))
    yield traced("heads together", turned(1, 0, 2), (12, 128, 32))
    for rows, columns in ((512, 512), (384, 1536)):
        packed = f"{columns // PANEL}, {rows}, {PANEL}"
        pack = f"y = pack(x, pos=[1], tiles=[{PANEL}], outer=[1, 0]) : f32[{packed}]"
        inputs = f"input x: f32[{rows}, {columns}]"
        group = f"pack {rows}x{columns}"
        yield _text(group, group, inputs, pack, "return y")
        plain = f"pos=[1], tiles=[{PANEL}], outer=[1, 0], shape=[{rows}, {columns}]"
        unpack = f"y = unpack(x, {plain}) : f32[{rows}, {columns}]"
        yield _text(f"un{group}", group, f"input x: f32[{packed}]", unpack, "return y")

    def gathered(table: Any, at: Any) -> Any:
        return table.at[at].get(mode="promise_in_bounds")

    def gathered_sum(table: Any, at: Any, other: Any) -> Any:
        return gathered(table, at) + other

    for rows, width in ((30522, 384), (1000, 64)):
        ids = jax.ShapeDtypeStruct((128,), "int32")
        yield traced("gather", gathered, (rows, width), ids)
        yield traced("gather and add", gathered_sum, (rows, width), ids, (128, width))


# ---- windows: convolutions, pools, pads ------------------------------------------------------
# channels, filters, rows and columns of an image, window, stride
CONVOLVED = (
    (64, 64, 28, 3, 1),
    (128, 128, 14, 3, 1),
    (32, 64, 28, 3, 2),
    (3, 32, 56, 7, 2),
    (96, 128, 28, 1, 1),
)
BY_CHANNEL = ((96, 28, 3, 1), (64, 28, 5, 2), (192, 14, 3, 1))
ALONG_TIME = ((200, 128, 31), (400, 64, 7))  # steps, channels, taps of a depthwise convolution
POOLED = ((64, 56, 3, 2), (128, 28, 2, 2))
PADDED = ((64, 28), (16, 112))
NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def convolved(numbers: tuple[str, str, str], stride: int = 1, groups: int = 1) -> Function:
    """A convolution in this order of dims; the result has as many places as strides fit."""
    import jax

    def convolve(x: Any, w: Any) -> Any:
        strides = (stride,) * (x.ndim - 2)
        return jax.lax.conv_general_dilated(
            x, w, strides, "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    return convolve


def image(numbers: tuple[str, str, str], channels: int, size: int) -> tuple[int, ...]:
    """The shape of one square image."""
    return (1, channels, size, size) if numbers is NCHW else (1, size, size, channels)


def filters(numbers: tuple[str, str, str], k: int, c: int, window: int) -> tuple[int, ...]:
    """The shape of square filters."""
    return (k, c, window, window) if numbers is NCHW else (window, window, c, k)


def _windows() -> Iterator[ProbedProgram]:
    for c, k, size, window, stride in CONVOLVED:
        for n in (NHWC, NCHW):
            shapes = image(n, c, size), filters(n, k, c, window)
            yield traced(f"{n[0]} {k} x {window}x{window}", convolved(n, stride), *shapes)
    for c, size, window, stride in BY_CHANNEL:
        for n in (NHWC, NCHW):
            shapes = image(n, c, size), filters(n, c, 1, window)
            name = f"{n[0]} by channel {window}x{window}"
            yield traced(name, convolved(n, stride, c), *shapes)
    for steps, c, taps in ALONG_TIME:
        numbers = ("NWC", "WIO", "NWC")
        shapes = (1, steps, c), (taps, 1, c)
        yield traced(f"NWC by channel {taps}", convolved(numbers, 1, c), *shapes)


def pooled(numbers: tuple[str, str, str], window: int, stride: int, mean: bool) -> Function:
    """The largest, or the mean, of each window."""
    import jax
    from jax import numpy as jnp

    def sides(n: int) -> tuple[int, ...]:
        return (1, 1, n, n) if numbers is NCHW else (1, n, n, 1)

    def pool(x: Any) -> Any:
        first, join = (0.0, jax.lax.add) if mean else (-jnp.inf, jax.lax.max)
        pooled = jax.lax.reduce_window(x, first, join, sides(window), sides(stride), "VALID")
        return pooled / window**2 if mean else pooled

    return pool


def _pools() -> Iterator[ProbedProgram]:
    for c, size, window, stride in POOLED:
        for n in (NHWC, NCHW):
            for mean in (False, True):
                name = f"{n[0]} {'mean' if mean else 'largest'} of {window}x{window}"
                yield traced(name, pooled(n, window, stride, mean), image(n, c, size))
        yield _pool_of_panels(c, size, window, stride)


def _pool_of_panels(c: int, size: int, window: int, stride: int) -> ProbedProgram:
    """An image whose channels lie in panels, as a convolution leaves it."""
    extent, group = (size - window) // stride + 1, f"panels {c}x{size}x{size} {window}x{window}"
    plain = f"pos=[1], tiles=[{PANEL}], outer=[0, 1, 2, 3], shape=[1, {c}, {size}, {size}]"
    maps = f"[[d0, d1, {stride}*d2 + d4, {stride}*d3 + d5]]"
    loops = f"[1, {c}, {extent}, {extent}, {window}, {window}]"
    return _text(
        f"largest of {group}",
        group,
        f"input x: f32[1, {c // PANEL}, {size}, {size}, {PANEL}]",
        f"p = unpack(x, {plain}) : f32[1, {c}, {size}, {size}]",
        f"y = generic(p, loops={loops}, maps={maps}, body=x0, combine=max, rank=4)",
        "return y",
    )


def _pads() -> Iterator[ProbedProgram]:
    from jax import numpy as jnp

    for c, size in PADDED:
        for n in (NHWC, NCHW):
            around = [(0, 0) if letter in "NC" else (1, 1) for letter in n[0]]
            for mode in ("constant", "edge"):
                name = f"{n[0]} pad {mode}"
                yield traced(name, lambda x, a=around, m=mode: jnp.pad(x, a, m), image(n, c, size))


# ---- what XLA runs, and loops ----------------------------------------------------------------
def _by_xla() -> Iterator[ProbedProgram]:
    """Ops without a plan, and loops; nothing is fitted to them. Opaque ops have no price."""
    import jax
    from jax import numpy as jnp

    def recurrent(xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            h = jnp.tanh(x + h @ w)
            return h, h

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    def decayed(xs: Any) -> Any:
        def step(s: Any, x: Any) -> tuple[Any, Any]:
            s = 0.9 * s + 0.1 * x
            return s, s

        return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    def shuffled(x: Any) -> Any:
        b, h, w, c = x.shape
        return jnp.tanh(x).reshape(b, h, w, 4, c // 4).swapaxes(3, 4).reshape(b, h, w, c)

    def newton(x: Any) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, y: 0.5 * (y + x / y), x)

    yield traced("shuffle", shuffled, (1, 28, 28, 64))
    yield traced("cumulative sum", lambda x: jnp.cumsum(x, 1), (64, 512))
    for steps, batch, width in ((32, 8, 128), (16, 1, 256)):
        yield traced("recurrent", recurrent, (steps, batch, width), (width, width))
    yield traced("decayed", decayed, (64, 256))
    yield traced("newton", newton, (64, 256))


# ---- sources ---------------------------------------------------------------------------------
def _text(name: str, group: str, *lines: str) -> ProbedProgram:
    from eqsat.lang.programs import parse_program

    text = "\n".join(("program probe", *lines)) + "\n"
    return ProbedProgram(name, group, partial(parse_program, text))


def traced(name: str, function: Callable[..., Any], *args: Any) -> ProbedProgram:
    """A JAX function of f32 arrays of these shapes, or of what is given in place of a shape."""
    import jax

    given: Sequence[Any] = [
        jax.ShapeDtypeStruct(a, "float32") if isinstance(a, tuple) else a for a in args
    ]
    shape = "x".join(map(str, given[0].shape))

    def make() -> Program:
        from eqsat.api import optimize

        return optimize(function, *given, target="reference", stop_after="program").program

    return ProbedProgram(f"{name} {shape}", f"{name} {shape}", make)
