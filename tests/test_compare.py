"""Two runs side by side: rows, figures with their differences, and the change that flips a row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from foldings import SETTINGS, folding_and_best

import eqsat
from eqsat.api.again import single_changes
from eqsat.report.compare.comparison import target_differences
from eqsat.report.compare.rows import AlignedRow, aligned, works_of


@pytest.fixture(scope="module")
def runs():
    return folding_and_best()


def figures(found):
    return {name: (a, b) for name, a, b in found.facts}


def test_it_finds_the_fold_and_its_rule(runs):
    found = eqsat.compare(*runs)
    assert figures(found)["dispatches"] == (4, 3)
    assert figures(found)["bytes_moved"] == tuple(r.schedule.bytes_moved for r in runs)
    assert found.same_input
    assert ("rules", "policy/always-fold", "default") in found.settings
    rules = {rule for row in found.differences for rule, _ in row.rules[0]}
    assert "always-fold-transpose" in rules


def test_every_dispatch_of_both_stands_in_one_row(runs):
    found = eqsat.compare(*runs)
    for side, r in zip("ab", runs, strict=True):
        works = [getattr(row, side) for row in found.rows if getattr(row, side)]
        assert sorted(w.number for w in works) == list(range(len(r.schedule.dispatches)))
    assert sum(row.time_ps for row in found.rows) == (
        runs[1].schedule.time_ps - runs[0].schedule.time_ps
    )


def test_the_other_way_round_is_the_same_with_other_signs(runs):
    one, other = eqsat.compare(*runs), eqsat.compare(*reversed(runs))
    assert [(k, b, a) for k, a, b in one.facts] == list(other.facts)
    assert one.same == other.same
    assert sorted((r.key, -r.time_ps, -r.nbytes) for r in one.rows) == sorted(
        (r.key, r.time_ps, r.nbytes) for r in other.rows
    )


def test_equal_runs_differ_in_nothing(runs):
    found = eqsat.compare(runs[0], runs[0], flip=True)
    assert not found.differences
    assert found.same == 4
    assert found.flips == ()
    assert "same work" in found.to_text()


def test_text_says_by_how_much(runs):
    text = eqsat.compare(*runs, names=("fold", "best")).to_text()
    a, b = (r.schedule.time_ps for r in runs)
    assert f"({(b - a) / a:+.1%})" in text
    assert "differs" not in text
    assert "no dispatch of its own: computed inside of" in text


def test_layouts_are_told_by_value(runs):
    free = eqsat.optimize(eqsat.read("transposed_pack"), target="reference")
    changes = [c for row in eqsat.compare(runs[1], free).rows for c in row.changes_text]
    assert any(c.startswith("reads ") and c.endswith("→ row-major") for c in changes)
    assert any(c.startswith("contraction 16x16x16 → contraction") for c in changes)


def test_one_change_flips_a_row(runs):
    found = eqsat.compare(*runs, names=("fold", "best"), flip=True, time_limit=20)
    by_text = {f.change: f for f in found.flips}
    assert by_text["rules default"].is_all
    without = by_text["without rule always-fold-transpose"]
    assert without.value is not None
    best = found.flips and max(found.flips, key=lambda f: (f.is_all, len(f.rows)))
    assert all(found.flipped_by(row) == best.change for row in found.differences)
    assert "one change of fold alone" in found.to_text()


def test_a_budget_and_a_key_of_the_target_flip_as_well():
    program = eqsat.read("two_packs")
    free = eqsat.optimize(program, target="reference")
    key = eqsat.optimize(program, target="reference", settings=["fusion.members=1"])
    assert [k for k, _, _ in target_differences(key.target, free.target)] == ["fusion.members"]
    (flip,) = eqsat.compare(key, free, flip=True).flips
    assert flip.change.startswith("fusion.members: ")
    assert flip.is_all
    most = {"dispatches": len(key.schedule.dispatches)}
    bound = eqsat.optimize(program, target="reference", budget=most)
    (change,) = single_changes(bound, free)
    assert (change.text, change.target.budget) == ("budget without dispatches", ())
    (change,) = single_changes(free, bound)
    assert change.target.budget == (("dispatches", most["dispatches"]),)


def test_nothing_admissible_is_an_answer(runs):
    narrow = eqsat.optimize(
        eqsat.read("transposed_pack"), target="reference", settings=SETTINGS,
        budget={"dispatches": 3},
    )  # fmt: skip
    found = eqsat.compare(runs[0], narrow, names=("fold", "narrow"), flip=True)
    by_text = {f.change: f for f in found.flips}
    assert by_text["budget dispatches: 3"].value is None
    assert "budget dispatches: 3: nothing is admissible" in found.to_text()


def test_different_inputs_are_matched_by_what_they_compute(runs):
    other = eqsat.optimize(eqsat.read("two_packs"), target="reference")
    found = eqsat.compare(runs[1], other, flip=True)
    assert not found.same_input
    assert found.flips == ()
    assert "the inputs differ" in found.to_text()
    assert ("program", "transposed_pack", "two_packs") in found.settings


def test_json_has_both_sides_of_every_row(runs):
    data = json.loads(json.dumps(eqsat.compare(*runs, flip=True).to_json()))
    assert len(data["rows"]) >= max(len(r.schedule.dispatches) for r in runs)
    for row in data["rows"]:
        both = [row[s]["time_ps"] if row[s] else 0 for s in "ab"]
        assert row["time_ps"] == both[1] - both[0]
        assert row["same"] or row["flip"]


def test_rows_are_in_the_order_of_both_sides(runs):
    a, b = map(works_of, runs)
    rows = aligned(a, b, True)
    assert [r.b.number for r in rows if r.b] == [w.number for w in b]
    alone = [r.a.number for r in rows if r.a and not r.b]
    assert alone == sorted(alone)


def test_a_value_that_is_computed_twice_faces_itself_twice(runs):
    (work, *_) = works_of(runs[1])
    again = replace(work, number=1)
    rows = aligned([work, again], [work, again], True)
    assert rows == (AlignedRow(work, work), AlignedRow(again, again))
