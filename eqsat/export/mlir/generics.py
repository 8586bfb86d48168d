"""`generic` as `linalg.generic`: the same maps, a body in arith and math, accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.export.mlir import syntax
from eqsat.export.mlir.expressions import Body
from eqsat.export.mlir.writer import Value, Writer
from eqsat.export.typed import Typed, typed_yields
from eqsat.model.affine import Map, dim
from eqsat.model.generic import Generic
from eqsat.model.tensor import TensorType
from eqsat.ops.generics.interchange import executed_map
from eqsat.ops.meaning.scalar import neutral


@dataclass(frozen=True)
class Operand:
    """A value that a generic reads, and how."""

    name: str
    type: TensorType
    map: Map


def write_generic(
    w: Writer, g: Generic, xs: Sequence[Value], t: TensorType, name: str
) -> list[str]:
    """The names of its results; Inexpressible if its body is.

    The loops are written in the order in which they are executed.
    """
    ins = [_whole_dims(w, g, Operand(x.name, x.type, m)) for x, m in zip(xs, g.maps, strict=True)]
    ins += _domain(w, g)
    outs = _accumulators(w, g)
    loops = len(g.sizes)
    identity = tuple(dim(d) for d in range(g.rank))
    every = [o.map for o in (*ins, *[_result(o, identity) for o in outs])]
    maps = [syntax.affine_map(executed_map(g, m), loops) for m in every]
    kinds = ["parallel" if d < g.rank else "reduction" for d in g.executed]
    w.structured(name, maps, kinds, [(o.name, o.type) for o in ins], outs, g.precision)
    _block(w, g, ins, outs)
    w.line(f"}} -> {syntax.listed([t for _, t in outs])}")
    return [f"{name}#{i}" for i in range(len(outs))] if len(outs) > 1 else [name]


def _result(out: tuple[str, TensorType], identity: Map) -> Operand:
    return Operand(*out, identity)


def _whole_dims(w: Writer, g: Generic, o: Operand) -> Operand:
    """The operand cut where a loop runs over a part of a dim only: linalg takes the whole dim."""
    cut = [
        s if e.dim is None else min(s, g.sizes[e.dim])
        for s, e in zip(o.type.shape, o.map, strict=True)
    ]
    if tuple(cut) == o.type.shape:
        return o
    t = o.type.with_shape(tuple(cut))
    zeros, ones = [0] * len(cut), [1] * len(cut)
    return Operand(write_slice(w, o.name, o.type, zeros, ones, t), t, o.map)


def write_slice(
    w: Writer,
    x: str,
    source: TensorType,
    start: Sequence[int],
    stride: Sequence[int],
    t: TensorType,
    name: str = "",
) -> str:
    """The elements of x from `start` in steps of `stride`."""
    where = f"{syntax.ints(start)} {syntax.ints(t.shape)} {syntax.ints(stride)}"
    types = f"{syntax.tensor(source)} to {syntax.tensor(t)}"
    return w.op(f"tensor.extract_slice {x}{where} : {types}", name)


def _domain(w: Writer, g: Generic) -> list[Operand]:
    """A tensor that is not read, for the extents of loops that no operand and no result has."""
    told = {e.dim for m in g.maps for e in m} | set(range(g.rank))
    loops = [d for d in range(len(g.sizes)) if d not in told]
    if not loops:
        return []
    t = TensorType(g.yields[0].dtype, tuple(g.sizes[d] for d in loops))
    return [Operand(w.empty(t), t, tuple(dim(d) for d in loops))]


def _accumulators(w: Writer, g: Generic) -> list[tuple[str, TensorType]]:
    found = []
    for y in g.yields:
        t = TensorType(y.dtype, g.result_shape)
        start = w.filled(neutral(y.combine, y.dtype), t) if y.combine else w.empty(t)
        found.append((start, t))
    return found


def _block(
    w: Writer, g: Generic, ins: Sequence[Operand], outs: Sequence[tuple[str, TensorType]]
) -> None:
    given = [(w.fresh(), syntax.element(o.type.dtype)) for o in ins]
    held = [(w.fresh(), syntax.element(t.dtype)) for _, t in outs]
    w.line(f"^bb0({', '.join(f'{v}: {t}' for v, t in (*given, *held))}):", 3)
    body = Body(w, [*(v for v, _ in given), *(v for v, _ in held)])
    found = []
    for i, (y, value) in enumerate(zip(g.yields, typed_yields(g), strict=True)):
        total = Typed("arg", (), y.dtype, len(ins) + i)
        found.append(body.emit(Typed(y.combine, (total, value), y.dtype) if y.combine else value))
    w.line(f"linalg.yield {', '.join(found)} : {', '.join(t for _, t in held)}", 4)
