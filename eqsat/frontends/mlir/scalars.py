"""Scalar ops of arith and math → body expressions; integers of MLIR have no sign, ops do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.frontends.primitives import SAME_NAME, integer_power
from eqsat.model.expr import BottomUp, Expr, call, cast, const, rebuilt
from eqsat.model.tensor import DTYPES, is_float

# numbers that a maxnum or minnum of NaN and x gives x; expanded when the body is whole
MAXNUM, MINNUM = "maxnum", "minnum"


@dataclass(frozen=True)
class Scalar:
    """One op of a body: its operands with their element types, its result type, its predicate."""

    args: tuple[Expr, ...]
    types: tuple[str, ...]
    result: str
    predicate: int = 0

    @property
    def is_bool(self) -> bool:
        return self.types[0] == "bool"


Meaning = Callable[[Scalar], "Expr | None"]


def _plain(fn: str) -> Meaning:
    return lambda s: call(fn, *s.args)


def _unsigned(fn: str) -> Meaning:
    """The function on the same bits without a sign."""

    def meaning(s: Scalar) -> Expr:
        if s.is_bool:
            return call(fn, *s.args)
        wide = unsigned(s.types[0])
        return cast(call(fn, *(cast(a, wide) for a in s.args)), s.result)

    return meaning


def unsigned(dtype: str) -> str:
    """The unsigned type that holds every bit of an integer type."""
    return f"u{DTYPES[dtype][0]}"


def _of_bools(on_bools: str, otherwise: str) -> Meaning:
    """Arithmetic of one bit is logic."""
    return lambda s: call(on_bools if s.is_bool else otherwise, *s.args)


# ---- comparison ----------------------------------------------------------------------------------
_INTEGER = ("eq", "ne", "lt", "le", "gt", "ge", "lt", "le", "gt", "ge")
_FIRST_UNSIGNED = 6  # predicates from here on compare without a sign
_ORDERED = {1: "eq", 2: "gt", 3: "ge", 4: "lt", 5: "le"}
_UNORDERED = {9: "le", 10: "lt", 11: "ge", 12: "gt", 13: "ne"}  # `ugt` is not `le`
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _cmpi(s: Scalar) -> Expr:
    fn = _INTEGER[s.predicate]
    if fn in ("eq", "ne"):
        return call(fn, *s.args)
    if s.is_bool:  # as a signed number, true is -1
        return call(fn if s.predicate >= _FIRST_UNSIGNED else _SWAPPED[fn], *s.args)
    if s.predicate < _FIRST_UNSIGNED:
        return call(fn, *s.args)
    return call(fn, *(cast(a, unsigned(s.types[0])) for a in s.args))


def _cmpf(s: Scalar) -> Expr:
    a, b = s.args
    p = s.predicate
    if p in (0, 15):
        return const(p == 15)
    if p in _ORDERED:
        return call(_ORDERED[p], a, b)
    if p == 13:
        return call("ne", a, b)
    if p in _UNORDERED:
        return call("not", call(_UNORDERED[p], a, b))
    unordered = call("or", call("ne", a, a), call("ne", b, b))
    if p == 14:
        return unordered
    if p == 7:
        return call("not", unordered)
    if p == 6:  # less or greater
        return call("or", call("lt", a, b), call("gt", a, b))
    return call("not", call("or", call("lt", a, b), call("gt", a, b)))  # equal or unordered


def _select(s: Scalar) -> Expr:
    """A choice of the larger that lets NaN through is `max`, as lowered relus write it."""
    condition, a, b = s.args
    if condition.fn == "not" and condition.args[0].args == (a, b):
        larger = {"le": "max", "lt": "max", "ge": "min", "gt": "min"}.get(condition.args[0].fn)
        if larger and b.fn == "const" and b.value == b.value:
            return call(larger, a, b)
    extremum = {"gt": "max", "ge": "max", "lt": "min", "le": "min"}.get(condition.fn)
    if extremum and condition.args == (a, b) and not is_float(s.result):
        return call(extremum, a, b)
    return call("select", condition, a, b)


# ---- casts ---------------------------------------------------------------------------------------
def _cast(s: Scalar) -> Expr:
    if s.types[0] == s.result:
        return s.args[0]
    return cast(s.args[0], s.result)


def _signed_cast(s: Scalar) -> Expr:
    """A one-bit true is -1 as a signed number."""
    return call("neg", cast(s.args[0], s.result)) if s.is_bool else _cast(s)


def _unsigned_cast(s: Scalar) -> Expr:
    if s.is_bool:
        return _cast(s)
    return cast(cast(s.args[0], unsigned(s.types[0])), s.result)


def _to_unsigned(s: Scalar) -> Expr:
    return cast(cast(s.args[0], unsigned(s.result)), s.result)


def _truncate(s: Scalar) -> Expr:
    if s.result == "bool":
        return call("ne", call("and", s.args[0], const(1)), const(0))
    return _cast(s)


# ---- the rest ------------------------------------------------------------------------------------
def _trunc(s: Scalar) -> Expr:
    (x,) = s.args
    return call("select", call("lt", x, const(0.0)), call("ceil", x), call("floor", x))


def _log_of(base: float) -> Meaning:
    return lambda s: call("mul", call("log", s.args[0]), const(1 / math.log(base)))


def _rounded_division(is_whole: str, step: str) -> Meaning:
    """The quotient towards zero, one further where it is not exact and the signs are not so."""

    def meaning(s: Scalar) -> Expr:
        a, b = s.args
        whole = call("div", a, b)
        exact = call("eq", call("mul", whole, b), a)
        truncates = call("or", exact, call(is_whole, call("xor", a, b), const(0)))
        return call("select", truncates, whole, call(step, whole, const(1)))

    return meaning


def _copysign(s: Scalar) -> Expr:
    x, sign = s.args
    size = call("abs", x)
    negative = call("lt", sign, const(0.0))
    return call("select", negative, call("neg", size), size)


def _integer_power(s: Scalar) -> Expr | None:
    """A constant exponent only: products by repeated squaring."""
    x, n = s.args
    if n.fn != "const" or abs(int(n.value)) > 64:
        return None
    return integer_power(x, int(n.value), is_float(s.result))


def _isnan(s: Scalar) -> Expr:
    return call("ne", s.args[0], s.args[0])


def _isinf(s: Scalar) -> Expr:
    return call("eq", call("abs", s.args[0]), const(math.inf))


def _fma(s: Scalar) -> Expr:
    return call("add", call("mul", s.args[0], s.args[1]), s.args[2])


def _clampf(s: Scalar) -> Expr:
    x, low, high = s.args
    return call("clamp", low, x, high)


SCALARS: dict[str, Meaning] = {f"math.{fn}": _plain(fn) for fn in SAME_NAME} | {
    "math.absf": _plain("abs"),
    "math.absi": _plain("abs"),
    "math.clampf": _clampf,
    "math.copysign": _copysign,
    "math.fma": _fma,
    "math.fpowi": _integer_power,
    "math.ipowi": _integer_power,
    "math.isfinite": _plain("is_finite"),
    "math.isinf": _isinf,
    "math.isnan": _isnan,
    "math.log10": _log_of(10),
    "math.log2": _log_of(2),
    "math.powf": _plain("pow"),
    "math.round": _plain("round_away"),
    "math.roundeven": _plain("round_even"),
    "math.trunc": _trunc,
    "arith.addf": _plain("add"),
    "arith.addi": _of_bools("xor", "add"),
    "arith.andi": _plain("and"),
    "arith.ceildivsi": _rounded_division("lt", "add"),
    "arith.cmpf": _cmpf,
    "arith.cmpi": _cmpi,
    "arith.divf": _plain("div"),
    "arith.divsi": _plain("div"),
    "arith.divui": _unsigned("div"),
    "arith.extf": _cast,
    "arith.extsi": _signed_cast,
    "arith.extui": _unsigned_cast,
    "arith.floordivsi": _rounded_division("ge", "sub"),
    "arith.fptosi": _cast,
    "arith.fptoui": _to_unsigned,
    "arith.index_cast": _signed_cast,
    "arith.index_castui": _unsigned_cast,
    "arith.maximumf": _plain("max"),
    "arith.maxnumf": _plain(MAXNUM),
    "arith.maxsi": _of_bools("and", "max"),
    "arith.maxui": _unsigned("max"),
    "arith.minimumf": _plain("min"),
    "arith.minnumf": _plain(MINNUM),
    "arith.minsi": _of_bools("or", "min"),
    "arith.minui": _unsigned("min"),
    "arith.mulf": _plain("mul"),
    "arith.muli": _of_bools("and", "mul"),
    "arith.negf": _plain("neg"),
    "arith.ori": _plain("or"),
    "arith.remf": _plain("rem"),
    "arith.remsi": _plain("rem"),
    "arith.remui": _unsigned("rem"),
    "arith.select": _select,
    "arith.shli": _plain("shift_left"),
    "arith.shrsi": _plain("shift_right_arithmetic"),
    "arith.shrui": _plain("shift_right_logical"),
    "arith.sitofp": _signed_cast,
    "arith.subf": _plain("sub"),
    "arith.subi": _of_bools("xor", "sub"),
    "arith.truncf": _cast,
    "arith.trunci": _truncate,
    "arith.uitofp": _unsigned_cast,
    "arith.xori": _plain("xor"),
}


def expanded(body: Expr) -> Expr:
    """The body with `maxnum` and `minnum` written out."""

    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        if e.fn not in (MAXNUM, MINNUM):
            return rebuilt(e, args)
        a, b = args
        other = call("select", call("ne", b, b), a, call("max" if e.fn == MAXNUM else "min", a, b))
        return call("select", call("ne", a, a), b, other)

    return BottomUp(step)(body)


def without_nan(x: Expr, combine: str) -> Expr:
    """x, or what `combine` (max or min) starts from where x is NaN."""
    start = -math.inf if combine == "max" else math.inf
    return call("select", call("ne", x, x), const(start), x)
