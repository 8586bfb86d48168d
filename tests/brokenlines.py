"""Texts of other compilers with lines gone, doubled or cut, and what a reader may say of them."""

from __future__ import annotations

import random

from eqsat.frontends.mlir.dispatches import read_flow
from eqsat.model.diag import EqsatError


def codes_of_broken(text: str, seed: int, most: int) -> set[str]:
    """The codes that IREE's dispatches are refused with; up to `most` lines are broken."""
    rng = random.Random(seed)
    lines = text.splitlines()
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(lines))
        lines[at : at + 1] = rng.choice([[], [lines[at]] * 2, [lines[at][: len(lines[at]) // 2]]])
    try:
        read_flow("\n".join(lines), "hostile.mlir").verify()
    except EqsatError as error:
        return {d.code for d in error.diagnostics}
    return set()
