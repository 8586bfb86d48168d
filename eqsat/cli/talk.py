"""Talk goes to stderr: diagnostics, progress, what was written."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.progress import Progress


def say(text: str, end: str = "\n") -> None:
    """One message to a person."""
    print(text, file=sys.stderr, end=end, flush=True)


def say_diagnostics(diagnostics: Iterable[Diagnostic], as_json: bool) -> None:
    """Full messages, or one JSON object per line for programs."""
    found = list(diagnostics)
    if as_json:
        for d in found:
            say(json.dumps(d.to_json()))
        return
    say("\n\n".join(d.full() for d in found))


@contextmanager
def told_warnings(as_json: bool) -> Iterator[None]:
    """Print warnings of ours as diagnostics; Python's own keep their form."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", EqsatWarning)
        plain = warnings.showwarning

        def show(message: Any, *rest: Any, **more: Any) -> None:
            if isinstance(message, EqsatWarning):
                say_diagnostics([message.diagnostic], as_json)
            else:
                plain(message, *rest, **more)

        warnings.showwarning = show
        yield


@contextmanager
def logged(wanted: bool) -> Iterator[None]:
    """Print what searches log, a line each: `  1.204 s  eqsat.saturate  112 rules: 6 classes …`."""
    if not wanted:
        yield
        return
    logger = logging.getLogger("eqsat")
    handler, level, begin = logging.StreamHandler(), logger.level, time.time()

    def line(record: logging.LogRecord) -> str:
        return f"{record.created - begin:7.3f} s  {record.name}  {record.getMessage()}"

    handler.format = line
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@dataclass
class Onlooker:
    """Who listens to a search for a person: `optimize` and the like call it with what is new."""

    now: Progress | None = None
    left_behind = "nothing was written"  # by a search that is interrupted

    @property
    def has_begun(self) -> bool:
        return self.now is not None

    def __call__(self, now: Progress) -> None:
        self.now = now

    @property
    def line(self) -> str:
        from eqsat.report.progress import progress_line

        return "reading" if self.now is None else progress_line(self.now)


@contextmanager
def progress(watch: Onlooker, quiet: bool) -> Iterator[None]:
    """One live line about the search while a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots")

    def line() -> Spinner:
        spinner.update(text=watch.line)
        return spinner

    with Live(get_renderable=line, console=Console(stderr=True), transient=True):
        yield
