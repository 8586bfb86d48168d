"""The relaxation once per block class: a true bound, and nothing is lost that an answer needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.extract.candidates.columns import Columns
from eqsat.extract.candidates.free import unordered
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.orbits import Orbits
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.solve.folded import presolved_rows
from eqsat.extract.solve.freerows import free_relaxation
from eqsat.extract.solve.freetable import needed_numbers
from eqsat.extract.survivors import narrowed
from eqsat.model.diag import EqsatError
from tests.test_orbits import kinds, variants_of
from tests.test_survivors import least

SEARCHED = ("nothing differs", "a constant", "no residual", "a weight of two layers")
SEARCHED += ("a result of a middle layer", "a value that is read behind")


def priced(orbits: Orbits, seed: int) -> Orbits:
    """The same options, each at a price of its own in all blocks; 0: what they are."""
    adds = orbits.table.adds.copy()
    if seed:
        adds[:, 0] = np.random.default_rng(seed).integers(1, 1000, len(adds))
    return replace(orbits, table=replace(orbits.table, adds=adds))


@pytest.mark.parametrize(("case", "seed"), list(zip(SEARCHED, range(len(SEARCHED)), strict=True)))
def test_no_answer_is_below_the_bound_and_the_best_ones_survive(case: str, seed: int):
    variants = variants_of(case)
    orbits = priced(Orbits.found(variants), seed)
    every = FreeOptions.made(variants, orbits.listed())
    problem = unordered(variants, every.objects())
    best = least(problem, {"time": 1}, {})
    columns = Columns.found(orbits).presolved()
    relaxed = columns.relaxation("time")
    assert relaxed is not None
    assert 0 < relaxed.bound <= best
    left = columns.options(np.array(relaxed.within(best), dtype=np.int64)).objects()
    assert kinds(left) <= kinds(every.objects())
    small = unordered(variants, left)
    assert least(small, {"time": 1}, {}) == best
    behind = [least(p, {"dispatches": 1}, {"time": best}) for p in (problem, small)]
    assert behind[0] == behind[1]


@pytest.mark.parametrize("name", ["avx512-xla", "iree-like", "gfx942"])
def test_nothing_is_lost_where_all_blocks_are_equal(name: str):
    variants = variants_of("nothing differs", name)
    orbits = Orbits.found(variants)
    every = FreeOptions.made(variants, orbits.listed())
    exact = free_relaxation(every.problem, tuple(variants.goals), {"time": 1})
    columns = Columns.found(orbits).presolved()
    relaxed = columns.relaxation("time")
    assert exact is not None and relaxed is not None
    assert relaxed.bound == exact.bound
    assert len(columns) < len(every) == columns.of.counts.sum()


def keys(table: OptionTable) -> list[tuple[object, ...]]:
    """Per option what tells it from others."""
    sides = ([tuple(r.tolist()) for r in rows] for rows in (table.writes, table.reads))
    return list(zip(table.candidate.tolist(), *sides, strict=True))


@pytest.mark.parametrize("case", SEARCHED)
def test_what_is_needed_once_per_class_is_needed_in_every_block(case: str):
    variants = variants_of(case)
    columns = Columns.found(Orbits.found(variants))
    kept, known = presolved_rows(columns.folded())
    left = columns.take(kept)
    every = FreeOptions.made(variants, columns.orbits.listed())
    plain, own = needed_numbers(every.problem), {k: n for n, k in enumerate(keys(every.table))}
    first = keys(columns.orbits.listed(left.of.index[left.of.start[:-1]]))
    numbers, asked = left.folded().numbers, plain.numbers
    seen = 0
    for row, key in enumerate(first):
        if key not in own:  # in no answer, but to see that takes a look at more than a few blocks
            continue
        at = np.full(len(asked), row)
        found = known.ask(at, numbers.of[asked], numbers.place[asked], numbers.moves[asked])
        assert not (found & ~plain.ask(np.full(len(asked), own[key]), asked)).any()
        seen += np.count_nonzero(found)
    assert seen > len(first)


def test_survivors_are_found_by_class():
    variants = variants_of("a constant")
    every = FreeOptions.of(variants)
    best = least(unordered(variants, every.objects()), {"time": 1}, {})
    found = narrowed(variants, {"time": 1}, {}, None, lambda _: best)
    assert found is not None and found.bound == best == found.cap
    assert len(found.options) < len(every)


def test_blocks_of_which_nothing_can_be_computed_are_refused():
    blocks = eqsat.read("experiments/programs/bottlenecks.py:bottlenecks")
    with pytest.raises(EqsatError) as caught:
        eqsat.optimize(blocks, target="separate-conversions")
    assert caught.value.diagnostics[0].code == "E410"
