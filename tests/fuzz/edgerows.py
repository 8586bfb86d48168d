"""Elementwise ops and reductions along any loop, norms, and attention by row blocks."""

from __future__ import annotations

from fuzz.edgelines import (
    Sizes,
    cut,
    each,
    joined,
    leaf,
    lines,
    padded,
    part,
    product,
    total,
    turned,
    written,
)


def elementwise(s: Sizes) -> str:
    """Of one value for all, one for each row, one for each column, and a transpose."""
    m, n = s.rows(), s.wide()
    body = ("tanh(add(x0, mul(x1, x2)))", "select(lt(x0, x1), x2, x0)")[s.of(0, 1)]
    last = "xt:d1, d0" if s.coin() else "c:d0, d1"
    shape = (n, m) if last.startswith("xt") else (m, n)
    return lines(
        leaf("a", m, n), leaf("b", n), leaf(last.partition(":")[0], *shape),
        each("y", body, (m, n), "a", "b:d1", last), written(s, "y"),
    )  # fmt: skip


def compared(s: Sizes) -> str:
    """All six comparisons, whose operands are equal, infinite or no number now and then."""
    m, n = s.rows(), s.wide()
    test = ("eq", "ne", "lt", "le", "gt", "ge")[s.of(*range(6))]
    body = (f"select({test}(x0, x1), x2, 3.0)", f"{test}(mul(x0, x2), x1)")[s.of(0, 1)]
    return lines(
        leaf("odd_a", m, n), leaf("odd_b", n), leaf("c", m, n),
        each("y", body, (m, n), "odd_a", "odd_b:d1", "c"), "return y",
    )  # fmt: skip


def softmax(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    along = s.coin()
    loops = (m, n)
    read = [leaf("x", m, n)] if along else [leaf("xt", n, m), turned("x", "xt", 1, 0)]
    return lines(
        read, total("t", "x", loops, "max"), each("e", "exp(sub(x0, x1))", loops, "x", "t:d0"),
        total("z", "e", loops), each("y", "div(x0, x1)", loops, "e", "z:d0"), written(s, "y"),
    )  # fmt: skip


def norm(s: Sizes) -> str:
    m, n = s.rows(), s.wide() + 1
    return lines(
        leaf("x", m, n), leaf("g", n), total("a", "x", (m, n)),
        each("c", f"sub(x0, div(x1, {n}.0))", (m, n), "x", "a:d0"),
        total("v", "c", (m, n), body="mul(x0, x0)"),
        each("y", f"mul(mul(x0, rsqrt(add(div(x1, {n}.0), 0.001))), x2)", (m, n),
             "c", "v:d0", "g:d1"),
        "return y",
    )  # fmt: skip


def reduced(s: Sizes) -> str:
    """Any loop of three, of any element type."""
    loops = (s.few(), s.rows(), s.wide())
    over = s.of(0, 1, 2)
    dtype = ("f32", "f16", "bf16", "i32", "i8", "bool", "f64", "u8")[s.of(*range(8))]
    how = "or" if dtype == "bool" else ("add", "max", "min")[s.of(0, 1, 2)]
    order = [i for i in range(3) if i != over] + [over]
    sizes = tuple(loops[i] for i in order)
    maps = ", ".join(f"d{order.index(i)}" for i in range(3))
    shape = list(sizes[:2])
    return lines(
        leaf("x", *loops, dtype=dtype),
        f"y = generic(x, loops={list(sizes)}, maps=[[{maps}]], body=x0, combine={how}, rank=2)"
        f" : {dtype}{shape}",
        "return y",
    )  # fmt: skip


def two_results(s: Sizes) -> str:
    """A sum, and what is computed from it, and a slice of that."""
    m, n = s.rows(), s.wide() + 2
    at = cut(s, n)
    return lines(
        leaf("x", m, n), total("z", "x", (m, n)),
        each("y", "sub(x0, x1)", (m, n), "x", "z:d0"), part("p", "y", (0, m), (at, n)),
        each("q", "abs(x0)", (m, n - at), "p"), "return z, y, q",
    )  # fmt: skip


def of_parts(s: Sizes) -> str:
    """Elementwise of what lies in parts and between pads, written as a part."""
    m, n, k = s.rows(), s.wide(), s.narrow()
    axis = s.of(0, 1)
    shapes = ((m, n), (k, n)) if axis == 0 else ((m, n), (m, k))
    whole = (m + k, n) if axis == 0 else (m, n + k)
    low, high = (s.of(0, 1), s.of(0, 1, 3)), (s.of(0, 2), s.of(0, 1))
    out = tuple(a + b + c for a, b, c in zip(whole, low, high, strict=True))
    return lines(
        leaf("p", *shapes[0]), leaf("q", *shapes[1]), leaf("b", *out), joined("j", axis, "p", "q"),
        padded("a", "j", low, high, "0.5"), each("h", "mul(add(x0, x1), x0)", out, "a", "b"),
        joined("y", s.of(0, 1), "h", "b"), "return y",
    )  # fmt: skip


def reduced_parts(s: Sizes) -> str:
    """A reduction over a dim that is made of parts: stacked, joined or padded products."""
    m, n, k = s.rows(), s.wide(), s.narrow()
    how, axis, stacks = ("add", "add", "max")[s.of(0, 1, 2)], s.of(0, 1), s.coin()
    if stacks:
        shape, order = [m, 1, n], "d0, d2, d1"
        parts = [f"a = reshape(u, shape={shape})", f"b = reshape(v, shape={shape})"]
        sizes, rank, other = [m, n, 2], 2, (m, n)
        parts.append(joined("x", 1, "a", "b"))
    else:
        other = (k, n) if axis == 0 else (m, k)
        whole = (m + k, n) if axis == 0 else (m, n + k)
        sizes, order = (list(whole[::-1]), "d1, d0") if axis == 0 else (list(whole), "d0, d1")
        rank, parts = 1, [joined("x", axis, "u", "v")]
    return lines(
        leaf("p", m, n), leaf("q", *other),
        each("u", "mul(x0, 2.0)", (m, n), "p"), each("v", "mul(x0, x0)", other, "q"), parts,
        f"y = generic(x, loops={sizes}, maps=[[{order}]], body=x0, combine={how}, rank={rank})",
        "return y",
    )  # fmt: skip


def conversions(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    names = ("f32", "bf16", "f16", "i8", "u8", "i32", "bool", "i16")
    a, b = names[s.of(*range(8))], names[s.of(*range(8))]
    return lines(
        leaf("x", m, n, dtype=a), each("y", f"cast(x0, {b})", (m, n), "x") + f" : {b}[{m}, {n}]",
        "return y",
    )  # fmt: skip


def looked_up(s: Sizes) -> str:
    m, n, most = s.rows(), s.wide(), s.rows()
    axis = s.of(0, 1)
    table, count = ((most, n), m) if axis == 0 else ((m, most), n)
    return lines(
        leaf("t", *table), leaf("i", count, dtype="i32"), leaf("b", m, n),
        f"g = gather(t, i, axis={axis})", each("y", "add(x0, x1)", (m, n), "g", "b"), "return y",
    )  # fmt: skip


def attention(s: Sizes) -> str:
    """Heads of queries, several of which share keys and values."""
    return _attention(s, s.of(1, 1, 2, 3) * s.rows(), s.of(1, 8, 20, 33), s.coin())


def decoding(s: Sizes) -> str:
    """Of one token: keys stay where they are."""
    return _attention(s, s.of(1, 2, 3, 4, 8), s.of(16, 33, 64, 80), cached=True)


def joined_attention(s: Sizes) -> str:
    """Keys and values are a cache and what is new; queries and keys may be turned by angles."""
    return _attention(s, s.of(1, 2, 7, 13), s.of(2, 16, 20, 34), cached=True, new=s.of(1, 1, 3))


def _attention(s: Sizes, rows: int, depth: int, cached: bool, new: int = 0) -> str:
    """Scores are masked; keys lie by heads or by tokens, the last ones `new` beside the others."""
    h, old, width = s.of(1, 2, 3), s.wide() + s.of(1, 20), s.narrow()
    keys = old + new
    both = f"loops=[{h}, {rows}, {keys}], maps="
    at = "d0, d2" if cached else "d2, d0"

    def kept(name: str, count: int, size: int) -> str:
        return leaf(name, *([h, count, size] if cached else [count, h, size]))

    leaves = [leaf("q", h, rows, depth), kept("k", old, depth), kept("v", old, width)]
    q, k, v = "q", "k", "v"
    if new:
        leaves += [kept("k2", new, depth), kept("v2", new, width)]
        leaves += [joined("k3", 1, "k", "k2"), joined("v3", 1, "v", "v2")]
        k, v = "k3", "v3"
        if s.coin():
            leaves += _rotated("q", h, rows, depth)
            q = "qr"
    return lines(
        leaves, leaf("mask", rows, keys, dtype="bool"),
        f"s = generic({q}, {k}, loops=[{h}, {rows}, {keys}, {depth}], maps=[[d0, d1, d3],"
        f" [{at}, d3]], body=mul(x0, x1), combine=add, rank=3)",
        f"t = generic(mask, s, {both}[[d1, d2], [d0, d1, d2]], body=select(x0, div(x1, 3.0),"
        " -30.0), rank=3)",
        f"m = generic(t, {both}[[d0, d1, d2]], body=x0, combine=max, rank=2)",
        f"e = generic(t, m, {both}[[d0, d1, d2], [d0, d1]], body=exp(sub(x0, x1)), rank=3)",
        f"z = generic(e, {both}[[d0, d1, d2]], body=x0, combine=add, rank=2)",
        f"p = generic(e, z, {both}[[d0, d1, d2], [d0, d1]], body=div(x0, x1), rank=3)",
        f"o = generic(p, {v}, loops=[{h}, {rows}, {width}, {keys}], maps=[[d0, d1, d3],"
        f" [{at.replace('d2', 'd3')}, d2]], body=mul(x0, x1), combine=add, rank=3)",
        turned("y", "o", 1, 0, 2), "return y",
    )  # fmt: skip


def _rotated(x: str, h: int, rows: int, depth: int) -> list[str]:
    """`xr`: x by cosines, its halves exchanged by sines."""
    half, loops = depth // 2, (h, rows, depth)
    heads = (0, h), (0, rows)
    return [
        leaf("cos", rows, depth), leaf("sin", rows, depth),
        part("a", x, *heads, (0, half)), part("b", x, *heads, (half, depth)),
        each("c", "neg(x0)", (h, rows, depth - half), "b"), joined("d", 2, "c", "a"),
        each(f"{x}r", "add(mul(x0, x1), mul(x2, x3))", loops, x, "cos:d1, d2", "d", "sin:d1, d2"),
    ]  # fmt: skip


def joined_norm(s: Sizes) -> str:
    """A norm over parts, one of them a product, and a product of it."""
    m, d, k, more, n = s.rows(), s.of(1, 4, 20), s.wide(), s.narrow(), s.narrow()
    width = k + more
    return lines(
        leaf("x", m, d), leaf("u", d, k), leaf("q", m, more), leaf("w", width, n),
        product("h", "x", "u", m, k, d) if s.coin() else
        [leaf("g", m, k), each("h", "mul(x0, 2.0)", (m, k), "g")],
        joined("j", 1, "h", "q"), total("v", "j", (m, width), body="mul(x0, x0)"),
        each("r", "mul(x0, rsqrt(add(x1, 0.01)))", (m, width), "j", "v:d0"),
        product("y", "r", "w", m, n, width) if s.coin() else
        each("y", "tanh(x0)", (m, width), "r"), "return y",
    )  # fmt: skip


def norm_before(s: Sizes) -> str:
    """A norm, a product of it, a bias; the normed rows may be a result, too."""
    m, k, n = s.rows(), s.wide() + 1, s.of(5, 17, 33, s.lanes, 2 * s.lanes + 1, 259, 530)
    return lines(
        leaf("x", m, k), leaf("w", k, n), leaf("b", n),
        total("v", "x", (m, k), body="mul(x0, x0)"),
        each("r", f"mul(x0, rsqrt(add(div(x1, {k}.0), 0.001)))", (m, k), "x", "v:d0"),
        product("h", "r", "w", m, n, k), each("y", "add(x0, x1)", (m, n), "h", "b:d1"),
        "return y, r" if s.coin() else "return y",
    )  # fmt: skip


def product_between(s: Sizes) -> str:
    """A product, the norm of its rows, and a product of that."""
    m, d, k, n = s.rows(), s.of(1, 4, 20, 33), s.wide(), s.narrow()
    return lines(
        leaf("x", m, d), leaf("u", d, k), leaf("w", k, n), product("h", "x", "u", m, k, d),
        total("v", "h", (m, k), body="mul(x0, x0)"),
        each("r", "mul(x0, rsqrt(add(x1, 0.01)))", (m, k), "h", "v:d0"),
        product("g", "r", "w", m, n, k), each("y", "mul(x0, x1)", (m, n), "g", "v:d0"),
        "return y",
    )  # fmt: skip
