"""Programs with one fault each, of the same types: what a wrong rewrite or executor would compute.

A fault changes one op's attribute (or the operands of one op), so that the program still fits the
schedule it came from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.model.affine import Affine
from eqsat.model.attr import ShapeError
from eqsat.model.control import Control
from eqsat.model.expr import Expr, call, cast, const
from eqsat.model.generic import Generic
from eqsat.model.layout import Layout
from eqsat.model.leaves import Fill
from eqsat.model.movement import Move, Transpose
from eqsat.model.program import Builder, Node, Program
from eqsat.model.tensor import is_float
from eqsat.ops.meaning.programs import evaluate_program

OTHER = {
    "add": "sub", "sub": "add", "mul": "add", "div": "mul", "max": "min", "min": "max",
    "exp": "expm1", "tanh": "logistic", "logistic": "tanh", "neg": "abs", "rsqrt": "sqrt",
    "round_even": "floor", "ge": "gt", "lt": "le", "erf": "tanh", "sqrt": "rsqrt",
}  # fmt: skip
Changed = Iterator[tuple[str, Node]]


def faults(node: Node) -> Changed:
    """(name of the fault, the node with it); types and the number of operands stay."""
    attr = node.attr
    if isinstance(attr, Generic):
        yield from _generic(node, attr)
    elif isinstance(attr, Move):
        yield from _move(node, attr)
    elif isinstance(attr, Transpose):
        for perm in _swaps(attr.perm):
            yield "wrong transposition", replace(node, attr=replace(attr, perm=perm))
    elif isinstance(attr, Layout):
        yield from _layout(node, attr)
    elif isinstance(attr, Fill) and is_float(attr.type.dtype):
        yield "wrong fill", replace(node, attr=replace(attr, value=float(attr.value) + 1.0))
    elif isinstance(attr, Control) and attr.op == "scan" and attr.programs:
        yield "scan turned round", replace(node, attr=replace(attr, reverse=not attr.reverse))


def _generic(node: Node, g: Generic) -> Changed:
    for name, body in _bodies(g.body):
        yield name, _with_body(node, g, body)
    if is_float(g.yields[0].dtype) and g.yields[0].dtype != "bf16":
        yield "rounded to bf16", _with_body(node, g, _narrow(g.body, g.yields[0].dtype))
    if g.combine in ("add", "max"):
        other = {"add": "max", "max": "min"}[g.combine]
        yields = (replace(g.yields[0], combine=other), *g.yields[1:])
        yield "wrong combine", replace(node, attr=replace(g, yields=yields))
    for d in g.reductions:
        if g.sizes[d] > 1:
            sizes = tuple(s - (i == d) for i, s in enumerate(g.sizes))
            yield "a term dropped", replace(node, attr=replace(g, sizes=sizes))
    for at, m in enumerate(g.maps):
        for other in _swaps(m):
            maps = (*g.maps[:at], other, *g.maps[at + 1 :])
            yield "wrong axis", replace(node, attr=replace(g, maps=maps))
        for axis, e in enumerate(m):
            moved = (*m[:axis], Affine(e.terms, e.constant + 1), *m[axis + 1 :])
            maps = (*g.maps[:at], moved, *g.maps[at + 1 :])
            yield "border off by one", replace(node, attr=replace(g, maps=maps))
    for a in range(len(node.operands)):
        for b in range(a):
            operands = list(node.operands)
            operands[a], operands[b] = operands[b], operands[a]
            yield "operands exchanged", replace(node, operands=tuple(operands))


def _with_body(node: Node, g: Generic, body: Expr) -> Node:
    return replace(node, attr=replace(g, yields=(replace(g.yields[0], body=body), *g.yields[1:])))


def _narrow(body: Expr, dtype: str) -> Expr:
    return cast(cast(body, "bf16"), dtype)


def _bodies(e: Expr) -> Iterator[tuple[str, Expr]]:
    """The body with one place changed."""
    if e.fn == "const" and isinstance(e.value, float):
        yield "wrong constant", const(e.value * 1.01 if e.value else 0.01)
    if e.fn in OTHER:
        yield "wrong function", Expr(OTHER[e.fn], e.args, e.value)
    if e.fn in ("sub", "div"):
        yield "sides exchanged", call(e.fn, e.args[1], e.args[0])
    if e.fn in ("add", "max", "mul", "tanh", "logistic") and e.args[0].fn != "const":
        yield "epilogue forgotten", e.args[0]
    for at, a in enumerate(e.args):
        for name, inner in _bodies(a):
            yield name, Expr(e.fn, (*e.args[:at], inner, *e.args[at + 1 :]), e.value)


def _move(node: Node, m: Move) -> Changed:
    if node.op == "pad":
        low, high, text = m.args
        yield (
            "wrong padding value",
            _moved(node, m, (low, high, "0.5" if "." in str(text) else "1")),
        )
        for d, (a, b) in enumerate(zip(low, high, strict=True)):
            if b > 0:
                lows, highs = _bumped(low, d, 1), _bumped(high, d, -1)
                yield "pad off by one", _moved(node, m, (lows, highs, text))
            elif a > 0:
                lows, highs = _bumped(low, d, -1), _bumped(high, d, 1)
                yield "pad off by one", _moved(node, m, (lows, highs, text))
    if node.op == "slice":
        start, limit, step = m.args
        for d in range(len(start)):
            for by in (-1, 1):
                args = (_bumped(start, d, by), _bumped(limit, d, by), step)
                yield "slice shifted", _moved(node, m, args)
    if node.op == "concat" and len(node.operands) > 1:
        yield "parts exchanged", replace(node, operands=tuple(reversed(node.operands)))


def _moved(node: Node, m: Move, args: tuple[Any, ...]) -> Node:
    return replace(node, attr=replace(m, args=args))


def _bumped(xs: Any, d: int, by: int) -> tuple[int, ...]:
    return tuple(x + by * (i == d) for i, x in enumerate(xs))


def _layout(node: Node, layout: Layout) -> Changed:
    for outer in _swaps(layout.outer):
        yield "tiles exchanged", replace(node, attr=replace(layout, outer=outer))
    for pos in _swaps(layout.pos):
        yield "wrong tile layout", replace(node, attr=replace(layout, pos=pos))
    if "0" in layout.pads:
        pads = tuple("1" if p == "0" else p for p in layout.pads)
        yield "wrong padding", replace(node, attr=replace(layout, pads=pads))


def _swaps(xs: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for b in range(len(xs)):
        for a in range(b):
            found = list(xs)
            found[a], found[b] = found[b], found[a]
            yield tuple(found)


def wrong_programs(program: Program, rng: random.Random) -> Iterator[tuple[str, Program]]:
    """(fault, the program with it) in random order, each kind of fault in its turn."""
    kinds: dict[str, list[tuple[int, Node]]] = {}
    for i in program.needed:
        if program.nodes[i].op not in ("input", "weight"):
            for name, node in faults(program.nodes[i]):
                kinds.setdefault(name, []).append((i, node))
    for several in kinds.values():
        rng.shuffle(several)
    names = list(kinds)
    rng.shuffle(names)
    while any(kinds.values()):
        for name in names:
            if kinds[name]:
                found = replaced(program, *kinds[name].pop())
                if found is not None:
                    yield name, found


def replaced(program: Program, at: int, node: Node) -> Program | None:
    """The program with another node; None if it does not fit, or changes a type."""
    b = Builder(program.name)
    try:
        for i, n in enumerate(program.nodes):
            new = node if i == at else n
            b.append(new.op, new.operands, new.attr)
    except (ShapeError, ValueError, IndexError):
        return None
    if b.nodes[at].types != program.nodes[at].types:
        return None
    return b.build(program.results)


def change(
    program: Program,
    other: Program,
    inputs: list[Any],
    weights: Any,
    opaque: Any,
    run: Callable[[Program], Any],
) -> float:
    """max|a − b| / max|b| between two programs: in float64, or as executed if that is more.

    A rounding to a narrower type is none in float64.
    """
    exact = [evaluate_program(p, inputs, weights, opaque) for p in (other, program)]
    executed = [run(p) for p in (other, program)]
    return max(_relative(*exact), _relative(*executed))


def _relative(got: Any, wanted: Any) -> float:
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        x, y = (np.asarray(v).astype(np.float64) for v in (a, b))
        with np.errstate(all="ignore"):
            away = np.where(np.isfinite(x) & np.isfinite(y), np.abs(x - y), 0.0)
            size = np.max(np.where(np.isfinite(y), np.abs(y), 0.0), initial=0.0)
        worst = max(worst, float(np.max(away, initial=0.0)) / (float(size) or 1.0))
    return worst
