"""What an experiment says below its rows: factors, the best of each line, the clock, the width."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import eqsat
from eqsat.lab import onclock
from eqsat.lab.effects import busy_line, comparable_lines, effects, goal_value
from eqsat.lab.onclock import Rounds, measure_groups
from eqsat.lab.store.query import ask
from eqsat.lab.store.store import Measurement
from eqsat.lang.experiments import read_experiment

GRID = """experiment: grid
doc: Does folding pay, and does a name matter?
programs: [transposed_pack]
targets: reference
set:
  - "tiles.matmul=[{mnk: [16, 16, 16], rate: 1.0}]"
  - tiles_forced=true
  - "fusion.join={elementwise: [elementwise, reduction, conversion, move],
    conversion: [elementwise, reduction, conversion, move]}"
  - fusion.multi_result=true
  - fusion.siblings=true
  - limits.vector=8 KiB
vary:
  rules: [default, policy/always-fold]
  seed: [0, 1]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("grid")


@pytest.fixture(scope="module")
def results(folder):
    return eqsat.Experiment(read_experiment(GRID)).run(folder)


def test_an_effect_is_the_mean_over_rows_that_differ_in_it_alone(results):
    values = {
        (o.cell.program, o.cell.rules[0], o.cell.seed): o.first_goal for o in results.outcomes
    }
    logs = [
        math.log(fold / min(fold, values[program, "default", seed]))
        for (program, rules, seed), fold in values.items()
        if rules == "policy/always-fold"
    ]
    found = effects(results.outcomes, goal_value)
    assert dict(found["rules"])["policy/always-fold"] == pytest.approx(math.exp(sum(logs) / 2))
    assert found["rules"][0] == ("default", 1.0)
    text = results.to_text()
    assert "  seed   no effect (2 values)" in text
    best = next(x for x in text.splitlines() if x.startswith("transposed_pack") and "rules=" in x)
    assert best.endswith("rules=default")  # for any seed
    assert len(comparable_lines(results.outcomes)) == 1


def test_the_table_fits_its_width_and_says_what_is_equal_once(results):
    text = results.to_text(32)
    table, _, rest = text.partition("all rows: ")
    assert max(map(len, table.splitlines())) <= 32
    assert rest.startswith("program transposed_pack, target reference, first goal time")
    assert "left out for want of width" in rest
    assert "…" in table
    assert "@reference" not in text


def test_factors_are_columns(results, folder):
    sql = "SELECT rules, seed, count(*), min(time_us) FROM results GROUP BY rules, seed"
    columns, rows = ask(folder, sql)
    assert columns[:2] == ("rules", "seed")
    assert [(r[0], r[1], r[2]) for r in rows] == [
        (rules, seed, 1) for rules in ("default", "policy/always-fold") for seed in (0, 1)
    ]
    with eqsat.lab.store.store.RunStore(folder) as store:
        asked = {"program": "p", "varied": {"limits.scratch": "16 KiB", 'a"b': "c"}}
        store.put_row(("other", "", ""), "row", 0, results.outcomes[0].record.run, asked, [])
    _, rows = ask(folder, """SELECT "limits.scratch", "a""b" FROM results WHERE row = 'row'""")
    assert rows == [("16 KiB", "c")]


def test_three_processes_give_the_median_of_their_medians(results, monkeypatch):
    def answer(folders, rounds, seed):
        assert rounds.of_each == 2
        return {
            "calls": 7,
            "samples": {k: [[10.0 * seed + 1, 1], [10.0 * seed + 3, 3]] for k in folders},
        }

    monkeypatch.setattr(onclock, "_in_child", answer)
    (row,) = measure_groups(results.outcomes[:1], Rounds(6, 1, 3), None)
    m = row.measured
    assert (m.calls, m.median_us, m.low_us, m.high_us, m.cpu_us) == (7, 12.0, 2.0, 22.0, 2)
    assert len(m.samples) == 6


def test_a_busy_machine_is_told(results):
    def timed(wall, cpu):
        summary = results.outcomes[0].record.summary | {"executor": {"name": "kernels"}}
        record = replace(results.outcomes[0].record, summary=summary)
        measured = Measurement(1, wall, wall, wall, cpu, ((wall, cpu),))
        return replace(results.outcomes[0], record=record, measured=measured)

    assert busy_line([timed(100.0, 99.0)]) == ""
    assert "3.0 times their CPU time" in busy_line([timed(100.0, 99.0), timed(300.0, 100.0)])


@pytest.mark.slow
def test_a_process_of_its_own_measures_a_saved_run(results):
    (row,) = measure_groups(results.outcomes[:1], Rounds(2, 1, 2), None)
    assert len(row.measured.samples) == 2
    assert row.measured.low_us <= row.measured.median_us <= row.measured.high_us
