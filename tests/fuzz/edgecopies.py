"""What only moves elements: transposes, slices, parts, pads, tiles, lookups."""

from __future__ import annotations

from fuzz.edgelines import Sizes, each, edges, joined, leaf, lines, padded, part, turned, written

TYPES = ("f32", "f16", "i8", "f64", "bool", "bf16", "i32", "i64")


def transposed(s: Sizes) -> str:
    m, n, dtype = s.wide(), s.wide(), TYPES[s.of(*range(8))]
    return lines(leaf("x", m, n, dtype=dtype), turned("y", "x", 1, 0), "return y")


def permuted(s: Sizes) -> str:
    a, b, c, dtype = s.few(), s.narrow(), s.wide(), TYPES[s.of(*range(8))]
    perm = ((2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0))[s.of(*range(5))]
    return lines(leaf("x", a, b, c, dtype=dtype), turned("y", "x", *perm), "return y")


def sliced(s: Sizes) -> str:
    """Steps along rows or columns; transposed or not."""
    m, n, steps = s.rows(), s.wide(), (s.of(1, 2, 3), s.of(1, 2, 3, 4))
    first = s.few(), s.few()
    ends = [a + step * (e - 1) + 1 for a, step, e in zip(first, steps, (m, n), strict=True)]
    dtype = TYPES[s.of(*range(8))]
    return lines(
        leaf("x", ends[0] + s.of(0, 1), ends[1] + s.of(0, 2), dtype=dtype),
        part("y", "x", (first[0], ends[0], steps[0]), (first[1], ends[1], steps[1])),
        written(s, "y"),
    )  # fmt: skip


def joined_parts(s: Sizes) -> str:
    """Some of them slices, one transposed."""
    m, n, k = s.rows(), s.wide(), s.narrow()
    dtype = TYPES[s.of(*range(8))]
    return lines(
        leaf("a", m, n, dtype=dtype), leaf("bt", k, m, dtype=dtype),
        leaf("c", m + 1, n + 2, dtype=dtype), turned("b", "bt", 1, 0),
        part("d", "c", (1, m + 1), (1, n + 1)), joined("y", 1, "a", "b", "d"), written(s, "y"),
    )  # fmt: skip


def padded_copy(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    low, high = (s.of(0, 1), s.of(0, 1, 3)), (s.of(0, 2), s.of(0, 1, 5))
    return lines(leaf("x", m, n), padded("y", "x", low, high, "2.5"), written(s, "y"))


def edges_copied(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    low, high = s.few(), s.few()
    return lines(leaf("x", m, n), edges("y", "x", (m, n), s.of(0, 1), low, high), written(s, "y"))


def packed_copy(s: Sizes) -> str:
    """Tiles of rows and columns, the last ones filled up; and back."""
    m, n = s.rows(), s.wide()
    a, b = s.of(2, 4, 8), s.of(4, s.lanes, 2 * s.lanes)
    shape = [-(-m // a), -(-n // b), a, b]
    pack = f"pos=[0, 1], tiles=[{a}, {b}], outer=[0, 1], pad=0"
    if s.coin():
        return lines(leaf("x", m, n), f"y = pack(x, {pack}) : f32{shape}", "return y")
    return lines(
        leaf("x", *shape), f"y = unpack(x, shape=[{m}, {n}], {pack}) : f32[{m}, {n}]", "return y"
    )


def gathered_copy(s: Sizes) -> str:
    m, n, most = s.rows(), s.wide(), s.rows()
    axis, dtype = s.of(0, 1), TYPES[s.of(*range(8))]
    table, count = ((most, n), m) if axis == 0 else ((m, most), n)
    return lines(
        leaf("t", *table, dtype=dtype), leaf("i", count, dtype="i32"),
        f"y = gather(t, i, axis={axis})", "return y",
    )  # fmt: skip


def broadcast_copy(s: Sizes) -> str:
    """Rows, columns, or elements repeated."""
    m, n, k = s.few(), s.narrow(), s.wide()
    at, dims = (("d0", (m,)), ("d2", (k,)), ("d0, d2", (m, k)), ("d1", (n,)))[s.of(0, 1, 2, 3)]
    return lines(leaf("x", *dims), each("y", "x0", (m, n, k), f"x:{at}"), "return y")


def regrouped(s: Sizes) -> str:
    """A dim split, its parts exchanged, and merged with others."""
    a, b, c = s.few(), s.narrow(), s.wide()
    return lines(
        leaf("x", a * b, c), f"r = reshape(x, shape=[{a}, {b}, {c}])", turned("t", "r", 1, 0, 2),
        f"y = reshape(t, shape=[{b}, {a * c}])", "return y",
    )  # fmt: skip


def repeated_and_padded(s: Sizes) -> str:
    """Every element of some rows several times, along rows, columns or both, in a frame."""
    m, n, a, b = s.rows(), s.narrow(), s.of(1, 2, 3), s.of(1, 2, 4)
    low, high = (s.of(0, 1, 2), s.of(1, 3, 0)), (s.of(0, 1), s.of(1, 2, 5))
    body = ("x0", "max(x0, 0.0)", "exp(x0)")[s.of(0, 1, 2)]
    return lines(
        leaf("x", m, n), each("e", body, (m, n), "x"), each("r", "x0", (m, a, n, b), "e:d0, d2"),
        f"q = reshape(r, shape=[{m * a}, {n * b}])", padded("y", "q", low, high, "2.5"),
        written(s, "y"),
    )  # fmt: skip


def pixels_shuffled(s: Sizes) -> str:
    """Channels become pixels, in a frame; twice as large as a picture that is added."""
    h, w, r = s.of(1, 2, 5), s.narrow(), s.of(2, 3)
    low, high = (s.of(0, 1, 2), s.of(1, 2, 0)), (s.of(0, 1), s.of(1, 3))
    return lines(
        leaf("x", r, r, h, w), leaf("p", h * r, w * r), turned("t", "x", 2, 0, 3, 1),
        f"q = reshape(t, shape=[{h * r}, {w * r}])",
        each("e", "add(x0, x1)", (h * r, w * r), "q", "p"), padded("y", "e", low, high),
        written(s, "y"),
    )  # fmt: skip
