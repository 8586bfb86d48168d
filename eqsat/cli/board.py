"""What a person sees of a sweep: a line per row that ends, and one live line of what runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat.cli.talk import say

if TYPE_CHECKING:
    from eqsat.lab.store.record import RunRecord


@dataclass
class Board:
    """Rows done, running and left; a sweep's `Watcher`, and what Ctrl-C says it had come to."""

    quiet: bool
    rows: int = 0
    kept: int = 0  # that were there already
    made: int = 0
    running: dict[str, float] = field(default_factory=dict)  # row -> when it began
    lines: dict[str, str] = field(default_factory=dict)  # row -> how far its search is
    taken_s: float = 0.0  # by all rows that ended
    left_behind = "rows that ended are kept, and the same command goes on from there"

    @property
    def has_begun(self) -> bool:
        return self.rows > 0

    def began(self, name: str) -> None:
        self.running[name] = time.monotonic()

    def heard(self, name: str, line: str) -> None:
        self.lines[name] = line

    def noted(self, name: str, line: str) -> None:
        if not self.quiet:
            say(f"{name}: {line}")

    def ended(self, name: str, record: RunRecord, is_new: bool) -> None:
        from eqsat.lab.results import status_text

        self.lines.pop(name, None)
        if (begin := self.running.pop(name, None)) is not None:
            self.taken_s += time.monotonic() - begin
        self.made += is_new
        self.kept += not is_new
        if not self.quiet:
            known = "" if is_new else " (kept from before)"
            say(f"{name}: {status_text(record)}{known}")

    @property
    def line(self) -> str:
        """`5 of 36 rows done, 2 running, about 40 s left; ROW: candidates, 3.1 s of 60 s: …`."""
        from eqsat.report.units import count_text

        text = f"{self.kept + self.made} of {count_text(self.rows, 'row')} done"
        text += f", {len(self.running)} running" if self.running else ""
        if self.made and (left := self.rows - self.kept - self.made):
            seconds = self.taken_s / self.made * left / max(1, len(self.running))
            text += f", about {_duration(seconds)} left"
        told = [f"{name}: {self.lines[name]}" for name in self.running if name in self.lines]
        return "; ".join([text, *told])

    @contextmanager
    def live(self) -> Iterator[None]:
        """The line kept up to date while a person is watching."""
        if self.quiet or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(stderr=True)
        with Live(get_renderable=lambda: Text(self.line), console=console, transient=True):
            yield


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
