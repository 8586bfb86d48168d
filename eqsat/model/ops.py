"""Which attribute every op carries, the kinds of ops, and attributes read from JSON."""

from __future__ import annotations

from typing import Any

from eqsat.model.affine import Affine
from eqsat.model.attr import Attr
from eqsat.model.control import CONTROL, Control
from eqsat.model.devices import Transfer
from eqsat.model.extents import NO_SYMBOLS, Symbols, extent_from_json
from eqsat.model.foreign import Custom, Opaque
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.layout import Encoding, Layout
from eqsat.model.leaves import Fill, Leaf
from eqsat.model.movement import Move, Reshape, Transpose
from eqsat.model.tensor import TensorType

# op -> attribute class; every other op is `Custom`
OPS: dict[str, type[Attr]] = {
    "input": Leaf,
    "weight": Leaf,
    "fill": Fill,
    "generic": Generic,
    "transpose": Transpose,
    "reshape": Reshape,
    "pack": Layout,
    "unpack": Layout,
    "retype": Layout,
    "relax": Layout,
    "pad": Move,
    "slice": Move,
    "concat": Move,
    "gather": Move,
    "set_encoding": Encoding,
    "unset_encoding": Encoding,
    "transfer": Transfer,
    "opaque": Opaque,
    "result": Result,
    **dict.fromkeys(sorted(CONTROL), Control),
}
LEAVES = frozenset({"input", "weight", "fill"})
VIEWS = frozenset({"reshape", "relax", "result"})  # no data moves
CONVERSIONS = frozenset({"pack", "unpack", "transpose", "retype", "set_encoding", "unset_encoding"})


def _tuples(value: Any, symbols: Symbols) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(v, symbols) for v in value)
    return extent_from_json(value, symbols)


def attr_from_json(data: Any, symbols: Symbols = NO_SYMBOLS) -> Attr:
    """Undo `Attr.to_json`; symbols: extents by name."""
    kinds = {c.kind: c for c in (*OPS.values(), Custom)}
    rest = {k: v for k, v in data.items() if k != "kind"}
    cls = kinds[data["kind"]]
    if cls is Control:
        return Control.from_json(data)
    if cls in (Generic, Encoding):
        rest["maps"] = tuple(
            tuple(Affine.from_json(e, symbols) for e in m) for m in rest.get("maps", ())
        )
    if cls is Generic:
        rest["yields"] = tuple(Yield.from_json(y) for y in rest["yields"])
    if cls in (Leaf, Fill):
        rest["type"] = TensorType.parse(rest["type"], symbols)
    if rest.get("layout") is not None:
        rest["layout"] = attr_from_json(rest["layout"], symbols)
    if cls is Opaque:
        for side in ("operands", "results"):
            rest[side] = tuple(TensorType.parse(t, symbols) for t in rest[side])
    return cls(**{k: _tuples(v, symbols) for k, v in rest.items()})
