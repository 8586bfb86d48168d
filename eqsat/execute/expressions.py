"""Scalar bodies and operands of products as JAX arrays: element types, precision, platform.

A body is an `Expr` over arrays that broadcast. Arrays lie along the loops of a result; a product is
as accurate as its contraction asks for on the device that runs it, and XLA is told so in the words
of that platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from eqsat.model.attr import Shape
from eqsat.model.compiled import BY_PRODUCTS
from eqsat.model.expr import BottomUp, Expr
from eqsat.model.generic import Generic
from eqsat.model.tensor import ALGORITHMS, DTYPES, HIGHEST
from eqsat.ops.meaning.elements import DTYPE_NAMES, element_dtype
from eqsat.ops.meaning.scalar import FUNCTIONS
from eqsat.ops.meaning.structured import product_factors


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Name → JAX function of operands that have one shape (built on first use: JAX is heavy)."""
    import jax.numpy as jnp
    from jax import lax

    return {name: getattr(lax, name) for name in FUNCTIONS if hasattr(lax, name)} | {
        "and": lax.bitwise_and,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
        "not": lax.bitwise_not,
        "is_finite": jnp.isfinite,  # lax refuses integers
        "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    }


def evaluate_body_in_jax(expr: Expr, operands: Sequence[Any]) -> Any:
    """The body with JAX's own functions, so that rounding and gradients are JAX's."""
    return evaluator(operands)(expr)


def evaluator(
    operands: Sequence[Any], instead: Mapping[str, Callable[..., Any]] | None = None
) -> BottomUp[Expr, Any]:
    """`evaluate_body` for several bodies over these operands: each part is computed once.

    instead: functions that are computed in another way than JAX's, by name.
    """
    functions = _functions() | dict(instead or {})

    def step(e: Expr, values: Sequence[Any]) -> Any:
        if e.fn == "arg":
            return operands[e.value]
        if e.fn == "const":
            return e.value
        if e.fn == "cast":
            return convert(values[0], e.value)
        return functions[e.fn](*_aligned(e.fn, values))

    return BottomUp(step)


def convert(x: Any, dtype: str) -> Any:
    """A conversion as `lax.convert_element_type` does it; bools are x ≠ 0."""
    import jax.numpy as jnp
    from jax import lax

    wanted = element_dtype(dtype)
    value = jnp.asarray(x)
    return value if value.dtype == wanted else lax.convert_element_type(value, wanted)


def _aligned(fn: str, values: Sequence[Any]) -> list[Any]:
    """One shape and one element type: Python scalars take the type of the arrays beside them."""
    import jax.numpy as jnp

    first = 1 if fn == "select" else 0
    strong = [v.dtype for v in values[first:] if hasattr(v, "dtype")]
    typed = [v if hasattr(v, "dtype") else _typed(v, strong) for v in values[first:]]
    head = [jnp.asarray(v) for v in values[:first]]
    return list(jnp.broadcast_arrays(*head, *typed))


def _typed(value: bool | int | float, peers: list[Any]) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, peers[0] if peers else None)


def cast_factors(g: Generic) -> tuple[Expr, Expr] | None:
    """(cast of operand 0, cast of operand 1) if this sums a product of two operands, else None."""
    factors = product_factors(g)
    return factors if factors is not None and all(map(_is_cast, factors)) else None


def _is_cast(e: Expr) -> bool:
    while e.fn == "cast":
        e = e.args[0]
    return e.fn == "arg"


def operand_types(g: Generic, arrays: Sequence[Any]) -> list[Any]:
    """Operands as the product sees them, left narrow where widening them changes nothing.

    A bf16 product summed in f32 is `preferred_element_type=f32`: hardware does that in one step.
    """
    import jax.numpy as jnp

    factors = cast_factors(g)
    assert factors is not None
    wanted = element_dtype(g.yields[0].dtype)
    kinds = {a.dtype for a in arrays}
    direct = all(f.fn == "arg" or f.args[0].fn == "arg" for f in factors)
    if len(kinds) == 1 and direct and _widens(arrays[0].dtype, wanted):
        return list(arrays)
    typed = list(map(evaluator(arrays), factors))
    return [jnp.asarray(t).astype(wanted) for t in typed]


def _widens(narrow: Any, wide: Any) -> bool:
    import jax.numpy as jnp

    kinds = [
        "f"
        if jnp.issubdtype(d, jnp.floating)
        else "i"
        if jnp.issubdtype(d, jnp.signedinteger)
        else "u"
        for d in (narrow, wide)
    ]
    in_bytes = DTYPES[DTYPE_NAMES[narrow.name]][0] >= 8  # XLA's dot wants whole ones
    return kinds[0] == kinds[1] and wide.itemsize >= narrow.itemsize and in_bytes


def to_loops(x: Any, loops: Sequence[int], shape: Shape) -> Any:
    """An array whose dims are these loops → all loops of `shape`, missing ones repeated."""
    import jax.numpy as jnp
    from jax import lax

    ascending = sorted(loops)
    if list(loops) != ascending:
        x = lax.transpose(x, [list(loops).index(d) for d in ascending])
    wide = [shape[d] if d in ascending else 1 for d in range(len(shape))]
    return jnp.broadcast_to(x.reshape(wide), shape)


# every platform computes these; XLA:CPU ignores all other algorithms or JAX refuses them there
_EVERYWHERE = frozenset({"f32_f32_f32", "f64_f64_f64"})


def level(precision: str) -> Any:
    """`jax.lax.Precision`; what is no contraction in the program is computed in full.

    An algorithm says how products of matrices are computed; XLA's convolutions take none, and JAX
    asks for `default` there.
    """
    from jax import lax

    if precision in ALGORITHMS:
        return lax.Precision.DEFAULT
    return lax.Precision[(precision or HIGHEST).upper()]


def dot_general(a: Any, b: Any, numbers: Any, precision: str, dtype: Any) -> Any:
    """`lax.dot_general` with sums in `dtype`.

    An algorithm that rounds operands is asked for where it exists; a CPU computes in the operands'
    own type, which is at least as accurate.
    """
    from jax import lax

    def asking(p: Any) -> Any:
        return lambda x, y: lax.dot_general(
            x, y, numbers, precision=p, preferred_element_type=dtype
        )

    if precision not in ALGORITHMS:
        return asking(level(precision))(a, b)
    algorithm = asking(lax.DotAlgorithmPreset[precision.upper()])
    if precision in _EVERYWHERE:
        return algorithm(a, b)
    return lax.platform_dependent(a, b, cpu=asking(lax.Precision.HIGHEST), default=algorithm)


_SAID: ContextVar[str] = ContextVar("platform", default="")
_SPELLING: ContextVar[str] = ContextVar("spelling", default="")
TPU = "tpu"


@contextmanager
def _inside(variable: ContextVar[str], word: str) -> Iterator[None]:
    before = variable.set(word)
    try:
        yield
    finally:
        variable.reset(before)


def lowered_for(platform: str) -> AbstractContextManager[None]:
    """Context in which programs are traced for this kind of device (`tpu`, `cuda`) and no other."""
    return _inside(_SAID, platform)


def known_platform() -> str:
    """The accelerator that programs run on, if nobody says otherwise JAX's own; "" for a CPU.

    Forms that suit one are no choice of the compiler's (`lax.platform_dependent`), as XLA takes
    that late. On a machine with an accelerator, what is put on its CPU computes the same.
    """
    import jax

    platform = _SAID.get() or jax.default_backend()
    return "" if platform == "cpu" else {"gpu": "cuda"}.get(platform, platform)


def spelled(spelling: str) -> AbstractContextManager[None]:
    """Context in which XLA is told contractions in this way (`model.compiled.SPELLINGS`)."""
    return _inside(_SPELLING, spelling)


def is_by_products() -> bool:
    """Whether contractions are products, and small convolutions sums of them, for a TPU."""
    return known_platform() == TPU and _SPELLING.get() == BY_PRODUCTS


def is_by_convolutions() -> bool:
    """Whether products over several rows are convolutions, for a TPU."""
    return known_platform() == TPU and _SPELLING.get() != BY_PRODUCTS
