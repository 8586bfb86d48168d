"""Extents at the edges of vectors, tiles and panels, and lines of `.eqs` programs of such extents.

Each dim takes the edges of its pool in an order of its own, so that every edge comes, and others
beside it every time.
"""

from __future__ import annotations

from random import Random

ROWS = (1, 2, 5, 6, 7, 12, 13, 14, 15, 27, 29)  # around the rows of a tile, of 16 and 32 registers
SUMS = (1, 3, 4, 5, 7, 17, 33, 64, 129, 389)  # around what is unrolled, and one chain of sums
FEW = (1, 2, 3, 5)


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


def cut(s: Sizes, n: int) -> int:
    """A border inside n columns, if there is one: off vectors, or one of them."""
    w = s.lanes
    return max(1, min(n - 1, s.of(1, w // 2 + 1, w - 1, w, w + 1, 2 * w + 3)))
