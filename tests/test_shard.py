"""`eqsat shard`: answers against brute force, bounds below them, bad files, and the command."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interpreted import as_python
from seeds import seeds

from eqsat.cli.app import run as eqsat
from eqsat.extract.shard import descent, prices, search, solve_sharding
from eqsat.extract.shard.presolve import ChoiceGraph, network, reduced
from eqsat.extract.shard.prices import Ascent, irreplaceable, proven
from eqsat.frontends.contests import read_sharding
from eqsat.model.diag import EqsatError
from eqsat.model.sharding import (
    FORBIDDEN,
    ShardEdge,
    ShardExcess,
    Sharding,
    ShardNode,
    ShardProblem,
)


# ---- small problems --------------------------------------------------------------------------
def random_problem(seed: int) -> ShardProblem:
    """At most 2,000 choices: equal nodes, forbidden pairs, sums, loops, empty lives, all of it."""
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 2, 3, 3]) for _ in range(rng.randint(1, 7))]
    nodes = []
    for k in sizes:
        lower = rng.randint(0, 6)
        costs = [FORBIDDEN if rng.random() < 0.05 else rng.randint(-3, 20) for _ in range(k)]
        usages = [rng.randint(0, 9) for _ in range(k)]
        nodes.append(ShardNode(costs, usages, lower, lower + rng.choice([0, 1, 2, 5])))
    edges = []
    for _ in range(rng.randint(0, 10)):
        i, j = rng.randrange(len(sizes)), rng.randrange(len(sizes))
        edges.append(ShardEdge(i, j, pair_costs(rng, sizes[i], sizes[j])))
    return ShardProblem(nodes, edges, rng.randint(4, 40))


def with_excesses(problem: ShardProblem, seed: int) -> ShardProblem:
    """Sums of which only what is above 0 counts, of one node or more."""
    rng, excesses = random.Random(f"excesses {seed}"), []
    for _ in range(rng.randint(0, 3)):
        nodes = rng.sample(range(len(problem.nodes)), rng.randint(1, len(problem.nodes)))
        costs = [[rng.randint(-12, 12) for _ in problem.nodes[n].costs] for n in nodes]
        excesses.append(ShardExcess(nodes, costs))
    return replace(problem, excesses=excesses)


def pair_costs(rng: random.Random, rows: int, columns: int) -> list[int]:
    kind = rng.choice(["any", "any", "equal", "sum", "holes"])
    if kind == "equal" and rows == columns:
        partner = rng.sample(range(rows), rows)
        return [
            rng.choice([0, 0, 2]) if partner[r] == c else FORBIDDEN
            for r in range(rows) for c in range(columns)
        ]  # fmt: skip
    if kind == "sum":
        first, second = ([rng.randint(0, 9) for _ in range(k)] for k in (rows, columns))
        return [a + b for a in first for b in second]
    holes = 0.2 if kind == "holes" else 0.0
    some = [rng.randint(0, 15) for _ in range(rows * columns)]
    return [FORBIDDEN + 5 if rng.random() < holes else c for c in some]


def every_choice(problem: ShardProblem):
    return itertools.product(*(range(len(n.costs)) for n in problem.nodes))


def cheapest(problem: ShardProblem) -> int | None:
    """By brute force over the definition, without the checker."""
    best = None
    steps = {n.lower for n in problem.nodes}
    for choice in every_choice(problem):
        chosen = list(zip(problem.nodes, choice, strict=True))
        parts = [n.costs[s] for n, s in chosen]
        for e in problem.edges:
            wide = len(problem.nodes[e.second].costs)
            parts.append(e.costs[choice[e.first] * wide + choice[e.second]])
        for excess in problem.excesses:
            own = [costs[choice[n]] for n, costs in zip(excess.nodes, excess.costs, strict=True)]
            parts.append(max(sum(own), 0))
        if max(parts) >= FORBIDDEN or (best is not None and sum(parts) >= best):
            continue
        live = [sum(n.usages[s] for n, s in chosen if n.lower <= t < n.upper) for t in steps]
        if max(live, default=0) <= problem.usage_limit:
            best = sum(parts)
    return best


@pytest.mark.parametrize("start", seeds(1, range(0, 120, 4)))
def test_small_problems_are_solved_as_by_brute_force(start: int):
    kinds = set()
    for seed in range(start, start + 4):
        problem = with_excesses(random_problem(seed), seed)
        best, found = cheapest(problem), solve_sharding(problem, time_limit=60)
        kinds.add(found.status)
        if best is None:
            assert (found.status, found.stop, found.cost) == ("infeasible", "proof", None), seed
            continue
        assert (found.status, found.cost, found.bound) == ("optimal", best, best), seed
        assert problem.cost(found.strategies) == best
        assert not problem.faults(found.strategies)
    assert start or kinds == {"optimal", "infeasible"}


def test_edges_that_together_allow_nothing_are_infeasible():
    pairs = [{(0, 0), (1, 1), (2, 2), (0, 1)}, {(0, 2), (1, 0), (2, 1), (1, 2)}]
    every = list(itertools.product(range(3), repeat=2))
    edges = [ShardEdge(0, 1, [0 if p in own else FORBIDDEN for p in every]) for own in pairs]
    problem = ShardProblem([ShardNode([0, 1, 2], [1, 1, 1], 0, 2)] * 2, edges, 10)
    assert solve_sharding(problem).status == "infeasible"


@pytest.fixture
def uncompiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """`slow` tests compile prices and descent."""
    if request.node.get_closest_marker("slow") is not None:
        yield
        return
    with as_python(descent, prices):
        yield


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("start", seeds(1, range(0, 120, 4)))
def test_bounds_and_presolve_are_exact_on_small_problems(start: int):
    """What message passing and prices prove is below the optimum, whatever the messages are."""
    rng = np.random.default_rng(start)
    close = bounded = 0
    for seed in range(start, start + 4):
        problem = random_problem(seed)
        best, small = cheapest(problem), reduced(problem)
        if best is None or small is None:
            continue
        small = small.restricted_to(irreplaceable(network(small)))
        assert cheapest_reduced(small) == best, seed
        net = network(small)
        if not len(net.base):
            continue
        ascent = Ascent(net)
        for _ in range(30):
            ascent.raise_bound(0.3)
        bound = proven(net, *ascent.best[1:])
        assert bound <= best, seed
        bounded += 1
        close += bound >= best - 3
        odd_prices = rng.random(len(net.base)) * rng.choice([0, 1, 1e-7, 1e6])
        odd = rng.normal(0, rng.choice([1, 1e9, 1e30]), len(ascent.messages))
        assert proven(net, odd_prices, odd) <= best, seed
    assert close > bounded / 2


def cheapest_reduced(small: ChoiceGraph) -> int | None:
    """The least cost of a reduced problem by brute force."""
    best = None
    steps = {lower for own in small.usages for lower, _, _ in own}
    for choice in itertools.product(*(range(len(c)) for c in small.costs)):
        parts = [int(c[s]) for c, s in zip(small.costs, choice, strict=True)]
        parts += [int(m[choice[i], choice[j]]) for (i, j), m in small.edges.items()]
        live = dict.fromkeys(steps, 0)
        for own, s in zip(small.usages, choice, strict=True):
            for lower, upper, usage in own:
                for t in live:
                    live[t] += int(usage[s]) if lower <= t < upper else 0
        if max(parts) < FORBIDDEN and max(live.values(), default=0) <= small.limit:
            best = sum(parts) if best is None else min(best, sum(parts))
    return best


def large_problem(rng: random.Random, nodes: int) -> ShardProblem:
    """Too large for the exact solver: a ring with chords, usages that compete in time."""
    own = []
    for i in range(nodes):
        costs = [rng.randint(0, 1000) for _ in range(6)]
        own.append(ShardNode(costs, sorted(1000 - c for c in costs), i, i + rng.randint(2, 9)))
    pairs = [(i, (i + d) % nodes) for i in range(nodes) for d in (1, 7)]
    edges = [ShardEdge(i, j, [rng.randint(0, 500) for _ in range(36)]) for i, j in pairs]
    return ShardProblem(own, edges, 2400)


def by_prices(monkeypatch: pytest.MonkeyPatch, regions: int) -> None:
    """Without the exact solver, and so much work that no clock ends it."""
    effort = search.ShardEffort(small=-1, first_answers=6, answers=0, climbs=40, regions=regions)
    monkeypatch.setattr(search, "EFFORT", effort)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("nodes", seeds(1, [16, 80]))
def test_a_large_problem_gets_a_good_answer_and_a_bound(
    monkeypatch: pytest.MonkeyPatch, nodes: int
):
    by_prices(monkeypatch, 0)
    problem = large_problem(random.Random(3), nodes)
    found = solve_sharding(problem, time_limit=500)
    assert (found.status, found.stop) == ("feasible", "work")
    assert not problem.faults(found.strategies)
    assert problem.cost(found.strategies) == found.cost
    assert found.bound is not None
    assert found.cost is not None
    assert 0 < found.bound <= found.cost < 1.3 * found.bound
    assert solve_sharding(problem, time_limit=500).strategies == found.strategies


@pytest.mark.slow
def test_regions_improve_and_find_small_optima(monkeypatch: pytest.MonkeyPatch):
    large = large_problem(random.Random(3), 200)
    by_prices(monkeypatch, 0)
    before = solve_sharding(large, time_limit=500)
    by_prices(monkeypatch, 40)
    found = solve_sharding(large, time_limit=500)
    assert before.cost is not None
    assert found.cost is not None
    assert found.cost < before.cost
    assert not large.faults(found.strategies)
    for seed in range(30):
        problem = random_problem(seed)
        best = cheapest(problem)
        if best is not None:
            found = solve_sharding(problem, time_limit=500)
            assert found.bound is not None
            assert found.cost == best, seed
            assert found.bound <= best, seed
        beyond = with_excesses(problem, seed)
        best, found = cheapest(beyond), solve_sharding(beyond, time_limit=500)
        if best is not None:
            assert found.bound is not None
            assert found.cost is not None
            assert found.bound <= best <= found.cost, seed


def test_the_checker_sees_what_is_wrong():
    nodes = [ShardNode([1, FORBIDDEN], [4, 0], 0, 3), ShardNode([2, 3], [5, 1], 2, 4)]
    problem = ShardProblem(nodes, [ShardEdge(0, 1, [0, 7, FORBIDDEN, 0])], 8)
    assert not problem.faults([0, 1])
    assert problem.cost([0, 1]) == 11
    assert "in step 2" in problem.faults([0, 0])[0]
    assert len(problem.faults([1, 0])) == 2
    assert "no strategy 2" in problem.faults([2, 0])[0]
    assert "1 strategies" in problem.faults([0])[0]
    touching = ShardProblem([nodes[0], ShardNode([0], [8], 3, 4)], [], 8)
    assert not touching.faults([0, 0])


def test_a_sharding_survives_json():
    found = solve_sharding(random_problem(1))
    assert Sharding.from_json(json.loads(json.dumps(found.to_json()))) == found


# ---- files -----------------------------------------------------------------------------------
EXAMPLE = {
    "problem": {
        "name": "example",
        "nodes": {
            "costs": [[15, 55, 95], [65, 75, 85], [45, 55]],
            "usages": [[30, 20, 10], [25, 20, 15], [20, 10]],
            "intervals": [[10, 40], [20, 60], [0, 0]],
        },
        "edges": {"nodes": [[0, 1], [2, 1]], "costs": [[30, 40, 50] * 3, [0, 9, 9, 9, 0, 9]]},
        "usage_limit": 50,
    },
    "solution": [0, 1, 0],
}


def written(folder: Path, data: object, name: str = "graph.json") -> Path:
    path = folder / name
    text = (data if isinstance(data, str) else json.dumps(data)).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def changed(*path: str | int, to: object) -> dict:
    data = json.loads(json.dumps(EXAMPLE))
    at = data["problem"]
    for key in path[:-1]:
        at = at[key]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return data


def test_the_public_format_is_read_compressed_or_not(tmp_path: Path):
    plain = read_sharding(written(tmp_path, EXAMPLE))
    assert read_sharding(written(tmp_path, EXAMPLE, "graph.json.gz")) == plain
    assert plain.usage_limit == 50
    assert plain.nodes[2] == ShardNode([45, 55], [20, 10], 0, 0)
    assert plain.edges[1] == ShardEdge(2, 1, [0, 9, 9, 9, 0, 9])
    assert cheapest(plain) == solve_sharding(plain).cost


BAD = {
    "": "not JSON",
    "[1, 2": "not JSON",
    "[]": "an object `problem`",
    '{"problme": {}}': "an object `problem`",
    "1" * 5000: "too long",
    "[" * 100_000: "nested too deeply",
}
BAD_PARTS = [
    (("usage_limit",), None, "`usage_limit` is missing"),
    (("usage_limit",), -1, "`usage_limit` has to be"),
    (("usage_limit",), 2.5, "`usage_limit` has to be"),
    (("nodes",), [], "`nodes` has to be an object"),
    (("nodes", "usages"), None, "`usages` of `nodes` has to be a list"),
    (("nodes", "costs"), [[1]], "differ in length"),
    (("nodes", "costs", 1), [1, 2.5, 3], "`costs` of node 1"),
    (("nodes", "costs", 1), [1, True, 3], "`costs` of node 1"),
    (("nodes", "costs", 1), [1, 2**63, 3], "`costs` of node 1"),
    (("nodes", "costs", 1), [1, -FORBIDDEN, 3], "`costs` of node 1"),
    (("nodes", "costs", 1), [], "node 1 has no strategies"),
    (("nodes", "usages", 0), [1, 2], "3 costs and 2 usages"),
    (("nodes", "usages", 0), [1, -2, 3], "usage of node 0 is negative"),
    (("nodes", "intervals", 2), [1], "interval of node 2"),
    (("nodes", "intervals", 2), [1, 2**60], "interval of node 2"),
    (("edges", "nodes", 0), [0, 1, 2], "edge 0 have to be two"),
    (("edges", "nodes", 1), [0, 3], "names node 3; there are nodes 0 to 2"),
    (("edges", "costs", 0), [1, 2], "has 2 costs; its nodes have 3 and 3 strategies"),
    (("edges", "costs", 0), ["a"] * 9, "`costs` of edge 0"),
    (("nodes", "costs", 0), [2**57, 0, 0], "sum to"),
]


@pytest.mark.parametrize("text", BAD, ids=lambda t: repr(t[:20]))
def test_what_is_not_a_problem_is_refused(text: str, tmp_path: Path):
    with pytest.raises(EqsatError, match=BAD[text]) as e:
        read_sharding(written(tmp_path, text))
    assert [d.code for d in e.value.diagnostics] == ["E351"]


@pytest.mark.parametrize(("path", "value", "said"), BAD_PARTS, ids=lambda v: str(v)[:30])
def test_bad_values_are_refused_with_their_place(path, value, said: str, tmp_path: Path):
    text = json.dumps(changed(*path, to=value), indent=1)
    with pytest.raises(EqsatError) as e:
        read_sharding(written(tmp_path, text))
    first = e.value.diagnostics[0]
    assert said in first.message
    assert first.code == "E351"
    assert first.span is not None
    assert first.span.line > 1


def test_files_that_cannot_be_read(tmp_path: Path):
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(EXAMPLE).encode())[:-20])
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"problem": "\xff"}')
    for path in (tmp_path / "none.json", tmp_path, cut, latin):
        with pytest.raises(EqsatError, match=r"no file|cannot be decompressed|UTF-8"):
            read_sharding(path)


def test_a_very_bad_file_shows_twenty_problems(tmp_path: Path):
    data = changed("nodes", "costs", to=[["x"]] * 50)
    data["problem"]["nodes"] |= {"usages": [[1]] * 50, "intervals": [[0, 1]] * 50}
    with pytest.raises(EqsatError) as e:
        read_sharding(written(tmp_path, data))
    assert len(e.value.diagnostics) == 21


# ---- from the shell --------------------------------------------------------------------------
def test_the_command_prints_one_object_and_writes_the_strategies(tmp_path: Path, capsys):
    path, out = written(tmp_path, EXAMPLE, "graph.json.gz"), tmp_path / "deep" / "out.json"
    assert eqsat(["shard", str(path), "--output-format", "json", "-o", str(out)]) == 0
    printed = json.loads(capsys.readouterr().out)
    best = cheapest(read_sharding(path))
    assert (printed["status"], printed["cost"], printed["bound"]) == ("optimal", best, best)
    assert printed["seconds"] >= 0
    found = json.loads(out.read_text())
    assert read_sharding(path).cost(found["strategies"]) == best
    assert eqsat(["shard", str(path)]) == 0
    out_text = capsys.readouterr().out
    assert f"cost     {best}" in out_text
    assert f"chosen   {' '.join(map(str, found['strategies']))}\n" in out_text


def test_the_command_says_why_there_is_no_answer(tmp_path: Path, capsys):
    path, out = written(tmp_path, changed("usage_limit", to=24)), tmp_path / "out.json"
    assert eqsat(["shard", str(path), "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert "infeasible" in said.out
    assert "E438" in said.err
    assert "proven" in said.err
    assert not out.exists()
    assert eqsat(["shard", str(tmp_path / "none.json")]) == 2
    assert eqsat(["shard", str(path), "-o", str(tmp_path)]) == 2


def test_a_search_without_time_says_what_it_has(tmp_path: Path, capsys):
    problem = large_problem(random.Random(5), 60)
    data = {
        "nodes": {
            "costs": [n.costs for n in problem.nodes],
            "usages": [n.usages for n in problem.nodes],
            "intervals": [[n.lower, n.upper] for n in problem.nodes],
        },
        "edges": {
            "nodes": [[e.first, e.second] for e in problem.edges],
            "costs": [e.costs for e in problem.edges],
        },
        "usage_limit": problem.usage_limit,
    }
    path = written(tmp_path, {"problem": data})
    assert eqsat(["shard", str(path), "--time-limit", "0s"]) in (0, 3)
    assert "its time limit" in capsys.readouterr().err


def test_an_easy_file_loads_nothing_heavy(tmp_path: Path):
    path = written(tmp_path, changed("nodes", "costs", to=[[15], [65], [45]]))
    text = json.loads(path.read_text())
    text["problem"]["nodes"]["usages"] = [[1], [1], [1]]
    text["problem"]["edges"] = {"nodes": [[0, 1]], "costs": [[7]]}
    path = written(tmp_path, text)
    code = (
        "import sys; from eqsat.api.alone import shard_graph;"
        f"assert shard_graph({str(path)!r})['status'] == 'optimal';"
        "print([m for m in ('numba', 'ortools', 'jax', 'egglog') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
