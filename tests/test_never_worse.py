"""A sample of the searches of the gate `never-worse`, and that their judge can find fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fuzz import copying, edges, searches
from fuzz.networks import is_hard, network
from fuzz.repeated import ALIKE, BROKEN, repeated
from fuzz.runs import never_worse
from fuzz.searches import make_case, run_case, search
from gates import Log
from runnable import or_as_ops
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.diag import fail
from eqsat.model.program import prune
from eqsat.model.selection import GoalResult

kernels_run = bool(edges.machines())
SAMPLE = (3, 6, 17, 21, 24, 33, 36, 61, 9, 44, 70, 79, 90, 107)
# once: a dispatch of three blocks, a value computed again, an order of dims, a leaf computed again,
# a cap of bytes met by halves
FAILED = (643, 1132, 1098, 1055, 947, 659, 847, 1131, 804)


@or_as_ops("avx512-vnni")
@pytest.mark.parametrize("seed", [*seeds(2, SAMPLE), *seeds(2, FAILED)])
def test_a_random_search_is_right_and_never_worse(seed: int):
    verdict = search(seed)
    assert not verdict.failure, f"{verdict}\n{make_case(seed).program}"
    if verdict.outcome == "found":
        assert verdict.executed
        assert not kernels_run or verdict.kernels + len(verdict.refused) == verdict.dispatches


def test_the_draw_holds_what_it_says():
    programs = [network(seed) for seed in range(60)]
    for p in programs:
        p.verify()
    assert all(map(is_hard, programs[::2]))
    assert {"transpose", "reshape", "pack", "unpack", "pad", "slice", "concat"} <= {
        n.op for p in programs for n in p.nodes
    }
    names = [make_case(seed).names for seed in range(200)]
    assert {n["target"] for n in names} == set(searches.MACHINES)
    assert {n["setting"] for n in names} == set(searches.VARIED)
    assert len({n["goals"] for n in names}) == len(searches.GOALS)


def test_blocks_are_alike_or_differ_in_every_way():
    found = [repeated(seed) for seed in range(150)]
    for program, _ in found:
        program.verify()
    assert {kind for _, kind in found[::2]} == set(ALIKE)
    assert {kind for _, kind in found[1::2]} == set(BROKEN)
    assert found[7] == repeated(7)
    assert make_case(4 * 7 + 3).program == found[7][0]


def test_one_proof_against_another_is_a_finding():
    run = eqsat.optimize(parse_program(HARD, "hard.eqs"), target="reference")
    assert run.selection is not None
    assert not copying.contradictions(run, run.selection, run.selection)
    goals = dict(run.selection.goals)
    goals["memory"] = GoalResult(goals["memory"].value - 1, 0)
    open_gap = replace(run.selection, goals=tuple(goals.items()))
    assert not copying.contradictions(run, open_gap, run.selection)
    goals["memory"] = GoalResult(goals["memory"].value, goals["memory"].value)
    proven = replace(run.selection, goals=tuple(goals.items()))
    assert "the optimum of `memory`" in copying.contradictions(run, proven, run.selection)[0]


HARD = """
program hard
input x: f32[16, 7]
weight v: f32[7, 7] key=v
weight w: f32[16, 16] key=w
y = matmul(x, v)
t = transpose(y, perm=[1, 0])
z = matmul(t, w)
r = add(y, y)
return z, r
"""


def test_what_is_hard():
    shared = parse_program(HARD, "hard.eqs")
    assert is_hard(shared)
    assert not is_hard(prune(replace(shared, results=shared.results[:1])))  # t alone reads y
    assert not is_hard(prune(replace(shared, results=shared.results[1:])))  # one contraction
    assert not is_hard(parse_program(HARD.replace("7", "8"), "hard.eqs"))


def test_a_case_is_the_same_every_time():
    assert make_case(5) == make_case(5)
    assert make_case(5) != make_case(6)


# ---- the judge can find fault --------------------------------------------------------------------
@pytest.fixture
def case() -> searches.Case:
    found = make_case(5)
    return replace(found, target="reference", settings=(), budget={}, goals=searches.GOALS[0])


def judged(case: searches.Case) -> searches.Verdict:
    return searches._judged(case, searches.Verdict(case.seed, {}, 0, False), 6.0)


def test_nothing_is_wrong_with_the_case_itself(case: searches.Case):
    found = judged(case)
    assert found.failure == ""
    assert found.baseline is not None
    assert found.value is not None
    assert found.value <= found.baseline


def test_a_worse_answer_is_found_out(case: searches.Case, monkeypatch: pytest.MonkeyPatch):
    def worse(*args: object) -> eqsat.Run:
        run = run_case(*args)  # type: ignore[arg-type]
        assert run.baseline is not None
        goals = tuple((n, GoalResult(g.value - 1, 0)) for n, g in run.baseline.goals)
        assert run.selection is not None
        same = tuple((n, run.baseline.goal(n)) for n, _ in run.selection.goals)
        selection, baseline = replace(run.selection, goals=same), replace(run.baseline, goals=goals)
        return replace(run, selection=selection, baseline=baseline)

    monkeypatch.setattr(searches, "run_case", worse)
    monkeypatch.setattr(searches, "CHECKS", ())
    assert "worse than the input" in judged(case).failure


def test_a_wrong_figure_is_found_out(case: searches.Case, monkeypatch: pytest.MonkeyPatch):
    def wrong(*args: object) -> eqsat.Run:
        run = run_case(*args)  # type: ignore[arg-type]
        assert run.selection is not None
        off = tuple((n, GoalResult(g.value - 1, 0)) for n, g in run.selection.goals)
        return replace(run, selection=replace(run.selection, goals=off))

    monkeypatch.setattr(searches, "run_case", wrong)
    failure = judged(case).failure
    assert "`time` is" in failure
    assert "the schedule's memory is" in failure


@pytest.mark.parametrize("is_lost", [True, False])
def test_nothing_found_where_the_input_is_admissible(
    case: searches.Case, monkeypatch: pytest.MonkeyPatch, is_lost: bool
):
    def nothing(case: searches.Case, seconds: float, rules: object = None) -> eqsat.Run:
        if rules is None or not is_lost:
            raise fail("E410", "nothing", exit_code=3)
        return run_case(case, seconds)

    monkeypatch.setattr(searches, "run_case", nothing)
    found = judged(case)
    assert found.outcome == "inadmissible"
    assert ("the input itself is admissible" in found.failure) is is_lost


def test_a_crash_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    def crash(*_: object) -> eqsat.Run:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(searches, "run_case", crash)
    assert search(3).failure == "ZeroDivisionError: oops"
    assert search(3).outcome == "failed"


# ---- the benchmark adds up -----------------------------------------------------------------------
def row(seed: int, value: float | None, baseline: float | None, failure: str = "") -> dict:
    names = dict.fromkeys(("target", "setting", "rules", "budget", "goals", "blocks"), "any")
    outcome = "inadmissible" if value is None else "found"
    found = searches.Verdict(
        seed, names, 5, True, outcome=outcome, value=value, baseline=baseline, failure=failure
    )
    return found.to_json()


def test_the_totals():
    rows = [row(0, 10, 20), row(1, 10, 10), row(2, 10, None), row(3, None, None), row(4, 9, 8, "x")]
    found = never_worse.report(rows)
    totals = found["totals"]
    assert totals["searches"] == 5
    assert totals["inadmissible"] == 1
    assert totals["baseline_inadmissible"] == 1
    assert (totals["compared"], totals["better"], totals["better_share"]) == (3, 1, 0.3333)
    assert totals["median_gain_of_better"] == 2
    assert found["by"]["target"]["any"] == totals
    assert [f["again"].split()[-1] for f in found["failures"]] == ["4:5"]


def test_what_the_log_holds_is_not_run_again(tmp_path: Path):
    log = tmp_path / "log.jsonl"
    rows = [row(n, 10, 20) for n in range(3)]
    for r in rows:
        Log(log, "seed").add(r)
    assert never_worse.run(range(3), 1, 6.0, log) == rows


# ---- what it has found ---------------------------------------------------------------------------
MERGED = """
program merged
input x: f32[7, 20]
weight w: f32[20, 40] key=w
y = matmul(x, w)
t = transpose(y, perm=[0, 1])
r = generic(t, loops=[7, 40], maps=[[d0, d1]], body=tanh(x0))
return r
"""


def test_an_input_node_that_a_rule_makes_too_stays_the_inputs():
    run = eqsat.optimize(parse_program(MERGED, "merged.eqs"), target="reference")
    assert run.egraph is not None
    own = {n.eclass for n in run.egraph.nodes if n.rule == -1}
    assert own >= set(run.egraph.values)
    assert run.baseline is not None


CYCLE = """
program cycle
input x: f32[7, 3, 8]
weight w: f32[1, 3, 8] key=w
t = transpose(x, perm=[2, 1, 0])
y = generic(t, w, loops=[3, 7, 1, 8], maps=[[d3, d0, d1], [d2, d0, d3]],\
 body=mul(x0, x1), combine=add)
p = pack(x, pos=[1, 0], tiles=[2, 4], outer=[1, 0, 2], pad=[0, any])
u = unpack(p, pos=[1, 0], tiles=[2, 4], outer=[1, 0, 2], pad=[0, any], shape=[7, 3, 8])
q = pack(u, pos=[1, 0], tiles=[2, 4], outer=[1, 0, 2], pad=0)
return y, q
"""


def test_a_group_is_no_circle_of_masks_and_views():
    run = eqsat.optimize(parse_program(CYCLE, "cycle.eqs"), target="reference")
    assert run.selection is not None
    assert run.selection.stop == "optimal"
