"""A separate wheel adds an op with rules, a strategy, a goal and an executor, without a patch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from wheels import PACKAGE, TARGET, Interpreter, build_wheel, python, unpack


@pytest.fixture(scope="module")
def found(plugged: Interpreter, work: Path) -> dict[str, object]:
    """A program with the op, optimized by its rules for its goal on a target with its strategy."""
    plugged("""
import contextlib
from eqsat.cli import run

with open("found.json", "w") as file, contextlib.redirect_stdout(file):
    words = "optimize rolled.eqs --target squared.yaml --rules default --rules roll --goal time"
    assert run([*words.split(), *"--goal bindings --verify -o kept --json".split()]) == 0
""")
    return json.loads((work / "found.json").read_text())


def test_a_wheel_adds_an_op_a_strategy_and_a_goal(found, work: Path) -> None:
    assert found["verify"]["ok"]
    assert found["goals"]["bindings"]["gap"] == 0
    selection = json.loads((work / "kept/3-selection.json").read_text())
    bound = sum(len(reads) + len(writes) for _, reads, writes, *_ in selection["groups"])
    assert found["goals"]["bindings"]["value"] == bound
    schedule = (work / "kept/4-schedule.txt").read_text()
    assert schedule.count("= roll :") == 2, "two of the three rolls became one"
    egraph = json.loads((work / "kept/2-egraph.json").read_text())
    rules = {r[0]: r for r in egraph["rules"]}
    assert rules["join-rolls"][3] > 0
    assert [32, 32, 1] in [a.get("tile") for a in egraph["attrs"]], "the strategy's tile"


def test_a_saved_run_can_be_looked_at_without_the_plugin(found, work: Path) -> None:
    code = """
import contextlib, io
from eqsat.cli import run

def said(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as e:
        return run(words), e.getvalue()

for command in ("show", "explain", "rules", "compare"):
    words = [command, "kept", *["kept"] * (command == "compare")]
    assert said(*words) == (0, ""), (words, said(*words))
exit_code, message = said("run", "kept")
assert exit_code == 2
assert "error[E601]: no tile strategy named `square`" in message, message
with contextlib.redirect_stdout(io.StringIO()) as out:
    run(["check", "stepped.yaml"])
assert "[E218]: no executor named `stepwise`" in out.getvalue(), out.getvalue()
"""
    python(code, None, work)


def test_lists_name_what_is_plugged_in(plugin_site: Path) -> None:
    code = """
import contextlib, io, re, sys
from eqsat.cli import run
from eqsat.plugins import find_names

def listed(what):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(["list", what]) == 0
    return out.getvalue()

assert re.search(r"^roll +move  x shifted", listed("ops"), re.MULTILINE)
assert "roll.sum" in listed("functions")
assert "roll" in find_names("rules", ".yaml")
assert "jax" not in sys.modules
executors = listed("executors")
assert "stepwise" in executors and "xla" in executors, executors
"""
    python(code, plugin_site)


def test_strategies_in_targets(plugged: Interpreter) -> None:
    code = """
import eqsat_roll
from eqsat.lang.programs import parse_program
from eqsat.lang.requests import override
from eqsat.lang.targets import load_target
from eqsat.model.diag import EqsatError
from eqsat.model.target import Target
from eqsat.ops.targets.tiles import tiles_of

machine = load_target("squared.yaml")
assert machine.strategies == (("matmul", "square"),) and not machine.tiles
assert Target.from_json(machine.to_json()) == machine
assert "strategy square" in str(machine)

def generic(m, n, k):
    text = f"input a: f32[{m}, {k}]\\ninput b: f32[{k}, {n}]\\nreturn matmul(a, b)"
    return parse_program(text).nodes[-1].attr

def extents(target, *sizes):
    return [t.extents for t in tiles_of(target, generic(*sizes))]

assert extents(machine, 64, 32, 7) == [(32, 32, 1)]
assert extents(machine, 24, 32, 7) == [(8, 8, 1)]
assert extents(machine, 3, 32, 7) == []
asked = []
eqsat_roll.square.__globals__["next"] = lambda sides: asked.append(1) or max(sides)
assert extents(machine, 128, 32, 7) == extents(machine, 128, 32, 7) == [(32, 32, 1)]
assert len(asked) == 1, "a strategy is asked once per distinct generic"
del eqsat_roll.square.__globals__["next"]
listed = override(machine, ["tiles.matmul=[{mnk: [4, 4, 1], rate: 0.5}]"])
assert extents(listed, 64, 32, 7) == [(4, 4, 1)] and not listed.strategies
assert override(listed, ["tiles.matmul={strategy: square}"]).strategies == machine.strategies
assert extents(override(machine, ["data_tiling=false"]), 64, 32, 7) == []
for value, code, hint in (
    ("{strategy: squares}", "E210", "did you mean `square`?"),
    ("{strateg: square}", "E003", "did you mean `strategy`?"),
    ("{}", "E004", ""),
    ("[{mnk: [4, 4], rate: 0.5}]", "E206", ""),
    ("7", "E005", ""),
):
    try:
        override(machine, [f"tiles.matmul={value}"])
    except EqsatError as error:
        codes = {d.code: d for d in error.diagnostics}
        assert code in codes and hint in codes[code].help, (value, error.diagnostics)
    else:
        raise AssertionError(value)
"""
    plugged(code)


def test_goals_in_requests(plugged: Interpreter) -> None:
    code = """
from dataclasses import replace

import eqsat
from eqsat.extract import check
from eqsat.lang.requests import parse_goals
from eqsat.model.diag import EqsatError
from eqsat.model.selection import GoalResult
from eqsat.report.facts import RunFacts
from eqsat.report.text import goal_table

assert [g.name for g in parse_goals(["bindings:within=5%", "time"])] == ["bindings", "time"]
try:
    parse_goals(["binding"])
except EqsatError as error:
    assert error.diagnostics[0].help == "did you mean `bindings`?"

source = eqsat.read("rolled.eqs")
first = {}
for goals in (["bindings", "time"], ["time", "bindings"], ["bindings:1", "time:0.001"], ["memory"]):
    run = eqsat.optimize(source, rules=["layout/pack", "layout/contract", "roll"], goals=goals)
    first[goals[0]] = run
    assert check(run.egraph, run.target, run.selection) == []
    assert (goals == ["memory"]) != ("bindings" in run.summary()["goals"])
fewest, fastest = first["bindings"].selection, first["time"].selection
assert fewest.goal("bindings").value <= fastest.goal("bindings").value
assert fastest.goal("time").value <= fewest.goal("time").value
assert fewest.goal("bindings").bound == fewest.goal("bindings").value
baseline = dict(first["bindings"].baseline.goals)["bindings"]
assert fewest.goal("bindings").value <= baseline.value
assert any(line.startswith("bindings") for line in goal_table(RunFacts(first["bindings"])))
goals = tuple(
    (n, GoalResult(g.value + 1, g.bound) if n == "bindings" else g) for n, g in fewest.goals
)
(fault,) = check(run.egraph, run.target, replace(fewest, goals=goals)) or ["none"]
assert fault.startswith("`bindings` is"), fault
"""
    plugged(code)


def test_a_target_names_the_executor_of_a_plugin(plugged: Interpreter) -> None:
    """Through `run`, `verify`, `jit` and a saved run; an optimized input is not run by XLA."""
    code = """
import jax
import numpy as np

import eqsat
import eqsat_roll.stepwise as plugged
from eqsat.run.saved import load_folder as load

called = []
own = plugged.Stepwise.dispatch
plugged.Stepwise.dispatch = lambda self, i: called.append(i) or own(self, i)

run = eqsat.optimize(eqsat.read("rolled.eqs"), rules=["roll"], target="stepped.yaml")
found = run.summary()["executor"]
assert found["name"] == "stepwise" and found["plan"].startswith("every dispatch")
assert run.verify().ok and called == list(range(len(run.schedule.dispatches)))
run.save("stepped")
again = load("stepped")
assert again.verify().ok and len(called) == 2 * len(run.schedule.dispatches)

called.clear()
x = np.arange(6, dtype="f4").reshape(2, 3)
same = eqsat.jit(lambda x: jax.numpy.tanh(x) @ x.T, target="stepped.yaml", rules=["roll"])
np.testing.assert_allclose(same(x), np.tanh(x) @ x.T, rtol=1e-6)
assert called and same.optimize(x).is_input, "the input itself, and yet by the executor"
plugged.Stepwise.dispatch = own
"""
    plugged(code)


@pytest.mark.slow  # what it shows, the package of these tests does
def test_the_page_on_plugins_is_right(tmp_path: Path, work: Path) -> None:
    """A package made of the page's own examples does what the page says."""
    page = (PACKAGE.parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    project = tmp_path / "project"
    (project / "my_package").mkdir(parents=True)
    head = '[project]\nname = "my-package"\nversion = "1"\n'
    (project / "pyproject.toml").write_text(head + "".join(t for k, t in blocks if k == "toml"))
    code = "\n".join(text for kind, text in blocks if kind == "python")
    (project / "my_package/__init__.py").write_text(code)
    rule, tiles = (text for kind, text in blocks if kind == "text")
    lines = "".join(f"    {line}\n" for line in rule.splitlines())
    rules = f"ruleset: flip\ndoc: d\nrules:\n  - name: turn\n    doc: d\n{lines}"
    machine = re.sub(r"^tiles:.*$", tiles.strip(), TARGET, flags=re.MULTILINE)
    python(
        f"""
import eqsat
from eqsat.hunt.search import hunt
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.lang.targets import read_target

found = read_ruleset({rules!r}, "flip.yaml")
assert hunt(found.rules[0], instances=40).counterexample is None
program = parse_program("input x: f32[16, 8]\\ninput w: f32[8, 16]\\n"
    "return transpose(flip(matmul(x, w), axis=1), perm=[1, 0])")
run = eqsat.optimize(program, rules=found + eqsat.rules("layout/contract"),
    target=read_target({machine!r}), goals=["bindings", "time"], verify=True)
assert run.verification.ok
assert run.egraph.rules[0].nodes > 0
assert run.summary()["goals"]["bindings"]["gap"] == 0
assert any(getattr(n.attr, "tile", ()) == (16, 16, 1) for n in run.egraph.nodes)
""",
        unpack(build_wheel(project, tmp_path)),
        work,
    )
