"""A search whose time is not over gives the same answer in every process, on a busy machine too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BUSY = "while True: pass"
CHILD = """
import sys, eqsat
found = eqsat.optimize(eqsat.read(sys.argv[1]), target=sys.argv[2], time_limit=600)
print([(g.members, g.reads, g.writes, g.step) for g in found.selection.groups])
print(found.selection.goals, found.selection.stop)
"""


def answer(program: str, target: str, seed: str, threads: str) -> str:
    numbers = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    environment = os.environ | numbers | {"PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", CHILD, program, target]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def same(program: str, target: str) -> None:
    alone = answer(program, target, "1", "1")
    assert alone
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        assert answer(program, target, "2", "2") == alone
    finally:
        for child in busy:
            child.kill()
            child.wait()


def test_same_answer_here_and_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hashes are others in a process of its own; the machine is not kept busy."""
    asked = ("transposed_pack", "avx512-xla")
    monkeypatch.setattr(sys, "argv", ["", *asked])
    exec(CHILD, {})
    assert capsys.readouterr().out == answer(*asked, "2", "1") != ""


@pytest.mark.slow
@pytest.mark.parametrize("target", ["avx512-xla", "avx512", "tpu-v5e"])
@pytest.mark.parametrize(
    "program", ["transposed_pack", "encoder", "bottlenecks", "lookup", "minilm"]
)
def test_same_answer_of_models(program: str, target: str) -> None:
    same(program, target)
