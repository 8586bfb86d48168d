"""Groups and nodes that are left out as others do the same: no undominated option is lost."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

import eqsat
from eqsat.extract.candidates.freeoptions import FreeOptions
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.variants import Variants
from eqsat.extract.dispatch.legality import Legality
from eqsat.extract.dispatch.prices import Costs
from eqsat.extract.groups.enumeration import enumerated
from eqsat.extract.solve.linear import TIE_BREAK, linear_goals
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate
from tests.test_fuzz import Maker

GOALS = ("time", "memory", "dispatches")


def options(
    space: Space, target: Target, *, keeps_all: bool, goals: tuple[str, ...] = GOALS
) -> tuple[int, set[Hashable]]:
    """How many candidates there are, and what the undominated options do."""
    pool = Pool(Legality(space, target), False, frozenset(goals), keeps_all)
    costs, linear = Costs(space, target), linear_goals(goals)
    found = enumerated(pool, costs).candidates
    counts = [i for i, name in enumerate(linear) if name != TIE_BREAK]
    return len(found), {
        (v.writes, v.reads, v.resident, v.exclusive, tuple([v.adds[i] for i in counts]))
        for v in FreeOptions.of(Variants(pool, costs, found, linear)).objects()
    }


def space_of(seed: int, target: Target) -> Space:
    program = merge_elementwise(Maker(seed).program(6))
    return Space(saturate(program, load_rulesets(["default"]), target))


@pytest.mark.parametrize("goals", [GOALS, (*GOALS, "relayout")])
@pytest.mark.parametrize("name", ["avx512-xla", "reference"])
@pytest.mark.parametrize("seed", [1, 5, 11, 20])
def test_what_is_left_out_is_dominated(seed: int, name: str, goals: tuple[str, ...]) -> None:
    target = load_target(name)
    space = space_of(seed, target)
    every, wanted = options(space, target, keeps_all=True, goals=goals)
    count, found = options(space, target, keeps_all=False, goals=goals)
    assert count <= every
    assert found == wanted


def test_layouts_of_one_value_multiply_nothing() -> None:
    target = load_target("reference")
    space = space_of(13, target)
    every, wanted = options(space, target, keeps_all=True)
    count, found = options(space, target, keeps_all=False)
    assert count * 20 < every
    assert found == wanted


def test_nodes_of_the_input_program_stay() -> None:
    target = load_target("avx512-xla")
    for seed in (1, 13):
        space = space_of(seed, target)
        legality = Legality(space, target)
        made = [
            {n for nodes in Pool(legality, own).producers.values() for n in nodes}
            for own in (True, False)
        ]
        assert made[0] <= made[1]


def test_what_may_become_a_template_stays() -> None:
    """On arm64 one dispatch of seven nodes is best: it grows from one that reads by its layouts."""
    found = eqsat.read("experiments/programs/permuted_consumer.eqs").program
    target = load_target("arm64")
    space = Space(saturate(merge_elementwise(found), load_rulesets(["default"]), target))
    _, wanted = options(space, target, keeps_all=True)
    _, kept = options(space, target, keeps_all=False)
    assert kept == wanted
