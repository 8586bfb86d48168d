"""`proven` and `optimal` are never printed beside figures that were not measured here, unsaid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import eqsat
from eqsat.api.judge import foreign_run, judge
from eqsat.api.whatif import without_rules
from eqsat.lab.drawing import pivot_text
from eqsat.lab.resultpage import results_page
from eqsat.lab.results import CellResult, Results
from eqsat.lab.store.record import record_of
from eqsat.lang.experiments import Cell
from eqsat.lang.owntarget import measured_on
from eqsat.lang.requests import override
from eqsat.lang.targets import read_target
from eqsat.model.selection import GoalRequest
from eqsat.model.target import Target
from eqsat.report.finished import ELSEWHERE, by_figures, is_measured_here
from eqsat.report.mesh import front_table, mesh_claim
from eqsat.report.page.runpage import page
from eqsat.report.text import summary_text

ROOT = Path(eqsat.__file__).parent
TEXT = """target: host
doc: d
executor: xla
data_tiling: true
memory:
  - {name: ram, size: 1 GiB, bandwidth: 2 GB/s}
launch: 1 us
rates: {f32: 1 GFLOP/s}
source: measured
"""
PROOF = re.compile(r"\b(proven|optimal)\b")
TIME = (GoalRequest("time"),)


def calibrated() -> Target:
    """A target as `eqsat calibrate` would write it on this machine."""
    lines = "\n".join(measured_on({"eqsat": "0.1.0"}))
    return read_target(f"{TEXT}{lines}\n", "host.yaml")


def texts(target: Target | str) -> Iterator[str]:
    """What is printed of a proven run in each place that says so."""
    run = eqsat.optimize("transposed_pack", target=target)
    assert run.selection is not None and run.selection.claim == "optimal"
    yield from (repr(run), summary_text(run), run.explain().title, page(run).split("<script")[0])
    yield without_rules(run, ["fold-transpose-into-pack"]).to_text()
    yield judge(run, foreign_run(run, "own")).to_text()
    yield eqsat.pareto("transposed_pack", target=target).to_text()
    cell = Cell("a", "transposed_pack", run.target.name)
    outcome = CellResult(cell, record_of("", run, ()), held=run)
    results = Results("x", "", (outcome,))
    yield from (results.to_text(), results_page(results, {}))
    yield pivot_text((outcome,), "program", "target").replace("not proven to be the best", "")


def test_a_proof_by_figures_of_no_machine_here_says_so_wherever_it_is_printed() -> None:
    found = list(texts("reference"))
    assert all(ELSEWHERE in text for text in found if PROOF.search(text))
    assert sum(bool(PROOF.search(text)) for text in found) >= 9


def test_a_proof_by_figures_that_were_measured_here_needs_no_word() -> None:
    found = list(texts(calibrated()))
    assert not any(ELSEWHERE in text for text in found)
    assert sum(bool(PROOF.search(text)) for text in found) >= 8


def test_a_plan_for_a_mesh_says_so() -> None:
    program = "input x: f32[64, 128]\nweight w: f32[128, 256]\ny = matmul(x, w)\nreturn y\n"
    from eqsat.lang.programs import parse_program

    run = eqsat.optimize(
        parse_program(program, "t.eqs"), target="tpu-v5e-4x2", rules=("spread",), time_limit=20
    )
    assert run.mesh_plan is not None and run.mesh_plan.stop == "proven"
    by = by_figures(run.target, run.goals)
    told = summary_text(run), mesh_claim(run.mesh_plan, by), front_table([run.mesh_plan], by)
    assert all(f"proven {ELSEWHERE}" in text for text in told)


def test_figures_are_measured_here_only_as_they_were_measured() -> None:
    target = calibrated()
    assert is_measured_here(target)
    assert is_measured_here(override(target, ["limits.vector=8 KiB"]))
    assert not is_measured_here(override(target, ["launch=2 us"]))
    assert not is_measured_here(override(target, ["rates.f32=2 GFLOP/s"]))
    assert target.measured_on is not None
    elsewhere = replace(target.measured_on, processor="another")
    assert not is_measured_here(replace(target, measured_on=elsewhere))
    assert not is_measured_here(replace(target, measured_on=None))
    both = replace(target, devices=(("a", target), ("b", eqsat.target("reference"))))
    assert not is_measured_here(both)


def test_a_target_that_extends_a_measured_one_has_its_own_figures(tmp_path: Path) -> None:
    host = tmp_path / "host.yaml"
    host.write_text(f"{TEXT}{chr(10).join(measured_on({'eqsat': '0.1.0'}))}\n", encoding="utf-8")
    other = tmp_path / "other.yaml"
    other.write_text(f"target: other\nextends: {host}\ndoc: d\nlaunch: 1 ns\n", encoding="utf-8")
    assert is_measured_here(eqsat.target(str(host)))
    assert not is_measured_here(eqsat.target(str(other)))


def test_bytes_are_proven_whatever_was_measured() -> None:
    target = eqsat.target("reference")
    assert by_figures(target, (GoalRequest("memory"), GoalRequest("dispatches"))) == ""
    assert by_figures(target, TIME) == f" {ELSEWHERE}"


# where the words are written, beside `report/finished.py`: each says itself whose figures, or is
# about bytes, rules or e-graphs without a target
WRITTEN = {
    "report/explain.py", "report/mesh.py", "report/pareto.py", "report/finished.py",
    "report/text.py", "lab/drawing.py", "lab/effects.py", "lab/resultpage.py", "lab/results.py",
    "lab/rowtable.py", "api/whatif.py", "api/judge.py", "api/permutes.py",
    "report/footprint.py", "report/switch.py", "cli/alone.py",
    "cli/experiment.py", "run/bodies.py",
}  # fmt: skip


def test_no_other_module_writes_these_words() -> None:
    files = [p for part in ("report", "api", "lab", "run", "cli")
             for p in (ROOT / part).rglob("*.py")]  # fmt: skip
    found = {str(p.relative_to(ROOT)) for p in files if _writes(p)}
    assert found == WRITTEN


def _writes(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in told
        and re.search(r"\b(proven|optimal|best of)\b", n.value)
        for n in ast.walk(tree)
    )  # fmt: skip


@pytest.mark.parametrize("cuts", [False, True])
def test_the_page_calls_no_figure_proven_of_which_candidates_were_left_out(cuts: bool) -> None:
    from eqsat.model.selection import CAP, Cut

    run = eqsat.optimize("transposed_pack", target="reference")
    assert run.selection is not None
    if cuts:
        left = (Cut("groups", 5, CAP),)
        run = replace(run, selection=replace(run.selection, stop="cut", cuts=left))
    text = page(run).split("<script")[0]
    head = text.partition("What is known of it")[2].partition("<h2")[0]
    assert ("proven" in head) is not cuts
    assert ("5 places cut" in head) is cuts
