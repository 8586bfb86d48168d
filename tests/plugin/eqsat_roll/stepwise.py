"""The executor `stepwise`: XLA ops, dispatch by dispatch, nothing fused across their borders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eqsat.execute.executable import JaxExecutable
from eqsat.model.executor import Executor
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target


class Stepwise(JaxExecutable):
    """Every dispatch behind a barrier."""

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        from jax import lax

        alone = super().dispatch(number)
        return lambda *reads: lax.optimization_barrier(alone(*reads))


def declined(schedule: Schedule, target: Target) -> Mapping[int, str]:
    """Loops are one XLA op each."""
    return {
        i: "a loop or branch is one op of XLA"
        for i, d in enumerate(schedule.dispatches)
        if schedule.control(d) is not None
    }


STEPWISE = Executor(
    name="stepwise",
    doc="XLA, dispatch by dispatch",
    plan="every dispatch is one XLA computation; the arena is XLA's",
    build=Stepwise,
    declined=declined,
)
