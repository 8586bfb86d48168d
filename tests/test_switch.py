"""A program for every size: ranges by brute force, proofs at both sides, one function, errors."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.api.again import bind, search_at
from eqsat.cli import run as command
from eqsat.model.diag import EqsatError
from eqsat.model.sizeswitch import SizeSwitch, chosen_programs, read_sizes
from eqsat.model.symbols import Symbol

# a pack of b costs as much at every size of m, and what it saves grows with m
TEXT = """program skinny
symbol m size=8
input x: f32[m, 64]
input b: f32[64, 512]
y = matmul(x, b)
return y
"""
TARGET, SIZES = "avx2", "m=1..512"


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("switch") / "skinny.eqs"
    file.write_text(TEXT, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def found() -> eqsat.Switch:
    """Over sizes among which packing begins to pay."""
    return eqsat.switch("skinny.eqs", "m=120..312:8", target=TARGET, searches=12)


# ---- which program runs where --------------------------------------------------------------------
def brute_force(prices: list[list[tuple[int, ...]]], within: float) -> tuple[int, float]:
    """The fewest changes, and the least that is lost with so many."""
    best = (len(prices), float("inf"))
    for chosen in itertools.product(range(len(prices[0])), repeat=len(prices)):
        lost = 0.0
        for row, p in zip(prices, chosen, strict=True):
            least = min(v for v in row if v)
            is_good = row[p] and (
                row[p][0] <= least[0] * (1 + within) if within else row[p] == least
            )
            lost += row[p][0] / least[0] if is_good else float("inf")
        changes = sum(a != b for a, b in itertools.pairwise(chosen))
        best = min(best, (changes, lost)) if lost < float("inf") else best
    return best


@pytest.mark.parametrize("seed", range(40))
def test_programs_change_as_seldom_as_they_can(seed: int):
    rng = random.Random(seed)
    within = rng.choice((0.0, 0.3))
    prices = [
        [(rng.randint(8, 12),) if rng.random() < 0.9 else () for _ in range(3)] for _ in range(6)
    ]
    prices = [row if any(row) else [(9,), (), ()] for row in prices]
    chosen = chosen_programs(prices, within)
    changes = sum(a != b for a, b in itertools.pairwise(chosen))
    lost = sum(
        row[p][0] / min(v for v in row if v)[0] for row, p in zip(prices, chosen, strict=True)
    )
    expected = brute_force(prices, within)
    assert (changes, pytest.approx(lost)) == expected


def test_the_program_changes_once_and_both_sides_are_proven(found: eqsat.Switch):
    table = found.table
    assert (table.ranges[0].first, table.ranges[-1].last) == (120, 312)
    assert len(table.ranges) == len(found.programs) == 2
    assert len(table.searches) <= 12
    (change,) = table.break_evens()
    before, after = change.values
    assert change.sizes[1] == change.sizes[0] + 8
    assert change.proven == (True, True)
    assert before[0] <= before[1]
    assert after[1] <= after[0]
    packs = [run.schedule.counts()["packs"] for run in found.programs]
    assert packs == [0, 1]


def test_what_runs_is_as_good_as_a_search_of_its_size(found: eqsat.Switch):
    for size in (128, 304):
        alone = eqsat.optimize(eqsat.read("skinny.eqs", {"m": size}), target=TARGET)
        assert found.at(size).schedule.time_ps <= 1.01 * alone.schedule.time_ps


def test_a_budget_ends_a_range():
    asked = {"target": TARGET, "budget": {"memory": 11_114_905}, "searches": 6}
    found = eqsat.switch("skinny.eqs", "m=200..400:20", within=0.0, **asked)
    assert [(r.first, r.last) for r in found.table.ranges] == [(200, 320), (340, 400)]
    assert [run.schedule.counts()["packs"] for run in found.programs] == [1, 0]
    (change,) = found.table.break_evens()
    assert change.values[1][0] == ()
    assert change.proven == (True, True)
    assert "not legal" in found.to_text()


def test_prices_are_those_of_the_program_at_the_size(found: eqsat.Switch):
    for size, row in found.table.prices[::7]:
        for run, values in zip(found.programs, row, strict=True):
            there = bind(run, {"m": size}).selection
            assert values == tuple(there.goal(g).value for g in found.table.goals)


def test_a_search_at_another_size_keeps_the_e_graph(found: eqsat.Switch):
    again = search_at(found.programs[0], {"m": 77})
    assert again.family.egraph == found.programs[0].family.egraph
    assert again.program.nodes[again.program.inputs[0]].type.shape == (77, 1024)
    assert again.selection.stop == "optimal"


def test_tiles_of_every_size_are_candidates_at_each(spec: str):
    wide, slim = (
        "{mnk: [4, 16, 1], rate: 1, when: [m >= 8]}",
        "{mnk: [1, 8, 1], rate: 1, when: [m < 8]}",
    )
    request = {"target": "reference", "settings": [f"tiles.matmul=[{wide}, {slim}]"]}

    def tiles(run: eqsat.Run) -> set[tuple[int, ...]]:
        return {n.attr.tiles for n in run.family.egraph.nodes if n.op == "pack"}

    alone = [tiles(eqsat.optimize(eqsat.read(spec, {"m": m}), **request)) for m in (1, 64)]
    together = tiles(eqsat.switch(spec, "m=1..64", searches=4, **request).programs[0])
    assert alone[0] - alone[1]
    assert alone[1] - alone[0]
    assert together >= alone[0] | alone[1]


# ---- called, saved, printed ----------------------------------------------------------------------
def test_one_function_picks_by_size(found: eqsat.Switch, tmp_path: Path):
    loaded = eqsat.load(found.save(tmp_path / "kept"))
    assert loaded.table == found.table
    rng = np.random.default_rng(0)
    b = rng.standard_normal((1024, 1024), np.float32)
    for m in (120, 312):
        x = rng.standard_normal((m, 1024), np.float32)
        (y,) = loaded(x, b)
        np.testing.assert_allclose(y, x @ b, rtol=2e-3, atol=2e-3)
    assert [loaded.bound[m].schedule.counts()["packs"] for m in (120, 312)] == [0, 1]
    with pytest.raises(EqsatError, match=r"E386.*`m` = 313 is not one of the sizes 120\.\.312"):
        loaded(rng.standard_normal((313, 1024), np.float32), b)
    with pytest.raises(EqsatError, match=r"E503.*input 0 has no dim 0"):
        loaded()


def test_weights_are_packed_once_for_all_sizes_of_a_program(tmp_path: Path):
    file = tmp_path / "w.eqs"
    file.write_text(TEXT.replace("input b", "weight b"), encoding="utf-8")
    found = eqsat.switch(str(file), "m=8..16:8", target=TARGET, searches=2)
    b = np.ones((64, 512), np.float32)
    found.use_weights({"b": b})
    for m in (8, 16):
        (y,) = found(np.ones((m, 64), np.float32))
        np.testing.assert_allclose(y, np.full((m, 512), 64.0))
    first, second = (found.bound[m].executable.packed for m in (8, 16))
    assert all(any(a is w for w in first.values()) for a in second.values())


def test_on_the_command_line(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kept = tmp_path / "kept"
    args = ["switch", spec, "--sizes", "m=64..256:64", "--target", TARGET, "--searches", "4"]
    assert command([*args, "-o", str(kept), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert SizeSwitch.from_json(told) == eqsat.load(kept).table
    assert told["sizes"] == [64, 256, 64]
    assert command(args) == 0
    assert "m = 64..256" in capsys.readouterr().out
    assert command(["run", str(kept), "--size", "m=128", "--samples", "1"]) == 0
    assert "m = 128" in capsys.readouterr().out
    out = tmp_path / "a.mlir"
    assert command(["export", str(kept), "--to", "mlir", "--size", "m=128", "-o", str(out)]) == 0
    assert "tensor<128x64xf32>" in out.read_text(encoding="utf-8")
    capsys.readouterr()
    assert command(["explain", str(kept)]) == 2
    assert f"`{kept}/program-1`" in capsys.readouterr().err


# ---- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sizes", "code", "words"),
    [
        ("m", "E429", "`m` is no range of sizes"),
        ("m=9..1", "E429", "`m=9..1` holds no size"),
        ("m=17..31:16", "E429", "holds no size that is a multiple of 16"),
        ("m=1..8:0", "E429", "holds no size"),
        ("m=1..9999999999999", "E429", "ends above"),
        ("k=1..8", "E385", "the program has no symbol `k`"),
    ],
)
def test_bad_sizes_are_told(spec: str, sizes: str, code: str, words: str):
    with pytest.raises(EqsatError, match=f"{code}.*{words}"):
        eqsat.switch(spec, sizes, target=TARGET)


def test_multiples_are_those_of_the_symbol_too(tmp_path: Path):
    assert read_sizes("m=3..9:3") == ("m", range(3, 10, 3))
    file = tmp_path / "sixes.eqs"
    file.write_text(TEXT.replace("symbol m", "symbol m divisor=4"), encoding="utf-8")
    few = eqsat.switch(str(file), "m=1..30:6", target=TARGET, searches=2)
    assert few.table.sizes == (12, 24, 12)


def test_a_size_that_no_program_takes_is_named(spec: str):
    with pytest.raises(EqsatError, match=r"E410.*at m = 512: no choice is admissible") as raised:
        eqsat.switch(spec, SIZES, target=TARGET, searches=4, budget={"memory": "1 MiB"})
    assert raised.value.exit_code == 3


def test_requests_that_make_no_sense(spec: str):
    with pytest.raises(EqsatError, match=r"E404"):
        eqsat.switch(spec, SIZES, target=TARGET, goals=("time:1", "memory:1"))
    with pytest.raises(EqsatError, match=r"E400.*`searches` is 1"):
        eqsat.switch(spec, SIZES, target=TARGET, searches=1)


def test_symbols_keep_the_sizes_they_are_judged_at():
    symbol = Symbol("m", 1, 8, (1, 64))
    assert symbol.to_json() == ["m", 1, 8, [1, 64]]
    assert Symbol("m", 1, 8).to_json() == ["m", 1, 8]
