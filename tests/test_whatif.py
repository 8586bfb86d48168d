"""What would be if: a run without rules, a value forced into a layout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from seeds import seeds

import eqsat
from eqsat.api.whatif import NOTHING_MATCHED, forced_layout, without_rules
from eqsat.cli.app import run as main
from eqsat.extract.check import check
from eqsat.model.diag import EqsatError

TILES = ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]", "fusion.multi_result=true")


@pytest.fixture(scope="module")
def run() -> eqsat.Run:
    return eqsat.optimize(
        "transposed_pack", target="reference", settings=(*TILES, "tiles_forced=true")
    )


@pytest.fixture(scope="module")
def scan() -> eqsat.Run:
    return eqsat.optimize("permuted_consumer", target="iree-like")


def values(run: eqsat.Run) -> dict[str, int]:
    assert run.selection
    return {n: g.value for n, g in run.selection.goals}


@pytest.mark.parametrize(
    "names", seeds(1, [["layout/pack"], ["fold-transpose-into-pack"], ["interchange"]])
)
def test_without_rules_is_the_search_without_them(
    run: eqsat.Run, scan: eqsat.Run, names: list[str]
):
    for one in (run, scan):
        found = without_rules(one, names)
        left_out = [r.name for r in one.rules.rules if {r.name, r.ruleset, *r.tags} & set(names)]
        fresh = eqsat.optimize(
            one.source, target=one.target, rules=one.rules, without=left_out, unchecked=True
        )
        assert found.after
        assert values(found.after) == values(fresh)
        assert [(n, b) for n, _, b in found.figures()] == list(values(fresh).items())


def test_a_rule_that_matters_costs_what_it_saves():
    one = eqsat.optimize(
        "permuted_consumer.mlir", target="iree-like", settings=("fusion.index_relation=identity",)
    )
    found = without_rules(one, ["interchange"])
    text = found.to_text()
    assert "dispatches" in text
    assert dict((n, (a, b)) for n, a, b in found.figures())["dispatches"] == (1, 2)
    assert "these are not" in text
    assert json.loads(json.dumps(found.to_json()))["goals"]["dispatches"] == {
        "as_it_is": 1,
        "then": 2,
    }


def test_rules_that_match_nothing_are_not_searched_without(run: eqsat.Run):
    assert run.egraph
    idle = next(r.name for r in run.egraph.rules if not r.matches)
    found = without_rules(run, [idle])
    assert found.notes == (NOTHING_MATCHED,)
    assert found.after is run


def test_no_program_is_an_answer(run: eqsat.Run):
    found = without_rules(run, ["pack-contraction"])
    assert found.after is None
    assert "no choice is admissible" in found.to_text()
    assert found.to_json()["goals"]["time"]["then"] is None


def test_a_forced_layout_has_the_price_that_explain_tells():
    one = eqsat.optimize("two_packs", target="avx512-xla")
    assert one.egraph
    assert one.selection
    priced = 0
    for value in map(one.canonical.value_name, range(len(one.canonical.nodes))):
        for c in one.explain(value).choices:
            for a in c.alternatives:
                if a.question is None or a.question.kind != "written" or a.price is None:
                    continue
                layout = ", ".join(map(str, one.egraph.types[a.question.subject]))
                found = forced_layout(one, value, layout)
                if found.price is None or a.price.delta is None:
                    continue
                assert found.price.delta is not None
                assert found.price.delta <= a.price.delta
                assert found.after
                assert found.after.selection
                assert values(found.after)["time"] - values(one)["time"] == found.price.delta
                assert check(one.egraph, one.target, found.after.selection) == []
                priced += 1
    assert priced


def test_what_is_so_already_and_what_is_nowhere(run: eqsat.Run):
    kept = forced_layout(run, "b", "row-major")
    assert kept.notes == ("that is how it is kept",)
    assert "the same dispatches" in kept.to_text()
    nowhere = forced_layout(run, "a", "32x32")
    assert nowhere.after is None
    assert "no program here keeps it so" in nowhere.to_text()
    assert "matmul 16x16x16" in nowhere.to_text()
    assert "pack-contraction" in nowhere.to_text()


@pytest.mark.parametrize(
    ("words", "code", "help"),
    [
        (["--without", "pack-contractio"], "E007", "did you mean `pack-contraction`?"),
        (["a", "--force", "rowmajor"], "E394", "did you mean `row-major`?"),
        (["a", "--force", "pack(pos=[0], tiles=[7])"], "E", "pad"),
        (["a", "--force", "pack(pos=[9], tiles=[16])"], "E", ""),
        (["zzz", "--force", "16x16"], "E303", ""),
        (["--force", "16x16"], "E400", "eqsat explain DIR VALUE --force"),
        (["a", "--without", "pack-contraction"], "E400", "leave out `a`"),
        (["a", "--force", "16x16", "--without", "x"], "E400", "one after the other"),
    ],
)
def test_what_cannot_be_asked_is_told(
    run: eqsat.Run, words: list[str], code: str, help: str, tmp_path: Path, capsys
):
    folder = run.save(tmp_path / "run")
    assert main(["explain", str(folder), *words]) == 2
    told = capsys.readouterr().err
    assert f"error[{code}" in told
    assert help in told


def test_the_command_line_prints_json(run: eqsat.Run, tmp_path: Path, capsys):
    folder = run.save(tmp_path / "run")
    assert main(["explain", str(folder), "b", "--force", "row-major", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["that is how it is kept"]
    assert main(["explain", str(folder), "--without", "layout/pack", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["asked"] == "without layout/pack"
    assert set(found["goals"]) == {"time", "memory", "dispatches"}


def test_raises_as_documented(run: eqsat.Run):
    with pytest.raises(EqsatError, match="E007"):
        without_rules(run, ["no-such-rule"])
