"""`eqsat.footprint`: what a program takes in memory for each way in which its weights can come."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eqsat.api.optimization import goals_asked, optimize
from eqsat.api.reading import source_of
from eqsat.frontends.source import Source
from eqsat.model.diag import EqsatError, fail
from eqsat.model.files import write_text
from eqsat.model.program import Program
from eqsat.model.selection import GoalRequest
from eqsat.report.footprint import FootprintReport
from eqsat.run import Run
from eqsat.run.artefact import check_place, written_whole

FILE = "footprint.json"
QUICKEST = ("time", "memory", "resident")
JOINT_GOALS = ("time:within=1%", "load_peak", "memory")
# way -> settings of the target, and the goals that come before the quickest program; what the
# caller holds counts, so the least bytes that stay are those of the originals alone
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": (("data_tiling=false", "tiles_forced=false", "originals=dropped"), ()),
    "ahead": (("originals=stored",), ()),
    "load": (("originals=dropped",), ()),
    "held": (("originals=held",), ()),
    "run": (("originals=held",), ("resident",)),
}
JOINT = "joint"
NOTHING_ADMISSIBLE = 3  # exit code of an error


@dataclass(frozen=True)
class Footprints(FootprintReport):
    """A run per way in which weights come; None where nothing is admissible."""

    runs: dict[str, Run | None]

    def save(self, folder: str | Path) -> Path:
        """footprint.json and a run per way, named after it; EqsatError E309, E407 as of a run."""
        folder = Path(folder)
        check_footprint_place(folder)
        with written_whole(folder) as aside:
            for way, run in self.runs.items():
                if run is not None:
                    run.save(aside / way)
            write_text(aside / FILE, f"{json.dumps(self.to_json(), indent=1)}\n")
        return folder


def check_footprint_place(folder: Path) -> None:
    """Checks before a search that footprints can be written here; EqsatError (E309, E407)."""
    check_place(folder, FILE, "a table of footprints")


def footprint(
    function_or_program: Callable[..., Any] | Program | Source | str,
    *example_args: Any,
    goals: Sequence[str | GoalRequest] = JOINT_GOALS,
    weights: Sequence[str] = (),
    settings: Sequence[str] = (),
    **request: Any,
) -> Footprints:
    """One search for each way in which the weights of a program can come, and for them jointly.

    Ways: `plain` (no data tiling, whose peak is X), `ahead` (stored packed, in the file), `load`
    (packed when they are read, originals dropped), `held` (packed beside originals that the caller
    holds), `run` (packed in every run, nothing ahead), and `joint`, where each weight lives as
    `goals` have it. The others look for the quickest program, and for the least bytes of those.
    request: further arguments of `optimize`. Raises EqsatError: E324 if there are no weights,
    exit_code 3 if no way is admissible.
    """
    source = source_of(function_or_program, example_args, {}, weights)
    if not source.program.weight_bytes:
        message = f"`{source.program.name}` has no weights, whose footprint could be told"
        raise fail("E324", message, help="name the arguments that are weights: `--weights w1,w2`")
    asked: dict[str, tuple[tuple[str, ...], tuple[GoalRequest, ...]]] = {
        way: (keys, goals_asked([*first, *(g for g in QUICKEST if g not in first)]))
        for way, (keys, first) in WAYS.items()
    }
    asked[JOINT] = WAYS["load"][0], goals_asked(goals)
    runs: dict[str, Run | None] = {}
    refused: list[EqsatError] = []
    for way, (keys, wanted) in asked.items():
        runs[way] = None
        try:
            runs[way] = optimize(source, goals=wanted, settings=(*settings, *keys), **request)
        except EqsatError as error:
            if error.exit_code != NOTHING_ADMISSIBLE:
                raise
            refused.append(error)
    found = next((run for run in runs.values() if run is not None), None)
    if found is None:
        raise refused[0]
    return Footprints(source.program.name, found.target.name, source.program.weight_bytes, runs)
