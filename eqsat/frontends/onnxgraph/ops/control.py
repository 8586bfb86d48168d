"""If, Loop, Scan: the branch or the steps themselves where they are known, else lax.cond and co."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import Held, OnnxCall, operator
from eqsat.frontends.onnxgraph.graph import OnnxGraph

UNROLLED = 8  # steps of a loop that become ops of the program
MOST_UNROLLED = 256  # steps of one whose values change their shapes
MOST_SCANNED = 2**20  # steps that are counted in an array
MOST_TRIPS = 2**31 - 1


@operator("If", newest=25)
def if_(c: OnnxCall) -> Any:
    yes, no = c.graph("then_branch"), c.graph("else_branch")
    condition = c.held(0)
    if condition.is_constant:
        return tuple(c.run(yes if condition.array.reshape(-1)[0] else no, []))

    def branch(graph: OnnxGraph) -> Any:
        return lambda: tuple(h.traced for h in c.run(graph, []))

    return tuple(c.lax.cond(c[0].reshape(()), branch(yes), branch(no)))


# ---- Loop ----------------------------------------------------------------------------------------
@operator("Loop", newest=25)
def loop(c: OnnxCall) -> Any:
    """(trip count, condition, carried …) → (carried …, one stacked result per scan output)."""
    body = c.graph("body")
    carried = [c.held(i) for i in range(2, len(c))]
    if len(body.inputs) != len(carried) + 2 or len(body.outputs) < len(carried) + 1:
        raise c.error("E362", "has a body whose inputs or outputs do not fit its own")
    if c.has(1) and c.held(1).is_constant and not c.static(1, "condition").all():
        return _nothing(c, body, carried)
    trips = _trips(c)
    if c.has(1) and not c.held(1).is_constant:
        return _while(c, body, carried)
    if trips is not None and (trips <= UNROLLED or not _steady(c, body, carried)):
        results = _unrolled(c, body, carried, trips)
        if results is not None:
            return results
    if trips is not None and trips <= MOST_SCANNED and _always(c, body, carried):
        return _scanned(c, body, carried, trips)
    return _while(c, body, carried)


def _trips(c: OnnxCall) -> int | None:
    """The trip count if it is known."""
    if not c.has(0) or not c.held(0).is_constant:
        return None
    return max(0, min(int(c.static(0, "trip count").reshape(-1)[0]), MOST_TRIPS))


def _step(c: OnnxCall, body: OnnxGraph, number: Any, carried: Sequence[Held]) -> list[Held]:
    ahead = [Held(number), Held(np.ones((), bool))]
    return c.run(body, [*ahead, *carried])


def _trial(c: OnnxCall, body: OnnxGraph, carried: Sequence[Held]) -> list[Held]:
    """What one step gives, for its types and for what is known of them."""
    import jax

    results: list[Held] = []

    def run(number: Any, values: list[Any]) -> list[Any]:
        results.extend(_step(c, body, number, [Held(v) for v in values]))
        return [h.traced for h in results]

    given = [h.traced for h in carried]
    shapes = jax.eval_shape(run, np.int32(0), given)
    return [h if h.is_constant else Held(s) for h, s in zip(results, shapes, strict=True)]


def _steady(c: OnnxCall, body: OnnxGraph, carried: Sequence[Held]) -> bool:
    """Whether a step keeps the types of what it carries."""
    after = _trial(c, body, carried)[1 : 1 + len(carried)]
    return all(
        a.shape == tuple(b.traced.shape) and a.dtype == b.traced.dtype
        for a, b in zip(after, carried, strict=True)
    )


def _always(c: OnnxCall, body: OnnxGraph, carried: Sequence[Held]) -> bool:
    going = _trial(c, body, carried)[0]
    return going.is_constant and bool(going.array.reshape(-1)[0])


def _unrolled(c: OnnxCall, body: OnnxGraph, carried: list[Held], trips: int) -> Any | None:
    """Step after step; None where only the run decides when to stop."""
    if trips > MOST_UNROLLED:
        raise c.unsupported(f"{trips} steps in which the shapes of its values change")
    stacks: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    for at in range(trips):
        going, *after = _step(c, body, np.asarray(at, np.int64), carried)
        if not going.is_constant and at + 1 < trips:
            return None
        carried = after[: len(carried)]
        for stack, h in zip(stacks, after[len(carried) :], strict=True):
            stack.append(h.traced)
        if going.is_constant and not going.array.reshape(-1)[0]:
            break
    if not any(stacks) and stacks:
        return _nothing(c, body, carried)
    return (*carried, *(c.xp.stack(s) for s in stacks))


def _nothing(c: OnnxCall, body: OnnxGraph, carried: list[Held]) -> Any:
    """No step at all: what was carried in, and empty stacks."""
    shapes = _trial(c, body, carried)[1 + len(carried) :]
    return (*carried, *(np.zeros((0, *h.shape), h.dtype) for h in shapes))


def _scanned(c: OnnxCall, body: OnnxGraph, carried: list[Held], trips: int) -> Any:
    def step(values: Any, number: Any) -> Any:
        _, *after = _step(c, body, number, [Held(v) for v in values])
        arrays = [h.traced for h in after]
        return arrays[: len(carried)], arrays[len(carried) :]

    numbers = c.xp.arange(trips, dtype=np.int64)
    last, stacks = c.lax.scan(step, [h.traced for h in carried], numbers)
    return (*last, *stacks)


def _while(c: OnnxCall, body: OnnxGraph, carried: list[Held]) -> Any:
    if len(body.outputs) > 1 + len(carried):
        raise c.error(
            "E366",
            "stacks one result per step, and how many steps there are depends on the inputs",
            help=f"shapes are static here: give it a constant trip count up to {MOST_SCANNED}",
        )
    trips = _trips(c) if c.has(0) else MOST_TRIPS
    most = c[0].reshape(()) if trips is None else trips
    start = c[1].reshape(()) if c.has(1) else c.xp.asarray(True)

    def going(state: Any) -> Any:
        return state[1] & (state[0] < most)

    def step(state: Any) -> Any:
        number, _, *values = state
        results = [h.traced for h in _step(c, body, number, [Held(v) for v in values])]
        return [number + 1, results[0].reshape(()), *results[1:]]

    state = [c.xp.zeros((), np.int64), start, *(h.traced for h in carried)]
    return tuple(c.lax.while_loop(going, step, state)[2:])


# ---- Scan ----------------------------------------------------------------------------------------
@operator("Scan", newest=25)
def scan(c: OnnxCall) -> Any:
    """(state …, scanned …) → (state …, stacked …); axes and directions by attribute."""
    body, count = c.graph("body"), int(c.needed("num_scan_inputs"))
    states = len(c) - count
    stacked = len(body.outputs) - states
    if count < 1 or states < 0 or stacked < 0 or len(body.inputs) != len(c):
        raise c.error("E362", "has a body whose inputs or outputs do not fit its own")
    xs = [_scanned_operand(c, states + i, i) for i in range(count)]

    def step(values: Any, parts: Any) -> Any:
        results = [h.traced for h in c.run(body, [Held(v) for v in (*values, *parts)])]
        return results[:states], results[states:]

    last, stacks = c.lax.scan(step, [c[i] for i in range(states)], xs)
    return (*last, *(_placed(c, s, i) for i, s in enumerate(stacks)))


def _listed(c: OnnxCall, name: str, i: int) -> int:
    given = c.attribute(name, ())
    return int(given[i]) if i < len(given) else 0


def _scanned_operand(c: OnnxCall, i: int, number: int) -> Any:
    x = c.xp.moveaxis(c[i], c.axis(_listed(c, "scan_input_axes", number), c.rank(i)), 0)
    return c.xp.flip(x, 0) if _listed(c, "scan_input_directions", number) else x


def _placed(c: OnnxCall, x: Any, i: int) -> Any:
    x = c.xp.flip(x, 0) if _listed(c, "scan_output_directions", i) else x
    return c.xp.moveaxis(x, 0, c.axis(_listed(c, "scan_output_axes", i), x.ndim))
