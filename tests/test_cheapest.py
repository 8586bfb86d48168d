"""Greedy extraction: legal answers that are what they say, and prove nothing."""

from __future__ import annotations

import pytest
from runnable import or_as_ops
from seeds import one_in

import eqsat
from eqsat.extract import check
from eqsat.model.diag import EqsatError

LIMITED = ["fusion.members=3"]


@or_as_ops("avx512")
@pytest.mark.parametrize(
    ("program", "target"),
    one_in(
        3,
        [
            ("three_readers", "separate-conversions"),
            ("residual", "avx512"),
            ("permuted_consumer", "avx512-xla"),
        ],
    ),
)
def test_a_greedy_answer_is_legal_and_no_better_than_the_exact_one(program: str, target: str):
    asked = {"target": target, "settings": LIMITED}
    greedy = eqsat.optimize(program, extractor="greedy", **asked)
    exact = eqsat.optimize(program, **asked)
    assert check(greedy.egraph, greedy.target, greedy.selection) == []
    assert greedy.selection.stop == greedy.summary()["claim"] == "greedy"
    found, best = (r.selection.goal("time") for r in (greedy, exact))
    assert found.bound == 0  # nothing is proven
    assert found.value >= best.value
    assert greedy.baseline == exact.baseline or (
        greedy.baseline.goal("time") == exact.baseline.goal("time")
    )
    assert greedy.verify(samples=1).ok


def test_a_greedy_answer_that_keeps_no_budget_is_no_answer():
    with pytest.raises(EqsatError) as caught:
        eqsat.optimize(
            "three_readers", target="separate-conversions", extractor="greedy",
            budget={"dispatches": 2},
        )  # fmt: skip
    assert caught.value.exit_code == 3
    assert "proven)" not in str(caught.value)


def test_weights_of_goals_choose_among_greedy_answers():
    run = eqsat.optimize(
        "residual", target="avx512", extractor="greedy", goals=["time:1", "memory:1"]
    )
    assert run.selection.goal("memory").value > 0


def test_an_unknown_extractor_is_told():
    with pytest.raises(EqsatError, match="cpsat, greedy"):
        eqsat.optimize("residual", target="avx512", extractor="gredy")
