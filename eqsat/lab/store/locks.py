"""Locks between processes of one machine: the system takes them back however a process ends.

Where the system has no `flock` (Windows), nobody is waited for: a run may be done twice then, and
measured beside a search, but nothing is lost.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from eqsat.model.folders import cache_folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

OWNERS = "runs/.owners"  # folder of the lock files of those who use a store, below the store's


class Owner:
    """One user of a store; `name` tells others whom to ask `lives`."""

    def __init__(self, folder: Path):
        self.name = uuid.uuid4().hex
        self._path = folder / OWNERS / self.name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w")
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def lives(folder: Path, owner: str) -> bool:
    """Whether a user of the store is still there; what one that is gone left behind is removed."""
    if fcntl is None:
        return False
    path = folder / OWNERS / owner
    try:
        with path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    path.unlink(missing_ok=True)
    return False


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """While something of this machine's searches: measurements wait, other searches do not."""
    with _machine_lock(shared=True):
        yield


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """While something is timed on this machine: waits until no experiment of this user searches."""
    with _machine_lock(shared=False):
        yield


@contextlib.contextmanager
def _machine_lock(shared: bool) -> Iterator[None]:
    file = None if fcntl is None else _machine_file()
    if fcntl is None or file is None:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def _machine_file() -> IO[str] | None:
    """The file of this machine and user; None where the cache folder cannot be written."""
    path = cache_folder("locks") / "searches"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError:
        return None
