"""Products of what is computed or moved: copies evaluate their points."""

from __future__ import annotations

from fuzz.edgelines import (
    Sizes,
    each,
    edges,
    joined,
    leaf,
    lines,
    operands,
    padded,
    product,
    total,
    written,
)


def computed_rows(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(
        operands(s, m, n, k), leaf("c", k),
        each("a", "mul(exp(x0), x1)", (m, k), "x", "c:d1"), product("y", "a", "w", m, n, k),
        written(s, "y"),
    )  # fmt: skip


def computed_columns(s: Sizes) -> str:
    """Numbers of a byte, scaled by row or by column."""
    m, n, k = s.rows(), s.wide(), s.sums()
    at, size = (("d1", n), ("d0", k))[s.of(0, 1)]
    return lines(
        operands(s, m, n, k, ("f32", "i8")), leaf("c", size),
        each("v", "mul(cast(x0, f32), x1)", (k, n), "w", f"c:{at}"),
        product("y", "x", "v", m, n, k), "return y",
    )  # fmt: skip


def joined_sums(s: Sizes) -> str:
    """What is summed over is two or three parts, one of them computed."""
    m, n, k, more = s.rows(), s.wide(), s.sums(), s.narrow()
    names = ("p", "c") if s.coin() else ("p", "c", "p")
    width = sum(k if p == "p" else more for p in names)
    return lines(
        leaf("p", m, k), leaf("q", m, more), leaf("w", width, n),
        each("c", "sin(x0)", (m, more), "q"),
        joined("x", 1, *names), product("y", "x", "w", m, n, width), written(s, "y"),
    )  # fmt: skip


def joined_products(s: Sizes) -> str:
    """What is summed over is in parts that are products themselves, some between pads."""
    m, n, k, more = s.rows(), s.wide(), s.sums(), s.narrow()
    low, high = s.of(0, 1, 2), s.of(0, 0, 3)
    width = k + more + low + high
    bodies = ("mul(x0, 2.0)", "mul(x0, x0)", "mul(x0, x1)")
    a, b = bodies[s.of(0, 1, 2)], bodies[s.of(0, 1, 2)]
    return lines(
        leaf("p", m, k), leaf("q", m, more), leaf("c", m), leaf("w", width, n),
        each("u", a, (m, k), "p", "c:d0"), each("v", b, (m, more), "q", "c:d0"),
        joined("j", 1, "u", "v"), padded("x", "j", (0, low), (0, high)),
        total("z", "x", (m, width)), product("y", "x", "w", m, n, width),
        ("return y", "return z", "return y, z")[s.of(0, 1, 2)],
    )  # fmt: skip


def joined_rows(s: Sizes) -> str:
    m, n, k, more = s.rows(), s.wide(), s.sums(), s.rows()
    return lines(
        leaf("p", m, k), leaf("q", more, k), leaf("w", k, n), joined("x", 0, "p", "q"),
        product("y", "x", "w", m + more, n, k), written(s, "y"),
    )  # fmt: skip


def joined_columns(s: Sizes) -> str:
    m, n, k, more = s.rows(), s.narrow(), s.sums(), s.wide()
    return lines(
        leaf("x", m, k), leaf("p", k, n), leaf("q", k, more), joined("w", 1, "p", "q"),
        product("y", "x", "w", m, n + more, k), written(s, "y"),
    )  # fmt: skip


def stacked(s: Sizes) -> str:
    """A new dim of two values, along the rows, the sums or in front."""
    m, n, k = s.rows(), s.wide(), s.sums()
    axis = s.of(0, 1, 2)
    shape, own = [m, k], s.coin()
    shape.insert(axis, 1)
    rows, sums = (2 * m, k) if axis < 2 else (m, 2 * k)
    again = [2, m, n] if axis == 0 else [m, 2, n]
    return lines(
        leaf("p", m, k), leaf("w", sums, n), each("c", "cos(x0)", (m, k), "p"),
        each("d", "sin(x0)", (m, k), "p") if own else [],
        f"a = reshape({'d' if own else 'p'}, shape={shape})", f"b = reshape(c, shape={shape})",
        joined("t", axis, "a", "b"), f"x = reshape(t, shape=[{rows}, {sums}])",
        product("y", "x", "w", rows, n, sums),
        [f"z = reshape(y, shape={again})", "return z"] if axis < 2 and s.coin() else "return y",
    )  # fmt: skip


def encoded(s: Sizes) -> str:
    """What is summed over is an operand, its products with some frequencies, and another one."""
    m, n, k, f, more = s.rows(), s.wide(), s.few(), s.few(), s.narrow()
    width = k + f * k + more
    return lines(
        leaf("p", m, k), leaf("c", f), leaf("q", m, more), leaf("w", width, n),
        each("a", "mul(x0, x1)", (m, f, k), "p:d0, d2", "c:d1"),
        f"b = reshape(a, shape=[{m}, {f * k}])", joined("x", 1, "p", "b", "q"),
        product("y", "x", "w", m, n, width), "return y",
    )  # fmt: skip


def padded_operand(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = (s.of(0, 1, 2), s.of(0, 1, 3)), (s.of(0, 1), s.of(0, 2, 5))
    value = ("0.0", "1.5")[s.of(0, 1)]
    rows, sums = m + low[0] + high[0], k + low[1] + high[1]
    return lines(
        leaf("p", m, k), leaf("w", sums, n), padded("x", "p", low, high, value),
        product("y", "x", "w", rows, n, sums), written(s, "y"),
    )  # fmt: skip


def padded_columns(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = (s.of(0, 1), s.of(0, 1, 3)), (s.of(0, 2), s.of(0, 1, 5))
    sums, columns = k + low[0] + high[0], n + low[1] + high[1]
    return lines(
        leaf("x", m, sums), leaf("p", k, n), padded("w", "p", low, high),
        product("y", "x", "w", m, columns, sums), "return y",
    )  # fmt: skip


def edges_of_an_operand(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    axis, low, high = s.of(0, 1), s.few(), s.of(0, 1, 2)
    rows, sums = (m + low + high, k) if axis == 0 else (m, k + low + high)
    return lines(
        leaf("p", m, k), leaf("w", sums, n), edges("x", "p", (m, k), axis, low, high),
        product("y", "x", "w", rows, n, sums), "return y",
    )  # fmt: skip


def gathered(s: Sizes) -> str:
    """Rows of a table, or columns of weights, where an index says."""
    m, n, k, most = s.rows(), s.wide(), s.sums(), s.rows()
    dtype = ("i32", "i64")[s.of(0, 1)]
    if s.coin():
        return lines(
            leaf("t", most, k), leaf("i", m, dtype=dtype), leaf("w", k, n),
            "x = gather(t, i, axis=0)", product("y", "x", "w", m, n, k), "return y",
        )  # fmt: skip
    return lines(
        leaf("x", m, k), leaf("i", n, dtype=dtype), leaf("t", k, most),
        "w = gather(t, i, axis=1)", product("y", "x", "w", m, n, k), "return y",
    )  # fmt: skip


def unpacked_rows(s: Sizes) -> str:
    """Rows and sums in tiles, whose last ones are not full."""
    m, n, k = s.rows(), s.wide(), s.sums()
    a, b = s.of(4, 8), s.of(4, s.lanes)
    shape = [-(-m // a), -(-k // b), a, b]
    return lines(
        leaf("p", *shape), leaf("w", k, n),
        f"x = unpack(p, shape=[{m}, {k}], pos=[0, 1], tiles=[{a}, {b}], outer=[0, 1], pad=0)"
        f" : f32[{m}, {k}]",
        product("y", "x", "w", m, n, k), written(s, "y"),
    )  # fmt: skip


def broadcast_operand(s: Sizes) -> str:
    """One row, or one column, for all; groups of rows with one head of columns."""
    m, n, k, g = s.rows(), s.wide(), s.sums(), s.few()
    at = ("d2", "d0", "d0, d2")[s.of(0, 1, 2)]
    dims = {"d2": (k,), "d0": (m,), "d0, d2": (m, k)}[at]
    return lines(
        leaf("x", *dims), leaf("w", g, k, n),
        f"y = generic(x, w, loops=[{g}, {m}, {n}, {k}],"
        f" maps=[[{at.replace('d2', 'd3').replace('d0', 'd1')}], [d0, d3, d2]],"
        " body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip
