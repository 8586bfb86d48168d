"""Equal programs have equal answers: a share of the gate `equal`, and that it can find fault."""

from __future__ import annotations

import pytest
from fuzz import equal
from fuzz.equal import Pair, Question, compare
from seeds import seeds

from eqsat.lang.programs import parse_program
from eqsat.model.program import Program


@pytest.mark.parametrize("seed", seeds(1, [10, 25, 53]))
def test_equal_programs_have_equal_answers(seed: int):
    """A share of the gate `equal`; the sums of seed 25 are joined under a policy."""
    found = equal.hunt(seed, seconds=60.0)
    assert len(found) > 3
    assert {p.outcome for p in found} == {"same"}, [p.to_json() for p in found]


TIME = Question("reference", ("time", "memory", "dispatches"))


# ---- the judge can find fault --------------------------------------------------------------------
def program(text: str) -> Program:
    return parse_program("program p\n" + text)


SUM = program("input x: f32[8, 4]\ny = relu(x)\nz = exp(y)\nreturn z, y\n")
TWICE = program("input x: f32[8, 4]\ny = add(x, x)\nz = exp(y)\nreturn z, y\n")


def test_programs_that_compute_something_else_are_found_out():
    found = compare(Pair("packs", 0, TIME, SUM, TWICE))
    assert found.outcome == "unequal"
