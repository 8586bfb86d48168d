"""Kernels on the CPU of the tests: the shipped target it runs, and what tests of others do here.

A test that is not about one set of instructions is of `WIDEST`. One that is, skips by `needs` or
`needs_kernels`, or, where what it claims holds of XLA ops too, is marked `or_as_ops`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from eqsat.api import target as read_target
from eqsat.execute.kernels import jit
from eqsat.model.dispatch import Machine

SHIPPED = ("avx512", "avx2", "arm64")  # of kernels, the widest first


@cache
def why_not(kernels: Machine | str) -> str:
    """Why kernels for a machine, or of a target by its name, do not run here.

    Empty if they do, or if the target is run by another executor.
    """
    if isinstance(kernels, Machine):
        return jit.why_not(kernels)
    target = read_target(kernels)
    return jit.why_not(target.machine) if target.executor == "kernels" else ""


def needs(kernels: Machine | str) -> None:
    """Skip the test that calls this where the CPU lacks what the kernels use."""
    if why := why_not(kernels):
        pytest.skip(why)


def needs_kernels(kernels: Machine | str) -> Any:
    """As `needs`, for tests that are decorated."""
    why = why_not(kernels)
    return pytest.mark.skipif(bool(why), reason=why or "they run")


def or_as_ops(kernels: str) -> Any:
    """For a claim of a target's program, whatever runs it: E510 is expected where no kernel can."""
    said = "ignore:.*E510:eqsat.model.diag.EqsatWarning" if why_not(kernels) else "error"
    return pytest.mark.filterwarnings(said)


WIDEST = next((t for t in SHIPPED if not why_not(t)), SHIPPED[0])
