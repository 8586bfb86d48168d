"""The hunt over functions people write: what it draws, how it judges, forty, old bugs."""

from __future__ import annotations

import json
import logging
import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from fuzz import asjax, asonnx, children, onnxlines, tried, writtenmoves
from fuzz.children import CRASH, HANG, Child
from fuzz.runs import functions
from fuzz.smallest import smallest
from fuzz.tried import ALARM, MACHINES, SHAPE, VARIES, WRONG, tried_in_jax, tried_in_onnx
from fuzz.writer import Writer
from fuzz.written import Argument, Line, Written
from gates import asked_and_told
from runnable import needs, why_not
from seeds import one_in, seeds, some
from writtencases import CASES

import eqsat

JAX, ONNX = functions.LANGUAGES["jax"], functions.LANGUAGES["onnx"]
EXAMPLE = Written(
    (Argument("x0", "float32", (33, 8)), Argument("x1", "float32", (8, 40), is_weight=True)),
    (Line(("v0",), "x0 @ x1"), Line(("v1", "v2"), "jnp.split(v0, [24], 1)"),
     Line(("v3",), "jnp.tanh(v1) * 2"), Line(("v4",), "jnp.sin(x0)")),
    ("v3", "v2", "v4"),
)  # fmt: skip


def skip_without(machine: str) -> None:
    """Skip where the kernels of a machine cannot run."""
    target, settings = MACHINES[machine]
    if not settings:
        needs(target)


# ---- what it finds -------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", seeds(4, 100))
def test_a_function_is_what_jax_computes(seed: int) -> None:
    machine = list(MACHINES)[seed % len(MACHINES)]
    skip_without(machine)
    written = functions.function(seed, machine)
    row = tried_in_jax(asjax.function(written), written.arrays, machine, written.weights)
    assert row["outcome"] not in functions.FAILURES, f"{row}\n{asjax.source(written)}"


@pytest.mark.parametrize("seed", seeds(6, 24))
def test_a_graph_is_what_onnxruntime_computes(seed: int) -> None:
    machine = functions.CPUS[seed % len(functions.CPUS)]
    skip_without(machine)
    written = functions.function(seed, machine, ONNX)
    row = tried_in_onnx(asonnx.model(written).SerializeToString(), machine)
    assert row["outcome"] not in functions.FAILURES, f"{row}\n{asonnx.text(written)}"


WIDE, *NARROW = sorted(("avx512-vnni", "avx2"), key=lambda m: bool(why_not(MACHINES[m][0])))


# one in sixteen by the widest vectors that run here; the others, and all by narrower ones, are slow
@pytest.mark.parametrize(
    ("name", "machine"),
    [
        *one_in(16, ((n, WIDE) for n in CASES)),
        *some((), ((n, m) for m in NARROW for n in CASES)),
    ],
)
def test_what_was_wrong_is_right(name: str, machine: str) -> None:
    skip_without(machine)
    row = tried_in_jax(*case(name), machine, goals=["time"])
    assert row["outcome"] == "ok", row


@pytest.mark.parametrize("name", ["roll of two rows", "diagonal", "diagonals of a batch"])
def test_what_was_wrong_as_pallas_kernels_is_right(name: str) -> None:
    row = tried_in_jax(*case(name), "pallas")
    assert row["outcome"] == "ok", row


def case(name: str) -> tuple[Any, list[Any]]:
    function, shapes = CASES[name]
    rng = np.random.default_rng(0)
    return function, [rng.standard_normal(s).astype(np.float32) for s in shapes]


# ---- what it draws -------------------------------------------------------------------------------
def test_a_seed_is_one_function() -> None:
    for language in (JAX, ONNX):
        drawn = [functions.function(seed, "avx2", language) for seed in range(12)]
        assert drawn == [functions.function(seed, "avx2", language) for seed in range(12)]
        assert len(set(drawn)) == 12
        for w in drawn:
            assert Written.from_json(json.loads(json.dumps(w.to_json()))) == w
            assert set(w.results) <= language.types(w).keys()
            assert w.pruned() == w


def test_every_step_can_be_drawn() -> None:
    for language in (JAX, ONNX):
        for step, _ in language.steps:
            writers = (Writer(Random(seed), language.types) for seed in range(200))
            assert any(_two(w, step) for w in writers), step.__name__


def _two(w: Writer, step: Any) -> bool:
    """A step after one that some others need."""
    w.step(writtenmoves.cast if w.infer is JAX.types else onnxlines.conv)
    return w.step(step)


def test_a_file_repeats_what_a_function_does(tmp_path: Path, capfd: Any) -> None:
    graph = Written(
        EXAMPLE.arguments, (Line(("v0",), "MatMul(x0, x1)"), Line(("v1",), "Relu(v0)")), ("v1",)
    )
    files = (
        asjax.snippet(EXAMPLE, *MACHINES["xla"]),
        asonnx.snippet(graph, *MACHINES["xla"]).replace("./f.onnx", str(tmp_path / "f.onnx"))
        .replace('"f.onnx"', f'"{tmp_path / "f.onnx"}"'),
    )  # fmt: skip
    for text in files:
        exec(compile(text, "file", "exec"), {})
    assert capfd.readouterr().out.count("outcome='ok'") == 2


# ---- how it judges -------------------------------------------------------------------------------
def planted(monkeypatch: pytest.MonkeyPatch, change: Any) -> tried.Row:
    """The row of a function where what eqsat compiles is changed."""
    compiled = eqsat.Run.compile

    def compile(run: Any, **options: Any) -> Any:
        call = compiled(run, **options)
        return lambda *args: change(list(call(*args)))

    monkeypatch.setattr(eqsat.Run, "compile", compile)
    return tried_in_jax(asjax.function(EXAMPLE), EXAMPLE.arrays, "xla", EXAMPLE.weights)


def test_one_element_is_enough_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    row = planted(monkeypatch, lambda found: [found[0].at[32, 3].add(0.01), *found[1:]])
    assert row["outcome"] == WRONG and "[32, 3]" in row["reason"]


def test_another_type_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    row = planted(monkeypatch, lambda found: [found[0].astype(jnp.bfloat16), *found[1:]])
    assert row["outcome"] == SHAPE and "bfloat16" in row["reason"]


def test_calls_that_differ_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(100))
    row = planted(monkeypatch, lambda found: [found[0] * (1 + 1e-7 * next(numbers)), *found[1:]])
    assert row["outcome"] == VARIES


def test_what_a_check_refuses_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(found: list[Any]) -> list[Any]:
        logging.getLogger("eqsat.check").error("a plan is refused")
        return found

    row = planted(monkeypatch, refuse)
    assert (row["outcome"], row["reason"]) == (ALARM, "a plan is refused")


# ---- how it goes on ------------------------------------------------------------------------------
def test_a_function_is_made_small() -> None:
    def fails(f: Written) -> bool:
        sizes = [t.shape[-1] for n, t in JAX.types(f).items() if n in f.results and t.shape]
        return any("split" in n.text for n in f.lines) and max(sizes) > 9

    found = smallest(EXAMPLE, JAX.types, fails)
    assert [n.text.split("(")[0] for n in found.lines] == ["jnp.split"]
    assert fails(found) and len(found.arguments) == 1
    assert max(d for a in found.arguments for d in a.shape) < 33


def test_a_process_that_dies_or_is_silent_has_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(children.TESTS)]))
    child = Child("echo", patience=30.0)
    try:
        assert child.ask({"do": "answer"}) == {"outcome": "answer"}
        died = child.ask({"do": "die"})
        assert (died["outcome"], died["reason"]) == (CRASH, "SIGSEGV")
        assert any("Segmentation fault" in line for line in died["trace"])
        assert child.ask({"do": "answer"}) == {"outcome": "answer"}
        child.patience = 0.2
        assert child.ask({"do": "sleep"})["outcome"] == HANG
    finally:
        child.close()


ECHO = """
import faulthandler, time
from fuzz.children import serve

def answer(request):
    print("libraries may print")
    if request["do"] == "die":
        faulthandler._sigsegv()
    if request["do"] == "sleep":
        time.sleep(60)
    return {"outcome": request["do"]}

serve(answer)
"""


@pytest.mark.slow  # the hunt is slow itself, and what it asks of each function is asked above
def test_the_hunt_tells_what_became_of_each(tmp_path: Path, capsys: Any) -> None:
    log = tmp_path / "log"
    argv = ["--seeds", "3:4", "--machines", "xla", "--jobs", "1", "--log", str(log)]
    asked = partial(asked_and_told, None, functions.options, functions.measured)
    assert asked(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["programs"], found["failures"], found["not_run"]) == (1, [], 0)
    assert len(log.read_text().splitlines()) == 1
    assert asked([*argv, "--time-limit", "0"]) == 0  # it is in the log
    assert json.loads(capsys.readouterr().out)["programs"] == 1
