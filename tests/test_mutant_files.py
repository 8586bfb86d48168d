"""A share of the gate `mutants`: broken files through all commands; and that it finds fault."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import mlir_mutants
import onnx_mutants
import pytest
from fuzz.runs import brokenfiles

RUNNER = Path(__file__).parent.parent / "benchmarks" / "run.py"
SHARE = "0:6"
COMMANDS = ("optimize", "verify", "explain", "export mlir", "export onnx", "report")


@pytest.mark.slow
def test_broken_files_end_in_an_answer_or_a_sentence(tmp_path: Path):
    out = tmp_path / "out.json"
    # both kinds in one worker; the wall is there to end a hang, however busy the machine is
    args = ["--onnx", SHARE, "--mlir", SHARE]
    args += ["--wall", "300", "--time-limit", "2", "--out", str(out)]
    command = [sys.executable, str(RUNNER), "mutants", *args]
    done = subprocess.run(command, capture_output=True, check=False)
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["failures"] == []
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    for kind in ("onnx", "mlir"):
        assert found[kind]["files"] == 6
        assert set(found[kind]["outcomes"]) == {"ok", "refused"}


@pytest.mark.slow  # about the hunt, which is slow itself
def test_mutants_are_the_same_each_time_and_differ():
    texts = mlir_mutants.texts()
    for make in (onnx_mutants.mutant_of, lambda s: mlir_mutants.whole_mutant_of(s, texts)):
        first, second = make(0), make(1)
        assert first == make(0) != second


JUDGED = [
    (0, "", "ok"),
    (0, "warning[E401]: extraction stopped", "ok"),
    (2, "error[E370]: not MLIR", "refused"),
    (3, "error[E311]: nothing admissible", "refused"),
    (2, "", "silent"),
    (4, "error[E900]: internal error: KeyError: 3; this is our bug", "bug"),
    (4, "error[E905]: the schedule is not legal", "bug"),
    (2, "Traceback (most recent call last):\n  File", "traceback"),
    (3, "error[E413]: out of memory", "memory"),
    (1, "error[E500]: result differs from the reference", "mismatch"),
]


@pytest.mark.parametrize(("code", "said", "outcome"), JUDGED)
def test_what_a_command_says_is_judged(code: int, said: str, outcome: str):
    assert brokenfiles.judged(code, said)[0] == outcome


@pytest.mark.slow  # as the hunt; test_written has workers that die and are silent
def test_a_worker_that_hangs_or_dies_is_told_and_replaced(tmp_path: Path):
    options = argparse.Namespace(
        memory=16.0, time_limit=1.0, wall=2.0, without=COMMANDS, log=None, keep=tmp_path / "kept"
    )
    assert [name for name, _ in brokenfiles.commands(tmp_path / "none", 1.0)] == list(COMMANDS)
    worker = brokenfiles.Worker(options)
    brokenfiles.os.kill(worker.process.pid, brokenfiles.signal.SIGSTOP)  # as if it never came back
    hung = worker.one(("mlir", 0), tmp_path / "stack.txt")
    assert hung["outcome"] == "hang" and not worker.is_usable
    worker = brokenfiles.Worker(options)
    brokenfiles.os.kill(worker.process.pid, brokenfiles.signal.SIGKILL)
    died = worker.one(("mlir", 0), tmp_path / "stack.txt")
    assert died["outcome"] == "killed" and not worker.is_usable
    brokenfiles._note({"kind": "mlir", "seed": 0, **died}, options)
    assert (tmp_path / "kept" / "m0.mlir").read_bytes() == brokenfiles.text_of(("mlir", 0))
