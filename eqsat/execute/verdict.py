"""What a verification found: the record that runs keep, print and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OK, MISMATCH, UNPROVEN = "ok", "mismatch", "unproven"
WHOLE, SAMPLED = "whole", "sampled"


@dataclass(frozen=True)
class Verification:
    """max_error: max|a − b| / max|b| over samples and results; `where` names the worst element.

    outcome: `ok`, `mismatch` or `unproven`, with a sentence in `reason` unless it is ok. limit: the
    relative error that was allowed there. samples: how many inputs were judged. operations: of
    work, as the limit counts them. arena, arena_reason: the same of the schedule on one arena; ""
    where none was asked for. input_error: max_error of the input program itself, run as it came on
    the same executor and samples; None if not requested. drawn: weights of which only the shape was
    known.

    how: `whole`, every element of every result against the float64 reference; or `sampled`, every
    dispatch from its own operands, at elements that were computed in float64 on demand. elements:
    how many these are, `checked` a sentence of what else was compared; 0 and "" where `whole`.
    """

    ok: bool
    max_error: float
    limit: float
    samples: int
    where: str
    outcome: str = OK
    reason: str = ""
    operations: int = 0
    arena: str = ""
    arena_reason: str = ""
    input_error: float | None = None
    drawn: int = 0
    how: str = WHOLE
    elements: int = 0
    checked: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys of a run's summary, and `where`."""
        return dict(vars(self))


def unproven(reason: str, operations: int) -> Verification:
    """No statement, and why."""
    return Verification(False, 0.0, 0.0, 0, "", UNPROVEN, reason, operations)
