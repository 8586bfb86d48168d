"""Ctrl-C during a search: the best answer so far if that is wanted, else at once; exit code 130."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from eqsat.cli.talk import say
from eqsat.model.stopping import Stop

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
        if sys.stderr.isatty():
            say("\x1b[?25h", end="")  # a live line hides the cursor
        lost = "nothing was written" if watch is None else watch.left_behind
        say(f"interrupted, {lost}{where}")
        os._exit(INTERRUPTED)
