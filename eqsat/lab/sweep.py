"""Many runs through one executor: what is finished is kept at once, what is kept is not run again.

Knows nothing of programs: a task has a key and a payload, and `work` makes a record of it, also of
a run that is refused. The executor is any `concurrent.futures.Executor`: processes here, a
Dask cluster's, or none (in this process, one after another). A worker that dies takes the tasks
with it that it had; they are run again one at a time, so that the one which kills its worker is
found.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol

from eqsat.lab.cells import CellRequest, Heard, run_cell
from eqsat.lab.store.record import RunRecord, failed_record
from eqsat.lab.store.store import RunStore
from eqsat.model.diag import Diagnostic, fail

ALONE = 2  # times that a task is tried in an executor of its own
POLL_SECONDS = 0.2  # between two looks at what another process works on
Work = Callable[[Any], RunRecord]


@dataclass(frozen=True)
class RowTask:
    """One run to make: its row, its key, and what `work` is called with (picklable)."""

    name: str
    key: str
    program: str
    target: str
    payload: Any


class Watcher(Protocol):
    """The listener of a sweep."""

    def began(self, name: str) -> None:
        """A row begins to run."""

    def heard(self, name: str, line: str) -> None:
        """How far a running row is."""

    def noted(self, name: str, line: str) -> None:
        """Something to know of a row: whom it waits for, say."""

    def ended(self, name: str, record: RunRecord, is_new: bool) -> None:
        """A row is finished; is_new: it ran just now, by this process."""


class NoWatcher:
    """A listener that ignores everything."""

    def began(self, name: str) -> None:
        pass

    def heard(self, name: str, line: str) -> None:
        pass

    def noted(self, name: str, line: str) -> None:
        pass

    def ended(self, name: str, record: RunRecord, is_new: bool) -> None:
        pass


@dataclass
class Crew:
    """Where tasks run. make: a new executor, also after a worker died; size: tasks at a time.

    stop: ends what runs, if the executor cannot cancel that.
    """

    make: Callable[[], Executor]
    size: int
    stop: Callable[[Executor], None] = lambda _: None


def sweep(
    store: RunStore | None,
    tasks: Sequence[RowTask],
    work: Work,
    *,
    crew: Crew | None = None,
    serves: Callable[[RunRecord], bool] = lambda _: True,
    watcher: Watcher | None = None,
) -> dict[str, RunRecord]:
    """The record of every task by its key; tasks of one key are run once.

    serves: whether a kept record is what is wanted, so that its task is not run. Everything that is
    finished is kept before the next thing happens, so a process that ends anyhow loses no more than
    what runs.
    """
    watch = watcher or NoWatcher()
    run = _Sweep(store, work, watch, serves)
    todo = deque(t for t in {t.key: t for t in tasks}.values() if not run.is_kept(t))
    if crew is None:
        run.here(todo)
    else:
        run.by(crew, todo)
    return run.records


class _Sweep:
    def __init__(
        self,
        store: RunStore | None,
        work: Work,
        watch: Watcher,
        serves: Callable[[RunRecord], bool],
    ):
        self.store, self.work, self.watch, self.serves = store, work, watch, serves
        self.records: dict[str, RunRecord] = {}
        self.attempts: dict[str, int] = {}
        self.told: set[tuple[str, str]] = set()  # of which row what was said

    def is_kept(self, task: RowTask) -> bool:
        """Whether a finished record of the task serves; it is found then."""
        record = None if self.store is None else self.store.find(task.key)
        if self.store is not None and (why := self.store.damage.pop(task.key, "")):
            self._tell(task, f"runs again, as its record is damaged: {why}")
        if record is None or not self.serves(record):
            return False
        self.records[task.key] = record
        self.watch.ended(task.name, record, is_new=False)
        return True

    # ---- in this process -----------------------------------------------------------------------
    def here(self, todo: deque[RowTask]) -> None:
        """One after another; what other processes work on is waited for at the end."""
        waiting: deque[RowTask] = deque()
        while todo or waiting:
            task = todo.popleft() if todo else self._next_free(waiting)
            if not self._begun(task, waiting):
                continue
            try:
                record = self.work(task.payload)
            except BaseException:
                self._release(task, "interrupted")
                raise
            self._keep(task, record)

    # ---- by workers ----------------------------------------------------------------------------
    def by(self, crew: Crew, todo: deque[RowTask]) -> None:
        """As many at a time as the crew has; those whose worker died once more, each alone."""
        waiting: deque[RowTask] = deque()
        while todo or waiting:
            if not todo:
                todo.append(self._next_free(waiting))
            for task in self._together(crew, todo, waiting):
                self._alone(crew, task)

    def _together(self, crew: Crew, todo: deque[RowTask], waiting: deque[RowTask]) -> list[RowTask]:
        """Runs what there is; ends early, with the tasks that were running, if a worker dies."""
        flying: dict[Future[RunRecord], RowTask] = {}
        died: list[RowTask] = []
        with self._executor(crew, flying) as executor:
            while (todo and not died) or flying:
                while todo and not died and len(flying) < crew.size:
                    task = todo.popleft()
                    if not self._begun(task, waiting):
                        continue
                    try:
                        flying[executor.submit(self.work, task.payload)] = task
                    except BrokenExecutor:  # a worker died a moment ago
                        died.append(task)
                for future in wait(flying, return_when=FIRST_COMPLETED).done if flying else ():
                    task = flying.pop(future)
                    if not self._collected(task, future):
                        died.append(task)
        return died

    def _alone(self, crew: Crew, task: RowTask) -> None:
        """A task whose worker died, in executors of its own: if two of them die, it is why."""
        for _ in range(ALONE):
            flying: dict[Future[RunRecord], RowTask] = {}
            with self._executor(crew, flying) as executor:
                flying[executor.submit(self.work, task.payload)] = task
                wait(flying)
                (future,) = flying
                flying.clear()
            if self._collected(task, future):
                return
        self._keep(task, _lost(task, "its worker process ended each time (out of memory?)"))

    @contextmanager
    def _executor(
        self, crew: Crew, flying: Mapping[Future[RunRecord], RowTask]
    ) -> Iterator[Executor]:
        """An executor that is gone afterwards; what it still ran when we were stopped is freed."""
        executor = crew.make()
        try:
            yield executor
        except BaseException:
            for future, task in flying.items():
                future.cancel()
                self._release(task, "interrupted")
            crew.stop(executor)
            executor.shutdown(wait=False)
            raise
        executor.shutdown()

    def _collected(self, task: RowTask, future: Future[RunRecord]) -> bool:
        """Keeps what a worker found; False if the worker died."""
        try:
            record = future.result()
        except BrokenExecutor:
            return False
        except Exception as e:  # an executor's own errors are of many kinds
            record = _lost(task, f"{type(e).__name__}: {e}")
        self._keep(task, record)
        return True

    # ---- claims --------------------------------------------------------------------------------
    def _begun(self, task: RowTask, waiting: deque[RowTask]) -> bool:
        """Claims a task; False if another process has it, or finished it a moment ago."""
        if self.store is not None:
            attempt = self.store.claim(task.key)
            if attempt is None:
                self._tell(task, f"waits for {self.store.holder(task.key)}")
                waiting.append(task)
                return False
            self.attempts[task.key] = attempt
            if self.is_kept(task):
                self._release(task, "found")
                return False
        self.watch.began(task.name)
        return True

    def _tell(self, task: RowTask, line: str) -> None:
        """Says something of a row, once."""
        if (task.key, line) not in self.told:
            self.told.add((task.key, line))
            self.watch.noted(task.name, line)

    def _next_free(self, waiting: deque[RowTask]) -> RowTask:
        """The next that another process has: to be tried again in a moment."""
        time.sleep(POLL_SECONDS)
        return waiting.popleft()

    def _keep(self, task: RowTask, record: RunRecord) -> None:
        if self.store is not None:
            record = self.store.finish(self.attempts.pop(task.key), record)
        self.records[task.key] = record
        self.watch.ended(task.name, record, is_new=True)

    def _release(self, task: RowTask, outcome: str) -> None:
        if self.store is not None and task.key in self.attempts:
            self.store.release(self.attempts.pop(task.key), outcome)


def _lost(task: RowTask, why: str) -> RunRecord:
    problem = Diagnostic(
        "E432", f"row `{task.name}` was lost: {why}",
        help="run the experiment again: only what is missing runs",
    )  # fmt: skip
    return failed_record(task.key, task.program, task.target, [problem], exit_code=2)


PENDING = 2  # tasks per thread of a cluster, so that no worker waits for its next one
SECONDS = 10  # to find a scheduler
TELL_SECONDS = 0.5  # between two words of a worker about how far it is
_told: dict[str, Any] = {"queue": None, "at": 0.0}  # of a worker


@contextmanager
def local_crew(jobs: int, heard: Heard) -> Iterator[Crew]:
    """Processes of this machine, which end when this one does; heard: told how far rows are."""
    context = multiprocessing.get_context("spawn")  # JAX and CP-SAT have threads: no fork
    queue = context.SimpleQueue()

    def make() -> Executor:
        return ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(queue,))

    def listen() -> None:
        for name, line in iter(queue.get, None):
            heard(name, line)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield Crew(make, jobs, _stop_processes)
    finally:
        queue.put(None)


def run_and_tell(request: CellRequest) -> RunRecord:
    """`cells.run_cell` in a worker, which tells its parent how far it is, if that wants to know."""
    return run_cell(request, _tell)


def _tell(name: str, line: str) -> None:
    queue, now = _told["queue"], time.monotonic()
    if queue is not None and now - _told["at"] >= TELL_SECONDS:
        _told["at"] = now
        queue.put((name, line))


def _stop_processes(executor: Executor) -> None:
    """At once: a search would go on to its end. Python 3.14 has `terminate_workers` for this."""
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.terminate()


def _begin(queue: Any) -> None:
    """In a worker, first of all: it ends with its parent, as nobody would wait for it."""
    _told["queue"] = queue
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def dask_crew(address: str) -> Iterator[Crew]:
    """The workers of the Dask cluster whose scheduler has this address (`tcp://host:8786`).

    A worker that dies has its tasks run by another one; Dask gives up after a few. EqsatError
    (E433) if `distributed` is not installed, or there is no answer from the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise fail(
            "E433", "`--dask` needs the package `distributed`",
            help="pip install 'eqsat[cluster]'",
        ) from None  # fmt: skip
    try:
        client = Client(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError) as e:
        raise fail(
            "E433", f"no Dask scheduler at `{address}`: {e}", help="`dask scheduler` starts one"
        ) from None
    with client:
        nthreads: Any = client.nthreads()  # by worker
        threads = sum(nthreads.values())
        if not threads:
            raise fail("E433", f"the Dask cluster at `{address}` has no workers")
        yield Crew(lambda: client.get_executor(pure=False), PENDING * threads)
