"""Answers that are kept: taken for the same request only, whole or not at all, and checked once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import eqsat
from eqsat.api import background
from eqsat.cli import run as command
from eqsat.lang.programs import parse_program
from eqsat.model import filecache
from eqsat.model.deadline import Stop
from eqsat.model.diag import EqsatError
from eqsat.model.files import is_private
from eqsat.run import Run, answers

TEXT = """program kept
input x: f32[8, 16]
weight w: f32[16, 8]
y = matmul(x, w)
return relu(y)
"""
X = np.linspace(-1, 1, 128, dtype="f4").reshape(8, 16)
W = np.linspace(-2, 1, 128, dtype="f4").reshape(16, 8)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of answers, which are kept here."""
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EQSAT_ANSWERS", "keep")
    return tmp_path / "cache" / "answers"


def searched(text: str = TEXT, **options: Any) -> Run:
    request = {"target": "reference", "rules": ()} | options
    return eqsat.optimize(parse_program(text), **request)


def same(a: Run, b: Run) -> bool:
    return all(
        getattr(a, stage) == getattr(b, stage)
        for stage in ("schedule", "selection", "egraph", "baseline_schedule", "canonical", "goals")
    )


def test_an_answer_is_taken_whole_and_says_since_when():
    first, again, anew = searched(), searched(), searched(cache=False)
    assert not first.searched_at and not anew.searched_at
    assert again.searched_at.endswith("Z")
    assert same(first, again)
    assert again.summary()["searched_at"] == again.searched_at
    assert first.summary()["searched_at"] is None
    for run in (first, again):
        run.use_weights({"w": W})
    np.testing.assert_array_equal(first(X)[0], again(X)[0])
    assert again.explain().to_text() == first.explain().to_text()


def test_a_loop_and_a_program_of_open_sizes_come_back_whole():
    def loop(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ jnp.ones((8, 8))), x)

    runs = [eqsat.optimize(loop, X[:, :8], target="reference", rules=()) for _ in range(2)]
    assert same(*runs) and runs[1].searched_at
    assert list(runs[0].bodies) == list(runs[1].bodies)
    assert all(same(runs[0].bodies[k], runs[1].bodies[k]) for k in runs[0].bodies)
    text = TEXT.replace("input x: f32[8", "symbol m divisor=4 size=8\ninput x: f32[m")
    first, again, larger = (
        searched(text),
        searched(text),
        searched(text.replace("size=8", "size=16")),
    )
    assert again.searched_at and not larger.searched_at
    assert same(first, again)
    assert (first.family, first.program) == (again.family, again.program)
    assert eqsat.bind(again, {"m": 12}).schedule == eqsat.bind(first, {"m": 12}).schedule


def test_another_request_is_another_answer():
    """None of them is searched for it: a key is of what was asked."""
    keys = {answers.answer_key(searched(stop_after="program"))}
    rules = eqsat.rules("layout/transpose")
    others: list[dict[str, Any]] = [
        {"target": "avx2"},
        {"rules": "default"},
        {"rules": rules},
        {"rules": replace(rules, rules=rules.rules[1:])},
        {"goals": ("memory",)},
        {"budget": {"memory": "1 MiB"}},
        {"limits": {"nodes": 19_000}},
        {"time_limit": 59.0},
        {"seed": 1},
        {"extractor": "greedy"},
        {"settings": ("launch=1 us",)},
        {"text": TEXT.replace("y = matmul", "z = matmul").replace("relu(y)", "relu(z)")},
        {"text": TEXT.replace("kept", "other")},
        {"text": TEXT.replace("f32[8, 16]", "f32[4, 16]")},
        {"weights": ("x",)},
    ]
    for options in others:
        key = answers.answer_key(searched(stop_after="program", **options))
        assert key and key not in keys, options
        keys.add(key)
    assert answers.answer_key(searched(stop_after="program", threads=1)) in keys


def test_what_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch):
    searched(layouts={"x": [1, 0]})
    searched(stop_after="egraph")
    stop = Stop()
    searched(stop=stop, progress=lambda now: stop.request() if stop.has_answer else None)
    monkeypatch.setattr(answers, "plugged_in", lambda group: {"own": None})
    searched()
    assert not place.exists() or not list(place.iterdir())
    monkeypatch.setenv("EQSAT_ANSWERS", "seldom")
    with pytest.raises(EqsatError, match=r"E271.*EQSAT_ANSWERS=seldom"):
        searched()


def test_damage_is_searched_again(place: Path, caplog: pytest.LogCaptureFixture):
    searched()
    (path,) = place.iterdir()
    good = path.read_bytes()
    for i in range(0, len(good), max(len(good) // 7, 1)):
        path.write_bytes(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :])
        assert answers.recalled(path.stem, searched(stop_after="program")) is None
    path.write_bytes(good[:-9])
    assert not searched().searched_at
    other = place / f"{'0' * 40}.answer"
    other.write_bytes(path.read_bytes())  # sealed, and the answer to something else
    other.chmod(0o600)
    with caplog.at_level(logging.INFO, "eqsat.answers"):
        assert answers.recalled(other.stem, searched(stop_after="program")) is None
    assert "the answer to another request" in caplog.text


def test_a_folder_that_cannot_be_written_or_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    place.parent.write_text("no folder")
    with caplog.at_level(logging.INFO, "eqsat.answers"):
        assert searched().schedule is not None
    assert "cannot be written" in caplog.text
    place.parent.unlink()
    searched()
    place.chmod(0o777)
    is_private.cache_clear()
    with pytest.warns(Warning, match="E516.*no answer is kept"):
        assert not searched().searched_at
    is_private.cache_clear()


def test_a_kill_before_the_rename_leaves_what_is_taken_away(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            searched()
    (left,) = place.iterdir()
    assert left.suffix == filecache.ASIDE
    assert not searched().searched_at
    assert searched().searched_at
    os.utime(left, (0, 0))
    answers.ANSWERS.shrink()
    assert [p.suffix for p in place.iterdir()] == [".answer"]


def test_answers_used_longest_ago_go_first(place: Path, monkeypatch: pytest.MonkeyPatch):
    runs = [searched(seed=seed) for seed in range(3)]
    for age, run in enumerate(runs):
        os.utime(answers.ANSWERS.path(run.cache_key), (age, age))
    assert searched(seed=0).searched_at
    size = sum(p.stat().st_size for p in place.iterdir())
    monkeypatch.setattr(answers.ANSWERS, "largest_bytes", size - 1)
    answers.ANSWERS.shrink()
    assert {p.stem for p in place.iterdir()} == {runs[0].cache_key, runs[2].cache_key}


def test_another_process_takes_it(tmp_path: Path):
    (tmp_path / "kept.eqs").write_text(TEXT)
    code = (
        "import eqsat, sys; run = eqsat.optimize(eqsat.read(sys.argv[1]), target='reference');"
        "print(run.searched_at or 'searched', 'ortools' in sys.modules)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "kept.eqs")]
    said = [subprocess.check_output(words, text=True).split() for _ in range(2)]
    assert said[0] == ["searched", "True"]
    assert said[1][1:] == ["False"]
    assert said[1][0] != "searched"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "kept.eqs").write_text(TEXT)
    ask = ["optimize", str(tmp_path / "kept.eqs"), "--target", "reference"]
    for more in ([], [], ["--no-cache"], ["--print-after", "normal"]):
        assert command([*ask, *more]) == 0
    kept = [line for line in capsys.readouterr().out.splitlines() if "answer kept since" in line]
    assert len(kept) == 1
    assert command(["cache", "list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = told["answers"]
    assert (row["program"], row["target"], row["searched_at"] in kept[0]) == (
        "kept", "reference", True,
    )  # fmt: skip
    assert command(["cache"]) == command(["cache", "path"]) == command(["cache", "clear"]) == 0
    out = capsys.readouterr().out
    assert "kept     reference" in out and "cleared 1 answer(s)" in out
    assert command(["cache", "list"]) == 0
    assert capsys.readouterr().out.startswith("0 answer(s)")


# ---- eqsat.jit -----------------------------------------------------------------------------------
def layer(w: Any, x: Any) -> Any:
    """The answer is another program: the transposes go."""
    return (w.T @ x.T).T + 1


def jitted(**options: Any) -> Any:
    return eqsat.jit(layer, weights=["w"], target="reference", **options)


def test_a_first_call_that_agreed_is_not_checked_by_the_next_process():
    first, second, always = jitted(), jitted(), jitted(check="always")
    for f in (first, second, always):
        np.testing.assert_allclose(f(W, X), layer(W, X), rtol=1e-5)
    assert [f.checks[0].why for f in (first, second, always)] == ["agrees", "agreed", "agrees"]
    np.testing.assert_allclose(second(W + 1, X), layer(W + 1, X), rtol=1e-5)


def until_switched(f: Any, *args: Any) -> None:
    end = time.monotonic() + 60
    while not f.checks and time.monotonic() < end:
        np.testing.assert_allclose(f(*args), layer(*args), rtol=1e-5)
        time.sleep(0.01)


def test_in_the_background_the_function_serves_until_the_answer_is_there(
    monkeypatch: pytest.MonkeyPatch,
):
    begun, go = threading.Event(), threading.Event()

    def slowly(*args: Any, **options: Any) -> Run:
        begun.set()
        assert go.wait(60)
        return eqsat.optimize(*args, **options)

    monkeypatch.setattr("eqsat.api.jit.optimize", slowly)
    f = jitted(background=True)
    for _ in range(30):  # calls are C after some of them
        np.testing.assert_allclose(f(W, X), layer(W, X), rtol=1e-5)
    assert begun.wait(60)
    assert not f.runs
    go.set()
    until_switched(f, W, X)
    assert [c.kept for c in f.checks] == ["answer"]
    other = X[:4]
    f(W, other)  # a shape of its own
    end = time.monotonic() + 60
    while len(f.checks) < 2 and time.monotonic() < end:
        np.testing.assert_allclose(f(W, other), layer(W, other), rtol=1e-5)
        time.sleep(0.01)
    assert len(f.checks) == 2
    np.testing.assert_allclose(jax.jit(lambda x: f(W, x))(X), layer(W, X), rtol=1e-5)


def test_a_search_that_fails_in_the_background_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def failing(*args: Any, **options: Any) -> Run:
        raise ValueError("nothing works")

    monkeypatch.setattr("eqsat.api.jit.optimize", failing)
    f = jitted(background=True)
    with caplog.at_level(logging.WARNING, "eqsat.jit"):
        f(W, X)
        end = time.monotonic() + 60
        while not caplog.records and time.monotonic() < end:
            time.sleep(0.01)
        for _ in range(20):
            np.testing.assert_allclose(f(W, X), layer(W, X), rtol=1e-5)
    assert [r.message for r in caplog.records] == [
        "`layer`: the search failed, the function itself serves: nothing works"
    ]


@pytest.mark.parametrize("options", [{"check": "never"}, {"derivatives": "searched"}])
def test_what_does_not_go_with_the_background(options: dict[str, Any]):
    with pytest.raises(EqsatError, match=r"E400.*background"):
        jitted(background=True, **options)


@pytest.mark.parametrize("verbose", [True, False])
def test_a_long_search_says_so(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(background, "SILENT_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "eqsat.jit"):
        jitted(verbose=verbose).optimize(W, jnp.asarray(X))
    said = [r.message.split(":")[0:2] for r in caplog.records]
    lines = [["`layer`", " searching for a faster program, for 60 s at most"]]
    assert said[:1] == (lines if verbose else [])
    assert len(said) == (2 if verbose else 0)
