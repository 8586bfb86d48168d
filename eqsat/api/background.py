"""Searches of `eqsat.jit` that take long: one says so, or a thread makes it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from eqsat.model.deadline import Stop
from eqsat.model.layout import MemoryOrders
from eqsat.model.progress import Progress

if TYPE_CHECKING:
    from eqsat.run import Run
    from eqsat.run.phases import Listener

LOG = logging.getLogger("eqsat.jit")
SILENT_SECONDS = 2.0  # a search that takes longer says so
ENDING_SECONDS = 10.0  # for searches, when the process ends


@contextmanager
def said_if_long(name: str, verbose: bool) -> Iterator[tuple[Listener, Callable[[Run], None]]]:
    """Logs a line once a search takes long, and one with its run when it is done.

    Gives what is to hear of the progress of the search, and what takes the run.
    """
    begin, has_said = time.monotonic(), threading.Event()

    def say() -> None:
        has_said.set()
        LOG.warning("`%s`: searching for a faster program, for %.0f s at most", name, limit[0])

    timer, limit = threading.Timer(SILENT_SECONDS, say), [0.0]
    timer.daemon = True

    def hear(now: Progress) -> None:
        if verbose and timer.ident is None:
            limit[0] = now.limit or 0.0
            timer.start()

    def done(run: Run) -> None:
        if has_said.is_set():
            LOG.warning("`%s`: searched in %.1f s: %r", name, time.monotonic() - begin, run)

    try:
        yield hear, done
    finally:
        timer.cancel()


class StillSearched:
    """In place of a callee that is still searched for: the function itself serves."""

    is_input, packs_arguments = True, False
    signature = SimpleNamespace(captured=(), bindings=())
    orders = MemoryOrders()


class SearchThreads:
    """Callees that are there once a thread has searched for them.

    find: searches, in whatever thread calls it; known: whether it has. shapes: of a call, what a
    search takes. renew: called with the key of a call whose callee is another one from now on.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[Any, Any], Any],
        known: Callable[[Hashable], bool],
        key: Callable[[Any, Any], Hashable],
        shapes: Callable[[Any], Any],
        stop: Stop,
    ):
        self.name, self.find, self.known, self.key, self.shapes = name, find, known, key, shapes
        self.stop, self.lock = stop, threading.Lock()
        self.renew: Callable[[Hashable], None] = lambda _: None
        self.threads: dict[Hashable, threading.Thread] = {}
        atexit.register(self._end)

    def callee(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The callee of a call, `StillSearched` as long as there is none."""
        key = self.key(args, kwargs)
        if key is None or self.known(key):
            return self.find(args, kwargs)
        with self.lock:
            if key not in self.threads:
                given = (key, *self.shapes((args, dict(kwargs))))
                thread = threading.Thread(target=self._search, args=given, daemon=True)
                self.threads[key] = thread
                thread.start()
        return StillSearched

    def _search(self, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if self.key(args, kwargs) != key:
                raise ValueError("settings of JAX are those of the calling thread alone")
            self.find(args, kwargs)
        except Exception as error:
            LOG.warning("`%s`: the search failed, the function itself serves: %s", self.name, error)
            return
        if self.known(key):  # a function that captures tracers is searched for one call alone
            self.renew(key)

    def _end(self) -> None:
        """Threads of solvers must not outlive the interpreter."""
        running = [t for t in self.threads.values() if t.is_alive()]
        if running:
            self.stop.request()
        for thread in running:
            thread.join(ENDING_SECONDS)
