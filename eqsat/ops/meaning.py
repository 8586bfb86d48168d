"""NumPy float64 meaning of every op and of whole programs: the reference all else is held to.

Floating values are float64 and never rounded; integers and bools keep their type and wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.model.attr import Attr
from eqsat.model.control import Control
from eqsat.model.diag import fail
from eqsat.model.expr import read_literal
from eqsat.model.foreign import Custom, Opaque
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.program import Node, Program
from eqsat.model.tensor import TensorType, is_float
from eqsat.ops import scalar
from eqsat.ops.control import evaluate_control
from eqsat.ops.custom import evaluate_custom
from eqsat.ops.structured import evaluate_generic

Array = np.ndarray[Any, Any]
OpaqueFunction = Callable[..., Sequence[Any]]


def element_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type that stores an element type in memory (bf16 and what is below 16 bits but i8
    and u8 by ml_dtypes)."""
    if dtype not in _EXTENDED:
        return np.dtype(_NUMPY_NAMES.get(dtype, dtype))
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _EXTENDED[dtype]))


_NUMPY_NAMES = {"bool": "bool"} | {
    f"{k}{b}": f"{n}{b}"
    for k, n, sizes in (
        ("f", "float", (16, 32, 64)),
        ("i", "int", (8, 16, 32, 64)),
        ("u", "uint", (8, 16, 32, 64)),
    )
    for b in sizes
}
_EXTENDED = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f6e2m3fn": "float6_e2m3fn",
    "f6e3m2fn": "float6_e3m2fn",
    "f4e2m1fn": "float4_e2m1fn",
    "i4": "int4",
    "u4": "uint4",
}
DTYPE_NAMES: dict[str, str] = {v: k for k, v in (_NUMPY_NAMES | _EXTENDED).items()}


def pack(layout: Layout, x: Array, garbage: Any = None) -> Array:
    """Strip-mine, pad the high side, outer dims first, tile dims last (MLIR `linalg.pack`).

    "?" padding is `garbage`: if not given NaN, or the largest integer, so that a leak into a valid
    lane shows. A lane beyond several dims holds what `layout.padded_dims` comes to last.
    """
    tiles = dict(zip(layout.pos, layout.tiles, strict=True))
    for d, tile, text in layout.padded_dims:
        missing = -layout.source[d] % tile
        if missing:
            open_lane = text == "?" and garbage is not None
            x = _pad_high(x, d, missing, garbage if open_lane else _padding(text, x.dtype))
    shape: list[int] = []
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    for d, size in enumerate(x.shape):
        outer[d] = len(shape)
        shape.append(size // tiles.get(d, 1))
        if d in tiles:
            inner[d] = len(shape)
            shape.append(tiles[d])
    return x.reshape(shape).transpose(
        [outer[d] for d in layout.outer] + [inner[d] for d in layout.pos]
    )


def _pad_high(x: Array, axis: int, count: int, value: Any) -> Array:
    widths = [(0, count if d == axis else 0) for d in range(x.ndim)]
    return np.pad(x, widths, constant_values=value)


def _padding(text: str, held: np.dtype[Any]) -> Any:
    if text != "?":
        return held.type(read_literal(text))
    if held.kind == "f":
        return np.nan
    return True if held.kind == "b" else np.iinfo(held).max


def unpack(layout: Layout, x: Array) -> Array:
    """Undo `pack` and cut the padding off (MLIR `linalg.unpack`)."""
    rank = len(layout.source)
    slots: list[int] = []
    padded = list(layout.source)
    for d in range(rank):
        slots.append(layout.outer.index(d))
        if d in layout.pos:
            at = layout.pos.index(d)
            slots.append(rank + at)
            padded[d] = x.shape[slots[-2]] * layout.tiles[at]
    whole = x.transpose(slots).reshape(padded)
    return whole[tuple(slice(0, s) for s in layout.source)]


def _pad(attr: Move, xs: Sequence[Array]) -> Array:
    low, high, text = attr.args
    if not low:  # NumPy does not pad scalars
        return xs[0]
    value = read_literal(str(text))
    return np.pad(xs[0], list(zip(low, high, strict=True)), constant_values=value)


def _slice(attr: Move, xs: Sequence[Array]) -> Array:
    return xs[0][tuple(slice(a, b, k) for a, b, k in zip(*attr.args, strict=True))]


def _concat(attr: Move, xs: Sequence[Array]) -> Array:
    return np.concatenate(list(xs), axis=attr.args[0])


def _gather(attr: Move, xs: Sequence[Array]) -> Array:
    """Indices are clipped into range, as XLA's gather does."""
    return np.take(xs[0], xs[1], axis=attr.args[0], mode="clip")


_MOVES: dict[str, Callable[[Move, Sequence[Array]], Array]] = {
    "pad": _pad,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
}


def _layout_op(op: str, layout: Layout, x: Array) -> Array:
    if op == "retype":
        return pack(layout, unpack(layout, x))
    return {"pack": pack, "unpack": unpack}[op](layout, x)


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
    found = opaque[attr.key](*given)
    return [scalar.hold(np.asarray(r), t.dtype) for r, t in zip(found, attr.results, strict=True)]


def evaluate_node(
    op: str,
    attr: Attr,
    operands: Sequence[Array],
    opaque: Mapping[str, OpaqueFunction] | None = None,
) -> list[Array]:
    """The results of one op on operands in held form; `result` takes all results of its producer.

    EqsatError E501 if an opaque op has no function in `opaque`.
    """
    match attr:
        case Generic():
            return evaluate_generic(attr, operands)
        case Layout():
            return [operands[0] if op == "relax" else _layout_op(op, attr, operands[0])]
        case Transpose():
            return [operands[0].transpose(attr.perm)]
        case Reshape():
            return [operands[0].reshape(attr.shape)]
        case Move():
            return [_MOVES[op](attr, operands)]
        case Fill():
            held = scalar.held_dtype(attr.type.dtype)
            return [np.full(attr.type.shape, attr.value, held)]
        case Opaque():
            return _opaque_op(attr, operands, opaque)
        case Control():
            return evaluate_control(
                attr, operands, lambda p, xs: evaluate_program(p, xs, {}, opaque)
            )
        case Result():
            return [operands[attr.index]]
        case Custom():
            return [evaluate_custom(attr, operands)]
    if op in ("set_encoding", "unset_encoding", "transfer"):
        return [operands[0]]
    raise fail("E502", f"`{op}` has no meaning by itself: it is bound by its program")


def bind_leaves(
    program: Program, inputs: Sequence[Any], weights: Mapping[str, Any]
) -> dict[int, Array]:
    """Leaf node → its array in held form; EqsatError E503 if one is missing or does not fit."""
    if len(inputs) != len(program.inputs):
        raise fail(
            "E503", f"`{program.name}` takes {len(program.inputs)} input(s), got {len(inputs)}"
        )
    bound = {i: inputs[at] for at, i in enumerate(program.inputs)}
    for i in program.weights:
        leaf = program.leaf(i)
        if leaf.key not in weights:
            raise fail("E503", f"weight `{leaf.name}` ({leaf.key}) has no array")
        bound[i] = weights[leaf.key]
    return {i: _held(program.leaf(i).name, program.nodes[i].type, a) for i, a in bound.items()}


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
            values[i] = evaluate_node(node.op, node.attr, arguments(node, values), opaque)
        yield i, values[i]
        for o in node.operands:
            left[o] -= 1
            if left[o] == 0:
                del values[o]


def arguments(node: Node, values: Mapping[int, list[Array]]) -> list[Array]:
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
    found = {i: v[0] for i, v in walk(program, inputs, weights, opaque) if i in wanted}
    return [found[r] for r in program.results]
