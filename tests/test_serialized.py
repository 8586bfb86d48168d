"""egraph-serialize JSON: what is read exactly, what is wrong and where, and no tracebacks."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from eqsat.cli.app import run
from eqsat.dag.search import extract_dag
from eqsat.frontends.serialized import read_serialized
from eqsat.lang.explain import error_pages
from eqsat.model.deadline import elapsed
from eqsat.model.diag import EqsatError

SMALL = """{
  "nodes": {
    "a": {"op": "add", "children": ["b", "c"], "eclass": "1", "cost": 2.5},
    "b": {"op": "x", "children": [], "eclass": "2", "cost": 1},
    "c": {"op": "y", "children": [], "eclass": "3", "cost": 0.1}
  },
  "root_eclasses": ["1"]
}
"""
BAD = [
    # (text in place of another, code, line, column, part of the message)
    ('"op": "x", ', '"op": "x" ', "E340", 4, 21, "not JSON"),
    ('["b", "c"]', '["b", "z"]', "E341", 3, 42, "child `z` does not exist"),
    ('["b", "c"]', '["b", 7]', "E340", 3, 42, "not a number"),
    ('["b", "c"]', '"b"', "E340", 3, 36, "`children` has to be a list, not text"),
    ('"cost": 2.5', '"cost": NaN', "E343", 3, 71, "is not a number"),
    ('"cost": 2.5', '"cost": "2"', "E343", 3, 71, "has to be a number, not text"),
    ('"cost": 2.5', '"cost": null', "E343", 3, 71, "has to be a number, not null"),
    ('"cost": 2.5', '"cost": -Infinity', "E343", 3, 71, "may not be below"),
    ('"cost": 2.5', '"cost": 2.5, "cost": 2', "E342", 3, 76, "key `cost` appears twice"),
    ('"c": {', '"b": {', "E342", 5, 5, "key `b` appears twice"),
    ('"op": "y"', '"op": 3', "E340", 5, 17, "`op` has to be text, not a number"),
    ('"eclass": "3", ', "", "E340", 5, 5, "`eclass` is missing"),
    ('"eclass": "3"', '"eclass": ["3"]', "E340", 5, 48, "`eclass` has to be text, not a list"),
    ('["1"]', '["9"]', "E341", 7, 21, "root class `9` does not exist"),
    ('["1"]', "[]", "E341", 7, 20, "no roots"),
    ('["1"]', "[true]", "E340", 7, 21, "the name of a class, not true"),
    ('["1"]', '"1"', "E340", 7, 20, "`root_eclasses` has to be a list"),
    ('"root_eclasses"', '"roots"', "E340", 1, 1, "`root_eclasses` is missing"),
    ('"nodes"', '"nods"', "E340", 1, 1, "`nodes` is missing"),
    ('{"op": "x", "children": [], "eclass": "2", "cost": 1}', "4", "E340", 4, 10, "an object"),
]
WHOLE = [
    ("", "E340", "not JSON"),
    ("[1, 2]", "E340", "an object, not a list"),
    ('{"nodes": {}, "root_eclasses": ["1"]}', "E341", "no nodes"),
    ("[" * 200_000, "E340", "nested too deeply"),
    ('{"a":' * 200_000 + "1" + "}" * 200_000, "E340", "nested too deeply"),
    ('{"nodes": 1e99999999999999999999, "root_eclasses": []}', "E340", "too long"),
]


def read(text: str, folder: Path) -> Any:
    path = folder / "e.json"
    path.write_text(text, encoding="utf-8")
    return read_serialized(path)


def errors(text: str, folder: Path) -> list[Any]:
    with pytest.raises(EqsatError) as caught:
        read(text, folder)
    assert caught.value.exit_code == 2
    return list(caught.value.diagnostics)


@pytest.mark.parametrize(("old", "new", "code", "line", "column", "part"), BAD)
def test_a_wrong_file_says_what_and_where(old, new, code, line, column, part, tmp_path) -> None:
    assert SMALL.count(old) == 1
    text = SMALL.replace(old, new)
    found = errors(text, tmp_path)
    place = [(d.code, d.span.line, d.span.column) for d in found if part in d.message]
    assert place == [(code, line, column)], [d.full() for d in found]
    assert found[0].span.text == text.splitlines()[found[0].span.line - 1]


@pytest.mark.parametrize(("text", "code", "part"), WHOLE)
def test_a_file_of_another_kind(text, code, part, tmp_path) -> None:
    (found,) = errors(text, tmp_path)
    assert found.code == code
    assert part in found.message


def test_all_problems_are_said_at_once(tmp_path) -> None:
    text = SMALL.replace("2.5", "NaN").replace('"c"]', '"d"]').replace('["1"]', '["7", "1"]')
    assert [d.code for d in errors(text, tmp_path)] == ["E341", "E343", "E341"]


def test_very_many_problems_are_counted(tmp_path) -> None:
    nodes = {f"n{i}": {"eclass": "1", "children": ["x"]} for i in range(200)}
    found = errors(json.dumps({"nodes": nodes, "root_eclasses": ["1"]}), tmp_path)
    assert len(found) == 21
    assert any("and 180 more problems" in d.message for d in found)


def test_not_a_file_not_utf8_and_too_large(tmp_path, monkeypatch) -> None:
    for path in (tmp_path / "none.json", tmp_path, Path("/dev/null"), Path("a\0b")):
        with pytest.raises(EqsatError) as caught:
            read_serialized(path)
        assert caught.value.diagnostics[0].code == "E340"
    (tmp_path / "latin.json").write_bytes(b'{"\xe9": 1}')
    with pytest.raises(EqsatError, match="not UTF-8 at byte 2"):
        read_serialized(tmp_path / "latin.json")
    monkeypatch.setattr("eqsat.frontends.serialized.LARGEST_FILE_BYTES", 10)
    assert "at most 10" in errors(SMALL, tmp_path)[0].message


def test_costs_are_exact_and_the_rest_has_defaults(tmp_path) -> None:
    text = """{"nodes": {
      "a": {"eclass": "1", "cost": 0.1},
      "b": {"eclass": "1", "children": ["a"], "op": "f"},
      "c": {"eclass": "2", "cost": Infinity},
      "d": {"eclass": "2", "cost": 9007199254740992},
      "e": {"eclass": "2", "cost": 9007199254740991},
      "f": {"eclass": "2", "cost": 1e18},
      "g": {"eclass": "2", "cost": "inf"},
      "h": {"eclass": "2", "cost": 3, "subsumed": true},
      "i": {"eclass": "2", "cost": -1e-400},
      "j": {"eclass": "2", "cost": 0.43033599853515625}
    }, "root_eclasses": ["2", "1", "2"], "class_data": {"1": {"type": "T"}}}"""
    found = read(text, tmp_path)
    costs = {n.name: n.cost for n in found.nodes}
    assert costs == {
        "a": Fraction(1, 10), "b": 1, "c": None, "d": None, "e": 2**53 - 1, "f": None, "g": None,
        "h": None, "i": 0, "j": Fraction(43033599853515625, 10**17),
    }  # fmt: skip
    assert found.roots == ("2", "1")
    assert found.nodes[1].children == (0,)


def test_every_code_is_documented() -> None:
    assert {"E340", "E341", "E342", "E343", "E415", "E906"} <= set(error_pages())


def mutated(rng: random.Random) -> str:
    """A valid file after a few random edits of its text or of its data."""
    if rng.random() < 0.5:
        text = SMALL
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            end = at + rng.randint(0, 6)
            text = (
                text[:at] + rng.choice(['"', "{", "]", ",", "9", "e", "-", "", "\\u0"]) + text[end:]
            )
        return text
    data = json.loads(SMALL)
    junk = [None, True, -1, 1e300, "x", "1", "a", [], ["a"], {}, {"a": 1}, float("nan"), "\ud800"]
    for _ in range(rng.randint(1, 3)):
        places: list[Any] = [data]
        for p in places:
            inner = p.values() if isinstance(p, dict) else p
            places += [v for v in inner if isinstance(v, (dict, list)) and v]
        place = rng.choice(places)
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place[key] = copy.deepcopy(rng.choice(junk))
    return json.dumps(data)


def test_mutated_files_end_in_an_answer_or_in_diagnostics(tmp_path, capsys) -> None:
    rng, codes = random.Random(0), set()
    path = tmp_path / "e.json"
    for i in range(150):
        path.write_text(mutated(rng), encoding="utf-8", errors="surrogatepass")
        if i % 10:  # the command line itself takes its time
            with contextlib.suppress(EqsatError):
                extract_dag(read_serialized(path), deadline=elapsed() + 60)
            continue
        codes.add(code := run(["extract", str(path), "--output-format", "json"]))
        err = capsys.readouterr().err
        assert code in (0, 2, 3), err
        assert "Traceback" not in err
        assert (code == 0) == (not err)
    assert {0, 2} <= codes
