"""Products of one dispatch: operands and results of any order, in parts, tiles and panels."""

from __future__ import annotations

from fuzz.edgelines import (
    Sizes,
    cut,
    each,
    edges,
    joined,
    leaf,
    lines,
    operands,
    part,
    product,
    turned,
    written,
)


def plain(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(operands(s, m, n, k), product("y", "x", "w", m, n, k), written(s, "y"))


def finished(s: Sizes) -> str:
    """A bias, one scale for each row, and a maximum."""
    m, n, k = s.rows(), s.wide(), s.sums()
    body = "max(mul(add(x0, x1), x2), 0.0)"
    return lines(
        operands(s, m, n, k), leaf("b", n), leaf("c", m), product("h", "x", "w", m, n, k),
        each("y", body, (m, n), "h", "b:d1", "c:d0"), written(s, "y"),
    )  # fmt: skip


def batched(s: Sizes) -> str:
    b, m, n, k = s.few(), s.rows(), s.wide(), s.sums()
    order, dims = ("d0, d2", (b, n)) if s.coin() else ("d2, d0", (n, b))
    at = "d0, d3, d2" if s.coin() else "d0, d2, d3"
    w = (b, k, n) if at == "d0, d3, d2" else (b, n, k)
    return lines(
        leaf("x", m, b, k), leaf("w", *w), leaf("c", *dims),
        f"h = generic(x, w, loops=[{b}, {m}, {n}, {k}], maps=[[d1, d0, d3], [{at}]],"
        " body=mul(x0, x1), combine=add, rank=3)",
        each("y", "add(x0, x1)", (b, m, n), "h", f"c:{order}"), turned("z", "y", 1, 0, 2),
        "return z",
    )  # fmt: skip


def few_rows(s: Sizes) -> str:
    """Sums along the reduction, or rows of columns that stream."""
    m, k = s.few(), s.of(37, 70, 129, 600)
    n = s.of(19, 33, 259, 530, 1037)
    return lines(operands(s, m, n, k), product("y", "x", "w", m, n, k), "return y")


def one_row(s: Sizes) -> str:
    """Its columns are read in order, several rows of them side by side."""
    n, k = s.of(259, 515, 530, 1037, 1061), s.of(17, 37, 70, 300)
    dtype = ("f32", "bf16")[s.of(0, 1)]
    at = "cast(x1, f32)" if dtype == "bf16" else "x1"
    return lines(
        leaf("x", 1, k), leaf("w", k, n, dtype=dtype), leaf("b", n),
        f"h = generic(x, w, loops=[1, {n}, {k}], maps=[[d0, d2], [d2, d1]], body=mul(x0, {at}),"
        " combine=add, rank=2)",
        each("y", "max(add(x0, x1), 0.0)", (1, n), "h", "b:d1"), "return y",
    )  # fmt: skip


def heads(s: Sizes) -> str:
    """Columns of several heads, each as wide as a vector, or nearly."""
    m, k, h, d = s.rows(), s.sums(), s.of(1, 2, 3, 4, 6), s.of(s.lanes, s.lanes, 2 * s.lanes, 5)
    w, at = (((k, h, d), "d3, d1, d2"), ((h, k, d), "d1, d3, d2"))[s.of(0, 1)]
    return lines(
        leaf("x", m, k), leaf("w", *w),
        f"y = generic(x, w, loops=[{m}, {h}, {d}, {k}], maps=[[d0, d3], [{at}]], body=mul(x0, x1),"
        " combine=add, rank=3)",
        turned("z", "y", 1, 0, 2) if s.coin() else each("z", "neg(x0)", (m, h, d), "y"), "return z",
    )  # fmt: skip


def short_types(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    names = ("f32", "bf16", "f16", "i8", "u8")
    dtypes = names[s.of(0, 1, 2)], names[s.of(0, 1, 2, 3, 4)]
    return lines(operands(s, m, n, k, dtypes), product("y", "x", "w", m, n, k, "f32"), "return y")


def integers(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    dtypes = ("i8", "u8")[s.of(0, 1)], ("i8", "u8", "i16")[s.of(0, 1, 2)]
    return lines(
        operands(s, m, n, k, dtypes), product("y", "x", "w", m, n, k, "i32"), written(s, "y")
    )


def a_slice_beside_the_whole(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide() + 2, s.sums()
    at = cut(s, n)
    runs = (0, at) if s.coin() else (at, n)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k), part("p", "y", (0, m), runs),
        each("z", "mul(x0, 2.0)", (m, runs[1] - runs[0]), "p"), "return z, y",
    )  # fmt: skip


def two_slices(s: Sizes) -> str:
    """They leave columns out between them, or have some in common."""
    m, n, k = s.rows(), s.wide() + 3, s.sums()
    at = cut(s, n)
    end = max(1, at + s.of(-1, 0, 1) if at > 1 else at)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k),
        part("a", "y", (0, m), (0, end)), part("b", "y", (0, m), (at, n)),
        each("c", "neg(x0)", (m, n - at), "b"), "return a, c",
    )  # fmt: skip


def gated(s: Sizes) -> str:
    """Each half of the columns by the other one."""
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(
        operands(s, m, 2 * n, k), product("h", "x", "w", m, 2 * n, k),
        part("a", "h", (0, m), (0, n)), part("b", "h", (0, m), (n, 2 * n)),
        each("y", "mul(logistic(x0), x1)", (m, n), "a", "b"), "return y",
    )  # fmt: skip


def part_of_a_result(s: Sizes) -> str:
    """The product is written between or beside other values."""
    m, n, k = s.rows(), s.wide(), s.sums()
    axis, more = s.of(0, 1), s.narrow()
    shape = (more, n) if axis == 0 else (m, more)
    names = ("y", "b") if s.coin() else ("b", "y", "b")
    return lines(
        operands(s, m, n, k), leaf("b", *shape), product("y", "x", "w", m, n, k),
        joined("z", axis, *names), "return z",
    )  # fmt: skip


def every_second_row(s: Sizes) -> str:
    """A slice with steps of a product's operand, from inside of a larger buffer."""
    m, n, k = s.rows(), s.wide(), s.sums()
    steps = s.of(1, 2, 3), s.of(1, 1, 2)
    first = s.few(), s.few()
    ends = first[0] + steps[0] * (m - 1) + 1, first[1] + steps[1] * (k - 1) + 1
    return lines(
        leaf("big", ends[0] + s.of(0, 2), ends[1] + s.of(0, 3)), leaf("w", k, n),
        part("x", "big", (first[0], ends[0], steps[0]), (first[1], ends[1], steps[1])),
        product("y", "x", "w", m, n, k), "return y",
    )  # fmt: skip


def edges_of_a_result(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = s.few(), s.of(0, 1, 2)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k),
        edges("z", "y", (m, n), s.of(0, 1), low, high), "return z",
    )  # fmt: skip


def packed(s: Sizes) -> str:
    """Weights in panels, whose last one has lanes that are open; a result in tiles."""
    m, n, k = s.rows(), s.wide(), s.sums()
    tile = s.of(4, s.lanes, 2 * s.lanes)
    panels = -(-n // tile)
    packs = s.coin()
    last = (
        [f"z = pack(y, pos=[1], tiles=[{tile}], outer=[1, 0], pad=0) : f32[{panels}, {m}, {tile}]",
         "return z"] if packs else ["return y"]
    )  # fmt: skip
    return lines(
        leaf("x", m, k), leaf("v", panels, k, tile),
        f"w = unpack(v, shape=[{k}, {n}], pos=[1], tiles=[{tile}], outer=[1, 0], pad=0)"
        f" : f32[{k}, {n}]",
        product("y", "x", "w", m, n, k), last,
    )  # fmt: skip


def packed_beside_parts(s: Sizes) -> str:
    """A product in panels, the last one open; it is a result, and so are some of its panels."""
    m, n, k = s.rows(), s.wide(), s.sums()
    tile = s.of(4, s.lanes // 2, s.lanes, 2 * s.lanes)
    panels = -(-n // tile)
    first = s.of(0, 1) if panels > 1 else 0
    end = min(panels, first + s.of(1, 2))
    width = min(n, end * tile) - first * tile
    layout = f"pos=[1], tiles=[{tile}], outer=[0, 1], pad=any"
    last = (
        [f"p = unpack(o, {layout}, shape=[{m}, {width}]) : f32[{m}, {width}]",
         each("z", "mul(x0, 2.0)", (m, width), "p"), "return z, y"]
        if s.coin() else ["return y, o"]
    )  # fmt: skip
    return lines(
        leaf("x", m, k), leaf("w", k, n),
        f"v = pack(w, pos=[1], tiles=[{tile}], outer=[1, 0], pad=any)"
        f" : f32[{panels}, {k}, {tile}]",
        f"h = generic(x, v, loops=[{m}, {panels}, {tile}, {k}],"
        " maps=[[d0, d3], [d1, d3, d2]], body=mul(x0, x1), combine=add, rank=3)",
        f"y = unpack(h, {layout}, shape=[{m}, {n}]) : f32[{m}, {n}]",
        f"r = relax(h, {layout}, shape=[{m}, {n}]) : f32[{m}, {panels}, {tile}]",
        part("o", "r", (0, m), (first, end), (0, tile)), last,
    )  # fmt: skip


def panels_beside_the_whole(s: Sizes) -> str:
    """A product in panels, the last one open, that are a result; and so is the whole."""
    m, n, k = s.rows(), s.wide(), s.sums()
    tile = s.of(4, s.lanes // 2, s.lanes, 2 * s.lanes)
    panels = -(-n // tile)
    return lines(
        leaf("x", m, k), leaf("v", panels, k, tile),
        f"h = generic(x, v, loops=[{m}, {panels}, {tile}, {k}],"
        " maps=[[d0, d3], [d1, d3, d2]], body=mul(x0, x1), combine=add, rank=3)",
        f"y = unpack(h, pos=[1], tiles=[{tile}], outer=[0, 1], pad=any, shape=[{m}, {n}])"
        f" : f32[{m}, {n}]",
        each("z", "max(x0, 0.0)", (m, panels, tile), "h"),
        "return z, y" if s.coin() else "return y, z",
    )  # fmt: skip


def slices_of_packed(s: Sizes) -> str:
    """Columns of a product in panels, from two places, one by the other."""
    m, n, k = s.rows(), s.wide() + 1, s.sums()
    tile = s.of(4, s.lanes // 2, s.lanes, 2 * s.lanes)
    at = cut(s, n)
    a, b = ((0, min(at, n - at)), (n - min(at, n - at), n)) if s.coin() else ((0, at), (at, n))
    width = min(a[1] - a[0], b[1] - b[0])
    a, b = (a[0], a[0] + width), (b[0], b[0] + width)
    return lines(
        leaf("x", m, k), leaf("v", -(-n // tile), k, tile),
        f"w = unpack(v, shape=[{k}, {n}], pos=[1], tiles=[{tile}], outer=[1, 0], pad=any)"
        f" : f32[{k}, {n}]",
        product("h", "x", "w", m, n, k), part("p", "h", (0, m), a), part("q", "h", (0, m), b),
        each("y", "mul(logistic(x0), x1)", (m, width), "p", "q"),
        "return y, h" if s.coin() else "return y",
    )  # fmt: skip


def unrelated(s: Sizes) -> str:
    """Two products that share nothing are parts of one kernel."""
    m, n, k, p, q, r = s.rows(), s.wide(), s.sums(), s.rows(), s.wide(), s.sums()
    return lines(
        leaf("x", m, k), leaf("w", k, n), leaf("u", p, r), leaf("v", r, q),
        product("y", "x", "w", m, n, k), product("z", "u", "v", p, q, r), "return y, z",
    )  # fmt: skip
