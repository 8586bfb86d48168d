"""Steps of written functions in ONNX: single operators and the layers that exporters write."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.writer import Unfit, Writer

UNARY = (
    "Tanh", "Sin", "Cos", "Relu", "Sigmoid", "Erf", "Neg", "Abs", "Softplus", "HardSwish", "Elu",
    "LeakyRelu <alpha = 0.2>", "Gelu", 'Gelu <approximate = "tanh">', "HardSigmoid", "Softsign",
    "Floor", "Round", "Sign", "Mish", "Selu", "Ceil", "Atan",
)  # fmt: skip
BINARY = ("Add", "Add", "Sub", "Mul", "Mul", "Max", "Min")
REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp",
    "ReduceSumSquare",
)  # fmt: skip


def ints(w: Writer, values: Sequence[int]) -> str:
    """A constant list of whole numbers."""
    listed = ", ".join(map(str, values))
    return w.write(f"Constant <value = int64[{len(values)}] {{{listed}}}> ()")


def number(w: Writer, value: float, dtype: str = "float") -> str:
    return w.write(f"Constant <value = {dtype} {{{value}}}> ()")


# ---- moves ---------------------------------------------------------------------------------------
def unary(w: Writer) -> str:
    return w.write(f"{w.rng.choice(UNARY)}({w.pick()})")


def binary(w: Writer) -> str:
    """With another value of its shape, a row, or what broadcasts over some dims."""
    x = w.pick()
    shape = list(w.shape(x))
    form = w.rng.randrange(3)
    if form == 1:
        shape = shape[w.rng.randrange(len(shape)) :]
    elif form == 2:
        shape = [d if w.rng.random() < 0.5 else 1 for d in shape]
    y = w.like(shape)
    if w.rng.random() < 0.2:
        return w.write(f"Div({x}, {w.write(f'Softplus({y})')})")
    return w.write(f"{w.rng.choice(BINARY)}({x}, {y})")


def clip(w: Writer) -> str:
    x, low, high = w.pick(), number(w, -0.5), number(w, 1.0)
    return w.write(f"Clip({x}, {low}, {high})")


def select(w: Writer) -> str:
    x = w.pick()
    y = w.like(w.shape(x))
    return w.write(f"Where({w.write(f'Greater({x}, {y})')}, {x}, {y})")


def cast(w: Writer) -> str:
    """To a narrow type and back."""
    x, to = w.pick(), w.rng.choice((10, 10, 6))  # FLOAT16, INT32; onnxruntime gives no bf16
    return w.write(f"Cast <to = 1> ({w.write(f'Cast <to = {to}> ({x})')})")


def quantised(w: Writer) -> str:
    """Rounded to bytes and back."""
    x, scale, zero = w.pick(), number(w, 0.05), number(w, 3, "int8")
    q = w.write(f"QuantizeLinear({x}, {scale}, {zero})")
    return w.write(f"DequantizeLinear({q}, {scale}, {zero})")


def transpose(w: Writer) -> str:
    x = w.pick(2, 5)
    perm = w.rng.sample(range(w.rank(x)), w.rank(x))
    return w.write(f"Transpose <perm = [{', '.join(map(str, perm))}]> ({x})")


def reshape(w: Writer) -> str:
    x = w.pick()
    s = list(w.shape(x))
    at = w.axis(x)
    parts = [d for d in range(2, s[at]) if s[at] % d == 0]
    form = w.rng.randrange(4)
    if form == 0 and parts:
        d = w.rng.choice(parts)
        s[at : at + 1] = [d, s[at] // d]
    elif form == 1 and at + 1 < len(s):
        s[at : at + 2] = [s[at] * s[at + 1]]
    elif form == 2:
        return w.write(f"Flatten <axis = {at}> ({x})")
    else:
        s = [s[0], -1]
    return w.write(f"Reshape({x}, {ints(w, s)})")


def cut(w: Writer) -> str:
    x = w.pick()
    at, step = w.axis(x), w.rng.choice((1, 1, 1, 2, -1))
    n = w.shape(x)[at]
    low, high = sorted(w.rng.sample(range(n + 1), 2))
    first, last = (high - 1, low - 1 - n) if step < 0 else (low, high)
    last = -n - 1 if step < 0 and low == 0 else last
    parts = [ints(w, [v]) for v in (first, last, at, step)]
    return w.write(f"Slice({x}, {', '.join(parts)})")


def pad(w: Writer) -> str:
    x = w.pick()
    mode = w.rng.choice(("constant", "edge", "reflect", "wrap"))
    most = [min(3, n - (mode == "reflect")) if w.rng.random() < 0.5 else 0 for n in w.shape(x)]
    widths = [w.rng.randint(0, m) for m in [*most, *most]]
    return w.write(f'Pad <mode = "{mode}"> ({x}, {ints(w, widths)})')


def join(w: Writer) -> str:
    x = w.pick()
    at, shape = w.axis(x), list(w.shape(x))
    parts = [x]
    for _ in range(w.rng.randint(1, 2)):
        if w.rng.random() < 0.5:
            shape[at] = w.size(40)
        parts.append(w.like(shape))
    w.rng.shuffle(parts)
    return w.write(f"Concat <axis = {at}> ({', '.join(parts)})")


def stack(w: Writer) -> str:
    """Values with a new dim each, joined along it."""
    x = w.pick(1, 3)
    at = w.rng.randint(0, w.rank(x))
    where = ints(w, [at])
    parts = [w.write(f"Unsqueeze({p}, {where})") for p in (x, w.like(w.shape(x)))]
    return w.write(f"Concat <axis = {at}> ({', '.join(parts)})")


def split(w: Writer) -> str:
    x = w.pick()
    at = w.axis(x)
    n = w.shape(x)[at]
    if n < 2:
        raise Unfit
    if w.rng.random() < 0.3:
        return w.write(f"Split <axis = {at}, num_outputs = 2> ({x})", 2)
    c = w.rng.randint(1, n - 1)
    return w.write(f"Split <axis = {at}> ({x}, {ints(w, [c, n - c])})", 2)


def spread(w: Writer) -> str:
    """Repeated as a whole, or along a new dim."""
    x, n = w.pick(1, 3), w.rng.choice((2, 3))
    if w.rng.random() < 0.5:
        times = [n if d == 0 else 1 for d in range(w.rank(x))]
        return w.write(f"Tile({x}, {ints(w, times)})")
    return w.write(f"Expand({x}, {ints(w, [n, *w.shape(x)])})")


def gather(w: Writer) -> str:
    x = w.pick(1, 3)
    at = w.axis(x)
    index = w.argument(w.size(33), dtype="int32", below=w.shape(x)[at])
    return w.write(f"Gather <axis = {at}> ({x}, {index})")


def triangle(w: Writer) -> str:
    x, k = w.pick(2, 4), number(w, w.rng.randint(-2, 2), "int64")
    return w.write(f"Trilu <upper = {w.rng.randint(0, 1)}> ({x}, {k})")


def cumulative(w: Writer) -> str:
    x = w.pick()
    how = f"exclusive = {w.rng.randint(0, 1)}, reverse = {w.rng.randint(0, 1)}"
    return w.write(f"CumSum <{how}> ({x}, {number(w, w.axis(x), 'int64')})")


def reduce(w: Writer) -> str:
    x = w.pick()
    axes = sorted(w.rng.sample(range(w.rank(x)), w.rng.randint(1, min(2, w.rank(x)))))
    keep = w.rng.randint(0, 1)
    return w.write(f"{w.rng.choice(REDUCTIONS)} <keepdims = {keep}> ({x}, {ints(w, axes)})")


# ---- layers --------------------------------------------------------------------------------------
def _product(w: Writer, x: str, n: int) -> str:
    w.within(*w.shape(x), n)
    return w.write(f"MatMul({x}, {w.like((w.shape(x)[-1], n))})")


def matmul(w: Writer) -> str:
    x = w.pick(2, 4)
    *batch, m, k = w.shape(x)
    n, form = w.size(), w.rng.randrange(3)
    w.within(*batch, m, n, k)
    if form == 0:
        return w.write(f"MatMul({w.like((n, m))}, {x})")
    if form == 1 and batch:
        return w.write(f"MatMul({x}, {w.like((*batch, k, n))})")
    return _product(w, x, n)


def gemm(w: Writer) -> str:
    x = w.pick(2, 2)
    m, k = w.shape(x)
    n, a, b = w.size(), w.rng.randint(0, 1), w.rng.randint(0, 1)
    m, k = (k, m) if a else (m, k)
    y = w.like((n, k) if b else (k, n))
    c = w.like(w.rng.choice(((n,), (1, n), (m, n), (m, 1))))
    how = f"transA = {a}, transB = {b}, alpha = {w.rng.choice((1.0, 0.5))}, beta = 2.0"
    return w.write(f"Gemm <{how}> ({x}, {y}, {c})")


def einsum(w: Writer) -> str:
    x = w.pick(2, 3)
    sizes: dict[str, int] = {**dict(zip("abc", w.shape(x), strict=False)), "e": w.size(40)}
    labels = list(sizes)[:-1]
    mine = [c for c in labels if w.rng.random() < 0.6] or labels[-1:]
    mine = w.rng.sample([*mine, "e"], len(mine) + 1)
    w.within(*sizes.values())
    kept = [c for c in sizes if w.rng.random() < 0.6] or ["e"]
    out = "".join(w.rng.sample(kept, len(kept)))
    y = w.like([sizes[c] for c in mine])
    equation = f"{''.join(labels)},{''.join(mine)}->{out}"
    return w.write(f'Einsum <equation = "{equation}"> ({x}, {y})')


def readers(w: Writer) -> str:
    """A product, and readers of parts of it."""
    h = _product(w, w.pick(2, 3), n := max(2, w.size()))
    at, c = w.rank(h) - 1, w.rng.randint(1, n - 1)
    a, b = w.write(f"Split <axis = {at}> ({h}, {ints(w, [c, n - c])})", 2).split()
    for part in (a, b)[: w.rng.randint(1, 2)]:
        w.write(f"{w.rng.choice(UNARY)}({part})")
    return h


def gated(w: Writer) -> str:
    x, d = w.pick(2, 3), w.size(50)
    h = _product(w, x, 2 * d)
    a, b = w.write(f"Split <axis = {w.rank(h) - 1}, num_outputs = 2> ({h})", 2).split()
    g = w.write(f"Mul({w.write(f'Sigmoid({a})')}, {b})")
    return _product(w, g, w.size(48)) if w.rng.random() < 0.6 else g


def attention(w: Writer) -> str:
    """One product for queries, keys and values, by heads."""
    x = w.pick(2, 2)
    t, heads, size = w.shape(x)[0], w.rng.choice((1, 2, 3)), w.rng.choice((1, 3, 5, 8, 16))
    w.within(heads, t, t, size)
    h = _product(w, x, 3 * heads * size)
    s = w.write(f"Reshape({h}, {ints(w, [t, 3, heads, size])})")
    s = w.write(f"Transpose <perm = [1, 2, 0, 3]> ({s})")
    q, k, v = (w.write(f"Gather <axis = 0> ({s}, {number(w, i, 'int64')})") for i in range(3))
    k = w.write(f"Transpose <perm = [0, 2, 1]> ({k})")
    a = w.write(f"Softmax <axis = -1> ({w.write(f'MatMul({q}, {k})')})")
    o = w.write(f"Transpose <perm = [1, 0, 2]> ({w.write(f'MatMul({a}, {v})')})")
    return w.write(f"Reshape({o}, {ints(w, [t, heads * size])})")


def softmax(w: Writer) -> str:
    x = w.pick()
    return w.write(f"{w.rng.choice(('Softmax', 'LogSoftmax'))} <axis = {w.axis(x)}> ({x})")


def norm(w: Writer) -> str:
    x = w.pick(2, 4)
    n = w.shape(x)[-1:]
    return w.write(f"LayerNormalization <axis = -1> ({x}, {w.like(n)}, {w.like(n)})")


# ---- windows -------------------------------------------------------------------------------------
def _image(w: Writer) -> str:
    """A batch, channels, height, width."""
    fits = [n for n, t in w.types.items() if len(t.shape) == 4 and w.is_float(n)]
    if fits and w.rng.random() < 0.7:
        return fits[-1]
    side = w.rng.choice((3, 5, 7, 8, 9))
    return w.argument(w.rng.choice((1, 2)), w.size(20), side, w.rng.choice((side, side + 1)))


def conv(w: Writer) -> str:
    x = _image(w)
    b, c, h, ww = w.shape(x)
    k, groups = w.rng.choice((1, 2, 3)), w.rng.choice((1, 1, c))
    n = groups * w.rng.choice((1, 2)) if groups > 1 else w.size(33)
    w.within(b, h, ww, k, k, c // groups, n)
    kernel, bias = w.like((n, c // groups, k, k)), w.like((n,))
    pads = [w.rng.randint(0, 1) for _ in range(4)]
    how = f"group = {groups}, pads = {pads}, strides = {[w.rng.choice((1, 1, 2))] * 2}"
    return w.write(f"Conv <{how}> ({x}, {kernel}, {bias})")


def pool(w: Writer) -> str:
    x, k, s = _image(w), w.rng.choice((2, 3)), w.rng.choice((1, 2))
    how = f"kernel_shape = {[k, k]}, strides = {[s, s]}, pads = {[w.rng.randint(0, 1)] * 4}"
    fn = w.rng.choice(("MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool"))
    return w.write(f"{fn}({x})" if fn.startswith("G") else f"{fn} <{how}> ({x})")


def batch_norm(w: Writer) -> str:
    x = _image(w)
    c = w.shape(x)[1:2]
    variance = w.write(f"Softplus({w.like(c)})")
    parts = ", ".join(w.like(c) for _ in range(3))
    return w.write(f"BatchNormalization({x}, {parts}, {variance})")


def instance_norm(w: Writer) -> str:
    x = _image(w)
    c = w.shape(x)[1:2]
    return w.write(f"InstanceNormalization({x}, {w.like(c)}, {w.like(c)})")


def pixels(w: Writer) -> str:
    x = _image(w)
    return w.write(f"{w.rng.choice(('DepthToSpace', 'SpaceToDepth'))} <blocksize = 2> ({x})")


ONNX_STEPS = (
    (unary, 7), (binary, 6), (clip, 1), (select, 2), (cast, 2), (quantised, 2), (transpose, 4),
    (reshape, 5), (cut, 5), (pad, 4), (join, 5), (stack, 3), (split, 4), (spread, 2), (gather, 3),
    (triangle, 1), (cumulative, 2), (reduce, 5), (matmul, 8), (gemm, 4), (einsum, 4), (readers, 5),
    (gated, 4), (attention, 3), (softmax, 3), (norm, 3), (conv, 5), (pool, 3), (batch_norm, 2),
    (instance_norm, 1), (pixels, 1),
)  # fmt: skip
