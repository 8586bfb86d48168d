"""Footprints of a program, one line for each way in which its weights can come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.model.printed import Printed
from eqsat.model.schedule import Schedule
from eqsat.report.facts import goal_key, scaled, schedule_figures
from eqsat.report.finished import Finished, by_figures, finished_stages
from eqsat.report.formatting import bytes_text, table_text, time_text
from eqsat.report.text import rule_check_lines
from eqsat.report.weights import WeightLives, kinds_text

PLAIN = "plain"  # the way whose peak is X
WORDS = {
    PLAIN: "no data tiling",
    "ahead": "packed ahead, in the file",
    "load": "packed at load, then dropped",
    "held": "packed at load, originals held",
    "run": "packed in every run",
    "joint": "joint plan",
}
COLUMNS = (
    "weights", "resident", "at load", "peak", "time", "dispatches", "proof", "how they live",
)  # fmt: skip


@dataclass(frozen=True)
class FootprintReport(Printed):
    """A run per way in which weights come; None where nothing is admissible."""

    program: str
    target: str
    weight_bytes: int  # Y
    runs: Mapping[str, Finished | None]

    @property
    def total_bytes(self) -> int | None:
        """X: the peak of the program without data tiling; None if there is none."""
        plain = self.runs[PLAIN]
        return None if plain is None else finished_stages(plain)[2].peak_bytes

    def to_text(self) -> str:
        """X, Y, 2Y and X + 2Y in a line, a table of the ways, and by whose figures it is proven."""
        x, y = self.total_bytes, self.weight_bytes
        sizes = {"X": x, "Y": y, "2Y": 2 * y, "X + 2Y": None if x is None else x + 2 * y}
        told = ", ".join(f"{k} {'–' if n is None else bytes_text(n)}" for k, n in sizes.items())
        rows = [_cells(self, way, run) for way, run in self.runs.items()]
        found = next(run for run in self.runs.values() if run is not None)
        by = by_figures(found.target, found.goals)
        notes = [
            "X is the peak of a run without data tiling, Y the weights as the program has them.",
            *([f"what is proven is so{by}"] if by else []),
            *rule_check_lines(found),
        ]
        head = f"{self.program} on {self.target}: {told}"
        return "\n".join([head, "", table_text(COLUMNS, rows).rstrip(), *notes, ""])

    def to_json(self) -> dict[str, Any]:
        """What `--output-format json` prints; a way is null where nothing is admissible."""
        x, y = self.total_bytes, self.weight_bytes
        return {
            "format": 1,
            "program": self.program,
            "target": self.target,
            "x_bytes": x,
            "y_bytes": y,
            "twice_y_bytes": 2 * y,
            "x_and_twice_y_bytes": None if x is None else x + 2 * y,
            "ways": {
                way: None if run is None else _way_json(run) for way, run in self.runs.items()
            },
        }


def _cells(report: FootprintReport, way: str, run: Finished | None) -> tuple[str, ...]:
    if run is None:
        return (WORDS[way], *["–"] * 6, "no program")
    schedule = finished_stages(run)[2]
    x, y = report.total_bytes, report.weight_bytes
    kept, load = (f"{bytes_text(n)} ({n / y:.2f}Y)" for n in _weight_bytes(schedule))
    peak = bytes_text(schedule.peak_bytes)
    peak += "" if x is None else f" ({schedule.peak_bytes / x:.2f}X)"
    figures = kept, load, peak, time_text(schedule.time_ps), f"{schedule.kernels:,}"
    return (WORDS[way], *figures, _proof(run), kinds_text(WeightLives(schedule)))


def _weight_bytes(schedule: Schedule) -> tuple[int, int]:
    return schedule.resident_bytes, schedule.load_peak_bytes


def _proof(run: Finished) -> str:
    """`proven`, or the goals that are not within their tolerance, with their gaps."""
    _, selection, _ = finished_stages(run)
    gaps = {g.name: selection.goal(g.name).gap for g in run.goals}
    left = [
        f"{n} {gaps[n]:.1%}" for n, g in zip(gaps, run.goals, strict=True) if gaps[n] > g.within
    ]
    word = f"best of {selection.among}" if selection.cuts else "proven"
    return f"gap: {', '.join(left)}" if left else word


def _way_json(run: Finished) -> dict[str, Any]:
    _, selection, schedule = finished_stages(run)
    kept, load = _weight_bytes(schedule)
    goals = {
        goal_key(g.name)[0]: {
            "value": scaled(g.name, (found := selection.goal(g.name)).value),
            "bound": scaled(g.name, found.bound),
            "gap": found.gap,
        }
        for g in run.goals
    }
    return {
        **schedule_figures(schedule),
        "resident_bytes": kept,
        "load_peak_bytes": load,
        "goals": goals,
        "claim": selection.claim,
        "stop": selection.stop,
        "lives": kinds_text(WeightLives(schedule)),
    }
