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
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        assert answer(program, target, "2", "2") == alone
    finally:
        for child in busy:
            child.kill()
            child.wait()
    assert alone


@pytest.mark.parametrize("target", ["avx512-xla", pytest.param("avx512", marks=pytest.mark.slow)])
def test_same_answer(target: str) -> None:
    same("transposed_pack", target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["avx512-xla", "avx512", "tpu-v5e"])
@pytest.mark.parametrize("program", ["encoder", "bottlenecks", "lookup", "minilm"])
def test_same_answer_of_models(program: str, target: str) -> None:
    same(program, target)
