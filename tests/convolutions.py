"""Convolutions with their pads as nests, of any layout and groups, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from contracted import PRODUCT, RESULT, A, B

from eqsat.model.expr import arg, call, const
from eqsat.model.nest import Access, Bound, Nest, Stage, Store

ORDERS = {"NHWC": "nhwgc", "NCHW": "ngchw"}  # of images; g: groups, c: channels of one


@dataclass(frozen=True)
class Convolution:
    """groups: as many as channels is depthwise (one feature each); the window is k x k.

    images: their layout, and of the result; taps: the order of weights' dims, `f` features.
    relu: applied to what is read, before the pads.
    """

    n: int = 1
    h: int = 9
    w: int = 9
    channels: int = 4
    features: int = 8
    k: int = 3
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    low: int = 1
    high: int = 1
    images: str = "NHWC"
    taps: str = "hwcgf"
    relu: bool = False

    @property
    def out(self):
        reach = self.dilation * (self.k - 1) + 1
        return tuple(
            (x + self.low + self.high - reach) // self.stride + 1 for x in (self.h, self.w)
        )

    @property
    def is_depthwise(self):
        return self.groups == self.channels == self.features

    def sizes(self):
        """Extents of the letters of ORDERS: of images, of results and of weights."""
        c, f = self.channels // self.groups, self.features // self.groups
        image = {"n": self.n, "g": self.groups, "c": c, "h": self.h, "w": self.w}
        result = image | {"c": f} | dict(zip("hw", self.out, strict=True))
        return image, result, {"h": self.k, "w": self.k, "g": self.groups, "c": c, "f": f}

    def nest(self):
        """Loops: the result's in the order of its layout, then c (if there are several), kh, kw."""
        image, result, weight = self.sizes()
        order = ORDERS[self.images]
        x, y = dense(order, image), dense(order, result)
        w = dense(self.taps, weight)
        names = [*order, "k", "kh", "kw"]
        sizes = [*(result[i] for i in order), weight["c"], self.k, self.k]
        read = {i: x[i] * (self.stride if i in "hw" else 1) for i in "nghw"}
        read |= {"k": x["c"], "kh": x["h"] * self.dilation, "kw": x["w"] * self.dilation}
        taps = {"g": w["g"], "c": w["f"], "k": w["c"], "kh": w["h"], "kw": w["w"]}

        def over(strides):
            return tuple(
                strides.get(i, 0) if n > 1 else 0 for i, n in zip(names, sizes, strict=True)
            )

        bounds = tuple(
            Bound(over({i: self.stride, f"k{i}": self.dilation}), -self.low, image[i]) for i in "hw"
        )
        base = -self.low * (x["h"] + x["w"])
        loops, reduced = tuple(range(5)), (5, 6, 7)
        image_read = Access(A, "f32", over(read), base, () if self.relu else bounds, 0.0)
        stages = []
        if self.relu:
            every = tuple(range(8))
            one = Stage(4, every, call("max", arg(0), const(0.0)), (image_read,), "f32")
            stages = [one, Stage(5, every, arg(0), (0,), "f32", bounds=bounds)]
        product = (1 if self.relu else image_read, Access(B, "f32", over(taps)))
        stages.append(Stage(3, loops, PRODUCT, product, "f32", "add", reduced))
        written = Access(RESULT, "f32", over({i: y[i] for i in order}))
        return Nest(tuple(sizes), tuple(stages), (Store(written, len(stages) - 1, loops),))

    def operands(self, rng):
        """The image and the weights, each with its dims in the order of its letters."""
        image, _, weight = self.sizes()
        shapes = [image[i] for i in ORDERS[self.images]], [weight[i] for i in self.taps]
        return [rng.standard_normal(s).astype(np.float32) for s in shapes]

    @property
    def shape(self):
        return tuple(self.sizes()[1][i] for i in ORDERS[self.images])

    def expected(self, x, w):
        """In float64, of the result's shape."""
        order = ORDERS[self.images]
        x = np.einsum(f"{order}->nghwc", x.astype(np.float64))
        x = np.maximum(x, 0) if self.relu else x
        edge = (self.low, self.high)
        x = np.pad(x, ((0, 0), (0, 0), edge, edge, (0, 0)))
        w = np.einsum(f"{self.taps}->hwgcf", w.astype(np.float64))
        total = 0.0
        for i in range(self.k):
            for j in range(self.k):
                rows, columns = (
                    slice(t * self.dilation, t * self.dilation + self.stride * n, self.stride)
                    for t, n in zip((i, j), self.out, strict=True)
                )
                total = total + np.einsum(
                    "nghwc,gcf->nghwf", x[:, :, rows, columns][:, :, : self.out[0], : self.out[1]],
                    w[i, j],
                )  # fmt: skip
        return np.einsum(f"nghwc->{order}", total)


def dense(order, extents):
    """Strides of a dense buffer's dims, by letter."""
    steps, step = {}, 1
    for letter in reversed(order):
        steps[letter] = step
        step *= extents[letter]
    return steps
