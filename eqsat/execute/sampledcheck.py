"""The verdict on an executable whose float64 reference is too much work: by elements, on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.compare import proof
from eqsat.execute.comparison import Judged
from eqsat.execute.dispatchwise import DispatchesFound, Dispatchwise
from eqsat.execute.draw import ATTEMPTS, random_inputs
from eqsat.execute.endtoend import EndToEnd
from eqsat.execute.reference import least_of
from eqsat.execute.verdict import MISMATCH, OK, SAMPLED, UNPROVEN, Verification
from eqsat.execute.witness import Witness
from eqsat.execute.work import WorkBudget
from eqsat.model.control import WHILE, Control, every_program
from eqsat.model.executor import Executable
from eqsat.model.foreign import Opaque
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.work import WORK_LIMIT
from eqsat.ops.spelling.trips import with_trips

Array = np.ndarray[Any, Any]
LEAST_PROOF = 0.5  # share of a result's elements that have to be finite
LIMIT = WORK_LIMIT  # operations of one such check


def loop_refusal(program: Program) -> str:
    """Why a program cannot be checked by elements, as a clause; "" if it can be.

    A loop is evaluated whole, and before it is run: it might not end.
    """
    known = with_trips(program)
    for i in known.needed:
        node = known.nodes[i]
        if not isinstance(node.attr, Control):
            continue
        if _may_not_end(node.attr):
            return f"`{known.value_name(i)}` is a loop that may not end"
        least = least_of(node)
        if least > LIMIT:
            return f"the loop `{known.value_name(i)}` alone takes {least:.1e}"
    return ""


def _may_not_end(attr: Control) -> bool:
    inner = (n.attr for p in attr.bodies for n in with_trips(p).nodes)
    inside = any(isinstance(a, Control) and _may_not_end(a) for a in inner)
    return inside or (attr.op == WHILE and attr.trips is None)


@dataclass
class Sampled:
    """One such check: `program` is the input, `call` the compiled `executable` of a schedule.

    said, open_: results without what may be anything, and where that is. exact: whether float64
    evaluations agree to float64's own roundings.
    """

    program: Program
    call: Callable[..., Sequence[Any]]
    executable: Executable
    schedule: Schedule
    weights: Mapping[str, Any]
    opaque: Mapping[str, Any]
    witness: Witness
    said: Callable[[Sequence[Any]], list[Array]]
    open_: Sequence[Array | None]
    platform: str
    seed: int
    exact: bool

    def __post_init__(self) -> None:
        self.work = WorkBudget(LIMIT)

    def verdict(self, inputs: list[Array] | None = None) -> Verification:
        """On these inputs, or on random ones that say something."""
        inputs, got = self._drawn() if inputs is None else (inputs, self._called(inputs))
        dispatches = Dispatchwise(
            self.executable, self.schedule, self.weights, self.opaque, self.platform, self.work,
            self.seed,
        )  # fmt: skip
        found = dispatches.check(inputs)
        if not found.worst.ok:
            return self._found(found.worst, found, None)
        whole = EndToEnd(
            self.program, self.schedule.program, self.witness, self.weights, self.opaque,
            self.said, self.open_, self.platform, self.work, self.seed, self.exact,
        )  # fmt: skip
        ended = whole.judged(inputs, got)
        worst = max((found.worst, ended), key=lambda j: (not j.ok, j.error))
        return self._found(
            worst, found, whole, _why_not(found, got, whole.meant) or whole.unexplained
        )

    def _called(self, inputs: Sequence[Array]) -> list[Array]:
        return self.said(self.call(*inputs))

    def _drawn(self) -> tuple[list[Array], list[Array]]:
        """Random inputs and results that are mostly finite, or the best of what was drawn."""
        rng = np.random.default_rng(self.seed)
        best: tuple[float, list[Array], list[Array]] | None = None
        for attempt in range(len(ATTEMPTS)):
            inputs = random_inputs(self.program, rng, attempt)
            got = self._called(inputs)
            share = min(map(proof, got), default=1.0)
            if best is None or share > best[0]:
                best = share, inputs, got
            if share >= LEAST_PROOF:
                break
        assert best is not None
        return best[1], best[2]

    def _found(
        self, worst: Judged, found: DispatchesFound, whole: EndToEnd | None, reason: str = ""
    ) -> Verification:
        reason = worst.reason if not worst.ok else reason
        outcome = MISMATCH if not worst.ok else UNPROVEN if reason else OK
        elements = found.elements + (whole.elements if whole else 0)
        return Verification(
            outcome == OK, worst.error, worst.limit, 1, worst.where, outcome, reason,
            self.work.spent, how=SAMPLED, elements=elements,
            checked=_checked(found, whole) + _opaque_text(self.schedule.program),
            input_error=whole.input_error if whole else None,
        )  # fmt: skip


def _why_not(found: DispatchesFound, got: Sequence[Array], meant: Sequence[float]) -> str:
    """Why nothing is proven though nothing is wrong; "" if it is.

    meant: per result the share of elements that float64 has decided, if it was asked.
    """
    if found.undecided:
        return f"{len(found.undecided)} not checked: {'; '.join(found.undecided[:3])}"
    for r, share in enumerate(map(proof, got)):
        if max(share, meant[r] if meant else 0.0) < LEAST_PROOF:
            rest = f"{1 - share:.0%} of its elements, however the inputs were drawn"
            return f"result {r} is NaN or infinite in {rest}"
    return ""


def _opaque_text(program: Program) -> str:
    """Ops that JAX itself evaluated on both sides; "" if there are none."""
    nodes = (n.attr for p in every_program(program) for n in p.nodes)
    names = sorted({f"`{a.primitive}`" for a in nodes if isinstance(a, Opaque)})
    return f", {', '.join(names)} by JAX on both sides" if names else ""


def _checked(found: DispatchesFound, whole: EndToEnd | None) -> str:
    """What was compared, in words."""
    count = f"{found.dispatches} dispatches from their own operands"
    if whole is None:
        return count
    through = "results through the whole program" if whole.is_whole else "results with XLA's alone"
    return f"{count}, {through}"
