"""Fronts: complete and proven against brute force, honest when cut short, written out whole."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from itertools import permutations

import pytest
from library import module
from problems import best_of
from seeds import seeds

import eqsat
from eqsat.api.reading import source_of
from eqsat.cli import run
from eqsat.extract.ask.front import OPEN, Reply, Tradeoff, Vector, find_tradeoffs, spread
from eqsat.extract.ask.front import front_of as search
from eqsat.extract.session import prepare
from eqsat.lang.units import read_budget
from eqsat.model.deadline import Stop, elapsed
from eqsat.model.diag import EqsatError
from eqsat.report.finished import ELSEWHERE
from eqsat.report.pareto import front_warnings, plot_data, plot_lines

NOW = OPEN / 1e9  # a deadline nobody reaches


def random_values(seed: int) -> set[Vector]:
    rng = random.Random(seed)
    most = rng.choice((3, 6, 20))
    return {tuple(rng.randint(0, most) for _ in range(3)) for _ in range(rng.randint(1, 25))}


def oracle(answers: set[Vector], rng: random.Random, honest: float):
    """Answers questions by brute force; with some chance it gives up, with weak bounds."""

    def ask(priority: Vector, caps: Vector, seconds: float) -> Reply:
        legal = sorted(a for a in answers if all(x <= c for x, c in zip(a, caps, strict=True)))
        if not legal:
            return Reply("infeasible")
        if rng.random() < honest:
            best = min(legal, key=lambda a: [a[k] for k in priority])
            return Reply("optimal", best, best)
        some = rng.choice(legal)
        return rng.choice([Reply("unknown"), Reply("time", some, (0, 0, 0))])

    return ask


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_a_front_is_what_brute_force_finds(seed: int):
    answers = random_values(seed)
    ask = oracle(answers, random.Random(seed), 1.0)
    found = find_tradeoffs(ask, (OPEN,) * 3, (0, 0, 0), points=99, deadline=NOW)
    assert found.complete
    assert found.stop == "complete"
    assert {t.values for t in found.tradeoffs} == best_of(answers)
    assert all(t.is_proven for t in found.tradeoffs)
    assert found.at_least == len(found.tradeoffs)


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_a_part_of_a_front_is_proven_and_has_its_ends(seed: int):
    answers = random_values(seed)
    best = best_of(answers)
    ask = oracle(answers, random.Random(seed), 1.0)
    found = find_tradeoffs(ask, (OPEN,) * 3, (0, 0, 0), points=4, deadline=NOW)
    values = [t.values for t in found.tradeoffs]
    assert len(values) == min(4, len(best))
    assert set(values) <= best
    assert found.complete == (len(best) <= 4)
    assert len(values) < found.at_least <= len(best) or found.complete
    for goal in range(3):
        rest = [k for k in range(3) if k != goal]
        ends = (min(best, key=lambda v: [v[k] for k in (goal, *p)]) for p in permutations(rest))
        assert min(v[goal] for v in values) == min(v[goal] for v in ends)


@pytest.mark.parametrize("seed", seeds(8, 50))
def test_what_a_search_without_proof_says_is_true(seed: int):
    answers = random_values(seed)
    ask = oracle(answers, random.Random(seed), 0.6)
    found = find_tradeoffs(ask, (OPEN,) * 3, (0, 0, 0), points=99, deadline=NOW)
    values = {t.values for t in found.tradeoffs}
    assert values <= answers
    assert best_of(values) == values
    assert found.at_least <= len(best_of(answers))
    assert not found.complete or values == best_of(answers)
    for t in found.tradeoffs:
        for goal in range(3):
            others = [k for k in range(3) if k != goal]
            no_worse = [a for a in answers if all(a[k] <= t.values[k] for k in others)]
            assert t.bounds[goal] <= min(a[goal] for a in no_worse)


def test_without_time_the_known_answers_are_shown():
    def ask(priority: Vector, caps: Vector, seconds: float) -> Reply:
        raise AssertionError("no time")

    known = [(1, 5, 2), (2, 6, 2), (3, 1, 1), (9, 0, 0)]
    caps = (OPEN, OPEN, 8)
    found = find_tradeoffs(ask, caps, (0, 0, 0), points=9, deadline=elapsed() - 1, incumbents=known)
    assert [t.values for t in found.tradeoffs] == [(1, 5, 2), (3, 1, 1), (9, 0, 0)]
    assert not any(t.is_proven for t in found.tradeoffs)
    assert (found.stop, found.complete) == ("time", False)


def test_nothing_admissible_is_no_front():
    found = find_tradeoffs(
        lambda *_: Reply("infeasible"), (5, 5, 5), (0, 0, 0), points=9, deadline=NOW
    )
    assert (found.tradeoffs, found.stop) == ((), "infeasible")


def test_points_are_spread_over_the_range():
    line = [Tradeoff((i, 100 - i, 1), (i, 100 - i, 1)) for i in range(101)]
    assert [t.values[0] for t in spread(line, 5)] == [0, 25, 50, 75, 100]


# ---- programs ------------------------------------------------------------------------------------
SETTINGS = ("fusion.clone=[all]", "fusion.multi_result=true")
TRADE = """program trade
input x: f32[64, 64]
input y: f32[64, 64]
input z: f32[64, 64]
v = generic(
  x, y, z, loops=[64, 64], maps=[[d0, d1], [d0, d1], [d0, d1]], body=exp(add(add(x0, x1), x2)))
s = generic(v, loops=[64, 64], maps=[[d0, d1]], body=x0, combine=add, rank=1)
r = generic(v, s, loops=[64, 64], maps=[[d0, d1], [d0]], body=div(x0, x1))
return r
"""


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "trade.eqs"
    path.write_text(TRADE)
    return path, eqsat.pareto(eqsat.read(str(path)), settings=SETTINGS, target="reference")


def values(point: eqsat.Run) -> Vector:
    assert point.selection
    return tuple(point.selection.goal(g).value for g in ("time", "memory", "dispatches"))


def test_a_front_of_a_program_is_an_antichain_with_the_optima_at_its_ends(front):
    path, found = front
    points = [values(p) for p in found.points]
    assert found.complete
    assert len(points) > 1
    assert best_of(points) == set(points)
    for goal in ("time", "memory", "dispatches"):
        rest = [g for g in ("time", "memory", "dispatches") if g != goal]
        alone = eqsat.optimize(
            eqsat.read(str(path)), goals=(goal, *rest), settings=SETTINGS, target="reference"
        )
        assert alone.selection
        assert alone.selection.stop == "optimal"
        assert values(alone) in points


@pytest.mark.slow  # 5 s; a program of the gates
def test_features_are_kept_or_computed_again(monkeypatch: pytest.MonkeyPatch):
    gates = module("gates")
    monkeypatch.setattr(gates, "LEVELS", ((16, 32),))
    source = source_of(gates.gates, gates.gates_example(), {}, gates.gates_weights)
    found = eqsat.pareto(source, goals=("time", "memory"), target="avx512-xla")
    assert found.complete
    kept, again = found.points  # one point per set of levels that are kept
    assert values(kept)[1] - values(again)[1] == 4 * 16 * 32 * 32
    assert values(kept)[0] < values(again)[0]
    assert again.verify(samples=1).ok


def test_every_point_is_a_run_of_its_own(front):
    _, found = front
    for point in found.points:
        assert point.selection
        assert point.selection.stop == "optimal"
        assert all(g.gap == 0 for _, g in point.selection.goals)
        again = eqsat.optimize(point.source, target=point.target)
        assert values(again) == values(point)
        assert point.verify(samples=1).ok


def test_a_front_is_saved_whole_and_its_points_are_runs(front, tmp_path):
    _, found = front
    folder = found.save(tmp_path / "front")
    data = json.loads((folder / "pareto.json").read_text())
    assert data == found.to_json()
    assert data["complete"] is True
    assert [p["name"] for p in data["points"]] == ["point-1", "point-2"]
    for p, point in zip(data["points"], found.points, strict=True):
        loaded = eqsat.load(folder / p["name"])
        assert values(loaded) == values(point)
        assert p["peak_bytes"] == {"value": values(point)[1], "bound": values(point)[1], "gap": 0}
        assert "next best" in str(loaded.explain("%3"))
    found.save(folder)  # over an older one
    assert sorted(p.name for p in tmp_path.iterdir()) == ["front"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(EqsatError, match="not a front"):
        found.save(other)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_draws_a_point_per_program_and_the_input(front):
    _, found = front
    links = [f"point-{i}/report.html" for i, _ in enumerate(found.points, 1)]
    page = Tags()
    page.feed(found.page(links))
    assert [a["href"] for t, a in page.tags if t == "a"] == links
    assert not any("src" in a for _, a in page.tags)
    data = plot_data(found.told(), links)
    assert [(p["x"], p["y"]) for p in data["points"]] == [values(p)[:2] for p in found.points]
    before = found.whole.baseline_schedule
    assert (data["input"]["x"], data["input"]["y"]) == (before.time_ps, before.peak_bytes)


def test_text_and_plot_show_every_point(front):
    _, found = front
    text = found.to_text()
    assert f"2 points (proven {ELSEWHERE}: there is no other)" in text
    assert "1 recomputed op" in text
    plot = plot_lines(found.told())
    assert any(line.endswith("|1") for line in plot)
    assert plot[-3].rstrip().endswith("2")
    assert front_warnings(found.told()) == []


def test_one_point_of_several_says_that_there_are_more(front):
    path, _ = front
    found = eqsat.pareto(eqsat.read(str(path)), settings=SETTINGS, points=1, target="reference")
    assert len(found.points) == 1
    assert (found.at_least, found.complete, found.stop) == (2, False, "points")
    assert "1 of at least 2 points" in found.to_text()


def test_a_budget_cuts_the_front(front):
    path, found = front
    small = values(found.points[1])[1]
    cut = eqsat.pareto(
        eqsat.read(str(path)), settings=SETTINGS, budget={"memory": small}, target="reference"
    )
    assert [values(p) for p in cut.points] == [values(found.points[1])]
    assert cut.complete
    with pytest.raises(EqsatError) as error:
        eqsat.pareto(
            eqsat.read(str(path)), settings=SETTINGS, budget={"memory": 1024}, target="reference"
        )
    assert error.value.exit_code == 3


def test_a_stop_ends_the_search_with_what_is_known(front):
    path, _ = front
    stop = Stop()
    whole = eqsat.optimize(
        eqsat.read(str(path)), settings=SETTINGS, stop_after="egraph", target="reference"
    )
    assert whole.egraph
    session = prepare(whole.egraph, whole.target, whole.goals, stop=stop)
    stop.request()
    found, selections = search(session, eqsat.api.DEFAULT_GOALS, points=9, seconds=60.0)
    assert (found.stop, found.complete) == ("interrupted", False)
    assert selections
    assert not any(t.is_proven for t in found.tradeoffs)


def test_the_command_prints_text_or_json_and_keeps_a_folder(front, tmp_path, capsys):
    path, found = front
    out = tmp_path / "kept"
    args = [
        "pareto",
        str(path),
        "--target",
        "reference",
        "--set",
        SETTINGS[0],
        "--set",
        SETTINGS[1],
        "-o",
        str(out),
    ]
    assert run(args) == 0
    text, err = capsys.readouterr()
    assert text == found.to_text()
    assert "pareto.html" in err
    assert (out / "pareto.html").is_file()
    assert run([*args[:-2], "--output-format", "json", "--points", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["points"]) == 1
    assert run([*args[:-2], "--points", "0"]) == 2
    assert run(["pareto", str(path), "--target", "reference", "-o", str(tmp_path)]) == 2
    assert "E309" in capsys.readouterr().err


# ---- budgets of any goal -------------------------------------------------------------------------
def test_a_budget_may_be_on_a_goal_that_was_not_asked_for():
    free = eqsat.optimize(eqsat.read("transposed_pack"), target="reference")
    assert free.schedule
    moved = free.schedule.relayout_bytes
    held = eqsat.optimize(
        eqsat.read("transposed_pack"), budget={"relayout": moved}, target="reference"
    )
    assert held.selection
    assert held.selection.goal("relayout").value <= moved
    with pytest.raises(EqsatError, match="relayout <= 1"):
        eqsat.optimize(eqsat.read("transposed_pack"), budget={"relayout": 1}, target="reference")
    with pytest.raises(EqsatError, match="no goal named `size`") as error:
        eqsat.optimize(eqsat.read("transposed_pack"), budget={"size": 1}, target="reference")
    assert error.value.diagnostics[0].code == "E205"


def test_budgets_on_the_command_line():
    assert read_budget("relayout=1 MiB") == ("relayout", 1 << 20)
    with pytest.raises(EqsatError, match="no goal named `memry`"):
        read_budget("memry=1 MiB")
