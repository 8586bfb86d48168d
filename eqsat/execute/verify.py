"""An executable against the float64 reference on random inputs: right, wrong, or not proven.

Three questions, each asked only if the one before leaves something open:

1. Is a result within what roundings of these types, precisions and reduction lengths explain?
2. Is each element within what they do to *this* element (`rounding.Noise`)?
3. Is it no further off than the input program itself, on the same executor and sample?

Beside them the chosen program is evaluated in float64, too: there a wrong one has no roundings to
hide behind, however ill-conditioned it is. And its schedule runs on one arena (`execute.arena`), so
that what it says of lifetimes, offsets and borders is right as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from eqsat.execute.arena import Arena, ArenaFault
from eqsat.execute.compare import LEEWAY, distance, dominated, element, misshapen, proof, size
from eqsat.execute.draw import ATTEMPTS, random_inputs
from eqsat.execute.reference import least_operations, reference
from eqsat.execute.rounding import error_limit, moves
from eqsat.execute.witness import Witness
from eqsat.execute.work import OverWork, WorkBudget
from eqsat.model.control import Control, every_program
from eqsat.model.deadline import tick
from eqsat.model.foreign import Opaque
from eqsat.model.layout import Layout
from eqsat.model.program import Node, Program
from eqsat.model.schedule import Schedule
from eqsat.model.work import WORK_LIMIT
from eqsat.ops.builtin.layouts import pack

Array = np.ndarray[Any, Any]
OK, MISMATCH, UNPROVEN = "ok", "mismatch", "unproven"
LEAST_PROOF = 0.5  # share of a result's elements that have to say something
FEW, MANY = 3, 16  # pairs of noisy evaluations: at first, and for elements they do not explain
NUDGES = 6  # runs of the input program on inputs moved by a unit in the last place


@dataclass(frozen=True)
class Verification:
    """max_error: max|a − b| / max|b| over samples and results; `where` names the worst element.

    outcome: `ok`, `mismatch` or `unproven`, with a sentence in `reason` unless it is ok. limit: the
    relative error that was allowed there. samples: how many were judged. operations: of work, as
    the limit counts them. arena, arena_reason: the same of the schedule on one arena; "" where none
    was asked for. input_error: max_error of the input program itself, run as it came on the same
    executor and samples; None if not requested. drawn: weights of which only the shape was known.
    """

    ok: bool
    max_error: float
    limit: float
    samples: int
    where: str
    outcome: str = OK
    reason: str = ""
    operations: int = 0
    arena: str = ""
    arena_reason: str = ""
    input_error: float | None = None
    drawn: int = 0

    def to_json(self) -> dict[str, Any]:
        """The keys of a run's summary, and `where`."""
        return dict(vars(self))


@dataclass
class Judged:
    """What one sample says; per result the share of its elements that say something."""

    error: float
    limit: float
    where: str
    ok: bool = True
    reason: str = ""
    proofs: list[float] = field(default_factory=list)
    meant: list[float] = field(default_factory=list)  # the same of the chosen program in float64


def verify(
    program: Program,
    call: Callable[..., Sequence[Any]],
    weights: Mapping[str, Any],
    opaque: Mapping[str, Callable[..., Sequence[Any]]],
    *,
    chosen: Program | None = None,
    schedule: Schedule | None = None,
    beside: bool = False,
    samples: int = 4,
    seed: int = 0,
    work_limit: float = WORK_LIMIT,
) -> Verification:
    """Call `call(*inputs)` and the NumPy reference on `samples` random inputs and compare.

    chosen: the program that `call` runs, whose meaning is then checked in float64 as well.
    schedule: of that program, which is then run on one arena, too. beside: measure the error of the
    input program, too, as the answer may round otherwise. work_limit: operations that all
    evaluations may take together; the arena has what is left of it.
    """
    work = WorkBudget(work_limit)
    least = least_operations(program)
    if not work.allows(least):
        return _unproven(_too_much(least, work), work)
    judge = _Judge(program, call, weights, opaque, chosen, work, seed)
    found: list[Judged] = []
    reason, own = "", 0.0
    for sample in range(samples):
        tick()
        try:
            found.append(judge.sample(sample))
            own = max(own, judge.input_error()) if beside else own
        except OverWork:
            reason = _over(work)
            break
        if not found[-1].ok:
            break
    verdict = _verdict(found, reason, work)
    if beside and found:
        verdict = replace(verdict, input_error=own)
    if schedule is None or verdict.outcome == MISMATCH:
        return verdict
    return judge.on_arena(schedule, verdict)


def _verdict(found: list[Judged], reason: str, work: WorkBudget) -> Verification:
    wrong = [j for j in found if not j.ok]
    if not found:
        return _unproven(reason, work)
    worst = max(wrong or found, key=lambda j: j.error)
    reason = worst.reason if wrong else _nothing_said(found)
    outcome = MISMATCH if wrong else UNPROVEN if reason else OK
    return Verification(
        outcome == OK, worst.error, worst.limit, len(found), worst.where, outcome, reason,
        work.spent,
    )  # fmt: skip


def _nothing_said(found: list[Judged]) -> str:
    """Why no sample proves anything of a result; "" if each is proven by one."""
    shares = [p for j in found for p in (j.proofs, j.meant) if p]
    best = [max(column) for column in zip(*shares, strict=True)]
    for r, share in enumerate(best):
        if share < LEAST_PROOF:
            return (
                f"result {r} is NaN, infinite or nothing but rounding error in"
                f" {1 - share:.0%} of its elements, however the inputs were drawn"
            )
    return ""


def _unproven(reason: str, work: WorkBudget) -> Verification:
    return Verification(False, 0.0, 0.0, 0, "", UNPROVEN, reason, work.spent)


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
    found = replace(verdict, ok=False, outcome=MISMATCH, reason=reason)
    found = replace(found, arena=MISMATCH, arena_reason=reason)
    return (
        found if at is None else replace(found, max_error=at.error, limit=at.limit, where=at.where)
    )


class _Judge:
    """Draws samples and judges them."""

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
        self.open = [_open_lanes(program.nodes[r]) for r in program.results]
        self.last: tuple[list[Array], list[Array]] = ([], [])  # the last sample that was run
        self.judged: list[tuple[str, list[Array], list[Array]]] = []  # for the arena
        self.branches = any(isinstance(n.attr, Control) for n in nodes)

    def sample(self, number: int) -> Judged:
        """Sample `number`, drawn again while it says nothing; the best of what was drawn."""
        best: Judged | None = None
        for attempt in range(len(ATTEMPTS)):
            inputs = random_inputs(self.program, self.rng, attempt)
            wanted = self.reference(self.program, inputs)
            if best is not None and min(map(proof, wanted), default=1.0) <= min(best.proofs):
                continue
            found = self._judged(f"sample {number}", inputs, wanted)
            if not found.ok or min(found.proofs, default=1.0) >= LEAST_PROOF:
                return found
            best = found
        assert best is not None
        return best

    def input_error(self) -> float:
        """max|a − b| / max|b| of the input program on the last sample that was run."""
        inputs, wanted = self.last
        got = self.said(self.witness(inputs)) if wanted else []
        pairs = [(distance(a, b), b) for a, b in zip(got, wanted, strict=True) if b.size]
        return max((float(d.max()) / size(b) for d, b in pairs), default=0.0)

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
            found = self._meaning(self.chosen, sample, inputs, wanted)
            if not found.ok:
                return found
            meant = found.proofs
        got = self.said(self.call(*inputs))
        self.last = inputs, wanted
        found = _Comparison(self, sample, inputs, wanted, got).judged()
        found.meant = meant
        if found.ok and (self.branches or not self.judged):  # other inputs may take other branches
            self.judged.append((sample, inputs, wanted))
        return found

    def on_arena(self, schedule: Schedule, verdict: Verification) -> Verification:
        """The verdict with what the schedule does on one arena, for samples that were right."""
        if not self.judged:
            return verdict
        work = WorkBudget(self.work.limit - self.work.spent)
        arena = Arena(schedule, self.opaque, work)
        for sample, inputs, wanted in self.judged:
            try:
                got = self.said(arena(inputs, self.weights))
            except OverWork:
                return replace(verdict, arena=UNPROVEN, arena_reason=_over_on_arena(self.work))
            except ArenaFault as fault:
                return _wrong_on_arena(verdict, f"on one arena: {fault}")
            found = _Comparison(self, f"{sample} on one arena", inputs, wanted, got).judged()
            if not found.ok:
                return _wrong_on_arena(verdict, found.reason, found)
        return replace(verdict, arena=OK, operations=verdict.operations + work.spent)

    def _meaning(
        self, chosen: Program, sample: str, inputs: list[Array], wanted: list[Array]
    ) -> Judged:
        """The chosen program in float64: equal but for the order of its operations."""
        if chosen.nodes == self.program.nodes and chosen.results == self.program.results:
            return Judged(0.0, 0.0, "", proofs=[proof(w) for w in wanted])
        got = self.reference(chosen, inputs)
        exact = not self.has_foreign  # an opaque op computes in its own types even here
        found = _Comparison(self, sample, inputs, wanted, got, exact=exact, witness=False).judged()
        if not found.ok:
            found.reason = (
                f"in float64, too, the chosen program computes something else: {found.where}"
            )
        return found


class _Comparison:
    """Results of one sample against the reference, by ever closer looks."""

    def __init__(
        self,
        judge: _Judge,
        sample: str,
        inputs: list[Array],
        wanted: list[Array],
        got: Sequence[Array],
        *,
        exact: bool = False,
        witness: bool = True,
    ):
        self.judge, self.sample = judge, sample
        self.inputs, self.wanted, self.got = inputs, wanted, got
        self.exact, self.has_witness = exact, witness
        limit = error_limit(judge.program, exact=True) if exact else judge.limit
        self.allowed = [
            np.full(w.shape, limit * size(w)) if w.dtype.kind == "f" else np.zeros(w.shape)
            for w in wanted
        ]

    def judged(self) -> Judged:
        for r, (a, b) in enumerate(zip(self.got, self.wanted, strict=True)):
            if a.shape != b.shape:
                where = f"{self.sample}, result {r}{misshapen(a, b)}"
                return Judged(float("inf"), 0.0, where, False, where, [0.0] * len(self.got))
        self.distances = [distance(a, b) for a, b in zip(self.got, self.wanted, strict=True)]
        if self._open():
            self._widen()
        return self._found()

    def _open(self) -> list[int]:
        """Results with elements that nothing explains so far."""
        pairs = zip(self.distances, self.allowed, strict=True)
        return [r for r, (d, a) in enumerate(pairs) if (d > a).any()]

    def _widen(self) -> None:
        """Look closer until everything is explained or nothing is left to look at."""
        self.allowed = [np.zeros(w.shape) for w in self.wanted]
        for pair, moved in enumerate(self._noise()):
            self._allow(moved)
            if pair + 1 >= FEW and not self._open():
                return
        if self.has_witness:
            self._ask_witness()

    def _allow(self, moved: Sequence[Array]) -> None:
        pairs = zip(self.allowed, moved, strict=True)
        self.allowed = [np.maximum(a, m) for a, m in pairs]

    def _noise(self) -> Iterator[list[Array]]:
        """Per pair of noisy evaluations, how far they move each element."""
        judge = self.judge
        for pair in range(MANY):
            yield moves(
                judge.program,
                partial(judge.reference, judge.program, self.inputs),
                self.wanted,
                [judge.seed, pair],
                judge.platform,
                exact=self.exact,
            )

    def _ask_witness(self) -> None:
        """What the input program itself does on this executor, near these inputs, is right."""
        rng = np.random.default_rng(self.judge.seed)
        explained = self.allowed
        own: list[Array] = []
        for nudge in range(1 + NUDGES):
            found = self.judge.said(self.judge.witness(self.inputs, rng if nudge else None))
            away = [distance(a, b) for a, b in zip(found, self.wanted, strict=True)]
            own = own or away
            pairs = zip(away, explained, strict=True)
            self._allow([np.where(d > e, LEEWAY * d, d) for d, e in pairs])
            if not self._open():
                return
        for r in self._open():
            if dominated(self.distances[r], own[r], explained[r]):
                self.allowed[r] = np.maximum(self.allowed[r], self.distances[r])

    def _found(self) -> Judged:
        """The worst element: of those not allowed if there are any."""
        open_ = self._open()
        best = Judged(0.0, 0.0, "", not open_)
        for r in open_ or range(len(self.wanted)):
            d, allowed, wanted = self.distances[r], self.allowed[r], self.wanted[r]
            if not d.size:
                continue
            looked = np.where(d > allowed, d, -1.0) if open_ else np.where(np.isfinite(d), d, 0.0)
            at = int(np.argmax(looked))
            error, limit = (float(x.flat[at]) / size(wanted) for x in (d, allowed))
            if error > best.error or not best.where:
                best.error, best.limit = error, limit
                best.where = f"{self.sample}, result {r}{element(self.got[r], wanted, at)}"
        best.reason = "" if best.ok else best.where
        best.proofs = [proof(w, a) for w, a in zip(self.wanted, self.allowed, strict=True)]
        return best


def _open_lanes(result: Node) -> Array | None:
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
