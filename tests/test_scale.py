"""What benchmarks/scale.py and benchmarks/optima.py say of searches."""

from __future__ import annotations

from typing import Any

import pytest
from library import benchmark

import eqsat

scale, optima = benchmark("scale"), benchmark("optima")


@pytest.mark.parametrize("part", scale.PARTS)
def test_each_part_of_the_scale_is_measured_on_a_small_program(part: str) -> None:
    row = {"part": part, "program": "transposed_pack", "target": "reference", "wanted": {}}
    row |= scale.measured(row, eqsat.read("transposed_pack"), 20.0)
    assert row["wall"] >= 0
    assert row["peak_rss"] > 10**6
    if part == "budget":  # a transposed pack has no temporaries to spare
        assert row["budget"] is not None
        assert row.get("proven", True)
    else:
        assert row["gap"] == 0
        assert row["stop"] in ("optimal", "complete")
    assert scale.missed(row) == []
    assert "MISSED" not in scale.told(row | {"missed": []})


def test_what_is_wanted_is_compared_with_what_was_found() -> None:
    row: dict[str, Any] = {"cpu": 2.0, "wall": 1.0, "gap": 0.0, "wanted": {"cpu": 1.5, "gap": 0.0}}
    assert scale.missed(row) == ["cpu"]
    front = {"points": 4, "complete": False, "wall": 1.0}
    assert scale.missed(front | {"wanted": {"points": 5, "complete": True}}) == [
        "points", "complete",
    ]  # fmt: skip
    refused = {"refused": "no", "proven": False, "cpu": 4.0, "wall": 1.0, "wanted": {"cpu": 3.0}}
    assert scale.missed(refused) == ["cpu", "proven"]
    assert scale.missed(refused | {"proven": True, "cpu": 1.0}) == []


def test_growth_is_the_exponent_from_six_layers_to_twenty_four() -> None:
    rows = [
        {"part": "models", "program": f"encoder-{n}", "target": "avx512", "cpu": n**0.5}
        for n in (1, 6, 24)
    ]
    assert scale.growth(rows)["avx512"]["exponent"] == 0.5


def found(*goals: tuple[int, int], cuts: int = 0) -> dict[str, Any]:
    return {"goals": {str(i): list(g) for i, g in enumerate(goals)}, "cuts": cuts}


@pytest.mark.parametrize(
    ("was", "now", "outcome"),
    [
        (found((5, 5), (3, 3)), found((5, 5), (3, 3)), "same"),
        (found((5, 4), (3, 3)), found((4, 4), (9, 9)), "better"),
        (found((5, 5), (3, 2)), found((5, 5), (4, 2)), "worse"),
        (found((5, 5), (3, 3)), found((5, 5), (2, 2)), "wrong"),
        (found((5, 5), cuts=1), found((4, 4)), "better"),
        (found((5, 4), (3, 3)), found((5, 5), (2, 2)), "better"),
        ({"refused": ["E410"]}, {"refused": ["E410"]}, "same"),
        ({"refused": ["E410"]}, found((1, 1)), "refused"),
        (found((1, 1)), {"slow": 9.0}, "slow"),
        ({"slow": 9.0}, found((1, 1)), "better"),
    ],
)
def test_two_answers_are_compared_by_the_first_goal_that_differs(
    was: dict[str, Any], now: dict[str, Any], outcome: str
) -> None:
    assert optima.outcome(was, now) == outcome
