"""A run's answer and the original function as a pair that a first call compares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eqsat.execute.agree import Subject
from eqsat.execute.beside import NEVER, Pair, check_options
from eqsat.execute.calls import Callee, compiled
from eqsat.execute.firstcalls import Once, Wanted
from eqsat.execute.lowering import evaluate
from eqsat.execute.positional import Positional
from eqsat.model.orders import MemoryOrders
from eqsat.run.reproducing import reproducer

if TYPE_CHECKING:
    from eqsat.run.run import Run


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
    """What of a run says how far its results may be from the original's."""
    callee = run.callee
    convention = Positional(run.executable, MemoryOrders()) if callee is None else callee.signature
    lies = callee is not None and (callee.orders.by_border or run.source.layouts)
    opaque, chosen = run.source.opaque, run.need_schedule().program
    signature = None if lies else convention
    return Subject(run.program, chosen, run.weights, opaque, signature)


def checked_function(run: Run, check: str, race: bool) -> Any:
    """`Run.compile`. EqsatError E400 for other words."""
    check_options(check, race)
    callee = run.callee
    answer: Any = run.executable.flat if callee is None else compiled(callee)
    if check == NEVER or not _has_original(run):
        answer.checks = []
        return answer
    wanted = Wanted(check, race)

    def pair(answer: Any, original: Any) -> Pair:
        return pair_of(run, answer, original, lambda: _original(run, callee))

    def forget() -> None:
        run.executable.take_weights({})

    return Once(answer, lambda: _original(run, callee), pair, wanted, forget).switch.function


def _has_original(run: Run) -> bool:
    """Whether there is something that differs from the answer and can be called beside it."""
    callee = run.callee
    if run.source.traced is None:  # a call says which weight has no array
        known = all(run.program.leaf(i).key in run.weights for i in run.program.weights)
        return callee is None and known
    return callee is not None and not (callee.is_input or callee.signature.captured)


def _original(run: Run, callee: Callee | None) -> Any:
    """The original, jitted: the traced function, or the ops of a program that was read."""
    import jax

    if callee is not None:

        def traced(*args: Any, **kwargs: Any) -> Any:
            return callee.original(*jax.tree_util.tree_leaves((args, kwargs)))

        return jax.jit(traced)
    program = run.program

    def ops(weights: Mapping[int, Any], *inputs: Any) -> Any:
        known = {**weights, **dict(zip(program.inputs, inputs, strict=True))}
        values = evaluate(program, program.needed, known, run.source.opaque)
        return tuple(values[r][0] for r in program.results)

    jitted: Any = jax.jit(ops)  # large constants take XLA long
    held = {i: jax.device_put(run.weights[program.leaf(i).key]) for i in program.weights}
    call: Any = functools.partial(jitted, held)
    call.clear_cache = jitted.clear_cache
    return call
