"""If, Loop, Scan, and LSTM, GRU and RNN: bodies that run step by step.

The branch or the steps themselves where they are known, else lax.cond and co; recurrent layers are
lax.scan over the steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.graph import Held, OnnxCall, OnnxGraph, operator
from eqsat.frontends.onnxgraph.ops.elementwise import ACTIVATIONS, Activation
from eqsat.frontends.onnxgraph.ops.indexing import reversal

UNROLLED = 8  # steps of a loop that become ops of the program
MOST_UNROLLED = 256  # steps of one whose values change their shapes
MOST_SCANNED = 2**20  # steps that are counted in an array
MOST_TRIPS = 2**31 - 1


@operator("If", newest=25)
def if_(c: OnnxCall) -> Any:
    """Of a known condition only the branch taken is run, so the other one may hold anything."""
    names = "then_branch", "else_branch"
    for name in names:
        c.needed(name)
    condition = c.held(0).known
    if condition is not None:
        return tuple(c.run(c.graph(names[not condition.reshape(-1)[0]]), []))

    def branch(graph: OnnxGraph) -> Any:
        return lambda: tuple(h.traced for h in c.run(graph, []))

    return tuple(c.lax.cond(c[0].reshape(()), *(branch(c.graph(n)) for n in names)))


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
    """Results of one step, for their types and for what is known of them."""
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


Applied = Callable[[Any], Any]
Step = Callable[[Any, Any], Any]
# what the standard lets layers name, in lower case
KNOWN = {
    name.lower(): ACTIVATIONS[name]
    for name in (
        "Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus",
        "Softsign", "Tanh", "ThresholdedRelu",
    )
}  # fmt: skip


def _activations(c: OnnxCall, defaults: tuple[str, ...], directions: int) -> list[list[Applied]]:
    """Per direction; alpha and beta are given out in order to those that take them."""
    names = list(c.attribute("activations") or defaults * directions)
    if len(names) != len(defaults) * directions:
        raise c.error("E368", f"has {len(names)} activations")
    given = [iter(c.attribute(f"activation_{k}") or ()) for k in ("alpha", "beta")]
    activations = []
    for name in names:
        if name.lower() not in KNOWN:
            raise c.unsupported(f"the activation `{name}`")
        activation = KNOWN[name.lower()]
        defaults_of = activation.parameters.values()
        values = [next(more, d) for more, d in zip(given, defaults_of, strict=False)]
        activations.append(functools.partial(_applied, c, activation, values))
    each = len(defaults)
    return [activations[i * each : (i + 1) * each] for i in range(directions)]


def _applied(c: OnnxCall, activation: Activation, values: list[float], x: Any) -> Any:
    return activation.function(c, x, *values)


def _clipped(c: OnnxCall) -> Applied:
    bound = c.attribute("clip")
    return (lambda x: x) if not bound else (lambda x: c.xp.clip(x, -bound, bound))


def _recurrent(gates: int, states: int, defaults: tuple[str, ...], make: Any, c: OnnxCall) -> Any:
    """All directions of one layer: Y [steps, directions, batch, hidden], and the last states."""
    swap = bool(c.attribute("layout", 0))
    x = c.xp.swapaxes(c[0], 0, 1) if swap else c[0]
    way = c.attribute("direction", "forward")
    if way not in ("forward", "reverse", "bidirectional"):
        raise c.error("E362", f"has the unknown direction `{way}`")
    directions = 2 if way == "bidirectional" else 1
    hidden = c.shape(2)[-1]
    if c.shape(1) != (directions, gates * hidden, x.shape[2]) or c.rank(2) != 3:
        raise c.error("E368", f"has weights {list(c.shape(1))} for inputs of {x.shape[2]}")
    functions = _activations(c, defaults, directions)
    per_direction = [
        _direction(c, x, d, way == "reverse" or d == 1, states, make(c, d, hidden, functions[d]))
        for d in range(directions)
    ]
    every = c.xp.stack([y for y, _ in per_direction], axis=1)
    last = [c.xp.stack([s[i] for _, s in per_direction]) for i in range(states)]
    if swap:
        return every.transpose(2, 0, 1, 3), *(c.xp.swapaxes(s, 0, 1) for s in last)
    return every, *last


def _direction(
    c: OnnxCall, x: Any, d: int, backwards: bool, states: int, step: Step
) -> tuple[Any, list[Any]]:
    """One direction: results per step and the last states; short sequences stop early."""
    steps, batch, hidden = x.shape[0], x.shape[1], c.shape(2)[-1]
    lengths = c.get(4)
    x = _turned(c, x, lengths) if backwards else x
    start = [_initial(c, 5 + i, d, batch, hidden, x.dtype) for i in range(states)]

    def run(state: Any, part: Any) -> Any:
        number, value = part
        after = step(state, value)
        if lengths is None:
            return after, after[0]
        alive = (number < lengths)[:, None]
        masked = [c.xp.where(alive, a, s) for a, s in zip(after, state, strict=True)]
        return masked, c.xp.where(alive, after[0], 0)

    numbers = c.xp.arange(steps, dtype=np.int32)
    last, every = c.lax.scan(run, start, (numbers, x))
    return (_turned(c, every, lengths) if backwards else every), last


def _turned(c: OnnxCall, x: Any, lengths: Any | None) -> Any:
    if lengths is None:
        return c.xp.flip(x, 0)
    index = reversal(c, x.shape[0], lengths)
    return c.xp.take_along_axis(x, index[:, :, None], axis=0)


def _initial(c: OnnxCall, i: int, d: int, batch: int, hidden: int, dtype: Any) -> Any:
    if not c.has(i):
        return c.xp.zeros((batch, hidden), dtype)
    given = c.xp.swapaxes(c[i], 0, 1) if c.attribute("layout", 0) else c[i]
    return given[d]


def _bias(c: OnnxCall, d: int, size: int, dtype: Any) -> tuple[Any, Any]:
    """(of the inputs, of the hidden state)."""
    if not c.has(3):
        zero = c.xp.zeros((size,), dtype)
        return zero, zero
    return c[3][d][:size], c[3][d][size:]


def _lstm_step(c: OnnxCall, d: int, hidden: int, functions: list[Applied]) -> Step:
    f, g, h = functions
    w, r = c[1][d].T, c[2][d].T
    wb, rb = _bias(c, d, 4 * hidden, w.dtype)
    clip, coupled = _clipped(c), c.attribute("input_forget", 0)
    peep = c.xp.split(c[7][d], 3) if c.has(7) else [0, 0, 0]

    def step(state: Any, x: Any) -> Any:
        before, cell = state
        i, o, fg, new = c.xp.split(x @ w + before @ r + (wb + rb), 4, axis=-1)
        i = f(clip(i + peep[0] * cell))
        forget = 1 - i if coupled else f(clip(fg + peep[2] * cell))
        cell = forget * cell + i * g(clip(new))
        return [f(clip(o + peep[1] * cell)) * h(cell), cell]

    return step


def _gru_step(c: OnnxCall, d: int, hidden: int, functions: list[Applied]) -> Step:
    f, g = functions
    w, r = c[1][d].T, c[2][d].T
    wb, rb = _bias(c, d, 3 * hidden, w.dtype)
    clip, linear = _clipped(c), c.attribute("linear_before_reset", 0)
    rows = 2 * hidden

    def step(state: Any, x: Any) -> Any:
        (before,) = state
        ahead = x @ w + wb
        gates = ahead[:, :rows] + before @ r[:, :rows] + rb[:rows]
        z, reset = c.xp.split(f(clip(gates)), 2, axis=-1)
        if linear:
            inner = reset * (before @ r[:, rows:] + rb[rows:])
        else:
            inner = (reset * before) @ r[:, rows:] + rb[rows:]
        new = g(clip(ahead[:, rows:] + inner))
        return [(1 - z) * new + z * before]

    return step


def _rnn_step(c: OnnxCall, d: int, hidden: int, functions: list[Applied]) -> Step:
    (f,) = functions
    w, r = c[1][d].T, c[2][d].T
    wb, rb = _bias(c, d, hidden, w.dtype)
    clip = _clipped(c)
    return lambda state, x: [f(clip(x @ w + state[0] @ r + (wb + rb)))]


for _op, _gates, _states, _defaults, _make in (
    ("LSTM", 4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    ("GRU", 3, 1, ("Sigmoid", "Tanh"), _gru_step),
    ("RNN", 1, 1, ("Tanh",), _rnn_step),
):
    operator(_op, newest=22)(functools.partial(_recurrent, _gates, _states, _defaults, _make))
