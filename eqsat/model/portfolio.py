"""The CP-SAT workers of an extraction, set up so that an answer with a proof is always the same."""

from __future__ import annotations

from typing import Any

# what makes layout graphs prove: a strong linear relaxation, and workers that use it; the
# default portfolio for few workers overrides the linearisation level
SUBSOLVERS = ("max_lp", "core", "quick_restart")
LEAST_SECONDS = 0.5  # of a solve: CP-SAT 9.15 was seen to abort when time ran out while it loaded


def set_limits(parameters: Any, seconds: float, seed: int, work: float | None = None) -> None:
    """When a solve ends without a proof; `work` is CP-SAT's deterministic time."""
    parameters.max_time_in_seconds = max(seconds, LEAST_SECONDS)
    if work is not None:
        parameters.max_deterministic_time = work
    parameters.random_seed = seed
    parameters.linearization_level = 2
    # this part of the presolve of 9.15 removes answers, the best ones too (google/or-tools#5293)
    parameters.presolve_inclusion_work_limit = 0


def set_workers(parameters: Any) -> None:
    """The portfolio, its workers interleaved instead of racing."""
    parameters.num_workers = len(SUBSOLVERS)
    parameters.subsolvers.extend(SUBSOLVERS)
    parameters.interleave_search = True  # the same answer on every run that ends by proof
