"""What products compute on: the types of their operands, and arrays along the loops of a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.execute.expressions import evaluator
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr
from eqsat.model.generic import Generic
from eqsat.model.tensor import DTYPES
from eqsat.ops.meaning.programs import DTYPE_NAMES, element_dtype
from eqsat.ops.meaning.structured import product_factors


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
