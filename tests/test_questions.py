"""The claims of the fourteen questions (experiments/README.md), at sizes that take a second or two.

Each test takes the file of its question with fewer or smaller programs; nothing is timed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import eqsat
from eqsat.lab.drawing import svg_of
from eqsat.lang.experimentformat import cell_key
from eqsat.lang.experiments import Cell, load_experiment

QUESTIONS = (
    "transposed-pack", "global-packing", "interchange", "scratch-limits", "encodings",
    "skinny-to-square", "greedy", "leave-one-out", "predicted-measured", "depth", "sharding",
    "census", "footprint", "levels",
)  # fmt: skip
ROOT = Path(__file__).parent.parent


def rows_of(
    name: str, wanted: Callable[[Cell], bool], programs: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """The rows of a question that are wanted, of smaller programs, searched and drawn."""
    plan = load_experiment(name)
    smaller = programs or {}
    cells = [replace(c, program=smaller.get(c.program, c.program)) for c in plan.cells if wanted(c)]
    experiment = eqsat.Experiment(replace(plan, cells=tuple(cells), runs=0, verify=False))
    results = experiment.run()
    assert results.problems() == ()
    figure = plan.figure
    if figure is not None and "measured" not in (figure.x, *figure.y):
        where = figure.where
        if not where or any(all(cell_key(c, k) == v for k, v in where) for c in cells):
            assert svg_of(figure, results.outcomes).startswith("<svg")
    return results.rows()


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_has_its_file_table_figure_and_paragraph(name: str):
    page = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert f"({name}.yaml)" in page
    assert f"(figures/{name}.svg)" in page
    assert (ROOT / "experiments" / "figures" / f"{name}.svg").read_text().startswith("<svg")
    assert load_experiment(name).figure is not None
    assert re.search(rf"\$ eqsat experiment {name}\s", page)  # what `make questions` runs


@pytest.mark.slow  # test_policies asks so of every row
def test_a_no_fixed_policy_treats_a_transpose_right_for_all_its_readers():
    rows = rows_of("transposed-pack", lambda c: c.program == "three_readers")
    best = {r["program"]: r["time_us"] for r in rows if r["rules"] == ["default"]}
    shares: dict[str, list[float]] = {}
    for r in rows:
        shares.setdefault(r["rules"][0], []).append(r["time_us"] / best[r["program"]])
    assert min(s for share in shares.values() for s in share) == 1.0
    for policy, share in shares.items():
        assert policy == "default" or max(share) > 1.0, policy


@pytest.mark.slow  # 4 s
def test_b_joint_packing_converts_less_than_local_and_is_no_worse_than_propagation():
    local, everywhere, joint = rows_of("global-packing", lambda c: c.program == "mlp.py:mlp_784")
    assert joint["time_us"] < local["time_us"]
    assert joint["time_us"] <= everywhere["time_us"]
    assert joint["relayout_bytes"] <= everywhere["relayout_bytes"] <= local["relayout_bytes"]
    assert joint["relayout_bytes"] < local["relayout_bytes"]


def test_c_interchange_saves_a_dispatch_where_loops_have_one_order():
    small = {"minilm.py:minilm": "permuted_consumer.mlir"}
    names = ("one-order", "one-order-without-interchange")
    found = rows_of("interchange", lambda c: c.name in names, small)
    with_it, without = found
    assert with_it["dispatches"] < without["dispatches"]


@pytest.mark.slow  # 2 s
def test_d_less_scratch_is_never_quicker_and_no_program_is_told():
    def few(c: Cell) -> bool:
        return c.target == "sm_90" and dict(c.varied)["limits.scratch"] in ("8 KiB", "64 KiB")

    little, enough = rows_of("scratch-limits", few)
    assert little["status"] == "no program"
    assert "the scratch limit is 8,192" in little["message"]
    assert enough["status"] == "found"


@pytest.mark.slow  # encodings have test_encodings
def test_e_encodings_become_packs_or_nothing_and_packing_pays_on_the_far_side():
    rows = {r["name"]: r for r in rows_of("encodings", lambda c: True)}
    conversions = {
        name: sum(r[k] for k in ("packs", "unpacks", "fused_conversions"))
        for name, r in rows.items()
    }
    for name in ("untiled", "phone", "core-untiled", "core-and-far-untiled"):
        assert conversions[name] == 0, name
    for tiled, plain in (("tiled", "untiled"), ("core-and-far", "core-and-far-untiled")):
        assert conversions[tiled] > 0
        assert rows[tiled]["time_us"] < rows[plain]["time_us"]


@pytest.mark.slow  # packing ahead has test_ahead
def test_f_packing_per_run_pays_for_many_rows_only_and_packing_ahead_for_few_too():
    def few(c: Cell) -> bool:
        return dict(c.varied)["sizes.m"] in ("8", "512")

    found: dict[tuple[str, str, str], float] = {}
    for r in rows_of("skinny-to-square", few):
        v = r["varied"]
        found[v["weights"], v["rules"], v["sizes.m"]] = r["time_us"]
    never, always, chosen = "policy/never-pack", "policy/keep", "default"
    assert found["argument", always, "8"] > found["argument", never, "8"]
    assert found["argument", always, "512"] < found["argument", never, "512"]
    assert found["weight", always, "8"] < found["weight", never, "8"]
    for (weights, rules, m), time in found.items():
        assert found[weights, chosen, m] <= time, rules


@pytest.mark.slow  # greedy answers have test_cheapest
def test_g_greedy_extraction_is_worse_somewhere_and_proves_nothing():
    programs = ("residual", "three_readers")
    rows = rows_of("greedy", lambda c: c.program in programs and dict(c.varied)["set"] == "free")
    times = {(r["program"], r["extractor"]): r["time_us"] for r in rows}
    shares = [times[program, "greedy"] / times[program, "cpsat"] for program in programs]
    assert min(shares) >= 1
    assert max(shares) > 1
    assert {r["claim"] for r in rows if r["extractor"] == "greedy"} == {"greedy"}


@pytest.mark.slow  # 2 s
def test_h_few_rules_are_needed_and_those_are_found():
    names = ("–", "interchange-reader", "transpose-into-operand", "pack-contraction", "im2col")

    def few(c: Cell) -> bool:
        return c.program == "permuted_consumer" and dict(c.varied)["without"] in names

    rows = {r["varied"]["without"]: r for r in rows_of("leave-one-out", few)}
    assert rows["–"]["status"] == "found"
    assert rows["pack-contraction"]["status"] == "no program"  # its tile is forced
    assert all(
        r["time_us"] >= rows["–"]["time_us"] for r in rows.values() if r["status"] == "found"
    )


def test_i_prices_order_programs_and_are_those_of_their_dispatches():
    rows = rows_of(
        "predicted-measured",
        lambda c: c.program == "three_readers" and dict(c.varied)["set"] == "apart",
    )
    assert len({r["time_us"] for r in rows}) > 1
    assert all(r["claim"] == "optimal" for r in rows)


@pytest.mark.slow  # 2 s; test_algebra counts nodes per layer
def test_j_the_e_graph_of_a_deeper_model_grows_no_faster_than_the_model():
    cells = load_experiment("depth").cells[:2]
    one, two = (
        eqsat.optimize(c.from_folder(f"programs/{c.program}"), target=c.target, stop_after="egraph")
        for c in cells
    )
    assert len(one.egraph.nodes) < len(two.egraph.nodes) <= 2.1 * len(one.egraph.nodes)


@pytest.mark.slow  # a question of the page; test_mesh and test_shard decide with every commit
def test_k_no_policy_of_sharding_is_best_for_few_tokens_and_for_many():
    found = rows_of("sharding", lambda c: c.program in ("sharded.py:mlp", "sharded.py:mlp_many"))
    time = {(r["program"], r["rules"][0]): r["mesh"]["time_us"] for r in found}
    held = {(r["program"], r["rules"][0]): r["mesh"]["peak_bytes"] for r in found}
    for program, best in (("mlp", "policy/megatron"), ("mlp_many", "policy/data-parallel")):
        of = {rules: t for (name, rules), t in time.items() if name == f"sharded.py:{program}"}
        assert of["default"] == min(of.values()) == of[best]
        assert of["policy/megatron"] != of["policy/data-parallel"]
        least = min(held[f"sharded.py:{program}", rules] for rules in of)
        assert held[f"sharded.py:{program}", "policy/fsdp"] == least


@pytest.mark.slow  # test_sharedmoves counts, and test_policies asks so of every remedy
def test_l_the_joint_choice_is_never_slower_than_a_remedy_for_all_places():
    rows = rows_of("census", lambda c: c.program == "sites.py:swin_3")
    assert {r["shared_moves"] for r in rows if r["status"] == "found"} == {1}
    time = {(r["varied"]["set"], r["rules"][0]): r.get("time_us") for r in rows}
    for (machine, _), t in time.items():
        assert t is None or time[machine, "default"] <= t
    assert time["forced", "policy/never-pack"] is None
    # packing pays in two of the 36 places alone
    assert time["fused", "policy/keep"] < time["fused", "policy/never-pack"]


@pytest.mark.slow  # test_footprint holds every way against sizes worked out by hand
def test_m_packed_weights_beside_their_originals_take_twice_y_and_no_way_takes_x_and_twice_y():
    rows = rows_of("footprint", lambda c: c.program == "tied_table")
    way = {r["name"].removeprefix("tied "): r for r in rows}
    x, y = way["plain"]["peak_bytes"], way["plain"]["resident_bytes"]
    assert y == 512 * 128 * 4
    kept = {w: r["resident_bytes"] for w, r in way.items()}
    # gathered as it is, multiplied packed
    assert kept["ahead"] == kept["load"] == kept["held"] == 2 * y > kept["run"] == y
    assert way["load"]["time_us"] < way["run"]["time_us"] < way["plain"]["time_us"]
    assert way["joint"]["time_us"] <= 1.01 * way["load"]["time_us"]
    for r in way.values():
        assert r["claim"] == "optimal"
        assert max(r["load_peak_bytes"], r["peak_bytes"]) < x + 2 * y


def test_n_panels_inside_of_blocks_pay_for_eight_rows_and_accesses_for_what_reads_across():
    names = ("eight/panels", "eight/levels", "largest_sum/as-written", "largest_sum/accesses")
    rows = {r["name"]: r for r in rows_of("levels", lambda c: c.name in names)}
    time = {name: r["time_us"] for name, r in rows.items()}
    assert time["eight/levels"] < time["eight/panels"]
    assert 3 * time["largest_sum/accesses"] < time["largest_sum/as-written"]
    assert all(r["claim"] == "optimal" for r in rows.values())
