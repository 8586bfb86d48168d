"""Equal programs have equal answers: a share of the gate `equal`, and that it can find fault."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from fuzz import equal
from fuzz.equal import Answer, Pair, Question, are_equal, compare, pairs, smaller
from fuzz.respell import RESPELLINGS
from fuzz.small import small_program
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


@pytest.mark.parametrize("kind", RESPELLINGS)
def test_a_respelling_is_another_text_of_the_same_program(kind: str):
    """Each finds its place in some random program, and changes no result."""
    found = 0
    for seed in range(200):
        program = small_program(seed)
        if max(t.size for n in program.nodes for t in n.types) > 20_000:
            continue
        other = RESPELLINGS[kind](program, random.Random(seed))
        if other is None or str(other) == str(program):
            continue
        other.verify()
        assert are_equal(program, other)
        assert str(parse_program(str(other))) == str(other)
        found += 1
        if found == 2:
            return
    raise AssertionError(f"{kind} found {found} places")


def test_a_seed_draws_the_same_pairs_every_time():
    first = [p.to_json() for p in pairs(3)]
    assert first == [p.to_json() for p in pairs(3)]
    assert first != [p.to_json() for p in pairs(4)]


# ---- the judge can find fault --------------------------------------------------------------------
def program(text: str) -> Program:
    return parse_program("program p\n" + text)


SUM = program("input x: f32[8, 4]\ny = relu(x)\nz = exp(y)\nreturn z, y\n")
TWICE = program("input x: f32[8, 4]\ny = add(x, x)\nz = exp(y)\nreturn z, y\n")


def test_programs_that_compute_something_else_are_found_out():
    found = compare(Pair("packs", 0, TIME, SUM, TWICE))
    assert found.outcome == "unequal"


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((Answer((5, 2, 1), 3), Answer((5, 2, 1), 3)), "same"),
        ((Answer((5, 2, 1), 3), Answer((5, 2, 2), 3)), "different"),
        ((Answer((5, 2, 1), 1), Answer((5, 2, 2), 3)), "unproven"),
        ((Answer((5, 2, 1), 1), Answer((6, 2, 1), 1)), "different"),
        ((Answer(refused="E410"), Answer(refused="E410")), "same"),
        ((Answer((5, 2, 1), 3), Answer(refused="E410")), "refused"),
    ],
)
def test_only_what_is_proven_is_compared(answers: tuple[Answer, Answer], outcome: str):
    left = iter(answers)
    pair = Pair("packs", 0, TIME, SUM, SUM)
    assert compare(pair, lambda *_: next(left)).outcome == outcome


def test_a_difference_is_made_smaller():
    """An answer that counts transposes differs wherever two are inserted."""

    def counted(p: Program, _: Question) -> Answer:
        return Answer((sum(n.op == "transpose" for n in p.nodes),), 1)

    first = small_program(1)
    other = RESPELLINGS["transposes"](first, random.Random(0))
    assert other is not None
    pair = compare(Pair("transposes", 1, TIME, first, other), counted)
    assert pair.outcome == "different"
    assert not pair.is_better
    found = smaller(pair, counted)
    assert found.first.op_count == 1 < first.op_count
    assert found.outcome == "different"


def test_an_identity_that_improves_is_counted():
    pair = Pair("copies", 0, TIME, SUM, SUM, "different", (Answer((5,), 1), Answer((4,), 1)))
    assert pair.is_better
    assert equal.improvements([replace(pair, kind="packs"), pair]) == [replace(pair, kind="packs")]
