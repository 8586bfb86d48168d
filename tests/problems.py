"""Random extraction problems, small enough to try every answer (for the tests of the search)."""

from __future__ import annotations

import random
from collections.abc import Iterable

from eqsat.extract.solve.problem import Answer, ExtractionProblem, Option

Values = tuple[int, ...]


def random_problem(seed: int) -> ExtractionProblem:
    """Buffers in layers, each with a few writers of the layers before; some write two."""
    rng = random.Random(seed)
    buffers = list(range(rng.randint(2, 6)))
    weights = [100, 101]
    step = {b: 2 * b for b in buffers}
    options: list[Option] = []
    for b in buffers:
        for _ in range(rng.randint(1, 3)):
            reads = tuple(sorted(rng.sample(buffers[:b], rng.randint(0, min(b, 2)))))
            writes = [b]
            if rng.random() < 0.3 and b:
                extra = rng.choice(buffers[:b])
                if extra not in reads:
                    writes.append(extra)
            resident = tuple(w for w in weights if rng.random() < 0.2)
            exclusive = (rng.randint(0, 9),) if rng.random() < 0.2 else ()
            late = rng.randint(0, 1)
            adds = (rng.randint(1, 20), rng.randint(0, 3), 1)
            writes = tuple(sorted(writes))
            options.append(Option(step[b] + late, adds, reads, resident, writes, exclusive))
    options.sort(key=lambda o: (o.step, o.writes, o.reads, o.adds))
    roots = tuple(sorted(rng.sample(buffers, rng.randint(1, min(2, len(buffers))))))
    nbytes = {b: rng.choice((4, 8, 64, 100)) for b in (*buffers, *weights)}
    return ExtractionProblem(tuple(options), nbytes, roots, 16, ())


def every_answer(problem: ExtractionProblem) -> set[Answer]:
    """All legal answers without useless options, by trying every writer of what is needed."""
    found: set[Answer] = set()

    def extend(chosen: frozenset[int]) -> None:
        written = {b for i in chosen for b in problem.options[i].writes}
        reads = {b for i in chosen for b in problem.options[i].reads}
        missing = sorted((reads | set(problem.roots)) - written)
        if not missing:
            if problem.is_legal(tuple(sorted(chosen))):
                found.add(problem.pruned(tuple(sorted(chosen))))
            return
        for w in problem.writers.get(missing[0], []):
            extend(chosen | {w})

    extend(frozenset())
    return {a for a in found if problem.is_legal(a)}


def best_of(values: Iterable[Values]) -> set[Values]:
    """Those that no other one is as good as everywhere."""
    every = set(values)
    return {
        v
        for v in every
        if not any(o != v and all(x <= y for x, y in zip(o, v, strict=True)) for o in every)
    }
