"""Executors for sweeps: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from typing import Any

from eqsat.lab.cells import CellRequest, Heard, run_cell
from eqsat.lab.store.record import RunRecord
from eqsat.lab.sweep import Crew
from eqsat.model.diag import fail

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
