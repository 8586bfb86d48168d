"""What is stated to be equal beside the rules: the values themselves, by the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fuzz.worst import worst_error

from eqsat.frontends.source import Source
from eqsat.model.equalities import Equalities
from eqsat.model.program import Builder, Program
from eqsat.ops.meaning.programs import evaluate_program

MOST_ERROR = 1e-12


def hold_equal(source: Source, program: Program, known: Equalities, args: Sequence[Any]) -> None:
    """Both values of every stated pair are the same numbers on these arguments."""
    b = Builder("both")
    for n in (*program.nodes, *known.nodes):
        b.append(n.op, n.operands, n.attr)
    both = b.build([i for pair in known.equal for i in pair])
    both.verify()
    values = evaluate_program(both, args, source.weights)
    for got, want in zip(values[::2], values[1::2], strict=True):
        assert worst_error(np.asarray(got), np.asarray(want, np.float64))[0] < MOST_ERROR
