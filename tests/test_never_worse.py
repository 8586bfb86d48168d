"""A sample of the searches of the gate `never-worse`, and that their judge can find fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fuzz import edges, searches
from fuzz.searches import make_case, run_case, search
from runnable import or_as_ops
from seeds import seeds

import eqsat
from eqsat.lang.programs import parse_program
from eqsat.model.diag import fail
from eqsat.model.selection import GoalResult

kernels_run = bool(edges.machines())
SAMPLE = (3, 6, 17, 21, 24, 33, 36, 61, 9, 44, 70, 79, 90, 107)
# once: a dispatch of three blocks, a value computed again, an order of dims, a leaf computed again,
# a cap of bytes met by halves
FAILED = (643, 1132, 1098, 1055, 947, 659, 847, 1131, 804)


@or_as_ops("avx512-vnni")
@pytest.mark.parametrize("seed", [*seeds(1, SAMPLE), *seeds(1, FAILED)])
def test_a_random_search_is_right_and_never_worse(seed: int):
    verdict = search(seed)
    assert not verdict.failure, f"{verdict}\n{make_case(seed).program}"
    if verdict.outcome == "found":
        assert verdict.executed
        assert not kernels_run or verdict.kernels + len(verdict.refused) == verdict.dispatches


# ---- the judge can find fault --------------------------------------------------------------------
@pytest.fixture
def case() -> searches.Case:
    found = make_case(5)
    return replace(found, target="reference", settings=(), budget={}, goals=searches.GOALS[0])


def judged(case: searches.Case) -> searches.Verdict:
    return searches._judged(case, searches.Verdict(case.seed, {}, 0, False), 6.0)


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
