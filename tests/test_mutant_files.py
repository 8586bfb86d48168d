"""A share of the gate `mutants`: broken files through all commands; and that it finds fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent.parent / "benchmarks" / "run.py"
SHARE = "0:6"


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
