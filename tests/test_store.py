"""The store of experiments: what ended is kept, what is kept is not run again."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fuzz import sweepwork

from eqsat.cli import run
from eqsat.lab.cells import key_of, request_of
from eqsat.lab.store import tables
from eqsat.lab.store.query import ask
from eqsat.lab.store.store import Measurement, RunStore
from eqsat.lab.store.tables import POOL, share_files
from eqsat.lab.sweep import NoWatcher, dask_crew, local_crew, sweep
from eqsat.lang.experiments import load_experiment
from eqsat.model.diag import EqsatError

ROW = """experiment: x
doc: d
{extra}
rows:
  - {{name: a, program: {program}, target: {target}, rules: {rules}{more}}}
"""
MINE = """ruleset: mine
doc: One rule.
rules:
  - name: twice
    doc: Two transposes are one.
    rewrite: transpose(transpose(x, perm=p), perm=q)
    to:      transpose(x, perm=compose(p, q))
"""


# ---- keys ----------------------------------------------------------------------------------------
def key(folder, *, program="two_packs", target="reference", rules="default", more="", extra=""):
    path = folder / "x.yaml"
    parts = {"program": program, "target": target, "rules": rules, "more": more, "extra": extra}
    path.write_text(ROW.format(**parts), encoding="utf-8")
    plan = load_experiment(path)
    return key_of(request_of(plan, plan.cells[0], threads=2))


def test_the_key_is_what_decides_the_answer(tmp_path):
    first = key(tmp_path)
    assert key(tmp_path) == first
    others = [
        {"program": "three_readers"}, {"target": "avx512-xla"}, {"rules": "layout/pack"},
        {"more": ", set: [launch=2us]"}, {"more": ", budget: {memory: 1GiB}"},
        {"more": ", goals: memory"}, {"more": ", seed: 1"}, {"more": ", without: forget-padding"},
        {"more": ", limits: {nodes: 9000}"}, {"extra": "limits: {time: 9 s}"},
        {"extra": "repeat: 2"},
    ]  # fmt: skip
    found = []
    for other in others:
        try:
            found.append(key(tmp_path, **other))
        except EqsatError as e:  # a tag that is none would make the test blind
            raise AssertionError(other) from e
    assert len({first, *found}) == 1 + len(others)
    assert key(tmp_path, extra="measure: {runs: 3}") == first  # measured later, searched as before


def test_where_a_rule_stands_is_no_part_of_the_key(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINE, encoding="utf-8")
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "mine.yaml").write_text(f"# a comment\n{MINE}", encoding="utf-8")
    changed = MINE.replace("compose(p, q)", "compose(q, p)")
    (tmp_path / "changed.yaml").write_text(changed, encoding="utf-8")
    more = ", unchecked: true"
    first = key(tmp_path, rules="mine.yaml", more=more)
    assert key(moved, rules="mine.yaml", more=more) == first
    assert key(tmp_path, rules="changed.yaml", more=more) != first


def test_paths_are_those_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "p.eqs").write_text(
        Path("experiments/programs/two_packs.eqs").read_text(encoding="utf-8"), encoding="utf-8"
    )
    first = key(tmp_path, program="p.eqs")
    monkeypatch.chdir(tmp_path.parent)
    assert key(tmp_path, program="p.eqs") == first


# ---- sweeps --------------------------------------------------------------------------------------
class Seen(NoWatcher):
    def __init__(self):
        self.new, self.known = [], []

    def ended(self, name, record, is_new):
        (self.new if is_new else self.known).append(name)


def test_what_is_kept_is_not_run_again(tmp_path):
    tasks = sweepwork.tasks(4, 0, tmp_path / "log.txt")
    with RunStore(tmp_path) as store:
        sweep(store, tasks[:3], sweepwork.cell)
    with RunStore(tmp_path) as store:
        seen = Seen()
        found = sweep(store, tasks, sweepwork.cell, watcher=seen)
    assert (seen.new, seen.known) == (["row 3"], ["row 0", "row 1", "row 2"])
    assert len(found) == 4
    assert len((tmp_path / "log.txt").read_text(encoding="utf-8").split()) == 4


def test_a_row_that_breaks_off_is_free_again(tmp_path):
    (task,) = sweepwork.tasks(1, 0, tmp_path / "log.txt")

    def stopped(_):
        raise KeyboardInterrupt

    with RunStore(tmp_path) as store:
        with pytest.raises(KeyboardInterrupt):
            sweep(store, [task], stopped)
        assert sweep(store, [task], sweepwork.cell)[task.key].status == "found"
    _, rows = ask(tmp_path, "SELECT outcome FROM attempts ORDER BY attempt")
    assert rows == [("interrupted",), ("found",)]


def killed_sweep(folder, *, after_rows, how, jobs=2, count=12):
    """A sweep of its own process that a signal ends as soon as some rows are kept; those rows."""
    command = [sys.executable, sweepwork.__file__, str(folder), str(count), "0.05", str(jobs)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    kept = set()
    while process.poll() is None and len(kept) < after_rows:
        time.sleep(0.02)
        if (folder / tables.FILE).is_file():
            kept = kept_rows(folder)
    process.send_signal(how)
    process.wait(60)
    return kept_rows(folder)


def kept_rows(folder):
    try:
        return {r for (r,) in ask(folder, "SELECT run FROM runs")[1]}
    except EqsatError:  # its tables are being made
        return set()


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_killed_sweeps_lose_and_repeat_nothing(tmp_path, how):
    log = tmp_path / "log.txt"
    kept = killed_sweep(tmp_path, after_rows=3, how=how)
    assert len(kept) >= 3
    begun = Counter(log.read_text(encoding="utf-8").split())
    with RunStore(tmp_path) as store, local_crew(2, lambda *_: None) as crew:
        found = sweep(store, sweepwork.tasks(12, 0, log), sweepwork.cell, crew=crew)
    assert len(found) == 12
    again = Counter(log.read_text(encoding="utf-8").split())
    assert {k: again[k] for k in kept} == {k: begun[k] for k in kept}  # none of them ran again


@pytest.mark.slow  # six workers start, 9 s; a sweep that is killed starts them too
def test_a_worker_that_dies_is_told_from_its_neighbours(tmp_path):
    log = tmp_path / "log.txt"
    names = ["fine-1", "deadly", "once", "fine-2"]
    tasks = [replace(sweepwork.tasks(1, 0.05, log)[0], key=n, name=n) for n in names]
    tasks = [replace(t, payload=(t.key, 0.05, str(log))) for t in tasks]
    with RunStore(tmp_path) as store, local_crew(2, lambda *_: None) as crew:
        found = sweep(store, tasks, sweepwork.deadly, crew=crew)
    assert {k: r.status for k, r in found.items()} == {
        n: "error" if n == "deadly" else "found" for n in names
    }
    assert found["deadly"].diagnostics[0].code == "E432"
    assert "deadly" not in kept_rows(tmp_path)  # it is tried again next time


@pytest.mark.slow  # a cluster takes seconds to start; what is lost is told as of a local crew
def test_rows_run_on_a_dask_cluster_that_loses_a_worker(tmp_path):
    from distributed import LocalCluster

    log = tmp_path / "log.txt"
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with (
        LocalCluster(**options, dashboard_address=None, silence_logs=50) as cluster,
        RunStore(tmp_path) as store,
        dask_crew(cluster.scheduler_address) as crew,
    ):
        tasks = sweepwork.tasks(8, 0.1, log)
        tasks[3] = replace(tasks[3], key="once", payload=("once", 0.1, str(log)))
        found = sweep(store, tasks, sweepwork.deadly, crew=crew)
    assert [r.status for r in found.values()] == ["found"] * 8
    assert Path(f"{log}.once").exists()  # a worker was killed in the middle


@pytest.mark.slow  # dask takes seconds to load
def test_a_cluster_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr("eqsat.lab.sweep.SECONDS", 1)
    with pytest.raises(EqsatError, match="E433"), dask_crew("tcp://127.0.0.1:9"):
        pass


# ---- the file ------------------------------------------------------------------------------------
def test_a_store_of_another_version_is_left_alone(tmp_path):
    RunStore(tmp_path).close()
    with sqlite3.connect(tmp_path / tables.FILE) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(EqsatError, match=r"E431.*version 99"):
        RunStore(tmp_path)


def test_an_older_store_is_brought_up_step_by_step(tmp_path, monkeypatch):
    with RunStore(tmp_path) as store:
        sweep(store, sweepwork.tasks(2, 0, tmp_path / "log.txt"), sweepwork.cell)
    step = "ALTER TABLE runs ADD COLUMN note TEXT"
    monkeypatch.setattr(tables, "VERSION", 2)
    monkeypatch.setattr(tables, "MIGRATIONS", {1: lambda db: db.execute(step)})
    with RunStore(tmp_path) as store:
        assert store.find(f"{1:032d}") is not None
    assert ask(tmp_path, "SELECT count(note), count(*) FROM runs")[1] == [(0, 2)]


@pytest.mark.parametrize("make", ["text", "database"])
def test_other_files_are_no_stores(tmp_path, make):
    file = tmp_path / tables.FILE
    if make == "text":
        file.write_text("not a database, but long enough to have a header " * 9, encoding="utf-8")
    else:
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE mine (x)")
    before = file.read_bytes()
    with pytest.raises(EqsatError, match="E430"):
        RunStore(tmp_path)
    assert file.read_bytes() == before


def test_a_full_disk_loses_nothing(tmp_path):
    with RunStore(tmp_path) as store:
        first, second = sweepwork.tasks(2, 0, tmp_path / "log.txt")
        sweep(store, [first], sweepwork.cell)
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        large = replace(sweepwork.made(second.key), program="p" * 1_000_000)
        with pytest.raises(EqsatError, match=r"E407.*full"):
            sweep(store, [second], lambda _: large)
        assert store.find(first.key) is not None
    with RunStore(tmp_path) as store:
        assert sweep(store, [second], sweepwork.cell)[second.key].status == "found"


def test_a_run_whose_artefacts_are_gone_is_run_again(tmp_path):
    (task,) = sweepwork.tasks(1, 0, tmp_path / "log.txt")
    with RunStore(tmp_path) as store:
        sweep(store, [task], lambda _: replace(sweepwork.made(task.key), folder="runs/gone"))
        assert store.find(task.key) is None


def test_large_equal_files_are_kept_once(tmp_path):
    for name in ("a", "b"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "large").write_bytes(b"x" * 100_000)
        (folder / "small").write_bytes(b"x")
        share_files(folder)
    a, b = (tmp_path / "runs" / name for name in ("a", "b"))
    assert (a / "large").samefile(b / "large")
    assert not (a / "small").samefile(b / "small")
    assert len(list((tmp_path / "runs" / POOL).iterdir())) == 1


def test_every_sample_of_a_measurement_is_kept(tmp_path):
    samples = tuple((1.0 + i, 2.0 + i) for i in range(5))
    told = Measurement(10, 3.0, 1.0, 5.0, 4.0, samples)
    with RunStore(tmp_path) as store:
        store.put_measurements("beside", {"program": told})
        store.put_measurements("beside", {"program": told})  # measured anew
        assert store.measurement("program", "beside") == told
        assert store.measurement("program", "other") is None
    assert ask(tmp_path, "SELECT count(*), sum(wall_us) FROM samples")[1] == [(5, 15.0)]


# ---- questions -----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A store with two rows, one of which has no program."""
    folder = tmp_path_factory.mktemp("small")
    path = folder / "small.yaml"
    path.write_text(
        "experiment: small\ndoc: d\nprograms: transposed_pack\ntargets: reference\n"
        "vary: {budget: [[], ['memory=1KiB']]}\n",
        encoding="utf-8",
    )
    assert run(["experiment", str(path), "-o", str(folder / "r"), "-q"]) == 1
    return folder


def test_rows_are_runs_one_can_look_at(small, capsys):
    capsys.readouterr()
    row = "transposed_pack@reference budget=[]"
    assert run(["explain", str(small / "r" / row)]) == 0
    assert "transposed_pack on reference" in capsys.readouterr().out
    assert run(["explain", str(small / "r" / "small" / row)]) == 0
    assert run(["rules", str(small / "r" / f"{row}x")]) == 2
    assert f"did you mean `{row}`" in capsys.readouterr().err
    assert run(["show", str(small / "r" / "transposed_pack@reference budget=[memory=1KiB]")]) == 2
    assert "nothing was admissible" in capsys.readouterr().err


def test_one_row_leaves_the_others_in_the_results(small, capsys):
    args = ["experiment", str(small / "small.yaml"), "-o", str(small / "r"), "-q"]
    assert run([*args, "--row", "transposed_pack@reference budget=[]"]) == 0
    assert "1KiB" not in capsys.readouterr().out
    data = json.loads((small / "r" / "small.json").read_text(encoding="utf-8"))
    assert [r["status"] for r in data["rows"]] == ["found", "no program"]


def test_a_row_that_asks_for_something_else_now_is_not_that_of_before(small, tmp_path, capsys):
    text = (small / "small.yaml").read_text(encoding="utf-8")
    other = tmp_path / "small.yaml"
    for more, statuses in (("", ["found", "no program"]), ("limits: {nodes: 9000}\n", ["found"])):
        other.write_text(text + more, encoding="utf-8")
        args = ["experiment", str(other), "-o", str(small / "r"), "-q", "--json"]
        assert run([*args, "--row", "transposed_pack@reference budget=[]"]) == 0
        data = json.loads((small / "r" / "small.json").read_text(encoding="utf-8"))
        assert [r["status"] for r in data["rows"]] == statuses
    capsys.readouterr()


def test_force_runs_again(small, capsys):
    count = "SELECT count(*) FROM attempts WHERE outcome = 'found'"
    before = ask(small / "r", count)[1][0][0]
    args = ["experiment", str(small / "small.yaml"), "-o", str(small / "r"), "-q"]
    assert run([*args, "--row", "transposed_pack@reference budget=[]", "--force"]) == 0
    assert ask(small / "r", count)[1][0][0] == before + 1
    capsys.readouterr()


def test_questions_in_sql(small, capsys):
    capsys.readouterr()
    sql = "SELECT row, status, dispatches FROM rows JOIN runs USING (run) ORDER BY position"
    assert run(["query", str(small / "r"), sql, "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["row,status,dispatches", "transposed_pack@reference budget=[],found,3"]
    assert run(["query", str(small / "r" / "small.json"), sql, "--output-format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["status"] for r in rows] == ["found", "no program"]


@pytest.mark.parametrize(
    "sql", ["DELETE FROM runs", "SELEC 1", "ATTACH 'x.db' AS x", "PRAGMA user_version = 3", "",
            "SELECT load_extension('x')", "SELECT 1; SELECT 2"]
)  # fmt: skip
def test_questions_change_nothing(small, sql, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = (small / "r" / tables.FILE).read_bytes()
    code = run(["query", str(small / "r"), sql])
    assert code == (0 if sql == "" else 2)
    assert sql == "" or capsys.readouterr().err.startswith("error[E435]")
    assert (small / "r" / tables.FILE).read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_the_store_lists_every_table_and_column():
    text = Path("docs/store.md").read_text(encoding="utf-8")
    db = sqlite3.connect(":memory:")
    for statement in filter(str.strip, tables.TABLES.split(";")):
        db.execute(statement)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        part = text.split(f"### {table}\n")[1].split("###")[0]
        columns = [c for _, c, *_ in db.execute(f"PRAGMA table_info({table})")]
        assert [c for c in columns if f"`{c}`" not in part] == [], table


def test_the_questions_of_the_page_are_answered(small):
    text = Path("docs/store.md").read_text(encoding="utf-8")
    block = text.split("```sql\n")[1].split("```")[0]
    questions = [q for q in block.split(";") if q.strip()]
    assert len(questions) == 3
    (factors, _), (gains, rows), (rules, found) = (ask(small / "r", q) for q in questions)
    assert factors == ("program", "target", "rules", "min(time_us)")
    assert gains == ("row", "gain")
    assert len(rows) == 1
    assert rules == ("rule", "count(*)")
    assert found == []  # on this machine the answer is the input
