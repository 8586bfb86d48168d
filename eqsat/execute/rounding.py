"""How far results may be off because a rounding op met a tie.

A kernel's f32 pre-image differs from the reference's float64 one by its rounding error. Where that
error covers a tie, either neighbour is right, and what is computed from it is off by one quantum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from eqsat.model.expr import BottomUp, Expr, call, const, rebuilt, walk_all
from eqsat.model.generic import Generic, Result, Yield
from eqsat.model.program import Builder, Program
from eqsat.ops.meaning import evaluate_program

Array = np.ndarray[Any, Any]
ROUNDINGS = frozenset({"round_even", "round_away"})
Site = tuple[int, Expr]  # a node, and a rounding in its body


def quanta(
    program: Program,
    inputs: Sequence[Array],
    weights: Mapping[str, Array],
    opaque: Mapping[str, Callable[..., Sequence[Any]]],
    wanted: Sequence[Array],
    error: float,
) -> list[Array] | None:
    """Per result, elementwise: how far it may be off; None if the program rounds nothing.

    Every pre-image is moved up, then down, by `error` times its largest magnitude; what that
    changes is allowed. `wanted` are the results of the reference for these inputs.
    """
    sites = list(_sites(program))
    if not sites:
        return None
    given = (inputs, weights, opaque)
    scales = dict(zip(sites, _magnitudes(program, sites, *given), strict=True))
    found = [np.zeros(np.shape(w)) for w in wanted]
    for side in (error, -error):
        moved = _moved(program, {site: side * scale for site, scale in scales.items()})
        changed = evaluate_program(moved, *given)
        found = [s + _distance(a, b) for s, a, b in zip(found, changed, wanted, strict=True)]
    return found


def _distance(a: Array, b: Array) -> Array:
    """0 where either is not finite: such elements have to be equal."""
    with np.errstate(invalid="ignore"):
        found = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(np.isfinite(found), found, 0.0)


def _sites(program: Program) -> Iterator[Site]:
    for i, node in enumerate(program.nodes):
        if isinstance(node.attr, Generic):
            bodies = walk_all([y.body for y in node.attr.yields])
            yield from ((i, e) for e in bodies if e.fn in ROUNDINGS)


def _magnitudes(program: Program, sites: Sequence[Site], *given: Any) -> list[float]:
    """The largest magnitude of what each of these roundings rounds."""
    b = Builder(program.name)
    for node in program.nodes:
        b.append(node.op, node.operands, node.attr)
    found: list[int] = []
    for i, of_node in groupby(sites, key=lambda site: site[0]):
        node = program.nodes[i]
        assert isinstance(node.attr, Generic)
        combine = "max" if node.attr.reductions else ""
        # one op for all of them: what one rounding is computed from, the next mostly is, too
        sizes = tuple(Yield(call("abs", e.args[0]), "f64", combine) for _, e in of_node)
        whole = b.append("generic", node.operands, replace(node.attr, yields=sizes))
        several = len(sizes) > 1
        at = [b.append("result", (whole,), Result(k)) for k in range(len(sizes))] if several else []
        found += at or [whole]
    arrays = evaluate_program(b.build(found), *given)
    return [float(np.max(np.where(np.isfinite(a), a, 0.0), initial=0.0)) for a in arrays]


def _moved(program: Program, by: Mapping[Site, float]) -> Program:
    """The program with these amounts added to what its roundings round."""
    b = Builder(program.name)
    for i, node in enumerate(program.nodes):
        attr = node.attr
        if isinstance(attr, Generic):
            yields = tuple(replace(y, body=_shifted(i, y.body, by)) for y in attr.yields)
            attr = replace(attr, yields=yields)
        b.append(node.op, node.operands, attr)
    return b.build(program.results)


def _shifted(node: int, body: Expr, by: Mapping[Site, float]) -> Expr:
    def step(e: Expr, args: Sequence[Expr]) -> Expr:
        if (node, e) in by:
            args = (call("add", args[0], const(by[node, e])),)
        return rebuilt(e, args)

    return BottomUp(step)(body)
