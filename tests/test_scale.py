"""What benchmarks/scale.py, optima.py and cores.py say of searches."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import cores
import optima
import pytest
import scale
from seeds import one_in

import eqsat

OPTIONS = Namespace(cpu=30.0, limit=60.0, kill=120.0)
REFUSED = {"refused": "E410", "proven": True}


@pytest.mark.parametrize("part", one_in(2, scale.PARTS))
def test_each_part_of_the_scale_is_measured_on_a_small_program(part: str) -> None:
    row = {"part": part, "program": "transposed_pack", "target": "reference", "wanted": {}}
    row |= scale.searched(row, eqsat.read("transposed_pack"), 20.0)
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
        (found((5, 5), (3, 3)), found((5, 5), (3, 2)), "looser"),
        (REFUSED, REFUSED, "same"),
        (REFUSED, REFUSED | {"proven": False}, "looser"),
        (REFUSED, found((1, 1)), "wrong"),
        (REFUSED | {"proven": False}, found((1, 1)), "better"),
        (found((1, 1)), REFUSED | {"proven": False}, "refused"),
        (found((1, 1)), {"slow": 9.0}, "slow"),
        ({"slow": 9.0}, found((1, 1)), "better"),
        (found((1, 1)), found((1, 1)) | {"faults": ["a"]}, "faulty"),
        ({"faults": ["a"]}, found((1, 1)), "better"),
    ],
)
def test_two_answers_are_compared_by_the_first_goal_that_differs(
    was: dict[str, Any], now: dict[str, Any], outcome: str
) -> None:
    assert optima.outcome(was, now) == outcome


def test_only_what_was_not_proven_may_get_worse() -> None:
    assert not optima.holds(found((5, 5), (3, 3)), found((5, 4), (4, 3)), "worse")
    assert optima.holds(found((5, 5), (3, 2)), found((5, 5), (4, 2)), "worse")
    assert not optima.holds(found((5, 5), (3, 2)), found((6, 5), (3, 2)), "worse")
    assert not optima.holds(found((5, 5)), found((4, 4)), "wrong")
    rows = [(row | {"program": "a", "target": "b", "asked": "time"}) for row in (
        found((5, 5)), found((6, 6), cuts=1), found((5, 5)) | {"cpu": 2.0})]  # fmt: skip
    report = optima.report([(rows[0], rows[1]), (rows[2], rows[2])])
    assert (report["outcomes"]["worse"], report["outcomes"]["same"]) == (1, 1)
    assert report["broken"] == [["a", "b", "time"]]
    assert report["cpu"] == {"old": 2.0, "new": 2.0}
    was, now = rows[0] | {"stop": "optimal"}, rows[1] | {"stop": "cut"}
    assert optima.line(was, now, "worse").endswith("5, optimal -> 6, cut")


def test_the_table_has_each_cell_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = optima.read(optima.TABLE)
    assert set(table) == set(optima.cells())
    assert set(optima.SMALL) < set(table)
    optima.write(tmp_path / "again.json", table)
    assert (tmp_path / "again.json").read_text() == optima.TABLE.read_text()


@pytest.mark.parametrize("asked", ["time", optima.BUDGET])
def test_a_cell_is_searched_as_the_table_says(asked: str) -> None:
    cell = ("three_readers", "reference", asked)
    was = optima.read(optima.TABLE)[cell]
    now = optima.searched(cell, eqsat.read("three_readers"), was, OPTIONS)
    assert optima.outcome(was, now) == "same"
    assert optima.searched(cell, eqsat.read("three_readers"), {}, OPTIONS) | {"cpu": 0} == now | {
        "cpu": 0
    }


def test_a_search_that_breaks_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("c")

    monkeypatch.setattr(optima.eqsat, "optimize", broken)
    row = optima.searched(("a", "b", "time"), None, {}, OPTIONS)
    assert row["faults"] == ["KeyError: 'c'"]
    assert optima.outcome(found((1, 1)), row) == "faulty"


def test_random_programs_are_traced_whatever_their_shapes() -> None:
    shapes = set()
    for seed in range(40):
        spec = cores.drawn(seed)
        assert len(cores.source_of(spec).program.results) == len(spec["results"])
        shapes.add(spec["shape"])
    assert shapes == set(cores.SHAPES)


class Made:
    """A side that answers worse if a program has both a product and an exponential."""

    def __init__(self, worse: bool) -> None:
        self.worse, self.asked = worse, 0

    def ask(self, spec: Any, targets: list[str], goals: list[str]) -> list[dict[str, Any]]:
        self.asked += 1
        slow = self.worse and {"dot", "exp"} <= {op for op, *_ in spec["steps"]}
        row = {"program": "", "target": targets[0], "asked": goals[0]}
        return [row | found((6 if slow else 5, 5), cuts=1)]

    def end(self) -> None:
        pass


def test_a_difference_is_made_smaller_and_a_program_without_one_is_none() -> None:
    seed = next(
        s for s in range(99) if {"dot", "exp"} <= {op for op, *_ in cores.drawn(s)["steps"]}
    )
    best = cores.reproducer(Made(False), Made(True), seed, "reference", "time")
    assert best["outcome"] == "worse"
    assert best["program"].count("; v") == 2
    assert "dot(" in best["program"]
    assert "exp(" in best["program"]
    assert cores.reproducer(Made(False), Made(False), seed, "reference", "time") is None
