"""What is minimised, and within what."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = "memory"  # the goal that is no sum


@dataclass(frozen=True)
class Objective:
    """Minimise Σ weight · goal within caps.

    `among`: options that answers within the caps hold, if that is known already. `pairs`: where
    necessity does not tell which of two items comes first, a literal does (`anyrows`).
    """

    weights: dict[str, int]
    caps: dict[str, int]
    among: tuple[int, ...] | None = None
    pairs: bool = False

    @property
    def is_peak(self) -> bool:
        """Whether memory is the only goal."""
        return self.weights == {MEMORY: 1}
