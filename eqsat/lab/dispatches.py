"""One dispatch of a run alone: its operands, and many runs of it inside one call of XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eqsat.api import Run


def repeated(
    dispatch: Callable[..., tuple[Any, ...]], inputs: Sequence[Any], every: bool = False
) -> Any:
    """A compiled function of (number of runs, inputs) that gives the last run's results.

    dispatch: a function of these arrays, to be traced. XLA takes out of a loop what is the same in
    every turn, so each turn writes one element of an input again, in place, with the value that is
    there. every: of all inputs, as several ops of XLA need, of which some read others only.
    """
    import jax
    from jax import lax
    from jax import numpy as jnp

    first = next((i for i, x in enumerate(inputs) if x.dtype.kind == "f" and x.size), 0)
    filled = [i for i, x in enumerate(inputs) if x.size]

    def turn(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        xs = list(state[0])
        for changed in filled if every else filled and [first]:
            x = xs[changed]
            at = (jnp.minimum(i, 0),) * x.ndim
            element = lax.dynamic_slice(x, at, (1,) * x.ndim)
            xs[changed] = lax.dynamic_update_slice(x, element, at)
        return tuple(xs), dispatch(*xs)

    def run(count: Any, xs: tuple[Any, ...]) -> Any:
        types = jax.eval_shape(dispatch, *xs)
        none = jax.tree.map(lambda t: jnp.zeros(t.shape, t.dtype), types)
        return lax.fori_loop(0, count, turn, (xs, none))[1]

    given = tuple(inputs)
    compiled = jax.jit(run).lower(0, given).compile()
    return lambda count: jax.block_until_ready(compiled(count, given))


def operand_arrays(run: Run, seed: int = 0) -> list[list[Any]]:
    """Per dispatch the buffers it reads, on the device: values that come of random inputs.

    Weights whose values are not known are drawn as well. EqsatError as executing raises it.
    """
    import jax
    import numpy as np

    from eqsat.execute.draw import drawn_weights, random_inputs
    from eqsat.execute.executable import held_view

    executable, schedule = run.executable, run.schedule
    assert schedule is not None, "a run with an executable has a schedule"
    if lacking := drawn_weights(run.program, run.weights):
        executable.take_weights(lacking)
    inputs = jax.device_put(random_inputs(run.program, np.random.default_rng(seed)))
    buffers = dict(executable.packed) | dict(zip(schedule.program.inputs, inputs, strict=True))
    operands = []
    for i, d in enumerate(schedule.dispatches):
        reads = [held_view(schedule, buffers, r) for r in d.reads]
        operands.append(reads)
        buffers.update(zip(d.writes, jax.jit(executable.dispatch(i))(*reads), strict=True))
    return operands
