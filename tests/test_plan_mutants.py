"""Mutants of planner and generator, in a process of their own: they fork, which JAX's threads of
other tests do not survive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

APART = Path(__file__).with_name("planmutants_apart.py")


@pytest.mark.slow  # how `make plan-mutants` makes and judges them
def test_mutants_of_planner_and_generator_are_told() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:xdist", str(APART)]
    root = APART.parent.parent
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stdout[-3000:]
