"""Verification by sampled elements of an executable whose float64 reference is too much work.

From end to end, all elements of the results are compared with what XLA makes of the input program;
elements that are sampled, and those that differ, with float64, computed on demand by both programs,
if that is not too much work. Dispatch by dispatch, see `dispatchwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.execute.compare import (
    LEEWAY,
    MISMATCH,
    OK,
    SAMPLED,
    UNPROVEN,
    Verification,
    distance,
    dominated,
    element,
    misshapen,
    proof,
    size,
)
from eqsat.execute.comparison import NUDGES, Examined, Judged, judged_elements, sample_names
from eqsat.execute.dispatchwise import DispatchFindings, Dispatchwise, part_borders, sampled
from eqsat.execute.draw import ATTEMPTS, random_inputs
from eqsat.execute.executors import Witness
from eqsat.execute.ondemand import Elements
from eqsat.execute.reference import OverWork, WorkBudget, least_of
from eqsat.execute.rounding import error_limit
from eqsat.model.control import WHILE, Control, every_program
from eqsat.model.executor import Executable
from eqsat.model.leaves import Opaque
from eqsat.model.limits import WORK_LIMIT
from eqsat.model.program import Program
from eqsat.model.schedule import Schedule
from eqsat.model.tensor import is_float
from eqsat.ops.spelling.trip_counts import with_trips

# ---- from end to end -----------------------------------------------------------------------------
Array = np.ndarray[Any, Any]
Said = Callable[[Sequence[Any]], list[Array]]
UNEXPLAINED = (
    "in float64 the chosen program differs from the input by more than the order of sums explains,"
    " and it is too much work to find out why"
)
SUSPECTS = 64  # elements of a result that differ from XLA's, the farthest first


@dataclass
class EndToEnd:
    """Check of results by samples: `program` is the input, `chosen` was run in its place.

    said: results without what may be anything; open_: per result where that is, None if nowhere.
    """

    program: Program
    chosen: Program
    witness: Witness
    weights: Mapping[str, Any]
    opaque: Mapping[str, Any]
    said: Said
    open_: Sequence[Array | None]
    platform: str
    work: WorkBudget
    seed: int
    exact: bool  # whether float64 evaluations of both agree to float64's own roundings

    def __post_init__(self) -> None:
        self.elements = 0
        self.input_error: float | None = None
        self.is_whole = False  # whether float64 was computed through the whole program
        self.meant: list[float] = []  # per result the share of elements that float64 has decided
        self.unexplained = ""  # what it leaves open though nothing is wrong

    def judged(self, inputs: Sequence[Array], got: Sequence[Array]) -> Judged:
        """The verdict on these results."""
        reference = self.said(self.witness(inputs))
        for r, (a, b) in enumerate(zip(got, reference, strict=True)):
            if a.shape != b.shape:
                where = f"result {r}{misshapen(a, b)}"
                return Judged(float("inf"), 0.0, where, False, where, [0.0] * len(got))
        suspects = self._suspects(inputs, got, reference)
        rng = np.random.default_rng(self.seed)
        borders = part_borders(self.program)
        flat = [
            np.union1d(sampled(x.shape, o, borders, rng), s)
            for x, o, s in zip(got, self.open_, suspects, strict=True)
        ]
        try:
            return self._in_float64(inputs, got, reference, flat)
        except OverWork:
            return self._by_witness(got, reference, suspects)

    # ---- float64 -------------------------------------------------------------------------------
    def _in_float64(
        self,
        inputs: Sequence[Array],
        got: Sequence[Array],
        reference: Sequence[Array],
        flat: Sequence[Array],
    ) -> Judged:
        own_elements = self._elements(self.program, inputs, flat)
        wanted, meant = own_elements(), self._elements(self.chosen, inputs, flat)()
        self.is_whole, self.elements = True, sum(map(len, flat))
        self.input_error = worst_error(_picked(reference, flat), wanted)

        def meaning(these: Elements) -> Examined:
            return self._examined(these, self.exact, None)

        def result(these: Elements) -> Examined:
            return self._examined(these, False, inputs)

        try:
            verdict = judged_elements(meaning, own_elements, wanted, meant)
        except OverWork:
            self.unexplained = UNEXPLAINED
            return judged_elements(result, own_elements, wanted, _picked(got, flat))
        if not verdict.ok:
            verdict.reason = (
                f"in float64, too, the chosen program computes something else: {verdict.where}"
            )
            return verdict
        self.meant = [proof(w) for w in wanted]
        return judged_elements(result, own_elements, wanted, _picked(got, flat))

    def _examined(self, these: Elements, exact: bool, inputs: Sequence[Array] | None) -> Examined:
        """inputs: of the witness, if it is asked."""

        def witness(rng: np.random.Generator | None) -> list[Array]:
            return _picked(self.said(self.witness(inputs or (), rng)), these.flat)

        return Examined(
            self.program, these, sample_names("sampled elements"), self.platform, self.seed, exact,
            None if inputs is None else witness, place=these.place,
        )  # fmt: skip

    def _elements(
        self, program: Program, inputs: Sequence[Array], flat: Sequence[Array]
    ) -> Elements:
        leaves = dict(zip(program.inputs, inputs, strict=True))
        leaves |= {i: np.asarray(self.weights[program.leaf(i).key]) for i in program.weights}
        return Elements(program, program.results, leaves, flat, self.opaque, self.work)

    # ---- XLA -----------------------------------------------------------------------------------
    def _suspects(
        self, inputs: Sequence[Array], got: Sequence[Array], reference: Sequence[Array]
    ) -> list[Array]:
        """Per result the elements farther from XLA's than rounding explains, the farthest first."""
        limit = 2 * error_limit(self.program, self.platform)
        types = [self.program.nodes[r].type for r in self.program.results]
        allowed = [
            np.full(x.shape, limit * size(x) if is_float(t.dtype) else 0.0)
            for x, t in zip(reference, types, strict=True)
        ]
        away = [distance(a, b) for a, b in zip(got, reference, strict=True)]
        if any((d > a).any() for d, a in zip(away, allowed, strict=True)):
            moved = self._moved(inputs, reference)
            allowed = [np.maximum(a, LEEWAY * m) for a, m in zip(allowed, moved, strict=True)]
            for r, (d, m) in enumerate(zip(away, moved, strict=True)):
                if dominated(d, m, allowed[r]):
                    allowed[r] = np.maximum(allowed[r], d)
        return [_farthest(d, a) for d, a in zip(away, allowed, strict=True)]

    def _moved(self, inputs: Sequence[Array], reference: Sequence[Array]) -> list[Array]:
        """How far inputs that no caller can tell from these move the input program's results."""
        rng = np.random.default_rng(self.seed)
        distances = [np.zeros(x.shape) for x in reference]
        for _ in range(NUDGES):
            other = self.said(self.witness(inputs, rng))
            pairs = zip(distances, other, reference, strict=True)
            distances = [np.maximum(f, distance(a, b)) for f, a, b in pairs]
        return distances

    def _by_witness(
        self, got: Sequence[Array], reference: Sequence[Array], suspects: Sequence[Array]
    ) -> Judged:
        """Verdict by the witness alone, where float64 is too much work."""
        limit = 2 * error_limit(self.program, self.platform)
        best = Judged(0.0, limit, "")
        for r, (a, b, far) in enumerate(zip(got, reference, suspects, strict=True)):
            away = distance(a, b).reshape(-1)
            if not away.size:
                continue
            at = int(far[0]) if len(far) else int(np.argmax(away))
            error = float(away[at]) / size(b)
            if (len(far) and best.ok) or (error > best.error and (len(far) or best.ok)):
                where = f"result {r}{element(a, b, at)}"
                best = Judged(error, limit, where, best.ok and not len(far))
        best.reason = "" if best.ok else f"XLA makes something else of the program: {best.where}"
        best.proofs = [1.0] * len(got)
        return best


def _farthest(away: Array, allowed: Array) -> Array:
    far = np.flatnonzero((away > allowed).reshape(-1))
    return far[np.argsort(-away.reshape(-1)[far], kind="stable")[:SUSPECTS]]


def _picked(results: Sequence[Array], flat: Sequence[Array]) -> list[Array]:
    return [np.asarray(x).reshape(-1)[f] for x, f in zip(results, flat, strict=True)]


def worst_error(got: Sequence[Array], wanted: Sequence[Array]) -> float:
    """max|a − b| / max|b| over all results."""
    pairs = [(distance(a, b), b) for a, b in zip(got, wanted, strict=True) if b.size]
    return max((float(d.max()) / size(b) for d, b in pairs), default=0.0)


LEAST_PROOF = 0.5  # share of a result's elements that have to be finite
LIMIT = WORK_LIMIT  # operations of one such check


def loop_refusal(program: Program) -> str:
    """Why a program cannot be checked by elements, as a clause; "" if it can be.

    A loop is evaluated whole, and before it is run: it might not end.
    """
    counted = with_trips(program)
    for i in counted.needed:
        node = counted.nodes[i]
        if not isinstance(node.attr, Control):
            continue
        if _may_not_end(node.attr):
            return f"`{counted.value_name(i)}` is a loop that may not end"
        least = least_of(node)
        if least > LIMIT:
            return f"the loop `{counted.value_name(i)}` alone takes {least:.1e}"
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
        findings = dispatches.check(inputs)
        if not findings.worst.ok:
            return self._verification(findings.worst, findings, None)
        whole = EndToEnd(
            self.program, self.schedule.program, self.witness, self.weights, self.opaque,
            self.said, self.open_, self.platform, self.work, self.seed, self.exact,
        )  # fmt: skip
        ended = whole.judged(inputs, got)
        worst = max((findings.worst, ended), key=lambda j: (not j.ok, j.error))
        return self._verification(
            worst, findings, whole, _why_not(findings, got, whole.meant) or whole.unexplained
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

    def _verification(
        self, worst: Judged, findings: DispatchFindings, whole: EndToEnd | None, reason: str = ""
    ) -> Verification:
        reason = worst.reason if not worst.ok else reason
        outcome = MISMATCH if not worst.ok else UNPROVEN if reason else OK
        elements = findings.elements + (whole.elements if whole else 0)
        return Verification(
            outcome == OK, worst.error, worst.limit, 1, worst.where, outcome, reason,
            self.work.spent, how=SAMPLED, elements=elements,
            checked=_checked(findings, whole) + _opaque_text(self.schedule.program),
            input_error=whole.input_error if whole else None,
        )  # fmt: skip


def _why_not(findings: DispatchFindings, got: Sequence[Array], meant: Sequence[float]) -> str:
    """Why nothing is proven though nothing is wrong; "" if it is.

    meant: per result the share of elements that float64 has decided, if it was asked.
    """
    if findings.undecided:
        return f"{len(findings.undecided)} not checked: {'; '.join(findings.undecided[:3])}"
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


def _checked(findings: DispatchFindings, whole: EndToEnd | None) -> str:
    """The comparisons made, in words."""
    count = f"{findings.dispatches} dispatches from their own operands"
    if whole is None:
        return count
    through = "results through the whole program" if whole.is_whole else "results with XLA's alone"
    return f"{count}, {through}"
