"""A run as something to call: by its executor, with its weights, and verified against float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eqsat.run.seconds import timed

if TYPE_CHECKING:
    from eqsat.execute.calls import Callee
    from eqsat.execute.verify import Verification
    from eqsat.model.executor import Executable
    from eqsat.model.target import Target
    from eqsat.run.run import Run


def callee_of(run: Run) -> Callee | None:
    """The answer under the calling convention of the traced function, if one was traced."""
    from eqsat.execute.calls import PLAINLY, Callee
    from eqsat.execute.executors import find_executor
    from eqsat.execute.positional import Positional

    traced, orders = run.source.traced, run.orders
    if traced is None:
        if orders is None:
            return None
        return Callee(run.executable, Positional(run.executable, orders), False, orders=orders)
    itself = run.is_input and find_executor(run.runs_on.executor).runs_input
    kept = run.checked is not None and run.checked.keeps_input_by_xla
    itself = itself and run.mesh_plan is None and not run.runs_on.spelling
    itself = itself and (kept or not (orders and orders.chosen))
    return Callee(run.executable, traced, itself, run.source.layouts, orders or PLAINLY)


def executable_of(run: Run) -> Executable:
    """The schedule as functions of flat inputs, with the packed weights that were saved."""
    executable = built(run, run.weights, run.runs_on)
    if run.packed_file is not None and run.mesh_plan is None:
        from eqsat.execute.weights import read_packed

        packed = read_packed(run.packed_file, run.need_schedule())
        if packed is not None:
            executable.packed = packed
    return executable


def built(run: Run, weights: Mapping[str, Any], target: Target) -> Executable:
    """The schedule by the executor of a target, or its plan for a mesh, with these weights."""
    if run.mesh_plan is not None:
        from eqsat.execute.onmesh import MeshExecutable

        opaque = run.source.opaque
        return MeshExecutable(run.cut_schedule, run.mesh_plan, opaque, weights, run.target)
    from eqsat.execute.executors import build_executable

    return build_executable(run.need_schedule(), run.source.opaque, weights, target)


def take_weights(run: Run, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Keep the arrays among these arguments that are weights of the traced function."""
    import jax
    import numpy as np
    from jax.core import Tracer

    if run.source.traced is None:
        return
    given = run.source.traced.flat_weights(args, dict(kwargs)).items()
    arrays = {k: w for k, w in given if isinstance(w, jax.Array | np.ndarray)}
    held = {k: w for k, w in arrays.items() if not isinstance(w, Tracer)}
    known = run.weights
    if any(w is not known.get(k) for k, w in held.items()):
        run.use.weights.update(held)
        run.executable.take_weights(held)


def verified(run: Run, samples: int, seed: int, work_limit: float | None) -> Verification:
    """`Run.verify`: random inputs through the schedule and through the float64 reference."""
    from eqsat.execute.draw import drawn_weights
    from eqsat.execute.verify import verify
    from eqsat.model.work import WORK_LIMIT
    from eqsat.report.rounding import inexact_rules

    _need_memory(run)
    schedule, weights = run.cut_schedule, run.weights
    drawn = drawn_weights(run.program, weights)
    with timed(run.seconds, "compile"):
        call = _flat_call(run, drawn)
    with timed(run.seconds, "verify"):
        found = verify(
            run.program, call, {**weights, **drawn}, run.source.opaque,
            chosen=schedule.program, schedule=schedule, beside=bool(inexact_rules(run)),
            samples=samples, seed=seed,
            work_limit=WORK_LIMIT if work_limit is None else work_limit,
        )  # fmt: skip
    return replace(found, drawn=len(drawn))


def _flat_call(run: Run, drawn: Mapping[str, Any]) -> Callable[..., Sequence[Any]]:
    """Flat inputs → results, compiled; drawn: weights the program has no values of."""
    weights = {**run.weights, **drawn}
    executable = built(run, weights, run.runs_on) if drawn else run.executable
    if run.orders is None or not run.orders.chosen:
        return executable.compile()
    from eqsat.execute.formats import scheduled_call

    return scheduled_call(executable, run.orders)


def _need_memory(run: Run) -> None:
    """EqsatError (E508) if the values of the schedule or the reference cannot fit."""
    from eqsat.execute.memory import need, reference_bytes

    need(run.need_schedule().peak_bytes, f"executing `{run.program.name}`")
    need(reference_bytes(run.program), f"the float64 reference of `{run.program.name}`")
