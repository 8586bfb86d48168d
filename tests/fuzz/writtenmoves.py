"""Steps of written functions that move, pad, cut, join, compute and reduce values."""

from __future__ import annotations

from fuzz.writer import Unfit, Writer

UNARY = (
    "jnp.tanh({x})", "jnp.sin({x})", "jnp.cos({x})", "jax.nn.relu({x})", "jax.nn.silu({x})",
    "jax.nn.gelu({x})", "jax.nn.gelu({x}, approximate=False)", "jax.nn.sigmoid({x})",
    "jnp.exp(-jnp.abs({x}))", "{x} * {x} * 0.1", "{x} * 0.5 + 1", "-{x}", "jnp.abs({x})",
    "jnp.sqrt(jnp.abs({x}) + 0.1)", "jnp.log1p(jnp.abs({x}))", "jax.nn.leaky_relu({x})",
    "jnp.clip({x}, -1, 1)", "1 / (1 + {x} * {x})", "jax.lax.rsqrt({x} * {x} + 1)",
    "jnp.where({x} > 0, {x}, 0.1)", "jax.nn.softplus({x})", "jnp.floor({x} * 4)",
    "jnp.round({x} * 4) / 4", "jnp.sign({x})", "jax.nn.elu({x})", "jax.nn.hard_swish({x})",
    "jax.scipy.special.erf({x})", "jnp.arctan({x})", "jnp.expm1(jnp.minimum({x}, 1))",
)  # fmt: skip
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} / (1 + jnp.abs({y}))", "jnp.maximum({x}, {y})",
    "jnp.where({x} > {y}, {x}, {y} * 0.5)", "jnp.minimum({x}, {y})", "{x} * jax.nn.sigmoid({y})",
    "jnp.arctan2({x}, 1 + jnp.abs({y}))",
)  # fmt: skip
CASTS = (
    "{x}.astype(jnp.bfloat16)", "{x}.astype(jnp.float16)", "{x}.astype(jnp.float32)",
    "{x}.astype(jnp.bfloat16).astype(jnp.float32)", "({x} > 0).astype(jnp.float32)", "{x} > 0",
    "jnp.clip(jnp.round({x} * 16), -128, 127).astype(jnp.int8)",
    "jnp.clip(jnp.round({x} * 16), -128, 127).astype(jnp.int8).astype(jnp.float32) / 16",
    "jnp.round(jnp.clip({x}, -9, 9)).astype(jnp.int32)",
)  # fmt: skip
PADS = ("constant", "constant", "edge", "reflect", "symmetric", "wrap")


def unary(w: Writer) -> str:
    return w.write(w.rng.choice(UNARY).format(x=w.pick()))


def binary(w: Writer) -> str:
    """With another value of its shape, a row, a column, or what broadcasts over some dims."""
    x = w.pick()
    shape = list(w.shape(x))
    form = w.rng.randrange(4)
    if form == 1:
        shape = shape[w.rng.randrange(len(shape)) :]
    elif form == 2:
        shape = [d if w.rng.random() < 0.5 else 1 for d in shape]
    return w.write(w.rng.choice(BINARY).format(x=x, y=w.like(shape)))


def cast(w: Writer) -> str:
    return w.write(w.rng.choice(CASTS).format(x=w.pick()))


def back(w: Writer) -> str:
    """Integers, bools and narrow floats, computed with as f32."""
    other = [n for n, t in w.types.items() if t.dtype != "float32" and t.shape]
    if not other:
        raise Unfit
    x = w.rng.choice(other)
    text = ("{x}.astype(jnp.float32) * 0.1", "{x} * 2", "{x} + {x}", "jnp.where({x} > 0, {x}, 0)")
    return w.write(w.rng.choice(text).format(x=x))


def select(w: Writer) -> str:
    x = w.pick()
    y = w.like(w.shape(x))
    forms = (f"jnp.where({y} > 0, {x}, 0.0)", f"jnp.where({x} >= {y}, {x} * 2, {y})")
    return w.write(w.rng.choice(forms))


def causal(w: Writer) -> str:
    """What lies above or below a diagonal."""
    x, k = w.pick(2, 4), w.rng.randint(-2, 2)
    n, m = w.shape(x)[-2:]
    forms = (
        f"jnp.tril({x}, {k})",
        f"jnp.triu({x}, {k})",
        f"jnp.where(jnp.tril(jnp.ones(({n}, {m}), bool)), {x}, -1e9)",
        f"jnp.where(jnp.arange({m}) < {w.rng.randint(1, m)}, {x}, 0.0)",
    )
    return w.write(w.rng.choice(forms))


# ---- moves ---------------------------------------------------------------------------------------
def transpose(w: Writer) -> str:
    x = w.pick(2, 5, floats=False)
    perm = w.rng.sample(range(w.rank(x)), w.rank(x))
    return w.write(f"jnp.transpose({x}, {tuple(perm)})")


def reshape(w: Writer) -> str:
    """Two dims in one, one in two, or all in one."""
    x = w.pick(floats=False)
    s = list(w.shape(x))
    at = w.axis(x)
    parts = [d for d in range(2, s[at]) if s[at] % d == 0]
    form = w.rng.randrange(3)
    if form == 0 and parts:
        d = w.rng.choice(parts)
        s[at : at + 1] = [d, s[at] // d]
    elif form == 1 and at + 1 < len(s):
        s[at : at + 2] = [s[at] * s[at + 1]]
    else:
        s = [s[0], -1] if len(s) > 2 else [-1]
    return w.write(f"{x}.reshape({', '.join(map(str, s))})")


def _cut(w: Writer, n: int) -> str:
    low, high = sorted((w.rng.randint(0, n - 1), w.rng.randint(1, n)))
    form = w.rng.randrange(6)
    if form == 0:
        return f"{low}:"
    if form == 1:
        return f":{high}"
    if form == 2:
        return f"{low}:{max(high, low + 1)}"
    if form == 3:
        return f"{w.rng.randint(0, min(1, n - 1))}::2"
    return "::-1" if form == 4 and n > 1 else ":"


def cut(w: Writer) -> str:
    x = w.pick(floats=False)
    at = w.axis(x)
    parts = [
        _cut(w, n) if d == at or w.rng.random() < 0.2 else ":" for d, n in enumerate(w.shape(x))
    ]
    return w.write(f"{x}[{', '.join(parts)}]")


def one_of(w: Writer) -> str:
    """One index of a dim, which goes away."""
    x = w.pick(2)
    at = w.axis(x)
    parts = [str(w.rng.randrange(n)) if d == at else ":" for d, n in enumerate(w.shape(x))]
    return w.write(f"{x}[{', '.join(parts)}]")


def pad(w: Writer) -> str:
    x = w.pick()
    mode = w.rng.choice(PADS)
    at = w.axis(x)
    widths = []
    for d, n in enumerate(w.shape(x)):
        most = min(3, n - (mode == "reflect")) if d == at or w.rng.random() < 0.3 else 0
        widths.append((w.rng.randint(0, most), w.rng.randint(0, most)))
    value = f", constant_values={w.rng.choice((0.0, 1.5))}" if mode == "constant" else ""
    return w.write(f'jnp.pad({x}, {tuple(widths)}, mode="{mode}"{value})')


def join(w: Writer) -> str:
    """A concatenation of two or three, one of which may have another extent there."""
    x = w.pick()
    at, shape = w.axis(x), list(w.shape(x))
    parts = [x]
    for _ in range(w.rng.randint(1, 2)):
        if w.rng.random() < 0.5:
            shape[at] = w.size(40)
        parts.append(w.like(shape))
    w.rng.shuffle(parts)
    return w.write(f"jnp.concatenate([{', '.join(parts)}], {at})")


def stack(w: Writer) -> str:
    x = w.pick(1, 3)
    parts = [x, *(w.like(w.shape(x)) for _ in range(w.rng.randint(1, 2)))]
    form = w.rng.choice(("{}", "jnp.sin({})", "{} * 2"))
    parts = [form.format(p) for p in parts]
    return w.write(f"jnp.stack([{', '.join(parts)}], {w.rng.randint(0, w.rank(x))})")


def split(w: Writer) -> str:
    """A value in two or three, at equal or at any places."""
    x = w.pick()
    at = w.axis(x)
    n = w.shape(x)[at]
    equal = [d for d in (2, 3, 4) if n % d == 0]
    if equal and w.rng.random() < 0.5:
        count = w.rng.choice(equal)
        return w.write(f"jnp.split({x}, {count}, {at})", count)
    if n < 3:
        raise Unfit
    places = sorted(w.rng.sample(range(1, n), min(w.rng.randint(1, 2), n - 1)))
    return w.write(f"jnp.split({x}, {places}, {at})", len(places) + 1)


def roll(w: Writer) -> str:
    x = w.pick()
    return w.write(f"jnp.roll({x}, {w.rng.randint(-5, 5)}, {w.axis(x)})")


def flip(w: Writer) -> str:
    x = w.pick()
    return w.write(f"jnp.flip({x}, {w.axis(x)})")


def broadcast(w: Writer) -> str:
    x, n = w.pick(1, 3), w.rng.choice((2, 3, 5))
    at = w.rng.randint(0, w.rank(x))
    shape = [*w.shape(x)]
    shape.insert(at, n)
    forms = (
        f"jnp.broadcast_to(jnp.expand_dims({x}, {at}), {tuple(shape)})",
        f"jnp.repeat({x}, {n}, {w.axis(x)})",
        f"jnp.tile({x}, {(n, *(1 for _ in w.shape(x)[1:]))})",
        f"jnp.expand_dims({x}, {at})",
    )
    return w.write(w.rng.choice(forms))


def diagonal(w: Writer) -> str:
    return w.write(f"jnp.diagonal({w.pick(2, 3)}, offset={w.rng.randint(-1, 1)})")


def gather(w: Writer) -> str:
    """Rows of a table by an argument, by constants, or along an axis."""
    x = w.pick(1, 3)
    at = w.axis(x)
    n = w.shape(x)[at]
    index = w.argument(w.size(33), dtype="int32", below=n)
    places = [w.rng.randrange(n) for _ in range(w.rng.randint(1, 6))]
    forms = (
        f'jnp.take({x}, {index}, axis={at}, mode="clip")',
        f"jnp.take({x}, {index}, axis={at})",
        f"{x}[{', '.join([*[':'] * at, index])}]",
        f"jnp.take({x}, jnp.array({places}), axis={at})",
        f"jax.nn.one_hot({index}, {n}) @ jnp.moveaxis({x}, {at}, 0).reshape({n}, -1)",
    )
    return w.write(w.rng.choice(forms))


def one_hot(w: Writer) -> str:
    n = w.size(40)
    index = w.argument(w.size(33), dtype="int32", below=n)
    return w.write(f"jax.nn.one_hot({index}, {n})")


def update(w: Writer) -> str:
    """Some elements of a value replaced or added to."""
    x = w.pick(1, 3)
    at = w.axis(x)
    shape = list(w.shape(x))
    low = w.rng.randrange(shape[at])
    shape[at] = w.rng.randint(1, shape[at] - low)
    y = w.like(shape)
    place = ", ".join([*[":"] * at, f"{low}:{low + shape[at]}"])
    return w.write(f"{x}.at[{place}].{w.rng.choice(('set', 'add', 'multiply'))}({y})")


def scattered(w: Writer) -> str:
    """Rows of a value added to, or replaced, where an argument says."""
    x = w.pick(1, 2)
    rows, *rest = w.shape(x)
    count = w.size(17)
    index = w.argument(count, dtype="int32", below=rows)
    y = w.like((count, *rest))
    return w.write(f"{x}.at[{index}].add({y})")


def moving(w: Writer) -> str:
    """A part that begins where an argument says."""
    x = w.pick(1, 3)
    at = w.axis(x)
    n = w.shape(x)[at]
    take = w.rng.randint(1, n)
    start = w.argument(dtype="int32", below=n - take + 1)
    if w.rng.random() < 0.5:
        return w.write(f"lax.dynamic_slice_in_dim({x}, {start}, {take}, {at})")
    shape = list(w.shape(x))
    shape[at] = take
    return w.write(f"lax.dynamic_update_slice_in_dim({x}, {w.like(shape)}, {start}, {at})")


# ---- sums ----------------------------------------------------------------------------------------
def cumulative(w: Writer) -> str:
    x = w.pick()
    fn = w.rng.choice(("jnp.cumsum", "jnp.cumsum", "jax.lax.cummax", "jnp.cumprod"))
    shrunk = f"jnp.tanh({x})" if fn == "jnp.cumprod" else x
    return w.write(f"{fn}({shrunk}, axis={w.axis(x)})")


def reduce(w: Writer) -> str:
    x = w.pick()
    axes = sorted(w.rng.sample(range(w.rank(x)), w.rng.randint(1, min(2, w.rank(x)))))
    axis = axes[0] if len(axes) == 1 else tuple(axes)
    fn = w.rng.choice(("sum", "sum", "mean", "max", "min", "var", "std"))
    keep = w.rng.choice(("", ", keepdims=True"))
    if fn == "std":
        return w.write(f"jax.nn.logsumexp({x}, axis={axis}{keep})")
    return w.write(f"jnp.{fn}({x}, axis={axis}{keep})")


def choose(w: Writer) -> str:
    x = w.pick()
    at = w.axis(x)
    forms = (f"jnp.argmax({x}, axis={at})", f"jnp.sort({x}, axis={at})", f"({x} > 0).any({at})",
             f"({x} > 0).sum({at})")  # fmt: skip
    return w.write(w.rng.choice(forms))


def segments(w: Writer) -> str:
    x = w.pick(1, 2)
    count = w.rng.randint(1, 9)
    index = w.argument(w.shape(x)[0], dtype="int32", below=count)
    return w.write(f"jax.ops.segment_sum({x}, {index}, num_segments={count})")


MOVES = (
    (unary, 6), (binary, 6), (cast, 2), (back, 1), (select, 1), (causal, 1), (transpose, 4),
    (reshape, 5), (cut, 5), (one_of, 1), (pad, 4), (join, 5), (stack, 4), (split, 4), (roll, 2),
    (flip, 2), (broadcast, 2), (diagonal, 1), (gather, 3), (one_hot, 1), (update, 2),
    (scattered, 1), (moving, 2),
    (cumulative, 2), (reduce, 4), (choose, 1), (segments, 1),
)  # fmt: skip
