"""A state that stays packed between calls: the same numbers, and a price for every layout."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library import arrays, module, tiny

import eqsat
from eqsat.api import keep_state
from eqsat.api.keep_state import Kept
from eqsat.cli.app import run as cli
from eqsat.lang.programs import parse_program
from eqsat.model.diag import EqsatError
from eqsat.model.layout import Border, Layout
from eqsat.ops.builtin.layouts import pack
from eqsat.ops.meaning.programs import evaluate_program
from eqsat.ops.programs.border_layouts import demanded, laid_out
from eqsat.report.finished import ELSEWHERE
from eqsat.report.formatting import goal_text

TEXT = """
input x: f32[64, 48]
input cache: f32[32, 48]
new = add(cache, cache)
t = transpose(new, perm=[1, 0]) : f32[48, 32]
y = matmul(x, t)
return y, new
"""
FORCED = ("tiles_forced=true", "fusion.siblings=false")  # else packs join the matmuls


def decode() -> tuple[Any, tuple[Any, ...]]:
    m = module("gpt2")
    c = replace(
        tiny("gpt2"), layers=1, width=32, tokens=16, positions=16
    )  # tiles of 16 divide the cache

    def step(token: Any, position: Any, cache: Any, params: Any) -> Any:
        return m.decode(token, position, cache, params, c)

    cache = arrays(c.cache, seed=1)
    return step, (np.array([3], np.int32), np.int32(5), cache, arrays(m.shapes(c)))


def test_a_program_with_a_packed_state_packs_what_the_plain_one_returns() -> None:
    program = parse_program(
        "input x: f32[6, 8]\ny = add(x, x)\nz = mul(x, y)\nreturn y, z\n", "t.eqs"
    )
    for layout in (Layout((6, 8), (1,), (4,), (1, 0), ("-",)), Layout((6, 8), (), (), (1, 0), ())):
        kept = laid_out(program, {Border("input", 0): layout, Border("result", 1): layout})
        kept.verify()
        x = np.arange(48, dtype=np.float32).reshape(6, 8)
        first, second = evaluate_program(kept, [pack(layout, x)], {})
        np.testing.assert_array_equal(first, x * 2)
        np.testing.assert_array_equal(second, pack(layout, 2 * x * x))


def test_the_layouts_that_are_tried_are_those_the_rules_want() -> None:
    step, args = decode()
    run = eqsat.optimize(step, *args, weights=("params",), target="avx512-xla", stop_after="egraph")
    assert run.egraph is not None
    found = demanded(run.egraph)
    caches = {Border("input", i) for i in range(2, 2 + 4)}  # after token and position
    assert {b for b in found if b.kind == "input"} <= caches
    assert caches & found.keys()
    for border, layouts in found.items():
        p = run.program
        t = p.nodes[(p.inputs if border.kind == "input" else p.results)[border.number]].type
        assert all(x.source == t.shape for x in layouts)


def attend(x: Any, cache: Any) -> Any:
    """f32[64, 48] and a pair of f32[64, 48]: what a cache is to a decoder, in two matmuls."""
    keys, values = (old * 0.5 + x for old in cache)
    return (x @ keys.T) @ values, (keys, values)


@cache  # a search for every layout; tests read it
def kept(target: str = "avx512-xla", settings: tuple[str, ...] = ()) -> Kept:
    x = np.ones((64, 48), np.float32)
    return eqsat.keep_state(attend, x, (x, x), state={"cache": 1}, target=target, settings=settings)


def test_a_cache_is_kept_packed_where_that_is_cheaper() -> None:
    found = kept(settings=FORCED)
    plain, best = found.alternatives[0], found.best
    assert plain.layouts == {}
    assert best.layouts
    assert best.values < plain.values
    assert found.run.verify(samples=1).ok
    assert "* " in found.to_text()
    assert "as pack(" in found.to_text()


def test_every_layout_has_its_price() -> None:
    found = kept(settings=FORCED)
    plain = found.alternatives[0]
    assert {t for a in found.alternatives for t in a.layouts} == set(found.ties)
    rows = [line for line in found.to_text().splitlines() if " as pack(" in line]
    for a, row in zip(found.alternatives[1:], rows, strict=False):
        price = a.run.summary()["goals"]["time_us"]["value"] * 1e6 - plain.values[0]
        sign = "+" if price >= 0 else "-"
        assert f"  {sign}{goal_text('time', round(abs(price)))}  0.0%  cache_" in row


def test_without_data_tiling_no_layout_is_wanted() -> None:
    found = kept(target="no-data-tiling")
    assert not [x for a in found.alternatives for x in a.layouts.values() if x.tiles]


def test_calls_in_the_kept_layout_hand_the_state_on() -> None:
    found = kept(settings=FORCED)
    rng = np.random.default_rng(0)
    x, *cache = rng.standard_normal((3, 64, 48)).astype("f4")
    names = [t.name for t in found.ties]
    packed: Any = tuple(found.pack(n, a) for n, a in zip(names, cache, strict=True))
    assert any(a.ndim > 2 for a in packed)
    call = found.run.compile()
    for _ in range(3):
        wanted, cache = attend(x, cache)
        y, packed = call(x, packed)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-3)
    for n, a, plain in zip(names, packed, cache, strict=True):
        np.testing.assert_allclose(found.unpack(n, a), plain, rtol=1e-5)
    with pytest.raises(EqsatError, match="no state named `cash`"):
        found.pack("cash", x)


def test_a_text_program_names_its_state_by_input_and_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.eqs"
    path.write_text(TEXT)
    options = ["--target", "avx512-xla", "--output-format", "json", "-q"]
    assert cli(["state", str(path), "--state", "cache=1", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["states"] == {"cache": "f32[32, 48]"}
    assert found["alternatives"][0]["layouts"] == {}
    assert len(found["alternatives"]) > 1
    values = [a["time_us"] for a in found["alternatives"]]
    assert values[found["best"]] == min(values)


def test_a_search_that_was_cut_is_marked_with_its_gap() -> None:
    found = kept()
    assert "~" not in found.to_text()
    assert f"Best {ELSEWHERE}: " in found.to_text()
    cut = found.alternatives[1]
    assert cut.run.selection is not None
    (name, goal), *rest = cut.run.selection.goals
    goals = ((name, replace(goal, bound=goal.value // 2)), *rest)
    late = replace(cut.run.selection, goals=goals, stop="order time")
    rows = (found.alternatives[0], replace(cut, run=replace(cut.run, selection=late)))
    told = replace(found, alternatives=rows, best=rows[0])
    text = told.to_text()
    assert "50.0% ~ order time" in next(line for line in text.splitlines() if " as " in line)
    assert "~ its search was cut" in text and "Best found: plain" in text
    stops = [a["stop"] for a in told.to_json()["alternatives"]]
    assert stops == ["optimal", "order time"]


def test_rows_are_printed_as_their_searches_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.eqs"
    path.write_text(TEXT)
    seen: list[str] = []
    search = keep_state.optimize

    def watched(*args: Any, **kwargs: Any) -> eqsat.Run:
        seen.append(capsys.readouterr().err)
        return search(*args, **kwargs)

    monkeypatch.setattr(keep_state, "optimize", watched)
    args = ["state", str(path), "--state", "cache=1", "--target", "avx512-xla"]
    assert cli(args) == 0
    last = capsys.readouterr()
    told = "".join([*seen, last.err]).splitlines()
    assert seen[0] == "" and seen[1].startswith("plain: time ")
    assert len(told) == len(seen) == sum("%" in line for line in last.out.splitlines())
    assert cli([*args, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ({}, "E397", "names no state"),
        ({"cash": 1}, "E397", "no argument"),
        ({"cache": 0}, "E398", "comes as f32[32, 48] and goes as f32[64, 32]"),
        ({"cache": 7}, "E398", "goes as nothing"),
    ],
)
def test_what_is_no_state_is_refused(state: dict[str, int], code: str, words: str) -> None:
    program = parse_program(TEXT, "t.eqs")
    with pytest.raises(EqsatError) as error:
        eqsat.keep_state(program, state=state, target="reference", time_limit=2)
    assert error.value.diagnostics[0].code == code
    assert words in str(error.value)


def test_a_malformed_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["state", "two_packs", "--state", "cache"]) == 2
    assert "E397" in capsys.readouterr().err
