"""Executors: the interface of what runs a schedule.

A target names its executor. `eqsat.execute.executors` finds it by this name; a plug-in brings one
by the entry point group `eqsat.executors`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from eqsat.model.schedule import Schedule
from eqsat.model.target import Target

DEFAULT = "xla"
# eqsat's own, with what each does
BUILT_IN: dict[str, str] = {
    "xla": "XLA compiles the ops and fuses them as it likes",
    "arena": "NumPy, dispatch by dispatch, temporaries in one arena; slow, for checking schedules",
    "kernels": "kernels generated from the plans of dispatches, inside of one jitted function",
    "pallas": "a Pallas kernel per dispatch, for TPUs and GPUs; a CPU interprets them, slowly",
}
Opaque = Mapping[str, Callable[..., Sequence[Any]]]


class Executable(Protocol):
    """A schedule as functions of flat JAX arrays; `eqsat.execute.executable` has the base class."""

    schedule: Schedule
    weights: dict[str, Any]  # content key → array
    donated: tuple[int, ...]  # numbers of inputs that a call of `flat` uses up

    @property
    def packed(self) -> dict[int, Any]:
        """Node → packed weight, computed on first use; may be set to what a file holds."""
        ...

    @packed.setter
    def packed(self, arrays: dict[int, Any]) -> None: ...

    @property
    def weights_are_arguments(self) -> bool:
        """Whether packed weights should be arguments of what XLA compiles, not its constants."""
        ...

    @property
    def flat(self) -> Any:
        """The jitted function of the program's inputs that gives a tuple of its results."""
        ...

    @property
    def jitted(self) -> Any:
        """The jitted function of (packed weights, *inputs)."""
        ...

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """As `flat`."""
        ...

    def compile(self) -> Callable[..., tuple[Any, ...]]:
        """Pack the weights and compile now; the result takes flat inputs and never compiles."""
        ...

    def run(self, packed: Mapping[int, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results for packed weights and flat inputs; to be traced by JAX."""
        ...

    def dispatch(self, number: int) -> Callable[..., tuple[Any, ...]]:
        """One dispatch as a function of the buffers it reads, in their order, giving those it
        writes; to be traced by JAX. Times per dispatch are those of these functions."""
        ...

    def pack(self, weights: Mapping[str, Any]) -> dict[int, Any]:
        """Node → packed weight, these arrays used before the executable's own."""
        ...

    def take_weights(self, weights: Mapping[str, Any]) -> None:
        """Use these arrays from now on."""
        ...

    def typed(self, inputs: Sequence[Any], plain: Collection[int] = ()) -> list[Any]:
        """The program's inputs as JAX arrays; EqsatError E503 if one does not fit.

        plain: numbers of those that have the shape of the tensor, not the one they lie in."""
        ...


@dataclass(frozen=True)
class Execution:
    """How a schedule is run: the executor, how far it follows the plan, and what it declines.

    plan: a sentence about what is not declined; "" where the executor is that of a plug-in that is
    not installed. declined: number of a dispatch and why it does not run as planned. dispatches: so
    many there are.
    """

    executor: str
    plan: str = ""
    declined: tuple[tuple[int, str], ...] = ()
    dispatches: int = 0

    @property
    def sentence(self) -> str:
        """The plan that runs, and beside it what XLA does."""
        if not self.declined:
            return self.plan
        if len(self.declined) == self.dispatches:
            return "XLA runs every dispatch, none is run as it is planned"
        by_xla = f"XLA runs {len(self.declined)} of {self.dispatches} dispatches"
        return f"{by_xla}; of the others, {self.plan}"

    def to_json(self) -> dict[str, Any]:
        """`plan` is the sentence, `by_xla` the number of dispatches that XLA runs in its place."""
        declined = [{"dispatch": i, "reason": why} for i, why in self.declined]
        return {
            "name": self.executor,
            "plan": self.sentence,
            "dispatches": self.dispatches,
            "by_xla": len(self.declined),
            "declined": declined,
        }


@dataclass(frozen=True)
class Executor:
    """One way to run schedules.

    doc: what it does, in a few words. plan: how far it follows the schedule's dispatches and arena,
    a sentence for summaries. build: an executable of (schedule, opaque functions by key, weights by
    content key, target); it raises EqsatError for what it cannot run at all. declined: for a
    schedule and its target, number of a dispatch → why the executor does not run it as planned (it
    still runs, as XLA ops). runs_input: whether an answer that is the input program is best run as
    the traced function itself.
    """

    name: str
    doc: str
    plan: str
    build: Callable[[Schedule, Opaque, Mapping[str, Any], Target], Executable]
    declined: Callable[[Schedule, Target], Mapping[int, str]] = lambda *_: {}
    runs_input: bool = False
