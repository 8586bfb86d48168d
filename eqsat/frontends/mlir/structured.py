"""`linalg.generic` (named ops arrive as generics) → loop nests; reductions start from anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.frontends.mlir.expressions import BodyReader, Operand, affine_of
from eqsat.frontends.mlir.items import Environment, Item, Undefined, segments
from eqsat.frontends.mlir.parser import op_precision
from eqsat.frontends.mlir.scalars import MAXNUM, MINNUM, expanded, without_nan
from eqsat.frontends.mlir.tensortypes import note_contraction
from eqsat.frontends.values import Tensor, transposed, view
from eqsat.model.affine import Affine, Map, affine, dim
from eqsat.model.attr import Shape
from eqsat.model.expr import Expr, arg, call
from eqsat.model.generic import Result, Yield
from eqsat.model.tensor import NONE, is_float
from eqsat.ops.generics.canonical import compose_maps, generic_node, identity
from eqsat.ops.meaning import scalar

COMBINES = {"add": "add", "mul": "mul", "max": "max", "min": "min", "and": "and", "or": "or",
            MAXNUM: "max", MINNUM: "min"}  # fmt: skip


@dataclass(frozen=True)
class _Out:
    """One result of a nest: where it is written, what is combined, and what was there before."""

    loops: tuple[int, ...]  # of the result's dims
    shape: Shape
    dtype: str
    initial: Tensor | Undefined
    precision: str


def generic(scope: Environment, op: Any) -> list[Item]:
    """Any `linalg.generic` on tensors."""
    inputs, outputs = segments(op)
    shaped = [scope.shaped(v, op) for v in (*inputs, *outputs)]
    maps = indexing_maps(scope, op, len(shaped))
    extents = loop_sizes(scope, op, maps, shaped)
    if any(_are_reduced(scope, op)):
        note_contraction(scope, op, extents)
    sizes, loops = _with_unit_loops(extents, maps[len(inputs) :])
    block = op.regions[0].blocks[0]
    operands: list[Operand] = [(_readable(s), m) for s, m in zip(shaped, maps, strict=True)]
    body = BodyReader(scope, sizes, operands)
    for i, argument in enumerate(block.arguments):
        body.terms[argument] = arg(i)
    yielded = body.read(block)
    _check_reads(scope, op, yielded, shaped)
    reductions = _reductions(scope, op, sizes, maps[len(inputs) :])
    precision = op_precision(scope, op)
    outs = [
        _Out(where, tuple(sizes[d] for d in where), s.dtype, s, precision)
        for where, s in zip(loops, shaped[len(inputs) :], strict=True)
    ]
    return _results(scope, op, body, len(inputs), yielded, outs, reductions)


def _readable(s: Tensor | Undefined) -> Tensor:
    """An operand of the nest; nothing reads the elements of one that has none."""
    return Tensor(s.shape, s.dtype, constant=0) if isinstance(s, Undefined) else s


def indexing_maps(scope: Environment, op: Any, count: int) -> list[Map]:
    """The maps of an op; E375 if one divides."""
    attributes = op.attributes["indexing_maps"]
    if attributes not in scope.maps:
        scope.maps[attributes] = _maps(scope, op, attributes)
    maps = scope.maps[attributes]
    if len(maps) != count:
        raise scope.fail("E375", f"`{op.name}` has {len(maps)} maps for {count} operands", op)
    return maps


def _maps(scope: Environment, op: Any, attributes: Any) -> list[Map]:
    maps = []
    for attribute in attributes:
        amap = attribute.value
        dims = [dim(i) for i in range(amap.n_dims)]
        exprs = [affine_of(e, dims) for e in amap.results]
        if None in exprs or amap.n_symbols:
            why = f"`{amap}` is no sum of multiples of loops"
            raise scope.fail("E375", why, op, help="split the loop into two, or use a reshape")
        maps.append(tuple(e for e in exprs if e is not None))
    return maps


def _are_reduced(scope: Environment, op: Any) -> list[bool]:
    """Per loop, whether it is a reduction."""
    kinds = op.attributes["iterator_types"]
    if kinds not in scope.reduced:
        scope.reduced[kinds] = ["reduction" in str(k) for k in kinds]
    return scope.reduced[kinds]


def loop_sizes(
    scope: Environment, op: Any, maps: Sequence[Map], shaped: Sequence[Tensor | Undefined]
) -> list[int]:
    """The extent of every loop, from the operands that index with it alone; E376 if they differ."""
    count = op.attributes["indexing_maps"][0].value.n_dims if maps else 0
    sizes: dict[int, int] = {}
    for m, s in zip(maps, shaped, strict=True):
        if len(m) != len(s.shape):
            why = f"a map with {len(m)} results indexes a tensor of rank {len(s.shape)}"
            raise scope.fail("E376", why, op)
        for e, size in zip(m, s.shape, strict=True):
            if e.dim is not None and sizes.setdefault(e.dim, size) != size:
                why = f"loop d{e.dim} of `{op.name}` has extents {sizes[e.dim]} and {size}"
                raise scope.fail("E376", why, op)
    if len(sizes) != count:
        missing = next(d for d in range(count) if d not in sizes)
        raise scope.fail("E376", f"the extent of loop d{missing} is not known", op)
    return [sizes[d] for d in range(count)]


def _with_unit_loops(
    sizes: list[int], maps: Sequence[Map]
) -> tuple[list[int], list[tuple[int, ...]]]:
    """A loop of extent 1 for every dim of a result that a map pins to 0; -1 for what is no loop."""
    places = []
    for m in maps:
        loops = []
        for e in m:
            if e.dim is None and not e.terms and e.constant == 0:
                sizes = [*sizes, 1]
                loops.append(len(sizes) - 1)
            else:
                loops.append(-1 if e.dim is None else e.dim)
        places.append(tuple(loops))
    return sizes, places


def _check_reads(
    scope: Environment, op: Any, yielded: Sequence[Expr], shaped: Sequence[Tensor | Undefined]
) -> None:
    for e in yielded:
        if any(i < len(shaped) and isinstance(shaped[i], Undefined) for i in e.operands()):
            why = f"`{op.name}` reads an uninitialised tensor"
            raise scope.fail("E375", why, op, help="fill it first, with `linalg.fill`")


def _reductions(
    scope: Environment, op: Any, sizes: Sequence[int], maps: Sequence[Map]
) -> list[list[int]]:
    """Per result, the loops it is reduced over; E375 for a loop that writes one place twice."""
    kinds = _are_reduced(scope, op)
    reductions = []
    for m in maps:
        written = {e.dim for e in m if e.dim is not None}
        if len(written) < sum(bool(e.terms) for e in m):
            raise scope.fail("E375", f"`{op.name}` writes its result through `{m}`", op)
        left = [d for d in range(len(kinds)) if d not in written]
        twice = [d for d in left if not kinds[d] and sizes[d] != 1]
        if twice:
            raise scope.fail("E375", f"parallel loop d{twice[0]} writes one place twice", op)
        reductions.append([d for d in left if kinds[d]])
    return reductions


def _results(
    scope: Environment, op: Any, body: BodyReader, inputs: int, yielded: Sequence[Expr],
    outs: Sequence[_Out], reductions: Sequence[list[int]],
) -> list[Item]:  # fmt: skip
    """One node for all results that are computed alike, else one for each."""
    yields, starts = [], []
    for i, (e, out) in enumerate(zip(yielded, outs, strict=True)):
        combine, rest = _combined(scope, op, e, inputs, i, len(outs), bool(reductions[i]))
        yields.append(Yield(expanded(rest), out.dtype, combine))
        starts.append(combine)
    if len(outs) > 1 and len({o.loops for o in outs}) == 1 and not _is_plain(yields):
        results = _together(scope, body, outs[0], yields)
    else:
        results = [_alone(scope, body, o, y) for o, y in zip(outs, yields, strict=True)]
    return [
        _started(scope, op, x, out, combine, e.operands())
        for x, out, combine, e in zip(results, outs, starts, yielded, strict=True)
    ]


def _is_plain(yields: Sequence[Yield]) -> bool:
    """Whether some result is a copy or a constant, which needs no node of its own."""
    return any(y.body.fn in ("arg", "const") and not y.combine for y in yields)


def _combined(
    scope: Environment, op: Any, e: Expr, inputs: int, number: int, outs: int, reduces: bool
) -> tuple[str, Expr]:
    """("add", what is summed) of a reduction; ("", the body) where nothing is reduced."""
    if not reduces:
        return "", e
    mine = arg(inputs + number)
    others = {inputs + k for k in range(outs)} - {inputs + number}
    if others & set(e.operands()):
        raise scope.fail("E375", "the results of a reduction depend on one another", op)
    e = call("add", e.args[0], call("neg", e.args[1])) if e.fn == "sub" else e
    if e.fn not in COMBINES:
        why = f"`{op.name}` reduces by `{e.fn}`, which is not add, mul, max, min, and, or"
        raise scope.fail("E375", why, op)
    rest = _beside(e, mine)
    if rest is None:
        raise scope.fail("E375", f"`{op.name}` is no plain reduction of its result", op)
    combine = COMBINES[e.fn]
    if e.fn in (MAXNUM, MINNUM):
        rest = [without_nan(x, combine) for x in rest]
    total = rest[0]
    for x in rest[1:]:
        total = call(combine, total, x)
    return combine, total


def _beside(e: Expr, mine: Expr) -> list[Expr] | None:
    """The term that a sum (or product, …) adds to its result so far; None if there is none."""
    before: list[Expr] = []
    after: list[Expr] = []
    fn = e.fn
    while e is not mine:
        reads = [mine.value in a.operands() for a in e.args]
        if e.fn != fn or reads.count(True) != 1:
            return None
        side = reads.index(True)
        before += e.args[:side]
        after += e.args[side + 1 :]
        e = e.args[side]
    return before + after[::-1]


def _alone(scope: Environment, body: BodyReader, out: _Out, y: Yield) -> Tensor:
    if not y.combine:
        view = _view(scope, body, out, y)
        if view is not None:
            return view
    read = sorted(set(y.body.operands()))
    body_of = y.body.substitute({o: arg(i) for i, o in enumerate(read)})
    operands = [body.operands[o] for o in read]
    loops = {d for d, size in enumerate(body.sizes) if d in out.loops or size != 1}
    operands = [(v, _at_start(m, loops)) for v, m in operands]
    combine = y.combine if len(loops) > len(out.loops) else ""
    result = Yield(body_of, y.dtype, combine)
    return scope.ctx.generic(body.sizes, out.loops, operands, result, out.precision)


def _at_start(m: Sequence[Affine], loops: set[int]) -> list[Affine]:
    """The map with all other loops, which have extent 1 and do not index the result, at 0."""
    return [Affine(tuple(t for t in e.terms if t[0] in loops), e.constant) for e in m]


def _view(scope: Environment, body: BodyReader, out: _Out, y: Yield) -> Tensor | None:
    """A constant, or an operand seen through a map; None if something is computed."""
    if y.body.fn == "const":
        fitting = float(y.body.value) if is_float(out.dtype) else y.body.value
        return Tensor(out.shape, out.dtype, constant=fitting)
    if y.body.fn != "arg":
        return None
    x, m = body.operands[y.body.value]
    if x.dtype != out.dtype:
        return None
    place = {d: dim(i) for i, d in enumerate(out.loops)}
    outer = [place.get(d, affine([])) for d in range(len(body.sizes))]
    through = compose_maps(tuple(m), outer)
    if x.is_constant:
        return Tensor(out.shape, x.dtype, constant=x.constant)
    perm = _permutation(through, x.shape)
    if perm is not None and perm != tuple(range(len(perm))):
        return transposed(scope.ctx, x, perm)
    return view(x, out.shape, through)


def _permutation(m: Map, shape: Shape) -> tuple[int, ...] | None:
    """perm if the map is one that moves dims wider than 1, else None."""
    dims = [e.dim for e in m]
    if None in dims or sorted(d for d in dims if d is not None) != list(range(len(dims))):
        return None
    perm = tuple(dims.index(i) for i in range(len(dims)))
    moved = [p for p in perm if shape[p] != 1]
    return None if moved == sorted(moved) and list(perm) != sorted(perm) else perm


def _together(
    scope: Environment, body: BodyReader, out: _Out, yields: Sequence[Yield]
) -> list[Tensor]:
    ctx = scope.ctx
    used = [
        (v.node, compose_maps(v.map, m))
        for v, m in ((ctx.full(ctx.materialise(v)), m) if v.is_constant else (v, m)
                     for v, m in body.operands)
    ]  # fmt: skip
    node = generic_node(ctx.builder, body.sizes, out.loops, used, yields, precision=NONE)
    return [ctx.add("result", (node,), Result(i)) for i in range(len(yields))]


def _started(
    scope: Environment, op: Any, x: Tensor, out: _Out, combine: str, read: tuple[int, ...]
) -> Item:
    """The reduction together with what its result held before, unless that was neutral."""
    if not combine:
        return x
    first = out.initial
    assert isinstance(first, Tensor)
    if first.is_constant and first.constant == scalar.neutral(combine, out.dtype):
        return x
    body = call(combine, arg(0), arg(1))
    operands = [(x, identity(len(out.shape))), (first, identity(len(out.shape)))]
    return scope.ctx.generic(out.shape, range(len(out.shape)), operands, Yield(body, out.dtype))
