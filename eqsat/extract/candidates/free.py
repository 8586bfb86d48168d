"""Options as an ExtractionProblem, and the one without an order: nothing says when they run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from eqsat.extract.blocks import ONE, TWO, own_key
from eqsat.extract.candidates.alloptions import all_options
from eqsat.extract.candidates.cover import served_by
from eqsat.extract.candidates.loading import kept_rows, originals_held
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.solve.anyorder import AnyOrder, any_order
from eqsat.extract.solve.presolve import presolve
from eqsat.extract.solve.problem import ExtractionProblem, Option, Tie
from eqsat.model.deadline import tick

FREE = "free"  # what `Variants.stated` calls the problem without an order


def free_problem(variants: Variants) -> tuple[list[Variant], AnyOrder]:
    """The options some answer may need, and the problem of choosing among them in any order.

    It is stated once: the variants keep it.
    """
    if FREE not in variants.stated:
        variants.stated[FREE] = _free_problem(variants)
    return variants.stated[FREE]


def _free_problem(variants: Variants) -> tuple[list[Variant], AnyOrder]:
    kept = sorted(all_options(variants), key=lambda v: v.key)
    free = unordered(variants, kept)
    useful = presolve(free)
    return [kept[i] for i in useful], free.restricted(useful)


def unordered(variants: Variants, kept: Sequence[Variant]) -> AnyOrder:
    """The problem of choosing among these options in any order."""
    pool, space = variants.pool, variants.space
    covers = covers_of(pool, variants.needed, kept)
    problem = problem_of(pool, kept, covers, tuple(variants.goals))
    computes = tuple(tuple(sorted(space.computes(v.candidate.members))) for v in kept)
    sources = {v for v in space.value if space.is_source(v)}
    sources |= {space.value[b] for b in pool.held | pool.resident}
    value = {b: space.value[b] for b in problem.nbytes}
    return any_order(problem, computes, value, frozenset(sources))


def problem_of(
    pool: Pool,
    kept: Sequence[Variant],
    covers: tuple[tuple[int, ...], ...],
    linear: tuple[str, ...],
) -> ExtractionProblem:
    """These options, numbered by their place, under the order of their moments."""
    space = pool.space
    moments = {m: n for n, m in enumerate(sorted({v.moment for v in kept}))}
    options = tuple(
        Option(
            moments[v.moment],
            v.adds,
            tuple(sorted(v.reads)),
            tuple(sorted(v.resident)),
            tuple(sorted(v.writes)),
            tuple(sorted(v.exclusive)),
        )
        for v in kept
    )
    made = [r for r in space.roots if r not in pool.held]
    used = {b for o in options for b in (*o.writes, *o.reads, *o.resident)} | set(made)
    nbytes = counted_bytes(pool)
    counted = {b: nbytes[b] for b in sorted(used)}
    repeats = {b: n for b in counted if (n := space.times(b)) > 1}
    known = counted, tuple(made), fixed_bytes(pool), covers, linear
    more = {"kept": kept_rows(pool), "tied": tied(space, kept), "repeats": repeats}
    return ExtractionProblem(options, *known, **more)


def tied(space: Space, kept: Sequence[Variant]) -> tuple[Tie, ...]:
    """Options of the first of the middle blocks, and the same ones of the second."""
    rolled = space.rolled
    if rolled is None:
        return ()
    by: dict[Hashable, tuple[list[int], list[int]]] = {}
    for i, v in enumerate(kept):
        last, parts = rolled.last(v.candidate.members), (v.candidate.members, *v[3:6])
        if last == ONE:
            by.setdefault(space.later.key(*parts), ([], []))[0].append(i)
        elif last == TWO:
            by.setdefault(own_key(*parts), ([], []))[1].append(i)
    return tuple((tuple(one), tuple(two)) for one, two in by.values())


def covers_of(
    pool: Pool, needed: tuple[int, ...], kept: Sequence[Variant]
) -> tuple[tuple[int, ...], ...]:
    """Per needed value: the options that compute it; then those that serve one (`served_by`)."""
    computing, serving = dict[int, list[int]](), dict[int, list[int]]()
    value = pool.space.value
    for n, v in enumerate(kept):
        tick()
        members = v.candidate.members
        for made in pool.space.computes(members):
            computing.setdefault(made, []).append(n)
        for other in served_by(pool, members, [value[b] for b in v.writes]):
            serving.setdefault(other, []).append(n)
    behind = sorted(frozenset().union(*pool.served.values()))
    parts = ((computing, needed), (serving, behind))
    return tuple(tuple(options.get(v, ())) for options, values in parts for v in values)


def fixed_bytes(pool: Pool) -> int:
    """Arguments, results, and weights that are there whatever is chosen."""
    space = pool.space
    made = [r for r in space.roots if r not in pool.held]
    held = [r for r in space.roots if r in pool.resident]
    always = (*held, *made, *(b for b in originals_held(pool) if b not in held))
    return space.input_bytes + sum(space.nbytes(b) * space.times(b) for b in always)


def counted_bytes(pool: Pool) -> list[int]:
    """Per class: its bytes; none of weights that are there whatever is chosen, counted already."""
    found = list(pool.space.sizes)
    for b in (*originals_held(pool), *(r for r in pool.space.roots if r in pool.resident)):
        found[b] = 0
    return found
