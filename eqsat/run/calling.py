"""A run as something to call: by its executor, with its weights, and verified against float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from eqsat.execute.agree import Subject
from eqsat.execute.beside import NEVER, Pair, check_options
from eqsat.execute.calls import PLAINLY, Callee, Positional, compiled
from eqsat.execute.compare import Verification
from eqsat.execute.draw import drawn_weights
from eqsat.execute.executors import build_executable, find_executor
from eqsat.execute.firstcalls import Once, Wanted
from eqsat.execute.formats import scheduled_call
from eqsat.execute.lowering import evaluate
from eqsat.execute.reference import reference_bytes
from eqsat.execute.verify import verify
from eqsat.execute.weights import read_packed
from eqsat.host import need
from eqsat.model.executor import Executable
from eqsat.model.layout import MemoryOrders
from eqsat.model.limits import WORK_LIMIT
from eqsat.model.progress import timed
from eqsat.model.target import Target
from eqsat.run.reproduce import reproducer
from eqsat.run.run import Run


def callee_of(run: Run) -> Callee | None:
    """The answer under the calling convention of the traced function, if one was traced."""
    traced, orders = run.source.traced, run.orders
    if traced is None:
        if orders is None:
            return None
        return Callee(run.executable, Positional(run.executable, orders), False, orders=orders)
    itself = run.is_input and find_executor(run.runs_on.executor).runs_input
    compiler_chose_input = run.checked is not None and run.checked.keeps_input_by_xla
    itself = itself and run.mesh_plan is None and not run.runs_on.spelling
    itself = itself and (compiler_chose_input or not (orders and orders.chosen))
    return Callee(run.executable, traced, itself, run.source.layouts, orders or PLAINLY)


def executable_of(run: Run) -> Executable:
    """The schedule as functions of flat inputs, with the packed weights that were saved."""
    executable = built(run, run.weights, run.runs_on)
    if run.packed_file is not None and run.mesh_plan is None and not run.use.weights:
        packed = read_packed(run.packed_file, run.need_schedule())
        if packed is not None:
            executable.packed = packed
    if donated := donated_inputs(run):
        executable.donated = donated
    return executable


def donated_inputs(run: Run) -> tuple[int, ...]:
    """Numbers of inputs that a call of a loaded run uses up; else whoever traces donates."""
    if run.source.traced is not None or run.convention is None:
        return ()
    program = run.need_schedule().program
    leaves = enumerate(map(program.leaf, program.inputs))
    return tuple(n for n, leaf in leaves if leaf.donated)


def built(run: Run, weights: Mapping[str, Any], target: Target) -> Executable:
    """The schedule by the executor of a target, or its plan for a mesh, with these weights."""
    if run.mesh_plan is not None:
        from eqsat.execute.onmesh import MeshExecutable

        opaque = run.source.opaque
        return MeshExecutable(run.cut_schedule, run.mesh_plan, opaque, weights, run.target)
    return build_executable(run.need_schedule(), run.source.opaque, weights, target)


def take_weights(run: Run, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Keep the arrays among these arguments that are weights of the traced function."""
    if run.source.traced is None:
        return
    given = run.source.traced.flat_weights(args, dict(kwargs)).items()
    arrays = {k: w for k, w in given if isinstance(w, jax.Array | np.ndarray)}
    concrete = {k: w for k, w in arrays.items() if not isinstance(w, Tracer)}
    current = run.weights
    if any(w is not current.get(k) for k, w in concrete.items()):
        run.use.weights.update(concrete)
        run.executable.take_weights(concrete)


def verified(run: Run, samples: int, seed: int, work_limit: float | None) -> Verification:
    """`Run.verify`: random inputs through the schedule and through the float64 reference."""
    from eqsat.report.facts import inexact_rules

    _need_memory(run)
    schedule, weights = run.cut_schedule, run.weights
    drawn = drawn_weights(run.program, weights)
    with timed(run.seconds, "compile"):
        executable = built(run, {**weights, **drawn}, run.runs_on) if drawn else run.executable
        call = _flat_call(run, executable)
    with timed(run.seconds, "verify"):
        verification = verify(
            run.program, call, {**weights, **drawn}, run.source.opaque,
            chosen=schedule.program, schedule=schedule, executable=executable,
            beside=bool(inexact_rules(run)), samples=samples, seed=seed,
            work_limit=WORK_LIMIT if work_limit is None else work_limit,
        )  # fmt: skip
    return replace(verification, drawn=len(drawn))


def _flat_call(run: Run, executable: Executable) -> Callable[..., Sequence[Any]]:
    """Flat inputs → results, compiled."""
    if run.orders is None or not run.orders.chosen:
        return executable.compile()
    return scheduled_call(executable, run.orders)


def _need_memory(run: Run) -> None:
    """EqsatError (E508) if the values of the schedule or the reference cannot fit."""
    need(run.need_schedule().peak_bytes, f"executing `{run.program.name}`")
    need(reference_bytes(run.program), f"the float64 reference of `{run.program.name}`")


# ---- checked against the original function -------------------------------------------------------
def pair_of(
    run: Run,
    answer: Callable[..., Any],
    original: Callable[..., Any],
    afresh: Callable[[], Callable[..., Any]],
    donated: Sequence[int] = (),
) -> Pair:
    """Both sides of a run. afresh: the original, to be traced again."""
    subject, callee, peak = subject_of(run), run.callee, run.need_schedule().peak_bytes
    placed = run.mesh_plan is not None or (callee is not None and bool(callee.orders.by_border))
    return Pair(
        run.program.name, answer, original, afresh, subject, reproducer(run, subject), peak,
        tuple(donated), may_race=not placed,
    )  # fmt: skip


def subject_of(run: Run) -> Subject:
    """The parts of a run that bound how far its results may be from the original's."""
    callee = run.callee
    convention = Positional(run.executable, MemoryOrders()) if callee is None else callee.signature
    lies = callee is not None and (callee.orders.by_border or run.source.layouts)
    opaque, chosen = run.source.opaque, run.need_schedule().program
    signature = None if lies else convention
    return Subject(run.program, chosen, run.weights, opaque, signature)


def flat_function(
    run: Run, check: str, race: bool, proven: Callable[[], None] | None = None
) -> Any:
    """The checked function of traced or flat arguments; made anew where weights were set.

    proven: is told once that a call has shown the answer right and quick. EqsatError E400 for other
    words.
    """
    check_options(check, race)
    key = check, race, run.executable.flat if run.callee is None else None
    if key not in run.use.functions:
        run.use.functions[key] = _checked_function(run, check, race, proven)
    return run.use.functions[key]


def _checked_function(
    run: Run, check: str, race: bool, proven: Callable[[], None] | None = None
) -> Any:
    callee = run.callee
    answer: Any = run.executable.flat if callee is None else compiled(callee)
    if check == NEVER or not _has_original(run):
        answer.checks = []
        return answer
    wanted = Wanted(check, race)

    def pair(answer: Any, original: Any) -> Pair:
        donated = donated_inputs(run) if callee is None else ()
        return pair_of(run, answer, original, lambda: _original(run, callee), donated)

    def forget() -> None:
        run.executable.take_weights({})

    once = Once(answer, lambda: _original(run, callee), pair, wanted, forget, proven)
    return once.switch.function


def _has_original(run: Run) -> bool:
    """Whether there is something that differs from the answer and can be called beside it."""
    callee = run.callee
    if run.source.traced is None:  # a call says which weight has no array
        has_weights = all(run.program.leaf(i).key in run.weights for i in run.program.weights)
        return callee is None and has_weights
    return callee is not None and not (callee.is_input or callee.signature.captured)


def _original(run: Run, callee: Callee | None) -> Any:
    """The original, jitted: the traced function, or the ops of a program that was read."""
    if callee is not None:

        def traced(*args: Any, **kwargs: Any) -> Any:
            return callee.original(*jax.tree_util.tree_leaves((args, kwargs)))

        return jax.jit(traced)
    program = run.program

    def ops(weights: Mapping[int, Any], *inputs: Any) -> Any:
        arrays = {**weights, **dict(zip(program.inputs, run.executable.typed(inputs), strict=True))}
        values = evaluate(program, program.needed, arrays, run.source.opaque)
        return tuple(values[r][0] for r in program.results)

    jitted: Any = jax.jit(ops)  # large constants take XLA long
    on_device = {i: jax.device_put(run.weights[program.leaf(i).key]) for i in program.weights}
    call: Any = functools.partial(jitted, on_device)
    call.clear_cache = jitted.clear_cache
    return call
