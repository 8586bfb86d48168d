"""Attributes by op: the shapes an instance stands for, its fields, and making one from fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eqsat.model.attr import Attr, Shape, ShapeError
from eqsat.model.devices import Transfer
from eqsat.model.foreign import Custom
from eqsat.model.generic import Generic, Result
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import MOVE_SHAPES, Move, Reshape, Transpose
from eqsat.model.ops import OPS
from eqsat.model.tensor import TensorType
from eqsat.ops.custom import make_custom
from eqsat.ops.tiling import make_layout

# fields of a move in the order of its `args`
MOVE_FIELDS: dict[str, tuple[str, ...]] = {
    "pad": ("low", "high", "value"),
    "slice": ("start", "limit", "stride"),
    "concat": ("axis",),
    "gather": ("axis",),
}


class NeedsPadding(ShapeError):
    """A pack made from fields would need a padding value and has none."""


def operand_shapes(op: str, attr: Attr | None) -> tuple[Shape, ...] | None:
    """Shapes of the operands an attribute instance stands for; None if it does not know them."""
    match attr:
        case Generic():
            return attr.shapes
        case Transpose() | Reshape():
            return (attr.source,)
        case Layout():
            return (attr.source if op == "pack" else attr.packed_shape,)
        case Move() | Custom():
            return attr.sources
        case Leaf() | Fill():
            return ()
        case Result():
            return None
    source = getattr(attr, "source", None)
    return None if source is None else (source,)


def result_shape(op: str, attr: Attr) -> Shape | None:
    """Shape of the results an attribute instance stands for; None: that of its operand."""
    match attr:
        case Layout():
            return attr.source if op == "unpack" else attr.packed_shape
        case Generic() | Transpose() | Reshape():
            return attr.result_shape
        case Move() | Custom():
            return attr.shape
        case Leaf() | Fill():
            return attr.type.shape
        case Result():
            return None
    shapes = operand_shapes(op, attr)
    return shapes[0] if shapes else None


def field(attr: Attr, key: str) -> Any:
    """A field of an attribute by the name it has in terms."""
    if isinstance(attr, Move):
        return attr.args[MOVE_FIELDS[attr.op].index(key)]
    if isinstance(attr, Custom):
        return attr[key]
    return getattr(attr, "pads" if key == "pad" else key)


def make_attr(op: str, shapes: Sequence[Shape], given: dict[str, Any]) -> Attr:
    """An attribute from written-out fields and the shapes of its operands.

    ShapeError if they do not go together; NeedsPadding for a pack without a padding value.
    """
    if op == "result":
        return Result(given["index"])
    if op not in OPS:
        return make_custom(op, shapes, given)
    if op == "transpose":
        attr: Attr = Transpose(shapes[0], given["perm"], given.get("order", ()))
    elif op == "reshape":
        attr = Reshape(shapes[0], given["shape"])
    elif op == "transfer":
        attr = Transfer(shapes[0], given["origin"], given["device"])
    elif op in MOVE_FIELDS:
        attr = _move(op, tuple(shapes), given)
    else:
        attr = _layout(shapes[0], given)
    attr.infer(op, tuple(TensorType("f32", s) for s in operand_shapes(op, attr) or shapes))
    return attr


def _move(op: str, shapes: tuple[Shape, ...], given: dict[str, Any]) -> Move:
    args = tuple(given[k] for k in MOVE_FIELDS[op])
    try:
        return Move(op, shapes, args, MOVE_SHAPES[op](Move(op, shapes, args, ())))
    except (IndexError, ValueError) as e:
        raise ShapeError(f"the fields of `{op}` do not fit {[list(s) for s in shapes]}: {e}") from e


def _layout(shape: Shape, given: dict[str, Any]) -> Layout:
    pads = given.get("pad") or ("-",) * len(given["tiles"])
    outer = given.get("outer", tuple(range(len(shape))))
    try:
        layout = make_layout(shape, given["pos"], given["tiles"], outer, pads)
    except (IndexError, ValueError, ZeroDivisionError) as e:
        raise ShapeError(f"`pos` and `tiles` do not fit a tensor of shape {list(shape)}") from e
    divisible = all(shape[d] % t == 0 for d, t in zip(layout.pos, layout.tiles, strict=True))
    if not divisible and "-" in pads:
        raise NeedsPadding(f"{list(shape)} needs a padding value")
    return layout
