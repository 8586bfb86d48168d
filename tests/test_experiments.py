"""Experiment files: grids, rows, goals."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.lang.experiments import find_program, load_experiment, read_experiment
from eqsat.lang.requests import parse_goals
from eqsat.model.diag import EqsatError
from eqsat.model.selection import GoalRequest

HEAD = "experiment: e\ndoc: d\nprograms: [a, b]\ntargets: [reference, avx512-xla]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of experiments with two programs."""
    (tmp_path / "programs").mkdir()
    for name in "ab":
        (tmp_path / "programs" / f"{name}.eqs").write_text("input x: f32[4]\nreturn x\n")
    return tmp_path


def test_grid_is_the_cross_product(folder: Path) -> None:
    vary = (
        "vary:\n  rules: [layout/pack, default]\n"
        "  fusion.multi_result: [true, false]\n  seed: [1, 2]\n"
    )
    found = read_experiment(HEAD + vary, "e.yaml", [folder])
    assert len(found.cells) == len({c.name for c in found.cells}) == 2 * 2 * 2 * 2 * 2
    first, last = found.cells[0], found.cells[-1]
    assert first.name == "a@reference rules=layout/pack fusion.multi_result=true seed=1"
    assert (first.rules, first.set, first.seed) == (
        ("layout/pack",),
        ("fusion.multi_result=true",),
        1,
    )
    assert (last.program, last.target, last.rules, last.seed) == (
        "b",
        "avx512-xla",
        ("default",),
        2,
    )
    assert last.varied == (("rules", "default"), ("fusion.multi_result", "false"), ("seed", "2"))


def test_rule_sets_of_a_list_are_compared_unless_together(folder: Path) -> None:
    text = HEAD + "rules: [default, {together: [default, algebra/merge]}, policy/keep]\n"
    cells = read_experiment(text, "e.yaml", [folder]).cells
    assert len(cells) == 2 * 2 * 3
    assert [c.rules for c in cells[:3]] == [
        ("default",), ("default", "algebra/merge"), ("policy/keep",),
    ]  # fmt: skip
    assert cells[1].name == "a@reference rules=default+algebra/merge"
    one = read_experiment(HEAD + "rules: {together: [default, algebra/merge]}\n", "e", [folder])
    assert {c.rules for c in one.cells} == {("default", "algebra/merge")}
    assert one.cells[0].name == "a@reference"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("rules: [default, defalt]", "E007", "defalt"),
        ("rules: {together: [default, defalt]}", "E007", "defalt"),
        ("rules: [default, full]\nvary: {rules: [default]}", "E265", "both compare"),
        ("vary: {rules: [[default, full]]}", "E262", "together"),
        ("vary: {extractor: [gredy]}", "E262", "cpsat, greedy"),
        ("extractor: gredy", "E005", "greedy"),
        ("vary: {limits.node: [1]}", "E003", "node"),
        ("vary: {sizes.m: [-1]}", "E385", "m"),
        ("rules: [default, full]\nrows: [{name: r, program: a, target: reference}]", "E260",
         "together"),
        ("rows: [{name: r, program: a, target: reference, rules: [default, full]}]", "E260",
         "together"),
        ("figure: {kind: pie, x: program}", "E005", "bars"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_told(folder: Path, line: str, code: str, said: str) -> None:
    head = HEAD if "rows" not in line else "experiment: e\ndoc: d\n"
    with pytest.raises(EqsatError) as caught:
        read_experiment(head + line + "\n", "e.yaml", [folder])
    (problem,) = caught.value.diagnostics
    assert problem.code == code
    assert said in problem.full()
    assert problem.span is not None and problem.span.file == "e.yaml"


def test_extractors_sizes_limits_and_named_values_vary(folder: Path) -> None:
    vary = (
        "vary:\n  extractor: [cpsat, greedy]\n  sizes.m: [8, 64]\n  limits.nodes: [100, 200]\n"
        "  set: {as-is: [], forced: [tiles_forced=true, launch=1 us]}\n"
    )
    cells = read_experiment(HEAD + vary, "e.yaml", [folder]).cells
    assert len(cells) == len({c.name for c in cells}) == 4 * 16
    last = cells[-1]
    assert last.name.endswith("extractor=greedy sizes.m=64 limits.nodes=200 set=forced")
    assert (last.extractor, last.sizes, last.limits.nodes) == ("greedy", ("m=64",), 200)
    assert last.set == ("tiles_forced=true", "launch=1 us")


def test_how_cells_are_run(folder: Path) -> None:
    text = HEAD + "repeat: 5\nlimits: {time: 60 s}\nmeasure: {runs: 7, warmup: 1, verify: false}\n"
    found = read_experiment(text, "e.yaml", [folder])
    assert (found.repeat, found.time_limit_s, found.runs, found.warmup, found.verify) == (
        5, 60.0, 7, 1, False,
    )  # fmt: skip
    plain = read_experiment(HEAD, "e.yaml", [folder])
    assert (plain.repeat, plain.time_limit_s, plain.runs, plain.verify) == (1, None, 0, False)
    assert plain.cells[0].goals == (GoalRequest("time"),)


def test_rows_take_over_what_the_file_says(folder: Path) -> None:
    text = (
        "experiment: e\ndoc: d\nprograms: a\nrules: [layout/pack]\ngoals: [time, memory]\n"
        "set: tiles_forced=true\nbudget: {memory: 1 MiB, dispatches: 3}\n"
        "rows:\n"
        "  - {name: one, target: avx512-xla, without: unpack-of-pack}\n"
        "  - {name: two, program: b, target: reference, rules: default, goals: dispatches,\n"
        "     set: [limits.vector=8 KiB], budget: {memory: 2 MiB}, expect: no_program}\n"
    )
    one, two = read_experiment(text, "e.yaml", [folder]).cells
    assert (one.program, one.rules, one.without) == ("a", ("layout/pack",), ("unpack-of-pack",))
    assert (one.set, one.expect) == (("tiles_forced=true",), "")
    assert one.budget == (("memory", 1 << 20), ("dispatches", 3))
    assert (two.program, two.rules, two.goals) == ("b", ("default",), (GoalRequest("dispatches"),))
    assert two.set == ("tiles_forced=true", "limits.vector=8 KiB")
    assert dict(two.budget) == {"memory": 2 << 20, "dispatches": 3}
    assert two.expect == "no_program"


def test_a_row_needs_its_program(folder: Path) -> None:
    text = "experiment: e\ndoc: d\nprograms: [a, b]\ntargets: reference\nrows:\n  - {name: one}\n"
    with pytest.raises(EqsatError) as caught:
        read_experiment(text, "e.yaml", [folder])
    assert [d.code for d in caught.value.diagnostics] == ["E260"]


def test_budgets_and_switches_vary(folder: Path) -> None:
    vary = (
        "vary: {budget: [[], memory=1MiB], without: [[], [x, y]], goals: [time, [memory, time]]}\n"
    )
    cells = read_experiment(HEAD + vary, "e.yaml", [folder]).cells
    assert {c.budget for c in cells} == {(), (("memory", 1 << 20),)}
    assert {c.without for c in cells} == {(), ("x", "y")}
    assert {tuple(g.name for g in c.goals) for c in cells} == {("time",), ("memory", "time")}


def test_goals() -> None:
    assert parse_goals(["time:within=1%", "memory"]) == (
        GoalRequest("time", None, 0.01), GoalRequest("memory"),
    )  # fmt: skip
    assert parse_goals(["time:2", "memory:0.5"]) == (
        GoalRequest("time", 2.0), GoalRequest("memory", 0.5),
    )  # fmt: skip
    for texts, code in (
        (["speed"], "E264"), (["time:fast"], "E264"), (["time", "time"], "E264"),
        (["time:1", "memory"], "E404"),
    ):  # fmt: skip
        with pytest.raises(EqsatError, match=code):
            parse_goals(texts)


def test_programs_are_found_by_name_and_file(folder: Path) -> None:
    assert find_program("a", [folder]) == str(folder / "programs" / "a.eqs")
    (folder / "programs" / "net.py").write_text("def mlp(x):\n    return x\n")
    assert find_program("net.py:mlp", [folder]) == str(folder / "programs" / "net.py") + ":mlp"
    with pytest.raises(EqsatError) as caught:
        find_program("ab", [folder])
    assert caught.value.diagnostics[0].code == "E261"


def test_experiments_are_found_by_name(folder: Path) -> None:
    (folder / "quick.yaml").write_text(HEAD)
    found = load_experiment("quick", [folder])
    assert (found.name, found.file) == ("e", str(folder / "quick.yaml"))
    with pytest.raises(EqsatError, match="E266"):
        load_experiment("quik", [folder])
