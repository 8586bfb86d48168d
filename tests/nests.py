"""Dispatches of schedules as nests, evaluated and compared with what their members mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.model.nest import Nest
from eqsat.model.program import Program
from eqsat.model.schedule import Dispatch
from eqsat.ops import meaning
from eqsat.ops.nestmeaning import evaluate

Array = np.ndarray[Any, Any]
Values = dict[int, list[Array]]


def drawn_inputs(program: Program, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    types = [program.nodes[i].type for i in program.inputs]
    return [
        rng.normal(size=t.shape) if t.dtype[0] in "fb" else rng.integers(0, 8, t.shape)
        for t in types
    ]


def values_of(program: Program, weights: Any, opaque: Any = None, seed: int = 0) -> Values:
    """Every value of a program, in held form."""
    leaves = meaning.bind_leaves(program, drawn_inputs(program, seed), weights)
    found: Values = {i: [a] for i, a in leaves.items()}
    for i, n in enumerate(program.nodes):
        if i not in found:
            operands = meaning.arguments(n, found)
            found[i] = meaning.evaluate_node(n.op, n.attr, operands, opaque)
    return found


def points(nest: Nest) -> int:
    """Of the stage that has the most."""
    return max((nest.points((*s.loops, *s.reduced)) for s in nest.stages), default=1)


def mismatch(nest: Nest, dispatch: Dispatch, values: Values) -> str:
    """What a nest writes otherwise than its members mean; "" if nothing."""
    read = {b: values[b][0].ravel() for b in nest.reads}
    assert set(nest.reads) <= set(dispatch.reads)
    assert set(nest.writes) == set(dispatch.writes)
    got = evaluate(nest, read, {w: values[w][0].size for w in nest.writes})
    for w in dispatch.writes:
        want = values[w][0].ravel()
        if want.dtype.kind == "f":
            anything = np.isnan(want)  # lanes that are left open, or what is NaN anyway
            scale = np.max(np.abs(want), where=np.isfinite(want), initial=1.0)
            same = anything | np.isclose(got[w], want, rtol=1e-9, atol=1e-9 * scale)
        else:
            same = got[w] == want
        if not same.all():
            return f"%{w}: {int((~same).sum())} of {same.size} elements differ"
    return ""
