"""The six border types: frozen, self-verifying, printable, to JSON and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

import eqsat
from eqsat.model.attr import ShapeError

FORCED = ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.9}]", "tiles_forced=true")
STAGES = ("program", "rules", "target", "egraph", "selection", "schedule")


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    return eqsat.optimize(eqsat.read("two_packs"), target="avx512-xla", settings=FORCED)


@pytest.mark.parametrize("stage", STAGES)
def test_a_border_value_is_frozen_prints_verifies_and_survives_json(run: eqsat.Run, stage: str):
    value: Any = getattr(run, stage)
    value.verify()
    assert len(value.to_text().splitlines()) > 2
    assert value.to_text() == str(value)
    assert type(value).from_json(json.loads(json.dumps(value.to_json()))) == value
    name = dataclasses.fields(value)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)


def broken(run: eqsat.Run) -> list[Any]:
    """One wrong value per type."""
    program, rules, target = run.program, run.rules, run.target
    egraph, selection, schedule = run.egraph, run.selection, run.schedule
    assert egraph is not None
    assert selection is not None
    assert schedule is not None
    node = dataclasses.replace(program.nodes[-1], operands=(99,))
    goal = dataclasses.replace(selection.goals[0][1], bound=10**18)
    first = dataclasses.replace(schedule.dispatches[0], reads=(schedule.program.results[0],))
    return [
        dataclasses.replace(program, nodes=(*program.nodes[:-1], node)),
        dataclasses.replace(rules, rules=(*rules.rules, rules.rules[0])),
        dataclasses.replace(target, memory=()),
        dataclasses.replace(egraph, types=tuple(reversed(egraph.types))),
        dataclasses.replace(selection, goals=(("time", goal),)),
        dataclasses.replace(schedule, dispatches=(first, *schedule.dispatches[1:])),
    ]


def test_a_wrong_value_is_refused(run: eqsat.Run):
    for value in broken(run):
        with pytest.raises((ValueError, ShapeError)):
            value.verify()
