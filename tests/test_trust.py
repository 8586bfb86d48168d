"""What is loaded is not trusted: runs, opaque ops, weights, stores, caches, experiments."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hostile
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzz import sweepwork
from fuzz.runs import strangers
from jax.extend.mlir import serialize_portable_artifact
from jax.interpreters import mlir
from runnable import WIDEST
from seeds import one_in, seeds

import eqsat
from eqsat.cli import run as command
from eqsat.execute.kernels import compiler
from eqsat.extract.check import check
from eqsat.extract.place import search as placing
from eqsat.frontends.opaque import OpaqueCall
from eqsat.lab.store.record import RunRecord
from eqsat.lab.store.store import RunStore
from eqsat.lab.store.tables import OWNERS, lives
from eqsat.lab.sweep import NoWatcher, sweep
from eqsat.lang.experiments import read_experiment
from eqsat.model.diag import EqsatError, EqsatWarning
from eqsat.model.sharding import Lifetime
from eqsat.run import artefact
from eqsat.run.artefact import PACKED, WEIGHTS
from eqsat.schedule import faults
from eqsat.schedule.rebuilt import rebuilt_differences

RNG = np.random.default_rng(0)
W = RNG.standard_normal((48, 64)).astype(np.float32)


def layers(x: Any, w: Any) -> Any:
    h = jnp.sort(x, axis=0) @ w
    return jax.nn.softmax(h, axis=-1), h.sum(0)


def loop(x: Any) -> Any:
    return jax.lax.scan(lambda c, a: (jnp.tanh(c + a), c.sum()), x, jnp.ones((3, 24, 48)))


@pytest.fixture(scope="module")
def runs() -> dict[str, eqsat.Run]:
    shape = jax.ShapeDtypeStruct((24, 48), "float32")
    asked = {"time_limit": 20, "target": WIDEST}
    return {
        "layers": eqsat.optimize(layers, shape, W, weights=("w",), **asked),
        "loop": eqsat.optimize(loop, shape, **asked),
        "ops": eqsat.optimize(layers, shape, W, time_limit=20, target="avx512-xla"),
    }


@pytest.fixture(scope="module")
def saved(runs: dict[str, eqsat.Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = runs["layers"]
    run.verify(samples=1)
    return run.save(tmp_path_factory.mktemp("saved") / "run")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def edited(folder: Path, name: str, edit: Callable[[Any], None]) -> None:
    """Change a file's data and seal the run again."""
    path = folder / name
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    hostile.reseal(folder)


def planned(data: Any) -> Any:
    """The plan of the first dispatch that has one."""
    return next(d["plan"] for d in data["dispatches"] if d["plan"] is not None)


def put(key: str, value: Any) -> Callable[[Any], None]:
    return lambda data: planned(data).update({key: value})


EDITS = {
    "items": put("items", 4096),
    "scratch": put("scratch_bytes", 4),
    "far too much scratch": put("scratch_bytes", 1 << 45),
    "no plan": lambda d: d["dispatches"][-1].update(plan=None, parts=None),
    "time": lambda d: d["dispatches"][0].update(time_ps=1),
    "results": lambda d: d["program"]["results"].reverse(),
    "bytes": lambda d: d["buffers"][-1].update(nbytes=4),
    "life": lambda d: d["buffers"][-1].update(first=1, last=1),
    "target": lambda d: d.update(target="nobody's"),
}


# ---- runs ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", one_in(4, EDITS))
def test_a_schedule_that_was_edited_and_sealed_again_is_refused(folder: Path, what: str):
    edited(folder, "4-schedule.json", EDITS[what])
    with pytest.raises(EqsatError, match=r"E314.*`4-schedule\.json`: "):
        eqsat.load(folder)
    assert command(["check", str(folder)]) == 2


def test_a_selection_and_a_baseline_are_looked_at(folder: Path, capsys: pytest.CaptureFixture):
    edited(folder, "3-baseline.json", lambda d: d["groups"][0].__setitem__(3, 1))
    eqsat.load(folder)  # nothing is made of the baseline
    assert command(["check", str(folder)]) == 2
    assert "`3-baseline.json`: group 0: takes" in capsys.readouterr().out
    edited(folder, "3-selection.json", lambda d: d["groups"][0].__setitem__(3, 1))
    with pytest.raises(EqsatError, match=r"E314.*`3-selection\.json`: group 0: takes"):
        eqsat.load(folder)


def test_a_run_that_other_code_saved_says_so(folder: Path):
    def older(data: Any) -> None:
        data["versions"]["eqsat"] = "0.0.9"
        del data["code"]

    edited(folder, "manifest.json", older)
    eqsat.load(folder)  # it chose as this one does
    edited(folder, "4-schedule.json", EDITS["items"])
    with pytest.raises(EqsatError, match=r"saved by other code, eqsat 0\.0\.9[^$]*search again"):
        eqsat.load(folder)


def test_what_is_saved_is_loaded_and_runs(runs: dict[str, eqsat.Run], saved: Path, tmp_path: Path):
    x = RNG.standard_normal((24, 48)).astype(np.float32)
    for run in (eqsat.load(saved), eqsat.load(runs["loop"].save(tmp_path / "loop"))):
        run.compile()
        assert run.verify(samples=1).ok
    assert command(["check", str(saved), str(tmp_path / "loop")]) == 0
    assert np.allclose(eqsat.load(saved).compile()(x)[1], (np.sort(x, 0) @ W).sum(0), rtol=1e-4)


def test_an_edited_body_of_a_loop_is_refused(runs: dict[str, eqsat.Run], tmp_path: Path):
    folder = runs["loop"].save(tmp_path / "loop")
    edited(folder, "5-bodies.json", lambda d: d[0]["stages"]["schedule"]["buffers"].pop())
    with pytest.raises(EqsatError, match=r"E314.*/body: `4-schedule\.json`"):
        eqsat.load(folder)


@pytest.mark.parametrize("name", [WEIGHTS, PACKED])
def test_a_bit_of_a_weight_is_found(folder: Path, name: str):
    path = folder / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert command(["check", str(folder)]) == command(["run", str(folder)]) == 2
    with pytest.raises(EqsatError, match=f"E309.*damaged: `{name}` is not as eqsat wrote it"):
        eqsat.load(folder)
    path.unlink()
    with pytest.raises(EqsatError, match=r"E309|E504"):
        eqsat.load(folder)


def test_packed_weights_without_a_sum_are_packed_again(folder: Path):
    """As of runs that were saved before packed weights were sealed."""
    edited(folder, "manifest.json", lambda d: (d.pop("packed"), d.pop("weights")))
    run = eqsat.load(folder)
    assert run.packed_file is None
    assert run.verify(samples=1).ok


def test_no_selection_that_was_corrupted_is_accepted_or_crashes(runs: dict[str, eqsat.Run]):
    """Those that mean the same may be accepted: other names of a buffer, results nobody reads."""
    count = silent = 0
    for run in runs.values():
        for _, made in hostile.selections(run.selection, run.egraph):
            if made != run.selection:
                count += 1
                silent += not check(run.egraph, run.target, made)
    assert count > 200
    assert silent <= count // 50


def test_no_schedule_that_was_corrupted_is_accepted_or_crashes(runs: dict[str, eqsat.Run]):
    seen: Counter[str] = Counter()
    for run in runs.values():
        assert rebuilt_differences(run.schedule, run.egraph, run.selection, run.target) == []
        for kind, made in hostile.schedules(run.schedule):
            if made == run.schedule or (kind == "offset" and len(run.schedule.temporaries) == 1):
                continue  # a single temporary may as well not be placed
            assert rebuilt_differences(made, run.egraph, run.selection, run.target), kind
            faults(made, run.target, run.canonical)  # in words, or none
            seen[kind] += 1
    assert len(seen) > 30


ALWAYS = (
    "no plan", "no parts", "other plan", "edited plan", "role", "double buffer", "drop buffer",
    "no such members", "no such reads", "no such writes", "node", "originals", "ahead",
)  # fmt: skip


def test_a_schedule_alone_shows_what_is_wrong(runs: dict[str, eqsat.Run]):
    """What needs no e-graph is seen by the checker of schedules that runs in every search."""
    run = runs["layers"]
    for kind, made in hostile.schedules(run.schedule):
        if kind in ALWAYS and made != run.schedule:
            assert faults(made, run.target, run.canonical), kind
    late = [m for k, m in hostile.schedules(run.schedule) if k == "late life"]
    assert any("its buffer lives from" in f for m in late for f in faults(m, run.target))


@pytest.mark.parametrize("seed", seeds(3, 24))
def test_a_folder_that_was_edited_and_sealed_ends_in_a_sentence(folder: Path, seed: int):
    hostile.artefact(folder, seed)
    assert strangers.outcome(lambda: strangers.use(folder)) in ("ok", "refused")


# ---- opaque ops ----------------------------------------------------------------------------------
SQUARE = "tensor<5x5xf32>"
CALL = (
    f"%y = stablehlo.custom_call @{{}}(%x) {{{{api_version = 4 : i32}}}} : ({SQUARE}) -> {SQUARE}"
)
INSIDE = f"""%y = "stablehlo.while"(%x) ({{
  ^bb0(%a: {SQUARE}): %c = stablehlo.constant dense<false> : tensor<i1>
  stablehlo.return %c : tensor<i1>
}}, {{
  ^bb0(%a: {SQUARE}): %b = stablehlo.custom_call @nobodys(%a) : ({SQUARE}) -> {SQUARE}
  stablehlo.return %b : {SQUARE}
}}) : ({SQUARE}) -> {SQUARE}"""


def opaque(body: str, **header: Any) -> bytes:
    text = f"func.func public @main(%x: {SQUARE}) -> {SQUARE} {{ {body}\nreturn %y : {SQUARE} }}"
    with mlir.make_ir_context():
        module = serialize_portable_artifact(text, "1.9.0")
    said = {
        "format": 1, "primitive": "p", "key": "k", "operands": ["f32[5, 5]"],
        "results": ["f32[5, 5]"], "platforms": ["cpu"], "calling_convention_version": 10,
        "module_kept_var_idx": [0], "uses_global_constants": False,
    } | header  # fmt: skip
    return json.dumps(said).encode() + b"\n" + module


def test_an_opaque_op_calls_only_what_jax_guarantees():
    add = f"%y = stablehlo.add %x, %x : {SQUARE}"
    x = np.ones((5, 5), np.float32)
    assert np.array_equal(OpaqueCall.load(opaque(add)).call(x)[0], x + x)
    for body in (CALL.format("xla_ffi_python_cpu_callback"), INSIDE):
        with pytest.raises(EqsatError, match=r"E325.*`jax.export` does not guarantee"):
            OpaqueCall.load(opaque(body))
    odd = ({"results": ["f32[4, 5]"]}, {"platforms": 3}, {"platforms": ["moon"]},
           {"module_kept_var_idx": [4]}, {"operands": None})  # fmt: skip
    for header in odd:
        with pytest.raises(EqsatError, match="E325"):
            OpaqueCall.load(opaque(add, **header))
    with pytest.raises(EqsatError, match="E325"):
        OpaqueCall.load(opaque(add)[:-40])


# ---- stores --------------------------------------------------------------------------------------
class Noted(NoWatcher):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, name: str, line: str) -> None:
        self.lines.append(line)


def changed(store: Path, sql: str, *values: Any) -> None:
    with sqlite3.connect(store / "eqsat.sqlite") as db:
        db.execute(sql, values)
    db.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with RunStore(tmp_path / "store") as made:
        sweep(made, sweepwork.tasks(2, 0.0, tmp_path / "log"), sweepwork.cell)
    return tmp_path / "store"


def test_an_owner_of_a_store_is_a_name_and_no_path(store: Path, tmp_path: Path):
    victim = tmp_path / "victim.txt"
    for owner in (str(victim), "../../../victim.txt", "x" * 32, "", 7, None):
        victim.write_text("mine")
        assert not lives(store, owner)
        assert victim.read_text() == "mine"
    link = store / OWNERS / ("a" * 32)
    link.symlink_to(victim)
    assert not lives(store, link.name)
    assert victim.read_text() == "mine"


def test_a_lock_is_asked_for_by_whoever_may_read_it(store: Path):
    with RunStore(store) as other:
        assert lives(store, other._owner.name)
    dead = store / OWNERS / ("b" * 32)
    dead.write_text("")
    dead.chmod(0o444)
    assert not lives(store, dead.name)
    assert not dead.exists()


def test_a_row_says_for_whom_it_waits(store: Path, tmp_path: Path):
    (task,) = sweepwork.tasks(1, 0.0, tmp_path / "log")
    changed(store, "DELETE FROM runs")
    seen = Noted()
    with RunStore(store) as other, RunStore(store) as here:
        attempt = other.claim(task.key)
        assert attempt is not None
        seen.noted = lambda name, line: (seen.lines.append(line), other.release(attempt, "lost"))  # type: ignore[method-assign]
        sweep(here, [task], sweepwork.cell, watcher=seen)
    (line,) = seen.lines
    assert line.startswith("waits for the process that began at ")
    assert OWNERS in line


BROKEN = {
    "no JSON": "{",
    "no record": "[]",
    "nothing": "{}",
    "no goals": ("goals", []),
    "odd figures": ("summary", {"goals": 3}),
    "odd seconds": ("totals_s", ["x"]),
    "outside": ("folder", "../../etc"),
    "absolute": ("folder", "/etc"),
    "status": ("status", "splendid"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_damaged_record_runs_again(store: Path, tmp_path: Path, what: str):
    (task,) = sweepwork.tasks(1, 0.0, tmp_path / "log")
    text, change = json.dumps(sweepwork.made(task.key).to_json()), BROKEN[what]
    assert RunRecord.from_text(text).run == task.key
    data = change if isinstance(change, str) else json.dumps(json.loads(text) | dict([change]))
    changed(store, "UPDATE runs SET record = ? WHERE run = ?", data, task.key)
    seen = Noted()
    with RunStore(store) as here:
        found = sweep(here, [task], sweepwork.cell, watcher=seen)
        assert found[task.key].status == "found"
        assert here.find(task.key) is not None
    assert [line[:34] for line in seen.lines] == ["runs again, as its record is damage"[:34]]


@pytest.mark.slow  # asks for 3 s in a process of its own
def test_a_question_without_an_end_stops_at_ctrl_c(store: Path):
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    args = [sys.executable, "-m", "eqsat", "query", str(store), sql]
    with subprocess.Popen(args, stderr=subprocess.PIPE, text=True) as asking:
        time.sleep(3)
        while asking.poll() is None:
            asking.send_signal(2)
            time.sleep(0.5)
        assert asking.returncode == 130
        assert asking.stderr is not None
        assert "interrupted" in asking.stderr.read()


# ---- caches, folders -----------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no users")
def test_code_that_others_may_write_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "cache"))
    before = os.umask(0)
    try:
        assert compiler.OBJECTS.write({"x": b"code"})
    finally:
        os.umask(before)
    place = compiler.OBJECTS.folder
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert compiler.OBJECTS.read("x") == b"code"
    (place / "x.o").chmod(0o666)
    assert compiler.OBJECTS.read("x") is None
    (place / "x.o").chmod(0o600)
    monkeypatch.setenv("EQSAT_CACHE", str(tmp_path / "other"))
    shutil.copytree(place, compiler.OBJECTS.folder)
    compiler.OBJECTS.folder.chmod(0o777)
    with pytest.warns(EqsatWarning, match="E516.*others may write"):
        assert compiler.OBJECTS.read("x") is None
    assert not compiler.OBJECTS.write({"y": b"code"})


@pytest.mark.parametrize("exchange", [True, False])
def test_a_run_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool):
    if not exchange:
        monkeypatch.setattr(artefact, "_exchanged", lambda *_: False)
    for name in ("old", "new"):
        (tmp_path / f"aside-{name}").mkdir()
        (tmp_path / f"aside-{name}" / name).touch()
    left, young, others = (tmp_path / n for n in (".run.abcdefgh", ".run.hgfedcba", ".run.mine"))
    for path in (left, young, others):
        path.mkdir()
    for path in (left, others):
        os.utime(path, (0, 0))
    artefact.put_in_place(tmp_path / "aside-old", tmp_path / "run")
    artefact.put_in_place(tmp_path / "aside-new", tmp_path / "run")
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["new"]
    assert {p.name for p in tmp_path.iterdir()} == {"run", ".run.hgfedcba", ".run.mine"}


@pytest.mark.parametrize("module", seeds(1, ["eqsat", "eqsat.cli"]))
def test_packages_of_this_folder_are_no_plugins(tmp_path: Path, module: str):
    here = tmp_path / "strange-1.0.dist-info"
    here.mkdir()
    (here / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (here / "entry_points.txt").write_text("[eqsat.executors]\nstrange = strange\n")
    (tmp_path / "strange.py").write_text("raise SystemExit(77)\n")
    args = [sys.executable, "-m", module, "list", "executors"]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"strange" not in done.stdout


# ---- files ---------------------------------------------------------------------------------------
ROW = {"name": "r", "program": "mlp.py:mlp_784", "target": "reference"}
GRID = {"programs": ["mlp.py:mlp_784"], "targets": ["reference"]}


@pytest.mark.parametrize("odd", [3, None, True, {"a": 1}, [1], 1.5])
def test_what_is_no_text_in_an_experiment_is_told(odd: Any):
    for key in ("programs", "targets", "goals", "set", "rules", "without"):
        for value in ([odd], ["reference", odd], {"x": odd}):
            with pytest.raises(EqsatError):
                read_experiment(json.dumps({"experiment": "e"} | GRID | {key: value}))
    for key in ("goals", "set", "rules", "program", "target"):
        with pytest.raises(EqsatError):
            read_experiment(json.dumps({"experiment": "e", "rows": [ROW | {key: ["time", odd]}]}))


def test_the_problems_of_a_file_are_told_up_to_a_thousand():
    text = "experiment: e\n" + "".join(f"k{i}: 1\n" for i in range(1500))
    with pytest.raises(EqsatError) as error:
        read_experiment(text)
    told = error.value.diagnostics
    assert len(told) <= 1_002
    assert any("more problems of this file" in d.message for d in told)


def test_a_placement_does_not_begin_to_compile_without_the_time(monkeypatch: pytest.MonkeyPatch):
    from eqsat.extract.place import depthfirst

    random = np.random.default_rng(1)
    lives = [
        Lifetime(f"b{i}", int(a), int(a + n), int(size))
        for i, (a, n, size) in enumerate(random.integers(1, 60, (60, 3)))
    ]
    monkeypatch.setattr(depthfirst, "is_compiled", lambda: False)
    begun: list[str] = []
    monkeypatch.setattr(placing._PlacementSearch, "thorough", lambda self: begun.append("thorough"))
    found = placing.place(lives, seconds=1.0)
    assert (begun, found.status, found.stop) == ([], "feasible", "time")
    placing.place(lives, seconds=60.0)
    assert begun == ["thorough"]


def test_a_schedule_of_another_target_has_no_plans_of_this_one(runs: dict[str, eqsat.Run]):
    run = runs["layers"]
    other = replace(run.target, name="other")
    assert not any("planner" in f for f in faults(run.schedule, other))
