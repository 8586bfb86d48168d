"""Convolutions and pools with pads, of any window, stride and dilation."""

from __future__ import annotations

from fuzz.edgelines import Sizes, each, joined, leaf, lines, padded


def _window(
    s: Sizes, channels: int, features: int, depthwise: bool = False, act: bool = False
) -> str:
    """A convolution of [h, w, c] with pads, of what is computed or not."""
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
    first = [each("r", "max(x0, 0.0)", (h, width, channels), "x")] if act else []
    return lines(
        leaf("x", h, width, channels), leaf("w", *taps), first,
        padded("a", "r" if act else "x", (*low, 0), (*high, 0)),
        f"y = generic(a, w, loops={loops}, maps=[{maps}], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


def convolution(s: Sizes) -> str:
    return _window(s, s.of(1, 3, 4, 17, 33), s.wide(), act=s.coin())


def many_channels(s: Sizes) -> str:
    return _window(s, s.of(64, 65, 130), s.narrow(), act=s.coin())


def depthwise(s: Sizes) -> str:
    return _window(s, s.wide(), 0, depthwise=True)


def computed_depthwise(s: Sizes) -> str:
    return _window(s, s.wide(), 0, depthwise=True, act=True)


def joined_channels(s: Sizes) -> str:
    """An image in parts, along its channels or its rows, one of them computed."""
    h, w, c, f, more = s.of(3, 5, 9), s.of(3, 7, 14), s.of(1, 3, 17), s.wide(), s.of(1, 2, 16)
    p, axis, stride = s.of(0, 1), s.of(0, 1, 2), s.of(1, 1, 2)
    shape, other = [h, w, c], [h, w, c]
    other[axis] = more
    shape[axis] += more
    out = [(n + 2 * p - 3) // stride + 1 for n in shape[:2]]
    channels = shape[2]
    names = ("x", "r") if s.coin() else ("r", "x")
    maps = f"[{stride}*d0 + d3, {stride}*d1 + d4, d5], [d3, d4, d5, d2]"
    return lines(
        leaf("x", h, w, c), leaf("q", *other), leaf("w", 3, 3, channels, f),
        each("r", "max(x0, 0.0)", (other[0], other[1], other[2]), "q"), joined("j", axis, *names),
        padded("a", "j", (p, p, 0), (p, p, 0)),
        f"y = generic(a, w, loops=[{out[0]}, {out[1]}, {f}, 3, 3, {channels}], maps=[{maps}],"
        " body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


def repeated_pixels(s: Sizes) -> str:
    """Every pixel of an image twice, and a window over that."""
    h, w, c, f, p = s.of(2, 5), s.of(2, 7, 9), s.of(1, 4, 17), s.wide(), s.of(0, 1)
    out = [2 * n + 2 * p - 2 for n in (h, w)]
    return lines(
        leaf("x", h, w, c), leaf("w", 3, 3, c, f),
        f"b = generic(x, loops=[{h}, 2, {w}, 2, {c}], maps=[[d0, d2, d4]], body=x0, rank=5)",
        f"r = reshape(b, shape=[{2 * h}, {2 * w}, {c}])", padded("a", "r", (p, p, 0), (p, p, 0)),
        f"y = generic(a, w, loops=[{out[0]}, {out[1]}, {f}, 3, 3, {c}],"
        " maps=[[d0 + d3, d1 + d4, d5], [d3, d4, d5, d2]], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


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


def grouped(s: Sizes) -> str:
    g, c, f, w, k = s.of(1, 2, 3), s.of(1, 4, 16), s.narrow(), s.of(1, 6, 14, 17), s.of(1, 3)
    p = k // 2
    return lines(
        leaf("x", w, g, c), leaf("w", k, g, c, f), padded("a", "x", (p, 0, 0), (p, 0, 0)),
        f"y = generic(a, w, loops=[{w}, {g}, {f}, {k}, {c}],"
        " maps=[[d0 + d3, d1, d4], [d3, d1, d4, d2]], body=mul(x0, x1), combine=add, rank=3)",
        "return y",
    )  # fmt: skip


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
