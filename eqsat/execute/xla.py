"""The executor `xla`: all ops in one XLA executable, fused as XLA likes, on any platform."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from eqsat.execute.executable import JaxExecutable
from eqsat.execute.lowering import OpaqueFunction, evaluate
from eqsat.execute.platforms import spelled
from eqsat.execute.weights import packed_per_run, run_time_nodes
from eqsat.model.executor import BUILT_IN, Executor
from eqsat.model.schedule import Schedule
from eqsat.model.target import Target


def xla_executable(
    schedule: Schedule,
    opaque: Mapping[str, OpaqueFunction],
    weights: Mapping[str, Any] | None = None,
    target: Target | None = None,
) -> XlaExecutable:
    """The executable of a schedule; arguments and errors as `JaxExecutable` has them."""
    return XlaExecutable(schedule, opaque, weights or {}, target)


class XlaExecutable(JaxExecutable):
    """The chosen ops as `jax.lax` has them; the dispatches are not looked at."""

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for flat inputs, op by op; to be traced.

        EqsatError E503 if an input does not fit.
        """
        from jax import lax

        program = self.schedule.program
        known = dict(packed) | dict(zip(program.inputs, self.typed(inputs), strict=True))
        for i in self._per_run:  # else XLA packs constants when it compiles, and keeps both
            known[i] = lax.optimization_barrier(known[i])
        with spelled("" if self.target is None else self.target.spelling):
            values = evaluate(program, run_time_nodes(self.schedule), known, self.opaque)
        return tuple(values[r][0] for r in program.results)

    @cached_property
    def _per_run(self) -> list[int]:
        return packed_per_run(self.schedule)


XLA = Executor(
    "xla",
    BUILT_IN["xla"],
    "XLA may fuse and place otherwise than this schedule does",
    xla_executable,
    runs_input=True,
)
