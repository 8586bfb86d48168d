"""Steps of written functions that are products, convolutions and the layers of models."""

from __future__ import annotations

from fuzz.writer import Unfit, Writer
from fuzz.writtenmoves import MOVES

ACTIVATIONS = ("jax.nn.relu({})", "jax.nn.silu({})", "jax.nn.gelu({})", "jnp.tanh({})", "{}")


def _product(w: Writer, x: str, n: int) -> str:
    """`x @ w` to n columns."""
    w.within(*w.shape(x), n)
    return w.write(f"{x} @ {w.like((w.shape(x)[-1], n))}")


def matmul(w: Writer) -> str:
    """From either side, either factor transposed, in batches."""
    x = w.pick(2, 4)
    *batch, m, k = w.shape(x)
    n = w.size()
    w.within(*batch, m, n, k)
    form = w.rng.randrange(6)
    if form == 0:
        return w.write(f"{x} @ {w.like((n, k))}.T")
    if form == 1:
        return w.write(f"{w.like((n, m))} @ {x}")
    if form == 2:
        return w.write(f"{w.like((m, n))}.T @ {x}")
    if form == 3 and batch:
        return w.write(f"{x} @ {w.like((*batch, k, n))}")
    if form == 4:
        return w.write(f"{x} @ jnp.swapaxes({x}, -1, -2)")
    return _product(w, x, n)


def dense(w: Writer) -> str:
    h = _product(w, w.pick(2, 3), n := w.size())
    act = w.rng.choice(ACTIVATIONS).format(f"{h} + {w.like((n,))}")
    return w.write(act)


def vector(w: Writer) -> str:
    x = w.pick(2, 3)
    forms = (
        lambda: f"{x} @ {w.like(w.shape(x)[-1:])}",
        lambda: f"{w.like((w.shape(x)[-2],))} @ {x}",
        lambda: f"jnp.outer({w.like((w.size(48),))}, {w.like((w.size(48),))})",
    )
    return w.write(w.rng.choice(forms)())


def einsum(w: Writer) -> str:
    """Two or three factors: dims that stay, are shared, are summed, in any order."""
    x = w.pick(2, 4)
    sizes = dict(zip("abcd", w.shape(x), strict=False))
    labels = list(sizes)
    texts, operands, used = ["".join(labels)], [x], list(labels)
    for letter in "ef" if w.rng.random() < 0.2 else "e":
        shared = [c for c in used if w.rng.random() < 0.6] or [used[-1]]
        new = [letter] if w.rng.random() < 0.7 else []
        sizes |= {c: w.size(40) for c in new}
        mine = w.rng.sample([*shared, *new], len(shared) + len(new))
        texts.append("".join(mine))
        operands.append(w.like([sizes[c] for c in mine]))
        used += new
    w.within(*sizes.values())
    kept = [c for c in used if w.rng.random() < 0.6] or used[:1]
    out = "".join(w.rng.sample(kept, len(kept)))
    return w.write(f'jnp.einsum("{",".join(texts)}->{out}", {", ".join(operands)})')


def bytes_product(w: Writer) -> str:
    m, k, n = w.size(33), w.size(65), w.size(65)
    x = w.argument(m, k, dtype=w.rng.choice(("int8", "uint8")))
    y = w.argument(k, n, dtype="int8")
    return w.write(f"jnp.matmul({x}, {y}, preferred_element_type=jnp.int32)")


def readers(w: Writer) -> str:
    """A product, and several readers of parts of it."""
    h = _product(w, w.pick(2, 3), n := w.size())
    rank = w.rank(h)
    for _ in range(w.rng.randint(1, 3)):
        c = w.rng.randint(1, n)
        part = f"{h}[..., {w.rng.choice((f':{c}', f'{n - c}:', '::2'))}]"
        forms = [f"{part} * 2", part, f"jnp.tanh({part})", f"{part}.sum({rank - 1})", f"{h}.max(0)"]
        w.write(w.rng.choice(forms))
    return h


# ---- layers --------------------------------------------------------------------------------------
def softmax(w: Writer) -> str:
    x = w.pick()
    fn = w.rng.choice(("jax.nn.softmax", "jax.nn.softmax", "jax.nn.log_softmax"))
    return w.write(f"{fn}({x}, {w.axis(x)})")


def norm(w: Writer) -> str:
    """Layer, root-mean-square and batch norm, scaled; along any axis."""
    x = w.pick(2, 4)
    at = w.rank(x) - 1 if w.rng.random() < 0.7 else w.axis(x)
    form = w.rng.randrange(3)
    if form == 0:
        mean = w.write(f"{x}.mean({at}, keepdims=True)")
        y = w.write(f"({x} - {mean}) * jax.lax.rsqrt({x}.var({at}, keepdims=True) + 1e-5)")
    elif form == 1:
        y = w.write(f"{x} * jax.lax.rsqrt(jnp.mean({x} * {x}, {at}, keepdims=True) + 1e-5)")
    else:
        n = w.shape(x)[-1]
        return w.write(f"({x} - {w.like((n,))}) * {w.like((n,))}")
    return w.write(f"{y} * {w.like(w.shape(x)[-1:])}")


def group_norm(w: Writer) -> str:
    x = w.pick(2, 3)
    n = w.shape(x)[-1]
    parts = [g for g in range(2, n + 1) if n % g == 0]
    if not parts:
        raise Unfit
    g = w.rng.choice(parts)
    head = ", ".join(map(str, w.shape(x)[:-1]))
    y = w.write(f"{x}.reshape({head}, {g}, {n // g})")
    z = w.write(
        f"({y} - {y}.mean(-1, keepdims=True)) / jnp.sqrt({y}.var(-1, keepdims=True) + 1e-3)"
    )
    return w.write(f"{z}.reshape({head}, {n})")


def gated(w: Writer) -> str:
    """One product, half of which gates the other half."""
    x, d = w.pick(2, 3), w.size(50)
    h = _product(w, x, 2 * d)
    act = w.rng.choice(ACTIVATIONS[:-1]).format(f"{h}[..., :{d}]")
    g = w.write(f"{act} * {h}[..., {d}:]")
    return _product(w, g, w.size(48)) if w.rng.random() < 0.6 else g


def qkv(w: Writer) -> str:
    """Queries, keys and values of one product, and the attention of one head over them."""
    x, d = w.pick(2, 2), w.size(40)
    h = _product(w, x, 3 * d)
    q, k, v = w.write(f"jnp.split({h}, 3, -1)", 3).split()
    a = w.write(f"jax.nn.softmax({q} @ {k}.T * {d**-0.5:.4f}, -1)")
    return w.write(f"{a} @ {v}")


def attention(w: Writer) -> str:
    """Several heads; now and then causal, or of fewer keys than queries."""
    x = w.pick(2, 2)
    t, d = w.shape(x)
    heads, size = w.rng.choice((1, 2, 3, 4)), w.rng.choice((1, 3, 5, 8, 16))
    w.within(heads, t, max(t, d), size)
    q, k, v = (
        w.write(f"({x} @ {w.like((d, heads * size))}).reshape({t}, {heads}, {size})")
        for _ in range(3)
    )
    s = w.write(f'jnp.einsum("qhd,khd->hqk", {q}, {k}) * {size**-0.5:.4f}')
    if w.rng.random() < 0.4:
        s = w.write(f"jnp.where(jnp.tril(jnp.ones(({t}, {t}), bool)), {s}, -1e9)")
    o = w.write(f'jnp.einsum("hqk,khd->qhd", jax.nn.softmax({s}, -1), {v})')
    return w.write(f"{o}.reshape({t}, {heads * size})")


def lstm(w: Writer) -> str:
    """One step of a cell: four gates of one product."""
    x, n = w.pick(2, 2), w.size(33)
    c = w.like((w.shape(x)[0], n))
    h = _product(w, x, 4 * n)
    i, f, g, o = w.write(f"jnp.split({h}, 4, -1)", 4).split()
    s = w.write(f"jax.nn.sigmoid({f}) * {c} + jax.nn.sigmoid({i}) * jnp.tanh({g})")
    return w.write(f"jax.nn.sigmoid({o}) * jnp.tanh({s})")


def recurrent(w: Writer) -> str:
    """A scan over the rows of a product."""
    x = w.pick(2, 2)
    n = w.size(17)
    h = _product(w, x, n)
    u, s = w.like((n, n)), w.like((n,))
    step = f"lambda s, r: (jnp.tanh(s @ {u} + r),) * 2"
    return w.write(f"lax.scan({step}, {s}, {h})[1]")


def heads(w: Writer) -> str:
    """Two or three results of one product, each with its own use."""
    x = w.pick(2, 3)
    cuts = [w.size(48) for _ in range(w.rng.randint(2, 3))]
    h = _product(w, x, sum(cuts))
    low, last = 0, h
    for c in cuts:
        part = f"{h}[..., {low}:{low + c}]"
        form = w.rng.choice(("{}", "jax.nn.softmax({}, -1)", "jnp.exp(0.1 * {})", "{} + 1"))
        last = w.write(form.format(part))
        low += c
    return last


def rotary(w: Writer) -> str:
    """Pairs turned by an angle of their position: halves, or even and odd."""
    x = w.pick(2, 3)
    d = w.shape(x)[-1]
    if d % 2:
        raise Unfit
    c, s = (w.like((w.shape(x)[-2], d // 2)) for _ in range(2))
    if w.rng.random() < 0.5:
        a, b = w.write(f"jnp.split({x}, 2, -1)", 2).split()
        return w.write(f"jnp.concatenate([{a} * {c} - {b} * {s}, {a} * {s} + {b} * {c}], -1)")
    a, b = w.write(f"{x}[..., ::2]"), w.write(f"{x}[..., 1::2]")
    y = w.write(f"jnp.stack([{a} * {c} - {b} * {s}, {a} * {s} + {b} * {c}], -1)")
    return w.write(f"{y}.reshape({w.shape(x)})")


def positional(w: Writer) -> str:
    """Sines of a few frequencies beside the value, and a product over all of it."""
    x, n = w.pick(2, 2), w.rng.randint(1, 4)
    rows = w.shape(x)[0]
    f = f"jnp.array({[2.0**i for i in range(n)]})"
    a = w.write(f"({x}[:, None, :] * {f}[:, None]).reshape({rows}, -1)")
    parts = [x, f"jnp.sin({a})", *([f"jnp.cos({a})"] if w.rng.random() < 0.5 else [])]
    return _product(w, w.write(f"jnp.concatenate([{', '.join(parts)}], -1)"), w.size(65))


def entropy(w: Writer) -> str:
    """A loss of logits and labels."""
    x = w.pick(2, 2)
    m, n = w.shape(x)
    labels = w.argument(m, dtype="int32", below=n)
    log = w.write(f"jax.nn.log_softmax({x}, -1)")
    return w.write(f"-({log} * jax.nn.one_hot({labels}, {n})).sum(-1).mean()")


def derivative(w: Writer) -> str:
    """The gradient of a small layer."""
    x = w.pick(2, 3)
    k = w.shape(x)[-1]
    n = w.size(40)
    w.within(*w.shape(x), n)
    y = w.like((k, n))
    forms = (
        f"(jnp.tanh(t @ {y}) ** 2).sum()",
        f"(jax.nn.softmax(t @ {y}, -1) * jnp.arange({n})).sum()",
        f"jax.nn.logsumexp(t @ {y}, -1).mean()",
        "(t * jax.lax.rsqrt((t * t).mean(-1, keepdims=True) + 1e-3)).max(0).sum()",
        f"jax.nn.gelu((t @ {y})[..., {n // 2}:]).sum()",
    )
    return w.write(f"jax.grad(lambda t: {w.rng.choice(forms)})({x})")


def mapped(w: Writer) -> str:
    """A function of one element of a batch, over all of them."""
    x = w.pick(2, 3)
    k, n = w.shape(x)[-1], w.size(40)
    w.within(*w.shape(x), n)
    forms = (
        lambda: f"t @ {w.like((k, n))}",
        lambda: f"jnp.outer(t.reshape(-1)[:{n}], {w.like((w.size(17),))})",
        lambda: "jax.nn.softmax(t, -1)",
        lambda: f"{w.like((n, k))} @ t.reshape(-1, {k}).T",
    )
    return w.write(f"jax.vmap(lambda t: {w.rng.choice(forms)()})({x})")


# ---- windows -------------------------------------------------------------------------------------
def _image(w: Writer) -> str:
    """A value of rank 4, or a new one: a batch, height, width, channels."""
    fits = [n for n, t in w.types.items() if len(t.shape) == 4 and w.is_float(n)]
    if fits and w.rng.random() < 0.7:
        return fits[-1]
    side = w.rng.choice((3, 5, 7, 8, 9))
    return w.argument(w.rng.choice((1, 1, 2)), side, w.rng.choice((side, side + 1)), w.size(20))


def conv(w: Writer) -> str:
    """Strides, dilation, groups, paddings, channels first or last."""
    x = _image(w)
    b, h, ww, c = w.shape(x)
    k, n = w.rng.choice((1, 2, 3)), w.size(33)
    groups = w.rng.choice((1, 1, 1, c)) if c > 1 else 1
    n = groups * w.rng.choice((1, 2)) if groups > 1 else n
    w.within(b, h, ww, k, k, c // groups, n)
    kernel = w.like((k, k, c // groups, n))
    pad = w.rng.choice(('"SAME"', '"VALID"', "((1, 0), (0, 1))"))
    more = w.rng.choice(("", "", ", rhs_dilation=(2, 2)"))
    more += f", feature_group_count={groups}" if groups > 1 else ""
    strides = w.rng.choice(((1, 1), (1, 1), (2, 2), (2, 1)))
    dims = '("NHWC", "HWIO", "NHWC")'
    return w.write(
        f"lax.conv_general_dilated({x}, {kernel}, {strides}, {pad}, dimension_numbers={dims}{more})"
    )


def conv1d(w: Writer) -> str:
    x, k, n = w.pick(3, 3), w.rng.choice((1, 3, 4)), w.size(33)
    b, t, c = w.shape(x)
    w.within(b, t, k, c, n)
    dims = '("NWC", "WIO", "NWC")'
    kernel = w.like((k, c, n))
    pad = w.rng.choice(('"SAME"', '"VALID"', f"(({k - 1}, 0),)"))
    return w.write(
        f"lax.conv_general_dilated({x}, {kernel}, (1,), {pad}, dimension_numbers={dims})"
    )


def pool(w: Writer) -> str:
    x, k, s = _image(w), w.rng.choice((2, 3)), w.rng.choice((1, 2))
    pad = w.rng.choice(('"SAME"', '"VALID"'))
    zero, fn = w.rng.choice((("-jnp.inf", "lax.max"), ("0.0", "lax.add")))
    return w.write(
        f"lax.reduce_window({x}, {zero}, {fn}, (1, {k}, {k}, 1), (1, {s}, {s}, 1), {pad})"
    )


def patches(w: Writer) -> str:
    """An image cut into patches, rows of a product; or channels spread over pixels."""
    x = _image(w)
    b, h, ww, c = w.shape(x)
    p = w.rng.choice((2, 3))
    if h % p or ww % p:
        raise Unfit
    y = w.write(f"{x}.reshape({b}, {h // p}, {p}, {ww // p}, {p}, {c}).transpose(0, 1, 3, 2, 4, 5)")
    z = w.write(f"{y}.reshape({b}, {h // p * (ww // p)}, {p * p * c})")
    return _product(w, z, w.size(40))


def squeeze(w: Writer) -> str:
    """Channels scaled by what a small product of their means says."""
    x = _image(w)
    c = w.shape(x)[-1]
    m = w.write(f"{x}.mean((1, 2))")
    g = w.write(f"jax.nn.sigmoid({m} @ {w.like((c, c))})")
    return w.write(f"{x} * {g}[:, None, None, :]")


def residual(w: Writer) -> str:
    x = w.pick(2, 3)
    n = w.shape(x)[-1]
    h = _product(w, x, w.size(65))
    y = _product(w, w.write(f"jax.nn.gelu({h})"), n)
    return w.write(f"{x} + {y}")


LAYERS = (
    (matmul, 9), (dense, 5), (vector, 2), (einsum, 6), (bytes_product, 2), (readers, 5),
    (softmax, 3), (norm, 4), (group_norm, 1), (gated, 4), (qkv, 3), (attention, 2), (lstm, 3),
    (recurrent, 1), (heads, 4), (rotary, 2), (positional, 2), (entropy, 1), (conv, 4), (conv1d, 2),
    (pool, 3), (patches, 1), (squeeze, 1), (residual, 2), (derivative, 3),
    (mapped, 2),
)  # fmt: skip
JAX_STEPS = (*MOVES, *LAYERS)
