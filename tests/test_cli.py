"""The command line: output, errors and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.main
from seeds import seeds

from eqsat.cli import app, run

COMMANDS = (
    "optimize", "run", "experiment", "compare", "explain", "rules", "show", "report", "check",
    "list", "schema", "extract", "place", "shard", "pareto", "state", "switch", "footprint",
    "calibrate", "compile", "export", "bench", "discover", "query", "judge", "cache",
)  # fmt: skip
SMALL = """program small
input a: f32[32, 16]
input b: f32[32, 16]
t = transpose(a, perm=[1, 0])
y = matmul(t, b)
return y, t
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.eqs"
    path.write_text(SMALL)
    return str(path)


# ---- start-up and help ---------------------------------------------------------------------------
@pytest.mark.parametrize("code", ["import eqsat", "from eqsat.cli import run; run(['--help'])"])
def test_starting_loads_nothing_heavy(code):
    heavy = ("jax", "jaxlib", "ortools", "onnx", "egglog", "numpy", "ruamel", "eqsat.lang")
    program = f"{code}\nimport sys\nprint('HEAVY', [m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout


def test_every_command_and_option_has_help():
    group = typer.main.get_command(app)
    assert sorted(group.commands) == sorted((*COMMANDS, "rules match", "show rule"))
    for name, command in group.commands.items():
        assert command.help, name
        for p in command.params:
            assert getattr(p, "help", None), f"{name} {p.name}"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_exits_0(name, capsys):
    assert run([*([name] if name else []), "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_nothing_prints_help_and_version(capsys):
    assert run([]) == 0
    assert "optimize" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("eqsat 0.")


# ---- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["optimise"], "E400", "did you mean `optimize`"),
        (["optimize"], "E400", "Missing argument"),
        (["optimize", "x", "--goul", "time"], "E400", "--goul"),
        (["optimize", "x", "--stop-after", "egrap"], "E400", "did you mean `egraph`?"),
        (["optimize", "two_pack"], "E261", "did you mean `two_packs`?"),
        (["optimize", "two_packs", "--target", "avx51"], "E200", "did you mean `avx512`?"),
        (["optimize", "two_packs", "--rules", "defalt"], "E007", "did you mean `default`?"),
        (["optimize", "two_packs", "--without", "unpack-of-pak"], "E007", "did you mean"),
        (["optimize", "two_packs", "--goal", "tim"], "E264", "did you mean `time`?"),
        (["optimize", "two_packs", "--goal", "time:1", "--goal", "memory"], "E404", "weights"),
        (["optimize", "two_packs", "--budget", "memory=64"], "E203", "64 KiB"),
        (["optimize", "two_packs", "--budget", "64"], "E205", "memory=64MiB"),
        (["optimize", "two_packs", "--time-limit", "5"], "E203", "--time-limit"),
        (["optimize", "two_packs", "--set", "fusion.rots=1"], "E003", "did you mean `roots`?"),
        (["optimize", "two_packs", "--verify", "--stop-after", "egraph"], "E400", "--verify"),
        (["optimize", "two_packs", "--verify", "--device", "tpu"], "E506", "cpu"),
        (["run", "no-such-folder"], "E309", "optimize"),
        (["run", "no-such-folder", "--seed", "-1"], "E400", "--seed"),
        (["optimize", "two_packs", "--seed", "2147483648"], "E400", "--seed"),
        (["explain", "E77"], "E268", "no error has the code"),
        (["explain", "E777"], "E268", "no error has the code"),
        (["experiment", "quickstar"], "E266", "did you mean `quickstart`?"),
        (["experiment", "quickstart", "--row", "eqsaat"], "E269", "did you mean `eqsat`?"),
        (["check", "no-such-file.yaml"], "E001", "no file"),
        (["list", "rule"], "E400", "did you mean `rules`?"),
        (["list", "ops", "--notation"], "E400", "`eqsat list rules --notation`"),
        (["schema", "targets"], "E400", "did you mean `target`?"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence_and_exit_2(args, code, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error[{code}]" in err
    assert text in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_errors_as_json_lines(capsys):
    assert run(["optimize", "two_pack", "--output-format", "json"]) == 2
    out, err = capsys.readouterr()
    found = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert [d["code"] for d in found] == ["E261"]


def test_a_script_that_ends_python_is_a_sentence(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys\ndef f(x): return x\ndef f_example(): return 1.0\nsys.exit(3)\n")
    assert run(["optimize", f"{script}:f"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error[E308]")
    assert "sys.exit(3)" in err


def test_nothing_admissible_exits_3(small, capsys):
    assert run(["optimize", small, "--target", "reference", "--budget", "memory=1KiB"]) == 3
    err = capsys.readouterr().err
    assert "error[E410]" in err
    assert "1,024 bytes" in err


def test_a_bug_of_ours_exits_4(monkeypatch, capsys):
    def broken(spec):
        raise RuntimeError("boom")

    monkeypatch.setattr("eqsat.api.read", broken)
    assert run(["optimize", "two_packs", "--target", "reference"]) == 4
    err = capsys.readouterr().err
    assert "our bug" in err
    assert "Traceback" not in err
    assert run(["optimize", "two_packs", "--target", "reference", "-v"]) == 4
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow  # an interpreter; test_interrupt stops a search that has begun
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs POSIX signals")
def test_interrupt_ends_at_once():
    # a fresh interpreter, as the handling of signals belongs to a process; no answer for seconds
    code = "import sys; from eqsat.cli import run; sys.exit(run(sys.argv[1:]))"
    # (with `-o` an answer that is known by then would be kept: tests/test_interrupt.py)
    args = ["optimize", "bert.py:bert", "--target", "avx512-xla"]
    child = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert out == ""
    # where the search has begun by then, its phase, and an answer if there is one, are told
    assert re.fullmatch(r"interrupted, nothing was written( \(.+\))?\n", err), err


# ---- optimize ------------------------------------------------------------------------------------
def test_optimize_prints_one_json_object(small, capsys):
    assert (
        run(["optimize", small, "--target", "reference", "--verify", "--output-format", "json"])
        == 0
    )
    out, _ = capsys.readouterr()
    found = json.loads(out)
    assert out.count("\n") == 1
    assert found["format"] == 1
    assert found["program"]["ops"] == 2
    assert set(found["goals"]) == {"time_us", "peak_bytes", "dispatches"}
    assert found["verify"]["ok"] is True
    assert found["baseline"]["admissible"] is True
    keys = {"read", "saturate", "extract", "schedule", "compile", "verify", "total"}
    assert set(found["seconds"]) == keys | {"cpu", "counted"}


def test_optimize_prints_a_summary_without_a_terminal(small, capsys):
    assert run(["optimize", small, "--target", "reference"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    for word in ("read", "saturate", "extract", "schedule", "baseline", "bytes moved"):
        assert word in out
    assert "verify" not in out


def test_quiet_prints_errors_only(small, tmp_path, capsys):
    asked = ["optimize", small, "--target", "reference", "--stop-after", "program", "-q"]
    assert run(asked) == 0
    assert capsys.readouterr() == ("", "")
    assert run([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["program"]["ops"] == 2
    (tmp_path / "bad.yaml").write_text("nothing: 1\n")
    assert run(["check", str(tmp_path / "bad.yaml"), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error[E004]")


def test_stop_after_keeps_what_was_made(small, tmp_path, capsys):
    folder = tmp_path / "part"
    assert (
        run(
            [
                "optimize",
                small,
                "--target",
                "reference",
                "--stop-after",
                "egraph",
                "-o",
                str(folder),
            ]
        )
        == 0
    )
    assert "extract" not in capsys.readouterr().out
    assert run(["show", str(folder), "egraph"]) == 0
    assert "c0: f32[32, 16]" in capsys.readouterr().out
    assert run(["show", str(folder), "schedule"]) == 2
    assert "E405" in capsys.readouterr().err
    assert run(["run", str(folder)]) == 2


def test_a_mismatch_exits_1(small, monkeypatch, capsys):
    from eqsat.execute.executable import JaxExecutable

    right = JaxExecutable.compile
    monkeypatch.setattr(
        JaxExecutable, "compile", lambda self: lambda *xs: [r + 1 for r in right(self)(*xs)]
    )
    assert run(["optimize", small, "--target", "reference", "--verify"]) == 1
    out, err = capsys.readouterr()
    assert "MISMATCH" in out
    assert "error[E500]" in err


def test_goals_in_order_and_weighted(small, capsys):
    assert (
        run(
            [
                "optimize",
                small,
                "--target",
                "reference",
                "--goal",
                "memory",
                "--output-format",
                "json",
            ]
        )
        == 0
    )
    goals = json.loads(capsys.readouterr().out)["goals"]
    assert goals["peak_bytes"]["gap"] == 0.0
    assert goals["time_us"]["bound"] is None
    weighted = ["--goal", "time:1", "--goal", "memory:2", "--goal", "dispatches:0.5"]
    assert run(["optimize", small, "--target", "reference", *weighted]) == 0


def test_an_output_folder_of_somebody_else_is_left_alone(small, tmp_path, capsys):
    (tmp_path / "precious.txt").write_text("x")
    assert run(["optimize", small, "-o", str(tmp_path)]) == 2
    assert "E309" in capsys.readouterr().err
    assert (tmp_path / "precious.txt").read_text() == "x"


@pytest.mark.parametrize("place", ["small.eqs/run", "small.eqs", "."])
def test_a_bad_output_place_is_found_before_the_search(small, place, monkeypatch, capsys):
    monkeypatch.chdir(Path(small).parent)
    monkeypatch.setattr("eqsat.optimize", None)
    assert run(["optimize", small, "-o", place]) == 2
    err = capsys.readouterr().err
    assert "E407" in err or "E309" in err
    assert [p.name for p in Path(small).parent.iterdir()] == ["small.eqs"]


# ---- files ---------------------------------------------------------------------------------------
@pytest.mark.slow  # 4 s; test_rulesets, test_targets and test_experiments read the same files
def test_check_of_our_own_files(capsys, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    assert run(["check", "rules", "targets", "experiments"]) == 0
    assert "no problem" in capsys.readouterr().err


def test_check_prints_all_problems_of_all_files(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text("ruleset: a\ndoc: d\nrules: []\nfoo: 1\nbar: 2\n")
    (tmp_path / "b.eqs").write_text("program b\ninput x: f32[2]\nreturn y\n")
    (tmp_path / "c.yaml").write_text("nothing: 1\n")
    assert run(["check", str(tmp_path), "--output-format", "json"]) == 2
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(d["code"] for d in found) == ["E003", "E003", "E004", "E303"]


def test_check_runs_examples(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text(
        "ruleset: x\ndoc: d\nrules:\n  - name: twice\n    doc: d\n"
        "    rewrite: transpose(transpose(x, perm=p), perm=q)\n"
        "    to: transpose(x, perm=compose(p, q))\n    examples:\n      - name: wrong\n"
        '        given: {x: "f32[2, 3]"}\n        start: transpose(x, perm=[1, 0])\n'
        "        reaches: x\n"
    )
    path.write_text(path.read_text().replace("f32[2, 3]", "f32[3, 3]"))
    assert run(["check", str(path)]) == 0
    assert run(["check", str(path), "--test"]) == 1
    assert "E101" in capsys.readouterr().out


def test_an_unsound_rule_exits_1_and_hides_no_other_example(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text(
        "ruleset: x\ndoc: d\nrules:\n  - name: loses\n    doc: d\n"
        "    rewrite: transpose(x, perm=p)\n    to: x\n    examples:\n"
        '      - name: shape\n        given: {x: "f32[2, 3]"}\n'
        "        start: transpose(x, perm=[1, 0])\n        reaches: transpose(x, perm=[1, 0])\n"
        '      - name: same\n        given: {x: "f32[3, 3]"}\n'
        "        start: transpose(x, perm=[1, 0])\n        avoids: x\n"
    )
    assert run(["check", str(path), "--test"]) == 1
    out = capsys.readouterr().out
    assert "E110" in out
    assert "E101" in out


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("rules", "pack-contraction"),
        ("sets", "policy/keep"),
        ("targets", "avx512-xla"),
        ("ops", "generic"),
        ("functions", "before_transpose"),
        ("programs", "mlp.py:mlp_784"),
        ("programs", "permuted_consumer.mlir"),
    ],
)
def test_list(what, text, capsys):
    assert run(["list", what]) == 0
    assert text in capsys.readouterr().out
    assert run(["list", what, "--output-format", "json"]) == 0
    assert any(text in row.values() for row in json.loads(capsys.readouterr().out))


def test_a_rule_is_listed_as_a_line_of_algebra(capsys):
    assert run(["list", "rules", "--notation", "--json"]) == 0
    rows = {row["rule"]: row["notation"] for row in json.loads(capsys.readouterr().out)}
    assert rows["sum-into-left"] == "(x y) = (x) y"
    assert rows["first-pair-first"] == "x y z = (x y) z if least and work <= 0.9"
    assert rows["fold-transpose-into-pack"] == (
        "pack[l](transpose[p](x)) = pack[before_transpose(l, p)](x)"
    )
    assert rows["pack-contraction"] == (
        "g(*xs) = unpack[c.result](c.sig(*pack[c.operands](xs)))"
        " with c = pack_loops(g, tile) for tile in target.tiles(g)"
    )
    assert rows["share-padded-pack"] == (
        "pack[l](x) & pack[m](x) = relax[l](pack[m](x)) if forgets(m, l)"
    )
    assert rows["fold-single-use-transpose"] == (
        "pack[l](t := transpose[p](x)) → pack[before_transpose(l, p)](x) if uses(t) == 1"
    )
    assert rows["controlled-fold-transpose-into-pack"].endswith(" if uses(inner0) == 1")
    assert rows["gather-weight"] == 'convert all-gather if value.role == "weight"'
    assert run(["list", "rules", "--json"]) == 0
    assert rows.keys() == {row["rule"] for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize("what", ["ruleset", "target", "experiment"])
def test_schema(what, capsys):
    assert run(["schema", what]) == 0
    assert json.loads(capsys.readouterr().out)["properties"][what]


def test_an_output_without_colour_a_terminal_or_utf8():
    env = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    code = "from eqsat.cli import main, run; run(['--help']); run(['optimize', 'nope']); main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "list", "functions"],
        check=True, capture_output=True, text=True, env=env,
    )  # fmt: skip
    assert "Usage" in done.stdout and "error[" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "identity" in done.stdout


@pytest.mark.parametrize("module", seeds(1, ["eqsat", "eqsat.cli"]))
def test_the_module_runs_and_nobody_has_to_read_on(module):
    command = [sys.executable, "-u", "-m", module, "list", "rules"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        assert run.stdout.readline().startswith(b"rule ")
        run.stdout.close()
        assert (run.wait(), run.stderr.read()) == (0, b"")
