"""Pieces of random nodes: extents, loop nests in the making, scalar bodies, what is around."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Attr, Shape
from eqsat.model.expr import Expr, arg, call, cast, const, read_literal
from eqsat.model.generic import Generic, Yield
from eqsat.model.tensor import DEFAULT, DTYPES, TensorType, is_float
from eqsat.ops.generics.canonical import canonical_generic
from eqsat.ops.meaning.scalar import FUNCTIONS, INTEGER_ONLY, integer_range

MOST_POINTS = 3000  # of an iteration domain: a hunt makes many small instances
DRAWN_DTYPES = ("f32",) * 12 + (
    "i32", "i32", "i8", "u8", "bool", "bool", "bf16", "f16", "f64", "i64", "u32", "i16", "i4",
    "f8e5m2",
)  # fmt: skip


# what most generics of an instance are; epilogue: elementwise ops on contractions, prologue: before
THEMES = ("",) * 4 + ("contraction", "contraction", "elementwise", "window", "epilogue", "prologue")


class Misfit(Exception):
    """Raised where a proposal cannot fit what is known; another one may."""


@dataclass(frozen=True)
class Scale:
    """How large an instance may become, and what it is mostly made of.

    Smaller ones are tried when a failure is shrunk. kind: the kind of most generics; dtype: of
    most elements; is_plain: bodies are mostly one function.
    """

    rank: int = 4
    dim: int = 8
    points: int = MOST_POINTS
    kind: str = ""
    dtype: str = ""
    is_plain: bool = False

    def themed(self, rng: Random) -> Scale:
        """Often of one kind: rules match several ops that must go together."""
        kind = rng.choice(THEMES)
        dtype = pick_dtype(rng) if rng.random() < 0.6 else ""
        return replace(self, kind=kind, dtype=dtype, is_plain=rng.random() < 0.4)

    def element(self, rng: Random) -> str:
        return self.dtype if self.dtype and rng.random() < 0.9 else pick_dtype(rng)

    def extent(self, rng: Random) -> int:
        return min(self.dim, rng.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 8)))

    def shape(self, rng: Random, most: int | None = None) -> Shape:
        ranks = [r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4) if r <= min(self.rank, most or self.rank)]
        return tuple(self.extent(rng) for _ in range(rng.choice(ranks)))


@dataclass
class Loopnest:
    """A loop nest in the making: the result's loops first, reductions behind them."""

    rng: Random
    scale: Scale
    sizes: list[int]
    rank: int
    may_reduce: bool = False
    most_reductions: int = 2
    maps: list[Map] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    def reduction(self, size: int | None = None) -> int:
        """A new reduction loop; Misfit if there are enough of them."""
        if not self.may_reduce or len(self.sizes) - self.rank >= self.most_reductions:
            raise Misfit
        self.sizes.append(self.scale.extent(self.rng) if size is None else size)
        return len(self.sizes) - 1

    def read(self, shape: Shape | None, loops: Sequence[int] | None = None) -> None:
        """Add an operand: of this shape, or of any shape that some of `loops` index."""
        if shape is not None:
            m = tuple(self._fitted(shape))
        else:
            m = self._free(list(range(len(self.sizes)) if loops is None else loops))
            shape = tuple(self.extent(e) for e in m)
        self.maps.append(m)
        self.shapes.append(shape)

    def _free(self, loops: list[int]) -> Map:
        rng = self.rng
        choice = rng.random()
        if choice < 0.25:
            rng.shuffle(loops)
        if 0.15 < choice < 0.45:
            loops = [d for d in loops if rng.random() < 0.6]
        m = [dim(d) for d in loops]
        if choice > 0.94:
            m.insert(rng.randint(0, len(m)), Affine((), 0))
        if 0.90 < choice < 0.94 and m:  # a window of a larger operand
            at = rng.randrange(len(m))
            m[at] = affine([(loops[at], rng.randint(1, 2))], rng.randint(0, 2))
        return tuple(m)

    def extent(self, e: Affine) -> int:
        reach = e.constant + sum(s * (self.sizes[d] - 1) for d, s in e.terms)
        slack = self.rng.choice((0, 0, 1)) if e.dim is None and e.terms else 0
        return reach + 1 + slack

    def _fitted(self, shape: Shape) -> list[Affine]:
        """Each dim of a known operand read by a loop of its own, of its size if there is one."""
        used: set[int] = set()
        exprs: list[Affine] = []
        for s in shape:
            free = [d for d in range(len(self.sizes)) if d not in used]
            same = [d for d in free if self.sizes[d] == s]
            if same:
                at = same[0] if self.rng.random() < 0.7 else self.rng.choice(same)
            elif s == 1 and self.rng.random() < 0.8:
                exprs.append(Affine((), 0))
                continue
            else:
                at = self.reduction(s)
            used.add(at)
            exprs.append(dim(at))
        return exprs

    def generic(self, yields: Sequence[Yield], dtypes: Sequence[str]) -> Generic:
        if math.prod(self.sizes) > self.scale.points:
            raise Misfit
        return canonical_generic(
            self.sizes, range(self.rank), self.maps, self.shapes, yields, (), dtypes,
            precision=DEFAULT,
        )  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """Constraints on a generic: its operands, and the type of its result number `index`."""

    rng: Random
    scale: Scale
    operands: tuple[TensorType | None, ...]
    result: TensorType | None
    index: int = 0
    results: int = 1

    def shape(self, i: int) -> Shape | None:
        operand = self.operands[i]
        return None if operand is None else operand.shape

    def dtypes(self, most: str) -> list[str]:
        """Types of the operands: the known ones, mostly `most` for the others."""
        return [self._dtype(most) if t is None else t.dtype for t in self.operands]

    def _dtype(self, most: str) -> str:
        return most if self.rng.random() < 0.85 else self.scale.element(self.rng)

    def dtype(self) -> str:
        """The type of the result: the wished one, that of an operand, or any."""
        if self.result is not None:
            return self.result.dtype
        dtypes = [t.dtype for t in self.operands if t is not None]
        return self.rng.choice(dtypes) if dtypes else self.scale.element(self.rng)

    def nest(self, may_reduce: bool = False, most: int | None = None) -> Loopnest:
        loops = list(self._loops(most) if self.result is None else self.result.shape)
        return Loopnest(self.rng, self.scale, loops, len(loops), may_reduce)

    def _loops(self, most: int | None) -> Shape:
        """Result loops when nothing is wished: those of a known operand, or any."""
        shapes = [t.shape for t in self.operands if t is not None]
        if not shapes or self.rng.random() < 0.05:
            return self.scale.shape(self.rng, most)
        base = list(max(shapes, key=len))
        if self.rng.random() < 0.2:
            self.rng.shuffle(base)
        if self.rng.random() < 0.2:
            base.insert(self.rng.randint(0, len(base)), self.scale.extent(self.rng))
        return tuple(base)


def pick_dtype(rng: Random) -> str:
    return rng.choice(DRAWN_DTYPES)


_FLOAT_ONLY = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan",
        "tanh", "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh",
        "logistic", "erf", "erfc", "erf_inv", "floor", "ceil", "round_even", "round_away",
        "is_finite", "nextafter",
    }
)  # fmt: skip
# exact on whatever they get: a sum over them may be taken in any order while values stay small
EXACT = frozenset(
    {
        "arg", "const", "cast", "add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor",
        "ceil", "round_even", "round_away", "select", "clamp", "eq", "ne", "lt", "le", "gt", "ge",
        "and", "or", "xor", "not", "is_finite",
    }
)  # fmt: skip
_BOOL_RESULT = tuple(f.name for f in FUNCTIONS.values() if f.result == "bool")
_SHIFTS = ("shift_left", "shift_right_arithmetic", "shift_right_logical")
_BY_KIND: dict[str, tuple[str, ...]] = {
    "f": tuple(n for n, f in FUNCTIONS.items() if n not in INTEGER_ONLY and n not in _BOOL_RESULT),
    "i": tuple(n for n in FUNCTIONS if n not in _FLOAT_ONLY and n not in (*_BOOL_RESULT, *_SHIFTS)),
    "b": ("and", "or", "xor", "not", "select", *_BOOL_RESULT),
}
# what programs are mostly made of
_COMMON: dict[str, tuple[str, ...]] = {
    "f": ("add", "sub", "mul", "div", "max", "min", "neg", "exp", "tanh", "abs"),
    "i": ("add", "sub", "mul", "max", "min", "neg", "div", "rem", "and", "or"),
    "b": ("and", "or", "not", "lt", "eq"),
}
_CONSTANTS: dict[str, tuple[bool | int | float, ...]] = {
    "f": (0.0, 1.0, 2.0, -1.0, 0.5, 3.0, float("-inf")),
    "i": (0, 1, 2, 3, 7),
    "b": (False, True),
}


def kind_of(dtype: str) -> str:
    """f, i (signed or not) or b."""
    return DTYPES[dtype][1].replace("u", "i")


def random_body(
    rng: Random, operands: Sequence[str], dtype: str, *, is_exact: bool = False
) -> Expr:
    """An expression of type `dtype` that reads every operand; `operands` are their types.

    is_exact: only functions that float64 computes without rounding, on small whole numbers.
    """
    order = list(range(len(operands)))
    if not order:
        return _constant(rng, dtype)
    expr = _as(rng, arg(order[0]), operands[order[0]], dtype)
    if rng.random() < 0.5:
        expr = _wrap(rng, expr, dtype, is_exact)
    for i in order[1:]:
        expr = _join(rng, expr, _as(rng, arg(i), operands[i], dtype), dtype, is_exact)
    if rng.random() < 0.3:
        expr = _wrap(rng, expr, dtype, is_exact)
    return expr


def is_exact(body: Expr) -> bool:
    """Whether float64 computes the body without rounding on small whole numbers."""
    return all(e.fn in EXACT for e in body.walk())


def _as(rng: Random, expr: Expr, have: str, want: str) -> Expr:
    """The value in another element type: a cast, or a comparison for a bool."""
    if have == want:
        return expr
    if want == "bool" and rng.random() < 0.5:
        return call(rng.choice(("lt", "ge", "ne")), expr, _constant(rng, have))
    return cast(expr, want)


def _constant(rng: Random, dtype: str) -> Expr:
    value = rng.choice(_CONSTANTS[kind_of(dtype)][: 4 if rng.random() < 0.9 else None])
    return const(value)


def _pick(rng: Random, dtype: str, arity: int, is_exact: bool) -> str:
    kind = kind_of(dtype)
    names = (_COMMON if rng.random() < 0.6 else _BY_KIND)[kind]
    fit = [n for n in names if FUNCTIONS[n].arity == arity and (not is_exact or n in EXACT)]
    return rng.choice(fit or ["neg" if kind != "b" else "not"])


def _wrap(rng: Random, expr: Expr, dtype: str, is_exact: bool) -> Expr:
    """One more function around a value: f(x), f(x, constant), select, or a cast there and back."""
    kind = kind_of(dtype)
    choice = rng.random()
    if choice < 0.1 and kind != "b":
        other = rng.choice(("f32", "i32", "f16") if kind == "f" else ("i32", "i8", "i64"))
        return cast(cast(expr, other), dtype)
    if choice < 0.45:
        name = _pick(rng, dtype, 1, is_exact)
        return _compared(rng, name, expr, dtype) if kind == "b" else call(name, expr)
    if choice < 0.5 and kind != "b":
        return call("clamp", const(_CONSTANTS[kind][0]), expr, const(_CONSTANTS[kind][2]))
    if choice < 0.55 and kind == "i":  # by less than the width: more is undefined
        return call(rng.choice(_SHIFTS), expr, const(rng.randint(1, 3)))
    if choice < 0.6 and kind != "b":
        test = call(rng.choice(("gt", "lt", "eq")), expr, _constant(rng, dtype))
        return call("select", test, *rng.sample([expr, _constant(rng, dtype)], 2))
    return _join(rng, expr, _constant(rng, dtype), dtype, is_exact)


def _join(rng: Random, a: Expr, b: Expr, dtype: str, is_exact: bool) -> Expr:
    name = _pick(rng, dtype, 2, is_exact)
    if kind_of(dtype) != "b":
        return call(name, *((a, b) if rng.random() < 0.7 else (b, a)))
    return call(name, a, b) if name in ("and", "or", "xor") else _compared(rng, name, a, dtype, b)


def _compared(rng: Random, name: str, a: Expr, dtype: str, b: Expr | None = None) -> Expr:
    """A function that gives a bool, of bools: comparisons are made on integers."""
    if name == "not":
        return call("not", a if b is None else call("or", a, b))
    right = b if b is not None else _constant(rng, dtype)
    if name == "is_finite":
        return call("and", call("is_finite", cast(a, "f32")), right)
    return call(name, cast(a, "i32"), cast(right, "i32"))


def reduction_body(rng: Random, operands: Sequence[str], dtype: str, combine: str) -> Expr:
    """A body under a reduction: what is added up or multiplied stays exact."""
    if combine in ("max", "min", "and", "or") or not is_float(dtype):
        return random_body(rng, operands, dtype)
    return random_body(rng, operands, dtype, is_exact=True)


Ints = tuple[int, ...]
OMITTED = "default"  # of a layout's field that a pattern leaves out
PADS: dict[str, tuple[str, ...]] = {
    "f": ("1.0", "-inf", "inf", "-1.0"),
    "i": ("1", "2"),
    "b": ("true",),
}


@dataclass(frozen=True)
class Surroundings:
    """Constraints on a node: operands, result, fields that are fixed, attributes near by."""

    rng: Random
    scale: Scale
    operands: tuple[TensorType | None, ...]
    result: TensorType | None
    element: str  # type of the elements, where no operand and no result says it
    fixed: Mapping[str, Any] = field(default_factory=dict)
    near: Sequence[Attr] = ()

    @property
    def source(self) -> Shape | None:
        """The shape of the only operand."""
        operand = self.operands[0] if self.operands else None
        return None if operand is None else operand.shape

    @property
    def shape(self) -> Shape | None:
        return None if self.result is None else self.result.shape

    @property
    def dtype(self) -> str:
        typed = next((t for t in (self.result, *self.operands[:1]) if t is not None), None)
        return self.element if typed is None else typed.dtype

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def relatives(self, kind: type[Attr]) -> list[Any]:
        return [a for a in self.near if isinstance(a, kind)]

    def any_shape(self, least: int = 0) -> Shape:
        """A random shape of at least this rank."""
        shape = list(self.scale.shape(self.rng))
        while len(shape) < least:
            shape.append(self.scale.extent(self.rng))
        return tuple(shape)


def can_hold(dtype: str, text: str) -> bool:
    """Whether an element type has this value."""
    value, kind = read_literal(text), kind_of(dtype)
    if kind == "f":
        return not isinstance(value, bool)
    low, high = (0, 1) if kind == "b" else integer_range(dtype)
    return math.isfinite(value) and value == int(value) and low <= value <= high
