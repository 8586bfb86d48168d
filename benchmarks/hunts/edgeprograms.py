"""Programs of one dispatch whose extents lie at the edges of vectors, tiles and panels.

A form says what is computed: a product that reads a part of a concatenation, a transposed copy. Its
extents are drawn: each dim takes the edges of its pool in an order of its own, so that every edge
comes, and others beside it every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

ROWS = (1, 2, 5, 6, 7, 12, 13, 14, 15, 27, 29)  # around the rows of a tile, of 16 and 32 registers
SUMS = (1, 3, 4, 5, 7, 17, 33, 64, 129, 389)  # around what is unrolled, and one chain of sums
FEW = (1, 2, 3, 5)
KINDS = ("contraction", "points", "windows", "rows", "row_blocks", "copies")


class Sizes:
    """Extents and choices of one case: each that is asked for follows from its place and number."""

    def __init__(self, form: str, number: int, lanes: int):
        self.form, self.number, self.lanes = form, number, lanes
        self.asked = 0

    def of(self, *pool: int) -> int:
        """The edge of a pool whose turn it is: all of them come, then again in another order."""
        self.asked += 1
        turn, at = divmod(self.number, len(pool))
        return Random(f"{self.form} {self.asked} {turn}").sample(pool, len(pool))[at]

    def wide(self) -> int:
        """Of a loop that vectors lie along: around one vector, and panels of two and three."""
        w = self.lanes
        edges = {1, w - 1, w, w + 1, 2 * w - 1, 2 * w, 2 * w + 1, 3 * w - 1, 3 * w + 1, 5, w // 2}
        return self.of(*sorted(edges | {4 * w + w // 2 + 1, 6 * w + 3}))

    def narrow(self) -> int:
        """As `wide`, of at most a panel."""
        w = self.lanes
        return self.of(1, w - 1, w, w + 1, 2 * w - 1, 2 * w + 1)

    def rows(self) -> int:
        return self.of(*ROWS)

    def sums(self) -> int:
        return self.of(*SUMS)

    def few(self) -> int:
        return self.of(*FEW)

    def coin(self) -> bool:
        return bool(self.of(0, 1))


Form = Callable[[Sizes], str]
FORMS: dict[str, dict[str, Form]] = {k: {} for k in KINDS}


def form(kind: str) -> Callable[[Form], Form]:
    """A function that writes programs of a kind."""

    def known(write: Form) -> Form:
        FORMS[kind][write.__name__] = write
        return write

    return known


def programs(kind: str, lanes: int, numbers: range) -> Iterator[tuple[str, str]]:
    """(name, text) of every form of a kind, number by number."""
    for number in numbers:
        for name, write in FORMS[kind].items():
            body = write(Sizes(name, number, lanes))
            yield f"{kind}.{name}.{number}", f"program edge\n{body}\n"


# ---- lines ---------------------------------------------------------------------------------------
def leaf(name: str, *shape: int, dtype: str = "f32") -> str:
    return f"input {name}: {dtype}{list(shape)}"


def each(y: str, body: str, loops: tuple[int, ...], *read: str, rank: int | None = None) -> str:
    """An elementwise op over what is read: a name reads every loop, `b:d1` those it says."""
    whole = ", ".join(f"d{i}" for i in range(len(loops)))
    names = [r.partition(":")[0] for r in read]
    maps = [f"[{r.partition(':')[2] or whole}]" if ":" in r else f"[{whole}]" for r in read]
    rank = len(loops) if rank is None else rank
    return (
        f"{y} = generic({', '.join(names)}, loops={list(loops)}, maps=[{', '.join(maps)}],"
        f" body={body}, rank={rank})"
    )


def total(y: str, x: str, loops: tuple[int, ...], how: str = "add", body: str = "x0") -> str:
    """The last loop of x reduced."""
    maps = ", ".join(f"d{i}" for i in range(len(loops)))
    return (
        f"{y} = generic({x}, loops={list(loops)}, maps=[[{maps}]], body={body}, combine={how},"
        f" rank={len(loops) - 1})"
    )


def product(y: str, a: str, b: str, m: int, n: int, k: int, dtype: str = "") -> str:
    """[m, n] of a [m, k] and b [k, n], which are cast to `dtype`."""
    body = f"mul(cast(x0, {dtype}), cast(x1, {dtype}))" if dtype else "mul(x0, x1)"
    return (
        f"{y} = generic({a}, {b}, loops=[{m}, {n}, {k}], maps=[[d0, d2], [d2, d1]],"
        f" body={body}, combine=add, rank=2)" + (f" : {dtype}[{m}, {n}]" if dtype else "")
    )


def part(y: str, x: str, *runs: tuple[int, int] | tuple[int, int, int]) -> str:
    """A slice: start, limit and perhaps stride of each dim."""
    starts, limits = [r[0] for r in runs], [r[1] for r in runs]
    steps = [r[2] if len(r) > 2 else 1 for r in runs]
    return f"{y} = slice({x}, start={starts}, limit={limits}, stride={steps})"


def turned(y: str, x: str, *perm: int) -> str:
    return f"{y} = transpose({x}, perm={list(perm)})"


def joined(y: str, axis: int, *parts: str) -> str:
    return f"{y} = concat({', '.join(parts)}, axis={axis})"


def padded(y: str, x: str, low: tuple[int, ...], high: tuple[int, ...], value: str = "0.0") -> str:
    return f"{y} = pad({x}, low={list(low)}, high={list(high)}, value={value})"


def edges(y: str, x: str, shape: tuple[int, int], axis: int, low: int, high: int) -> list[str]:
    """x padded by its own first and last rows or columns, as `jnp.pad(mode="edge")` is traced."""
    lines, parts = [], []
    for side, count, at in (("a", low, 0), ("z", high, shape[axis] - 1)):
        if not count:
            continue
        runs = [(0, n) for n in shape]
        runs[axis] = (at, at + 1)
        lines.append(part(f"{y}{side}", x, runs[0], runs[1]))
        loops = (count, shape[1]) if axis == 0 else (shape[0], count)
        maps = ":0, d1" if axis == 0 else ":d0, 0"
        lines.append(each(f"{y}{side}s", "x0", loops, f"{y}{side}{maps}"))
        parts.append(f"{y}{side}s")
    parts.insert(1 if low else 0, x)
    return [*lines, joined(y, axis, *parts) if len(parts) > 1 else each(y, "x0", shape, x)]


def lines(*some: str | list[str]) -> str:
    return "\n".join(x for s in some for x in ([s] if isinstance(s, str) else s))


def operands(s: Sizes, m: int, n: int, k: int, dtypes: tuple[str, str] = ("f32", "f32")) -> str:
    """`x` [m, k] and `w` [k, n], either as its transpose lies."""
    a = [leaf("x", m, k, dtype=dtypes[0])]
    if s.coin():
        a = [leaf("xt", k, m, dtype=dtypes[0]), turned("x", "xt", 1, 0)]
    b = [leaf("w", k, n, dtype=dtypes[1])]
    if s.coin():
        b = [leaf("wt", n, k, dtype=dtypes[1]), turned("w", "wt", 1, 0)]
    return lines(a, b)


def written(s: Sizes, y: str) -> str:
    """The result, as it is or transposed."""
    return lines(turned("yt", y, 1, 0), "return yt") if s.coin() else f"return {y}"


# ---- products ------------------------------------------------------------------------------------
@form("contraction")
def plain(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(operands(s, m, n, k), product("y", "x", "w", m, n, k), written(s, "y"))


@form("contraction")
def finished(s: Sizes) -> str:
    """A bias, one scale for each row, and a maximum."""
    m, n, k = s.rows(), s.wide(), s.sums()
    body = "max(mul(add(x0, x1), x2), 0.0)"
    return lines(
        operands(s, m, n, k), leaf("b", n), leaf("c", m), product("h", "x", "w", m, n, k),
        each("y", body, (m, n), "h", "b:d1", "c:d0"), written(s, "y"),
    )  # fmt: skip


@form("contraction")
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


@form("contraction")
def few_rows(s: Sizes) -> str:
    """Sums along the reduction, or rows of columns that stream."""
    m, k = s.few(), s.of(37, 70, 129, 600)
    n = s.of(19, 33, 259, 530, 1037)
    return lines(operands(s, m, n, k), product("y", "x", "w", m, n, k), "return y")


@form("contraction")
def short_types(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    names = ("f32", "bf16", "f16", "i8", "u8")
    dtypes = names[s.of(0, 1, 2)], names[s.of(0, 1, 2, 3, 4)]
    return lines(operands(s, m, n, k, dtypes), product("y", "x", "w", m, n, k, "f32"), "return y")


@form("contraction")
def integers(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    dtypes = ("i8", "u8")[s.of(0, 1)], ("i8", "u8", "i16")[s.of(0, 1, 2)]
    return lines(
        operands(s, m, n, k, dtypes), product("y", "x", "w", m, n, k, "i32"), written(s, "y")
    )


def _cut(s: Sizes, n: int) -> int:
    """A border inside n columns, if there is one: off vectors, or one of them."""
    w = s.lanes
    return max(1, min(n - 1, s.of(1, w // 2 + 1, w - 1, w, w + 1, 2 * w + 3)))


@form("contraction")
def a_slice_beside_the_whole(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide() + 2, s.sums()
    at = _cut(s, n)
    runs = (0, at) if s.coin() else (at, n)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k), part("p", "y", (0, m), runs),
        each("z", "mul(x0, 2.0)", (m, runs[1] - runs[0]), "p"), "return z, y",
    )  # fmt: skip


@form("contraction")
def two_slices(s: Sizes) -> str:
    """They leave columns out between them, or have some in common."""
    m, n, k = s.rows(), s.wide() + 3, s.sums()
    at = _cut(s, n)
    end = max(1, at + s.of(-1, 0, 1) if at > 1 else at)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k),
        part("a", "y", (0, m), (0, end)), part("b", "y", (0, m), (at, n)),
        each("c", "neg(x0)", (m, n - at), "b"), "return a, c",
    )  # fmt: skip


@form("contraction")
def gated(s: Sizes) -> str:
    """Each half of the columns by the other one."""
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(
        operands(s, m, 2 * n, k), product("h", "x", "w", m, 2 * n, k),
        part("a", "h", (0, m), (0, n)), part("b", "h", (0, m), (n, 2 * n)),
        each("y", "mul(logistic(x0), x1)", (m, n), "a", "b"), "return y",
    )  # fmt: skip


@form("contraction")
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


@form("contraction")
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


@form("contraction")
def edges_of_a_result(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = s.few(), s.of(0, 1, 2)
    return lines(
        operands(s, m, n, k), product("y", "x", "w", m, n, k),
        edges("z", "y", (m, n), s.of(0, 1), low, high), "return z",
    )  # fmt: skip


@form("contraction")
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


@form("contraction")
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


@form("contraction")
def slices_of_packed(s: Sizes) -> str:
    """Columns of a product in panels, from two places, one by the other."""
    m, n, k = s.rows(), s.wide() + 1, s.sums()
    tile = s.of(4, s.lanes // 2, s.lanes, 2 * s.lanes)
    at = _cut(s, n)
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


@form("contraction")
def unrelated(s: Sizes) -> str:
    """Two products that share nothing are parts of one kernel."""
    m, n, k, p, q, r = s.rows(), s.wide(), s.sums(), s.rows(), s.wide(), s.sums()
    return lines(
        leaf("x", m, k), leaf("w", k, n), leaf("u", p, r), leaf("v", r, q),
        product("y", "x", "w", m, n, k), product("z", "u", "v", p, q, r), "return y, z",
    )  # fmt: skip


# ---- products of what is computed or moved: copies evaluate their points -----------------------
@form("points")
def computed_rows(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    return lines(
        operands(s, m, n, k), leaf("c", k),
        each("a", "mul(exp(x0), x1)", (m, k), "x", "c:d1"), product("y", "a", "w", m, n, k),
        written(s, "y"),
    )  # fmt: skip


@form("points")
def computed_columns(s: Sizes) -> str:
    """Numbers of a byte, scaled by row or by column."""
    m, n, k = s.rows(), s.wide(), s.sums()
    at, size = (("d1", n), ("d0", k))[s.of(0, 1)]
    return lines(
        operands(s, m, n, k, ("f32", "i8")), leaf("c", size),
        each("v", "mul(cast(x0, f32), x1)", (k, n), "w", f"c:{at}"),
        product("y", "x", "v", m, n, k), "return y",
    )  # fmt: skip


@form("points")
def joined_sums(s: Sizes) -> str:
    """What is summed over is two or three parts, one of them computed."""
    m, n, k, l = s.rows(), s.wide(), s.sums(), s.narrow()
    names = ("p", "c") if s.coin() else ("p", "c", "p")
    width = sum(k if p == "p" else l for p in names)
    return lines(
        leaf("p", m, k), leaf("q", m, l), leaf("w", width, n), each("c", "sin(x0)", (m, l), "q"),
        joined("x", 1, *names), product("y", "x", "w", m, n, width), written(s, "y"),
    )  # fmt: skip


@form("points")
def joined_rows(s: Sizes) -> str:
    m, n, k, l = s.rows(), s.wide(), s.sums(), s.rows()
    return lines(
        leaf("p", m, k), leaf("q", l, k), leaf("w", k, n), joined("x", 0, "p", "q"),
        product("y", "x", "w", m + l, n, k), written(s, "y"),
    )  # fmt: skip


@form("points")
def joined_columns(s: Sizes) -> str:
    m, n, k, l = s.rows(), s.narrow(), s.sums(), s.wide()
    return lines(
        leaf("x", m, k), leaf("p", k, n), leaf("q", k, l), joined("w", 1, "p", "q"),
        product("y", "x", "w", m, n + l, k), written(s, "y"),
    )  # fmt: skip


@form("points")
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


@form("points")
def encoded(s: Sizes) -> str:
    """What is summed over is an operand, its products with some frequencies, and another one."""
    m, n, k, f, l = s.rows(), s.wide(), s.few(), s.few(), s.narrow()
    width = k + f * k + l
    return lines(
        leaf("p", m, k), leaf("c", f), leaf("q", m, l), leaf("w", width, n),
        each("a", "mul(x0, x1)", (m, f, k), "p:d0, d2", "c:d1"),
        f"b = reshape(a, shape=[{m}, {f * k}])", joined("x", 1, "p", "b", "q"),
        product("y", "x", "w", m, n, width), "return y",
    )  # fmt: skip


@form("points")
def padded_operand(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = (s.of(0, 1, 2), s.of(0, 1, 3)), (s.of(0, 1), s.of(0, 2, 5))
    rows, sums = m + low[0] + high[0], k + low[1] + high[1]
    return lines(
        leaf("p", m, k), leaf("w", sums, n), padded("x", "p", low, high, ("0.0", "1.5")[s.of(0, 1)]),
        product("y", "x", "w", rows, n, sums), written(s, "y"),
    )  # fmt: skip


@form("points")
def padded_columns(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    low, high = (s.of(0, 1), s.of(0, 1, 3)), (s.of(0, 2), s.of(0, 1, 5))
    sums, columns = k + low[0] + high[0], n + low[1] + high[1]
    return lines(
        leaf("x", m, sums), leaf("p", k, n), padded("w", "p", low, high),
        product("y", "x", "w", m, columns, sums), "return y",
    )  # fmt: skip


@form("points")
def edges_of_an_operand(s: Sizes) -> str:
    m, n, k = s.rows(), s.wide(), s.sums()
    axis, low, high = s.of(0, 1), s.few(), s.of(0, 1, 2)
    rows, sums = (m + low + high, k) if axis == 0 else (m, k + low + high)
    return lines(
        leaf("p", m, k), leaf("w", sums, n), edges("x", "p", (m, k), axis, low, high),
        product("y", "x", "w", rows, n, sums), "return y",
    )  # fmt: skip


@form("points")
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


@form("points")
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


@form("points")
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


# ---- windows -------------------------------------------------------------------------------------
def _window(s: Sizes, channels: int, features: int, depthwise: bool = False) -> str:
    """A convolution of [h, w, c] with pads; each output is at least one element."""
    h, width = s.of(1, 2, 5, 9, 14), s.narrow() if depthwise else s.of(1, 5, 7, 14, 15, 29)
    kh, kw, stride, dilation = s.of(1, 3, 3), s.of(1, 2, 3, 5), s.of(1, 1, 2), s.of(1, 1, 2)
    reach = dilation * (kh - 1), dilation * (kw - 1)
    low = s.of(0, 1, reach[0]), s.of(0, 1, reach[1])
    high = [max(s.of(0, 1), r + 1 - n - a) for r, n, a in zip(reach, (h, width), low, strict=True)]
    sizes = [n + a + b for n, a, b in zip((h, width), low, high, strict=True)]
    out = [(n - r - 1) // stride + 1 for n, r in zip(sizes, reach, strict=True)]
    if depthwise:
        loops, taps = [*out, channels, kh, kw], [kh, kw, channels]
        maps = f"[{stride}*d0 + {dilation}*d3, {stride}*d1 + {dilation}*d4, d2], [d3, d4, d2]"
    else:
        loops, taps = [*out, features, kh, kw, channels], [kh, kw, channels, features]
        maps = f"[{stride}*d0 + {dilation}*d3, {stride}*d1 + {dilation}*d4, d5], [d3, d4, d5, d2]"
    act = s.coin()
    first = [each("r", "max(x0, 0.0)", (h, width, channels), "x")] if act else []
    return lines(
        leaf("x", h, width, channels), leaf("w", *taps), first,
        padded("a", "r" if act else "x", (*low, 0), (*high, 0)),
        f"y = generic(a, w, loops={loops}, maps=[{maps}], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


@form("windows")
def convolution(s: Sizes) -> str:
    return _window(s, s.of(1, 3, 4, 17, 33), s.wide())


@form("windows")
def many_channels(s: Sizes) -> str:
    return _window(s, s.of(64, 65, 130), s.narrow())


@form("windows")
def depthwise(s: Sizes) -> str:
    return _window(s, s.wide(), 0, depthwise=True)


@form("windows")
def channels_first(s: Sizes) -> str:
    """Vectors lie along the rows of an image."""
    c, f, h, w, k = s.of(1, 3, 8), s.narrow(), s.of(1, 4, 7), s.wide(), s.of(1, 3)
    p, stride = k // 2, s.of(1, 1, 2)
    out = [(n + 2 * p - k) // stride + 1 for n in (h, w)]
    at = f"{stride}*d1 + d4, {stride}*d2 + d5"
    return lines(
        leaf("x", c, h, w), leaf("w", f, c, k, k), padded("a", "x", (0, p, p), (0, p, p)),
        f"y = generic(a, w, loops=[{f}, {out[0]}, {out[1]}, {c}, {k}, {k}],"
        f" maps=[[d3, {at}], [d0, d3, d4, d5]], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


@form("windows")
def grouped(s: Sizes) -> str:
    g, c, f, w, k = s.of(1, 2, 3), s.of(1, 4, 16), s.narrow(), s.of(1, 6, 14, 17), s.of(1, 3)
    p = k // 2
    return lines(
        leaf("x", w, g, c), leaf("w", k, g, c, f), padded("a", "x", (p, 0, 0), (p, 0, 0)),
        f"y = generic(a, w, loops=[{w}, {g}, {f}, {k}, {c}],"
        " maps=[[d0 + d3, d1, d4], [d3, d1, d4, d2]], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


@form("windows")
def integer_windows(s: Sizes) -> str:
    c, f, h, w, k = s.of(4, 6, 64), s.narrow(), s.of(1, 5, 7), s.of(1, 5, 14), s.of(1, 3)
    p = k // 2
    cast = "mul(cast(x0, i32), cast(x1, i32))"
    return lines(
        leaf("x", h, w, c, dtype=("i8", "u8")[s.of(0, 1)]), leaf("w", k, k, c, f, dtype="i8"),
        padded("a", "x", (p, p, 0), (p, p, 0), "0"),
        f"y = generic(a, w, loops=[{h}, {w}, {f}, {k}, {k}, {c}],"
        f" maps=[[d0 + d3, d1 + d4, d5], [d3, d4, d5, d2]], body={cast}, combine=add, rank=3)"
        f" : i32[{h}, {w}, {f}]",
        "return y",
    )  # fmt: skip


@form("windows")
def pooled(s: Sizes) -> str:
    h, w, c, k, stride = s.of(3, 4, 7), s.wide() + 2, s.narrow(), s.of(2, 3), s.of(1, 2)
    how, value = (("max", "-inf"), ("add", "0.0"))[s.of(0, 1)]
    p = s.of(0, 1)
    last = s.coin()
    out = [(n + 2 * p - k) // stride + 1 for n in (h, w)]
    at = f"{stride}*d0 + d3, {stride}*d1 + d4, d2" if last else ""
    shape, pads = ((h, w, c), (p, p, 0)) if last else ((c, h, w), (0, p, p))
    loops = [*out, c, k, k] if last else [c, *out, k, k]
    at = at or f"d0, {stride}*d1 + d3, {stride}*d2 + d4"
    return lines(
        leaf("x", *shape), padded("a", "x", pads, pads, value),
        f"y = generic(a, loops={loops}, maps=[[{at}]], body=x0, combine={how}, rank=3)",
        "return y",
    )  # fmt: skip


# ---- rows ----------------------------------------------------------------------------------------
@form("rows")
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


@form("rows")
def softmax(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    along = s.coin()
    loops = (m, n)
    read = [leaf("x", m, n)] if along else [leaf("xt", n, m), turned("x", "xt", 1, 0)]
    return lines(
        read, total("t", "x", loops, "max"), each("e", "exp(sub(x0, x1))", loops, "x", "t:d0"),
        total("z", "e", loops), each("y", "div(x0, x1)", loops, "e", "z:d0"), written(s, "y"),
    )  # fmt: skip


@form("rows")
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


@form("rows")
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


@form("rows")
def two_results(s: Sizes) -> str:
    """A sum, and what is computed from it, and a slice of that."""
    m, n = s.rows(), s.wide() + 2
    at = _cut(s, n)
    return lines(
        leaf("x", m, n), total("z", "x", (m, n)),
        each("y", "sub(x0, x1)", (m, n), "x", "z:d0"), part("p", "y", (0, m), (at, n)),
        each("q", "abs(x0)", (m, n - at), "p"), "return z, y, q",
    )  # fmt: skip


@form("rows")
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


@form("rows")
def conversions(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    names = ("f32", "bf16", "f16", "i8", "u8", "i32", "bool", "i16")
    a, b = names[s.of(*range(8))], names[s.of(*range(8))]
    return lines(
        leaf("x", m, n, dtype=a), each("y", f"cast(x0, {b})", (m, n), "x") + f" : {b}[{m}, {n}]",
        "return y",
    )  # fmt: skip


@form("rows")
def looked_up(s: Sizes) -> str:
    m, n, most = s.rows(), s.wide(), s.rows()
    axis = s.of(0, 1)
    table, count = ((most, n), m) if axis == 0 else ((m, most), n)
    return lines(
        leaf("t", *table), leaf("i", count, dtype="i32"), leaf("b", m, n),
        f"g = gather(t, i, axis={axis})", each("y", "add(x0, x1)", (m, n), "g", "b"), "return y",
    )  # fmt: skip


# ---- row blocks ----------------------------------------------------------------------------------
@form("row_blocks")
def attention(s: Sizes) -> str:
    """Heads of queries, several of which share keys and values; scores are masked."""
    h, g, q, keys = s.of(1, 2, 3), s.of(1, 1, 2, 3), s.rows(), s.wide() + s.of(0, 20)
    depth, width = s.of(1, 8, 20, 33), s.narrow()
    rows, both = g * q, f"loops=[{h}, {g * q}, {keys}], maps="
    cached = s.coin()
    k = [h, keys, depth] if cached else [keys, h, depth]
    v = [h, keys, width] if cached else [keys, h, width]
    at = "d0, d2" if cached else "d2, d0"
    lies = "combine=add, rank=3)"
    return lines(
        leaf("q", h, rows, depth), leaf("k", *k), leaf("v", *v),
        leaf("mask", rows, keys, dtype="bool"),
        f"s = generic(q, k, loops=[{h}, {rows}, {keys}, {depth}], maps=[[d0, d1, d3],"
        f" [{at}, d3]], body=mul(x0, x1), {lies}",
        f"t = generic(mask, s, {both}[[d1, d2], [d0, d1, d2]], body=select(x0, div(x1, 3.0),"
        " -30.0), rank=3)",
        f"m = generic(t, {both}[[d0, d1, d2]], body=x0, combine=max, rank=2)",
        f"e = generic(t, m, {both}[[d0, d1, d2], [d0, d1]], body=exp(sub(x0, x1)), rank=3)",
        f"z = generic(e, {both}[[d0, d1, d2]], body=x0, combine=add, rank=2)",
        f"p = generic(e, z, {both}[[d0, d1, d2], [d0, d1]], body=div(x0, x1), rank=3)",
        f"o = generic(p, v, loops=[{h}, {rows}, {width}, {keys}], maps=[[d0, d1, d3],"
        f" [{at.replace('d2', 'd3')}, d2]], body=mul(x0, x1), {lies}",
        turned("y", "o", 1, 0, 2), "return y",
    )  # fmt: skip


@form("row_blocks")
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


@form("row_blocks")
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


# ---- copies --------------------------------------------------------------------------------------
TYPES = ("f32", "f16", "i8", "f64", "bool", "bf16", "i32", "i64")


@form("copies")
def transposed(s: Sizes) -> str:
    m, n, dtype = s.wide(), s.wide(), TYPES[s.of(*range(8))]
    return lines(leaf("x", m, n, dtype=dtype), turned("y", "x", 1, 0), "return y")


@form("copies")
def permuted(s: Sizes) -> str:
    a, b, c, dtype = s.few(), s.narrow(), s.wide(), TYPES[s.of(*range(8))]
    perm = ((2, 1, 0), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0))[s.of(*range(5))]
    return lines(leaf("x", a, b, c, dtype=dtype), turned("y", "x", *perm), "return y")


@form("copies")
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


@form("copies")
def joined_parts(s: Sizes) -> str:
    """Some of them slices, one transposed."""
    m, n, k = s.rows(), s.wide(), s.narrow()
    dtype = TYPES[s.of(*range(8))]
    return lines(
        leaf("a", m, n, dtype=dtype), leaf("bt", k, m, dtype=dtype),
        leaf("c", m + 1, n + 2, dtype=dtype), turned("b", "bt", 1, 0),
        part("d", "c", (1, m + 1), (1, n + 1)), joined("y", 1, "a", "b", "d"), written(s, "y"),
    )  # fmt: skip


@form("copies")
def padded_copy(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    low, high = (s.of(0, 1), s.of(0, 1, 3)), (s.of(0, 2), s.of(0, 1, 5))
    return lines(leaf("x", m, n), padded("y", "x", low, high, "2.5"), written(s, "y"))


@form("copies")
def edges_copied(s: Sizes) -> str:
    m, n = s.rows(), s.wide()
    low, high = s.few(), s.few()
    return lines(
        leaf("x", m, n), edges("y", "x", (m, n), s.of(0, 1), low, high), written(s, "y")
    )


@form("copies")
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


@form("copies")
def gathered_copy(s: Sizes) -> str:
    m, n, most = s.rows(), s.wide(), s.rows()
    axis, dtype = s.of(0, 1), TYPES[s.of(*range(8))]
    table, count = ((most, n), m) if axis == 0 else ((m, most), n)
    return lines(
        leaf("t", *table, dtype=dtype), leaf("i", count, dtype="i32"),
        f"y = gather(t, i, axis={axis})", "return y",
    )  # fmt: skip


@form("copies")
def broadcast_copy(s: Sizes) -> str:
    """Rows, columns, or elements repeated."""
    m, n, k = s.few(), s.narrow(), s.wide()
    at, dims = (("d0", (m,)), ("d2", (k,)), ("d0, d2", (m, k)), ("d1", (n,)))[s.of(0, 1, 2, 3)]
    return lines(leaf("x", *dims), each("y", "x0", (m, n, k), f"x:{at}"), "return y")


@form("copies")
def regrouped(s: Sizes) -> str:
    """A dim split, its parts exchanged, and merged with others."""
    a, b, c = s.few(), s.narrow(), s.wide()
    return lines(
        leaf("x", a * b, c), f"r = reshape(x, shape=[{a}, {b}, {c}])", turned("t", "r", 1, 0, 2),
        f"y = reshape(t, shape=[{b}, {a * c}])", "return y",
    )  # fmt: skip
