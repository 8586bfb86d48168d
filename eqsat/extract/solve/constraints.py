"""The choice of options as constraints, stated once: to CP-SAT and to its linear relaxation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from eqsat.extract.solve.kept import KeptRow
from eqsat.extract.solve.live import Claims, claims, kept_weights, liveness
from eqsat.extract.solve.problem import ExtractionProblem
from eqsat.extract.solve.supply import availabilities, exclusions
from eqsat.model.deadline import tick

Terms = Iterable[tuple[int, Any]]  # (bytes, literal)


class Constraints(Protocol):
    """Who is told: a literal is what it takes for one, `x` has that of every option."""

    @property
    def x(self) -> Sequence[Any]: ...

    def exactly_one(self, literals: Sequence[Any]) -> None: ...
    def some(self, literals: Sequence[Any]) -> None: ...
    def at_most(self, literals: Sequence[Any], most: int) -> None: ...
    def as_many(self, ones: Sequence[Any], others: Sequence[Any]) -> None: ...
    def only_with(self, clique: Sequence[Any], literal: Any) -> None:
        """Of literals that exclude each other one is true only if the literal is."""
        ...

    def only_if_any(self, literals: Sequence[Any]) -> Any:
        """A literal that may be true only if one of these is."""
        ...

    def true_if_any(self, cliques: Sequence[Sequence[Any]], later: Any = None) -> Any:
        """A literal that is true if `later` is, or one of these, which exclude each other."""
        ...

    def both(self, one: Any, clique: Sequence[Any]) -> Any:
        """A literal that is true if `one` is, and one of the others, which exclude each other."""
        ...

    def bound(self, terms: Terms, base: int, most: Any, unit: int) -> None:
        """base + Σ size · literal <= most, which counts in units."""
        ...


def state_choice(problem: ExtractionProblem, to: Constraints) -> None:
    """Whatever is asked of a choice but for its order, bytes and budgets."""

    def x(options: Iterable[int]) -> list[Any]:
        return [to.x[i] for i in options]

    # (C1) every root is written, once
    for r in problem.roots:
        to.exactly_one(x(problem.writers.get(r, [])))
    # (C2) every needed value is computed: Σ x ≥ 1
    for cover in problem.covers:
        to.some(x(cover))
    # (C3) what may not be cloned is computed once, no buffer is written twice: Σ x ≤ 1
    for group in exclusions(problem):
        tick()
        to.at_most(x(group), 1)
    for among, most in problem.barred:
        to.at_most(x(among), most)
    # equal blocks are alike: Σ x = Σ x of the same in the next block
    for one, two in problem.tied:
        to.as_many(x(one), x(two))
    # (C4) a read was written before: Σ x[claim] ≤ A, A ≤ Σ x[writers] + A[before]
    known: list[Any] = []
    for level in availabilities(problem):
        tick()
        before = [] if level.before is None else [known[level.before]]
        known.append(to.only_if_any([*x(level.writers), *before]))
        for claim in level.claims:
            to.only_with(x(claim), known[-1])


def any_chosen(to: Constraints, cliques: Claims, later: Any = None) -> Any:
    """A literal that is true if one of these options is chosen, or if `later` is."""
    return to.true_if_any([[to.x[i] for i in clique] for clique in cliques], later)


def kept_bytes(problem: ExtractionProblem, to: Constraints) -> list[tuple[int, Any]]:
    """Bytes of every weight buffer, and whether a chosen dispatch keeps it."""
    return [(size, any_chosen(to, cliques)) for size, cliques in kept_weights(problem)]


def state_peak(problem: ExtractionProblem, to: Constraints, peak: Any, unit: int) -> None:
    """peak ≥ fixed + resident + Σ live temporaries, for each step."""
    known, base = liveness(problem), problem.fixed_bytes
    reads: list[Any] = []
    for read in known.reads:
        tick()
        later = None if read.later is None else reads[read.later]
        reads.append(any_chosen(to, read.claims, later))
    spans = [to.both(reads[s.read], [to.x[i] for i in s.writers]) for s in known.spans]
    weights = kept_bytes(problem, to)
    to.bound(weights, base, peak, unit)
    for row in known.rows:
        tick()
        terms = [(size, to.x[i]) for size, i in row.written]
        terms += [(size, reads[n]) for size, n in row.read]
        terms += [(size, spans[n]) for size, n in row.spans]
        to.bound(terms + weights, base + row.base, peak, unit)


def state_kept(
    problem: ExtractionProblem, rows: Sequence[KeptRow], to: Constraints, most: Any, unit: int
) -> None:
    """most ≥ the bytes of weights at each moment of loading."""
    sets = dict.fromkeys(any_of for r in rows for _, any_of in r.terms)
    keeping = {s: sorted({i for b in s for i in problem.keepers.get(b, ())}) for s in sets}
    literals = {s: any_chosen(to, claims(problem, k, k)) for s, k in keeping.items() if k}
    for r in rows:
        to.bound([(n, literals[s]) for n, s in r.terms if s in literals], r.base, most, unit)
