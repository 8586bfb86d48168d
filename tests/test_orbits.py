"""Options once per block class: what is listed of them is what every candidate has by itself."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from plain_options import plain_options
from tabulated import tabulated

from eqsat.extract.candidates.costs import Costs
from eqsat.extract.candidates.dominance import undominated
from eqsat.extract.candidates.orbits import Orbits
from eqsat.extract.candidates.table import OptionTable
from eqsat.extract.candidates.variants import Variant, Variants
from eqsat.extract.chains import FAR, Chains
from eqsat.extract.solve.linear import linear_goals
from tests.test_copies import CASES, candidates, graph_of

GOALS = ("time", "memory", "dispatches", "relayout")


@cache
def variants_of(case: str, name: str = "avx512-xla") -> Variants:
    graph, target = graph_of(case, name)
    pool, found = candidates(graph, target)
    costs = Costs(pool.space, target)
    return Variants(pool, costs, found.candidates, linear_goals(GOALS), copies=found.copies)


def plain(variants: Variants) -> OptionTable:
    """Every option of every candidate and copy, without those that are dominated."""
    table = OptionTable.stacked(list(tabulated(variants)))
    return table.take(undominated(table).kept)


class Kind(NamedTuple):
    """What an option is to others."""

    writes: frozenset[int]
    reads: frozenset[int]
    resident: frozenset[int]
    exclusive: frozenset[int]
    adds: tuple[int, ...]


def kinds(options: tuple[Variant, ...]) -> set[Kind]:
    return {Kind(frozenset(v.writes), v.reads, v.resident, v.exclusive, v.adds) for v in options}


def objects(variants: Variants, table: OptionTable) -> tuple[Variant, ...]:
    return table.variants(variants.space, range(len(table)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["avx512-xla", "iree-like"])
def test_orbits_hold_the_options_of_every_copy(case: str, name: str):
    variants = variants_of(case, name)
    orbits = Orbits.found(variants)
    listed = orbits.listed()
    found = objects(variants, listed)
    assert len(orbits) < len(found)
    assert set(found) <= set(plain_options(variants))
    kept = listed.take(undominated(listed).kept)
    assert kinds(objects(variants, kept)) == kinds(objects(variants, plain(variants)))


def test_elements_in_chains():
    chains = Chains.of([1, 2, -1, 3, -1])
    assert chains.at(np.array([0, 2, 0, 3, 4]), 2).tolist() == [2, -1, 2, 3, -1]
    assert chains.at(np.array([2, 1]), np.array([-2, -2])).tolist() == [0, -1]
    assert chains.moves.tolist() == [True, True, True, False, False]
    back, on = chains.reach(np.array([True, False, True, True, True]))
    assert (back.tolist(), on.tolist()) == ([0, 1, 0, FAR, 0], [1, 0, 0, FAR, 0])


def test_what_goes_in_a_circle_has_no_image():
    chains = Chains.of([1, 0, 3, -1])
    assert chains.at(np.array([0, 1, 2]), 1).tolist() == [-1, -1, 3]
