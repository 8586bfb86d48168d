"""Rule-set files: imports, selection, reverse rules, examples, and the sets that ship."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeds import seeds

from eqsat.lang import rulesets
from eqsat.lang.explain import explain
from eqsat.lang.rule import parse_example
from eqsat.lang.rulesets import find_rules, load_ruleset, load_rulesets, read_ruleset
from eqsat.lang.schema import schema
from eqsat.model.diag import EqsatError
from eqsat.model.rules import PHASES, Apply
from eqsat.plugins import data_folder, find_names

HEAD = "ruleset: test\ndoc: d\n"
COMPOSE = """
rules:
  - name: compose
    doc: Two reshapes are one.
    rewrite: reshape(reshape(x, groups=r), shape=s)
    to:      reshape(x, shape=s)
"""


def names(text: str, *folders: Path) -> list[str]:
    return [r.name for r in read_ruleset(text, "f.yaml", folders).rules]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sets that share a third."""
    (tmp_path / "base.yaml").write_text("ruleset: base\ndoc: d\ntags: [basic]" + COMPOSE)
    drop = (
        "ruleset: drop\ndoc: d\nimport: [base]\nphase: cancel\nrules:\n"
        "  - {name: drop, doc: d, rewrite: 'reshape(x, groups=r)', to: x,"
        " where: ['is_identity(r)'], tags: [late]}\n"
    )
    (tmp_path / "drop.yaml").write_text(drop)
    return tmp_path


@pytest.mark.parametrize("most", seeds(1, [1, 99]))  # `eqsat check` reads all of them
@pytest.mark.parametrize("name", sorted(find_names("rules", ".yaml")))
def test_shipped_sets_load_and_their_examples_are_programs_over_the_same_inputs(
    name: str, most: int
) -> None:
    ruleset = load_ruleset(name)
    assert ruleset.name == name
    assert len({r.name for r in ruleset.rules}) == len(ruleset.rules)
    for rule in ruleset.rules:
        assert rule.phase in PHASES
        assert rule.at.split(":")[0].endswith(".yaml")
        for example in rule.examples[:most]:
            start, goal = parse_example(rule, example)
            assert [start.leaf(i) for i in start.inputs] == [goal.leaf(i) for i in goal.inputs]
            assert start.nodes[start.results[0]].types == goal.nodes[goal.results[0]].types
            start.verify()
            goal.verify()


def test_imports_come_first_and_once(folder: Path) -> None:
    assert names(HEAD + "import: [drop, base]\n", folder) == ["compose", "drop"]
    merged = load_rulesets(["base", "drop"], [folder])
    assert [r.name for r in merged.rules] == ["compose", "drop"]


def test_enable_and_disable_by_name_and_tag(folder: Path) -> None:
    imports = HEAD + "import: [drop]\n"
    assert names(imports + "enable: [basic]\n", folder) == ["compose"]
    assert names(imports + "disable: [late]\n", folder) == ["compose"]
    assert names(imports + "disable: [compose]\n", folder) == ["drop"]


def test_tags_and_phase_of_the_file(folder: Path) -> None:
    compose, drop = load_ruleset("drop", [folder]).rules
    assert (compose.tags, compose.phase, compose.ruleset) == (("basic",), "canonicalise", "base")
    assert (drop.tags, drop.phase) == (("late",), "cancel")


def test_search_path(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQSAT_PATH", str(folder))
    assert find_rules("base") == folder / "base.yaml"
    other = tmp_path / "other"
    (other / "rules").mkdir(parents=True)
    (other / "rules" / "base.yaml").write_text("x")
    monkeypatch.setenv("EQSAT_PATH", str(other))
    assert find_rules("base") == other / "rules" / "base.yaml"
    assert find_rules("base", [folder]) == folder / "base.yaml"


def test_unknown_set_names_the_nearest() -> None:
    with pytest.raises(EqsatError) as caught:
        load_ruleset("layout/pck")
    (d,) = caught.value.diagnostics
    assert (d.code, d.help) == ("E007", "did you mean `layout/pack`?")


def test_two_sets_may_not_give_one_name_two_meanings(folder: Path) -> None:
    other = COMPOSE.replace("shape=s)\n    to", "groups=s)\n    to").replace("shape=s", "groups=s")
    (folder / "other.yaml").write_text("ruleset: other\ndoc: d" + other)
    with pytest.raises(EqsatError, match="two rules are named `compose`"):
        load_rulesets(["base", "other"], [folder])


def test_both_ways_makes_the_reverse_rule() -> None:
    body = (
        "rules:\n  - name: move\n    doc: d\n    both_ways: true\n"
        "    rewrite: pack(unpack(x, layout=l), layout=m)\n"
        "    to: retype(relax(x, layout=m), layout=l)\n"
    )
    there, back = read_ruleset(HEAD + body, "f.yaml").rules
    assert (there.name, back.name) == ("move", "move-back")
    assert (there.left.op, back.left.op) == ("pack", "retype")
    assert isinstance(back.right, Apply)
    assert back.right.op == "pack"
    assert back.at == there.at


def test_problems_of_a_file_come_together_and_sorted() -> None:
    body = (
        "rules:\n"
        "  - {name: b, doc: d, rewrite: 'pack(x, layout=l)', to: y}\n"
        "  - {name: a, doc: d, rewrite: 'pak(x, layout=l)', to: x}\n"
        "rules: []\n"
    )
    with pytest.raises(EqsatError) as caught:
        read_ruleset(HEAD + body, "f.yaml")
    found = [[f"{d.span}:", d.code] for d in caught.value.diagnostics]
    assert found == [["f.yaml:4:57:", "E020"], ["f.yaml:5:33:", "E011"], ["f.yaml:6:1:", "E002"]]


def test_where_in_brackets_explains_itself() -> None:
    body = (
        "rules:\n  - name: a\n    doc: d\n    rewrite: pack(unpack(y, layout=m), layout=l)\n"
        "    where: [same_tiles(l, m)]\n    to: y\n"
    )
    with pytest.raises(EqsatError) as caught:
        read_ruleset(HEAD + body, "f.yaml")
    assert all("commas split" in d.help for d in caught.value.diagnostics)


def test_same_name_in_import_and_file_is_refused(folder: Path) -> None:
    with pytest.raises(EqsatError) as caught:
        read_ruleset(HEAD + "import: [base]" + COMPOSE, "f.yaml", [folder])
    assert [d.code for d in caught.value.diagnostics] == ["E006"]


def test_data_folders_exist() -> None:
    for kind in ("rules", "targets", "experiments", "docs"):
        assert data_folder(kind).is_dir()
    with pytest.raises(ValueError, match="no data folder"):
        data_folder("secrets")


def test_schemas_name_every_key() -> None:
    rule = schema("ruleset")["$defs"]["RuleRecord"]["properties"]
    assert {"rewrite", "to", "where", "let", "foreach", "examples"} <= set(rule)
    assert "import" in schema("ruleset")["properties"]
    assert schema("target")["properties"]["launch"]["type"] == "string"
    with pytest.raises(EqsatError, match="E267"):
        schema("rules")


def test_explain() -> None:
    assert explain("e020").startswith("E020: a name is not bound")
    assert "# " not in explain("E025")
    with pytest.raises(EqsatError, match="E268"):
        explain("E000")


def test_a_file_is_read_once_whoever_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = rulesets.load_yaml
    monkeypatch.setattr(rulesets, "load_yaml", lambda p: read.append(Path(p).stem) or plain(p))
    (tmp_path / "inner.yaml").write_text("ruleset: inner\ndoc: d.\nrules: []\n")
    for name in ("one", "two"):
        text = f"ruleset: {name}\ndoc: d.\nimport: [inner]\nrules: []\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    for name in ("one", "two", "inner", "one"):
        assert load_ruleset(name, [tmp_path]).name == name
    assert read == ["one", "inner", "two"]


def test_a_set_is_read_again_when_one_of_its_files_changes(tmp_path: Path) -> None:
    rule = """
  - name: {}
    doc: Two transposes are one.
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to: transpose(x, perm=compose(p, q))
"""
    inner, outer = tmp_path / "inner.yaml", tmp_path / "outer.yaml"
    inner.write_text(f"ruleset: inner\ndoc: d.\nrules:{rule.format('one')}")
    outer.write_text(f"ruleset: outer\ndoc: d.\nimport: ['{inner}']\nrules: []\n")
    first = load_ruleset(outer)
    assert load_ruleset(outer) is first
    inner.write_text(f"ruleset: inner\ndoc: d.\nrules:{rule.format('another')}")
    assert [r.name for r in load_ruleset(outer).rules] == ["another"]
    inner.unlink()
    with pytest.raises(EqsatError, match="no rule file"):
        load_ruleset(outer)
