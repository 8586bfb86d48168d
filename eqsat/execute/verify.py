"""An executable against the float64 reference on random inputs: right, wrong, or not proven.

Results are compared as `execute.comparison` says. Beside them the chosen program is evaluated in
float64, too: there a wrong one has no roundings to hide behind, however ill-conditioned it is. And
its schedule runs on one arena (`execute.arena`), so that what it says of lifetimes, offsets and
borders is right as well.

Where the reference of the whole program is more work than is allowed, every dispatch is checked
from its own operands (`execute.dispatchwise`), and the results as far as that can be afforded
(`execute.sampledcheck`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.compare import (
    MISMATCH,
    OK,
    UNPROVEN,
    Verification,
    proof,
    unproven,
)
from eqsat.execute.comparison import FEW, Examined, Judged, Nudged, judged, sample_names
from eqsat.execute.draw import ATTEMPTS, random_inputs
from eqsat.execute.executors import Witness
from eqsat.execute.reference import (
    NOISY,
    OverWork,
    WorkBudget,
    least_operations,
    reference,
    reference_bytes,
)
from eqsat.execute.rounding import Noise, error_limit
from eqsat.execute.sampledcheck import Sampled, loop_refusal, worst_error
from eqsat.host import machine_bytes
from eqsat.model.control import Control, every_program
from eqsat.model.deadline import tick
from eqsat.model.executor import Executable
from eqsat.model.layout import Layout
from eqsat.model.leaves import Opaque
from eqsat.model.limits import WORK_LIMIT
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Schedule
from eqsat.ops.builtin.layouts import pack

Array = np.ndarray[Any, Any]
LEAST_PROOF = 0.5  # share of a result's elements that have to say something


def verify(
    program: Program,
    call: Callable[..., Sequence[Any]],
    weights: Mapping[str, Any],
    opaque: Mapping[str, Callable[..., Sequence[Any]]],
    *,
    chosen: Program | None = None,
    schedule: Schedule | None = None,
    executable: Executable | None = None,
    beside: bool = False,
    samples: int = 4,
    seed: int = 0,
    work_limit: float = WORK_LIMIT,
) -> Verification:
    """Call `call(*inputs)` and the NumPy reference on `samples` random inputs and compare.

    chosen: the program that `call` runs, whose meaning is then checked in float64 as well.
    schedule: of that program, which is then run on one arena, too. executable: what should run it,
    so that its dispatches can be checked one by one where the reference is too much work.
    beside: measure the error of the input program, too, as the answer may round otherwise.
    work_limit: operations that evaluations of the whole program may take together; the arena has
    what is left of it.
    """
    work = WorkBudget(work_limit)
    judge = _Judge(program, call, weights, opaque, chosen, work, seed)
    verdict = _whole(judge, schedule, samples, beside)
    if verdict.outcome == MISMATCH or not judge.is_over or executable is None or schedule is None:
        return verdict
    why = loop_refusal(schedule.program)
    if why:
        return replace(verdict, reason=f"{verdict.reason}; {why}")
    sampled = judge.sampled(executable, schedule)
    return sampled if beside else replace(sampled, input_error=None)


def _whole(judge: _Judge, schedule: Schedule | None, samples: int, beside: bool) -> Verification:
    """By the reference of the whole program, as far as the work limit goes."""
    work, least = judge.work, least_operations(judge.program)
    if not work.allows(least):
        judge.is_over = True
        return unproven(_too_much(least, work), work.spent)
    if reference_bytes(judge.program) > (machine_bytes() or float("inf")):
        judge.is_over = True
        return unproven("the float64 reference does not fit into memory", work.spent)
    reserved = 0 if schedule is None else least_operations(schedule.program)
    judged: list[Judged] = []
    reason, input_error = "", 0.0
    for sample in range(samples):
        tick()
        before = work.spent
        try:
            judged.append(judge.sample(sample))
            input_error = max(input_error, judge.input_error()) if beside else input_error
        except OverWork:
            reason = _over(work)
            judge.is_over = not judged or judge.is_undecided
            break
        if not judged[-1].ok or not work.allows(work.spent - before + reserved):
            break
    if judge.is_undecided:
        return unproven(f"{reason}, and has not explained an error", work.spent)
    verdict = _verdict(judged, reason, work)
    if beside and judged:
        verdict = replace(verdict, input_error=input_error)
    if schedule is None or verdict.outcome == MISMATCH:
        return verdict
    return judge.on_arena(schedule, verdict)


def _verdict(judged: list[Judged], reason: str, work: WorkBudget) -> Verification:
    wrong = [j for j in judged if not j.ok]
    if not judged:
        return unproven(reason, work.spent)
    worst = max(wrong or judged, key=lambda j: j.error)
    reason = worst.reason if wrong else _nothing_said(judged)
    outcome = MISMATCH if wrong else UNPROVEN if reason else OK
    return Verification(
        outcome == OK, worst.error, worst.limit, len(judged), worst.where, outcome, reason,
        work.spent,
    )  # fmt: skip


def _nothing_said(judged: list[Judged]) -> str:
    """Why no sample proves anything of a result; "" if each is proven by one."""
    shares = [p for j in judged for p in (j.proofs, j.meant) if p]
    best = [max(column) for column in zip(*shares, strict=True)]
    for r, share in enumerate(best):
        if share < LEAST_PROOF:
            return (
                f"result {r} is NaN, infinite or nothing but rounding error in"
                f" {1 - share:.0%} of its elements, however the inputs were drawn"
            )
    return ""


def _too_much(least: int, work: WorkBudget) -> str:
    return (
        f"the float64 reference takes {least:.1e} operations at least, the work limit is"
        f" {work.limit:.1e}"
    )


def _over(work: WorkBudget) -> str:
    return f"the float64 reference has not ended after {work.limit:.1e} operations, the work limit"


def _over_on_arena(work: WorkBudget) -> str:
    left = max(0, work.limit - work.spent)
    return f"the schedule on one arena takes more than the {left:.1e} operations that are left"


def _wrong_on_arena(verdict: Verification, reason: str, at: Judged | None = None) -> Verification:
    failed = replace(verdict, ok=False, outcome=MISMATCH, reason=reason)
    failed = replace(failed, arena=MISMATCH, arena_reason=reason)
    return (
        failed
        if at is None
        else replace(failed, max_error=at.error, limit=at.limit, where=at.where)
    )


class _Judge:
    """Draws samples and judges them.

    is_over: whether the work limit ended it before it could say anything. is_undecided: whether it
    did so while an error was looked at that roundings had not explained yet.
    """

    def __init__(
        self,
        program: Program,
        call: Callable[..., Sequence[Any]],
        weights: Mapping[str, Any],
        opaque: Mapping[str, Any],
        chosen: Program | None,
        work: WorkBudget,
        seed: int,
    ):
        self.program, self.call = program, call
        self.weights, self.opaque = weights, opaque
        self.chosen = chosen
        self.work, self.seed = work, seed
        self.rng = np.random.default_rng(seed)
        self.platform = platform()
        self.limit = error_limit(program, self.platform)
        nodes = [n for p in every_program(program) for n in p.nodes]
        self.has_foreign = any(isinstance(n.attr, Opaque) for n in nodes)
        self.witness = Witness(program, weights, opaque)
        self.open = [free_lanes(program.nodes[r]) for r in program.results]
        self.last: tuple[list[Array], list[Array]] = ([], [])  # the last sample that was run
        self.judged: list[tuple[str, list[Array], list[Array]]] = []  # for the arena
        self.branches = any(isinstance(n.attr, Control) for n in nodes)
        self.is_over = self.is_undecided = False
        self.drawn: list[Array] | None = None  # what it was undecided about

    def sample(self, number: int) -> Judged:
        """Sample `number`, drawn again while it says nothing; the best of what was drawn."""
        best: Judged | None = None
        for attempt in range(len(ATTEMPTS)):
            inputs = random_inputs(self.program, self.rng, attempt)
            wanted = self.reference(self.program, inputs)
            if best is not None and min(map(proof, wanted), default=1.0) <= min(best.proofs):
                continue
            judged = self._judged(f"sample {number}", inputs, wanted)
            if not judged.ok or min(judged.proofs, default=1.0) >= LEAST_PROOF:
                return judged
            best = judged
        assert best is not None
        return best

    def input_error(self) -> float:
        """max|a − b| / max|b| of the input program on the last sample that was run."""
        inputs, wanted = self.last
        return worst_error(self.said(self.witness(inputs)), wanted) if wanted else 0.0

    def reference(self, program: Program, inputs: Sequence[Array], *noise: Any) -> list[Array]:
        return self.said(reference(program, inputs, self.weights, self.opaque, self.work, *noise))

    def said(self, results: Sequence[Any]) -> list[Array]:
        """The results with zeros in lanes that may hold anything."""
        pairs = zip(map(np.asarray, results), self.open, strict=True)
        fits = [(x, o if o is not None and o.shape == x.shape else None) for x, o in pairs]
        return [x if o is None else np.where(o, np.zeros((), x.dtype), x) for x, o in fits]

    def _judged(self, sample: str, inputs: list[Array], wanted: list[Array]) -> Judged:
        meant: list[float] = []
        if self.chosen is not None:
            judged = self._meaning(self.chosen, sample, inputs, wanted)
            if not judged.ok:
                return judged
            meant = judged.proofs
        got = self.said(self.call(*inputs))
        self.last = inputs, wanted
        judged = self._compared(sample, inputs, wanted, got)
        judged.meant = meant
        if judged.ok and (self.branches or not self.judged):  # other inputs may take other branches
            self.judged.append((sample, inputs, wanted))
        return judged

    def _compared(
        self,
        sample: str,
        inputs: list[Array],
        wanted: list[Array],
        got: Sequence[Array],
        *,
        is_meaning: bool = False,
    ) -> Judged:
        """is_meaning: these are results of float64; an opaque op has its own types even there."""
        exact = is_meaning and not self.has_foreign
        again = self._noisy(inputs)

        def witness(nudged: Nudged) -> list[Array]:
            return self.said(self.witness(inputs, nudged))

        asked = Examined(
            self.program, again, sample_names(sample), self.platform, self.seed, exact,
            None if is_meaning else witness, limit=None if exact else self.limit,
        )  # fmt: skip
        try:
            return judged(asked, wanted, got)
        except OverWork:
            self.is_undecided, self.drawn = True, inputs
            raise

    def _noisy(self, inputs: Sequence[Array]) -> Callable[[Noise], list[Array]]:
        """The reference with roundings; OverWork at once where the first few are too much work."""
        few = 2 * FEW * NOISY * least_operations(self.program)
        afforded = self.work.allows(few)

        def again(noise: Noise) -> list[Array]:
            if not afforded:
                raise OverWork
            return self.reference(self.program, inputs, noise)

        return again

    def on_arena(self, schedule: Schedule, verdict: Verification) -> Verification:
        """The verdict with what the schedule does on one arena, for samples that were right."""
        if not self.judged:
            return verdict
        work = WorkBudget(self.work.limit - self.work.spent)
        arena = Arena(schedule, self.opaque, work)
        for sample, inputs, wanted in self.judged:
            try:
                got = self.said(arena(inputs, self.weights))
                judged = self._compared(f"{sample} on one arena", inputs, wanted, got)
            except OverWork:
                return replace(verdict, arena=UNPROVEN, arena_reason=_over_on_arena(self.work))
            except ArenaFault as fault:
                return _wrong_on_arena(verdict, f"on one arena: {fault}")
            if not judged.ok:
                return _wrong_on_arena(verdict, judged.reason, judged)
        return replace(verdict, arena=OK, operations=verdict.operations + work.spent)

    def _meaning(
        self, chosen: Program, sample: str, inputs: list[Array], wanted: list[Array]
    ) -> Judged:
        """The chosen program in float64: equal but for the order of its operations."""
        if chosen.nodes == self.program.nodes and chosen.results == self.program.results:
            return Judged(0.0, 0.0, "", proofs=[proof(w) for w in wanted])
        got = self.reference(chosen, inputs)
        judged = self._compared(sample, inputs, wanted, got, is_meaning=True)
        if not judged.ok:
            judged.reason = (
                f"in float64, too, the chosen program computes something else: {judged.where}"
            )
        return judged

    def sampled(self, executable: Executable, schedule: Schedule) -> Verification:
        """Dispatch by dispatch, with the inputs that it was undecided about if there are any."""
        check = Sampled(
            self.program, self.call, executable, schedule, self.weights, self.opaque,
            self.witness, self.said, self.open, self.platform, self.seed, not self.has_foreign,
        )  # fmt: skip
        return check.verdict(self.drawn)


def free_lanes(result: Node) -> Array | None:
    """Where a result that leaves packed may hold anything; None if it may nowhere."""
    layout = result.attr
    if result.op not in ("pack", "relax") or not isinstance(layout, Layout):
        return None
    if "?" not in layout.pads:
        return None
    return np.isnan(pack(layout, np.zeros(layout.source)))


def platform() -> str:
    """`cpu`, `gpu` or `tpu`: where JAX runs what it is given."""
    import jax

    (device,) = jax.device_put(0.0).devices()
    return device.platform
