"""LSTM, GRU and RNN by lax.scan over the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.frontends.onnxgraph.call import OnnxCall, operator
from eqsat.frontends.onnxgraph.ops.elementwise import ACTIVATIONS, Activation
from eqsat.frontends.onnxgraph.ops.indexing import reversal

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
