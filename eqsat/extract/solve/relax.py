"""The linear relaxation of a problem: a bound no answer passes, and which options can be left out.

Reduced-cost fixing: an option whose reduced cost lifts the relaxation's bound above the cap is in
no answer that keeps the cap. The relaxation of sums over dispatches is tight or nearly so
(`docs/decisions.md`): its own options often are the answer, and its bound the proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.extract.solve.kept import KeptBytes
from eqsat.extract.solve.live import kept_weights, liveness
from eqsat.extract.solve.lp import Program, Rows, Solved, solve
from eqsat.extract.solve.problem import ExtractionProblem
from eqsat.extract.solve.supply import exclusions, levels
from eqsat.model.deadline import tick

MEMORY = "memory"
SUPPORT = 1e-6  # options the relaxation chooses by less are not part of its answer


@dataclass(frozen=True)
class Relaxation:
    """What no answer beats, per option what choosing it adds at least, and what the LP chose."""

    least: float  # no answer is worth less
    reduced: tuple[float, ...]
    support: tuple[int, ...]
    unit: int  # every answer's worth is a multiple of it

    @property
    def bound(self) -> int:
        """The least an answer can be worth, as it is a multiple of `unit`."""
        return max(math.ceil(self.least / self.unit) * self.unit, 0)

    def within(self, cap: int) -> tuple[int, ...]:
        """Options that answers worth at most `cap` may hold."""
        return tuple(i for i, r in enumerate(self.reduced) if self.least + r <= cap)


def relaxation(
    problem: ExtractionProblem,
    weights: Mapping[str, int],
    caps: Mapping[str, int] | None = None,
) -> Relaxation | None:
    """Minimise Σ weight · goal under caps; None if even the relaxation has no solution.

    If the deadline it is under ends the LP solver, the bound is the trivial one; OutOfTime if there
    is no time to state it.
    """
    import numpy as np

    caps = caps or {}
    linear = {g: w for g, w in weights.items() if g in problem.linear}
    costs = problem.worths(linear)
    rows, variables = _rows(problem)
    objective = costs + [0] * (variables - len(costs))
    upper = [1.0] * variables
    if MEMORY in weights or MEMORY in caps:
        nbytes = problem.byte_unit
        _add_liveness(rows, problem, nbytes, upper)
        objective += [0] * (len(upper) - len(objective))
        objective[-1] = weights.get(MEMORY, 0) * nbytes
        upper[-1] = caps.get(MEMORY, problem.most_bytes) // nbytes
    for name in (g for g in problem.kept if g in weights or g in caps):
        bytes_of = KeptBytes(problem, problem.kept[name])
        at = bytes_of.relax(rows, upper, caps.get(name, bytes_of.most))
        objective += [0] * (len(upper) - len(objective))
        objective[at] = weights.get(name, 0) * bytes_of.unit
    for name, cap in caps.items():
        if name in problem.linear:
            rows.weigh(-math.inf, cap, enumerate(map(float, problem.coefficients(name))))
    unit = math.gcd(*objective) or 1
    is_plain = not caps and linear == weights
    goal = np.array(objective, dtype=float) / unit
    program = Program(goal, rows, np.zeros(len(upper)), np.array(upper), is_plain)
    return _relaxation(solve(program), len(costs), unit)


def least_bytes(problem: ExtractionProblem) -> int | None:
    """Peak bytes of every answer in any order, at the least; None if there is no answer.

    Fixed bytes, the weights that every answer keeps, and what the dispatch that computes some
    needed value touches. Far easier than the rest of what memory takes; most budgets fail by it.
    """
    import numpy as np

    rows, variables = _rows(problem)
    upper, nbytes = [1.0] * variables, problem.byte_unit
    objective = [0] * variables
    for size, claims in kept_weights(problem):
        upper.append(1.0)
        objective.append(size // nbytes)
        for claim in claims:
            rows.add(-math.inf, 0, claim, [len(upper) - 1])
    goal = np.array(objective, dtype=float)
    program = Program(goal, rows, np.zeros(len(upper)), np.array(upper), is_plain=True)
    solved = solve(program)
    if solved is None:
        return None
    return problem.fixed_bytes + math.ceil(solved.least) * nbytes + _touched_bytes(problem)


def _touched_bytes(problem: ExtractionProblem) -> int:
    """Temporaries that some dispatch of every answer reads or writes: all are live when it runs."""
    roots = set(problem.roots)
    own = [sum(problem.nbytes[b] for b in {*o.reads, *o.writes} - roots) for o in problem.options]
    return max((min(own[i] for i in c) for c in problem.covers if c), default=0)


def _relaxation(solved: Solved | None, options: int, unit: int) -> Relaxation | None:
    if solved is None:
        return None
    reduced = (solved.reduced[:options] * unit).tolist()
    support = tuple(i for i, v in enumerate(solved.values[:options].tolist()) if v > SUPPORT)
    return Relaxation(solved.least * unit, tuple(reduced), support, unit)


def _add_liveness(rows: Rows, problem: ExtractionProblem, nbytes: int, upper: list[float]) -> None:
    """Rows of what is live; new variables are added to `upper`, peak bytes / `nbytes` the last."""
    known = liveness(problem)

    def bits(count: int) -> list[int]:
        upper.extend([1.0] * count)
        return list(range(len(upper) - count, len(upper)))

    reads, spans = bits(len(known.reads)), bits(len(known.spans))
    kept = bits(len(known.weights))
    (peak,) = bits(1)
    for bit, read in zip(reads, known.reads, strict=True):
        if read.later is not None:
            rows.add(-math.inf, 0, [reads[read.later]], [bit])
        for claim in read.claims:
            rows.add(-math.inf, 0, claim, [bit])
    for bit, span in zip(spans, known.spans, strict=True):
        rows.add(-math.inf, 1, [reads[span.read], *span.writers], [bit])
    for bit, (_, claims) in zip(kept, known.weights, strict=True):
        for claim in claims:
            rows.add(-math.inf, 0, claim, [bit])
    sizes = [size for size, _ in known.weights]
    fixed = [(peak, -1.0), *((b, s / nbytes) for b, s in zip(kept, sizes, strict=True))]
    base = -problem.fixed_bytes / nbytes
    rows.weigh(-math.inf, base, fixed)
    for row in known.rows:
        tick()
        terms = [(i, s / nbytes) for s, i in row.written]
        terms += [(reads[n], s / nbytes) for s, n in row.read]
        terms += [(spans[n], s / nbytes) for s, n in row.spans]
        rows.weigh(-math.inf, base - row.base / nbytes, terms + fixed)


def _rows(problem: ExtractionProblem) -> tuple[Rows, int]:
    """The rows over options and one more variable per level of a buffer; how many variables."""
    rows, count = Rows(), len(problem.options)
    for r in problem.roots:
        rows.add(1, 1, problem.writers.get(r, []))
    for cover in problem.covers:
        rows.add(1, math.inf, cover)
    if problem.forced is not None:
        rows.add(1, math.inf, sorted({i for i, _ in problem.forced}))
    for group in exclusions(problem):
        rows.add(-math.inf, 1, group)
    for among, most in problem.barred:
        rows.weigh(-math.inf, most, [(i, 1.0) for i in among])
    found = levels(problem)
    for n, level in enumerate(found):
        tick()
        before = [] if level.before is None else [count + level.before]
        rows.add(-math.inf, 0, [count + n], [*level.writers, *before])
        for claim in level.claims:
            rows.add(-math.inf, 0, claim, [count + n])
    return rows, count + len(found)
