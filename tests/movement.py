"""What tests of movement rules share: random attributes and arrays, and ops done by NumPy.

Lanes that may hold anything are NaN, so a side that knows more, or less, than the other one shows:
two sides are one value only if they are defined on the same lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat.model.affine import Affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import Expr, arg, call, const
from eqsat.model.generic import Generic, Yield
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.movement.layout import Perm, make_layout
from eqsat.ops.movement.moves import concat_of, gather_of, pad_of, slice_of

Array = np.ndarray
SIZES = (1, 1, 2, 3, 4, 5, 6, 7, 8)


class Maker:
    """Random attributes and arrays, always the same ones."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one(self, *choices: object) -> object:
        return choices[self.int(0, len(choices) - 1)]

    def shape(self, low: int = 1, high: int = 4) -> Shape:
        return tuple(int(self.one(*SIZES)) for _ in range(self.int(low, high)))

    def perm(self, n: int) -> Perm:
        return tuple(int(p) for p in self.rng.permutation(n))

    def array(self, shape: Shape) -> Array:
        return self.rng.standard_normal(shape)

    def layout(self, source: Shape, pads: tuple[str, ...] = ("?", "0", "5")) -> Layout:
        pos = self.perm(len(source))[: self.int(1, len(source))]
        tiles = [int(self.one(1, 2, 2, 3, 4, 8)) for _ in pos]
        outer = self.perm(len(source)) if self.int(0, 1) else tuple(range(len(source)))
        own = [str(self.one(*pads)) for _ in pos]
        if self.int(0, 2):
            own = [own[0]] * len(pos)  # most real packs pad by one value
        return make_layout(source, pos, tiles, outer, own)

    def pad(self, source: Shape, step: int = 1) -> Move:
        low = [int(self.one(0, 0, 0, step, 2 * step)) for _ in source]
        high = [int(self.one(0, 0, 1, 2, step, 2 * step)) for _ in source]
        return pad_of(source, low, high, str(self.one("0", "0.0", "5")))

    def slice(self, source: Shape, strides: bool = True) -> Move:
        start, limit, stride = [], [], []
        for s in source:
            if self.int(0, 1):
                a, b = 0, s
            else:
                a = self.int(0, s - 1)
                b = self.int(a + 1, s)
            start.append(a)
            limit.append(b)
            stride.append(int(self.one(1, 1, 1, 2)) if strides else 1)
        return slice_of(source, start, limit, stride)

    def concat(self, operands: int, multiple: int = 1) -> Move:
        shape = self.shape()
        axis = self.int(0, len(shape) - 1)
        sources = [
            (*shape[:axis], self.int(1, 3) * multiple, *shape[axis + 1 :]) for _ in range(operands)
        ]
        return concat_of(sources, axis)

    def gather(self) -> Move:
        source = self.shape()
        return gather_of(source, self.shape(0, 2), self.int(0, len(source) - 1))

    def indices(self, gather: Move) -> Array:
        return self.rng.integers(0, gather.sources[0][gather.args[0]], gather.sources[1])

    def reshape(self) -> Reshape:
        """A shape and another one of the same elements, most of the time by whole groups."""
        source, target = [], []
        for _ in range(self.int(1, 3)):
            parts = [int(self.one(1, 2, 3, 4)) for _ in range(self.int(1, 3))]
            whole = [int(np.prod(parts))]
            a, b = (parts, whole) if self.int(0, 1) else (whole, parts)
            source += a
            target += b
        return Reshape(tuple(source), tuple(target))


def do(op: str, attr: Attr | None, *xs: Array) -> Array:
    """One op; None leaves its operand alone. The attribute has to fit its operands."""
    if attr is None:
        return xs[0]
    dtypes = ["f32" if x.dtype.kind == "f" else "i32" for x in xs]
    (t,) = attr.infer(op, tuple(TensorType(d, x.shape) for d, x in zip(dtypes, xs, strict=True)))
    (found,) = evaluate_node(op, attr, xs)
    assert found.shape == t.shape
    if op == "relax":  # forget what lies beyond the end
        assert isinstance(attr, Layout)
        open_lanes = evaluate_node("pack", attr, [np.zeros(attr.source)])[0]
        return np.where(np.isnan(open_lanes), np.nan, found)
    return found


def move(m: Move | None, *xs: Array) -> Array:
    return do(m.op if m else "", m, *xs)


def transpose(x: Array, perm: Perm | None) -> Array:
    return x if perm is None else do("transpose", Transpose(x.shape, perm), x)


def same(left: Array, right: Array) -> None:
    np.testing.assert_array_equal(left, right)


def close(left: Array, right: Array) -> None:
    """Sums may run in another order in the reference itself."""
    np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-11)


def cases(seed: int, count: int = 200) -> Iterator[Maker]:
    for i in range(count):
        yield Maker(seed * 100_000 + i)


class Count:
    """How often a function had an answer, and how often not."""

    def __init__(self) -> None:
        self.met = self.missed = 0

    def __call__(self, found: object) -> bool:
        if found is None:
            self.missed += 1
        else:
            self.met += 1
        return found is not None


# ---- constants and generics ----------------------------------------------------------------------
def fill_array(fill: Fill) -> Array:
    return evaluate_node("fill", fill, [])[0]


def a_fill(make: Maker, shape: Shape) -> Fill:
    return Fill(float(make.one(0.0, 5.0, -1.5)), TensorType("f32", shape))


BODIES = (
    arg(0),
    call("max", arg(0), const(0.0)),
    call("neg", arg(0)),
    call("exp", arg(0)),
    call("mul", arg(0), const(2.0)),
    call("add", arg(0), const(1.0)),
    call("add", arg(0), arg(1)),
    call("mul", arg(0), arg(1)),
    call("div", arg(0), arg(1)),
    call("tanh", call("sub", arg(0), arg(1))),
)


def a_generic(make: Maker, windows: bool = True) -> Generic:
    """Elementwise or reducing, over permuted, broadcast, strided or windowed operands."""
    sizes = make.shape(1, 4)
    rank = len(sizes) if make.int(0, 2) else make.int(0, len(sizes))
    body: Expr = make.one(*BODIES)  # type: ignore[assignment]
    maps, shapes = [], []
    for _ in range(len(body.operands())):
        loops = [d for d in make.perm(len(sizes)) if make.int(0, 4)]
        m, shape = [], []
        for d in loops:
            if windows and make.int(0, 5) == 0:
                e = make.int(0, len(sizes) - 1)
                m.append(Affine(((d, 2),)) if e == d else Affine(tuple(sorted([(d, 1), (e, 1)]))))
                shape.append(2 * sizes[d] - 1 if e == d else sizes[d] + sizes[e] - 1)
            else:
                m.append(dim(d))
                shape.append(sizes[d] + int(make.one(0, 0, 0, 0, 1)))
        maps.append(tuple(m))
        shapes.append(tuple(shape))
    combine = "" if rank == len(sizes) else str(make.one("add", "max", "min", "mul"))
    yields = (Yield(body, "f32", combine),)
    dtypes = ["f32"] * len(maps)
    return canonical_generic(
        sizes, range(rank), maps, shapes, yields, (), dtypes, precision="default"
    )
