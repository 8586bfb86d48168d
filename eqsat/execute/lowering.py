"""Lowering of one op to JAX: traceable, differentiable, and the same on CPU, GPU and TPU.

Loops and branches are `lax.scan`, `lax.while_loop` and `lax.switch` over their bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from eqsat.execute.expressions import cast_factors
from eqsat.execute.loops import Pad, Pads, generic
from eqsat.model.attr import Attr
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.diag import fail
from eqsat.model.expr import read_literal
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Custom, Fill, Opaque
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Program
from eqsat.model.tensor import TensorType
from eqsat.ops.meaning.elements import DTYPE_NAMES, element_dtype
from eqsat.ops.meaning.programs import operand_values
from eqsat.ops.op import broken_op
from eqsat.ops.registry import op_record

# ---- loops and branches --------------------------------------------------------------------------
Evaluate = Callable[[Program, Sequence[Any]], list[Any]]


def control(attr: Control, operands: Sequence[Any], evaluate: Evaluate) -> list[Any]:
    """The results of a loop or branch on JAX arrays; `evaluate` traces one body."""
    from jax import lax

    if attr.op == COND:
        branches = [lambda *xs, p=p: evaluate(p, xs) for p in attr.bodies]
        return list(lax.switch(operands[0], branches, *operands[1:]))
    consts, rest = list(operands[: attr.consts]), list(operands[attr.consts :])
    if attr.op == SCAN:
        return _scan(attr, consts, rest[: attr.carries], rest[attr.carries :], evaluate)
    condition, body = attr.bodies
    return lax.while_loop(
        lambda state: evaluate(condition, [*consts, *state])[0],
        lambda state: evaluate(body, [*consts, *state]),
        rest,
    )


def _scan(
    attr: Control, consts: list[Any], state: list[Any], stacked: list[Any], evaluate: Evaluate
) -> list[Any]:
    from jax import lax

    def step(carried: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = evaluate(attr.bodies[0], [*consts, *carried, *slices])
        return results[: attr.carries], results[attr.carries :]

    last, stacks = lax.scan(step, state, stacked, attr.length, attr.reverse)
    return [*last, *stacks]


OpaqueFunction = Callable[..., Sequence[Any]]
TracedBodies = Callable[[Control], Evaluate]  # how the bodies of a loop or branch are traced


def lax_pack(layout: Layout, x: Any) -> Any:
    """`ops.meaning.programs.pack`; "?" padding holds zeros at run time."""
    from jax import lax

    for d, tile, text in layout.padded_dims:
        missing = -layout.source[d] % tile
        if missing:
            value = 0 if text == "?" else read_literal(text)
            widths = [(0, missing if axis == d else 0, 0) for axis in range(x.ndim)]
            x = lax.pad(x, _constant(value, x), widths)
    shape, order = layout.blocked(x.shape)
    return lax.transpose(x.reshape(shape), order)


def lax_unpack(layout: Layout, x: Any) -> Any:
    """Undo `pack` and cut the padding off."""
    from jax import lax

    slots, padded = layout.unblocked(x.shape)
    whole = lax.transpose(x, slots).reshape(padded)
    if padded == layout.source:
        return whole
    return lax.slice(whole, [0] * len(padded), layout.source)


def _constant(value: bool | int | float, like: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, like.dtype)


def _pad(attr: Move, x: Any) -> Any:
    from jax import lax

    low, high, text = attr.args
    widths = [(a, b, 0) for a, b in zip(low, high, strict=True)]
    return lax.pad(x, _constant(read_literal(str(text)), x), widths)


def _slice(attr: Move, x: Any) -> Any:
    from jax import lax

    return lax.slice(x, *attr.args)


def _concat(attr: Move, *xs: Any) -> Any:
    from jax import lax

    return lax.concatenate(xs, attr.args[0])


def _gather(attr: Move, x: Any, indices: Any) -> Any:
    import jax.numpy as jnp

    return jnp.take(x, indices, axis=attr.args[0], mode="clip")


def _fill(attr: Fill) -> Any:
    import jax.numpy as jnp

    return jnp.full(attr.type.shape, attr.value, element_dtype(attr.type.dtype))


def _transpose(attr: Transpose, x: Any) -> Any:
    from jax import lax

    return lax.transpose(x, attr.perm)


def _reshape(attr: Reshape, x: Any) -> Any:
    from jax import lax

    return lax.reshape(x, attr.shape)


def _same(attr: Attr, x: Any) -> Any:
    return x


# op -> (its attribute, or the values of it, *operands) -> its result, or a list of results; an op
# that is not here has a `jax` in its record, or is run by what its program brings along
LOWERINGS: dict[str, Callable[..., Any]] = {
    "generic": lambda attr, *xs: generic(attr, xs),
    "result": lambda attr, *results: results[attr.index],
    "fill": _fill,
    "transpose": _transpose,
    "reshape": _reshape,
    "pack": lax_pack,
    "unpack": lax_unpack,
    "retype": lambda attr, x: lax_pack(attr, lax_unpack(attr, x)),
    "relax": _same,
    "pad": _pad,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
    "set_encoding": _same,
    "unset_encoding": _same,
    "transfer": _same,
}


def lower(
    op: str,
    attr: Attr,
    operands: Sequence[Any],
    opaque: Mapping[str, OpaqueFunction],
    bodies: TracedBodies | None = None,
) -> list[Any]:
    """The results of one op; `result` takes all results of its producer.

    bodies: of a loop or branch; their ops one by one if it is not given. EqsatError E501 if an
    opaque op has no function.
    """
    if isinstance(attr, Opaque):
        return _opaque(attr, operands, opaque)
    if isinstance(attr, Control):
        ops = bodies(attr) if bodies else lambda p, xs: _body(p, xs, opaque)
        results = control(attr, operands, ops)
        return results + [unused(t) for t in attr.scratch_types]
    if isinstance(attr, Custom):
        return [_custom(attr, operands)]
    if op not in LOWERINGS:
        raise fail("E502", f"`{op}` has no meaning by itself: it is bound by its program")
    results = LOWERINGS[op](attr, *operands)
    return results if isinstance(results, list) else [results]


def unused(t: TensorType) -> Any:
    """Array in place of the memory of a loop's temporaries: XLA has its own, and drops this."""
    import jax.numpy as jnp

    return jnp.zeros(t.shape, element_dtype(t.dtype))


def _custom(attr: Custom, operands: Sequence[Any]) -> Any:
    """By the JAX meaning of the op; EqsatError E602 if that gives something else."""
    import jax.numpy as jnp

    r = op_record(attr.op)
    meaning = LOWERINGS.get(attr.op, r.jax)
    assert meaning is not None
    (want,) = attr.infer(attr.op, tuple(map(_type_of, operands)))
    try:
        array = jnp.asarray(meaning(dict(attr.values), *operands))
    except Exception as error:
        raise broken_op(r, f"its JAX meaning fails: {type(error).__name__}: {error}") from error
    if _type_of(array) != want:
        raise broken_op(r, f"its JAX meaning gives {_type_of(array)}, not {want}")
    return array


def _type_of(x: Any) -> TensorType:
    return TensorType(DTYPE_NAMES[x.dtype.name], tuple(x.shape))


def _opaque(
    attr: Opaque, operands: Sequence[Any], opaque: Mapping[str, OpaqueFunction]
) -> list[Any]:
    if attr.key not in opaque:
        raise fail(
            "E501",
            f"opaque op `{attr.primitive}` ({attr.key}) has no function to call",
            help="pass the `opaque` mapping that came with the program",
        )
    return list(opaque[attr.key](*operands))


def _body(
    program: Program, inputs: Sequence[Any], opaque: Mapping[str, OpaqueFunction]
) -> list[Any]:
    """The results of a closed program, computed from what they need alone."""
    given = dict(zip(program.inputs, inputs, strict=True))
    values = evaluate(program, program.needed, given, opaque)
    return [values[r][0] for r in program.results]


def evaluate(
    program: Program,
    nodes: Iterable[int],
    given: Mapping[int, Any],
    opaque: Mapping[str, OpaqueFunction],
    bodies: TracedBodies | None = None,
) -> dict[int, list[Any]]:
    """Results of `nodes` (ascending); `given` holds the single results of nodes already there.

    bodies: as in `lower`.
    """
    values: dict[int, list[Any]] = {i: [x] for i, x in given.items()}
    for i in nodes:
        if i in values:
            continue
        n = program.nodes[i]
        read = operand_values(n, values)
        if isinstance(n.attr, Generic):
            products = _products(program, n.operands)
            values[i] = generic(n.attr, read, _pads(program, n.operands, values), products)
        else:
            values[i] = lower(n.op, n.attr, read, opaque, bodies)
    return values


def _products(program: Program, operands: Sequence[int]) -> list[int]:
    """Operands that are results of contractions."""
    producers = [program.nodes[o].attr for o in operands]
    return [j for j, a in enumerate(producers) if isinstance(a, Generic) and cast_factors(a)]


def _pads(program: Program, operands: Sequence[int], values: Mapping[int, list[Any]]) -> Pads:
    """Operands that are zeros around a value that is there."""
    pads: dict[int, Pad] = {}
    for j, n in enumerate(program.nodes[o] for o in operands):
        if n.op != "pad" or not isinstance(n.attr, Move) or n.operands[0] not in values:
            continue
        low, high, text = n.attr.args
        if read_literal(str(text)) == 0:
            pads[j] = Pad(values[n.operands[0]][0], tuple(zip(low, high, strict=True)))
    return pads
