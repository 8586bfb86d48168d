"""What each op is in MLIR: a table, one line per op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eqsat.export.mlir import movement, syntax
from eqsat.export.mlir.generics import write_generic
from eqsat.export.mlir.writer import Value, Writer
from eqsat.model.attr import Attr
from eqsat.model.leaves import Fill
from eqsat.model.tensor import TensorType


def _fill(w: Writer, fill: Fill, xs: Sequence[Value], t: TensorType, name: str) -> str:
    return w.op(f"arith.constant {syntax.splat(fill.value, t)}", name)


def _same(w: Writer, attr: Attr, xs: Sequence[Value], t: TensorType, name: str) -> str:
    """A requested layout, a copy to another device, or padding that is forgotten."""
    return xs[0].name


# op -> (writer, attribute, operands, type of the first result, name wanted) -> the names of the
# results, or the name of the only one; an op that is not here cannot be written
WRITERS: dict[str, Callable[..., str | list[str]]] = {
    "generic": write_generic,
    "fill": _fill,
    "transpose": movement.write_transpose,
    "reshape": movement.write_reshape,
    "pack": movement.write_pack,
    "unpack": movement.write_unpack,
    "retype": movement.write_retype,
    "relax": _same,
    "pad": movement.write_pad,
    "slice": movement.write_strided,
    "concat": movement.write_concat,
    "gather": movement.write_gather,
    "set_encoding": _same,
    "unset_encoding": _same,
    "transfer": _same,
}
