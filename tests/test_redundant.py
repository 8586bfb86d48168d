"""Groups and nodes that are left out as others do the same: no undominated column is lost."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest
from drawnprograms import Maker
from plain_options import listed
from seeds import seeds
from tabulated import sources_in

import eqsat
from eqsat.extract.candidates.pool import Pool
from eqsat.extract.candidates.space import Space
from eqsat.extract.candidates.tabulate import choice_of
from eqsat.extract.choice.linear import TIE_BREAK
from eqsat.extract.dispatch.legality import Legality
from eqsat.lang.rulesets import load_rulesets
from eqsat.lang.targets import load_target
from eqsat.model.target import Target
from eqsat.ops.spelling.chains import merge_elementwise
from eqsat.saturate import saturate

GOALS = ("time", "memory", "dispatches")


def columns(
    space: Space, target: Target, *, keeps_all: bool, goals: tuple[str, ...] = GOALS
) -> tuple[int, set[Hashable]]:
    """How many candidates there are, and what the undominated columns do."""
    found = sources_in(space, target, goals, keeps_all=keeps_all)
    few = replace(found, pool=replace(found.pool, keeps_all=False))
    counts = [i for i, name in enumerate(found.goals) if name != TIE_BREAK]
    return len(found.candidates), {
        (v.writes, v.reads, v.resident, v.exclusive, tuple([v.adds[i] for i in counts]))
        for v in listed(few, choice_of(few))
    }


def space_of(seed: int, target: Target) -> Space:
    program = merge_elementwise(Maker(seed).program(6))
    return Space(saturate(program, load_rulesets(["default"]), target))


@pytest.mark.parametrize("goals", [GOALS, (*GOALS, "relayout")])
@pytest.mark.parametrize("name", ["avx512-xla", "reference"])
@pytest.mark.parametrize("seed", seeds(1, [5, 11, 1, 20]))
def test_what_is_left_out_is_dominated(seed: int, name: str, goals: tuple[str, ...]) -> None:
    target = load_target(name)
    space = space_of(seed, target)
    every, wanted = columns(space, target, keeps_all=True, goals=goals)
    count, found = columns(space, target, keeps_all=False, goals=goals)
    assert count <= every
    assert found == wanted


def test_layouts_of_one_value_multiply_nothing() -> None:
    target = load_target("reference")
    space = space_of(13, target)
    every, wanted = columns(space, target, keeps_all=True)
    count, found = columns(space, target, keeps_all=False)
    assert count * 20 < every
    assert found >= wanted  # of equal ones another may stay, so that it dominates less


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
    _, wanted = columns(space, target, keeps_all=True)
    _, kept = columns(space, target, keeps_all=False)
    assert kept == wanted
