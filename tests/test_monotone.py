"""An identity on an edge makes no answer better: a share of the gate `monotone`, and a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fuzz import monotone
from fuzz.monotone import Case, hunt, judge

from eqsat.lang.programs import parse_program

PADDED = "program p\ninput x: f32[16, 8]\ng = pad(x, low=[0, 0], high=[8, 0], value=0.0)\n"
SUM = "y = generic({}, loops=[24, 8], maps=[[d0, d1]], body=x0, combine=add, rank=1)\nreturn y\n"
NEGATED = "a = neg(g)\nb = neg(a)\n"


@pytest.mark.slow  # a seed of the gate `monotone`, 2 s
@pytest.mark.parametrize("seed", [7])
def test_no_identity_makes_a_better_dispatch_legal(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(monotone, "RULES", {"none": (), "default": ()})
    found = hunt(seed)
    assert found
    assert [v.to_json() for v in found if v.outcome in ("better", "unequal", "refused")] == []
    assert {v.outcome for v in found} & {"same", "worse"}


def test_a_table_that_is_not_closed_is_found_out(monkeypatch: pytest.MonkeyPatch):
    plain, negated = (
        parse_program(PADDED + SUM.format("g")),
        parse_program(PADDED + NEGATED + SUM.format("b")),
    )
    case = Case(0, "neutral-ops", "reference", "none", plain, negated)
    assert judge(case).outcome == "same"
    monotone.answer.cache_clear()
    target = monotone._target("reference")
    open_rows = ("elementwise", ("elementwise", "reduction")), ("move", ("elementwise",))
    open_ = replace(target, fusion=replace(target.fusion, join=open_rows))
    assert open_.fusion.missing_joins == (("move", "reduction"),)
    monkeypatch.setattr(monotone, "_target", lambda _: open_)
    assert judge(case).outcome == "better"
    monotone.answer.cache_clear()
