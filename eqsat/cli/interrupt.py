"""Ctrl-C during a search: one line, exit code 130, at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eqsat.cli.talk import say

INTERRUPTED = 130


@contextmanager
def stops_at_once() -> Iterator[None]:
    """End the process on Ctrl-C even inside a solver; only around work that writes nothing.

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
    waiter = threading.Thread(target=_wait, args=(done,), daemon=True)
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


def _wait(done: threading.Event) -> None:
    signal.sigwait({signal.SIGINT})
    if not done.is_set():
        say("interrupted, nothing was written")
        os._exit(INTERRUPTED)
