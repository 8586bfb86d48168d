"""Bodies as vector code: which functions have any, and what they cost.

Costs are in additions of whole vectors, measured with 16 lanes of f32 in the nearest cache on an
AMD Zen 4; 8 lanes give the same within a third. Functions without an entry cost 1. Parts that recur
count once. (`ops.meaning.scalar.cost` is that of XLA's code.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from eqsat.model.expr import Expr
from eqsat.model.nest import Access, Nest, NoNest
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.scalar import FUNCTIONS, INTEGER_ONLY, typing

ELEMENTS = frozenset(
    {"bool", "f32", "f64", "f16", "bf16", *(f"{s}{n}" for s in "iu" for n in (8, 16, 32, 64))}
)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_ORDERED = _COMPARISONS | {"add", "mul", "max", "min", "select"}
# of element types with 64 bits: no approximations; of integers, unsigned or not; of bools
EXACT = _ORDERED | {"sub", "div", "neg", "abs", "sign", "sqrt", "floor", "ceil", "clamp"}
EXACT |= {"round_even", "round_away", "is_finite"}
FLOATS = frozenset(FUNCTIONS) - INTEGER_ONLY - {"rem", "nextafter"}
INTEGERS = _ORDERED | INTEGER_ONLY | {"sub", "div", "rem", "neg", "abs", "sign", "clamp"}
BOOLS = _ORDERED | {"and", "or", "xor", "not"}

COSTS = {
    "div": 3,
    "clamp": 2,
    "sqrt": 9,
    "rsqrt": 15,
    "exp": 11,
    "exp2": 9,
    "expm1": 12,
    "log": 17,
    "log1p": 28,
    "logistic": 15,
    "tanh": 12,
    "erf": 15,
    "erfc": 28,
    "erf_inv": 50,
    "sin": 18,
    "cos": 18,
    "tan": 26,
    "pow": 124,
    "cbrt": 88,
    "sinh": 55,
    "cosh": 42,
    "asin": 86,
    "acos": 86,
    "atan": 62,
    "atan2": 78,
    "asinh": 66,
    "acosh": 59,
    "atanh": 63,
}


ORDERED_COST, COMBINED_COST = 4, 2  # of max and min, NaN being one; where zeros are not ordered


@lru_cache(maxsize=10_000)
def additions_of(body: Expr) -> int:
    """Additions of one evaluation; operands and constants are free."""
    return sum(_cost(e) for e in body.walk() if e.fn not in ("arg", "const"))


def _cost(e: Expr) -> int:
    if e.fn in ("max", "min") and all(a.fn != "const" for a in e.args):
        return ORDERED_COST
    return COSTS.get(e.fn, 1)


def additions_of_combining(how: str, dtype: str) -> float:
    """Additions that combining one more value of a reduction takes."""
    return COMBINED_COST if how in ("max", "min") and DTYPES[dtype][1] == "f" else 1


def check_bodies(nest: Nest) -> None:
    """NoNest with the name of a function, or of an element type, that has no vector code."""
    for a in nest.accesses:
        _check_access(a)
    for s in nest.stages:
        given = [nest.stages[a].dtype if isinstance(a, int) else a.dtype for a in s.arguments]
        _check(s.body, tuple(given), s.dtype)


def _check_access(a: Access) -> None:
    if a.dtype not in ELEMENTS:
        raise NoNest(f"kernels read and write no {a.dtype}")
    for k in a.lookups:
        for x in k.arguments:
            _check_access(x)
        _check(k.body, tuple([x.dtype for x in k.arguments]), k.dtype)


@lru_cache(maxsize=10_000)
def _check(body: Expr, operands: tuple[str, ...], result: str) -> None:
    known = typing(operands)
    for dtype in (known(body) or result, result):
        if dtype not in ELEMENTS:
            raise NoNest(f"kernels compute no {dtype}")
    for e in body.walk():
        if e.fn in FUNCTIONS:
            _check_call(e.fn, [known(a) for a in e.args], result)
        elif e.fn == "cast" and e.value not in ELEMENTS:
            raise NoNest(f"kernels compute no {e.value}")


def _check_call(fn: str, given: Sequence[str | None], result: str) -> None:
    peers = given[1:] if fn == "select" else given
    dtype = next((t for t in peers if t), result)
    if fn not in functions(dtype):
        raise NoNest(f"`{fn}` of {dtype} has no vector code")


def functions(dtype: str) -> frozenset[str]:
    """The functions of an element type that have vector code."""
    kind = DTYPES[dtype][1]
    if kind == "f":
        return EXACT if dtype == "f64" else FLOATS
    return BOOLS if kind == "b" else INTEGERS
