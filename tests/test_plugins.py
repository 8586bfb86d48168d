"""A separate wheel adds an op with rules, a tile strategy and a goal, without a patch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "plugin"


def build_wheel(project: Path, folder: Path, changes: Iterable[tuple[str, str]] = ()) -> Path:
    """A pure wheel of a project folder, as a build backend makes it (PEP 427), without one.

    changes: text to put in place of other text in its files; each must occur.
    """
    missing = {old for old, _ in changes}

    def read(path: Path) -> str:
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            missing.difference_update({old} if old in text else ())
            text = text.replace(old, new)
        return text

    data = tomllib.loads(read(project / "pyproject.toml"))["project"]
    name, version = data["name"].replace("-", "_"), data["version"]
    info = f"{name}-{version}.dist-info"
    entries = [
        line
        for group, points in data["entry-points"].items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()), "")
    ]
    files = {
        p.relative_to(project).as_posix(): read(p)
        for p in sorted(project.rglob("*"))
        if p.suffix in (".py", ".yaml")
    } | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {data['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: eqsat tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "\n".join(entries),
    }
    assert not missing, f"nothing to change: {missing}"
    record = "".join(f"{k},{digest(v)},{len(v.encode())}\n" for k, v in files.items())
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return wheel


def digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def install(wheel: Path) -> Path:
    """A folder that pip installs a wheel in, without a network; for PYTHONPATH."""
    site = wheel.parent / "site"
    words = ["pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--target", site, wheel],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "No module named pip" in done.stderr:
        return unpack(wheel)
    assert done.returncode == 0, done.stderr
    return site


def unpack(wheel: Path) -> Path:
    """What pip does with a pure wheel."""
    site = wheel.parent / "site"
    zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(build_wheel(PACKAGE, tmp_path_factory.mktemp("plugin")))


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The package with some text replaced, installed."""
    folder.mkdir(exist_ok=True)
    return unpack(build_wheel(PACKAGE, folder, changes))


def run(
    *words: str, site: Path | None = None, where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with the installed plug-in, and only that, on its path."""
    paths = [str(p) for p in (site,) if p is not None]
    return subprocess.run(
        [sys.executable, *words], cwd=where, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


def eqsat(
    *words: str, site: Path | None = None, where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    main = "import sys; from eqsat.cli import main; sys.argv[0] = 'eqsat'; main()"
    return run("-c", main, *words, site=site, where=where)


def python(code: str, site: Path | None, where: Path | None = None) -> None:
    """A script whose assertions must hold."""
    done = run("-c", code, site=site, where=where)
    assert done.returncode == 0, done.stderr


PROGRAM = """
program rolled
input x: f32[64, 48]
input w: f32[48, 32]
weight b: f32[64, 48]
y = roll(roll(add(x, b), shift=1, axis=0), shift=-3, axis=0) : f32[64, 48]
h = matmul(y, w)
return roll(h, axis=1, shift=5)
"""
TARGET = """
target: squared
doc: One byte moved costs 1 ns, and unpacked contractions are slow.
executor: xla
data_tiling: true
memory: [{name: ram, size: 1 GiB, bandwidth: 1000 GB/s}]
rates: {f32: 1 GFLOP/s}
source: invented
untiled_rate: 0.01
tiles: {matmul: {strategy: square}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("work")
    (found / "rolled.eqs").write_text(PROGRAM)
    (found / "squared.yaml").write_text(TARGET)
    return found


@pytest.fixture(scope="module")
def found(site: Path, folder: Path) -> dict[str, object]:
    """A program with the op, optimized by its rules for its goal on a target with its strategy."""
    done = eqsat(
        "optimize", "rolled.eqs", "--target", "squared.yaml", "--rules", "default", "--rules",
        "roll", "--goal", "time", "--goal", "bindings", "--verify", "-o", "kept",
        "--output-format", "json", site=site, where=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_wheel_adds_an_op_a_strategy_and_a_goal(found, folder: Path) -> None:
    assert found["verify"]["ok"]
    assert found["goals"]["bindings"]["gap"] == 0
    selection = json.loads((folder / "kept/3-selection.json").read_text())
    bound = sum(len(reads) + len(writes) for _, reads, writes, *_ in selection["groups"])
    assert found["goals"]["bindings"]["value"] == bound
    schedule = (folder / "kept/4-schedule.txt").read_text()
    assert schedule.count("= roll :") == 2, "two of the three rolls became one"
    egraph = json.loads((folder / "kept/2-egraph.json").read_text())
    rules = {r[0]: r for r in egraph["rules"]}
    assert rules["join-rolls"][3] > 0
    assert [32, 32, 1] in [a.get("tile") for a in egraph["attrs"]], "the strategy's tile"


def test_a_saved_run_can_be_looked_at_without_the_plugin(found, folder: Path) -> None:
    code = """
import contextlib, io
from eqsat.cli import run

def said(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as e:
        return run(words), e.getvalue()

for command in ("show", "explain", "rules", "compare"):
    words = [command, "kept", *["kept"] * (command == "compare")]
    assert said(*words) == (0, ""), words
exit_code, message = said("run", "kept")
assert exit_code == 2
assert "error[E601]: no plug-in that is installed brings the op `roll`" in message
"""
    python(code, None, folder)


def test_a_saved_run_executes_again(found, site: Path, folder: Path) -> None:
    done = eqsat("run", "kept", "--output-format", "json", site=site, where=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["goals"] == found["goals"]


def test_lists_name_what_is_plugged_in(site: Path) -> None:
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
"""
    python(code, site)


def test_programs_print_and_read_back(site: Path, folder: Path) -> None:
    code = """
from eqsat.lang.programs import load_program, parse_program
from eqsat.model.program import Program

p = load_program("rolled.eqs")
p.verify()
text = p.to_text()
assert "roll(%3, axis=0, shift=1) : f32[64, 48]" in text, text
assert parse_program(text) == p
again = Program.from_json(p.to_json())
assert again == p and hash(again.nodes[-1].attr) == hash(p.nodes[-1].attr)
"""
    python(code, site, folder)


MISTAKES = {
    "roll(x, shift=1)": ("E312", "`roll` needs attribute `axis`"),
    "roll(x, shift=1, axis=0, to=3)": ("E312", "`roll` has no attribute `to`"),
    "roll(x, shift=1, axis=2)": ("E301", "`roll` has no axis 2 of 2"),
    "roll(x, x, shift=1, axis=1)": ("E301", "`roll` takes 1 operand(s), got 2"),
    "roll(x, shift=0.5, axis=1)": ("E300", "a whole number is wanted here"),
    'near(x, cast(x, i32), within=1, mode="absolute", axes=[0])': (
        "E301",
        "operand 1 of `near` is floating, not i32",
    ),
    "rol(x, shift=1, axis=1)": ("E311", "no op named `rol`"),
    "roll(x, shift=1, axis=1) : f32[9]": ("E305", "`roll` gives f32[4, 3], not f32[9]"),
}


def test_mistakes_in_programs_are_sentences(site: Path) -> None:
    code = f"""
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError

for term, (code, message) in {MISTAKES!r}.items():
    try:
        parse_program(f"input x: f32[4, 3]\\nreturn {{term}}" if ":" not in term
                      else f"input x: f32[4, 3]\\ny = {{term}}\\nreturn y")
    except EqsatError as error:
        (found,) = error.diagnostics
        assert (found.code, message in found.message) == (code, True), found
    else:
        raise AssertionError(term)
"""
    python(code, site)


def test_rules_of_the_plugin_are_checked_and_hunted(site: Path) -> None:
    code = """
from eqsat.hunt.examples import check_examples
from eqsat.hunt.search import hunt
from eqsat.lang.rulesets import load_ruleset, read_ruleset

good = load_ruleset("roll")
assert check_examples(good) == []
for rule in good.rules:
    found = hunt(rule, instances=40)
    assert found.instances >= 40 and found.counterexample is None, (rule.name, found.counterexample)

bad = '''
ruleset: wrong
doc: Each of them is.
rules:
  - name: same-axis
    doc: The axis does not move.
    rewrite: transpose(roll(x, shift=s, axis=a), perm=p)
    to:      roll(transpose(x, perm=p), shift=s, axis=a)
  - name: one-shift
    doc: One of two shifts is lost.
    rewrite: roll(roll(x, shift=s, axis=a), shift=t, axis=a)
    to:      roll(x, shift=t, axis=a)
  - name: two-axes
    doc: Both axes are taken for one.
    rewrite: roll(roll(x, shift=s, axis=a), shift=t, axis=b)
    to:      roll(x, shift=roll.sum(s, t), axis=a)
  - name: into-a-pack
    doc: Padding is rolled into the data.
    rewrite: pack(roll(x, shift=s, axis=a), layout=l)
    to:      roll(pack(x, layout=l), shift=s, axis=a)
'''
for rule in read_ruleset(bad, "wrong.yaml").rules:
    assert hunt(rule, instances=200).counterexample is not None, rule.name
"""
    python(code, site)


def test_attributes_of_every_kind(site: Path) -> None:
    code = """
import numpy as np
import eqsat
from eqsat.lang.programs import parse_program
from eqsat.lang.rulesets import read_ruleset
from eqsat.hunt.search import hunt
from eqsat.model.program import Program

text = '''input x: f32[6, 4]
input y: f32[6, 4]
a = near(x, y, within=1, mode="relative", axes=[1])
b = near(x, y, axes=[], mode="absolute", within=2.0)
return a, b
'''
p = parse_program(text)
assert 'near(x, y, axes=[1], mode="relative", within=1.0) : bool[6]' in p.to_text()
assert parse_program(p.to_text(), "program") == p == Program.from_json(p.to_json())
run = eqsat.optimize(p, rules="roll", verify=True)
assert run.verification.ok
rule, = read_ruleset('''
ruleset: one
doc: A literal of kind float is matched, and made.
rules:
  - name: wider
    doc: It is not sound to compare more loosely.
    rewrite: near(x, y, within=0.0, mode=m, axes=a)
    to:      near(x, y, within=2.0, mode=m, axes=a)
''', "one.yaml").rules
assert "right True" in str(hunt(rule).counterexample), hunt(rule)
"""
    python(code, site)


def test_lanes_that_depend_on_garbage_are_found(site: Path) -> None:
    code = """
import numpy as np
from eqsat.ops.custom import dependent_lanes, make_custom

attr = make_custom("roll", [(4, 2)], {"shift": 1, "axis": 0})
opened = np.zeros((4, 2), bool)
opened[3, 1] = True
for x in (np.ones((4, 2)), np.full((4, 2), np.nan), np.ones((4, 2), np.int8), opened):
    lanes = dependent_lanes(attr, [x], [opened])
    assert lanes.sum() == 1 and lanes[0, 1], lanes
"""
    python(code, site)


# a package with this text replaced -> what is said about it
REFUSED = {
    "collides": (
        [
            ("eqsat_roll:ROLL", "eqsat_roll:ROLL"),
            ('roll = "', 'pad = "'),
            ('name="roll"', 'name="pad"'),
        ],
        "the op `pad` of eqsat-roll cannot be used: eqsat has a `pad` of its own",
    ),
    "scalar": (
        [('roll = "', 'tanh = "'), ('name="roll"', 'name="tanh"')],
        "eqsat has a `tanh` of its own",
    ),
    "named": ([('name="roll"', 'name="shift"')], "its record is named `shift`"),
    "no name": (
        [('roll = "', '"roll-2" = "'), ('name="roll"', 'name="roll-2"')],
        "`roll-2` is no name of an op",
    ),
    "no record": ([("eqsat_roll:ROLL", "eqsat_roll:square")], "it is a function, not an"),
    "missing": (
        [("eqsat_roll:ROLL", "eqsat_roll:LOST")],
        "cannot be loaded: AttributeError: module 'eqsat_roll' has no attribute 'LOST'",
    ),
    "broken": ([("import numpy as np", "import nonsuch")], "No module named 'nonsuch'"),
    "operands": ([("operands=1", "operands=0")], "`operands` is a number from 1 to 6, not 0"),
    "kind": ([('kind="move"', 'kind="conversion"')], "`kind` is one of elementwise, reduction"),
    "attribute": ([('"axis": "int"}', '"axis": "dim"}')], "`axis` is of kind `dim`, not one of"),
    "key": ([('"axis": "int"}', '"the axis": "int"}')], "`the axis` is no name of an attribute"),
    "function": ([("numpy=_numpy", "numpy=3")], "`numpy` is no function"),
    "operations": ([('kind="move"', "operations=0.5")], "`operations` is a whole number, not 0.5"),
    "accepts": ([('kind="move"', 'accepts=("x",)')], "has some of the letters fiub for each"),
    "dtype": ([('kind="move"', 'dtype="float"')], "there is no element type `float`"),
    "rules": ([('parent / "rules"', 'parent / "nowhere"')], "does not exist"),
    "taken": ([('"roll.sum":', '"compose":')], "cannot be used: there is a `compose` already"),
}


def test_plugins_that_are_wrong_are_refused_with_a_sentence(tmp_path: Path) -> None:
    sites = {k: str(changed(tmp_path / k, *v[0])) for k, v in REFUSED.items()}
    code = f"""
import importlib, sys
from eqsat.model.diag import EqsatError
from eqsat.ops import custom

said = {{}}
for name, site in {sites!r}.items():
    sys.path.insert(0, site)
    custom.custom_ops.cache_clear()
    importlib.invalidate_caches()
    for module in ("eqsat_roll", "eqsat.ops.attrs"):
        sys.modules.pop(module, None)
    try:
        importlib.import_module("eqsat.ops.attrs")
    except EqsatError as error:
        (found,) = error.diagnostics
        assert (found.code, error.exit_code) == ("E600", 2), found
        said[name] = found.message
    sys.path.remove(site)
for name, message in { ({k: v[1] for k, v in REFUSED.items()})!r}.items():
    assert message in said.get(name, ""), (name, said.get(name))
    assert "eqsat-roll" in said[name]
"""
    python(code, tmp_path)


def test_two_packages_with_one_op_are_refused(site: Path, tmp_path: Path) -> None:
    other = changed(
        tmp_path / "other",
        ('name = "eqsat-roll"', 'name = "roll-too"'),
        ("near = ", "too = "),
    )
    done = run(
        "-c", f"import sys; sys.path.append({str(other)!r}); from eqsat.cli import main; main()",
        "list", "ops", site=site,
    )  # fmt: skip
    assert done.returncode == 2
    assert "error[E600]: `eqsat-roll` and `roll-too` both bring the op `roll`" in done.stderr


# a package with this text replaced -> the goal asked for, what is said about it, the exit code
BREAKS = {
    "shape": (
        [(" np.roll(x, values", " (np.roll)(x[:1], values")],
        "its NumPy meaning gives [1, 48], its shape rule [64, 48]", 2,
    ),
    "jax": ([("jnp.roll(x, values", "jnp.nonsuch(x, values")], "its JAX meaning fails: Attr", 2),
    "type": ([("jnp.roll(x, values", "jnp.roll(x > 0, values")], "JAX meaning gives bool[64,", 2),
    "rate": ([("rate=1.0", "rate=2.0")], "the rate of a tile is a share of the peak", 2),
    "extent": ([('("k", 1)', '("k", 0)')], "the extents of a tile are whole numbers from 1", 2),
    "role": ([('("k", 1)', '("q", 1)')], "a tile has extents for m, n, k, not for m, n, q", 2),
    "no tile": ([("return [Tile(", "return [tuple(")], "fails: TypeError: tuple() takes no key", 2),
    "word": ([("[Tile((", "[str((("), (", rate=1.0)]", ", 1))]")], "which is no eqsat.model.", 2),
    "fails": ([("m, n = (", "m, n, k = (")], "it fails: ValueError: not enough values", 2),
    "value": (
        [("for g in selection.groups)\n", "for g in selection.groups) + 1\n")],
        "`build` adds up to", 4,
    ),
    "negative": ([("len(group.reads) +", "-9 +")], "not a whole number from 0 to 2^50", 4),
    "goal": ([("def value(", "def worth(")], "it has no method `value`", 2),
    "own": ([("bindings = ", "memory = ")], "eqsat has a goal `memory` of its own", 2),
}  # fmt: skip


def test_plugins_that_break_their_word_are_found_out(tmp_path: Path, folder: Path) -> None:
    cases = {k: (str(changed(tmp_path / k, *v[0])), *v[1:]) for k, v in BREAKS.items()}
    code = f"""
import contextlib, importlib, io, sys
from eqsat.cli import run
from eqsat.ops import custom, tiles

for name, (site, message, exit_code) in {cases!r}.items():
    sys.path.insert(0, site)
    custom.custom_ops.cache_clear()
    tiles._computed.cache_clear()
    importlib.invalidate_caches()
    sys.modules.pop("eqsat_roll", None)
    words = ["optimize", "rolled.eqs", "--target", "squared.yaml", "--verify"]
    words += ["--goal", "time" if name == "own" else "bindings", "--rules", "layout/contract"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as e:
        found = run(words)
    assert (found, message in e.getvalue()) == (exit_code, True), (name, found, e.getvalue())
    assert "eqsat-roll" in e.getvalue() and "Traceback" not in e.getvalue(), e.getvalue()
    sys.path.remove(site)
"""
    python(code, tmp_path, folder)


def test_strategies_in_targets(site: Path, folder: Path) -> None:
    code = """
import eqsat_roll
from eqsat.lang.programs import parse_program
from eqsat.lang.targets import load_target, override
from eqsat.model.diag import EqsatError
from eqsat.model.target import Target
from eqsat.ops.tiles import tiles_of

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
    python(code, site, folder)


def test_goals_in_requests(site: Path, folder: Path) -> None:
    code = """
from dataclasses import replace

import eqsat
from eqsat.extract import check
from eqsat.lang.experiments import parse_goals
from eqsat.model.diag import EqsatError
from eqsat.model.selection import GoalResult
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
assert any(line.startswith("bindings") for line in goal_table(first["bindings"]))
goals = tuple(
    (n, GoalResult(g.value + 1, g.bound) if n == "bindings" else g) for n, g in fewest.goals
)
(fault,) = check(run.egraph, run.target, replace(fewest, goals=goals)) or ["none"]
assert fault.startswith("`bindings` is"), fault
"""
    python(code, site, folder)


def test_experiments_take_goals_and_targets_of_plugins(site: Path, folder: Path) -> None:
    (folder / "plugged.yaml").write_text(
        """
experiment: plugged
doc: Goals and a strategy of a plug-in.
programs: rolled.eqs
targets: squared.yaml
rules: [default, roll]
vary: {goals: [time, bindings]}
"""
    )
    done = eqsat("experiment", "plugged.yaml", "--output-format", "json", site=site, where=folder)
    assert done.returncode == 0, done.stderr
    fast, few = json.loads(done.stdout)["rows"]
    assert few["goals_found"]["bindings"]["gap"] == 0
    assert few["time_us"] >= fast["time_us"]


def test_the_page_on_plugins_is_right(tmp_path: Path, folder: Path) -> None:
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
        folder,
    )
