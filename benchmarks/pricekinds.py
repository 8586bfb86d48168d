"""Small programs of every kind of dispatch, in shapes and forms that `eqsat calibrate` has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from eqsat.lab.calibrate import kernelprograms as k
from eqsat.lab.calibrate.kernels import NO_RULES
from eqsat.model.program import Program

Function = Callable[..., Any]
# rows, reduction, columns
PRODUCTS = (
    (192, 192, 192), (320, 320, 320), (96, 640, 640), (160, 256, 1024), (64, 1024, 256),
    (200, 500, 120), (48, 768, 768), (128, 512, 2048), (16, 1024, 1024), (6, 640, 2560),
    (2, 1024, 3072), (1, 1536, 1536),
)  # fmt: skip
BYTES = ((64, 256, 256), (128, 384, 512), (17, 130, 200), (1, 768, 1024))
ROWS = ((96, 640), (300, 256), (40, 2000))
# channels, filters, rows and columns of an image, window, stride
CONVOLVED = ((48, 96, 20, 3, 1), (256, 64, 12, 3, 1), (16, 24, 40, 5, 2), (64, 256, 20, 1, 1))
BY_CHANNEL = ((64, 20, 3, 1), (128, 16, 5, 1), (48, 33, 3, 2))
POOLED = ((96, 30, 3, 2), (32, 64, 2, 2), (20, 45, 3, 1))


@dataclass(frozen=True)
class Listed:
    """A program to be priced; its dispatches are those that `optimize` gives with these options."""

    name: str
    source: Program | Function
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=lambda: dict(PLAIN))


PLAIN: dict[str, Any] = {"rules": NO_RULES, "goals": ("dispatches", "time")}  # as it stands
SEARCHED: dict[str, Any] = {"time_limit": 10.0}


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, "float32")


def _of(name: str, function: Function, *args: Any, **options: Any) -> Listed:
    """A function of f32 arrays of these shapes, or of what is given in place of a shape."""
    given = tuple(f32(*a) if isinstance(a, tuple) else a for a in args)
    shape = "x".join(map(str, given[0].shape))
    return Listed(f"{name} {shape}", function, given, PLAIN | options)


def products() -> Iterator[Listed]:
    for sizes in PRODUCTS:
        for form, epilogue in (("kn", ""), ("nk", ""), ("panels", ""), ("panels", "bias")):
            p = k.product_program(sizes, form, epilogue)
            yield Listed(p.name, p.make())
    for b, m, d, n in ((8, 96, 64, 96), (20, 50, 30, 70)):
        yield _of("batch", jnp.matmul, (b, m, d), (b, d, n))
        yield _of("batch, turned", lambda x, y: x @ y.swapaxes(1, 2), (b, m, d), (b, n, d))


def byte_products() -> Iterator[Listed]:
    """As tools write them: u8 or i8 activations, i8 weights, a scale per column."""
    rng = np.random.default_rng(0)
    for m, depth, n in BYTES:
        w = rng.integers(-127, 128, (depth, n)).astype("i1")
        scale = np.full(n, 0.02, "f4")

        def whole(x: Any, w: Any = w) -> Any:
            return jnp.matmul(x, w, preferred_element_type=jnp.int32)

        def scaled(x: Any, w: Any = w, scale: Any = scale) -> Any:
            return jnp.maximum(whole(x, w).astype("float32") * scale, 0)

        def again(x: Any, w: Any = w, scale: Any = scale) -> Any:
            return jnp.clip(jnp.round(scaled(x, w, scale)), 0, 127).astype("int8")

        for dtype, function in (("int8", whole), ("uint8", scaled), ("int8", again)):
            x = jax.ShapeDtypeStruct((m, depth), dtype)
            name = f"{dtype} {function.__name__} {m}x{depth}x{n}"
            yield Listed(name, function, (x,), SEARCHED)


def elementwise() -> Iterator[Listed]:
    for shape in ROWS:
        yield _of("gelu", jax.nn.gelu, shape)
        yield _of("relu of a sum", lambda x, b: jax.nn.relu(x + b), shape, shape[1:])
        yield _of("swish of a product", lambda x, y: jax.nn.silu(x) * y, shape, shape)
        yield _of("distance", lambda x, y: jnp.sqrt((x - y) ** 2 + 1e-3), shape, shape)
        yield _of("as integers", lambda x: x.astype("int8"), shape)
        yield _of("clipped", lambda x, y: jnp.where(x > y, jnp.log1p(y * y), x), shape, shape)
        yield _of("larger", jnp.maximum, shape, shape)


def reductions() -> Iterator[Listed]:
    for shape in ROWS:
        yield _of("sum of rows", lambda x: x.sum(1), shape)
        yield _of("sum of columns", lambda x: x.sum(0), shape)
        yield _of("largest of columns", lambda x: x.max(0), shape)
        yield _of("places of the largest", lambda x: jnp.argmax(x, 1), shape)
        yield _of("variance", lambda x: x.var(-1), shape)
        yield _of("variance of columns", lambda x: x.var(0), shape)
    yield _of("sum of a middle axis", lambda x: x.sum(1), (12, 60, 200))
    yield _of("running sum", lambda x: jnp.cumsum(x, 1), (60, 300))


def softmax_and_norms() -> Iterator[Listed]:
    for shape in ROWS:
        yield _of("softmax", lambda x: jax.nn.softmax(x, axis=-1), shape)
        yield _of("softmax of columns", lambda x: jax.nn.softmax(x, axis=0), shape)
        yield _of("logsumexp", lambda x: jax.nn.logsumexp(x, -1), shape)
        yield _of("layer norm", _normal, shape)
        yield _of("rms norm", lambda x, g: x * lax.rsqrt((x * x).mean(-1, keepdims=True)) * g,
                  shape, shape[1:])  # fmt: skip
        yield _of("norm of columns", lambda x: _normal(x.T).T, shape)
    yield _of("group norm", _group_norm, (1, 32, 24, 24))


def _normal(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1e-5) ** 0.5


def _group_norm(x: Any) -> Any:
    return _normal(x.reshape(1, 8, -1)).reshape(x.shape)


def row_blocks() -> Iterator[Listed]:
    def attention(q: Any, key: Any, v: Any) -> Any:
        return jax.nn.softmax(jnp.einsum("hid,hjd->hij", q, key) / 8) @ v

    for heads, queries, keys, depth in (
        (8, 96, 96, 64), (4, 200, 150, 32), (12, 1, 256, 64), (6, 40, 300, 48),
    ):  # fmt: skip
        shapes = (heads, queries, depth), (heads, keys, depth), (heads, keys, depth)
        yield _of("attention", attention, *shapes)
    for m, depth, n in ((96, 200, 320), (40, 512, 256), (13, 384, 130)):
        yield _of("norm and product", lambda x, w: _normal(x) @ w, (m, depth), (depth, n))
        yield _of("product and softmax", lambda x, w: jax.nn.softmax(x @ w), (m, depth), (depth, n))


def copies() -> Iterator[Listed]:
    for shape in ROWS:
        yield _of("transpose", jnp.transpose, shape)
        yield _of("both beside", lambda x, y: jnp.concatenate([x, y], 1), shape, shape)
        yield _of("every other", lambda x: x[::2], shape)
        yield _of("every other column", lambda x: x[:, ::2], shape)
        yield _of("backwards", lambda x: x[:, ::-1], shape)
        yield _of("middle", lambda x: x[5:-5, 7:-7], shape)
    for shape in ((1, 64, 40, 40), (1, 256, 14, 14), (2, 3, 50, 50)):
        yield _of("channels last", lambda x: x.transpose(0, 2, 3, 1), shape)
        yield _of("channels first", lambda x: x.transpose(0, 3, 1, 2), shape)
    yield _of("heads apart", lambda x: x.reshape(96, 6, 40).transpose(1, 0, 2), (96, 240))
    yield _of("heads together", lambda x: x.transpose(1, 0, 2).reshape(96, 240), (6, 96, 40))


def packs() -> Iterator[Listed]:
    from eqsat.lang.programs import parse_program

    for rows, columns, tile in ((256, 320, 32), (90, 1000, 32), (300, 128, 16)):
        panels = -(-columns // tile)
        pad = ", pad=0.0" if columns % tile else ""
        how = f"pos=[1], tiles=[{tile}], outer=[1, 0]"
        packed, plain = f"f32[{panels}, {rows}, {tile}]", f"f32[{rows}, {columns}]"
        yield Listed(f"pack {rows}x{columns} by {tile}", parse_program(
            f"program p\ninput x: {plain}\ny = pack(x, {how}{pad}) : {packed}\nreturn y\n"
        ))  # fmt: skip
        unpack = f"unpack(x, {how}, shape=[{rows}, {columns}]{pad and ', pad=any'})"
        yield Listed(f"unpack {rows}x{columns} by {tile}", parse_program(
            f"program p\ninput x: {packed}\ny = {unpack} : {plain}\nreturn y\n"
        ))  # fmt: skip


def convolutions() -> Iterator[Listed]:
    for n in (k.NHWC, k.NCHW):
        for c, f, size, window, stride in CONVOLVED:
            shapes = k.image(n, c, size), k.filters(n, f, c, window)
            yield _of(f"{n[0]} {f} x {window}x{window}", k.convolved(n, stride), *shapes)


def by_channel() -> Iterator[Listed]:
    for n in (k.NHWC, k.NCHW):
        for c, size, window, stride in BY_CHANNEL:
            shapes = k.image(n, c, size), k.filters(n, c, 1, window)
            yield _of(f"{n[0]} by channel {window}", k.convolved(n, stride, c), *shapes)
    for steps, c, taps in ((300, 96, 15), (128, 40, 4)):
        over_time = k.convolved(("NWC", "WIO", "NWC"), 1, c)
        yield _of(f"NWC by channel {taps}", over_time, (1, steps, c), (taps, 1, c))


def pools() -> Iterator[Listed]:
    for n in (k.NHWC, k.NCHW):
        for c, size, window, stride in POOLED:
            for mean in (False, True):
                name = f"{n[0]} {'mean' if mean else 'largest'} of {window}x{window}"
                yield _of(name, k.pooled(n, window, stride, mean), k.image(n, c, size))


def stencils() -> Iterator[Listed]:
    def five(x: Any) -> Any:
        p = jnp.pad(x, 1)
        return 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])

    def blurred(x: Any) -> Any:
        p = jnp.pad(x, 1, mode="edge")
        rows = p[:-2] + 2 * p[1:-1] + p[2:]
        return (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16

    for shape in ((200, 200), (90, 517)):
        yield _of("five points", five, shape)
        yield _of("inner five points", lambda x: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2], shape)
        yield _of("blurred", blurred, shape)
        yield _of("slopes", lambda x: x[1:] - x[:-1], shape)
    for n in (k.NHWC, k.NCHW):
        around = [(0, 0) if letter in "NC" else (2, 2) for letter in n[0]]
        for mode in ("constant", "reflect", "edge"):
            pad = partial(jnp.pad, pad_width=around, mode=mode)
            yield _of(f"{n[0]} pad {mode}", pad, k.image(n, 48, 40))


def gathers() -> Iterator[Listed]:
    def picked(table: Any, at: Any) -> Any:
        return table.at[at].get(mode="promise_in_bounds")

    def along(x: Any, at: Any) -> Any:
        return jnp.take_along_axis(x, at, 1, mode="promise_in_bounds")

    for rows, width, count in ((5000, 256, 200), (300, 48, 1000), (20000, 64, 500)):
        ids = jax.ShapeDtypeStruct((count,), "int32")
        yield _of("rows of a table", picked, (rows, width), ids)
        yield _of("sum of rows", lambda t, i: picked(t, i).sum(0), (rows, width), ids)
    ids = jax.ShapeDtypeStruct((60, 12), "int32")
    yield _of("bags", lambda t, i: picked(t, i).sum(1), (1000, 64), ids)
    for rows, count in ((200, 64), (77, 300)):
        yield _of("along rows", along, (rows, 500), jax.ShapeDtypeStruct((rows, count), "int32"))


def in_place() -> Iterator[Listed]:
    """States that a call uses up, of which a few rows are new."""
    at = jax.ShapeDtypeStruct((), "int32")

    def row(cache: Any, new: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, new, (at, 0))

    def token(cache: Any, new: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, new, (0, 0, at, 0))

    def added(x: Any, new: Any, at: Any) -> Any:
        return x.at[at].add(new)

    used = {"donate": ("cache",)} | SEARCHED
    for rows, width in ((512, 256), (2000, 1000)):
        yield Listed(f"row of {rows}x{width}", row, (f32(rows, width), f32(1, width), at), used)
        yield Listed(f"rows of {rows}x{width}", row, (f32(rows, width), f32(8, width), at), used)
        own = {"donate": ("x",)} | SEARCHED
        yield Listed(f"added to {rows}x{width}", added, (f32(rows, width), f32(width), at), own)
    for heads, size in ((8, 64), (12, 40)):
        args = (f32(2, heads, 256, size), f32(2, heads, 1, size), at)
        yield Listed(f"token of {heads}x{size}", token, args, used)


def loops() -> Iterator[Listed]:
    def gated(xs: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> tuple[Any, Any]:
            z = jax.nn.sigmoid(x + h @ w)
            h = z * h + (1 - z) * jnp.tanh(x)
            return h, h

        return lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    def decayed(xs: Any) -> Any:
        def step(s: Any, x: Any) -> tuple[Any, Any]:
            s = 0.8 * s + jnp.sin(x)
            return s, s.sum(-1)

        return lax.scan(step, jnp.zeros_like(xs[0]), xs)[1]

    for steps, batch, width in ((48, 4, 192), (24, 16, 96)):
        yield _of("gated", gated, (steps, batch, width), (width, width))
    halved = partial(lax.fori_loop, 0, 30)
    yield _of("halved", lambda x: halved(lambda _, y: y * 0.5 + x, x), (50, 300))
    yield _of("decayed", decayed, (40, 20, 100))


def by_xla() -> Iterator[Listed]:
    """What has no plan but a meaning; opaque ops have no price at all."""

    def shuffled(x: Any) -> Any:
        b, h, w, c = x.shape
        return jnp.tanh(x).reshape(b, h, w, 4, c // 4).swapaxes(3, 4).reshape(b, h, w, c)

    yield _of("shuffle", shuffled, (1, 20, 20, 64))
    yield _of("larger pixels", lambda x: x.repeat(2, 1).repeat(2, 2), (1, 20, 20, 32))


def programs() -> Iterator[Listed]:
    """Whole programs, searched by the default rules."""
    from clockprograms import programs as clocked
    from clockprograms import unseen

    for name, timed in (clocked() | unseen()).items():
        weights = {"weights": timed.options["weights"]} if "weights" in timed.options else {}
        keywords = {"keywords": timed.keywords} if timed.keywords else {}
        yield Listed(name, timed.function, timed.args, SEARCHED | weights | keywords)


KINDS: dict[str, Callable[[], Iterator[Listed]]] = {
    "products": products,
    "byte products": byte_products,
    "elementwise": elementwise,
    "reductions": reductions,
    "softmax and norms": softmax_and_norms,
    "row blocks": row_blocks,
    "copies": copies,
    "packs": packs,
    "convolutions": convolutions,
    "by channel": by_channel,
    "pools": pools,
    "stencils": stencils,
    "gathers": gathers,
    "in place": in_place,
    "loops": loops,
    "by XLA": by_xla,
    "programs": programs,
}
