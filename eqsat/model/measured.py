"""Timed programs of one search: predicted and measured times, and which program was kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.model.restore import restored

# where a timed program comes from
CHOSEN, NEAR, INPUT, INPUT_BY_XLA = "chosen", "near", "input", "input by XLA"


@dataclass(frozen=True)
class Timed:
    """One program: what the model predicts, medians of a call, and the ratio to the chosen one.

    predicted_us: None where the model has no prediction, as for the input as XLA compiles it.
    ratio: the chosen program's time on the wall over this one's, of the median round, with its 95 %
    interval.
    """

    name: str
    origin: str
    predicted_us: float | None
    wall_us: float
    cpu_us: float
    ratio: tuple[float, float, float]


@dataclass(frozen=True)
class Measured:
    """All that were timed, the chosen one first, in `rounds` interleaved rounds of `calls` calls.

    kept: number of the program that the run holds: the fastest, unless the chosen one is as fast
    within the interval.
    """

    programs: tuple[Timed, ...]
    rounds: int
    calls: int
    kept: int
    asked: int  # programs that were asked for; fewer are known where there was no time, or no more

    @property
    def keeps_input_by_xla(self) -> bool:
        """Whether XLA's own form of the input was the fastest."""
        return self.programs[self.kept].origin == INPUT_BY_XLA

    def to_json(self) -> dict[str, Any]:
        programs = [vars(p) | {"ratio": list(p.ratio)} for p in self.programs]
        return vars(self) | {"programs": programs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Measured:
        return restored(cls, data)
