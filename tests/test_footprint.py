"""What a program takes in memory for each way in which its weights can come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eqsat
from eqsat.api.footprint import Footprints
from eqsat.cli import run
from eqsat.model.diag import EqsatError

TWO_LAYERS = """
program two_layers
input x: f32[16, 128]
weight w: f32[128, 256] key=w
weight v: f32[256, 64] key=v
return matmul(matmul(x, w), v)
"""
# products read packed operands, and nothing is packed inside of them
FORCED = (
    "tiles_forced=true", "tiles.matmul=[{mnk: [16, 16, 4], rate: 1}]",
    "fusion.join={elementwise: [], reduction: [], contraction: [], conversion: [conversion]}",
)  # fmt: skip
X, W, V = 16 * 128 * 4, 128 * 256 * 4, 256 * 64 * 4
Y = W + V
RESULT = 16 * 64 * 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("footprint") / "two_layers.eqs"
    file.write_text(TWO_LAYERS)
    return file


@pytest.fixture(scope="module")
def found(path: Path) -> Footprints:
    return eqsat.footprint(eqsat.read(str(path)), target="reference", settings=FORCED)


def bytes_of(found: Footprints, way: str) -> tuple[int, int]:
    ways = found.to_json()["ways"]
    return ways[way]["resident_bytes"], ways[way]["load_peak_bytes"]


def test_weights_take_what_follows_from_the_way_they_come(found: Footprints):
    assert found.weight_bytes == Y
    assert bytes_of(found, "plain") == (Y, Y)
    assert bytes_of(found, "ahead") == (Y, Y)
    # all originals are there, w first gets its copy, then goes
    assert bytes_of(found, "load") == (Y, max(Y + W, Y + V))
    assert bytes_of(found, "held") == (2 * Y, 2 * Y)
    assert bytes_of(found, "run") == (Y, Y)


def test_x_is_the_peak_without_data_tiling_and_every_peak_holds_what_stays(found: Footprints):
    told = found.to_json()
    inner = 16 * 256 * 4
    assert told["x_bytes"] == X + Y + RESULT + inner
    assert told["twice_y_bytes"] == 2 * Y
    assert told["x_and_twice_y_bytes"] == told["x_bytes"] + 2 * Y
    for way in told["ways"].values():
        assert way["peak_bytes"] >= way["resident_bytes"] + X + RESULT
        assert all(g["bound"] <= g["value"] for g in way["goals"].values())
    assert told["ways"]["held"]["peak_bytes"] - told["ways"]["ahead"]["peak_bytes"] == Y


def test_what_is_packed_ahead_takes_no_time_and_what_is_packed_in_a_run_does(found: Footprints):
    times = {way: row["time_us"] for way, row in found.to_json()["ways"].items()}
    assert times["ahead"] == times["load"] == times["held"] < times["run"]
    assert times["joint"] <= 1.01 * times["load"]


def test_the_joint_plan_loads_with_no_more_than_the_quickest_one(path: Path):
    goals = ("time:within=200%", "load_peak", "memory")
    found = eqsat.footprint(eqsat.read(str(path)), target="reference", settings=FORCED, goals=goals)
    assert bytes_of(found, "joint") == (Y, Y) != bytes_of(found, "load")
    times = {way: row["time_us"] for way, row in found.to_json()["ways"].items()}
    assert times["load"] < times["joint"] <= 3 * times["load"]


def test_the_table_has_a_line_for_each_way_and_what_is_proven(found: Footprints):
    head, _, columns, *rest = found.to_text().splitlines()
    assert head == ("two_layers on reference: X 220 KiB, Y 192 KiB, 2Y 384 KiB, X + 2Y 604 KiB")
    assert columns.split()[:2] == ["weights", "resident"]
    lines = {line.split("  ")[0]: line for line in rest}
    assert "384 KiB (2.00Y)" in lines["packed at load, originals held"]
    assert "320 KiB (1.67Y)" in lines["packed at load, then dropped"]
    assert all(
        "proven" in lines[w] for w in ("no data tiling", "packed in every run", "joint plan")
    )


def test_a_way_that_a_budget_excludes_has_no_program(path: Path):
    request = {"target": "reference", "settings": FORCED, "budget": {"memory": "240 KiB"}}
    found = eqsat.footprint(eqsat.read(str(path)), **request)
    told = found.to_json()["ways"]
    assert told["held"] is told["run"] is None
    assert told["ahead"]["peak_bytes"] <= 240 * 1024
    assert "–" in found.to_text() and "no program" in found.to_text()
    with pytest.raises(EqsatError, match="E410") as refused:
        eqsat.footprint(eqsat.read(str(path)), target="reference", budget={"load_peak": Y - 1})
    assert refused.value.exit_code == 3


def test_a_program_without_weights_is_refused(path: Path):
    bare = path.with_name("bare.eqs")
    bare.write_text("program bare\ninput x: f32[16, 16]\nreturn matmul(x, x)\n")
    with pytest.raises(EqsatError, match="`bare` has no weights") as refused:
        eqsat.footprint(eqsat.read(str(bare)), target="reference")
    (problem,) = refused.value.diagnostics
    assert problem.code == "E324" and "--weights" in problem.help


def test_the_command_prints_the_record_and_keeps_a_run_per_way(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "kept"
    settings = [word for s in FORCED for word in ("--set", s)]
    line = ["footprint", str(path), "--target", "reference", *settings, "-o", str(folder), "--json"]
    assert run(line) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "footprint.json").read_text())
    assert printed["ways"].keys() == {"plain", "ahead", "load", "held", "run", "joint"}
    held = eqsat.load(folder / "held")
    assert held.schedule is not None
    assert held.schedule.peak_bytes == printed["ways"]["held"]["peak_bytes"]
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    assert run([*line[:-2], str(occupied)]) == 2
    assert "E309" in capsys.readouterr().err
