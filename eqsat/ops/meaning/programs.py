"""NumPy float64 meaning of every op and of whole programs: the reference all else is held to.

Floating values are float64 and never rounded; integers and bools keep their type and wrap. Loops
and branches have a bound on how often a body runs. Weights that hold 0, 1, 2 … are known by their
content, never by their name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from eqsat.model.attr import Attr
from eqsat.model.control import COND, SCAN, Control
from eqsat.model.diag import fail
from eqsat.model.leaves import Custom, Leaf, Opaque
from eqsat.model.program import Node, Program
from eqsat.model.tensor import DTYPES, TensorType, is_float
from eqsat.ops.meaning import scalar
from eqsat.ops.meaning.elements import KEY_DIGITS, element_dtype, key_digest
from eqsat.ops.meaning.scalar import held_dtype
from eqsat.ops.registry import builtin_ops, evaluate_custom

# ---- loops and branches --------------------------------------------------------------------------
Array = np.ndarray[Any, Any]
Evaluate = Callable[[Program, Sequence[Array]], list[Array]]
MOST_STEPS = 100_000  # of one loop; the reference is for checking, and ends


def evaluate_control(
    attr: Control,
    operands: Sequence[Array],
    evaluate: Evaluate,
    most_steps: int | None = MOST_STEPS,
) -> list[Array]:
    """The results of a loop or branch; `evaluate` runs one body.

    EqsatError E331 if a loop runs more than `most_steps` times; None: whoever evaluates ends it.
    """
    if attr.op == COND:
        index = int(np.clip(operands[0], 0, len(attr.bodies) - 1))
        return evaluate(attr.bodies[index], operands[1:])
    consts, rest = list(operands[: attr.consts]), list(operands[attr.consts :])
    if attr.op == SCAN:
        _check(attr.length, most_steps)
        return _scan(attr, consts, rest[: attr.carries], rest[attr.carries :], evaluate)
    return _while(attr, consts, rest, evaluate, most_steps)


def _scan(
    attr: Control,
    consts: list[Array],
    state: list[Array],
    stacked: list[Array],
    evaluate: Evaluate,
) -> list[Array]:
    slices: list[list[Array]] = []
    steps = range(attr.length)
    for step in reversed(steps) if attr.reverse else steps:
        results = evaluate(attr.bodies[0], [*consts, *state, *(x[step] for x in stacked)])
        state = results[: attr.carries]
        slices.append(results[attr.carries :])
    if attr.reverse:
        slices.reverse()
    if not slices:
        return state + _nothing(attr)
    return state + [np.stack(column) for column in zip(*slices, strict=True)]


def _nothing(attr: Control) -> list[Array]:
    """Stacked results of a scan of no steps."""
    return [np.zeros(t.shape, held_dtype(t.dtype)) for t in attr.result_types[attr.carries :]]


def _while(
    attr: Control,
    consts: list[Array],
    state: list[Array],
    evaluate: Evaluate,
    most_steps: int | None,
) -> list[Array]:
    condition, body = attr.bodies
    for step in count():
        if not bool(evaluate(condition, [*consts, *state])[0]):
            break
        _check(step, most_steps)
        state = evaluate(body, [*consts, *state])
    return state


def _check(steps: int, most: int | None) -> None:
    if most is not None and steps > most:
        raise fail(
            "E331",
            f"a loop runs more than {most:,} steps, too many for the float64 reference",
            help="evaluate the same program with fewer steps",
        )


# ---- programs ------------------------------------------------------------------------------------
OpaqueFunction = Callable[..., Sequence[Any]]


def _opaque_op(
    attr: Opaque, xs: Sequence[Array], opaque: Mapping[str, OpaqueFunction] | None
) -> list[Array]:
    if not opaque or attr.key not in opaque:
        raise fail(
            "E501",
            f"opaque op `{attr.primitive}` ({attr.key}) has no function to call",
            help="pass the `opaque` mapping that came with the program",
        )
    given = [x.astype(element_dtype(t.dtype)) for x, t in zip(xs, attr.operands, strict=True)]
    results = opaque[attr.key](*given)
    return [scalar.hold(np.asarray(r), t.dtype) for r, t in zip(results, attr.results, strict=True)]


def evaluate_node(
    op: str,
    attr: Attr,
    operands: Sequence[Array],
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> list[Array]:
    """The results of one op on operands in held form; `result` takes all results of its producer.

    EqsatError E501 if an opaque op has no function in `opaque`.
    """
    if isinstance(attr, Custom):
        return [evaluate_custom(attr, operands)]
    if isinstance(attr, Opaque):
        return _opaque_op(attr, operands, opaque)
    if isinstance(attr, Control):
        return evaluate_control(attr, operands, lambda p, xs: evaluate_program(p, xs, {}, opaque))
    meaning = builtin_ops()[op].numpy
    if meaning is None:
        raise fail("E502", f"`{op}` has no meaning by itself: it is bound by its program")
    values = meaning(attr, *operands)
    return values if isinstance(values, list) else [values]


def bind_leaves(
    program: Program, inputs: Sequence[Any], weights: Mapping[str, Any]
) -> dict[int, Array]:
    """Leaf node → its array in held form; EqsatError E503 if one is missing or does not fit."""
    if len(inputs) != len(program.inputs):
        raise fail(
            "E503", f"`{program.name}` takes {len(program.inputs)} input(s), got {len(inputs)}"
        )
    bound = {i: inputs[at] for at, i in enumerate(program.inputs)}
    bound |= weight_arrays(program, weights)
    return {i: _held(program.leaf(i).name, program.nodes[i].type, a) for i, a in bound.items()}


def weight_arrays(program: Program, weights: Mapping[str, Any]) -> dict[int, Any]:
    """Weight leaf → its array, of those by content key; EqsatError E503 if one is missing."""
    leaves = {i: program.leaf(i) for i in program.weights}
    for leaf in leaves.values():
        if leaf.key not in weights:
            raise fail("E503", f"weight `{leaf.name}` ({leaf.key}) has no array")
    return {i: weights[leaf.key] for i, leaf in leaves.items()}


def _held(name: str, wanted: TensorType, array: Any) -> Array:
    value = np.asarray(array)
    if value.shape != wanted.shape:
        raise fail("E503", f"`{name}` is {wanted}, got shape {list(value.shape)}")
    if value.dtype != scalar.held_dtype(wanted.dtype) and is_float(wanted.dtype):
        value = value.astype(np.float64)
    return scalar.hold(value, wanted.dtype)


def walk(
    program: Program,
    inputs: Sequence[Any],
    weights: Mapping[str, Any],
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> Iterator[tuple[int, list[Array]]]:
    """(node, its results) in program order; a value is dropped after its last use."""
    values: dict[int, list[Array]] = {
        i: [a] for i, a in bind_leaves(program, inputs, weights).items()
    }
    left = list(program.uses)
    for i, node in enumerate(program.nodes):
        if i not in values:
            values[i] = evaluate_node(node.op, node.attr, operand_values(node, values), opaque)
        yield i, values[i]
        for o in node.operands:
            left[o] -= 1
            if left[o] == 0:
                del values[o]


def operand_values(node: Node, values: Mapping[int, list[Array]]) -> list[Array]:
    """The operands of a node among the results of earlier ones; `result` takes all of them."""
    if node.op == "result":
        return values[node.operands[0]]
    return [values[o][0] for o in node.operands]


def evaluate_program(
    program: Program,
    inputs: Sequence[Any],
    weights: Mapping[str, Any],
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> list[Array]:
    """The program's results in held form; floating inputs and weights are read as float64.

    opaque: key → a function of NumPy arrays in the op's element types that returns a list.
    """
    wanted = set(program.results)
    value_of = {i: v[0] for i, v in walk(program, inputs, weights, opaque) if i in wanted}
    return [value_of[r] for r in program.results]


LARGEST = 2**20  # numbers of a line that are looked at


def weight_key(array: Any) -> str:
    """Content hash of an array: 16 hex digits of SHA-256 over type, shape and bytes."""
    value = np.ascontiguousarray(array)
    digest = key_digest(value.dtype, np.shape(array))
    digest.update(value.tobytes())
    return digest.hexdigest()[:KEY_DIGITS]


def is_iota(leaf: Leaf) -> bool:
    """Whether this weight holds 0, 1, … of an integer type."""
    t = leaf.type
    return bool(leaf.key) and is_line(t) and leaf.key == iota_key(t)


def is_line(t: TensorType) -> bool:
    """Whether a tensor of this type can hold 0, 1, … one number each."""
    return t.rank == 1 and DTYPES[t.dtype][1] in "iu" and 0 < t.shape[0] <= LARGEST


@lru_cache(maxsize=1_000)
def iota_key(t: TensorType) -> str:
    """The key of the weight of this type that holds 0, 1, …"""
    return weight_key(np.arange(t.shape[0]).astype(element_dtype(t.dtype)))
