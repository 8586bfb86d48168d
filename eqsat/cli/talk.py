"""Talk goes to stderr: diagnostics, progress, what was written, and what Ctrl-C came to."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eqsat.cli.terminal import above_live_line, live_line, no_live_line, painted
from eqsat.model.deadline import Stop
from eqsat.model.diag import Diagnostic, EqsatWarning
from eqsat.model.progress import Progress


def say(text: str) -> None:
    """One message to a person."""
    if not above_live_line(text):
        print(text, file=sys.stderr, flush=True)


def say_diagnostics(diagnostics: Iterable[Diagnostic], as_json: bool) -> None:
    """Full messages, or one JSON object per line for programs."""
    every = list(diagnostics)
    if as_json:
        for d in every:
            say(json.dumps(d.to_json()))
        return
    say(painted("\n\n".join(d.full() for d in every), sys.stderr))


@contextmanager
def told_warnings(as_json: bool, quiet: bool) -> Iterator[None]:
    """Print warnings of ours as diagnostics unless `quiet`; Python's own keep their form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "always", EqsatWarning)
        plain = warnings.showwarning

        def show(message: Any, *rest: Any, **more: Any) -> None:
            if isinstance(message, EqsatWarning):
                say_diagnostics([message.diagnostic], as_json)
            else:
                plain(message, *rest, **more)

        warnings.showwarning = show
        yield


@contextmanager
def silenced(wanted: bool) -> Iterator[None]:
    """Print nothing on stdout: only errors are left, which go to stderr."""
    if not wanted:
        yield
        return
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
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
    """The listener of a search for a person: `optimize` and the like call it with news."""

    now: Progress | None = None
    shows_phases: bool = False  # the line of each phase, as it ends
    phases: dict[str, str] = field(default_factory=dict)  # that were shown
    left_behind = "nothing was written"  # by a search that is interrupted

    @property
    def has_begun(self) -> bool:
        return self.now is not None

    def __call__(self, now: Progress) -> None:
        self.now = now
        for phase, line in now.ended.items() if self.shows_phases else ():
            if phase not in self.phases:
                self.phases[phase] = line
                say(line)

    @property
    def line(self) -> str:
        from eqsat.report.text import progress_line

        return "reading" if self.now is None else progress_line(self.now)


@contextmanager
def progress(watch: Onlooker, quiet: bool) -> Iterator[None]:
    """One live line about the search while a person is watching."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.spinner import Spinner

    spinner = Spinner("dots")
    watch.shows_phases = True

    def line() -> Spinner:
        spinner.update(text=watch.line)
        return spinner

    with live_line(line):
        yield


# ---- Ctrl-C --------------------------------------------------------------------------------------
INTERRUPTED = 130
KEPT = -INTERRUPTED  # what a command returns that was interrupted and kept its answer


class Watched(Protocol):
    """Work that can be interrupted: how far it is, and what it leaves behind."""

    @property
    def has_begun(self) -> bool: ...
    @property
    def line(self) -> str: ...
    @property
    def left_behind(self) -> str: ...


@contextmanager
def stops_at_once(stop: Stop | None = None, watch: Watched | None = None) -> Iterator[None]:
    """End the process on Ctrl-C even inside a solver; only around work that writes nothing.

    With a `stop` whose search has an answer, the first Ctrl-C asks for that and lets the process go
    on to tell and save it; the second one ends it. Both say how far the search of `watch` came.

    CP-SAT takes SIGINT for itself (it would return its best answer so far) and egglog lets Python
    see it only when it is done, so another thread waits for the signal. To be entered before numpy
    is imported, whose threads would not block it. Where a thread cannot wait (Windows, or not
    called from the main thread), Python's own handling stays.
    """
    here = threading.current_thread()
    if not hasattr(signal, "pthread_sigmask") or here is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    done = threading.Event()
    waiter = threading.Thread(target=_wait, args=(done, stop, watch), daemon=True)
    waiter.start()
    try:
        yield
    finally:
        done.set()
        assert waiter.ident is not None
        signal.pthread_kill(waiter.ident, signal.SIGINT)
        waiter.join()
        if handler is not None:  # None: not Python's to restore
            signal.signal(signal.SIGINT, handler)  # CP-SAT leaves the default one behind
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(done: threading.Event, stop: Stop | None, watch: Watched | None) -> None:
    signal.sigwait({signal.SIGINT})
    where = f" ({watch.line})" if watch is not None and watch.has_begun else ""
    if stop is not None and stop.has_answer and not done.is_set():
        say(f"interrupted, keeping the best answer so far; once more to end at once{where}")
        stop.request()
        signal.sigwait({signal.SIGINT})
        where = ""
    if not done.is_set():
        lost = "nothing was written" if watch is None else watch.left_behind
        try:
            no_live_line()
            say(f"interrupted, {lost}{where}")
        finally:
            os._exit(INTERRUPTED)
