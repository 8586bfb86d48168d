"""Rounding error of a program's results: a limit before it runs, and an estimate after.

Unit roundoff u of a type with p significant bits is 2^-p (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., §2.1); products in fewer bits have that of their operands' bits.

`error_limit` follows from element types, precisions and reduction lengths alone, for results that
lose no digits to cancellation. `Noise` says what those roundings do to the elements at hand: the
float64 reference is evaluated again with every rounding moved at random (Monte Carlo arithmetic:
Parker 1997; stochastic estimates of rounding error: Vignes 1993), so that conditioning, ties,
overflow and jumps show where they are, and nowhere else.

A sum of n terms in any order is off by about u·√n times its size, the size being the 2-norm of
its terms or the sum itself (Higham and Mary 2019, probabilistic error bounds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.execute.compare import distance
from eqsat.execute.reference import OpaqueFunctions
from eqsat.model.control import SCAN, Control, every_program
from eqsat.model.expr import Expr, call, walk_all
from eqsat.model.generic import Generic, Yield
from eqsat.model.leaves import Custom, Opaque
from eqsat.model.program import Node, Program
from eqsat.model.tensor import (
    ALGORITHMS,
    DTYPES,
    NO_INFINITY,
    NO_NAN,
    NO_ZERO,
    NONE,
    SIGNIFICAND,
    is_float,
    significand_bits,
)
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.programs import evaluate_node
from eqsat.ops.meaning.structured import evaluate_generic, product_factors


@dataclass(frozen=True)
class Rounding:
    """u: unit roundoff. tiny: below it, rounding moves a value by up to `step`, whatever its size
    (gradual underflow, or a flush to zero). most: the largest finite value."""

    u: float
    tiny: float
    step: float
    most: float


def _format(dtype: str, low: int, most: float, flushes: bool = False) -> Rounding:
    """low: exponent of the smallest normal value."""
    tiny, u = 2.0**low, 2.0 ** -SIGNIFICAND[dtype]
    return Rounding(u, tiny, tiny if flushes else tiny * u, most)


# XLA flushes subnormals of f32, and computes bf16 in it
FORMATS: dict[str, Rounding] = {
    "f64": _format("f64", -1022, float("inf"), flushes=True),
    "f32": _format("f32", -126, (2 - 2.0**-23) * 2.0**127, flushes=True),
    "bf16": _format("bf16", -126, (2 - 2.0**-7) * 2.0**127, flushes=True),
    "f16": _format("f16", -14, 65504.0),
    "f8e4m3fn": _format("f8e4m3fn", -6, 448.0),
    "f8e5m2": _format("f8e5m2", -14, 57344.0),
    "f8e4m3fnuz": _format("f8e4m3fnuz", -7, 240.0),
    "f8e5m2fnuz": _format("f8e5m2fnuz", -15, 57344.0),
    "f8e8m0fnu": _format("f8e8m0fnu", -127, 2.0**127),
    "f6e2m3fn": _format("f6e2m3fn", 0, 7.5),
    "f6e3m2fn": _format("f6e3m2fn", -2, 28.0),
    "f4e2m1fn": _format("f4e2m1fn", 0, 6.0),
}
EXACT_U = 2.0**-40  # of float64 sums in any order, and of constants written to a dozen digits

# roundings of one evaluation, where XLA's functions are no better than that; others are rounded
# once. Its elementary functions are polynomials with errors of a few units in the last place.
ULPS = dict.fromkeys(
    ("exp", "exp2", "log", "log1p", "expm1", "cbrt", "tanh", "logistic", "sin", "cos", "atan"), 4
) | dict.fromkeys(
    ("pow", "tan", "sinh", "cosh", "asin", "acos", "atan2", "asinh", "acosh", "atanh", "erf"), 8
) | {"erfc": 16, "erf_inv": 16, "rsqrt": 2}  # fmt: skip
# functions whose result is an operand, or a whole number: nothing is rounded
UNROUNDED = frozenset(
    {
        "neg", "abs", "sign", "max", "min", "clamp", "select", "floor", "ceil", "round_even",
        "round_away", "rem", "nextafter", "and", "or", "xor", "not",
    }
)  # fmt: skip


def product_u(g: Generic, platform: str) -> float:
    """Unit roundoff of what a platform rounds the operands of a contraction to; 0 if it does not.

    XLA:CPU computes every precision in the operands' own type.
    """
    if g.precision == NONE or platform == "cpu":
        return 0.0
    wide = g.yields[0].dtype
    operands = [d for d in g.dtypes if d in SIGNIFICAND]
    left = {d: significand_bits(g.precision, _wider(d, wide), platform) for d in operands}
    return max((2.0**-bits for d, bits in left.items() if bits < SIGNIFICAND[d]), default=0.0)


def _wider(a: str, b: str) -> str:
    return max(a, b, key=lambda d: SIGNIFICAND[d])


def sum_u(g: Generic, dtype: str, platform: str) -> float:
    """Unit roundoff of the additions of a sum: XLA adds narrow floats as f32, but in steps over a
    window, and as an algorithm says."""
    unit = FORMATS[dtype].u
    if g.precision in ALGORITHMS and platform != "cpu":
        return FORMATS[ALGORITHMS[g.precision].accumulator or dtype].u
    has_window = any(len(e.terms) > 1 for m in g.maps for e in m)
    return unit if has_window else min(unit, FORMATS["f32"].u)


Array = np.ndarray[Any, Any]
FOREIGN_ULPS = 8  # of an op whose inside is unknown
HEADROOM = 4.0  # errors are about normal: four deviations, and the noise says the rest
LARGEST_MOVE = 2.0**-6  # relative; more is no rounding any more
AMPLITUDE = 16.0  # roundings that `Noise` moves a value by at most


# ---- before it runs ------------------------------------------------------------------------------
def error_limit(program: Program, platform: str = "cpu", *, exact: bool = False) -> float:
    """max|a − b| / max|b| that roundings alone explain where no digits cancel; 0 without any.

    Roundings along the worst path add up as a random walk. exact: of float64 arithmetic.
    """
    limits = error_limits(program, platform, exact=exact)
    return max((limits[r] for r in program.results), default=0.0)


def error_limits(program: Program, platform: str = "cpu", *, exact: bool = False) -> list[float]:
    """`error_limit` of every value of a program."""
    return [HEADROOM * math.sqrt(s) for s in _squared(program, platform, exact)]


def _squared(program: Program, platform: str, exact: bool) -> list[float]:
    squares: list[float] = []
    for node in program.nodes:
        before = max((squares[o] for o in node.operands), default=0.0)
        squares.append(before + _node_variance(node, platform, exact))
    return squares


def _node_variance(node: Node, platform: str, exact: bool) -> float:
    attr = node.attr
    if isinstance(attr, Generic):
        return max(_yield_squared(attr, y, platform, exact) for y in attr.yields)
    if isinstance(attr, Opaque | Custom):
        return max(((FOREIGN_ULPS * _u(t.dtype, exact)) ** 2 for t in node.types), default=0.0)
    if isinstance(attr, Control):
        trips = attr.length if attr.op == SCAN else 1
        inner = (
            max((_squared(p, platform, exact)[r] for r in p.results), default=0.0)
            for p in attr.bodies
        )
        return max(1, trips) * max(inner, default=0.0)
    return 0.0


def _yield_squared(g: Generic, y: Yield, platform: str, exact: bool) -> float:
    kinds = types_of([y.body], g.dtypes)
    total = sum((roundings(e, kinds, exact) * _u(kinds[e] or y.dtype, exact)) ** 2 for e in kinds)
    if y.combine in ("add", "mul") and is_float(y.dtype):
        total += (_sum_u(g, y.dtype, platform, exact) ** 2) * length(g) + _u(y.dtype, exact) ** 2
    if not exact:
        total += 2 * product_u(g, platform) ** 2
    return total


def types_of(bodies: Sequence[Expr], dtypes: Sequence[str]) -> dict[Expr, str | None]:
    """Every distinct part of bodies, and its element type."""
    typed = scalar.typing(dtypes)
    return {e: typed(e) for e in walk_all(bodies)}


def roundings(e: Expr, kinds: dict[Expr, str | None], exact: bool = False) -> float:
    """How many roundings of its type one evaluation of an expression's root amounts to."""
    kind = kinds[e]
    if kind is None or not is_float(kind) or e.fn in UNROUNDED or e.fn in ("arg", "const"):
        return 0.0
    if e.fn == "cast":
        given = kinds[e.args[0]]
        return 0.0 if exact or given is None or _holds(kind, given) else 1.0
    # narrow floats are computed in f32 and rounded once
    return float(ULPS.get(e.fn, 1)) if kind in ("f32", "f64") else 1.0


def _holds(wide: str, narrow: str) -> bool:
    """Whether a floating type has every value of another type."""
    if is_float(narrow):
        return FORMATS[wide].u <= FORMATS[narrow].u and FORMATS[wide].most >= FORMATS[narrow].most
    bits, kind = DTYPES[narrow]
    return kind == "b" or 2.0**-bits >= FORMATS[wide].u


def length(g: Generic) -> int:
    """Terms of one sum."""
    return math.prod(g.sizes[d] for d in g.reductions)


def _u(dtype: str, exact: bool) -> float:
    if dtype not in FORMATS:
        return 0.0
    return EXACT_U if exact else FORMATS[dtype].u


def _sum_u(g: Generic, dtype: str, platform: str, exact: bool) -> float:
    return EXACT_U if exact else sum_u(g, dtype, platform)


# ---- after it ran --------------------------------------------------------------------------------
def shortfall(program: Program, *, exact: bool = False) -> float:
    """Factor of `Noise`: values of narrow types move by fewer roundings."""
    if exact:
        return 1.0
    nodes = (n for p in every_program(program) for n in p.nodes)
    used = {d for n in nodes for d in _floats(n)}
    moves = [_step(FORMATS[d].u) / FORMATS[d].u for d in used]
    return math.sqrt(AMPLITUDE / min(moves, default=AMPLITUDE))


def _floats(node: Node) -> set[str]:
    """The floating types that an op rounds to."""
    types = {t.dtype for t in node.types}
    if isinstance(node.attr, Generic):
        kinds = types_of([y.body for y in node.attr.yields], node.attr.dtypes)
        types |= {d for d in kinds.values() if d is not None}
    return {d for d in types if is_float(d)}


def _step(u: float) -> float:
    """How far a value moves, relative to it."""
    return min(AMPLITUDE * u, max(LARGEST_MOVE, u))


def moves(
    program: Program,
    evaluate: Callable[[Noise], Sequence[Array]],
    wanted: Sequence[Array],
    seed: Any,
    platform: str = "cpu",
    *,
    exact: bool = False,
) -> list[Array]:
    """Per result, how far a pair of noisy evaluations moves each element from `wanted`.

    evaluate: the reference of `program` with these ops. inf where an element becomes, or no longer
    is, NaN or infinite.
    """
    factor = shortfall(program, exact=exact)
    distances = [np.zeros(np.shape(w)) for w in wanted]
    for sign in (1.0, -1.0):
        moved = evaluate(Noise(seed, sign, platform, exact=exact))
        by = (factor * distance(a, b) for a, b in zip(moved, wanted, strict=True))
        distances = [np.maximum(f, d) for f, d in zip(distances, by, strict=True)]
    return distances


class Noise:
    """Evaluates ops with every rounding moved by up to `AMPLITUDE` times its unit, at random.

    Two of one `seed` and opposite `sign` are moved the opposite way, so that one of them steps
    over a tie. exact: the roundings of float64, for what is equal but for the order of sums.
    """

    def __init__(self, seed: Any, sign: float, platform: str, *, exact: bool = False):
        self.rng = np.random.default_rng(seed)
        self.sign = sign
        self.platform = platform
        self.exact = exact

    def __call__(
        self, node: Node, operands: Sequence[Array], opaque: OpaqueFunctions
    ) -> list[Array]:
        """The results of one op (an `execute.reference.Ops`)."""
        attr = node.attr
        if isinstance(attr, Generic):
            return self._generic(attr, operands)
        results = evaluate_node(node.op, attr, operands, opaque)
        if not isinstance(attr, Opaque | Custom):
            return results
        return [
            self.rounded(x, t.dtype, FOREIGN_ULPS) for x, t in zip(results, node.types, strict=True)
        ]

    def _generic(self, g: Generic, operands: Sequence[Array]) -> list[Array]:
        u = 0.0 if self.exact else product_u(g, self.platform)

        def bodies(es: Sequence[Expr], xs: Sequence[Array]) -> list[Array]:
            values = self._bodies(es, xs, g.dtypes)
            return [self._moved(x, u, np.abs(x)) for x in values] if u else values

        results = evaluate_generic(g, operands, bodies=bodies)
        if not math.prod(g.sizes):
            return results
        return [
            self._summed(g, y, x, operands) if y.combine in ("add", "mul") else x
            for y, x in zip(g.yields, results, strict=True)
        ]

    def _summed(self, g: Generic, y: Yield, total: Array, operands: Sequence[Array]) -> Array:
        """A reduction with the roundings of its steps."""
        if not is_float(y.dtype):
            return total
        size, u = np.abs(total), _sum_u(g, y.dtype, self.platform, self.exact)
        if y.combine == "add" and length(g) > 1:
            squares = evaluate_generic(_of_squares(g, y), operands)[0]
            with np.errstate(all="ignore"):
                size = np.sqrt(squares + total * total)
        moved = self._moved(total, u * math.sqrt(length(g)), size)
        return self.rounded(moved, y.dtype, 1.0)

    def _bodies(
        self, bodies: Sequence[Expr], operands: Sequence[Array], dtypes: Sequence[str]
    ) -> list[Array]:
        kinds = types_of(bodies, dtypes)

        def step(e: Expr, values: Sequence[Any]) -> Any:
            value, kind = scalar.called(e, values, operands), kinds[e]
            count = roundings(e, kinds, self.exact)
            return self.rounded(value, kind, count) if count and kind else value

        return scalar.computed(bodies, step)

    def rounded(self, x: Array, dtype: str, count: float) -> Array:
        """The value after `count` roundings to an element type; infinite beyond its range."""
        if not is_float(dtype):
            return x
        form = FORMATS[dtype]
        size = np.abs(x)
        result = self._moved(x, _u(dtype, self.exact) * count, size)
        if self.exact:
            return result
        return _ranged(result, x, form, self._uniform(x.shape), dtype)

    def _moved(self, x: Array, u: float, size: Array) -> Array:
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(size), size, 0.0)
            return x + finite * (self._uniform(x.shape) * _step(u))

    def _uniform(self, shape: Sequence[int]) -> Array:
        drawn = self.rng.random(shape, dtype=np.float32)
        return (drawn - np.float32(0.5)) * np.float32(2 * self.sign)


def _ranged(rounded: Array, x: Array, form: Any, drawn: Array, dtype: str) -> Array:
    """Underflow by a step of the type, overflow to infinity or what the type has for it."""
    with np.errstate(all="ignore"):
        small = (np.abs(x) < form.tiny) & (x != 0)
        if small.any():
            low = x + form.step * drawn
            low = np.where(np.sign(low) == np.sign(x), low, 0.0)
            rounded = np.where(small, low, rounded)
        beyond = np.abs(rounded) > form.most
        if beyond.any():
            rounded = np.where(
                beyond & np.isfinite(rounded), _beyond(rounded, form.most, dtype), rounded
            )
        if dtype in NO_ZERO:
            rounded = np.where(x > 0, rounded, np.nan)
    return rounded


def _beyond(x: Array, most: float, dtype: str) -> Array:
    """Result of overflow: a value that is too large for a type."""
    if dtype in NO_NAN:
        return np.copysign(most, x)
    return np.full_like(x, np.nan) if dtype in NO_INFINITY else np.copysign(np.inf, x)


def _of_squares(g: Generic, y: Yield) -> Generic:
    """The sum of the squares of the terms, as fast as the sum."""
    factors = product_factors(g)
    if factors is None:
        body = call("mul", y.body, y.body)
    else:
        body = call("mul", *(call("mul", f, f) for f in factors))
    return replace(g, yields=(Yield(body, "f64", "add"),))
